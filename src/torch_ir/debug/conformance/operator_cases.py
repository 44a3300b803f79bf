"""Calls of core operators to try a backend with: dtypes, shapes, strides and edge cases."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torch_ir.debug.comparing.sources import TorchSource, part_of
from torch_ir.debug.fuzzing.call_values import DTYPES
from torch_ir.debug.fuzzing.random_programs import (
    callable_operators,
    operators_matching,
    random_program,
)
from torch_ir.errors import Raised, TorchIRError, attempt
from torch_ir.infer.fake import call_on
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.builder import split_arguments, with_weights_as_inputs
from torch_ir.ops.schema import Argument, Schema, lookup
from torch_ir.ops.spec import spec_of
from torch_ir.passes.operator_calls.case_set import Case, CaseSet
from torch_ir.passes.operator_calls.collection import cases
from torch_ir.semantics import denotation, has_denotation
from torch_ir.semantics.registry import denoted_operators
from torch_ir.semantics.tolerance import states_tolerance
from torch_ir.steps import steps

FILE = Path(__file__).parent / "data" / "operator_cases.json.gz"
"""The cases of ATen's operators."""

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "plain": ((2, 3, 4), (2, 3, 4)),
    "0-d": ((), ()),
    "empty": ((2, 0), (2, 0)),
    "size 1": ((1, 1), (1, 1)),
    "left": ((1, 3), (2, 3)),
    "right": ((2, 3), (1, 3)),
    "4-d": ((2, 3, 4, 5), (2, 3, 4, 5)),
    "matrices": ((3, 4), (4, 2)),
    "batches": ((2, 3, 4), (2, 4, 5)),
}
"""Shapes of the first and of the other tensors."""
RANDOM_CALLS = 3


def operator_cases(
    operators: Sequence[str] | None = None, dtypes: Sequence[str] | None = None
) -> CaseSet:
    """Return calls of the core operators that have a denotation, of many dtypes and shapes.

    Those of ATen were made once, by ``make operator-cases``; others are made here.

    Args:
        operators: Overloads, with ``*`` as in file names; all if None.
        dtypes: Dtypes of the first operand; those of :data:`DTYPES` if None.

    Raises:
        InvalidIRError: No operator matches.
    """
    wanted = _wanted(operators)
    kept = [name for name in wanted if name.startswith("aten.")]
    own = [name for name in wanted if name not in kept]
    types = list(dtypes or DTYPES)
    rare = [name for name in types if name not in DTYPES]
    found = {case.id: case for case in _kept_cases(frozenset(kept), frozenset(types))}
    for names, of in ((own, types), (kept, rare)):
        if names and of:
            found |= {case.id: _with_kinds(case, types) for case in made_cases(names, of)}
    return CaseSet(tuple([found[name] for name in sorted(found)]))


def made_cases(
    operators: Sequence[str] | None = None, dtypes: Sequence[str] | None = None
) -> CaseSet:
    """Make the cases anew, with ``overload/dtype/kind of shapes`` as models.

    Args:
        operators: As for :func:`operator_cases`.
        dtypes: As for :func:`operator_cases`.

    Raises:
        InvalidIRError: No operator matches.
    """
    programs = {
        f"{op_type}/{dtype}/{kind}": program
        for op_type in steps(_wanted(operators))
        for dtype in dtypes or DTYPES
        for kind, program in _programs(op_type, dtype)
    }
    return CaseSet(tuple([case for case in cases(programs, strides=False) if _runs(case)]))


def _wanted(operators: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple([name for name in denoted_operators() if _is_tried(name)])
    return operators_matching(None if operators is None else tuple(operators), names)


def _kept_cases(operators: Collection[str], dtypes: Collection[str]) -> Iterator[Case]:
    """Yield the cases of the file for some operators and dtypes."""
    for record in _records():
        models = [model.split("/") for model, *_ in record["origins"]]
        if record["operator"] in operators and any(dtype in dtypes for _, dtype, _ in models):
            yield _with_kinds(Case.from_dict(record), dtypes)


@cache
def _records() -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(FILE.read_bytes()))["cases"]


def _programs(op_type: str, dtype: str) -> Iterator[tuple[str, IR]]:
    """Yield programs of one call; random ones where no shapes of the table fit its operands."""
    found = [(kind, _program(op_type, dtype, kind)) for kind in SHAPES]
    fitting = [(kind, program) for kind, program in found if program is not None]
    yield from fitting
    is_tried = not fitting and op_type in callable_operators()
    for seed in range(RANDOM_CALLS) if is_tried else ():
        calls: dict[str, Any] = {"nodes": 1, "dynamic": False, "writes": False}
        made = random_program(seed, operators=[op_type], dtypes=[dtype], **calls).ir
        if made.nodes:
            yield f"random {seed}", with_weights_as_inputs(made)


def _runs(case: Case) -> bool:
    return torch_takes(case.program, case.tensors(), case.sizes())


def torch_takes(program: IR, tensors: Sequence[Any], sizes: Mapping[str, int]) -> bool:
    """Return whether torch has a kernel for a call, which its fake tensors do not tell."""
    values = dict(zip(program.input_names, tensors, strict=True))
    body = part_of(program, program.nodes, program.nodes[0].outputs)
    return not isinstance(attempt(TorchSource().call, body, values, sizes), Raised)


def _with_kinds(case: Case, dtypes: Collection[str]) -> Case:
    """The case with its kinds of shapes as its models."""
    models = [(origin, origin.model.split("/")) for origin in case.origins]
    kinds = [replace(o, model=kind) for o, (_, dtype, kind) in models if dtype in dtypes]
    return replace(case, origins=tuple(kinds), count=len(kinds))


def _is_tried(op_type: str) -> bool:
    schema = lookup(op_type)
    if schema is None or not has_denotation(op_type) or not states_tolerance(op_type):
        return False
    traits = spec_of(op_type)
    tensors = [a for a in schema.arguments if a.takes_tensor or a.takes_tensor_list]
    return traits.is_core and not denotation(op_type).draws and bool(tensors)


def _program(op_type: str, dtype: str, kind: str) -> IR | None:
    """A program of one call; None where torch refuses it."""
    schema = lookup(op_type)
    if schema is None:
        return None
    made = list(_arguments(schema, dtype, kind))
    if any(value is None for _, value in made):
        return None
    inputs, attrs, operands = split_arguments(dict(made))
    node = OpNode("y", op_type, inputs, [], attrs, operands)
    ir = IR([node], inputs, [], [])
    try:
        outcome = call_on(ir, node)
    except (TorchIRError, RuntimeError, ValueError, TypeError):
        return None
    results = outcome.results
    if not results or any(result is None for result in results):
        return None
    single = len(schema.returns) == 1
    outputs = [
        TensorMeta("y" if single else f"y.{i}", result.shape, result.dtype, "y", i)
        for i, result in enumerate(results)
        if result is not None
    ]
    return IR([node.replace(outputs=outputs)], inputs, outputs, [])


def _arguments(schema: Schema, dtype: str, kind: str) -> Iterator[tuple[str, Any]]:
    first, other = SHAPES[kind]
    count = 0
    for argument in schema.arguments:
        if argument.default is not None or argument.is_optional:
            continue
        if argument.takes_tensor:
            shape = first if count == 0 else other
            own = "int64" if argument.name in ("index", "indices") else dtype
            own = "bool" if argument.name in ("condition", "mask") else own
            yield argument.name, TensorMeta(argument.name, shape, own)
            count += 1
        elif argument.takes_tensor_list:
            metas = [TensorMeta(f"{argument.name}_{i}", first, dtype) for i in range(2)]
            yield argument.name, metas
        else:
            yield argument.name, _value(argument, first, dtype)


def _value(argument: Argument, shape: tuple[int, ...], dtype: str) -> Any:
    """A value of a required argument; None where none is known."""
    sizes = {"size", "shape", "output_size", "normalized_shape"}
    if argument.name in sizes:
        return shape[-1:] if argument.name == "normalized_shape" else shape
    if argument.name in ("dims", "dim") and argument.type.endswith("]"):
        return tuple(range(len(shape)))[::-1] if argument.name == "dims" else (-1,)
    plain: dict[str, Any] = {"bool": False, "Scalar": 2, "float": 0.5, "ScalarType": DType(dtype)}
    if argument.type in plain:
        return plain[argument.type]
    if argument.type in ("int", "SymInt"):
        return -1 if argument.name == "dim" else 1
    return None
