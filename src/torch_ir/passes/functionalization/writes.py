"""Writes as calls of functional operators, whose results replace what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch._ops import OpOverload

from torch_ir.errors import PassError, TorchIRError
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.builder import split_arguments
from torch_ir.ir.values import default_attribute
from torch_ir.ops.schema import Schema, lookup, parse_schema
from torch_ir.ops.spec import tagged_traits
from torch_ir.ops.variants import Variant, functional_variant
from torch_ir.passes.functionalization.alias_state import AliasState, CannotFollowError
from torch_ir.passes.functionalization.draws import coins_like, draws_alike
from torch_ir.passes.functionalization.overlaps import require_any_order
from torch_ir.passes.functionalization.repeats import EXPANDS, Coverage
from torch_ir.passes.functionalization.scatter import RULES, ViewWrite
from torch_ir.passes.functionalization.storages import View
from torch_ir.torch_api import operator_schema

_COMPARISONS = ("eq_", "ne_", "lt_", "le_", "gt_", "ge_", "logical_", "isfinite")


class WritingNode:
    """One node that writes, and what stands in its place."""

    def __init__(self, state: AliasState, node: OpNode):
        self.state = state
        self.ir = state.ir
        self.node = node
        self.names = state.builder.names

    def write(self, written: tuple[str, ...]) -> None:
        """Emit the functional variant, and assign its results to what the node writes.

        Raises:
            CannotFollowError: No operator computes what it writes, or a view cannot be followed.
        """
        schema = self.ir.schema_of(self.node.op_type)
        known = {**_of_library(self.node.op_type), **self.ir.operators}
        variant = None if schema is None else functional_variant(schema, written, known)
        text = None if variant is None else known.get(variant.op_type)
        target = parse_schema(text) if text else None
        if variant is not None and target is None:
            target = self.ir.schema_of(variant.op_type)
        if schema is None or variant is None or target is None:
            reason = "there is no operator that computes what it writes"
            wanted = _functional_name(self.node.op_type)
            gives = "which returns its results, then what it writes"
            raise CannotFollowError(f"{reason}, such as {wanted}, {gives}" if wanted else reason)
        if text:
            self.state.builder.operators[variant.op_type] = text
        views = self.written_views(written)
        require_any_order(self.state, self.node, views)
        if not draws_alike(self.node, self.state):
            coins = self._coins(self.node.inputs[0])
            self._assign_results(schema, {}, dict.fromkeys(views, coins), views)
            return
        made, new = self._variant_call(variant, schema, target, views)
        self._assign_results(schema, made, new, views)

    def written_views(self, written: tuple[str, ...]) -> dict[tuple[str, int], View]:
        """The view behind each written tensor: the argument's name, and the position in a list."""
        views: dict[tuple[str, int], View] = {}
        for name in written:
            slots = self.node.slots[name]
            for position, slot in enumerate(slots if isinstance(slots, tuple) else (slots,)):
                if slot is not None:
                    if not 0 <= slot < len(self.node.inputs):
                        raise CannotFollowError(f"argument {name!r} takes no input of the node")
                    view = views[name, position] = self.state.view_of(self.node.inputs[slot])
                    if view.storage.blocked:
                        raise CannotFollowError(view.storage.blocked)
        return views

    def _variant_call(
        self,
        variant: Variant,
        schema: Schema,
        target: Schema,
        views: Mapping[tuple[str, int], View],
    ) -> tuple[dict[int, TensorMeta], dict[tuple[str, int], TensorMeta]]:
        """The call of the functional operator, added to the nodes.

        Returns its results by position, and what each written tensor holds afterwards.
        """
        call = functional_call(
            self.state.mapped(self.node), variant, schema, target, next(iter(views.values())).meta
        )
        types = {key: _new_type(self.node, schema, key, view) for key, view in views.items()}
        places = {key: variant.results[key[0]] + key[1] for key in views}
        fresh = dict(zip(fresh_results(schema), range(len(target.returns)), strict=False))
        outputs: dict[int, TensorMeta] = {
            fresh[meta.producer_output_idx]: meta
            for meta in self.node.outputs
            if meta.producer_output_idx in fresh
        }
        outputs |= {places[key]: meta for key, meta in types.items()}
        dtypes = _result_dtypes(self.ir, self.node, call, variant, places, types)
        cast_needed = [key for key in views if dtypes[key] != types[key].dtype]
        is_single = len(target.returns) == 1 and not target.returns[0].type.endswith("]")
        name = (
            self.names.fresh(f"{self.node.name}_wide")
            if is_single and cast_needed
            else self.node.name
        )
        made = {
            index: meta.replace(
                name=name if is_single else f"{name}.{index}",
                producer_node=name,
                producer_output_idx=index,
            )
            for index, meta in sorted(outputs.items())
        }
        for key in cast_needed:
            made[places[key]] = made[places[key]].replace(dtype=dtypes[key])
        call = call.replace(name=name, outputs=tuple(made.values()))
        self.state.nodes.append(call.derived_from(self.node))
        results = {key: made[place] for key, place in places.items()}
        for key in cast_needed:
            wanted = self.node.name if is_single else None
            results[key] = self.cast(results[key], types[key].dtype, wanted)
        return made, results

    def _coins(self, drawn: TensorMeta) -> TensorMeta:
        value = self.state.value(drawn.name, drawn)
        floats = value if value.dtype.startswith("float") else self.cast(value, "float32")
        return self.cast(coins_like(floats, self.node, self.state), drawn.dtype)

    def cast(self, value: TensorMeta, dtype: str, name: str | None = None) -> TensorMeta:
        """Add a value in another type; the value itself if it has that type.

        Args:
            value: The value.
            dtype: The type.
            name: The name of the result; by default one that is free.
        """
        if value.dtype == dtype:
            return value
        name = name or self.names.fresh(f"{self.node.name}_cast")
        made = value.replace(name=name, dtype=dtype, producer_node=name, producer_output_idx=0)
        attrs, location = {"dtype": DType(dtype)}, self.node.location
        cast = OpNode(name, "aten._to_copy.default", [value], [made], attrs, {"self": 0}, location)
        self.state.nodes.append(cast.derived_from(self.node))
        return made

    def _assign_results(
        self,
        schema: Schema,
        made: Mapping[int, TensorMeta],
        new: Mapping[tuple[str, int], TensorMeta],
        views: Mapping[tuple[str, int], View],
    ) -> None:
        for key, view in views.items():
            self.assign(view, new[key])
        by_alias = {
            argument.alias: views[argument.name, 0]
            for argument in schema.arguments
            if argument.alias and (argument.name, 0) in views
        }
        fresh = dict(
            zip(fresh_results(schema), range(len(made) + len(schema.returns)), strict=False)
        )
        for output in self.node.outputs:
            position = min(output.producer_output_idx, len(schema.returns) - 1)
            alias = schema.returns[position].alias
            if alias in by_alias:
                self.state.views[output.name] = by_alias[alias]
            else:
                self.state.values[output.name] = made[fresh[output.producer_output_idx]]

    def assign(self, view: View, value: TensorMeta) -> None:
        """Write a value through a view: all that it is a part of has a new value."""
        covered, new = Coverage(self.node, view.meta), [(view, value)]
        made: list[tuple[str, Mapping[str, Any]]] = []

        def emit(op_type: str, like: TensorMeta, /, **arguments: Any) -> TensorMeta:
            made.append((op_type, arguments))
            return self.emit(op_type, like, **arguments)

        for item in view.up()[:-1]:
            if item.parent is None or item.made is None:  # only the whole has none
                break
            base = self.state.value(item.parent.meta.name, item.parent.meta)
            rule = RULES.get(item.made.op_type)
            whole = None
            if rule is not None:
                whole = rule(ViewWrite(item.made, item.meta, base, value, emit, covered))
            if whole is None:
                raise CannotFollowError(
                    f"it writes through node {item.made.name!r} ({item.made.op_type})"
                )
            covered.go_up(item.made, made, base)
            made.clear()
            value = whole
            if item.made.op_type in EXPANDS:  # the repeats beside those that are written follow
                new = new[:1]
            new.append((item.parent, value))
        view.storage.version += 1
        for item, current in new:
            item.set(current)

    def emit(self, op_type: str, like: TensorMeta, /, **arguments: Any) -> TensorMeta:
        """Emit a node that a write needs beside its functional operator."""
        packet = op_type.split(".")[1].strip("_")
        name = f"{self.node.name.rstrip('_')}_{packet}"
        types = [(like.shape, like.dtype)]
        emit = self.state.builder.emit
        (made,) = emit(op_type, arguments, like=self.node, results=types, name=name)
        return made


def _functional_name(op_type: str) -> str:
    """Return the name of the functional operator beside a library's that writes, or ""."""
    if lookup(op_type) is not None:
        return ""
    namespace, packet, name = op_type.split(".")
    functional = packet[:-1] if packet.endswith("_") else f"{packet}_functional"
    return f"{namespace}.{functional}.{name}"


def _of_library(op_type: str) -> dict[str, str]:
    """Return the schema of the functional operator that a library has beside one that writes."""
    wanted = _functional_name(op_type)
    try:
        found = resolve_operator(wanted) if wanted else None
    except TorchIRError:  # there is none, or programs may not call it
        return {}
    return {wanted: operator_schema(found).text} if isinstance(found, OpOverload) else {}


def _new_type(node: OpNode, schema: Schema, key: tuple[str, int], view: View) -> TensorMeta:
    """The type of a written tensor afterwards: an ``out=`` may take another shape."""
    argument = schema.argument(key[0])
    alias = argument.alias if argument is not None else ""
    for output in node.outputs:
        position = min(output.producer_output_idx, len(schema.returns) - 1)
        if alias and schema.returns[position].alias == alias and key[1] == 0:
            if output.shape != view.current.shape and (view.parent or view.storage.target):
                raise CannotFollowError(
                    f"it gives %{view.meta.name} another shape, and others show its memory"
                )
            return view.current.replace(shape=output.shape)
    return view.current


def _result_dtypes(
    ir: IR,
    node: OpNode,
    call: OpNode,
    variant: Variant,
    places: Mapping[tuple[str, int], int],
    types: Mapping[tuple[str, int], TensorMeta],
) -> dict[tuple[str, int], str]:
    """Return the dtype of the functional operator's result for each written tensor.

    An in-place operator converts its result to the type of what it writes, as a norm in training
    does with its statistics.
    """
    dtypes = {meta.dtype for meta in (*call.inputs, *types.values())}
    packet = node.op_type.split(".")[1]
    is_same = variant.op_type.split(".")[1] == packet.removesuffix("_")
    promotes = len(dtypes) > 1 and "pointwise" in tagged_traits(variant.op_type)
    if is_same and not (promotes or variant.dropped or packet.startswith(_COMPARISONS)):
        return {key: meta.dtype for key, meta in types.items()}
    from torch_ir.infer.fake import call_on

    outcome = call_on(ir, call)
    if not outcome.results:
        reason = outcome.refusal or "data decides what it gives"
        raise PassError(f"torch refuses {call.op_type} here: {reason}")
    made = [meta.dtype if meta is not None else "" for meta in outcome.results]
    return {key: made[place] for key, place in places.items()}


# -- functional variants --------------------------------------------------------------------------


def _arguments(
    variant: Variant, node: OpNode, schema: Schema, target: Schema
) -> dict[str, object]:
    """The arguments of the variant's call, with the defaults that only the original has."""
    defaults = {a.name: default_attribute(a) for a in schema.arguments}
    found: dict[str, object] = {}
    for argument in target.arguments:
        name = variant.arguments[argument.name]
        if name in node.slots or name in node.attrs:
            found[argument.name] = node.argument(name)
        elif argument.default is None:
            found[argument.name] = defaults[name]
    return found


def functional_call(
    node: OpNode, variant: Variant, schema: Schema, target: Schema, written: TensorMeta
) -> OpNode:
    """Return the functional operator's call, under the name and outputs of the original."""
    arguments = _arguments(variant, node, schema, target)
    factory = target.argument("dtype")
    keeps_type = schema.argument("dtype") is None or not variant.dropped  # written in place
    if factory is not None and keeps_type and arguments.get("dtype") is None:
        arguments["dtype"] = DType(written.dtype)
    inputs, attrs, operands = split_arguments(arguments)
    return node.replace(op_type=variant.op_type, inputs=inputs, attrs=attrs, operands=operands)


def fresh_results(schema: Schema) -> list[int]:
    """Return the positions of the results that are none of the written arguments."""
    return [position for position, result in enumerate(schema.returns) if not result.alias]
