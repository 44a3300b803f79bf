"""What a node costs in programs of 10^4, 10^5 and 10^6 nodes: it must not grow.

    python benchmarks/linear.py [SIZE ...] [--only NAME,NAME] [--memory]

One process, CPU seconds; the last column is the cost of a node in the largest program over that
in the smallest.
With ``--memory``, bytes of Python objects a node that are alive at the end of each step.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch_ir import IR, OpNode, TensorMeta, compile_graph, load_ir, parse
from torch_ir.backends import SUPPORTED, Partitioner, Support
from torch_ir.ir import Location
from torch_ir.passes import decompose, eliminate_dead_code, outline

BLOCK = 12
"""Nodes of a layer; every third takes a weight of its own."""


def chain(size: int) -> IR:
    """Layers of pointwise operators, one behind the other."""
    last = TensorMeta("x", (4, 4), "float32")
    nodes, weights, names = [], [], {}
    for index in range(size):
        made = TensorMeta(f"v{index}", (4, 4), "float32", f"v{index}")
        where = Location("m.py", index % BLOCK, "f(x)", f"layers.{index // BLOCK}", "m.Layer")
        if index % 3:
            op_type = "aten.relu.default" if index % 3 == 1 else "aten.hardswish.default"
            node = OpNode(made.name, op_type, [last], [made], {}, {"self": 0}, where)
        else:
            key, name = f"layers.{index // BLOCK}.w{index % BLOCK}", f"p{index}"
            weights.append(TensorMeta(key, (4, 4), "float32"))
            names[name] = key
            inputs = [last, TensorMeta(name, (4, 4), "float32")]
            operands = {"self": 0, "other": 1}
            node = OpNode(made.name, "aten.add.Tensor", inputs, [made], {}, operands, where)
        nodes.append(node)
        last = made
    given = TensorMeta("x", (4, 4), "float32")
    return IR(nodes, [given], [last], weights, names)


class Adding:
    """A backend that takes two nodes of three."""

    name = "adding"

    def supports(self, node: OpNode, ir: IR) -> Support:
        refused = Support.refused("it is hardswish")
        return refused if node.op_type == "aten.hardswish.default" else SUPPORTED


def steps(ir: IR, folder: Path) -> dict[str, Callable[[], Any]]:
    """What is measured, each on what was made before."""
    text: list[str] = []
    weight = torch.ones(4, 4)
    return {
        "check": ir.check,
        "print": lambda: text.append(str(ir)),
        "parse": lambda: parse(text[0]),
        "save": lambda: ir.save(folder / "m.tir"),
        "load": lambda: load_ir(folder / "m.tir"),
        "dead code": lambda: eliminate_dead_code(ir),
        "outline": lambda: outline(ir),
        "decompose": lambda: decompose(ir),
        "partition": lambda: Partitioner(Adding())(ir),
        "compile": lambda: compile_graph(ir, {meta.name: weight for meta in ir.weights}),
    }


def measured(size: int, only: list[str], *, memory: bool) -> dict[str, float]:
    """Microseconds, or bytes, a node of each step."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, work in steps(chain(size), Path(folder)).items():
            if only and name not in only:
                continue
            gc.collect()
            if memory:
                tracemalloc.start()
            start = time.process_time()
            result = work()
            spent = 1e6 * (time.process_time() - start)
            if memory:
                spent = tracemalloc.get_traced_memory()[0]
                tracemalloc.stop()
            del result
            found[name] = spent / size
            print(f"{size:>9,} {name:<10} {found[name]:9.1f}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Print a table with a row for each step."""
    words = sys.argv[1:]
    memory = "--memory" in words
    only = words[words.index("--only") + 1].split(",") if "--only" in words else []
    sizes = [int(word) for word in words if word.isdigit()] or [10_000, 100_000]
    torch.set_num_threads(1)
    measured(2_000, only, memory=False)  # imports and tables
    columns = [measured(size, only, memory=memory) for size in sizes]
    unit = "bytes" if memory else "µs"
    print(
        f"{unit + ' a node':<12}" + "".join(f"{size:>12,}" for size in sizes) + "   last / first"
    )
    for name in columns[0]:
        row = [column[name] for column in columns]
        print(f"{name:<12}" + "".join(f"{x:12.1f}" for x in row) + f"{row[-1] / row[0]:14.2f}")


if __name__ == "__main__":
    main()
