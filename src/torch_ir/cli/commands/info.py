"""``torch-ir info``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir
from torch_ir.errors import counted, printable
from torch_ir.ir import IR, SymbolRange, TensorMeta
from torch_ir.ir.functions import CALLS
from torch_ir.ir.tensor import type_text
from torch_ir.tables import bytes_text, table

SHOWN_OPERATORS = 15


@click.command
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(file: str, as_json: bool) -> None:
    """Count what the IR in FILE has: operators, parameters, inputs and outputs."""
    facts = gather(read_ir(file))
    console.show(facts, as_json, lambda: describe(facts))


def gather(ir: IR) -> dict[str, Any]:
    """Gather the facts that ``--json`` prints."""
    keys_of_buffers = {
        key for name, key in ir.weight_name_mapping.items() if name.startswith(("b_", "c_"))
    }
    operators = _operators(ir)
    return {
        "model_name": ir.model_name,
        "pytorch_version": ir.pytorch_version,
        "dialect": ir.dialect,
        "nodes": len(ir.nodes),
        "nodes_with_calls": operators.total(),
        "inputs": [_tensor(meta) for meta in ir.graph_inputs],
        "outputs": [_tensor(meta) for meta in ir.graph_outputs],
        "parameters": _sizes(m for m in ir.weights if m.name not in keys_of_buffers),
        "buffers": _sizes(m for m in ir.weights if m.name in keys_of_buffers),
        "constants": _sizes(
            TensorMeta(key, value.shape, value.dtype)
            for key, value in ir.constants.items()
            if value.view is None  # views take no room
        ),
        "symbols": {
            name: {"lower": span.lower, "upper": span.upper} for name, span in ir.symbols.items()
        },
        "functions": {name: len(body.nodes) for name, body in ir.functions.items()},
        "mutations": [mutation.target for mutation in ir.mutations],
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
    }


def _operators(ir: IR) -> Counter[str]:
    """How often each operator is called; a function counts at each of its calls."""
    inside = {name: _operators(body) for name, body in ir.functions.items()}
    found = Counter[str]()
    for node in ir.nodes:
        is_call = node.op_type in CALLS and not inside.keys().isdisjoint(node.functions)
        found.update(inside[node.functions[0]] if is_call else {node.op_type: 1})
    return found


def _tensor(meta: TensorMeta) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else str(size) for size in meta.shape]
    return {"name": meta.name, "shape": shape, "dtype": meta.dtype, "type": type_text(meta)}


def _sizes(metas: Iterable[TensorMeta]) -> dict[str, int]:
    """Counts of tensors of static shape; a weight of symbolic shape counts as a tensor alone."""
    found = list(metas)
    static = [meta for meta in found if meta.is_static]
    return {
        "tensors": len(found),
        "elements": sum(math.prod(map(int, map(str, meta.shape))) for meta in static),
        "bytes": sum(meta.nbytes or 0 for meta in static),
    }


def describe(facts: Mapping[str, Any]) -> str:
    """Describe the same facts in text for people."""
    torch = f", torch {facts['pytorch_version']}" if facts["pytorch_version"] else ""
    whole = facts["nodes_with_calls"]
    written_out = f" ({whole:,} with calls written out)" if whole != facts["nodes"] else ""
    lines = [
        f"{facts['model_name'] or '(no name)'}: {facts['nodes']:,} nodes{written_out}, "
        f"dialect {facts['dialect']}{torch}"
    ]
    sizes = [
        (
            kind,
            f"{counts['elements']:,}",
            f"in {counts['tensors']:,} tensors",
            bytes_text(counts["bytes"]),
        )
        for kind in ("parameters", "buffers", "constants")
        if (counts := facts[kind])["tensors"]
    ]
    lines += table(sizes).splitlines()
    for kind in ("inputs", "outputs"):
        lines.append(f"{kind}:" + ("" if facts[kind] else " none"))
        lines += [f"  {tensor['name']}: {tensor['type']}" for tensor in facts[kind]]
    if facts["symbols"]:
        lines.append("symbols:")
        lines += [
            f"  {name}: {SymbolRange(span['lower'], span['upper'])}"
            for name, span in facts["symbols"].items()
        ]
    if facts["functions"]:
        lines.append("functions:")
        lines += [
            f"  {name}: {counted(nodes, 'node')}" for name, nodes in facts["functions"].items()
        ]
    if facts["mutations"]:
        lines.append("writes to: " + ", ".join(facts["mutations"]))
    lines.append("operators:" + ("" if facts["operators"] else " none"))
    operators = list(facts["operators"].items())
    if operators:
        rows = [(f"{count:,}", name) for name, count in operators[:SHOWN_OPERATORS]]
        lines += table(rows, indent="  ").splitlines()
    if len(operators) > SHOWN_OPERATORS:
        lines.append(f"  and {len(operators) - SHOWN_OPERATORS} more (all with --json)")
    return "\n".join(map(printable, lines))
