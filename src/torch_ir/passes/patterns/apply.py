"""The replacement of a pattern wherever it occurs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch_ir.errors import PassError
from torch_ir.infer.bindings import Symbols
from torch_ir.infer.fake import call_on
from torch_ir.infer.hints import samplings
from torch_ir.infer.resolve import has_expression
from torch_ir.infer.storage import stride_readers
from torch_ir.infer.types import TensorType, contiguous
from torch_ir.ir import IR, Location, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.builder import Builder
from torch_ir.ir.queries import positions
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.patterns.elements import Match
from torch_ir.passes.patterns.form import Form
from torch_ir.passes.patterns.matcher import Matcher
from torch_ir.passes.patterns.numbers import is_number, numbers_apart, numbers_together
from torch_ir.passes.patterns.rewrite import Rewrite
from torch_ir.passes.patterns.trace import level_of


@dataclass(frozen=True)
class RewritePatterns(Pass):
    """Rewrites where patterns occur; see :func:`rewrite_patterns`.

    A subclass that sets ``name`` and ``rewrites`` is a pass of its own.
    """

    name: ClassVar[str] = "rewrite-patterns"
    rewrites: tuple[Rewrite, ...] = ()

    def __post_init__(self) -> None:
        if not self.rewrites:
            object.__setattr__(self, "rewrites", tuple(type(self).rewrites))

    def explain(self, ir: IR) -> Iterator[str]:
        """Yield the near misses, one a line."""
        for miss in near_misses(ir, self.rewrites):
            place = f" (at {miss.location})" if miss.location else ""
            node = f"%{miss.node}" if miss.node else f"rewrite {miss.rewrite}"
            yield f"{node}: {miss.reason}{place}"

    def call(self, ir: IR) -> PassResult:
        """Apply the rewrites."""
        return PassResult.of(ir, rewrite_patterns(ir, self.rewrites))

    def __str__(self) -> str:
        return self.name


def rewrite_patterns(ir: IR, rewrites: Sequence[Rewrite]) -> IR:
    """Replace each occurrence of a pattern; in functions too.

    The order of the operands of a sum, product or comparison does not matter. A place is left as
    it is where something else uses what is inside, where something writes to its memory, and
    where the replacement would have to stand before one of its inputs. New nodes have the
    location of the node whose result they make. The same object if there is nothing to do.

    A pattern that cannot be stated in the program's dialect is left out; :func:`near_misses` says
    why.

    Raises:
        PassError: A replacement gives another type than what it replaces, or no pattern can be
            stated in the dialect.

    Example:
        >>> import torch
        >>> from torch_ir import parse
        >>> twice = Rewrite(lambda x: x + x, lambda x: x * 2, (torch.ones(2),))
        >>> print(rewrite_patterns(parse('''
        ... ir "Twice" {
        ...   input %x: f32[2, 3]
        ...   %y: f32[2, 3] = aten.add.Tensor(%x, %x)
        ...   return %y
        ... }
        ... '''), [twice]))
        ir "Twice" {
          input %x: f32[2, 3]
          %y: f32[2, 3] = aten.mul.Tensor(%x, other=2)
          return %y
        }
    """
    refused: list[PassError] = []
    is_stated = False
    for rewrite in rewrites:
        forms, why = _stated(rewrite, ir)
        refused += why
        is_stated = is_stated or bool(forms)
        for form in forms:
            ir = _Rewriter(ir, form, ir.dialect).run()
    if refused and not is_stated:
        raise refused[0]
    return ir


def _stated(rewrite: Rewrite, ir: IR) -> tuple[list[Form], list[PassError]]:
    """The forms of a rewrite that can be stated in a program's dialect, and why others cannot."""
    forms: list[Form] = []
    refused: list[PassError] = []
    try:
        for form in rewrite.forms(ir):
            try:
                form.template(ir.dialect)
                forms.append(form)
            except PassError as error:
                refused.append(error)
    except PassError as error:  # not even the lengths of its lists can be told
        refused.append(error)
    return forms, refused


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A node where the last operator of a pattern stands, but not all of the pattern.

    Attributes:
        node: The name of the node; empty for a pattern that the dialect has no form of.
        reason: Why the pattern does not occur there, or is not replaced.
        rewrite: The position of the rewrite among those that were given.
        location: Where the node came from.
    """

    node: str
    reason: str
    rewrite: int
    location: Location | None = None


def near_misses(ir: IR, rewrites: Sequence[Rewrite]) -> tuple[NearMiss, ...]:
    """Return where patterns nearly occur in a program and its functions, and what is missing.

    Example:
        >>> import torch
        >>> from torch_ir import parse
        >>> doubled = Rewrite(
        ...     lambda x: (x * 2.0).relu(), lambda x: (x + x).relu(), (torch.ones(2),)
        ... )
        >>> (miss,) = near_misses(parse('''
        ... ir "Tripled" {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.mul.Tensor(%x, 3.0)
        ...   %z: f32[2] = aten.relu.default(%y)
        ...   return %z
        ... }
        ... '''), [doubled])
        >>> miss.node, miss.reason
        ('z', 'other of %y is 3.0, the pattern has 2.0')
    """
    found: list[NearMiss] = []
    for position, rewrite in enumerate(rewrites):
        misses = _Misses()
        forms, refused = _stated(rewrite, ir)
        found += [NearMiss("", error.message, position) for error in refused]
        for form in forms:
            _Rewriter(ir, form, ir.dialect, misses).run()
        found += [
            NearMiss(node.name, reason, position, node.location)
            for key, (_, node, reason) in misses.found.items()
            if key not in misses.rewritten
        ]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Misses:
    """Why places do not fit any form of a rewrite: the reason of that which fits most."""

    found: dict[int, tuple[float, OpNode, str]] = field(
        default_factory=dict[int, tuple[float, OpNode, str]]
    )
    rewritten: set[int] = field(default_factory=set[int])

    def __call__(self, node: OpNode, reason: str, depth: float) -> None:
        if depth > self.found.get(id(node.outputs), (0,))[0]:
            self.found[id(node.outputs)] = depth, node, reason


def _layout_reader(ir: IR, names: list[str]) -> str:
    """Return the name of a node that some values reach and whose result their strides decide."""
    readers = {node.name for node in stride_readers(ir)}
    if not readers:
        return ""
    seen: set[str] = set()
    while names:
        for user in ir.users.get(names.pop(), ()):
            if user.name in readers:
                return user.name
            if user.name not in seen:
                seen.add(user.name)
                names += [meta.name for meta in user.outputs]
    return ""


class _Rewriter:
    def __init__(
        self,
        ir: IR,
        rewrite: Form,
        dialect: str,
        missed: _Misses | None = None,
        *,
        is_body: bool = False,
    ):
        template = rewrite.template(dialect)
        self.wanted, self.pattern = template.ir, template.pattern()
        self.before, self.is_body = ir, is_body
        has_numbers = level_of(dialect) == "edge" and any(map(is_number, self.wanted.nodes))
        self.ir, self.origins = numbers_apart(ir) if has_numbers else (ir, None)
        ir = self.ir
        self.builder = Builder(ir)
        self.builder.map_functions(
            lambda body: _Rewriter(body, rewrite, dialect, missed, is_body=True).run()
        )
        self.rewrite = rewrite
        self.dialect = dialect
        self.missed = missed
        self.memory = StorageGroups(self.ir)
        self.positions = positions(ir)
        self.values: dict[str, TensorMeta] = {}
        self.replaced: list[TensorMeta] = []
        self.added: dict[int, list[OpNode]] = {}
        self.removed: set[str] = set()

    def run(self) -> IR:
        ir = self.ir
        matcher = Matcher(ir, self.memory, self.origins, explains=self.missed is not None)
        for match in matcher.occurrences(self.pattern, self.missed):
            reason = self._rewritten(match)
            if self.missed is not None:
                last = ir.producers[match.values[self.wanted.graph_outputs[0].name].name]
                if reason:
                    self.missed(last, reason, len(match.inside))
                else:
                    self.missed.rewritten.add(id(last.outputs))
        for old in self.replaced:
            self.builder.replace(old, self._final(old))
        for position, node in enumerate(ir.nodes):
            kept = () if node.name in self.removed else (node,)
            for new in (*self.added.get(position, ()), *kept):
                self.builder.keep(new)
        made = self.builder.finish()
        if made is ir:
            return self.before
        if self.origins is None:
            return made
        return numbers_together(self.before, self.origins, made, is_body=self.is_body)

    def _rewritten(self, match: Match) -> str:
        """Put the replacement in the place of a match; return why not, if it stays."""
        if self.rewrite.where is not None and not self.rewrite.where(match):
            return "where= refuses it"
        loose = [
            meta for i in self.rewrite.fixed if not self._is_fixed(meta := self._input(match, i))
        ]
        if loose:
            return f"%{loose[0].name} is no weight or constant, or is written"
        position = self._position(match)
        if position is None:
            return "something uses a result before all of the inputs are made"
        try:
            made = self.rewrite.graph(self.dialect, match.attributes, *self._types_at(match))
        except PassError as error:
            return error.message
        if not self._may_alias(match, made):
            return "a result would be an input as it is, which a caller would see"
        results = [match.values[meta.name].name for meta in self.wanted.graph_outputs]
        if read := _layout_reader(self.ir, results):
            return f"{read!r} reads how a result lies in memory"
        self._replace(match, position, made)
        self.builder.operators.update(made.operators)
        return ""

    def _is_fixed(self, meta: TensorMeta) -> bool:
        name = (self.origins or {}).get(meta.name, meta).name
        return name in self.ir.external_values() and not self.memory.is_written(name)

    def _types_at(self, match: Match) -> tuple[list[TensorType | None], tuple[Symbols, ...]]:
        """The types of the tensors at a place, and values of its symbols.

        Raises:
            PassError: No values fit the conditions on the symbols.
        """
        metas = [match.values.get(meta.name) for meta in self.wanted.graph_inputs]
        static = all(meta is None or meta.is_static for meta in metas)
        is_symbolic = not static or has_expression(tuple(match.attributes.values()))
        found = samplings(self.ir) if is_symbolic else ({},)
        if not found:
            raise PassError("no sizes are known that the program takes")
        return [None if meta is None else contiguous(meta) for meta in metas], found

    def _final(self, meta: TensorMeta) -> TensorMeta:
        while meta.name in self.values:
            meta = self.values[meta.name]
        return meta

    def _position(self, match: Match) -> int | None:
        """Where the replacement stands: behind its inputs, before what uses its results."""
        inside = {node.name for node in match.nodes.values()}
        results = [match.values[meta.name] for meta in self.wanted.graph_outputs]
        users = [
            self.positions[user.name]
            for meta in results
            for user in self.ir.users.get(meta.name, ())
            if user.name not in inside
        ]
        first_use = min(users, default=len(self.positions))
        last = max(self.positions[meta.producer_node or ""] for meta in results)
        if last <= first_use:
            return last
        made = [
            self.positions[value.producer_node]
            for meta in self.wanted.graph_inputs
            if (value := match.values.get(meta.name)) is not None and value.producer_node
        ]
        return first_use if max(made, default=-1) < first_use else None

    def _may_alias(self, match: Match, made: IR) -> bool:
        """Return whether a result may be an input itself, if the replacement returns it."""
        given = {m.name: i for i, m in enumerate(made.graph_inputs)}
        for wanted, result in zip(self.wanted.graph_outputs, made.graph_outputs, strict=True):
            if result.name in given:
                source = self._input(match, given[result.name])
                if not self.memory.join(match.values[wanted.name].name, source.name):
                    return False
        return True

    def _input(self, match: Match, index: int) -> TensorMeta:
        return match.values[self.wanted.graph_inputs[index].name]

    # -- the new nodes ----------------------------------------------------------------------------

    def _replace(self, match: Match, position: int, replacement: IR) -> None:
        wanted = [match.values[meta.name] for meta in self.wanted.graph_outputs]
        recorded = dict(zip(replacement.output_names, wanted, strict=True))
        values = {
            meta.name: self._input(match, index)
            for index, meta in enumerate(replacement.graph_inputs)
            if self.wanted.graph_inputs[index].name in match.values
        }
        location = self.ir.by_name[wanted[0].producer_node or ""].location
        matched = {self.positions[n.name] for n in match.nodes.values() if not is_number(n)}
        sources = [self.ir.nodes[index] for index in sorted(matched)]
        nodes: list[OpNode] = []
        for node in replacement.nodes:
            outputs = [recorded[o.name] for o in node.outputs if o.name in recorded]
            if outputs and outputs[0].producer_node is not None:
                location = self.ir.by_name[outputs[0].producer_node].location
            new = self._node(node, values, recorded).replace(location=location)
            new = new.derived_from(*sources)
            values.update({a.name: b for a, b in zip(node.outputs, new.outputs, strict=True)})
            nodes.append(new)
        self.added.setdefault(position, []).extend(nodes)
        self.removed |= {node.name for node in (*match.nodes.values(), *match.checks)}
        for name, old in recorded.items():
            if values[name].name != old.name:
                self.values[old.name] = values[name]
                self.replaced.append(old)

    def _node(
        self,
        node: OpNode,
        values: Mapping[str, TensorMeta],
        recorded: Mapping[str, TensorMeta],
    ) -> OpNode:
        inputs = [values[meta.name] for meta in node.inputs]
        name = self._name(node, recorded)
        draft = node.replace(name=name, inputs=inputs)
        types = _types(self.ir, draft, recorded)
        outputs = [
            meta.replace(
                name=name + meta.name[len(node.name) :],
                producer_node=name,
                shape=shape,
                dtype=dtype,
            )
            for meta, (shape, dtype) in zip(node.outputs, types, strict=True)
        ]
        return draft.replace(outputs=outputs)

    def _name(self, node: OpNode, recorded: Mapping[str, TensorMeta]) -> str:
        """The name of the node whose only result it makes anew, or a fresh one."""
        old = recorded.get(node.name)
        if old is not None and len(node.outputs) == 1 and old.producer_node == old.name:
            return old.name
        anchor = next(iter(recorded.values()))
        stem = (anchor.producer_node or anchor.name).split(".")[0]
        return self.builder.names.fresh(f"{stem}_{node.op_type.split('.')[1].strip('_')}")


def _sizes(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape without its expressions, which may be spelled in another way."""
    return tuple([dim if isinstance(dim, int) else None for dim in shape])


def _types(
    ir: IR, node: OpNode, recorded: Mapping[str, TensorMeta]
) -> list[tuple[tuple[Any, ...], str]]:
    """The shape and dtype of each result, as torch derives them."""
    outcome = call_on(ir, node)
    if not outcome.results:
        reason = outcome.refusal or "data decides what it gives"
        raise PassError(f"the replacement does not fit at node {node.name!r}: {reason:.200}")
    found: list[tuple[tuple[Any, ...], str]] = []
    for meta in node.outputs:
        made = outcome.result(meta)
        shape, dtype = (meta.shape, meta.dtype) if made is None else (made.shape, made.dtype)
        old = recorded.get(meta.name)
        fits = old is None or (_sizes(old.shape), old.dtype) == (_sizes(shape), dtype)
        if not fits:
            raise PassError(
                f"the replacement makes {dtype}{list(map(str, shape))} of what is {old}",
                remedy="Give where=, so that it is put only where it fits.",
            )
        found.append((shape if old is None else old.shape, dtype))
    return found
