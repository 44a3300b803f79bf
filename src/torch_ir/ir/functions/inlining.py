"""Functions that are called without condition, written out where they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch_ir.errors import InvalidIRError
from torch_ir.ir.analysis.gradient_stops import gradient_stops, with_lost_gradients
from torch_ir.ir.builder import Builder, Names, renamed, with_attributes, with_inputs
from torch_ir.ir.check.function_calls import call_symbols, put_into
from torch_ir.ir.graph import IR
from torch_ir.ir.node import Location, OpNode
from torch_ir.ir.queries import result_names
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.values import Attribute, FunctionRef
from torch_ir.ops.bodies import BODY_CALLS, operands_of_one_call
from torch_ir.steps import uncollected

_OWN_GRADIENT = "higher_order.autograd_function"
GRADIENT_SCOPES = frozenset({"higher_order.wrap_with_set_grad_enabled", _OWN_GRADIENT})
"""Operators that call a function once, without meaning for inference."""

CALLS = GRADIENT_SCOPES | {
    "higher_order.invoke_subgraph",
    "higher_order.tag_activation_checkpoint",
}
"""Operators that call a function once, and do nothing else that changes a value."""

MODULE = "module"
"""Key in the metadata of a function: the module path that those in its nodes begin with."""


@uncollected()
def inline_scopes(
    ir: IR, op_types: frozenset[str] = GRADIENT_SCOPES, *, named_by_call: bool = False
) -> IR:
    """Replace the calls of such scopes by their bodies; in functions too.

    Whether gradients are recorded changes no value. The same object if there is no such scope.
    Metadata name the functions whose own gradients are lost, and regions that passed none.

    Args:
        ir: The program.
        op_types: Operators that call one function, once.
        named_by_call: Whether nodes of functions are named after their call, too.
    """
    builder = Builder(ir)
    builder.map_functions(lambda body: inline_scopes(body, op_types, named_by_call=named_by_call))
    stops, lost = gradient_stops(ir), list[str]()
    for node in ir.nodes:
        if node.op_type in op_types:
            call = builder.mapped(node)
            _write_out(builder, call, f"{call.name}." if named_by_call else "")
            if node.op_type == _OWN_GRADIENT:
                lost.append(_called(node))
            elif node.name in stops:
                lost.append(stops[node.name])
        else:
            builder.keep(node)
    return with_lost_gradients(builder.finish(), lost)


def _write_out(builder: Builder, call: OpNode, prefix: str) -> None:
    """Append the nodes of the function that a node calls."""
    body = builder.functions.get(_called(call))
    argument = operands_of_one_call(call.op_type)
    given = call.tensors(argument) if argument else call.inputs
    if body is None or len(given) != len(body.input_names):
        raise InvalidIRError(
            f"node {call.name!r} does not fit the function {_called(call)!r} that it calls",
            remedy="See ir.check(), or torch-ir check.",
        )
    builder.operators.update(body.operators)
    root, place = str(body.metadata.get(MODULE, "")), call.location or Location()
    taken = {key: _add(builder, key, _moved(f, root, place)) for key, f in body.functions.items()}
    symbols = _symbols(builder, call, body)

    def moved(value: Attribute) -> Attribute:
        if isinstance(value, FunctionRef):
            return FunctionRef(taken[value.name])
        return cast(Attribute, put_into(value, symbols))

    values = dict(zip(body.input_names, given, strict=True))
    origins = _origins(call, body, prefix)
    for node, made_of in zip(_moved(body, root, place).nodes, origins, strict=True):
        copy = renamed(with_inputs(node, values), builder.names.fresh(prefix + node.name))
        copy = copy.replace(origins=() if made_of == (copy.name,) else made_of)
        if taken or symbols:
            copy = with_attributes(copy, moved)
        if symbols:
            outputs = [cast(TensorMeta, put_into(meta, symbols)) for meta in copy.outputs]
            binds = {str(symbols.get(name, name)): i for name, i in copy.binds.items()}
            copy = copy.replace(outputs=outputs, binds=binds)
        values |= {old.name: new for old, new in zip(node.outputs, copy.outputs, strict=True)}
        builder.nodes.append(copy)
    results = result_names(body)
    for output in call.outputs:
        builder.replace(output, values[results[output.producer_output_idx]])


def _origins(call: OpNode, body: IR, prefix: str) -> list[tuple[str, ...]]:
    """The nodes that each node of a function is made of, where it is written out.

    A call that was made of as many nodes as the function has is made of these, one by one.
    """
    if prefix:
        root = f"{call.made_of[0]}." if len(call.made_of) == 1 else prefix
        return [tuple([root + name for name in node.made_of]) for node in body.nodes]
    if len(call.origins) == len(body.nodes) and not any(node.origins for node in body.nodes):
        return [(name,) for name in call.origins]
    return [tuple(call.made_of)] * len(body.nodes)


def _called(call: OpNode) -> str:
    """The name of the function that a node calls."""
    (argument,) = BODY_CALLS[call.op_type]
    called = call.attrs.get(argument)
    if not isinstance(called, FunctionRef):
        raise InvalidIRError(
            f"node {call.name!r} does not call one function by {argument!r}",
            remedy="See ir.check(), or torch-ir check.",
        )
    return called.name


def _add(builder: Builder, name: str, body: IR) -> str:
    """Add a function that a function calls; the name of the one that is there if it is equal."""
    return name if builder.functions.get(name) == body else builder.add_function(body, name)


def _moved(body: IR, root: str, place: Location) -> IR:
    """The function, and those in it, with locations as they are for another call."""
    has_root = bool(root) and root != place.module
    if not has_root and not place.file:
        return body

    def moved(found: Location) -> Location:
        line = found if found.file else place
        module = rerooted(found.module, root, place.module) if has_root else found.module
        return Location(line.file, line.line, line.code, module, found.module_type)

    return map_locations(body, moved)


def map_locations(ir: IR, change: Callable[[Location], Location]) -> IR:
    """Give the nodes of a program, and of its functions, other locations.

    Args:
        ir: The program.
        change: Gives another location for one; for that of a function as a whole, too.

    Example:
        >>> node = OpNode("y", "aten.seed.default", (), (), location=Location("a.py", 3))
        >>> ir = IR([node], [], [], [])
        >>> str(map_locations(ir, lambda place: Location("b.py", place.line)).nodes[0].location)
        'b.py:3'
    """
    nodes = [n.replace(location=change(n.location)) if n.location else n for n in ir.nodes]
    functions = {name: map_locations(body, change) for name, body in ir.functions.items()}
    metadata = ir.metadata
    if root := metadata.get(MODULE):
        metadata = {**metadata, MODULE: change(Location(module=str(root))).module}
    return ir.replace(nodes=nodes, functions=functions, metadata=metadata)


def rerooted(module: str, root: str, place: str) -> str:
    """Return a module path with another beginning; one that begins otherwise is left.

    Example:
        >>> rerooted("layers.0.mlp", "layers.0", "layers.7")
        'layers.7.mlp'
    """
    inside = module == root or module.startswith(f"{root}.")
    return (place + module[len(root) :]).lstrip(".") if inside else module


def _symbols(builder: Builder, call: OpNode, body: IR) -> dict[str, Attribute]:
    """What symbols of a function become where it is written out; none for most.

    A symbol that the function finds out, and the call does not record, gets a name of its own.
    """
    if not body.symbols and not body.given_symbols:
        return {}
    known = dict(call_symbols(call, body))
    taken = builder.ir.symbols.keys() | builder.symbols.keys()
    for name in sorted({name for node in body.nodes for name in (*node.symbols, *node.binds)}):
        if name not in known and name not in body.given_symbols:
            free = Names({*taken, *known}).fresh(name)
            known[name] = SymExpr(free)
            if name in body.symbols:
                builder.symbols[free] = body.symbols[name]
    return {name: value for name, value in known.items() if str(value) != name}
