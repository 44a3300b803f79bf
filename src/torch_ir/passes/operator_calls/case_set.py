"""Cases: distinct calls, saved as JSON, as vectors, and as pytest files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, SerializationError, counted, did_you_mean
from torch_ir.ir import IR, DType, SymExpr
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.symbols import Dim
from torch_ir.ir.text.value_text import spell_value
from torch_ir.ir.values import Attribute
from torch_ir.serde import write_atomically
from torch_ir.serde.files import make_folder
from torch_ir.steps import steps
from torch_ir.tables import Rows, Shown, number_text, report_text, table

FORMAT, VERSION = "torch-ir cases", 1

CONFTEST = '''\
"""The backend that the cases run on."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--backend", default="aten", help="a backend, or FILE.py:NAME")


@pytest.fixture
def backend(request):
    return request.config.getoption("--backend")
'''
TESTS = '''\
"""One test for each case of cases.json: the backend against the meaning of the operator."""

from pathlib import Path

import pytest

from torch_ir import CaseSet, compare
from torch_ir.steps import steps

CASES = CaseSet.load(Path(__file__).parent)


@pytest.mark.parametrize("case", list(CASES), ids=lambda case: case.id)
def test_case(case, backend):
    report = compare(case.program, {}, case.tensors(), run=backend, symbols=case.sizes())
    if report.verdict == "not compared":
        pytest.skip(next(iter(report.not_compared.values())))
    assert report.verdict == "agree", str(report)
'''


@dataclass(frozen=True, slots=True)
class CaseOperand:
    """A tensor of a case: name, dtype, shape, and strides where they are known."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[int, ...] | None = None

    @property
    def key(self) -> list[Any]:
        """What tells it from others, but for its name."""
        sizes = [d if isinstance(d, int) else str(d) for d in self.shape]
        return [self.dtype, sizes, None if self.strides is None else list(self.strides)]

    def to_dict(self) -> dict[str, Any]:
        """Convert it to plain data."""
        dtype, shape, steps = self.key
        return {"name": self.name, "dtype": dtype, "shape": shape, "strides": steps}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a call occurs."""

    model: str
    node: str
    location: str


@dataclass(frozen=True, slots=True)
class Case:
    """One distinct call.

    Attributes:
        id: The overload and ten hexadecimal digits of what makes the call; stable over models,
            machines and versions.
        operator: The exact overload.
        arguments: What each argument of the schema takes: ``{"tensor": "input.0"}``, a list, or a
            value; defaults are filled in.
        inputs: The operands.
        outputs: The results.
        count: How often it occurs.
        flops: Operations of one call; None if unknown.
        origins: Where it occurs.
        program: A program of exactly this call.
    """

    id: str
    operator: str
    arguments: Mapping[str, Any] = field(repr=False)
    inputs: tuple[CaseOperand, ...] = field(repr=False)
    outputs: tuple[CaseOperand, ...] = field(repr=False)
    count: int
    flops: int | None
    origins: tuple[Origin, ...] = field(repr=False)
    program: IR = field(repr=False)

    @property
    def attrs(self) -> dict[str, Any]:
        """The arguments that are no tensors, by name."""
        return {n: v for n, v in self.arguments.items() if not _is_tensor(v)}

    def sizes(self) -> dict[str, int]:
        """Return the value that each symbol has in vectors and tests."""
        from torch_ir.passes.operator_calls.vectors import sizes_of_case

        return sizes_of_case(self)

    def tensors(self, seed: int = 0, *, special: bool = False) -> tuple[Any, ...]:
        """Draw the operands as torch tensors, with their strides; the same for the same seed.

        Args:
            seed: What they are drawn from.
            special: Whether to put NaN, infinities, both zeros and extremes among them.
        """
        from torch_ir.passes.operator_calls.vectors import torch_inputs

        return torch_inputs(self, seed, special=special)

    def to_dict(self) -> dict[str, Any]:
        """Convert the case to plain data."""
        return {
            "id": self.id,
            "operator": self.operator,
            "arguments": dict(self.arguments),
            "inputs": [operand.to_dict() for operand in self.inputs],
            "outputs": [operand.to_dict() for operand in self.outputs],
            "count": self.count,
            "flops": self.flops,
            "origins": [[o.model, o.node, o.location] for o in self.origins],
            "program": self.program.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Case:
        """Read a case from plain data."""
        program = IR.from_dict(data["program"])
        inputs = [_operand(record) for record in data["inputs"]]
        outputs = [_operand(record) for record in data["outputs"]]
        origins = [Origin(*map(str, record)) for record in data["origins"]]
        return cls(
            *(str(data["id"]), str(data["operator"]), data["arguments"]),
            *(tuple(inputs), tuple(outputs), int(data["count"]), data["flops"]),
            *(tuple(origins), program),
        )


@dataclass(frozen=True, slots=True)
class CaseSet(Shown):
    """Distinct calls, in the order of their ids."""

    cases: tuple[Case, ...]

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __getitem__(self, name: str) -> Case:
        found = {case.id: case for case in self.cases}
        if name not in found:
            raise InvalidIRError(f"there is no case {name!r}", remedy=did_you_mean(name, found))
        return found[name]

    @public
    def where(
        self, *, operator: str | None = None, dtype: str | None = None, model: str | None = None
    ) -> CaseSet:
        """Return the cases of an operator (with ``*`` as in file names), a dtype, a model."""
        kept = [
            case
            for case in self.cases
            if (operator is None or fnmatchcase(case.operator, operator))
            and (dtype is None or dtype in [o.dtype for o in (*case.inputs, *case.outputs)])
            and (model is None or model in [origin.model for origin in case.origins])
        ]
        return CaseSet(tuple(kept))

    @public
    def table(self, top: int | None = None, by: str = "count") -> str:
        """Format the cases as a table, those with the greatest ``count`` or ``flops`` first."""
        return table(self._rows(top, by))

    def _rows(self, top: int | None, by: str) -> list[tuple[str, ...]]:
        rank: dict[str, Callable[[Case], int]] = {
            "count": lambda case: case.count,
            "flops": lambda case: (case.flops or 0) * case.count,
        }
        if by not in rank:
            raise InvalidIRError(f"cases are not ranked by {by!r}", remedy=did_you_mean(by, rank))
        ordered = sorted(self.cases, key=rank[by], reverse=True)[:top]
        rows = [("count", "FLOPs", "case", "operands")]
        for case in ordered:
            operands = ", ".join(
                f"{DTYPES[o.dtype].short}[{', '.join(map(str, o.shape))}]" for o in case.inputs
            )
            count = "unknown" if case.flops is None else number_text(case.flops * case.count)
            rows.append((str(case.count), count, case.id, operands))
        return rows

    def __str__(self) -> str:
        calls = sum(case.count for case in self.cases)
        head = f"{counted(len(self.cases), 'case')} in {counted(calls, 'call')}"
        return report_text([head, *self.table(20).split("\n")])

    def _grid(self) -> Rows:
        return self._rows(50, "count")

    def to_dict(self) -> dict[str, Any]:
        """Convert the cases to plain data."""
        listed = [case.to_dict() for case in self.cases]
        return {"format": FORMAT, "version": VERSION, "cases": listed}

    @public
    def save(
        self,
        folder: str | PathLike[str],
        *,
        seed: int = 0,
        vectors: bool = True,
        pytest: bool = True,
    ) -> None:
        """Write ``cases.json``, and on request vectors and files for pytest; the same bytes again.

        Args:
            folder: Where to.
            seed: The seed of the vectors.
            vectors: Whether to write ``vectors/ID.safetensors``: ``input.N``, ``output.N`` by the
                denotation, and ``allowed.N``, how far each element may be off.
            pytest: Whether to write ``test_cases.py`` and ``conftest.py``.

        Raises:
            SerializationError: The folder or a file in it cannot be written.
        """
        from torch_ir.passes.operator_calls.vectors import vector_bytes

        place = make_folder(folder)
        records: list[dict[str, Any]] = []
        for case in steps(self.cases):
            made = vector_bytes(case, seed) if vectors else "vectors were not asked for"
            record = {**case.to_dict(), "vectors": None, "reason": None}
            if isinstance(made, bytes):
                make_folder(place / "vectors")
                record["vectors"] = f"vectors/{case.id}.safetensors"
                write_atomically(place / record["vectors"], made)
            else:
                record["reason"] = made
            records.append(record)
        document = {"format": FORMAT, "version": VERSION, "cases": records}
        text = json.dumps(document, indent=1, sort_keys=True)
        write_atomically(place / "cases.json", f"{text}\n".encode())
        if pytest:
            write_atomically(place / "conftest.py", CONFTEST.encode())
            write_atomically(place / "test_cases.py", TESTS.encode())

    @classmethod
    @public
    def load(cls, folder: str | PathLike[str]) -> CaseSet:
        """Read the cases of a folder, or of a ``cases.json``.

        Raises:
            SerializationError: There is no such file, or it has another format.
        """
        place = Path(folder)
        try:
            file = place / "cases.json" if place.is_dir() else place
            document = json.loads(file.read_text())
            if (document["format"], document["version"]) != (FORMAT, VERSION):
                raise SerializationError(f"{file} is no file of cases of version {VERSION}")
            return cls(tuple([Case.from_dict(record) for record in document["cases"]]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise SerializationError(f"{place} cannot be read as cases: {error!s:.200}") from error


def plain(value: Attribute) -> Any:
    """Convert an attribute to plain JSON; what JSON has no type for is its text in a dict."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return value
    if isinstance(value, SymExpr | DType):
        return {"value": str(value)}
    return {"value": spell_value(value)}


def _is_tensor(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_tensor, value))
    return isinstance(value, dict) and "tensor" in value


def _operand(record: Mapping[str, Any]) -> CaseOperand:
    shape = tuple([d if isinstance(d, int) else SymExpr(str(d)) for d in record["shape"]])
    steps = record.get("strides")
    return CaseOperand(
        str(record["name"]), str(record["dtype"]), shape, None if steps is None else tuple(steps)
    )
