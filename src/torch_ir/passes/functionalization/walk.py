"""Programs without in-place operators: what they write becomes new values.

One walk over the nodes. Each value that shares memory with others is a view of one storage; a
write makes a new value of the storage, and views are derived from it anew when they are used next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_ir.arguments import public
from torch_ir.errors import PassError, counted
from torch_ir.infer.resolve import require_allowed
from torch_ir.infer.storage import decided_aliases
from torch_ir.ir import IR, Mutation, OpNode, Signature, TensorLeaf, TensorMeta
from torch_ir.ir.builder import Builder, with_leaves
from torch_ir.ir.diagnostics import Diagnostic, Diagnostics, about
from torch_ir.ir.functions import inline_scopes
from torch_ir.ir.queries import result_names
from torch_ir.ir.tree import Container, Tree
from torch_ir.ops.aliases import ITSELF
from torch_ir.ops.bodies import operands_of_one_call
from torch_ir.ops.rules import allow_collectives
from torch_ir.ops.variants import IN_PLACE_VIEWS
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.dead_code import eliminate_dead_code
from torch_ir.passes.edge.memory_formats import without_memory_formats
from torch_ir.passes.functionalization.alias_state import AliasState, CannotFollowError
from torch_ir.passes.functionalization.as_views import AS_VIEWS
from torch_ir.passes.functionalization.copies import with_own_results
from torch_ir.passes.functionalization.shown_writes import with_shown_writes
from torch_ir.passes.functionalization.strided import from_wholes
from torch_ir.passes.functionalization.writes import WritingNode
from torch_ir.passes.functionalization.written_out import WRITTEN_OUT
from torch_ir.passes.requirements import is_functional


@dataclass(frozen=True)
class Functionalize(Pass):
    """Makes a program functional; see :func:`functionalize`."""

    name: ClassVar[str] = "functionalize"

    def call(self, ir: IR) -> PassResult:
        """Functionalize the program."""
        return PassResult.of(ir, functionalize(ir))


@allow_collectives()
@public
def functionalize(ir: IR) -> IR:
    """Replace all writes of a program by functional operators; the dialect becomes ``aten``.

    What the program writes to graph inputs and buffers stands in :attr:`IR.mutations`, with the
    value that is written when it ends. Results have memory of their own: where one is a view of an
    input, a weight or another result, a copy is given away. Scopes that switch the recording of
    gradients are written out. What asks for a memory format is permuted, so that all are in
    row-major order. Graph inputs and weights are taken to be contiguous where it matters
    whether an operator such as ``reshape`` copies.

    Raises:
        CompileError: The program calls what a program may not call
            (:func:`torch_ir.operator_rule`).
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
    require_allowed(ir)
    if ir.dialect != "export":
        return ir
    return with_own_results(without_memory_formats(without_writes(ir)))


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


def functional_form(ir: IR) -> IR:
    """Return a program itself if no node of it writes; else as :func:`without_writes` does.

    Raises:
        PassError: Nodes write in a way that cannot be followed; all are listed.
    """
    return ir if is_functional(ir) else without_writes(ir)


def _functional(ir: IR, found: Diagnostics, path: str) -> tuple[IR, tuple[str, ...]]:
    """The functional program, and which of its inputs it writes: a body returns their values.

    What makes that impossible is added to what was found.
    """
    ir = with_shown_writes(ir)
    functions: dict[str, IR] = {}
    written: dict[str, tuple[str, ...]] = {}
    for name, body in ir.functions.items():
        functions[name], written[name] = _functional(body, found, f"{path}{name}/")
    is_functional = not (any(written.values()) or any(ir.effects(n).writes for n in ir.nodes))
    if is_functional and not ir.mutations:
        return ir.replace(dialect="aten", functions=functions), ()
    walk = _Functionalization(ir, functions, written)
    walk.run()
    for node, reason in walk.reasons:
        found.add(about(Diagnostic("not-functional", reason), node, path))
    return (walk.body() if path else walk.program()), walk.state.targets() if path else ()


class _Functionalization:
    """The walk over the nodes of one graph."""

    def __init__(
        self, ir: IR, functions: Mapping[str, IR], written: Mapping[str, tuple[str, ...]]
    ):
        self.writes = any(written.values()) or any(ir.effects(n).writes for n in ir.nodes)
        self._unread = frozenset[str]()
        if self.writes:
            ir, self._unread = from_wholes(ir)
        self.ir = ir
        self.written_by = written
        self.builder = Builder(ir, dialect="aten")
        self.builder.functions.update(functions)
        self.state = AliasState(ir, self.builder)
        self.reasons: list[tuple[OpNode, str]] = []
        self.aliases = decided_aliases(ir) if self.writes else ir.aliases

    def run(self) -> None:
        for node in self.ir.nodes:
            try:
                self._step(node)
            except (CannotFollowError, PassError) as reason:
                self.reasons.append((node, str(reason)))
                self.builder.nodes.append(self.state.mapped(node))

    def _step(self, node: OpNode) -> None:
        written = self.ir.effects(node).writes
        if node.name in self._unread:
            raise CannotFollowError("it reads memory that is not known to be in row-major order")
        if node.op_type.startswith("higher_order."):
            self._call(node)
        elif node.op_type in IN_PLACE_VIEWS:
            self._in_place_view(node)
        elif written and node.op_type in WRITTEN_OUT:
            WRITTEN_OUT[node.op_type](WritingNode(self.state, node))
        elif written:
            WritingNode(self.state, node).write(written)
        elif self.writes and node.op_type in AS_VIEWS:
            self._as_views(node)
        elif self.writes and (shared := self.aliases.sources(node)):
            self.state.view(node, shared)
        else:
            self.builder.nodes.append(self.state.mapped(node))

    def _as_views(self, node: OpNode) -> None:
        for made, base in AS_VIEWS[node.op_type](node, self.builder.names):
            if base is None:
                self.builder.nodes.append(self.state.mapped(made))
            else:
                self.state.view(made, [base])

    def _in_place_view(self, node: OpNode) -> None:
        view = self.state.view_of(node.inputs[0])
        while view.parent is not None and view.made and view.made.op_type in ITSELF:
            view = view.parent
        if node.op_type != "aten.detach_.default":
            if view.storage.blocked:
                raise CannotFollowError(view.storage.blocked)
            if view.parent is None and view.storage.target:
                raise CannotFollowError("it gives a tensor of the caller another shape")
        self.state.view(node.replace(op_type=IN_PLACE_VIEWS[node.op_type]), node.inputs[:1])

    # -- functions --------------------------------------------------------------------------------

    def _call(self, node: OpNode) -> None:
        """A call of functions, which return what they write in addition."""
        names = node.functions
        written = [(name, value) for name in names for value in self.written_by[name]]
        argument = operands_of_one_call(node.op_type)
        if self.writes and argument and _may_share(self.ir.functions[names[0]]):
            self.state.block(node, [*node.inputs, *node.outputs])
        call = self.state.mapped(node)
        if not written:
            self.builder.nodes.append(call)
            return
        if argument is None:
            raise CannotFollowError(f"the function {written[0][0]!r} writes what it takes")
        body = self.ir.functions[names[0]]
        taken = node.tensors(argument)
        given = dict(zip(body.input_names, taken, strict=True))
        views = [self.state.view_of(given[value]) for _, value in written]
        storages = [self.state.view_of(meta).storage for meta in node.inputs]
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
        self.builder.nodes.append(call.replace(outputs=(*call.outputs, *made)))
        for view, value in zip(views, made, strict=True):
            WritingNode(self.state, node).assign(view, value)

    # -- the result -------------------------------------------------------------------------------

    def program(self) -> IR:
        """The functional program."""
        outputs = {meta.name: self.state.value(meta.name, meta) for meta in self.ir.graph_outputs}
        mutations: dict[str, Mutation] = {}
        for mutation in self.ir.mutations:
            meta = mutation.value
            if meta.name != mutation.target:
                value = self.state.value(meta.name, meta)
                mutations[mutation.target] = Mutation(mutation.target, value)
        for view in self.state.written():
            names = [m.target for m in self.ir.mutations if self.state.views.get(m.target) is view]
            target = (names or [view.storage.target])[0]
            mutations.setdefault(target, Mutation(target, view.current))
        ordered = [mutations[name] for name in sorted(mutations, key=self._order)]
        return self._with_outputs(outputs, (), ordered)

    def body(self) -> IR:
        """The functional body of a function: it returns what it writes, after its results."""
        outputs = {meta.name: self.state.value(meta.name, meta) for meta in self.ir.graph_outputs}
        written = {view.storage.target: view.current for view in self.state.written()}
        return self._with_outputs(outputs, [written[name] for name in self.state.targets()])

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


def _may_share(body: IR) -> bool:
    """Return whether results of a function may share storage with its inputs or each other."""
    return not body.aliases.are_apart((*body.input_names, *body.output_names))


def _parts(tree: Tree) -> tuple[Tree, ...]:
    if isinstance(tree, Container) and tree.type in ("tuple", "list"):
        return tree.children
    return (tree,)
