"""``torch-ir run --reference``: the denotation on NumPy arrays, where no torch is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torch_ir.cli.call import WEIGHTS_REMEDY
from torch_ir.cli.files import unreadable, write
from torch_ir.cli.memory import TooLittleMemoryError, read_npz
from torch_ir.cli.progress import progress
from torch_ir.cli.values import inputs_by_name, names_of_outputs, symbol_values
from torch_ir.errors import InputError, SerializationError, raised_as
from torch_ir.ir import IR, TensorMeta
from torch_ir.ir.symbols import shape_at
from torch_ir.ir.tensor import type_text
from torch_ir.semantics.denote import denote
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, numpy_dtype, rounded
from torch_ir.serde import read_archive_weights
from torch_ir.serde.tensors import read_tensor_file, tensor_file
from torch_ir.weights.presence import require_weights


def read_arrays(path: str) -> dict[str, Array]:
    """Read the tensors of a ``.safetensors`` or ``.npz`` file, or the weights of an archive.

    Raises:
        InputError: The file cannot be read as what its name says.
    """
    file = Path(path)
    remedy = "Without torch, tensors are read from .safetensors, .npz and .tir files."
    passing = (SerializationError, TooLittleMemoryError)
    with raised_as(lambda error: unreadable(file, error, remedy), passing=passing):
        if file.suffix == ".npz":
            return read_npz(file)
        if file.suffix == ".tir":
            constants = read_archive_weights(file)
        else:
            constants = read_tensor_file(memoryview(file.read_bytes()))
        return {name: constant.numpy() for name, constant in constants.items()}


def random_array(meta: TensorMeta, shape: Sequence[int], seed: int) -> Array:
    """Draw normal numbers; for integers 0 or 1, which index into every table; for bool either."""
    draws, dtype = Draws(seed, meta.name), numpy_dtype(meta.dtype)
    if is_inexact(dtype):
        return draws.normal(shape, dtype)
    return rounded(draws.integers(0, 2, shape), dtype)


def random_weight(meta: TensorMeta, seed: int) -> Array:
    """Draw small positive numbers, which every variance accepts; for integers 0."""
    dtype = numpy_dtype(meta.dtype)
    shape = shape_at(meta.shape, {})
    if not is_inexact(dtype):
        return np.zeros(shape, dtype)
    return rounded(Draws(seed, meta.name).uniform(shape, np.dtype("float64")) / 10, dtype)


def run_reference(
    ir: IR,
    inputs: str | None,
    weights: str | None,
    constants: str | None,
    *,
    random_weights: bool,
    seed: int,
    symbols: Mapping[str, int],
) -> dict[str, Array]:
    """Run an IR by its denotation; return its outputs by name.

    Args:
        ir: The program.
        inputs: A file with the inputs by name; random ones if None.
        weights: A file with weights, or None.
        constants: A file with values that no state dict has, or None.
        random_weights: Whether to draw the weights.
        seed: The seed of random inputs and weights.
        symbols: Sizes of symbolic dimensions, for random inputs.

    Raises:
        MissingWeightsError: The program has weights, and none are given.
        TorchIRError: A file cannot be read, or the program cannot be run.
    """
    if random_weights:
        payload = {meta.name: random_weight(meta, seed) for meta in ir.weights}
    elif weights:
        payload = read_arrays(weights)
    else:
        require_weights(ir, constants, WEIGHTS_REMEDY)
        payload = {}
    if constants:
        payload |= read_arrays(constants)
    values = symbol_values(ir, symbols)
    arrays = (
        inputs_by_name(ir, read_arrays(inputs), inputs)
        if inputs
        else [random_array(meta, shape_at(meta.shape, values), seed) for meta in ir.graph_inputs]
    )
    with progress("running"):
        results = denote(ir, payload, arrays, seed=seed)
    return dict(zip(names_of_outputs(ir), results, strict=True))


def write_arrays(arrays: Mapping[str, Array], output: str) -> None:
    """Write arrays to a ``.safetensors`` or ``.npz`` file.

    Raises:
        InputError: ``.npz`` has no such element type.
        SerializationError: The file cannot be written; an old one stays as it was.
    """
    if not output.endswith(".npz"):
        write(b"".join(tensor_file(arrays).chunks()), output)
        return
    for name, array in arrays.items():
        if array.dtype.type.__module__ == "ml_dtypes":
            raise InputError(
                f".npz cannot hold the output {name!r} of type {array.dtype}",
                remedy="Write to a .safetensors file.",
            )
    import io

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write(buffer.getvalue(), output)


def summaries_of_arrays(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Name, type, least, greatest and mean value of each array, and how many are not finite."""
    return [_summary(name, array) for name, array in arrays.items()]


def _summary(name: str, array: Array) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": name,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "type": type_text(TensorMeta(name, array.shape, array.dtype.name)),
    }
    values = (np.abs(array) if is_complex(array.dtype) else array).astype(np.float64)
    finite = values[np.isfinite(values)]
    if finite.size:
        facts |= {
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": float(finite.mean()),
        }
    facts["not_finite"] = int(values.size - finite.size)
    return facts
