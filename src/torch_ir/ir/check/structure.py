"""Structural checks of an IR: every finding, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ir.check.function_calls import check_calls
from torch_ir.ir.check.operators import check_operators
from torch_ir.ir.constants import view_fault
from torch_ir.ir.diagnostics import Diagnostic, Finding, about, at
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.queries import given_values, shown_symbols, signature_of
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import Constant, TensorMeta, type_text
from torch_ir.ir.tree import ValueLeaf, leaves, tensor_names
from torch_ir.ir.values import attribute_leaves, is_plain
from torch_ir.ops.schema import KNOWN_NAMESPACES, Schema, indices_of, known_operators

__all__ = ["Finding", "check"]


def check(ir: IR, *, strict: bool = False) -> tuple[Diagnostic, ...]:
    """Find all violations of the structural rules, in program order.

    Rules: names are unique (``duplicate-node``, ``duplicate-value``); values are defined before
    use with the metadata that they are used with (``undefined-value``, ``wrong-metadata``); the
    operator exists and its arguments are the schema's (``unknown-operator``, ``unbound-inputs``,
    ``unknown-argument``, ``missing-argument``, ``bad-operand``, ``unused-input``); what
    it hands to functions, and what they give, have the types of their signatures (``bad-call``);
    weights have one name and one entry (``duplicate-weight``, ``dangling-mapping``,
    ``dangling-alias``);
    constants that are views lie in their bases, which nothing writes (``bad-view``,
    ``shared-mutation``); functions, symbols, mutations and the signature refer to what exists
    (``undefined-function``, ``unbound-symbol``, ``bad-mutation``, ``undeclared-mutation``,
    ``bad-signature``). A call that the rules for operators refuse is no fault of the program,
    which may be looked at and changed, but not run: a warning (``forbidden-operator``).

    Args:
        ir: The program.
        strict: Raise the first finding that is no warning.

    Raises:
        InvalidIRError: With ``strict``, the first finding that is no warning.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> y = TensorMeta("y", (2,), "float32", "y")
        >>> broken = IR([OpNode("y", "aten.relu.default", [x], [y])], [], [y], [])
        >>> print(*check(broken))
        [undefined-value] node 'y': %x is used but never defined
    """
    findings: list[Diagnostic] = []
    for finding in _findings(ir, {}):
        if strict and finding.is_error:
            raise InvalidIRError(
                str(replace(finding, location=None)),
                picture=at(finding.location) or None,
                node=finding.node,
                diagnostics=(finding,),
            )
        findings.append(finding)
    return tuple(findings)


def _findings(ir: IR, outer_symbols: Mapping[str, Any]) -> Iterator[Diagnostic]:
    symbols = {**outer_symbols, **ir.symbols}
    yield from _weights(ir)
    defined = yield from _nodes(ir)
    yield from _uses(ir.graph_outputs, defined, "the graph output %{} is never defined")
    yield from _symbols(ir, symbols)
    yield from _values_of_symbols(ir, symbols)
    yield from _mutations(ir, defined)
    yield from _signature(ir)
    for name, function in ir.functions.items():
        if function.weights or function.constants:
            message = f"function {name!r} has weights of its own; it must take them as inputs"
            yield Diagnostic("open-function", message)
        for finding in _findings(function, symbols):
            yield replace(finding, node=f"{name}/{finding.node}" if finding.node else name)


# -- weights and names ----------------------------------------------------------------------------


def _weights(ir: IR) -> Iterator[Diagnostic]:
    keys: set[str] = set()
    for meta in ir.weights:
        if meta.name in keys:
            yield Diagnostic("duplicate-weight", f"the weight {meta.name!r} is listed twice")
        keys.add(meta.name)
    known = keys | ir.constants.keys()
    for name, key in ir.weight_name_mapping.items():
        if key not in known:
            message = f"%{name} is mapped to {key!r}, which is neither a weight nor a constant"
            yield Diagnostic("dangling-mapping", _hinted(message, key, known))
    for key in ir.constants:
        fault = view_fault(ir.constants, key)
        if fault is not None:
            yield Diagnostic("bad-view", f"{fault.message}. {fault.remedy}")
    for alias, key in ir.weight_aliases.items():
        if key not in keys:
            yield Diagnostic(
                "dangling-alias", f"{alias!r} is another name of {key!r}, which is no weight"
            )


def _nodes(ir: IR) -> Any:
    """Findings of each node; returns the metadata of every value that the graph defines."""
    defined: dict[str, TensorMeta] = {}
    for meta in ir.graph_inputs:
        if meta.name in defined:
            yield Diagnostic("duplicate-value", f"the graph input %{meta.name} is defined twice")
        defined[meta.name] = meta
    for name, (_, value) in ir.external_values().items():
        if name in defined:
            yield Diagnostic("duplicate-value", f"%{name} is both a graph input and a weight")
        defined.setdefault(name, TensorMeta(name, value.shape, value.dtype))
    names: set[str] = set()
    for node in ir.nodes:
        uses = _uses(node.inputs, defined, "%{} is used but never defined")
        for finding in (*uses, *_call(ir, node), *_defines(node, defined, names)):
            yield about(finding, node)
        yield from check_operators(node)
        names.add(node.name)
        for meta in node.outputs:
            defined[meta.name] = meta
    return defined


def _uses(
    metas: Iterable[TensorMeta], defined: Mapping[str, TensorMeta], undefined: str
) -> Iterator[Diagnostic]:
    """What is wrong with using values; ``undefined`` says of a name that nothing defines it."""
    for meta in metas:
        made = defined.get(meta.name)
        if made is None:
            message = undefined.format(meta.name)
            yield Diagnostic("undefined-value", _hinted(message, meta.name, defined))
        elif made is not meta and meta != made:
            yield _wrong_metadata(meta, made)


def _wrong_metadata(used: TensorMeta, made: TensorMeta) -> Diagnostic:
    return Diagnostic(
        "wrong-metadata",
        f"%{used.name} is not used as it is defined",
        expected=_described(made),
        found=_described(used),
    )


def _hinted(message: str, name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known)
    return f"{message}. {hint}" if hint else message


def _described(meta: TensorMeta) -> str:
    if meta.producer_node is None:
        return type_text(meta)
    return f"{type_text(meta)} from result {meta.producer_output_idx} of {meta.producer_node!r}"


def _defines(
    node: OpNode, defined: Mapping[str, TensorMeta], names: set[str]
) -> Iterator[Diagnostic]:
    if node.name in names:
        yield Diagnostic("duplicate-node", "another node has this name")
    positions: set[int] = set()
    for meta in node.outputs:
        if meta.name in defined:
            yield Diagnostic("duplicate-value", f"%{meta.name} is defined twice")
        if meta.producer_node != node.name:
            yield Diagnostic(
                "wrong-producer",
                f"%{meta.name} names another producer",
                expected=repr(node.name),
                found=repr(meta.producer_node),
            )
        if meta.producer_output_idx in positions or meta.producer_output_idx < 0:
            yield Diagnostic(
                "wrong-producer", f"%{meta.name} is result {meta.producer_output_idx} once more"
            )
        positions.add(meta.producer_output_idx)


# -- one call -------------------------------------------------------------------------------------


def _call(ir: IR, node: OpNode) -> Iterator[Diagnostic]:
    if node.attrs and (names := node.functions):
        yield from _functions(ir, names)
    if node.op_type.startswith("higher_order."):
        yield from check_calls(ir, node)
    schema = ir.schema_of(node.op_type)
    if schema is None and node.op_type.partition(".")[0] in KNOWN_NAMESPACES:
        message = f"there is no operator {node.op_type}"
        message = _hinted(message, node.op_type, known_operators())
        yield Diagnostic("unknown-operator", message)
        return
    if node.operands is None:
        if schema is not None or node.inputs:
            fits = f"the {len(node.inputs)} inputs do not fit the arguments of {node.op_type}"
            yield Diagnostic(
                "unbound-inputs", fits if schema is not None else "no input has an argument"
            )
        return
    yield from _slots(node)
    for name, slots in node.operands.items():
        if not isinstance(slots, tuple) and name in node.attrs:
            message = f"argument {name!r} is given twice, as an input and as an attribute"
            yield Diagnostic("bad-operand", message)
    if schema is None:
        return
    if node.binds:
        yield from _bound_results(node, schema)
    for name in dict.fromkeys((*node.operands, *node.attrs)):
        if name not in schema.names:
            message = f"{node.op_type} has no argument {name!r}"
            hinted = _hinted(message, name, [argument.name for argument in schema.arguments])
            yield Diagnostic("unknown-argument", hinted)
    for name in schema.required:
        if name not in node.operands and name not in node.attrs:
            message = f"argument {name!r} of {node.op_type} is not given"
            yield Diagnostic("missing-argument", message)


def _bound_results(node: OpNode, schema: Schema) -> Iterator[Diagnostic]:
    """Symbols that a node binds to a result of its operator that is a tensor, or is not there."""
    kinds = [result.type for result in schema.returns]
    for symbol, index in node.binds.items() if "[]" not in "".join(kinds) else ():
        if index >= len(kinds) or "Tensor" in kinds[index]:
            message = f"result {index}, to which {symbol} is bound, is no number"
            yield Diagnostic("unbound-symbol", message)


def _slots(node: OpNode) -> Iterator[Diagnostic]:
    operands = node.slots
    if [*operands.values()] == [*range(len(node.inputs))]:
        return  # each argument takes one input, as most do
    used: set[int] = set()
    for name, slots in operands.items():
        for slot in indices_of(slots):
            if not 0 <= slot < len(node.inputs):
                message = (
                    f"argument {name!r} takes input {slot}, the node has {len(node.inputs)} inputs"
                )
                yield Diagnostic("bad-operand", message)
            used.add(slot)
    for index, meta in enumerate(node.inputs):
        if index not in used:
            yield Diagnostic("unused-input", f"no argument takes input {index} (%{meta.name})")


def _functions(ir: IR, names: Iterable[str]) -> Iterator[Diagnostic]:
    for name in names:
        if name not in ir.functions:
            message = f"there is no function {name!r}"
            yield Diagnostic("undefined-function", _hinted(message, name, ir.functions))


# -- the graph as a whole -------------------------------------------------------------------------


def _symbols(ir: IR, symbols: Mapping[str, Any]) -> Iterator[Diagnostic]:
    reported: set[str] = set()
    for node, where, expression in _expressions(ir):
        for symbol in expression.symbols:
            if symbol not in symbols and symbol not in reported:
                reported.add(symbol)
                yield Diagnostic(
                    "unbound-symbol", f"the symbol {symbol} in {where} has no range", node
                )


def _values_of_symbols(ir: IR, symbols: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Symbols that are used before a call or a node gives them a value."""
    if not symbols:
        return
    known = set(ir.given_symbols)
    reported: set[str] = set()

    def missing(values: Iterable[object], where: str, node: str) -> Iterator[Diagnostic]:
        found = {s for value in values if isinstance(value, SymExpr) for s in value.symbols}
        for symbol in sorted(found & symbols.keys() - known - reported):
            reported.add(symbol)
            message = f"the symbol {symbol} is used in {where}, and nothing before gives its value"
            yield Diagnostic("unbound-symbol", message, node)

    for node in ir.nodes:
        for name, value in node.attrs.items():
            if not is_plain(value):
                yield from missing(attribute_leaves(value), f"the argument {name!r}", node.name)
        known |= node.binds.keys() | shown_symbols(node.outputs)
    found = leaves(signature_of(ir).outputs)
    values = [leaf.value for leaf in found if isinstance(leaf, ValueLeaf)]
    yield from missing(values, "the results", "")


def _expressions(ir: IR) -> Iterator[tuple[str, str, SymExpr]]:
    """Every expression in guards, shapes and attributes, with its node and where it stands."""
    for guard in ir.guards:
        yield "", f"the guard {guard}", guard
    for node, meta in _metas(ir):
        for dim in meta.shape:
            if isinstance(dim, SymExpr):
                yield node, f"the shape of %{meta.name}", dim
    for node in ir.nodes:
        for name, value in node.attrs.items():
            for item in () if is_plain(value) else attribute_leaves(value):
                if isinstance(item, SymExpr):
                    yield node.name, f"the argument {name!r}", item


def _metas(ir: IR) -> Iterator[tuple[str, TensorMeta]]:
    for meta in (*ir.graph_inputs, *ir.weights):
        yield "", meta
    for node in ir.nodes:
        for meta in node.outputs:
            yield node.name, meta


def _mutations(ir: IR, defined: Mapping[str, TensorMeta]) -> Iterator[Diagnostic]:
    yield from _shared_mutations(ir)
    for mutation in ir.mutations:
        target = given_values(ir).get(mutation.target)
        if target is None:
            message = f"%{mutation.target} is written, and is neither a graph input nor a weight"
            yield Diagnostic("bad-mutation", message)
        value = mutation.value
        if value.name not in defined:
            yield Diagnostic(
                "bad-mutation",
                f"%{mutation.target} is set to %{value.name}, which is never defined",
            )
        elif value != defined[value.name]:
            yield _wrong_metadata(value, defined[value.name])
        elif target is not None and (target.shape, target.dtype) != (value.shape, value.dtype):
            yield Diagnostic(
                "bad-mutation",
                f"%{mutation.target} is set to %{value.name}, which is of another type",
                expected=type_text(target),
                found=type_text(value),
            )
    declared = {mutation.target for mutation in ir.mutations}
    for name in sorted(ir.aliases.written - declared):
        if name in ir.external_values():
            message = f"%{name} is written in place, and no mutation says so"
            yield Diagnostic("undeclared-mutation", message)


def _shared_mutations(ir: IR) -> Iterator[Diagnostic]:
    """A constant that is written has memory of its own: names are all that tells memory apart."""
    views = {c.view.base: key for key, c in ir.constants.items() if c.view is not None}
    for mutation in ir.mutations if views else ():
        key, value = ir.external_values().get(mutation.target, ("", None))
        if isinstance(value, Constant) and (value.view is not None or key in views):
            other = views[key] if value.view is None else value.view.base
            yield Diagnostic(
                "shared-mutation",
                f"%{mutation.target} is written, and shares its memory with the constant "
                f"{other!r}. Make the view by aten.as_strided of its base in the program.",
            )


def _signature(ir: IR) -> Iterator[Diagnostic]:
    if ir.signature is None:
        return
    if ir.signature.arguments is None:
        message = "the inputs of the signature are no tuple of positional and keyword arguments"
        yield Diagnostic("bad-signature", message)
    for word, tree, metas in (
        ("inputs", ir.signature.inputs, ir.graph_inputs),
        ("outputs", ir.signature.outputs, ir.graph_outputs),
    ):
        names, expected = tensor_names(tree), tuple([meta.name for meta in metas])
        if names != expected:
            message = f"the {word} of the signature are not those of the graph"
            yield Diagnostic(
                "bad-signature", message, expected=str(list(expected)), found=str(list(names))
            )
        for leaf in leaves(tree):
            if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr):
                for symbol in leaf.value.symbols:
                    if symbol not in ir.symbols:
                        yield Diagnostic(
                            "unbound-symbol", f"the symbol {symbol} in the signature has no range"
                        )
