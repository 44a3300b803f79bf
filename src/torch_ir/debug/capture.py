"""Captured values: what a program computes on its way, as golden values for a backend's tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from os import PathLike
from typing import Any

import numpy.typing as npt
import torch

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, SerializationError, counted, did_you_mean, short
from torch_ir.executor import ExecGraph
from torch_ir.executor.inputs import require_values
from torch_ir.executor.listeners import Table
from torch_ir.ir import IR
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import dtype_name
from torch_ir.tables import Shown, report_text, table
from torch_ir.viz.plots import counted_values


@dataclass(frozen=True, slots=True)
class Captured(Shown):
    """The values of one run.

    Attributes:
        model_name: Name of the program.
        outputs: One tensor for each of its outputs.
        values: Copies of its inputs, and of the chosen values as they were when they were made,
            by name, in program order; contiguous, on the CPU.
        operators: The operator that made each of them; inputs are not in it.
    """

    model_name: str
    outputs: tuple[torch.Tensor, ...] = field(repr=False)
    values: Mapping[str, torch.Tensor] = field(repr=False)
    operators: Mapping[str, str] = field(repr=False)

    def __str__(self) -> str:
        rows = [(f"%{name}", type_text(value)) for name, value in self.values.items()]
        head = f"{counted(len(rows), 'value')} of {self.model_name or 'a program'}"
        return report_text([head, *table(rows, indent="  ").split("\n")])

    def _picture(self) -> str:
        from torch_ir.viz.plots import plot

        found = self.to_dict()
        return plot(found).svg if any(sum(r["counts"]) for r in found["values"].values()) else ""

    def to_dict(self) -> dict[str, Any]:
        """Convert the values to plain data: a histogram of each."""
        return {"model_name": self.model_name, "values": histograms(self.values)}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the values to a safetensors file.

        Its metadata have ``model_name``, and ``operators``: a JSON object, in program order.

        Raises:
            SerializationError: The format has no such element type, or the file cannot be written;
                an old one stays as it was.
        """
        from safetensors.torch import save

        from torch_ir.serde import write_atomically

        operators = json.dumps(dict(self.operators))
        metadata = {"model_name": self.model_name, "operators": operators}
        for name, tensor in self.values.items():
            _require_storable(name, str(tensor.dtype))
        write_atomically(path, save(dict(self.values), metadata))


@public
def capture(
    graph: ExecGraph, inputs: Sequence[torch.Tensor], patterns: Iterable[str] = ()
) -> Captured:
    """Run a graph and keep its inputs and the values that its nodes make.

    Args:
        graph: The graph; :func:`compile_graph` makes it.
        inputs: One tensor for each of its inputs.
        patterns: Which values to keep: names of values or nodes, or operators, with ``*``, ``?``
            and ``[...]`` as in file names. None keeps all.

    Raises:
        InvalidIRError: A pattern matches nothing; nothing has run then.
        InputError: An input does not fit.
        ExecutionError: The program cannot be run.

    Example:
        >>> from torch_ir import compile_graph, parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.neg.default(%x)
        ...   return %y
        ... }''')
        >>> capture(compile_graph(ir), (torch.ones(2),), ["aten.neg.*"]).values
        {'x': tensor([1., 1.]), 'y': tensor([-1., -1.])}
    """
    keeper = Table(chosen_values(graph.ir, patterns), None, _copied)
    require_values(graph.ir, inputs)
    given = {
        meta.name: _copied(tensor)
        for meta, tensor in zip(graph.ir.graph_inputs, inputs, strict=True)
    }
    outputs = graph.eval(inputs, listener=keeper)
    made_by = {name: graph.ir.producers[name].op_type for name in keeper.values}
    return Captured(graph.ir.model_name, outputs, {**given, **keeper.values}, made_by)


def histograms(
    values: Mapping[str, torch.Tensor], patterns: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Count the elements of tensors in at most 64 columns of equal width, by their names.

    Args:
        values: The tensors; of complex numbers, the absolute values are counted.
        patterns: Which of them, by name, with ``*``, ``?`` and ``[...]``. None takes all.

    Raises:
        InvalidIRError: A pattern matches nothing.

    Example:
        >>> histograms({"x": torch.tensor([0.0, 4.0, 4.0])})["x"]["counts"]
        [1, 0, 0, 0, 0, 0, 0, 2]
    """
    chosen = _matched({name: (name,) for name in values}, patterns, "value")
    return {n: counted_values(_numbers(tensor)) for n, tensor in values.items() if n in chosen}


def _numbers(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """In the widest type of its kind, as numpy does not have all of torch's."""
    held = tensor.detach().cpu()
    wide = torch.complex128 if held.is_complex() else torch.float64
    return held.to(wide).numpy()


def chosen_values(ir: IR, patterns: Iterable[str]) -> frozenset[str]:
    """Choose the values that patterns match by name, by their node's name or by its operator.

    All of them if there are no patterns.

    Raises:
        InvalidIRError: A pattern matches nothing.
    """
    names_of = {
        meta.name: (meta.name, node.name, node.op_type)
        for node in ir.nodes
        for meta in node.outputs
    }
    return _matched(names_of, patterns, "value, node or operator")


def _matched(
    names_of: Mapping[str, Sequence[str]], patterns: Iterable[str], kind: str
) -> frozenset[str]:
    """The values of which a pattern matches a name; all if there are no patterns."""
    chosen: set[str] = set()
    wanted = tuple(patterns)
    for pattern in wanted:
        found = [
            value
            for value, names in names_of.items()
            if any(fnmatchcase(name, pattern) for name in names)
        ]
        if not found:
            known = sorted({name for names in names_of.values() for name in names})
            raise InvalidIRError(
                f"no {kind} matches {pattern!r}",
                remedy=did_you_mean(pattern, known) or f"The names are {short(known)}.",
            )
        chosen.update(found)
    return frozenset(chosen if wanted else names_of)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that shares nothing, on the CPU, with its elements in order."""
    plain = tensor.detach()
    if plain.layout is not torch.strided or plain.is_quantized:
        return plain.clone()
    dense = plain.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return dense.cpu()


_UNSTORABLE = frozenset({"complex32", "complex128", "qint8", "quint8", "qint32"})
"""Element types that the format lacks."""


def _require_storable(name: str, dtype: str) -> None:
    plain = dtype_name(dtype, strict=False)
    if plain in _UNSTORABLE:
        raise SerializationError(
            f"the value {name!r} is {plain}, which a safetensors file cannot hold",
            remedy="Choose other values.",
        )
