"""torch's values as attribute values and expressions."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import torch

from torch_ir.frontend.symbols.scalars import expression
from torch_ir.ir import Attribute, Device, TensorMeta
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ir.values import RUN_DEVICE, as_attribute
from torch_ir.torch_api import SYMBOLIC_TYPES


def attribute_from_torch(value: object, run_devices: Collection[torch.device]) -> Attribute:
    """Convert a non-tensor argument to an attribute; ``run_devices`` become ``Device("run")``.

    Raises:
        InvalidIRError: The value cannot be stored in an IR.
    """
    if isinstance(value, list | tuple):
        return tuple(
            [attribute_from_torch(item, run_devices) for item in cast(list[object], value)]
        )
    if isinstance(value, dict):
        entries = cast(dict[str, object], value).items()
        return as_attribute(
            {key: attribute_from_torch(item, run_devices) for key, item in entries}
        )
    if isinstance(value, torch.device):
        names = {name for device in run_devices for name in (device.type, str(device))}
        is_any = value.type in {str(device) for device in run_devices}  # of no number
        return Device(RUN_DEVICE if is_any or str(value) in names else str(value))
    if isinstance(value, SYMBOLIC_TYPES):
        return expression(value)
    return as_attribute(value)


def dimension(value: int | torch.SymInt) -> Dim:
    """Convert one dimension of a traced tensor's shape."""
    return as_dim(value if isinstance(value, int) else expression(value))


def tensor_meta(
    name: str, tensor: torch.Tensor, producer: str | None = None, index: int = 0
) -> TensorMeta:
    """Return the metadata of a traced tensor."""
    shape = tuple([dimension(size) for size in tensor.shape])
    return TensorMeta(name, shape, str(tensor.dtype), producer, index)
