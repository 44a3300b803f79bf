"""Write ``src/torch_ir/ops/data/dtype_constraints.yaml``: the dtypes that torch's kernels take.

Usage: ``python tools/generate_edge_constraints.py [--jobs N] [--resume FILE] [--check]``

Every functional core operator and the common others are called on small CPU tensors of every
combination of dtypes; the combinations that torch takes, with the dtypes that it gives, become
rows. Operators with many tensors are pruned: an argument varies only over the dtypes that torch
takes beside some choice of one dtype for the others. With ``--resume``, what is found is kept
in a file and not probed again. ``--check`` probes a fixed subset and exits 1 if the file differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # kernels warn of what is probed here
import torch

sys.path.insert(0, str(Path(__file__).parent))
from edge_grouping import Combination, group
from edge_recipes import COMMON, COMPLEX, MOVING, NUMBERS, REAL, RECIPES, T, t
from torch_ir.ops.dtype_constraints import (
    read_entry,
    required_names,
    result_names,
    split_entries,
    write_entry,
)
from torch_ir.ops.schema import Argument, Schema, known_operators
from torch_ir.ops.spec import spec_of

TARGET = Path(__file__).parents[1] / "src/torch_ir/ops/data/dtype_constraints.yaml"
CHECKED = (
    *("aten.sigmoid.default", "aten.add.Tensor", "aten.add.Scalar", "aten._log_softmax.default"),
    *("aten.native_layer_norm.default", "aten.cat.default", "aten.mm.default"),
    *("aten.index.Tensor", "aten.bitwise_and.Tensor", "aten.sum.dim_IntList"),
    *("aten.div.Tensor_mode", "aten.permute_copy.default", "aten.max.dim"),
)
DEFAULTS = {
    "int": 0,
    "SymInt": 0,
    "bool": False,
    "float": 0.5,
    "SymInt[]": [2, 3],
    "str": "none",
    "int[]": [0],
    "int[1]": [0],
    "int[1]?": [0],
    "int[2]": [1, 1],
    "SymInt[1]": [1],
}
SPARSE_OR_NESTED = re.compile(r"nested|sparse|indices_copy|values_copy|_dual_|fw_primal|conj_copy")
MANY = 20_000
"""Combinations from which on an operator is pruned."""


class Prober:
    """Calls one operator on tensors of given dtypes."""

    def __init__(self, op_type: str):
        self.op_type = op_type
        self.schema: Schema = spec_of(op_type).schema
        _, packet, overload = op_type.split(".", 2)
        self.function = getattr(getattr(torch.ops.aten, packet), overload)
        self.recipes = RECIPES.get(op_type.removeprefix("aten."), [{}])
        self.inputs = [a for a in self.schema.arguments if self.has_dtype(a)]
        self.results = result_names(self.schema)
        self.tensors: dict[tuple[T, str], torch.Tensor] = {}

    @staticmethod
    def has_dtype(argument: Argument) -> bool:
        """Whether rows speak of an argument."""
        kind = argument.type.rstrip("?")
        return kind.startswith("Tensor") or kind in ("Scalar", "ScalarType")

    def choices(self, argument: Argument) -> list[str | None]:
        """What an argument may be: dtypes, kinds of numbers, or not given."""
        kind = argument.type.rstrip("?")
        dtypes = [*REAL, *(COMPLEX if self.op_type in MOVING and kind != "ScalarType" else ())]
        found: list[str | None] = list(NUMBERS) if kind == "Scalar" else list(dtypes)
        return [*found, None] if argument.is_optional else found

    def names(self) -> list[str]:
        """What the columns of the rows are called."""
        return [*(a.name for a in self.inputs), *self.results]

    def given(self, argument: Argument, dtype: str | None, recipe: dict[str, Any]) -> Any:
        """The value of an argument that has a dtype."""
        if dtype is None:
            return None
        kind = argument.type.rstrip("?")
        if kind == "Scalar":
            return NUMBERS[dtype]
        if kind == "ScalarType":
            return getattr(torch, dtype)
        tensor = self.tensor(recipe.get(argument.name, t(2, 3)), dtype)
        return [tensor, tensor] if self.is_pair(argument) else [tensor] if "[" in kind else tensor

    @staticmethod
    def is_pair(argument: Argument) -> bool:
        """Whether it is a list of tensors that all have to be there."""
        return argument.type == "Tensor[]"

    def tensor(self, wanted: T, dtype: str) -> torch.Tensor:
        """A tensor of a shape and dtype, filled with one number."""
        if (wanted, dtype) not in self.tensors:
            self.tensors[wanted, dtype] = torch.full(
                wanted.shape, wanted.fill, dtype=getattr(torch, dtype)
            )
        return self.tensors[wanted, dtype]

    def other(self, argument: Argument, recipe: dict[str, Any]) -> Any:
        """The value of an argument that rows do not speak of."""
        if argument.name in recipe:
            return recipe[argument.name]
        return DEFAULTS[argument.type]

    def call(self, dtypes: tuple[str | None, ...]) -> set[tuple[str | None, ...]]:
        """The dtypes of the results, one tuple for each way of calling that torch takes."""
        found: set[tuple[str | None, ...]] = set()
        for recipe in self.recipes:
            arguments: dict[str, Any] = {}
            for argument, dtype in zip(self.inputs, dtypes, strict=True):
                if dtype is not None or argument.default in (None, "None"):
                    arguments[argument.name] = self.given(argument, dtype, recipe)
            for argument in self.schema.arguments:
                if argument.name not in arguments and (
                    argument.default is None or argument.name in recipe
                ):
                    arguments[argument.name] = self.other(argument, recipe)
            try:
                made = self.function(**arguments)
            except (RuntimeError, IndexError, NotImplementedError, ValueError, TypeError):
                continue
            if all(dtype in (*REAL, *COMPLEX, None) for dtype in self.dtypes_of(made)):
                found.add(self.dtypes_of(made))
        return found

    def dtypes_of(self, made: Any) -> tuple[str | None, ...]:
        """The dtype of each result."""
        results = made if isinstance(made, tuple) else (made,)
        return tuple([self.dtype_of(result) for result in results])

    @staticmethod
    def dtype_of(result: Any) -> str | None:
        """The dtype of a result, of a list its first."""
        result = result[0] if isinstance(result, list) else result
        return str(result.dtype).removeprefix("torch.") if torch.is_tensor(result) else None

    def candidates(self) -> list[tuple[str | None, ...]]:
        """The combinations to try: all, or where these are too many those that have a chance."""
        choices = [self.choices(argument) for argument in self.inputs]
        total = 1
        for choice in choices:
            total *= len(choice)
        if total <= MANY:
            return list(product(*choices))
        found: set[tuple[str | None, ...]] = set()
        for first in choices[0]:
            likely = [[first]]
            for position in range(1, len(choices)):
                likely.append(self.likely(first, position, choices))
            found.update(product(*likely))
        return sorted(found, key=str)

    def likely(
        self, first: str | None, position: int, choices: list[list[str | None]]
    ) -> list[str | None]:
        """The dtypes of an argument that torch takes when the others all have one dtype."""
        found: dict[str | None, None] = {}
        for others in REAL:
            base = [others if others in choice else choice[-1] for choice in choices]
            base[0] = first
            for dtype in choices[position]:
                if self.call((*base[:position], dtype, *base[position + 1 :])):
                    found[dtype] = None
        return list(found)

    def observe(self) -> list[Combination]:
        """Every combination of arguments that torch takes, with what it gives."""
        return [
            (*dtypes, *made)
            for dtypes in self.candidates()
            for made in sorted(self.call(dtypes), key=str)
        ]


def covered_operators() -> list[str]:
    """Functional core operators with tensors among their results, and the common others."""
    specs = [spec_of(name) for name in known_operators() if name.startswith("aten.")]
    core = [
        spec.op_type
        for spec in specs
        if spec.is_functional
        and spec.traits & {"core", "view-copy"}
        and not spec.op_type.endswith("out")
        and any(a.type.startswith("Tensor") for a in spec.schema.returns)
        and not SPARSE_OR_NESTED.search(spec.op_type)
    ]
    return sorted({*core, *COMMON} - {f"aten.{n}" for n, calls in RECIPES.items() if not calls})


def probe(op_type: str) -> tuple[str, list[Combination] | str]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        return op_type, Prober(op_type).observe()
    except KeyError as error:
        return op_type, f"no recipe for the type {error}"


def entry(op_type: str, observed: list[Combination]) -> str:
    """The entry of an operator, which takes exactly what was observed."""
    prober = Prober(op_type)
    numbers = frozenset(
        a.name for a in prober.inputs if a.type.startswith("Scalar") and "Type" not in a.type
    )
    required = required_names(prober.schema)
    inherits = prober.schema.text.partition("(")[0]
    table = group(inherits, prober.names(), observed, required, untied=numbers)
    text = write_entry(table)
    assert read_entry(text).expand() == frozenset(observed), op_type
    return text


def probe_all(jobs: int, kept: Path | None) -> dict[str, list[Combination]]:
    """What was observed of every operator; ``kept`` holds what earlier runs found."""
    observed: dict[str, list[Combination]] = {}
    if kept is not None and kept.exists():
        for line in kept.read_text().splitlines():
            name, combinations = json.loads(line)
            observed[name] = [tuple(combination) for combination in combinations]
    wanted = [name for name in covered_operators() if name not in observed]
    with ProcessPoolExecutor(jobs) as pool:
        for name, found in pool.map(probe, wanted, chunksize=4):
            if isinstance(found, str) or not found:
                print(f"{name}: {found or 'torch takes no combination'}", file=sys.stderr)
                continue
            observed[name] = found
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps([name, found]) + "\n")
    return observed


def entry_of(item: tuple[str, list[Combination]]) -> str:
    return entry(*item)


def write(jobs: int, kept: Path | None) -> int:
    observed = probe_all(jobs, kept)
    with ProcessPoolExecutor(jobs) as pool:
        entries = list(pool.map(entry_of, sorted(observed.items())))
    version = torch.__version__.partition("+")[0]
    head = (
        f"# Generated by tools/generate_edge_constraints.py from torch {version}; do not edit.\n"
    )
    TARGET.write_text(head + "".join(entries))
    return 0


def check() -> int:
    version = torch.__version__.partition("+")[0]
    entries = split_entries(TARGET.read_text()) if TARGET.exists() else {}
    for name in CHECKED:
        if name not in entries or read_entry(entries[name]).expand() != frozenset(probe(name)[1]):
            print(
                f"{TARGET.name} is not what torch {version} gives for {name}: run `make generate`"
            )
            return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes that probe")
    parser.add_argument("--resume", type=Path, help="a file that keeps what is found")
    parser.add_argument("--check", action="store_true", help="probe a fixed subset and compare")
    arguments = parser.parse_args()
    return check() if arguments.check else write(arguments.jobs, arguments.resume)


if __name__ == "__main__":
    sys.exit(main())
