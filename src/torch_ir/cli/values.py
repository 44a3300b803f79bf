"""Values on the command line, where it does not matter whose tensors they are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from torch_ir.errors import InputError, InvalidIRError, did_you_mean
from torch_ir.ir import IR, SymbolRange
from torch_ir.ir.queries import require_symbols
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import dtype_name
from torch_ir.tables import table

T = TypeVar("T")

UNSET_SYMBOL = 2
LARGEST_ELEMENT_COUNT = 2**40  # a typing error shall not fill the machine's memory


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One ``--input``: the keyword that it is for, or none; shape and dtype."""

    keyword: str
    shape: tuple[int, ...]
    dtype: str


def input_of(value: str) -> InputSpec:
    """Read ``[NAME=]2x3x224x224[:float32]``; a 0-d tensor has no sizes.

    Raises:
        BadParameter: It has another form, or more elements than any machine holds.
    """
    match = re.fullmatch(r"(?:([A-Za-z_]\w*)=)?((?:\d+(?:x\d+)*)?)(?::([\w.]+))?", value)
    if match is None or not (match[2] or match[3]):
        raise click.BadParameter(
            f"{value!r} is not [NAME=]SIZExSIZE[:DTYPE], such as 2x3x224x224:float32"
        )
    try:
        dtype = dtype_name(match[3] or "float32")
    except InvalidIRError as error:
        raise click.BadParameter(f"{value!r}: {error.message}. {error.remedy}") from None
    shape = tuple(int(size) for size in match[2].split("x")) if match[2] else ()
    if math.prod(shape) > LARGEST_ELEMENT_COUNT:
        raise click.BadParameter(f"{value!r} has {math.prod(shape):,} elements")
    return InputSpec(match[1] or "", shape, dtype)


def symbol_values(ir: IR, given: Mapping[str, int]) -> dict[str, int]:
    """Choose each symbol's value: as given, or else 2 or the nearest in its range.

    Raises:
        InputError: A symbol is given that the program does not have.
    """
    require_symbols(ir, given)
    return {name: _nearest(UNSET_SYMBOL, span) for name, span in ir.symbols.items()} | {**given}


def _nearest(value: int, span: SymbolRange) -> int:
    """The value, or the end of the range that is nearest to it."""
    if span.upper is not None:
        value = min(value, span.upper)
    return value if span.lower is None else max(value, span.lower)


def inputs_by_name(ir: IR, tensors: Mapping[str, T], path: str) -> list[T]:
    """Return the graph inputs in a file, by name; ``arr_0``, ``arr_1``, ... go by position.

    Raises:
        InputError: The file does not have exactly the inputs of the IR.
    """
    names = ir.input_names
    if set(tensors) == {f"arr_{index}" for index in range(len(names))}:
        return [tensors[f"arr_{index}"] for index in range(len(names))]
    missing = [meta for meta in ir.graph_inputs if meta.name not in tensors]
    unexpected = sorted(set(tensors) - set(names))
    if not missing and not unexpected:
        return [tensors[name] for name in names]
    lines = [f"missing: {meta.name} {type_text(meta)}" for meta in missing]
    lines += [
        f"unexpected: {name}. {did_you_mean(name, names)}".rstrip(". ") for name in unexpected
    ]
    raise InputError(
        f"{path} does not have the inputs of {ir.model_name!r}",
        picture="\n".join(lines),
        remedy=f"Name the tensors {', '.join(names)}.",
    )


def names_of_outputs(ir: IR) -> list[str]:
    """Choose a unique name for each output; repeated names are numbered."""
    names: list[str] = []
    for meta in ir.graph_outputs:
        name, count = meta.name, 1
        while name in names:
            count += 1
            name = f"{meta.name}#{count}"
        names.append(name)
    return names


def summary_table(facts: Sequence[Mapping[str, Any]]) -> str:
    """Format the summaries as a table."""
    rows: list[tuple[str, ...]] = [("name", "type", "min", "max", "mean", "not finite")]
    for fact in facts:
        numbers = [f"{fact[key]:.6g}" if key in fact else "" for key in ("min", "max", "mean")]
        rows.append((fact["name"], fact["type"], *numbers, str(fact["not_finite"] or "")))
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    return table(rows)
