"""torch's values as attribute values and expressions."""

from __future__ import annotations

from typing import cast

import torch

from torch_ir.frontend.symbols.scalars import expression
from torch_ir.ir import Attribute, Device, TensorMeta
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ir.values import RUN_DEVICE, as_attribute
from torch_ir.torch_api import SYMBOLIC_TYPES


def attribute_from_torch(value: object, run_device: torch.device | None) -> Attribute:
    """Convert a non-tensor argument to an attribute; ``run_device`` becomes ``Device("run")``.

    Raises:
        InvalidIRError: The value cannot be stored in an IR.
    """
    if isinstance(value, list | tuple):
        return tuple(
            [attribute_from_torch(item, run_device) for item in cast(list[object], value)]
        )
    if isinstance(value, dict):
        entries = cast(dict[str, object], value).items()
        return as_attribute({key: attribute_from_torch(item, run_device) for key, item in entries})
    if isinstance(value, torch.device):
        if run_device is None or value.type != run_device.type:
            return Device(str(value))
        return Device(RUN_DEVICE if value.index in (None, run_device.index) else str(value))
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
