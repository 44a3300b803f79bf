"""Plant faults behind the delegates of real runtimes; ``compare`` has to name each node and line.

A runtime gets a body with a fault at one node: another operator in its place, or a result that is
negated, off by one percent, off by a hundredth, or rounded to float16. As an opaque delegate it
converts and runs what nobody else sees. Two in five faults show only where the node's producer is
in the same body, as those of a fused kernel do. ``custom`` is a backend whose bodies torch runs.
A fault that changes no bit of what the runtime gives, as a cast that it removes, is not counted.

Usage: ``python tools/runtime_faults.py [--count 200] [--record FILE] [RUNTIME …]``
With ``--record`` what the file tells already is not run again, and the table is of all of it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from torch_ir import IR, compare, extract_ir
from torch_ir.backends import SUPPORTED
from torch_ir.backends.backend_registry import find_backend
from torch_ir.backends.native.auto import installed_runtimes
from torch_ir.backends.partition import Partitioner
from torch_ir.backends.protocol import DelegateBackend, Delegated, Support
from torch_ir.executor import IRExecutor
from torch_ir.ir import OpNode
from torch_ir.ir.builder import Builder
from torch_ir.tables import table

OTHER = {
    "aten.tanh.default": "aten.sigmoid.default",
    "aten.sigmoid.default": "aten.tanh.default",
    "aten.relu.default": "aten.neg.default",
    "aten.exp.default": "aten.neg.default",
    "aten.add.Tensor": "aten.sub.Tensor",
    "aten.sub.Tensor": "aten.add.Tensor",
    "aten.mul.Tensor": "aten.add.Tensor",
}
MENDED: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "negated": (("aten.neg.default", {}),),
    "off by 1 %": (("aten.mul.Scalar", {"other": 1.01}),),
    "off by 0.01": (("aten.add.Scalar", {"other": 0.01}),),
    "rounded to float16": (
        ("aten._to_copy.default", {"dtype": "float16"}),
        ("aten._to_copy.default", {"dtype": "float32"}),
    ),
}
"""What a fault does to a right result, by calls."""
ANOTHER = "another operator"


class Gated(nn.Module):
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


class Images(nn.Module):
    """Convolutions, norms, pooling and a squeeze."""

    def __init__(self, size: int):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, size, 3, padding=1), nn.BatchNorm2d(size)
        self.second, self.head = nn.Conv2d(size, size, 1), nn.Linear(size, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Run it on images of 6 by 6."""
        a = self.norm(self.first(x.reshape(1, 3, 6, -1)))
        b = torch.relu(a)
        c = functional.max_pool2d(b, 2)
        d = self.second(c)
        e = torch.sigmoid(d)
        f = c * e
        g = f.mean((2, 3))
        return self.head(g)


class Attention(nn.Module):
    """A layer of a transformer, spelled out."""

    def __init__(self, size: int):
        super().__init__()
        self.taken = nn.Linear(2 * size, 6 * size)
        self.given, self.norm = nn.Linear(2 * size, 2 * size), nn.LayerNorm(2 * size)

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        q, k, v = self.taken(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(-2, -1)
        weights = torch.softmax(scores * 0.5, -1)
        seen = weights @ v
        gated = functional.gelu(self.given(seen))
        return torch.cat([gated, x], -1)


NETS: tuple[tuple[Callable[[int], nn.Module], Callable[[int], tuple[int, ...]]], ...] = (
    (Gated, lambda size: (3, size)),
    (Images, lambda size: (3, 6, 6)),
    (Attention, lambda size: (5, 2 * size)),
)


@dataclass(frozen=True)
class Planted:
    """A fault at a node of a program.

    Attributes:
        ir: The program.
        weights: Its weights.
        x: Its input.
        node: The node to be found.
        producer: Where it shows only together with that node, its name; else empty.
        what: What is wrong.
    """

    ir: IR
    weights: dict[str, Tensor] = field(repr=False)
    x: Tensor = field(repr=False)
    node: OpNode
    producer: str
    what: str

    def __str__(self) -> str:
        behind = f" after {self.producer!r}" if self.producer else ""
        return f"{self.node.name!r} ({self.node.op_type}) {self.what}{behind}"

    def wrong(self, body: IR) -> IR:
        """Return a part of the program with the fault, if it is one that shows it."""
        if self.producer and self.producer not in body.by_name:
            return body
        builder = Builder(body)
        for node in body.nodes:
            if node.name != self.node.name:
                builder.keep(node)
            elif self.what == ANOTHER:
                builder.keep(node.replace(op_type=OTHER[node.op_type]))
            else:
                value = right = builder.keep(node).outputs[0]
                for operator, attrs in MENDED[self.what]:
                    results = [(right.shape, attrs.get("dtype", right.dtype))]
                    (value,) = builder.emit(operator, {"self": value, **attrs}, results=results)
                builder.replace(right, value)
        return builder.finish()


Converted = dict[Any, tuple[Any, Delegated]]
Record = dict[str, Any]


class Faulty(DelegateBackend):
    """A runtime that gets a program with a fault.

    Args:
        runtime: The runtime, as it is.
        fault: What is wrong.
        converted: What it made of parts, for all faults; with it what has to live as long.
        is_watched: Whether to run the right parts too.

    Attributes:
        shows: Whether a wrong part gave another result than the right one, if it is watched.
    """

    def __init__(
        self,
        runtime: DelegateBackend,
        fault: Planted,
        converted: Converted,
        *,
        is_watched: bool = False,
    ):
        self.name = runtime.name
        self._runtime, self._fault = runtime, fault
        self._converted = converted
        self._is_watched, self.shows = is_watched, False

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return what the runtime says."""
        return self._runtime.supports(node, ir)

    def compile(self, ir: IR, payload: Mapping[str, Tensor]) -> Delegated:
        """Let the runtime compile the body with the fault."""
        given = self._fault.wrong(ir)
        wrong = self._made(given, payload)
        if not self._is_watched or given is ir:
            return wrong
        right = self._made(ir, payload)

        def run(*values: Any) -> Any:
            kept = [v.clone() if isinstance(v, Tensor) else v for v in values]
            results = list(wrong(*values))
            pairs = zip(results, right(*kept), strict=True)
            self.shows |= not all(torch.equal(one, other) for one, other in pairs)
            return results

        return run

    def _made(self, ir: IR, payload: Mapping[str, Tensor]) -> Delegated:
        key = str(ir), tuple([(name, id(tensor)) for name, tensor in payload.items()])
        if key not in self._converted:
            self._converted[key] = dict(payload), self._runtime.compile(ir, payload)
        return self._converted[key][1]


class Custom(DelegateBackend):
    """A backend of somebody: torch runs its bodies."""

    name = "custom"

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Take everything."""
        del node, ir
        return SUPPORTED

    def compile(self, ir: IR, payload: Mapping[str, Tensor]) -> Delegated:
        """Compile a body, with its weights."""
        held = {name: tensor for name, tensor in payload.items() if name in ir.input_names}
        order = [name for name in ir.input_names if name not in held]
        graph = IRExecutor(ir, {}).graph

        def run(*given: Any) -> list[Tensor]:
            values = {**held, **dict(zip(order, given, strict=True))}
            return list(graph.run([values[name] for name in ir.input_names], {})[0])

        return run


def planted(runtime: str) -> Iterator[Planted]:
    """Yield faults without end: each kind of net in turn, each node alone and with its producer.

    Args:
        runtime: The runtime, for which only nodes that it takes are chosen.
    """
    models = [_model(net, shape, size) for size in (4, 5) for net, shape in NETS]
    for index in itertools.count():
        ir, weights, x = models[index % len(models)]
        parts = Partitioner(_backend(runtime))(ir).subgraphs
        part_of = {node.name: number for number, nodes in enumerate(parts) for node in nodes}
        for place, node in enumerate(ir.nodes):
            if len(node.outputs) != 1 or node.name not in part_of or "shape" in node.op_type:
                continue
            made = [ir.producers.get(meta.name) for meta in node.inputs]
            made = [n for n in made if n and part_of.get(n.name) == part_of[node.name]]
            sole = [n for n in made if len(ir.users[n.outputs[0].name]) == 1]
            for producer in ("", *[n.name for n in sole[:1] if len(n.outputs) == 1]):
                kinds = [*([ANOTHER] if node.op_type in OTHER else []), *MENDED]
                what = kinds[(place + bool(producer) + index // len(models)) % len(kinds)]
                yield Planted(ir, weights, x, node, producer, what)


def _backend(name: str) -> DelegateBackend:
    return Custom() if name == Custom.name else cast(Any, find_backend(name))


def _model(
    net: Callable[[int], nn.Module], shape: Callable[[int], tuple[int, ...]], size: int
) -> tuple[IR, dict[str, Tensor], Tensor]:
    torch.manual_seed(size)
    model, x = net(size).eval(), torch.randn(shape(size))
    return extract_ir(model, (x,)), dict(model.state_dict()), x


def is_found(runtime: str, fault: Planted, converted: Converted | None = None) -> bool | None:
    """Return whether one command names the node and its source line; None if nothing shows."""
    known: Converted = {} if converted is None else converted
    first = compare(
        fault.ir, fault.weights, (fault.x,), run=Faulty(_backend(runtime), fault, known)
    ).first
    named = first and (first.node, first.location)
    if named == (fault.node.name, str(fault.node.location)):
        return True
    watched = Faulty(_backend(runtime), fault, known, is_watched=True)
    compare(fault.ir, fault.weights, (fault.x,), run=watched)
    return False if watched.shows else None


def tried(runtime: str, count: int, known: Mapping[int, Record]) -> Iterator[Record]:
    """Plant faults in a runtime, and yield what came of each that was not tried before."""
    converted: Converted = {}
    shown = 0
    for index, fault in enumerate(planted(runtime)):
        if shown == count:
            return
        record = known.get(index)
        if record is None:
            start = time.process_time()
            is_named = is_found(runtime, fault, converted)
            seconds = round(time.process_time() - start, 2)
            record = {"runtime": runtime, "fault": index, "found": is_named, "seconds": seconds}
            record |= {"what": str(fault), "together": bool(fault.producer)}
            yield record
        shown += record["found"] is not None


def list_operators_once() -> None:
    """Keep torch from listing its composite operators anew in each conversion.

    It does so once for each library of operators, 200 times in a conversion to ExecuTorch, which
    is more than half of its time. No operator is registered between two of these conversions.
    """
    from torch._export import utils

    listed = functools.cache(utils._materialize_cpp_cia_ops)  # pyright: ignore[reportPrivateUsage]
    utils._materialize_cpp_cia_ops = listed  # pyright: ignore[reportPrivateUsage]


def counts(records: list[Record]) -> str:
    """Format what was found, by runtime, as a table."""
    planted_, found = Counter[str](), Counter[str]()
    together, seconds = Counter[str](), Counter[str]()
    for record in records:
        name = record["runtime"]
        seconds[name] += record["seconds"]
        if record["found"] is None:
            continue
        planted_[name] += 1
        found[name] += record["found"]
        together[name] += record["together"]
    rows: list[tuple[str, ...]] = [
        ("runtime", "planted", "only in pairs", "found", "seconds of CPU")
    ]
    for name, number in planted_.items():
        told = (number, together[name], found[name], round(seconds[name]))
        rows.append((name, *map(str, told)))
    return table(rows)


def main() -> int:
    """Plant faults in every installed runtime; the exit status says whether one was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtimes", nargs="*")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    list_operators_once()
    installed = installed_runtimes()
    path: Path | None = options.record
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    records: list[Record] = [json.loads(line) for line in lines]
    for runtime in options.runtimes or [Custom.name, *installed]:
        known = {record["fault"]: record for record in records if record["runtime"] == runtime}
        for record in tried(runtime, options.count, known):
            records.append(record)
            if record["found"] is False:
                print(f"{runtime}: missed {record['fault']}: {record['what']}", flush=True)
            if path is not None:
                with path.open("a") as file:
                    file.write(f"{json.dumps(record)}\n")
    print(counts(records))
    return int(any(record["found"] is False for record in records))


if __name__ == "__main__":
    raise SystemExit(main())
