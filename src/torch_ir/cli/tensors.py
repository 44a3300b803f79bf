"""Tensors on the command line: files, random ones, summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from torch_ir.cli.files import unreadable, write
from torch_ir.cli.memory import TooLittleMemoryError, read_npz
from torch_ir.cli.values import InputSpec, inputs_by_name, symbol_values
from torch_ir.errors import InputError, WeightLoadError, raised_as
from torch_ir.executor.samples import random_tensor
from torch_ir.ir import IR, TensorMeta
from torch_ir.ir.symbols import shape_at
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import dtype_name
from torch_ir.weights import load_weights_safetensors


def make_inputs(
    specs: Sequence[InputSpec], device: torch.device, seed: int
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """Make random positional and keyword arguments of these shapes."""
    generator = torch.Generator().manual_seed(seed)
    args: list[torch.Tensor] = []
    kwargs: dict[str, torch.Tensor] = {}
    for spec in specs:
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if device.type == "meta":
            tensor = torch.empty(spec.shape, dtype=dtype, device="meta")
        else:
            tensor = random_tensor(spec.shape, dtype, generator).to(device)
        if spec.keyword:
            kwargs[spec.keyword] = tensor
        else:
            args.append(tensor)
    return tuple(args), kwargs


def random_weights(ir: IR, seed: int) -> dict[str, torch.Tensor]:
    """Draw small positive numbers, which every variance accepts; for integers 0."""
    generator = torch.Generator().manual_seed(seed)
    return {meta.name: _small(meta, generator) for meta in ir.weights}


def _small(meta: TensorMeta, generator: torch.Generator) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, meta.dtype)
    values = random_tensor(shape_at(meta.shape, {}), torch.float32, generator)
    if dtype.is_floating_point or dtype.is_complex:
        return (values.sigmoid() / 10).to(dtype)
    return torch.zeros_like(values, dtype=dtype)


def random_inputs(ir: IR, seed: int, given: Mapping[str, int]) -> list[torch.Tensor]:
    """Make a tensor for each graph input; a symbol not given is 2 or the nearest in its range."""
    symbols = symbol_values(ir, given)
    generator = torch.Generator().manual_seed(seed)
    return [
        random_tensor(shape_at(meta.shape, symbols), getattr(torch, meta.dtype), generator)
        for meta in ir.graph_inputs
    ]


def read_inputs(ir: IR, path: str) -> list[torch.Tensor]:
    """Read the graph inputs in a file, by name; ``arr_0``, ``arr_1``, ... go by position.

    Raises:
        InputError: The file is not readable, or does not have exactly the inputs of the IR.
    """
    return inputs_by_name(ir, read_tensors(path), path)


def read_tensors(path: str) -> dict[str, torch.Tensor]:
    """Read the tensors of a ``.safetensors`` or ``.npz`` file.

    Raises:
        InputError: The file cannot be read as what its name says.
    """
    file = Path(path)
    try:
        if file.suffix == ".npz":
            return _read_npz(file)
        return load_weights_safetensors(file)
    except WeightLoadError as error:
        message = error.message.replace("weights file", "file")
        raise InputError(message, picture=error.picture, remedy=_TENSOR_FILES) from None


_TENSOR_FILES = "Tensors are read from .safetensors and .npz files."


def _read_npz(file: Path) -> dict[str, torch.Tensor]:
    with raised_as(
        lambda error: unreadable(file, error, _TENSOR_FILES, " as .npz"),
        passing=(TooLittleMemoryError,),
    ):
        return {name: torch.from_numpy(array) for name, array in read_npz(file).items()}


def write_tensors(tensors: Mapping[str, torch.Tensor], output: str) -> None:
    """Write tensors to a ``.safetensors`` or ``.npz`` file.

    Raises:
        InputError: NumPy has no such element type.
        SerializationError: The file cannot be written; an old one stays as it was.
    """
    if output.endswith(".npz"):
        write(_npz(tensors), output)
        return
    from safetensors.torch import save

    dense = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write(save(dense), output)


def _npz(tensors: Mapping[str, torch.Tensor]) -> bytes:
    import io

    import numpy as np

    try:
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    except TypeError as error:
        raise InputError(
            f"NumPy cannot hold an output: {error}", remedy="Write to a .safetensors file."
        ) from None
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **cast(Any, arrays))
    return buffer.getvalue()


def summaries(tensors: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Name, type, least, greatest and mean value of each tensor, and how many are not finite."""
    return [_summary(name, tensor.detach()) for name, tensor in tensors.items()]


def _summary(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    shape = list(tensor.shape)
    facts: dict[str, Any] = {
        "name": name,
        "dtype": dtype_name(tensor.dtype, strict=False),
        "shape": shape,
        "type": type_text(tensor),
    }
    values = (tensor.abs() if tensor.is_complex() else tensor).double()
    finite = values[values.isfinite()]
    if finite.numel():
        facts |= {
            "min": finite.min().item(),
            "max": finite.max().item(),
            "mean": finite.mean().item(),
        }
    facts["not_finite"] = values.numel() - finite.numel()
    return facts
