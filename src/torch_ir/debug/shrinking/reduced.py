"""A failing program made small, with what it takes to run it alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import torch

from torch_ir.errors import counted, printable
from torch_ir.ir import IR
from torch_ir.serde import write_atomically
from torch_ir.serde.files import make_folder
from torch_ir.tables import Rows, Shown, report_text

Oracle: TypeAlias = Callable[
    [IR, Mapping[str, torch.Tensor], Sequence[torch.Tensor]], str | bool | None
]
"""Says of a program how it fails; None or False where it does not."""

REPRO = '''\
"""{title}

{failure}
"""

from pathlib import Path

from safetensors.torch import load_file

from torch_ir import IR, compare, load_weights, validate

here = Path(__file__).parent
program = here / "program.tir"
ir = IR.load(program)
weights = load_weights(program) if ir.weights else {{}}
values = load_file(here / "inputs.safetensors")
inputs = [values[name] for name in ir.input_names]
{body}
'''
COMPARE = """\
report = compare(ir, weights, inputs, run={run!r}, against={against!r})
print(report)
raise SystemExit(report.verdict == "disagree")"""
VALIDATE = """\
report = validate(ir, weights, inputs, against=("denotation",))
print(report)
raise SystemExit(bool(report.divergences))"""


@dataclass(frozen=True, slots=True)
class Reduced(Shown):
    """The smallest program found that still fails in the same way.

    Attributes:
        ir: The program.
        weights: The weights that are left, by key.
        inputs: A tensor for each graph input.
        failure: The failure, in the oracle's words.
        calls: How often the oracle was asked.
        nodes_before: How many nodes the whole program had.
        elements_before: How many elements its inputs and weights had.
        is_finished: Whether nothing smaller fails; if not, time ran out.
        script: How ``repro.py`` finds the failure: the last lines of a Python script.
    """

    ir: IR
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    inputs: tuple[torch.Tensor, ...] = field(repr=False)
    failure: str
    calls: int
    nodes_before: int
    elements_before: int
    is_finished: bool = True
    script: str = field(default=COMPARE.format(run="aten", against="reference"), repr=False)

    @property
    def elements(self) -> int:
        """How many elements inputs and weights have."""
        return count_elements(self.weights, self.inputs)

    def __str__(self) -> str:
        nodes = f"{counted(self.nodes_before, 'node')} became {len(self.ir.nodes)}"
        elements = f"{self.elements_before:,} elements became {self.elements:,}"
        ending = "" if self.is_finished else "; time ran out"
        asked = f"after {counted(self.calls, 'call')} of the oracle{ending}"
        head = [f"{nodes}, {elements}, {asked}", f"  {self.failure}"]
        return "\n".join([report_text(head), str(self.ir)])

    def _grid(self) -> Rows:
        return [("node", "operator"), *[(n.name, n.op_type) for n in self.ir.nodes]]

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data, with the program as text."""
        return {
            "program": str(self.ir),
            "failure": self.failure,
            "calls": self.calls,
            "nodes": len(self.ir.nodes),
            "nodes_before": self.nodes_before,
            "elements": self.elements,
            "elements_before": self.elements_before,
            "is_finished": self.is_finished,
        }

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the program, its inputs, and a script that fails as it does.

        ``program.tir`` has the weights inside, ``program.ir`` is the text,
        ``inputs.safetensors`` has the inputs by name. The exit status of ``repro.py`` is 1 where
        the failure still shows.

        Raises:
            SerializationError: The folder or a value cannot be written.
        """
        place = make_folder(folder)
        write_program(place, self.ir, self.weights, self.inputs)
        title = f"{len(self.ir.nodes)} of {counted(self.nodes_before, 'node')}"
        failure = printable(self.failure).replace("\\", " ").replace('"""', "'''")
        text = REPRO.format(title=f"{title}.", failure=failure, body=self.script)
        write_atomically(place / "repro.py", text.encode())


def write_program(
    place: Path, ir: IR, weights: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
) -> None:
    """Write a program with its weights and inputs into a folder.

    Raises:
        SerializationError: A value cannot be written.
    """
    from safetensors.torch import save as save_tensors

    from torch_ir.serde import save

    used = {key: tensor.detach().contiguous() for key, tensor in weights.items()}
    save(ir, place / "program.tir", weights=used or None)
    write_atomically(place / "program.ir", f"{ir}\n".encode())
    named = dict(zip(ir.input_names, inputs, strict=True))
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in named.items()}
    write_atomically(place / "inputs.safetensors", save_tensors(tensors))


def count_elements(weights: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> int:
    """Count the elements of weights and inputs."""
    return sum(math.prod(tensor.shape) for tensor in (*weights.values(), *inputs))
