"""Putting something else where a pattern occurs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch

from torch_ir.dialects.backend.sampling import close, varied
from torch_ir.errors import PassError
from torch_ir.infer.fake import Fakes, contiguous
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.builder import Names, with_inputs
from torch_ir.ir.symbols import as_dim
from torch_ir.ir.values import dtype_name
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.memory import Memory, in_functions, rewired
from torch_ir.passes.patterns.matcher import Match, find_matches
from torch_ir.passes.patterns.trace import Wildcards, level_of, traced
from torch_ir.torch_api import pytree

Function: TypeAlias = Callable[..., Any]
Condition: TypeAlias = Callable[[Match], bool]


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A pattern and what replaces it, both functions of the same tensors.

    Both are called with the example, with other numbers in it, and with infinities, zeros and
    NaN, when the rewrite is made; it is refused where they do not give the same.

    Attributes:
        pattern: What to look for. The tensors are matched by anything, positional in both.
        replacement: What to put there.
        example_inputs: Tensors to trace and try both with. Shapes and dtypes of a program may
            be others.
        attributes: Numbers that both take by keyword, with a value to try each with. In a
            program they may have any value.
        where: Which matches to rewrite, by their nodes, values and attributes; all if not given.
        tolerance: How far the results may be apart, relative to the largest of the pattern's; 0
            asks for the same bits (NaN for NaN).

    Raises:
        PassError: One cannot be traced, or they do not give the same.

    Example:
        >>> twice = Rewrite(lambda x: x + x, lambda x: x * 2, (torch.ones(2),))
        >>> Rewrite(lambda x: x + x, lambda x: x * 3, (torch.ones(2),))
        Traceback (most recent call last):
        ...
        torch_ir.errors.PassError: the replacement does not compute what the pattern does
            arguments   [tensor([1., 1.])]
            pattern     [tensor([2., 2.])]
            replacement [tensor([3., 3.])]
        Correct one of them, or give the tolerance that they agree within.
    """

    pattern: Function
    replacement: Function
    example_inputs: tuple[torch.Tensor, ...]
    attributes: Mapping[str, int | float] = field(default_factory=dict[str, "int | float"])
    where: Condition | None = None
    tolerance: float = 0.0
    _traces: dict[str, tuple[IR, IR]] = field(
        default_factory=dict[str, tuple[IR, IR]], init=False, repr=False
    )

    def __post_init__(self) -> None:
        wildcards = self.wildcards
        for inputs in _tries(self.example_inputs, special=not self.tolerance):
            for attributes in _attribute_tries(self.attributes):
                self._require_same(inputs, attributes)
        pattern, _ = self.graphs("export")
        if not pattern.nodes or any(
            m.name not in pattern.producers for m in pattern.graph_outputs
        ):
            raise PassError("a pattern computes each of its results with an operator")
        seen = {wildcards.name(v) for node in pattern.nodes for v in _numbers(node)}
        unseen = [name for name in self.attributes if name not in seen]
        if unseen:
            raise PassError(
                f"the pattern has no operator with the attribute {unseen[0]!r} as it is given",
                picture=str(pattern),
                remedy="Pass it to an operator without computing with it.",
            )

    @property
    def wildcards(self) -> Wildcards:
        """The numbers that stand for attributes in the traces."""
        return Wildcards(self.attributes)

    def graphs(self, dialect: str) -> tuple[IR, IR]:
        """The pattern and the replacement as they look in programs of a dialect."""
        level = level_of(dialect)
        if level not in self._traces:
            trace = partial(
                traced, inputs=self.example_inputs, attributes=self.wildcards.values, level=level
            )
            self._traces[level] = trace(self.pattern), trace(self.replacement)
        return self._traces[level]

    def _require_same(
        self, inputs: Sequence[torch.Tensor], attributes: Mapping[str, int | float]
    ) -> None:
        try:
            expected = pytree.tree_leaves(self.pattern(*map(torch.clone, inputs), **attributes))
        except Exception as error:
            if attributes != self.attributes:
                return  # it does not take this value, which was made up
            raise PassError(f"the pattern refuses the example: {error!s:.200}") from error
        try:
            got = pytree.tree_leaves(self.replacement(*map(torch.clone, inputs), **attributes))
        except Exception as error:  # a function of the user's may raise anything
            raise PassError(f"the replacement refuses the example: {error!s:.200}") from error
        pairs = zip(expected, got, strict=False)
        if len(expected) == len(got) and all(close(a, b, self.tolerance) for a, b in pairs):
            return
        given = f", {dict(attributes)}" if attributes else ""
        raise PassError(
            "the replacement does not compute what the pattern does",
            picture=f"arguments   {_short(list(inputs))}{given}\npattern     {_short(expected)}\n"
            f"replacement {_short(got)}",
            remedy="Correct one of them, or give the tolerance that they agree within.",
        )


@dataclass(frozen=True)
class RewritePatterns(Pass):
    """Rewrites where patterns occur; see :func:`rewrite_patterns`."""

    name: ClassVar[str] = "rewrite-patterns"
    rewrites: tuple[Rewrite, ...] = ()

    def call(self, ir: IR) -> PassResult:
        """The program with the replacements."""
        result = rewrite_patterns(ir, self.rewrites)
        return PassResult(result, result is not ir)

    def __str__(self) -> str:
        return self.name


def rewrite_patterns(ir: IR, rewrites: Sequence[Rewrite]) -> IR:
    """The program with each replacement where its pattern occurs; in functions too.

    The order of the operands of a sum, product or comparison does not matter. A place is left as
    it is where something else uses what is inside, where something writes to its memory, and
    where the replacement would have to stand before one of its inputs. New nodes have the
    location of the node whose result they make. The same object if there is nothing to do.

    Raises:
        PassError: A replacement gives another type than what it replaces.

    Example:
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
    for rewrite in rewrites:
        ir = _Rewriter(ir, rewrite, ir.dialect).run()
    return ir


class _Rewriter:
    def __init__(self, ir: IR, rewrite: Rewrite, dialect: str):
        self.ir = in_functions(ir, lambda body: _Rewriter(body, rewrite, dialect).run())
        self.rewrite = rewrite
        self.pattern, self.replacement = rewrite.graphs(dialect)
        self.names = Names.of(ir)
        self.memory = Memory(self.ir)
        self.positions = {node.name: i for i, node in enumerate(ir.nodes)}
        self.values: dict[str, TensorMeta] = {}
        self.added: dict[int, list[OpNode]] = {}
        self.removed: set[str] = set()

    def run(self) -> IR:
        ir = self.ir
        for match in find_matches(self.pattern, ir, self.rewrite.wildcards):
            if self.rewrite.where is None or self.rewrite.where(match):
                position = self._position(match)
                if position is not None and self._may_alias(match):
                    self._replace(match, position)
        if not self.removed:
            return ir
        values = {name: self._final(meta) for name, meta in self.values.items()}
        nodes: list[OpNode] = []
        for position, node in enumerate(ir.nodes):
            nodes += [with_inputs(new, values) for new in self.added.get(position, ())]
            if node.name not in self.removed:
                nodes.append(with_inputs(node, values))
        operators = {**self.replacement.operators, **ir.operators}
        return rewired(ir, nodes, values, operators=operators)

    def _final(self, meta: TensorMeta) -> TensorMeta:
        while meta.name in self.values:
            meta = self.values[meta.name]
        return meta

    def _position(self, match: Match) -> int | None:
        """Where the replacement stands: behind its inputs, before what uses its results."""
        inside = {node.name for node in match.nodes.values()}
        results = [match.values[meta.name] for meta in self.pattern.graph_outputs]
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
            for meta in self.pattern.graph_inputs
            if (value := match.values.get(meta.name)) is not None and value.producer_node
        ]
        return first_use if max(made, default=-1) < first_use else None

    def _may_alias(self, match: Match) -> bool:
        """Whether a result may be one of the inputs as it is, if the replacement returns it."""
        pairs = zip(self.pattern.graph_outputs, self.replacement.graph_outputs, strict=True)
        given = {m.name: i for i, m in enumerate(self.replacement.graph_inputs)}
        for wanted, made in pairs:
            if made.name in given:
                source = self._input(match, given[made.name])
                if not self.memory.join(match.values[wanted.name].name, source.name):
                    return False
        return True

    def _input(self, match: Match, index: int) -> TensorMeta:
        return match.values[self.pattern.graph_inputs[index].name]

    # -- the new nodes ----------------------------------------------------------------------------

    def _replace(self, match: Match, position: int) -> None:
        wanted = [match.values[meta.name] for meta in self.pattern.graph_outputs]
        made = [meta.name for meta in self.replacement.graph_outputs]
        recorded = dict(zip(made, wanted, strict=True))
        values = {
            meta.name: self._input(match, index)
            for index, meta in enumerate(self.replacement.graph_inputs)
            if self.pattern.graph_inputs[index].name in match.values
        }
        location = self.ir.by_name[wanted[0].producer_node or ""].location
        nodes: list[OpNode] = []
        for node in self.replacement.nodes:
            outputs = [recorded[o.name] for o in node.outputs if o.name in recorded]
            if outputs and outputs[0].producer_node is not None:
                location = self.ir.by_name[outputs[0].producer_node].location
            new = self._node(node, match, values, recorded).replace(location=location)
            values.update({a.name: b for a, b in zip(node.outputs, new.outputs, strict=True)})
            nodes.append(new)
        self.added.setdefault(position, []).extend(nodes)
        self.removed |= {node.name for node in match.nodes.values()}
        for name, old in recorded.items():
            if values[name].name != old.name:
                self.values[old.name] = values[name]

    def _node(
        self,
        node: OpNode,
        match: Match,
        values: Mapping[str, TensorMeta],
        recorded: Mapping[str, TensorMeta],
    ) -> OpNode:
        wildcards = self.rewrite.wildcards
        attrs = {n: wildcards.filled(v, match.attributes) for n, v in node.attrs.items()}
        inputs = [values[meta.name] for meta in node.inputs]
        name = self._name(node, recorded)
        draft = node.replace(name=name, inputs=inputs, attrs=attrs)
        types = self._types(draft, recorded)
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
        return self.names.fresh(f"{stem}_{node.op_type.split('.')[1].strip('_')}")

    def _types(
        self, node: OpNode, recorded: Mapping[str, TensorMeta]
    ) -> list[tuple[tuple[Any, ...], str]]:
        """The shape and dtype of each result, as torch derives them."""
        fakes: Fakes = self.ir.view("fakes of rewrites", lambda: Fakes(self.ir))
        with fakes.tracing():
            try:
                tensors = [fakes.tensor(contiguous(meta)) for meta in node.inputs]
                made = pytree.tree_leaves(fakes.call(node, tensors), is_leaf=_is_none)
            except Exception as error:  # torch refuses calls with any error
                raise PassError(
                    f"the replacement does not fit at node {node.name!r}: {error!s:.200}"
                ) from error
        found: list[tuple[tuple[Any, ...], str]] = []
        for meta in node.outputs:
            tensor = made[meta.producer_output_idx]
            shape = tuple([as_dim(fakes.dim(size)) for size in tensor.shape])
            dtype = dtype_name(tensor.dtype, strict=False)
            old = recorded.get(meta.name)
            fits = old is None or (_sizes(old.shape), old.dtype) == (_sizes(shape), dtype)
            if not fits:
                raise PassError(
                    f"the replacement makes {dtype}{list(map(str, shape))} of what is {old}",
                    remedy="Give where=, so that it is put only where it fits.",
                )
            found.append((shape if old is None else old.shape, dtype))
        return found


def _sizes(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape without its expressions, which may be spelled in another way."""
    return tuple([dim if isinstance(dim, int) else None for dim in shape])


# -- trying both ----------------------------------------------------------------------------------

_SPECIAL = (0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-30, -1.0, 3.0)


def _tries(example: Sequence[torch.Tensor], *, special: bool) -> list[list[torch.Tensor]]:
    found = [list(example), varied(example, 1), varied(example, 2)]
    positive = any(t.is_floating_point() and bool((t > 0).all()) and t.numel() for t in example)
    return (
        [*found, [_specials(tensor) for tensor in example]] if special and not positive else found
    )


def _specials(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    values = torch.tensor(_SPECIAL, dtype=tensor.dtype)
    return values.repeat(tensor.numel() // len(_SPECIAL) + 1)[: tensor.numel()].reshape(
        tensor.shape
    )


def _attribute_tries(example: Mapping[str, int | float]) -> list[dict[str, int | float]]:
    first = dict(example)
    others = {n: v + 1 if type(v) is int else v * 0.5 + 0.25 for n, v in first.items()}
    return [first, others] if first else [first]


def _numbers(node: OpNode) -> list[Any]:
    found: list[Any] = []
    stack: list[Any] = list(node.attrs.values())
    while stack:
        item = stack.pop()
        stack.extend(item if isinstance(item, tuple) else ())
        found += [item] if type(item) in (int, float) else []
    return found


def _short(values: Any) -> str:
    return f"{values!r:.300}".replace("\n", " ")


def _is_none(value: object) -> bool:
    return value is None
