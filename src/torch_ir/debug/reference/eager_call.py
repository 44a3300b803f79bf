"""A node as the plain call of its operator: by name, out of place, without what compiling does.

What a call is made from is read here from the node itself, not from the compiled graph's plan, so
that a mistake there is not repeated here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from torch_ir.errors import InvalidIRError
from torch_ir.infer.bindings import Symbols, bind_inputs
from torch_ir.infer.engine import flatten
from torch_ir.infer.preconditions.table import require_arguments
from torch_ir.infer.resolve import evaluate, operator_of, to_torch
from torch_ir.ir import IR, Constant, OpNode, SymExpr, TensorLeaf, ValueLeaf
from torch_ir.ir.expressions import Number
from torch_ir.ir.queries import signature_of
from torch_ir.ir.symbols import value_at
from torch_ir.ir.tree import leaves, unflatten
from torch_ir.ir.values import as_argument
from torch_ir.torch_api import (
    OpOverload,
    constant_tensor,
    operator_schema,
    own_names,
    parameters_of,
)


def call_plainly(
    node: OpNode,
    inputs: Sequence[torch.Tensor],
    symbols: Mapping[str, Number],
    functions: Mapping[str, IR],
    device: torch.device,
) -> list[Any]:
    """Call a node's operator; return its results, flattened.

    Args:
        node: The node.
        inputs: The tensors of ``node.inputs``; an operator that writes does so to these.
        symbols: The value of each symbol.
        functions: What the node may refer to.
        device: What ``Device("run")`` stands for.

    Raises:
        ExecutionError: torch has no such operator.
        InvalidIRError: The inputs do not fit its arguments.
    """
    operator = operator_of(node)
    if isinstance(operator, OpOverload):
        kinds = {argument.name: argument.type for argument in operator_schema(operator).arguments}
    else:
        kinds = {}

    def function(name: str) -> Callable[..., Any]:
        known = {**functions, **functions[name].functions}
        return _function(functions[name], known, symbols, device)

    named = {
        name: evaluate(
            to_torch(as_argument(kinds.get(name, ""), value), device, function), symbols
        )
        for name, value in node.attrs.items()
    }
    for name, slots in _operands(node).items():
        if isinstance(slots, int):
            named[name] = inputs[slots]
        elif slots is not None:
            rest = named.get(name) or [None] * len(slots)
            pairs = zip(slots, rest, strict=True)
            named[name] = [other if slot is None else inputs[slot] for slot, other in pairs]
        else:
            named.setdefault(name, None)
    if isinstance(operator, OpOverload):
        require_arguments(node.op_type, (), named)
        names = own_names(operator)
        given = {names.get(name, name): value for name, value in named.items()}
        return list(flatten(operator(**given)))
    parameters = parameters_of(operator)
    by_name = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    kept = {name: named.pop(name) for name in by_name if name in named}
    return list(flatten(operator(*_in_order(parameters, named), **kept)))


def _operands(node: OpNode) -> Mapping[str, Any]:
    if node.operands is None:
        raise InvalidIRError(
            f"the {len(node.inputs)} inputs of {node.op_type} do not fit its arguments"
        )
    return node.operands


def _in_order(parameters: Sequence[inspect.Parameter], named: Mapping[str, Any]) -> list[Any]:
    """The arguments of a higher-order operator, which wants tuples for lists."""
    arguments: list[Any] = []
    for parameter in parameters:
        if parameter.name not in named:
            continue
        value = named[parameter.name]
        value = tuple(cast(list[Any], value)) if isinstance(value, list) else value
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            arguments.extend(value)
        else:
            arguments.append(value)
    return arguments


# -- functions ------------------------------------------------------------------------------------


def _function(
    ir: IR, functions: Mapping[str, IR], outside: Mapping[str, Number], device: torch.device
) -> Callable[..., Any]:
    """A function of the graph, node by node.

    Symbols that no argument tells, as of the size ``s0*s1``, are those outside.
    """

    def call(*args: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        values = dict(zip(ir.input_names, tensors, strict=True))
        given = {name: outside[name] for name in ir.symbols if name in outside}
        symbols = given | _symbols(ir, tensors, args)
        for name, (_, value) in ir.external_values().items():
            values[name] = constant_tensor(cast(Constant, value)).to(device)
        for node in ir.nodes:
            given = [values[meta.name] for meta in node.inputs]
            made = call_plainly(node, given, symbols, functions, device)
            for meta in node.outputs:
                values[meta.name] = made[meta.producer_output_idx]
            bind(node, made, symbols)

        def leaf(item: TensorLeaf | ValueLeaf) -> Any:
            is_tensor = isinstance(item, TensorLeaf)
            return values[item.name] if is_tensor else value_at(item.value, symbols)

        return unflatten(signature_of(ir).outputs, leaf, lambda _, children: tuple(children))

    return call


def _symbols(ir: IR, tensors: Sequence[torch.Tensor], args: Sequence[Any]) -> Symbols:
    numbers: Symbols = {}
    for leaf, value in zip(leaves(signature_of(ir).inputs), args, strict=False):
        if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr):
            numbers[leaf.value.text] = value
    return bind_inputs(ir.graph_inputs, tensors, numbers)


def bind(node: OpNode, made: Mapping[int, Any] | Sequence[Any], symbols: Symbols) -> None:
    """Give the symbols that a node's results determine their value.

    Args:
        node: The node.
        made: Its results, flattened, by position.
        symbols: Where the values go.
    """
    for symbol, index in node.binds.items():
        number = made[index]
        symbols[symbol] = int(number) if isinstance(number, bool) else number
    for meta in node.outputs:
        tensor = made[meta.producer_output_idx]
        for dim, size in zip(meta.shape, tensor.shape, strict=False):
            if isinstance(dim, SymExpr) and dim.is_symbol:
                symbols.setdefault(dim.text, size)
