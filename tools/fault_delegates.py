"""Faults of backends: a chain of nodes that a delegate computes, one of them wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torch_ir import IR, parse, validate
from torch_ir.backends import SUPPORTED, DelegateBackend, Support
from torch_ir.executor import IRExecutor

CHAIN = ("sin", "exp", "tanh", "neg", "sigmoid", "relu", "abs", "cos")
OTHERS = {
    "sin": "tan",
    "exp": "expm1",
    "tanh": "sigmoid",
    "neg": "abs",
    "sigmoid": "tanh",
    "relu": "exp",
    "abs": "exp",
    "cos": "sin",
}
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class WrongBackend(DelegateBackend):
    """Takes every node, and computes one of them as another operator.

    Args:
        wrong: That node.
        only_fused: Computes it rightly where it is compiled alone.
    """

    name = "wrong"

    def __init__(self, wrong: str, *, only_fused: bool = False):
        self._wrong = wrong
        self._only_fused = only_fused

    def supports(self, node: Any, ir: IR) -> Support:
        """Take everything."""
        del node, ir
        return SUPPORTED

    def compile(self, ir: IR, payload: Mapping[str, Any]) -> Callable[..., Any]:
        """Run the body by torch."""
        del payload
        nodes = ir.nodes
        if not self._only_fused or len(nodes) > 1:
            nodes = tuple(
                node.replace(op_type=f"aten.{OTHERS[node.op_type.split('.')[1]]}.default")
                if node.name == self._wrong
                else node
                for node in nodes
            )
        return IRExecutor(ir.replace(nodes=nodes), {})


@dataclass(frozen=True)
class DelegateFault:
    """One wrong node of a chain in a delegate.

    Attributes:
        op: The operator of the wrong node.
        kind: The element type.
        node: The wrong node.
        first: With which operator the chain starts.
        mode: How delegates are judged.
        only_fused: Whether the node is wrong in a longer body alone.
    """

    op: str
    kind: str
    node: str
    first: int
    mode: Any
    only_fused: bool

    @property
    def what(self) -> str:
        """What is wrong, and where."""
        fused = ", only fused" if self.only_fused else ""
        return f"%{self.node} of chain {self.first} is another operator, {self.mode}{fused}"

    def is_found(self) -> bool:
        """Whether the judge names the node, and agrees with the right backend."""
        names = [CHAIN[(self.first + i) % len(CHAIN)] for i in range(4)]
        lines = [
            f"%v{i}: {self.kind}[4, 6] = aten.{name}.default(%{'x' if not i else f'v{i - 1}'})"
            for i, name in enumerate(names)
        ]
        head = f'ir "Chain" {{\ninput %x: {self.kind}[4, 6]\n'
        ir = parse(head + "\n".join(lines) + "\nreturn %v3\n}")
        generator = torch.Generator().manual_seed(self.first)
        x = torch.randn(4, 6, generator=generator).to(TYPES[self.kind])
        backend = WrongBackend(self.node, only_fused=self.only_fused)
        report = validate(ir, {}, (x,), backend=backend, mode=self.mode)
        right = validate(ir, {}, (x,), backend=WrongBackend(""), mode=self.mode)
        named = {divergence.node for divergence in report.divergences}
        return right.verdict == "agree" and self.node in named


def _delegates() -> Iterator[DelegateFault]:
    for kind in TYPES:
        for first in range(len(CHAIN)):
            for place in range(4):
                name = f"aten.{CHAIN[(first + place) % len(CHAIN)]}.default"
                yield DelegateFault(name, kind, f"v{place}", first, "isolated", place % 2 == 1)
            yield DelegateFault(name, kind, "v3", first, "accumulated", False)


DELEGATES = [*_delegates()]
