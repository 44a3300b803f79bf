"""Tracing a model on the meta device as if it were on the CPU.

On the meta device torch computes no values at all: a small table that the model writes in its
``forward`` (``torch.tensor([0.5, 0.25], device=x.device)``) is lost, and branches on the device go
another way than where the program will run. Tensors that are fake and claim to be on the CPU cost
as little, keep such tables, and trace what the CPU would run.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import nn
from torch._functorch import config as functorch_config
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_ir.errors import InvalidIRError
from torch_ir.torch_api import (
    FakeTensor,
    FakeTensorMode,
    ShapeEnv,
    in_place_of,
    pytree,
    storage_of,
)


def is_on_meta(model: nn.Module, arguments: Any) -> bool:
    """Return whether some tensors are on the meta device and all others on the CPU."""
    tensors = [*model.parameters(), *model.buffers(), *pytree.tree_leaves(arguments)]
    devices = {tensor.device.type for tensor in tensors if isinstance(tensor, torch.Tensor)}
    return "meta" in devices and devices <= {"meta", "cpu"}


@contextmanager
def on_fake_cpu(
    model: nn.Module, arguments: Any, mode: FakeTensorMode | None = None
) -> Generator[Any]:
    """Replace the model's meta tensors by fake CPU tensors within a ``with`` block.

    It yields the arguments, made so too. Parameters, buffers and tensor attributes are replaced
    one for one, tied ones by the same, and put back at the end, with those that the model set.

    Args:
        model: The model.
        arguments: The arguments of a call.
        mode: Where to make them; then all parameters, buffers and arguments have no data, whatever
            device they are on.
    """
    is_given = mode is not None
    mode = mode or fake_mode()
    made: dict[int, torch.Tensor] = {}
    storages: dict[int, torch.UntypedStorage] = {}

    def fake(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or not (tensor.is_meta or is_given):
            return tensor
        if id(tensor) not in made:
            made[id(tensor)] = _fake(tensor, mode, storages)
        return made[id(tensor)]

    def fake_buffer(tensor: torch.Tensor) -> torch.Tensor:
        """As torch.export makes it: buffers that share memory share that of what they become."""
        if id(tensor) not in made:
            made[id(tensor)] = mode.from_tensor(tensor, static_shapes=True)
        return made[id(tensor)]

    held = [(holder, dict(holder)) for holder in _holders(model)]
    buffers = {id(vars(module)["_buffers"]) for module in model.modules() if is_given}
    try:
        for holder, values in held:
            for name, value in values.items():
                is_weight = is_given and isinstance(value, nn.Parameter)
                if isinstance(value, torch.Tensor) and (value.is_meta or is_weight):
                    holder[name] = fake(value)
                elif id(holder) in buffers and is_dense(value):
                    holder[name] = fake_buffer(value)
        yield pytree.tree_map(fake, arguments)
    finally:
        for holder, values in held:
            _put_back(holder, values)


def is_dense(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a tensor whose values are its memory."""
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, nn.Parameter):
        return False
    if is_of_transform(value):
        return False
    return value.layout is torch.strided and not value.is_quantized and not value.is_meta


def is_of_transform(value: object) -> bool:
    """Return whether a value is a tensor of a transform of ``torch.func`` that is under way."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
        value
    )


def _put_back(holder: dict[str, Any], values: dict[str, Any]) -> None:
    """Let a dict hold the tensors again that it held, and no other ones: a model sets some."""
    for name, value in list(holder.items()):
        if isinstance(value, torch.Tensor) and name not in values:
            del holder[name]
    for name, value in values.items():
        now = holder.get(name)
        if now is not value and (isinstance(value, torch.Tensor) or isinstance(now, torch.Tensor)):
            holder[name] = value


def _holders(model: nn.Module) -> Generator[dict[str, Any]]:
    """The dicts in which modules keep parameters, buffers and plain attributes."""
    for module in model.modules():
        attributes = vars(module)
        yield from (attributes["_parameters"], attributes["_buffers"], attributes)


def fake_tensor_mode(shape_env: ShapeEnv | None = None, **options: bool) -> FakeTensorMode:
    """Return a mode of fake tensors in which a kernel that asks for data is refused.

    Torch's own default gives it a null pointer and a warning: kernels without a meta function
    read or write there, and the process ends.
    """
    with functorch_config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):
        return FakeTensorMode(shape_env=shape_env, **options)


def fake_mode() -> FakeTensorMode:
    """Return a new mode of fake tensors in which torch.export can trace."""
    env = ShapeEnv(tracked_fakes=[])
    return fake_tensor_mode(env, allow_non_fake_inputs=True, export=True)


def require_unwrapped(tensor: torch.Tensor, name: str = "a weight") -> None:
    """Refuse a tensor of a class that holds others: a trace reads these, and programs hold none.

    Raises:
        InvalidIRError: It is one.
    """
    if is_traceable_wrapper_subclass(tensor):
        raise InvalidIRError(
            f"{name} is of the class {type(tensor).__name__}, which holds tensors",
            remedy="Let these be the weights, before the model is traced and its state dict is "
            "taken, as with torchao.utils.unwrap_tensor_subclass(model).",
        )


def _fake(
    tensor: torch.Tensor, mode: FakeTensorMode, storages: dict[int, torch.UntypedStorage]
) -> torch.Tensor:
    require_unwrapped(tensor)
    device = torch.device("cpu") if tensor.is_meta else tensor.device
    fake = FakeTensor(mode, _in_own_memory(tensor, storages), device)
    if isinstance(tensor, nn.Parameter):
        setattr(fake, "_is_param", True)  # noqa: B010  # all that nn.Parameter adds to a copy of it
    return fake.requires_grad_(tensor.requires_grad) if tensor.requires_grad else fake


def _in_own_memory(
    tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage]
) -> torch.Tensor:
    """A meta tensor as one that is given, in storages that share as those of the given ones do.

    A fake tensor marks its storage so that nobody may ask for its address: not the user's.
    """
    if not tensor.is_meta or tensor.layout is not torch.strided:
        return tensor.detach().to("meta", copy=True)
    storage = tensor.untyped_storage()
    key = storage_of(tensor)
    if key not in storages:
        storages[key] = torch.UntypedStorage(storage.nbytes(), device="meta")
    return in_place_of(tensor, storages[key])
