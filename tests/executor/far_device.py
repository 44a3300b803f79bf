"""A device of its own kind, for tests: tensors keep their data on the CPU, where no other sees it.

A kernel that is given tensors of both kinds fails, as on a GPU. To register the device with torch
cannot be undone: it is for a process of its own.
"""

from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

NAME = "far"
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


def _is_far(tensor: torch.Tensor) -> bool:
    return tensor.device.type == NAME


def _here(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.data_here if isinstance(value, torch.Tensor) and _is_far(value) else value


def _called(operator: Any, *args: Any, **kwargs: Any) -> Any:
    given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    if str(operator) == "aten._copy_from.default":
        source, target = args[:2]
        _here(target).copy_(_here(source))
        return target
    if str(operator) not in _COPIES:
        assert all(_is_far(item) or item.dim() == 0 for item in given), operator
    known = {id(item.data_here): item for item in given if _is_far(item)}
    moved_args, moved_kwargs = tree_map(_here, (args, kwargs))
    return tree_map(
        lambda made: known.get(id(made)) if id(made) in known else _wrapped(made),
        operator(*moved_args, **moved_kwargs),
    )


def register() -> list[torch.library.Library]:
    """Make the device known to torch; its kernels are there as long as what is returned."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    every = torch.library.Library("_", "IMPL")
    every.fallback(_called, "PrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    for name in ("detach", "alias"):  # torch's own kernels copy no attributes
        aten.impl(name, lambda tensor: _wrapped(tensor.data_here), "PrivateUse1")
    for overload in (torch.ops.aten.arange.default, torch.ops.aten.arange.start_step):
        aten.impl(
            str(overload).removeprefix("aten.").removesuffix(".default"),
            lambda *args, _made=overload, **kwargs: _wrapped(
                _made(*args, **{**kwargs, "device": "cpu"})
            ),
            "PrivateUse1",
        )
    return [every, aten]
