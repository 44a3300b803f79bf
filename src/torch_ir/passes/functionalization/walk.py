"""Programs without in-place operators: what they write becomes new values.

One walk over the nodes. Each value that shares memory with others is a view of one storage; a
write makes a new value of the storage, and views are derived from it anew when they are used next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_ir.errors import PassError, counted
from torch_ir.infer.storage import decided_aliases
from torch_ir.ir import IR, DType, Mutation, OpNode, Signature, TensorLeaf, TensorMeta
from torch_ir.ir.builder import Builder, renamed, with_inputs, with_leaves
from torch_ir.ir.diagnostics import Diagnostic, Diagnostics, about
from torch_ir.ir.queries import result_names
from torch_ir.ir.tree import Container, Tree
from torch_ir.ops.schema import Schema
from torch_ir.ops.spec import tagged_traits
from torch_ir.ops.variants import IN_PLACE_VIEWS, Variant, functional_variant
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.dead_code import eliminate_dead_code
from torch_ir.passes.functionalization.copies import with_own_results
from torch_ir.passes.functionalization.scatter import RULES, ViewWrite
from torch_ir.passes.functionalization.storages import Storage, View
from torch_ir.passes.functionalization.variants import fresh_results, functional_call
from torch_ir.passes.inline import inline_scopes

_COMPARISONS = ("eq_", "ne_", "lt_", "le_", "gt_", "ge_", "logical_", "isfinite")


class CannotFollowError(Exception):
    """Why one write cannot be made functional."""


@dataclass(frozen=True)
class Functionalize(Pass):
    """Makes a program functional; see :func:`functionalize`."""

    name: ClassVar[str] = "functionalize"

    def call(self, ir: IR) -> PassResult:
        """Functionalize the program."""
        result = functionalize(ir)
        return PassResult(result, result is not ir)


def functionalize(ir: IR) -> IR:
    """Replace all writes of a program by functional operators; the dialect becomes ``aten``.

    What the program writes to graph inputs and buffers stands in :attr:`IR.mutations`, with the
    value that is written when it ends. Results have memory of their own: where one is a view of an
    input, a weight or another result, a copy is given away. Scopes that switch the recording of
    gradients are written out. Graph inputs and weights are taken to be contiguous where it matters
    whether an operator such as ``reshape`` copies.

    Raises:
        PassError: Nodes write in a way that cannot be followed; all are listed.

    Example:
        >>> from torch_ir import parse
        >>> print(functionalize(parse('''
        ... ir "Fill" {
        ...   input %x: f32[2, 3]
        ...   %row: f32[3] = aten.select.int(%x, dim=0, index=1)
        ...   %fill_: f32[3] = aten.fill_.Scalar(%row, value=0.0)
        ...   return %x
        ... }
        ... ''')))
        ir "Fill" {
          dialect "aten"
          mutate %x = %fill_select_scatter
          input %x: f32[2, 3]
          %row: f32[3] = aten.select.int(%x, dim=0, index=1)
          %fill_: f32[3] = aten.fill.Scalar(%row, value=0.0)
          %fill_select_scatter: f32[2, 3] = aten.select_scatter.default(%x, %fill_, dim=0, index=1)
          return %fill_select_scatter
        }
    """
    return ir if ir.dialect != "export" else with_own_results(without_writes(ir))


def without_writes(ir: IR) -> IR:
    """Functionalize as :func:`functionalize` does, but return views as views, as in eager.

    Raises:
        PassError: Nodes write in a way that cannot be followed; all are listed.
    """
    if ir.dialect != "export":
        return ir
    found = Diagnostics()
    result, _ = _functional(inline_scopes(ir), found, "")
    found.raise_if_any(PassError, f"{counted(len(found), 'node')} cannot be made functional")
    return eliminate_dead_code(result)


def _functional(ir: IR, found: Diagnostics, path: str) -> tuple[IR, tuple[str, ...]]:
    """The functional program, and which of its inputs it writes: a body returns their values.

    What makes that impossible is added to what was found.
    """
    functions: dict[str, IR] = {}
    written: dict[str, tuple[str, ...]] = {}
    for name, body in ir.functions.items():
        functions[name], written[name] = _functional(body, found, f"{path}{name}/")
    walk = _Walk(ir, functions, written)
    walk.run()
    for node, reason in walk.reasons:
        found.add(about(Diagnostic("not-functional", reason), node, path))
    return (walk.body() if path else walk.program()), walk.targets() if path else ()


class _Walk:
    """The walk over the nodes of one graph."""

    def __init__(
        self, ir: IR, functions: Mapping[str, IR], written: Mapping[str, tuple[str, ...]]
    ):
        self.ir = ir
        self.written_by = written
        self.builder = Builder(ir, dialect="aten")
        self.builder.functions.update(functions)
        self.nodes, self.names = self.builder.nodes, self.builder.names
        self.views: dict[str, View] = {}
        self.values: dict[str, TensorMeta] = {}
        self.reasons: list[tuple[OpNode, str]] = []
        self.keys = {name: key for name, (key, _) in ir.external_values().items()}
        self.inputs = {meta.name for meta in ir.graph_inputs}
        self.external: dict[str, View] = {}
        self.writes = any(written.values()) or any(ir.effects(n).writes for n in ir.nodes)
        self.aliases = decided_aliases(ir) if self.writes else ir.aliases

    def run(self) -> None:
        for node in self.ir.nodes:
            try:
                self._step(node)
            except (CannotFollowError, PassError) as reason:
                self.reasons.append((node, str(reason)))
                self.nodes.append(self._mapped(node))

    def _step(self, node: OpNode) -> None:
        written = self.ir.effects(node).writes
        if node.op_type.startswith("higher_order."):
            self._call(node)
        elif node.op_type in IN_PLACE_VIEWS:
            self._in_place_view(node)
        elif node.op_type == "aten.fill_diagonal_.default":
            self._fill_diagonal(node)
        elif written:
            self._write(node, written)
        elif self.writes and (shared := self.aliases.sources(node)):
            self._view(node, shared)
        else:
            self.nodes.append(self._mapped(node))

    # -- values -----------------------------------------------------------------------------------

    def value(self, name: str, meta: TensorMeta) -> TensorMeta:
        """The functional value that stands now for a value of the original program."""
        view = self.views.get(name)
        if view is None and name in self.keys and self.keys[name] in self.external:
            view = self._view_of(meta)
        if view is None:
            return self.values.get(name, meta)
        chain = view.up()
        stale = next((i for i, item in enumerate(chain) if item.is_current), len(chain) - 1)
        for item in reversed(chain[:stale]):
            self._derive(item)
        return view.current

    def _derive(self, view: View) -> None:
        """Derive a view anew, and all that its node makes, from the parent's current value."""
        if view.parent is None or view.made is None:  # the whole is always current
            return
        node = with_inputs(view.made, {view.source: view.parent.current})
        op_type, attrs = node.op_type, node.attrs
        if op_type == "aten.view.default":  # the new whole may have other strides
            op_type, attrs = "aten.reshape.default", {"shape": attrs["size"]}
            node = node.replace(op_type=op_type, attrs=attrs, operands={"self": 0})
        copy = renamed(node, self.names.fresh(node.name))
        self.nodes.append(copy)
        made = {meta.producer_output_idx: meta for meta in copy.outputs}
        for position, sibling in view.siblings.items():
            if position in made:
                sibling.set(made[position])

    def _mapped(self, node: OpNode) -> OpNode:
        """The node with functional inputs."""
        return with_inputs(node, {meta.name: self.value(meta.name, meta) for meta in node.inputs})

    def _view_of(self, meta: TensorMeta) -> View:
        """The view that a value is; the whole of its own memory if it is no other's part."""
        if meta.name in self.views:
            return self.views[meta.name]
        key = self.keys.get(meta.name)
        if key is not None and key in self.external:  # a tied weight: one memory, two names
            view = self.external[key]
        else:
            target = meta.name if key is not None or meta.name in self.inputs else ""
            view = View(meta, Storage(target), self.values.get(meta.name, meta))
            if key is not None:
                self.external[key] = view
        self.views[meta.name] = view
        return view

    # -- views ------------------------------------------------------------------------------------

    def _view(self, node: OpNode, shared: Sequence[TensorMeta]) -> None:
        made = self._mapped(node)
        self.nodes.append(made)
        if len({meta.name for meta in shared}) > 1:
            self._block(node, [*shared, *node.outputs])
            return
        parent = self._view_of(shared[0])
        source, siblings = self.value(shared[0].name, shared[0]).name, dict[int, View]()
        for output in node.outputs:
            index = output.producer_output_idx
            view = View(
                output,
                parent.storage,
                output,
                parent.version,
                parent,
                made,
                source,
                index,
                siblings,
            )
            view.version = parent.storage.version
            siblings[index] = self.views[output.name] = view

    def _block(self, node: OpNode, metas: Sequence[TensorMeta]) -> None:
        """Note that values may share memory in a way that cannot be followed."""
        for meta in metas:
            storage = self._view_of(meta).storage
            storage.blocked = storage.blocked or (
                f"its memory may be that of a result of node {node.name!r} ({node.op_type})"
            )

    def _in_place_view(self, node: OpNode) -> None:
        view = self._view_of(node.inputs[0])
        if view.parent is None and view.storage.target and node.op_type != "aten.detach_.default":
            raise CannotFollowError("it gives a tensor of the caller another shape")
        self._view(node.replace(op_type=IN_PLACE_VIEWS[node.op_type]), node.inputs[:1])

    # -- writes -----------------------------------------------------------------------------------

    def _write(self, node: OpNode, written: tuple[str, ...]) -> None:
        schema = self.ir.schema_of(node.op_type)
        variant = (
            None if schema is None else functional_variant(schema, written, self.ir.operators)
        )
        target = None if variant is None else self.ir.schema_of(variant.op_type)
        if schema is None or variant is None or target is None:
            raise CannotFollowError("there is no operator that computes what it writes")
        views = self._written_views(node, written)
        made, new = self._variant_call(node, variant, schema, target, views)
        self._assign_results(node, schema, made, new, views)

    def _written_views(
        self, node: OpNode, written: tuple[str, ...]
    ) -> dict[tuple[str, int], View]:
        """The view behind each written tensor: the argument's name, and the position in a list."""
        views: dict[tuple[str, int], View] = {}
        for name in written:
            slots = node.slots[name]
            for position, slot in enumerate(slots if isinstance(slots, tuple) else (slots,)):
                if slot is not None:
                    if not 0 <= slot < len(node.inputs):
                        raise CannotFollowError(f"argument {name!r} takes no input of the node")
                    view = views[name, position] = self._view_of(node.inputs[slot])
                    if view.storage.blocked:
                        raise CannotFollowError(view.storage.blocked)
        return views

    def _variant_call(
        self,
        node: OpNode,
        variant: Variant,
        schema: Schema,
        target: Schema,
        views: Mapping[tuple[str, int], View],
    ) -> tuple[dict[int, TensorMeta], dict[tuple[str, int], TensorMeta]]:
        """The call of the functional operator, added to the nodes.

        Returns its results by position, and what each written tensor holds afterwards.
        """
        call = functional_call(
            self._mapped(node), variant, schema, target, next(iter(views.values())).meta
        )
        types = {key: self._new_type(node, schema, key, view) for key, view in views.items()}
        places = {key: variant.results[key[0]] + key[1] for key in views}
        fresh = dict(zip(fresh_results(schema), range(len(target.returns)), strict=False))
        outputs: dict[int, TensorMeta] = {
            fresh[meta.producer_output_idx]: meta
            for meta in node.outputs
            if meta.producer_output_idx in fresh
        }
        outputs |= {places[key]: meta for key, meta in types.items()}
        dtypes = self._result_dtypes(node, call, variant, target, places, types)
        cast_needed = [key for key in views if dtypes[key] != types[key].dtype]
        is_single = len(target.returns) == 1 and not target.returns[0].type.endswith("]")
        name = self.names.fresh(f"{node.name}_wide") if is_single and cast_needed else node.name
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
        self.nodes.append(call.replace(name=name, outputs=tuple(made.values())))
        results = {key: made[place] for key, place in places.items()}
        for key in cast_needed:
            wanted = node.name if is_single else self.names.fresh(f"{node.name}_cast")
            results[key] = self._cast(node, wanted, results[key], types[key].dtype)
        return made, results

    def _new_type(
        self, node: OpNode, schema: Schema, key: tuple[str, int], view: View
    ) -> TensorMeta:
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
        self,
        node: OpNode,
        call: OpNode,
        variant: Variant,
        target: Schema,
        places: Mapping[tuple[str, int], int],
        types: Mapping[tuple[str, int], TensorMeta],
    ) -> dict[tuple[str, int], str]:
        """Return the dtype of the functional operator's result for each written tensor.

        An in-place operator converts its result to the type of what it writes.
        """
        dtypes = {meta.dtype for meta in (*call.inputs, *types.values())}
        packet = node.op_type.split(".")[1]
        promotes = "pointwise" in tagged_traits(variant.op_type) and len(dtypes) > 1
        if not (promotes or variant.dropped or packet.startswith(_COMPARISONS)):
            return {key: meta.dtype for key, meta in types.items()}
        from torch_ir.infer.fake import call_on

        outcome = call_on(self.ir, call)
        if not outcome.results:
            reason = outcome.refusal or "data decides what it gives"
            raise PassError(f"torch refuses {call.op_type} here: {reason}")
        made = [meta.dtype if meta is not None else "" for meta in outcome.results]
        return {key: made[place] for key, place in places.items()}

    def _cast(self, node: OpNode, name: str, value: TensorMeta, dtype: str) -> TensorMeta:
        made = value.replace(name=name, dtype=dtype, producer_node=name, producer_output_idx=0)
        attrs, location = {"dtype": DType(dtype)}, node.location
        self.nodes.append(
            OpNode(name, "aten._to_copy.default", [value], [made], attrs, {"self": 0}, location)
        )
        return made

    def _assign_results(
        self,
        node: OpNode,
        schema: Schema,
        made: Mapping[int, TensorMeta],
        new: Mapping[tuple[str, int], TensorMeta],
        views: Mapping[tuple[str, int], View],
    ) -> None:
        for key, view in views.items():
            self._assign(node, view, new[key])
        by_alias = {
            argument.alias: views[argument.name, 0]
            for argument in schema.arguments
            if argument.alias and (argument.name, 0) in views
        }
        fresh = dict(
            zip(fresh_results(schema), range(len(made) + len(schema.returns)), strict=False)
        )
        for output in node.outputs:
            position = min(output.producer_output_idx, len(schema.returns) - 1)
            alias = schema.returns[position].alias
            if alias in by_alias:
                self.views[output.name] = by_alias[alias]
            else:
                self.values[output.name] = made[fresh[output.producer_output_idx]]

    def _assign(self, node: OpNode, view: View, value: TensorMeta) -> None:
        """Write a value through a view: all that it is a part of has a new value."""
        emit = _Emitter(self, node)
        new = [(view, value)]
        for item in view.up()[:-1]:
            if item.parent is None or item.made is None:  # only the whole has none
                break
            base = self.value(item.parent.meta.name, item.parent.meta)
            rule = RULES.get(item.made.op_type)
            whole = None
            if rule is not None:
                whole = rule(ViewWrite(item.made, item.meta, base, value, emit))
            if whole is None:
                raise CannotFollowError(
                    f"it writes through node {item.made.name!r} ({item.made.op_type})"
                )
            value = whole
            new.append((item.parent, value))
        view.storage.version += 1
        for item, current in new:
            item.set(current)

    def _fill_diagonal(self, node: OpNode) -> None:
        view = self._view_of(node.inputs[0])
        shape = view.meta.shape
        rows, columns = shape if len(shape) == 2 else (1, 0)
        square = rows == columns
        if not square and not (isinstance(rows, int) and isinstance(columns, int)):
            raise CannotFollowError("the length of the diagonal is not known")
        if len(shape) != 2 or (rows > columns and node.attrs.get("wrap") is True):  # type: ignore[operator]  # ints, or equal
            raise CannotFollowError("only diagonals of matrices are followed")
        emit, whole = _Emitter(self, node), self.value(view.meta.name, view.meta)
        length = rows if square else min(rows, columns)  # type: ignore[type-var]  # ints, as above
        line = whole.replace(shape=(length,))
        part = emit("aten.diagonal.default", {"self": whole}, {}, line)
        value = node.attrs["fill_value"]
        filled = emit("aten.fill.Scalar", {"self": part}, {"value": value}, line)
        operands_ = {"self": whole, "src": filled}
        new = emit("aten.diagonal_scatter.default", operands_, {}, whole)
        self._assign(node, view, new)
        for output in node.outputs:
            self.views[output.name] = view

    # -- functions --------------------------------------------------------------------------------

    def _call(self, node: OpNode) -> None:
        """A call of functions, which return what they write in addition."""
        names = node.functions
        written = [(name, value) for name in names for value in self.written_by[name]]
        is_scope = "wrapped_func" in node.attrs
        if self.writes and is_scope and _may_share(self.ir.functions[names[0]]):
            self._block(node, [*node.inputs, *node.outputs])
        call = self._mapped(node)
        if not written:
            self.nodes.append(call)
            return
        if not is_scope:
            raise CannotFollowError(f"the function {written[0][0]!r} writes what it takes")
        body = self.ir.functions[names[0]]
        given = dict(zip([meta.name for meta in body.graph_inputs], node.inputs, strict=True))
        views = [self._view_of(given[value]) for _, value in written]
        storages = [self._view_of(meta).storage for meta in node.inputs]
        for view in views:
            if view.storage.blocked or storages.count(view.storage) > 1:
                raise CannotFollowError(
                    f"the function {names[0]!r} writes %{view.meta.name}, whose memory it also "
                    "takes or returns under another name"
                )
        first = len(result_names(body))
        made = [
            view.current.replace(
                name=f"{node.name}.{first + position}",
                producer_node=node.name,
                producer_output_idx=first + position,
            )
            for position, view in enumerate(views)
        ]
        self.nodes.append(call.replace(outputs=(*call.outputs, *made)))
        for view, value in zip(views, made, strict=True):
            self._assign(node, view, value)

    # -- the result -------------------------------------------------------------------------------

    def program(self) -> IR:
        """The functional program."""
        outputs = {meta.name: self.value(meta.name, meta) for meta in self.ir.graph_outputs}
        mutations: dict[str, Mutation] = {}
        for mutation in self.ir.mutations:
            meta = mutation.value
            if meta.name != mutation.target:
                value = self.value(meta.name, meta)
                mutations[mutation.target] = Mutation(mutation.target, value)
        for view in self._written():
            names = [m.target for m in self.ir.mutations if self.views.get(m.target) is view]
            target = (names or [view.storage.target])[0]
            mutations.setdefault(target, Mutation(target, view.current))
        ordered = [mutations[name] for name in sorted(mutations, key=self._order)]
        return self._with_outputs(outputs, (), ordered)

    def body(self) -> IR:
        """The functional body of a function: it returns what it writes, after its results."""
        outputs = {meta.name: self.value(meta.name, meta) for meta in self.ir.graph_outputs}
        written = {view.storage.target: view.current for view in self._written()}
        return self._with_outputs(outputs, [written[name] for name in self.targets()])

    def targets(self) -> tuple[str, ...]:
        """The inputs that are written, in their order."""
        written = {view.storage.target for view in self._written()}
        return tuple([meta.name for meta in self.ir.graph_inputs if meta.name in written])

    def _written(self) -> list[View]:
        """The whole of each graph input and weight that was written."""
        wholes = {id(view.up()[-1]): view.up()[-1] for view in self.views.values()}
        return [view for view in wholes.values() if view.storage.target and view.storage.version]

    def _order(self, target: str) -> tuple[int, str]:
        known = [mutation.target for mutation in self.ir.mutations]
        return (known.index(target) if target in known else len(known), target)

    def _with_outputs(
        self,
        outputs: Mapping[str, TensorMeta],
        more: Sequence[TensorMeta],
        mutations: Sequence[Mutation] | None = None,
    ) -> IR:
        signature = self.ir.signature
        if signature is not None:
            tree = with_leaves(signature.outputs, outputs)
            if more:
                parts = _parts(tree)
                tree = Container("tuple", (*parts, *(TensorLeaf(meta.name) for meta in more)))
            signature = Signature(signature.inputs, tree)
        own = [outputs[name] for name in self.ir.output_names]
        self.builder.returns([*own, *more], signature, mutations)
        return self.builder.finish()


@dataclass(frozen=True, slots=True)
class _Emitter:
    """Adds the nodes that a write needs beside its functional operator."""

    walk: _Walk
    node: OpNode

    def __call__(
        self,
        op_type: str,
        operands: Mapping[str, TensorMeta],
        attrs: Mapping[str, Any],
        like: TensorMeta,
    ) -> TensorMeta:
        packet = op_type.split(".")[1].strip("_")
        name = f"{self.node.name.rstrip('_')}_{packet}"
        types = [(like.shape, like.dtype)]
        emit = self.walk.builder.emit
        (made,) = emit(op_type, {**operands, **attrs}, like=self.node, results=types, name=name)
        return made


def _may_share(body: IR) -> bool:
    """Return whether results of a function may share storage with its inputs or each other."""
    return not body.aliases.are_apart((*body.input_names, *body.output_names))


def _parts(tree: Tree) -> tuple[Tree, ...]:
    if isinstance(tree, Container) and tree.type in ("tuple", "list"):
        return tree.children
    return (tree,)
