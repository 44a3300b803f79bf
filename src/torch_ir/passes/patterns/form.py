"""A rewrite of single tensors: traced, tried, and made for each place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from torch_ir.errors import PassError, Raised, attempt
from torch_ir.infer.bindings import Symbols
from torch_ir.infer.resolve import evaluate, to_torch
from torch_ir.infer.types import TensorType
from torch_ir.ir import IR, Attribute, OpNode
from torch_ir.ir.values import as_attribute
from torch_ir.passes.patterns.elements import Match
from torch_ir.passes.patterns.trace import Template, level_of, merged, traced
from torch_ir.passes.patterns.trial import in_types, other_values, require_same, scaled, tries

Function: TypeAlias = Callable[..., Any]
Condition: TypeAlias = Callable[[Match], bool]
Valuation: TypeAlias = Mapping[str, Any]
Instance: TypeAlias = tuple[dict[str, Attribute], tuple[TensorType, ...]]
"""The attributes of a place and the types of its tensors, for one value of each symbol."""


@dataclass(frozen=True, eq=False)
class Form:
    """A rewrite whose arguments are single tensors, without choices.

    Attributes:
        pattern: What to look for.
        replacement: What to put there.
        example: Tensors to trace and try both with.
        attributes: What both take by keyword, with a value to try each with.
        examples: Further values to try both with.
        where: Which matches to rewrite.
        tolerance: How far the results may be apart.
        fixed: The positions of the arguments that have to be weights or constants.
        positive: Those of the arguments that are positive everywhere.
    """

    pattern: Function
    replacement: Function
    example: tuple[torch.Tensor, ...]
    attributes: Valuation
    examples: Sequence[Valuation]
    where: Condition | None
    tolerance: float
    fixed: tuple[int, ...]
    positive: frozenset[int]
    _valuations: list[Valuation] = field(default_factory=list[Valuation], init=False, repr=False)
    _traces: dict[tuple[str, ...], Any] = field(
        default_factory=dict[tuple[str, ...], Any], init=False, repr=False
    )

    def prove(self) -> None:
        """Try both on the example and every legal valuation, and trace them.

        Raises:
            PassError: They differ, or one is no pattern or replacement.
        """
        self._valuations.extend(self._legal_valuations())
        first, *others = tries(self.example, special=not self.tolerance, positive=self.positive)
        for attributes in self._valuations:
            self._require_same(first, attributes)
            for inputs in others:
                if self.takes(inputs, attributes):  # an index is not negative
                    self._require_same(inputs, attributes)
        pattern = self.template("export")
        producers = pattern.ir.producers
        if not producers or any(m.name not in producers for m in pattern.ir.graph_outputs):
            raise PassError("a pattern computes each of its results with an operator")
        unseen = [name for name in self.attributes if name not in pattern.wildcards]
        if unseen:
            raise PassError(
                f"the pattern has no operator with the attribute {unseen[0]!r} as it is given",
                picture=str(pattern.ir),
                remedy="Pass it to an operator without computing with it.",
            )
        self._traced(self.replacement, "export", self.attributes)

    # -- the graphs -------------------------------------------------------------------------------

    def list_lengths(self, ir: IR) -> set[int]:
        """Return the lengths of the lists that a program gives the pattern's operators."""
        operators = {n.op_type for n in self.template(ir.dialect).ir.nodes if _lists(n)}
        return {
            length
            for _, _, node in ir.walk()
            if node.op_type in operators
            for length in _lists(node)
        }

    def template(self, dialect: str) -> Template:
        """Return the pattern as it looks in programs of a dialect.

        Raises:
            PassError: It computes with an attribute, or looks different for some.
        """
        level = level_of(dialect)
        key = ("template", level)
        if key not in self._traces:
            traces = [self._traced(self.pattern, level, v) for v in self._valuations]
            values = [_frozen(v) for v in self._valuations]
            self._traces[key] = merged(traces, values, "the pattern")
        return self._traces[key]

    def graph(
        self,
        dialect: str,
        attributes: Mapping[str, Attribute],
        types: Sequence[TensorType | None],
        samplings: Sequence[Symbols],
    ) -> IR:
        """Return the replacement for a place.

        Args:
            dialect: That of the program.
            attributes: What the wildcards stand for there.
            types: Those of the tensors there; None for one that the pattern does not use.
            samplings: Values of the symbols, by which a size that varies is told from a number.

        Raises:
            PassError: The pattern or the replacement is another one there.
        """
        level = level_of(dialect)
        key = ("graph", level, repr(attributes), repr(types))
        if key not in self._traces:
            given = [
                TensorType.of(example) if kind is None else kind
                for example, kind in zip(self.example, types, strict=True)
            ]
            instances: list[Instance] = [
                (
                    {name: _at(value, symbols) for name, value in attributes.items()},
                    tuple([TensorType(*[_at(part, symbols) for part in kind]) for kind in given]),
                )
                for symbols in samplings
            ]
            try:
                self._traces[key] = self._graph(level, attributes, instances)
            except PassError as error:
                self._traces[key] = error
        if isinstance(found := self._traces[key], PassError):
            raise found
        return found

    def _graph(
        self, level: str, attributes: Mapping[str, Attribute], instances: Sequence[Instance]
    ) -> IR:
        patterns: list[IR] = [self._traced(self.pattern, level, v) for v in self._valuations]
        made: list[IR] = []
        for known, types in instances:
            given = {n: _as_given(value, self.attributes[n]) for n, value in known.items()}
            self._try(given, types)
            patterns.append(self._traced(self.pattern, level, given, types))
            made.append(self._traced(self.replacement, level, given, types))
        values = [known for known, _ in instances]
        merged(patterns, [*map(_frozen, self._valuations), *values], "the pattern")
        return merged(made, values, "the replacement").filled(attributes)

    def _try(self, attributes: Valuation, types: Sequence[TensorType]) -> None:
        """Require that both give the same with these attributes, and in these shapes if small."""
        if self.takes(self.example, attributes):
            self._require_same(self.example, attributes)
        for inputs in in_types(self.example, types, positive=self.positive):
            if self.takes(inputs, attributes):
                self._require_same(inputs, attributes)

    def _traced(
        self,
        function: Function,
        level: str,
        attributes: Valuation,
        types: Sequence[TensorType] = (),
    ) -> IR:
        name = "the pattern" if function is self.pattern else "the replacement"
        example = [TensorType.of(tensor) for tensor in self.example]
        is_example = not types or list(types) == example
        key = (name, level, repr(attributes), "" if is_example else repr(types))
        if key not in self._traces:
            inputs = self.example if is_example else [kind.empty("meta") for kind in types]
            self._traces[key] = traced(function, inputs, attributes, level, name)
        return self._traces[key]

    # -- trying both ------------------------------------------------------------------------------

    def _legal_valuations(self) -> list[Valuation]:
        """The attributes, the further examples, and others that tell each attribute apart."""
        found: list[Valuation] = [self.attributes]
        found += [{**self.attributes, **example} for example in self.examples]
        for name, value in self.attributes.items():
            alike = _alike(name, found)
            if alike is None:
                continue
            made = [{**self.attributes, name: other} for other in other_values(value)]
            legal = next((known for known in made if self.takes(self.example, known)), None)
            if legal is None:
                told = f" apart from that of {alike!r}" if alike else ""
                raise PassError(
                    f"the pattern takes no other value of the attribute {name!r}{told} "
                    "that was tried",
                    remedy=f"Give one that it takes: examples=({{{name!r}: ...}},).",
                )
            found.append(legal)
        return found

    def takes(self, inputs: Sequence[torch.Tensor], attributes: Valuation) -> bool:
        """Return whether the pattern can be called with these."""
        made = attempt(self.pattern, *map(torch.clone, inputs), **attributes)
        return not isinstance(made, Raised)

    def _require_same(self, inputs: Sequence[torch.Tensor], attributes: Valuation) -> None:
        tolerance = scaled(self.tolerance, self.example, inputs)
        require_same(self.pattern, self.replacement, inputs, attributes, tolerance)


def _lists(node: OpNode) -> list[int]:
    """The lengths of the lists of tensors that a node takes."""
    return [len(slots) for slots in node.slots.values() if isinstance(slots, tuple)]


def _alike(name: str, found: Sequence[Valuation]) -> str | None:
    """An attribute that some valuations do not tell from this one.

    Empty where this one has the same value in all; None where it can be told from each.
    """
    values = {attr: [as_attribute(known[attr]) for known in found] for attr in found[0]}
    if all(value == values[name][0] for value in values[name]):
        return ""
    return next((n for n, others in values.items() if n != name and others == values[name]), None)


def _frozen(valuation: Valuation) -> dict[str, Attribute]:
    return {name: as_attribute(value) for name, value in valuation.items()}


def _at(value: Attribute, symbols: Symbols) -> Any:
    return as_attribute(evaluate(value, symbols))


def _as_given(value: Attribute, example: Any) -> Any:
    """A program's attribute as the functions take it."""
    made = to_torch(value, torch.device("cpu"), _no_function)
    return tuple(made) if isinstance(made, list) and not isinstance(example, list) else made


def _no_function(name: str) -> Function:
    raise PassError(f"the function {name!r} is no attribute")
