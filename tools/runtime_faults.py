"""Plant faults behind the delegates of real runtimes; ``compare`` has to name each node and line.

A runtime gets a body in which one operator is another: as an opaque delegate it converts and runs
what nobody else sees. Half of the faults show only where the node's producer is in the same body,
as those of a fused kernel do.

Usage: ``python tools/runtime_faults.py [--count 200] [RUNTIME …]``
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor, nn

from torch_ir import IR, compare, extract_ir
from torch_ir.backends.backend_registry import find_backend
from torch_ir.backends.native.auto import CANDIDATES
from torch_ir.backends.protocol import DelegateBackend, Delegated, Support
from torch_ir.ir import OpNode

OTHER = {
    "aten.tanh.default": "aten.sigmoid.default",
    "aten.sigmoid.default": "aten.tanh.default",
    "aten.relu.default": "aten.neg.default",
    "aten.exp.default": "aten.neg.default",
    "aten.add.Tensor": "aten.sub.Tensor",
    "aten.sub.Tensor": "aten.add.Tensor",
    "aten.mul.Tensor": "aten.add.Tensor",
}


class Net(nn.Module):
    """A net of nine kinds of calls, each on a line of its own."""

    def __init__(self, size: int):
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        a = self.first(x)
        b = torch.tanh(a)
        c = torch.sigmoid(b)
        d = c * a
        e = d + b
        f = torch.relu(e)
        g = f - c
        h = torch.exp(g * 0.1)
        return self.second(h)


class Planted(DelegateBackend):
    """A runtime that gets one operator in place of another.

    Args:
        runtime: The runtime, as it is.
        node: The node to plant the fault at.
        producer: Where it shows only together with that node, its name; else empty.
        converted: What it made of the model's parts, by their text, for all faults of the model.
    """

    def __init__(
        self,
        runtime: DelegateBackend,
        node: str,
        producer: str = "",
        converted: dict[str, Delegated] | None = None,
    ):
        self.name = runtime.name
        self._runtime, self._node, self._producer = runtime, node, producer
        self._converted = {} if converted is None else converted

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return what the runtime says."""
        return self._runtime.supports(node, ir)

    def compile(self, ir: IR, payload: Mapping[str, Tensor]) -> Delegated:
        """Let the runtime compile the body with the fault."""
        names = {node.name for node in ir.nodes}
        shows = not self._producer or self._producer in names
        nodes = [
            node.replace(op_type=OTHER[node.op_type])
            if shows and node.name == self._node
            else node
            for node in ir.nodes
        ]
        given = ir.replace(nodes=nodes)
        if str(given) not in self._converted:
            self._converted[str(given)] = self._runtime.compile(given, payload)
        return self._converted[str(given)]


def planted() -> Iterator[tuple[IR, dict[str, Tensor], Tensor, OpNode, str]]:
    """Yield programs, weights, inputs, the node to be found, and the producer that it needs."""
    for seed in itertools.count():
        torch.manual_seed(seed)
        model = Net(4 + seed % 5).eval()
        x = torch.randn(3, 4 + seed % 5)
        ir = extract_ir(model, (x,))
        for node in ir.nodes:
            if node.op_type in OTHER:
                made = [ir.producers.get(meta.name) for meta in node.inputs]
                sole = [n for n in made if n is not None and _is_read_once(ir, n)]
                for producer in ("", *[n.name for n in sole[:1]]):
                    yield ir, dict(model.state_dict()), x, node, producer


def _is_read_once(ir: IR, node: OpNode) -> bool:
    return len(ir.users[node.outputs[0].name]) == 1


def is_found(
    runtime: str, case: tuple[Any, ...], converted: dict[str, Delegated] | None = None
) -> bool:
    """Return whether one command names the node and its source line."""
    ir, weights, x, node, producer = case
    backend = Planted(cast(Any, find_backend(runtime)), node.name, producer, converted)
    first = compare(ir, weights, (x,), run=backend).first
    return first is not None and (first.node, first.location) == (node.name, str(node.location))


def main() -> int:
    """Plant faults in every installed runtime; the exit status is how many are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtimes", nargs="*")
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    installed = [name for name, package in CANDIDATES.items() if find_spec(package)]
    missed = 0
    for runtime in options.runtimes or installed:
        start = time.monotonic()
        cases = list(itertools.islice(planted(), options.count))
        found, model, converted = 0, None, dict[str, Delegated]()
        for case in cases:
            if case[0] is not model:
                model, converted = case[0], {}
            if is_found(runtime, case, converted):
                found += 1
            else:
                print(f"{runtime}: missed {case[3].name!r} after {case[4]!r}", flush=True)
        missed += len(cases) - found
        seconds = time.monotonic() - start
        print(f"{runtime}: {found} of {len(cases)} found, in {seconds:.0f} s", flush=True)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
