"""A device of its own kind, for tests: tensors keep their data on the CPU, where no other sees it.

A kernel that is given tensors of both kinds fails, as on a GPU. Importing this module registers
the device with torch, which cannot be undone: it is for a process of its own.
"""

from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

backend_registration._setup_privateuseone_for_python_backend("far")
FAR = torch.device("far", 0)
_COPIES = ("aten._to_copy.default", "aten.copy_.default")


def to_far(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor on the device."""
    return _wrapped(tensor.detach().clone())


def _wrapped(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    made = torch._C._acc.create_empty_tensor(tensor.shape, tensor.dtype)
    made.data_here = tensor
    return made


def _here(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    is_far = isinstance(value, torch.Tensor) and value.device == FAR
    return value.data_here if is_far else value


def _called(operator: Any, *args: Any, **kwargs: Any) -> Any:
    given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    if str(operator) == "aten._copy_from.default":
        source, target = args[:2]
        _here(target).copy_(_here(source))
        return target
    if str(operator) not in _COPIES:
        assert all(item.device == FAR or item.dim() == 0 for item in given), operator
    known = {id(item.data_here): item for item in given if item.device == FAR}
    moved_args, moved_kwargs = tree_map(_here, (args, kwargs))
    return tree_map(
        lambda made: known.get(id(made)) if id(made) in known else _wrapped(made),
        operator(*moved_args, **moved_kwargs),
    )


_EVERY = torch.library.Library("_", "IMPL")
_EVERY.fallback(_called, "PrivateUse1")
_ATEN = torch.library.Library("aten", "IMPL")
for _name in ("detach", "alias"):  # torch's own kernels copy no attributes
    _ATEN.impl(_name, lambda tensor: _wrapped(tensor.data_here), "PrivateUse1")
for _overload in (torch.ops.aten.arange.default, torch.ops.aten.arange.start_step):
    _ATEN.impl(
        str(_overload).removeprefix("aten.").removesuffix(".default"),
        lambda *args, _made=_overload, **kwargs: _wrapped(
            _made(*args, **{**kwargs, "device": "cpu"})
        ),
        "PrivateUse1",
    )
