"""The functional values that stand for those of a program that writes."""

from __future__ import annotations

from collections.abc import Sequence

from torch_ir.infer.fake import value_types
from torch_ir.infer.types import TensorType
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.builder import Builder, renamed, with_inputs
from torch_ir.ir.queries import external_keys
from torch_ir.passes.functionalization.storages import Storage, View
from torch_ir.passes.functionalization.strided import AS_STRIDED


class CannotFollowError(Exception):
    """Why one write cannot be made functional."""


class AliasState:
    """The views and values of one graph, as far as a walk over its nodes has come.

    Each value that shares storage with others is a view; where a write made it stale, it is
    derived anew from its parent when it is used next.
    """

    def __init__(self, ir: IR, builder: Builder):
        self.ir = ir
        self.builder = builder
        self.nodes = builder.nodes
        self.views: dict[str, View] = {}
        self.values: dict[str, TensorMeta] = {}
        self._keys = external_keys(ir)
        self._inputs = set(ir.input_names)
        self._external: dict[str, View] = {}

    def type_of(self, meta: TensorMeta) -> TensorType | None:
        """Return how a value of the original program lies in memory; None if torch cannot tell."""
        return value_types(self.ir).get(meta.name)

    def value(self, name: str, meta: TensorMeta) -> TensorMeta:
        """Return the functional value that stands now for a value of the original program."""
        view = self.views.get(name)
        if view is None and name in self._keys and self._keys[name] in self._external:
            view = self.view_of(meta)
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
        if node.op_type == AS_STRIDED:
            node = self._in_row_major_order(node)
        op_type, attrs = node.op_type, node.attrs
        if op_type == "aten.view.default":  # the new whole may have other strides
            op_type, attrs = "aten.reshape.default", {"shape": attrs["size"]}
            node = node.replace(op_type=op_type, attrs=attrs, operands={"self": 0})
        copy = renamed(node, self.builder.names.fresh(node.name))
        self.nodes.append(copy)
        made = {meta.producer_output_idx: meta for meta in copy.outputs}
        for position, sibling in view.siblings.items():
            if position in made:
                sibling.set(made[position])

    def _in_row_major_order(self, node: OpNode) -> OpNode:
        """Let a node read a value that lies in memory as what it stands for."""
        operands, (value,) = {"self": node.inputs[0]}, node.inputs
        types, name = [(value.shape, value.dtype)], f"{node.name}_contiguous"
        emit = self.builder.emit
        (made,) = emit("aten.contiguous.default", operands, like=node, results=types, name=name)
        return with_inputs(node, {value.name: made})

    def mapped(self, node: OpNode) -> OpNode:
        """Return the node with functional inputs."""
        return with_inputs(node, {meta.name: self.value(meta.name, meta) for meta in node.inputs})

    def view_of(self, meta: TensorMeta) -> View:
        """Return the view that a value is; the whole of its memory if it is no other's part."""
        if meta.name in self.views:
            return self.views[meta.name]
        key = self._keys.get(meta.name)
        if key is not None and key in self._external:  # a tied weight: one memory, two names
            view = self._external[key]
        else:
            target = meta.name if key is not None or meta.name in self._inputs else ""
            view = View(meta, Storage(target), self.values.get(meta.name, meta))
            if key is not None:
                self._external[key] = view
        self.views[meta.name] = view
        return view

    def view(self, node: OpNode, shared: Sequence[TensorMeta]) -> None:
        """Keep a node whose results are views of the values that it shares storage with."""
        made = self.mapped(node)
        is_given = made.inputs[0].name in self._keys or made.inputs[0].name in self._inputs
        is_computed = node.op_type == AS_STRIDED and not is_given
        self.nodes.append(self._in_row_major_order(made) if is_computed else made)
        if len({meta.name for meta in shared}) > 1:
            self.block(node, [*shared, *node.outputs])
            return
        parent = self.view_of(shared[0])
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

    def block(self, node: OpNode, metas: Sequence[TensorMeta]) -> None:
        """Note that values may share memory in a way that cannot be followed."""
        for meta in metas:
            storage = self.view_of(meta).storage
            storage.blocked = storage.blocked or (
                f"its memory may be that of a result of node {node.name!r} ({node.op_type})"
            )

    def targets(self) -> tuple[str, ...]:
        """Return the inputs that are written, in their order."""
        written = {view.storage.target for view in self.written()}
        return tuple([name for name in self.ir.input_names if name in written])

    def written(self) -> list[View]:
        """Return the whole of each graph input and weight that was written."""
        wholes = {id(view.up()[-1]): view.up()[-1] for view in self.views.values()}
        return [view for view in wholes.values() if view.storage.target and view.storage.version]
