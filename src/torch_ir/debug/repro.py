"""One node as a Python file that runs it alone and compares it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch_ir.backends.protocol import DelegateBackend
from torch_ir.debug.capture import Captured
from torch_ir.debug.judging.backends import source_of
from torch_ir.debug.judging.delegates import Finding
from torch_ir.debug.reference.denotation import alone
from torch_ir.debug.validation import Divergence
from torch_ir.ir import IR, OpNode, SymExpr, TensorMeta
from torch_ir.ir.builder import map_values, with_attributes
from torch_ir.ir.expressions import Number
from torch_ir.ir.queries import graphs
from torch_ir.ir.symbols import value_at
from torch_ir.serde import write_atomically
from torch_ir.serde.files import make_folder

_TEXT = '''\
"""{title}

{reason}
"""

from pathlib import Path

from safetensors.torch import load_file

from torch_ir import {read}, validate

ir = {read}({text})
values = load_file(Path(__file__).with_name("inputs.safetensors"))
report = validate(ir, {{}}, [values[meta.name] for meta in ir.graph_inputs])
print(report)
print(report.table())
raise SystemExit({{"agree": 0, "disagree": 1, "not compared": 3}}[report.verdict])
'''


def repro_text(ir: IR, node: OpNode, symbols: Mapping[str, Number], divergence: Divergence) -> str:
    """Write a script that reads the node's inputs from ``inputs.safetensors`` beside it.

    Args:
        ir: The program.
        node: The node.
        symbols: The value of each symbol in it.
        divergence: What is to be seen.
    """
    program = _without_symbols(alone(ir, node), symbols)
    text, read = str(program), "parse"
    if any(graph.constants for path, graph in graphs(program) if path):
        text, read = json.dumps(program.to_dict()), "deserialize_ir"  # text names them only
    title = f"{node.op_type} as node {node.name!r} of {ir.model_name or 'a program'}."
    quoted = f'r"""\n{text}\n"""' if '"""' not in text and "\\" not in text else repr(text)
    reason = _plain(divergence.reason)
    return _TEXT.format(title=_plain(title), reason=reason, read=read, text=quoted)


_PART = '''\
"""{title}

{reason}
"""
{imports}
from pathlib import Path

from safetensors.torch import load_file

from torch_ir import load_ir, validate
{source}
folder = Path(__file__).parent
ir = load_ir(folder / "body.json")
values = load_file(folder / "inputs.safetensors")
report = validate(ir, {{}}, [values[meta.name] for meta in ir.graph_inputs], backend={backend})
print(report)
raise SystemExit({{"agree": 0, "disagree": 1, "not compared": 3}}[report.verdict])
'''


def inputs_of(part: Finding) -> Captured:
    """Return the values that a body took, as a file holds them."""
    values = {meta.name: part.inputs[meta.name] for meta in part.body.graph_inputs}
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in values.items()}
    return Captured(part.body.model_name, (), tensors, {})


def save_part(
    part: Finding, backend: DelegateBackend, symbols: Mapping[str, Number], folder: Path
) -> None:
    """Write the smallest body that a backend gets wrong, its inputs, and a script that judges it.

    Args:
        part: What was found.
        backend: The backend.
        symbols: The value of each symbol in the body.
        folder: Where ``body.json``, ``inputs.safetensors`` and ``repro.py`` go.
    """
    make_folder(folder)
    body = _without_symbols(part.body.replace(signature=None, metadata={}), symbols)
    body.save(folder / "body.json")
    inputs_of(part).save(folder / "inputs.safetensors")
    title = f"{part.node.op_type} as node {part.node.name!r} on the backend {backend.name!r}."
    place, name, code = source_of(backend)
    imports = "\nimport sys" if place else ""
    source = f"\nsys.path.append({place!r})\n{name}\n" if place else ""
    text = _PART.format(
        title=_plain(title),
        reason=_plain(part.error.reason),
        imports=imports,
        source=source,
        backend=code,
    )
    write_atomically(folder / "repro.py", text.encode())


def _plain(text: str) -> str:
    return text.replace("\\", "/").replace('"""', "'''")


def _without_symbols(ir: IR, symbols: Mapping[str, Number]) -> IR:
    """The program of one node with the sizes that it has in one run."""

    def sized(meta: TensorMeta) -> TensorMeta:
        shape = [
            dim.evaluate(symbols)
            if isinstance(dim, SymExpr) and set(dim.symbols) <= set(symbols)
            else dim
            for dim in meta.shape
        ]
        return meta.replace(shape=tuple(shape))

    ir = map_values(ir, sized)
    nodes = [with_attributes(node, lambda leaf: value_at(leaf, symbols)) for node in ir.nodes]
    kept = {n: r for n, r in ir.symbols.items() if n not in symbols or ir.functions}
    return ir.replace(nodes=nodes, symbols=kept)
