"""A pattern, what replaces it, and the proof by trying that both compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch

from torch_ir.dialects.backend.sampling import close, varied
from torch_ir.errors import PassError, Raised, attempt
from torch_ir.infer.resolve import to_torch
from torch_ir.ir import IR, Attribute, SymExpr
from torch_ir.ir.values import as_attribute
from torch_ir.passes.patterns.elements import Match
from torch_ir.passes.patterns.trace import Template, level_of, merged, traced
from torch_ir.torch_api import pytree

Function: TypeAlias = Callable[..., Any]
Condition: TypeAlias = Callable[[Match], bool]
Valuation: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A pattern and what replaces it, both functions of the same tensors.

    Both are called with the example, with other numbers in it, and with infinities, zeros and
    NaN, when the rewrite is made; it is refused where they do not give the same. The replacement
    is called again with the attributes of each place, so it may compute with them.

    Attributes:
        pattern: What to look for. The tensors are matched by anything, positional in both.
        replacement: What to put there.
        example_inputs: Tensors to trace and try both with. Shapes and dtypes of a program may
            be others.
        attributes: What both take by keyword, with a value to try each with: numbers, bools,
            strings, dtypes, None, or tuples or lists of numbers. In a program they may have any
            value. The pattern passes them to operators as they are.
        where: Which matches to rewrite, by their nodes, values and attributes; all if not given.
        tolerance: How far the results may be apart, relative to the largest of the pattern's; 0
            asks for the same bits (NaN for NaN).
        examples: Further values to try both with; attributes that one leaves out stay as in
            ``attributes``. Without them other numbers, bools and dtypes are tried.

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
    attributes: Valuation = field(default_factory=dict[str, Any])
    where: Condition | None = None
    tolerance: float = 0.0
    examples: Sequence[Valuation] = field(default=(), kw_only=True)
    _valuations: list[Valuation] = field(default_factory=list[Valuation], init=False, repr=False)
    _traces: dict[tuple[str, ...], Any] = field(
        default_factory=dict[tuple[str, ...], Any], init=False, repr=False
    )

    def __post_init__(self) -> None:
        _require_known(self.attributes, self.examples)
        self._valuations.extend(self._legal_valuations())
        for inputs in _tries(self.example_inputs, special=not self.tolerance):
            for attributes in self._valuations:
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

    def template(self, dialect: str) -> Template:
        """Return the pattern as it looks in programs of a dialect.

        Raises:
            PassError: It computes with an attribute, or looks different for some.
        """
        return self._template(self.pattern, level_of(dialect))

    def graph(self, dialect: str, attributes: Mapping[str, Attribute]) -> IR:
        """Return the replacement for a place with these attributes.

        It is traced with them, or filled in where they are sizes that vary.

        Raises:
            PassError: The pattern or the replacement is another one with these attributes.
        """
        level = level_of(dialect)
        if not attributes:
            return self._traced(self.replacement, level, attributes)
        if any(map(_is_symbolic, attributes.values())):
            return self._template(self.replacement, level).filled(attributes)
        key = ("graph", level, repr(attributes))
        if key not in self._traces:
            try:
                self._traces[key] = self._graph(level, attributes)
            except PassError as error:
                self._traces[key] = error
        if isinstance(found := self._traces[key], PassError):
            raise found
        return found

    def _graph(self, level: str, attributes: Mapping[str, Attribute]) -> IR:
        given = {
            name: _as_given(value, self.attributes[name]) for name, value in attributes.items()
        }
        if not self._takes(given):  # the example is too small for them
            return self._template(self.replacement, level).filled(attributes)
        self._require_same(self.example_inputs, given)
        base, others = self.attributes, self._valuations[1:]
        traces = [self._traced(self.pattern, level, v) for v in (base, given, *others)]
        valuations = [_frozen(valuation) for valuation in (base, given, *others)]
        merged(traces, valuations, "the pattern")
        return self._traced(self.replacement, level, given)

    def _template(self, function: Function, level: str) -> Template:
        name = "the pattern" if function is self.pattern else "the replacement"
        key = ("template", name, level)
        if key not in self._traces:
            traces = [self._traced(function, level, v) for v in self._valuations]
            self._traces[key] = merged(traces, [_frozen(v) for v in self._valuations], name)
        return self._traces[key]

    def _traced(self, function: Function, level: str, attributes: Valuation) -> IR:
        key = ("trace", "pattern" if function is self.pattern else "", level, repr(attributes))
        if key not in self._traces:
            self._traces[key] = traced(function, self.example_inputs, attributes, level)
        return self._traces[key]

    # -- trying both ------------------------------------------------------------------------------

    def _legal_valuations(self) -> list[Valuation]:
        """The attributes, the further examples, and other values of those that these leave."""
        found: list[Valuation] = [self.attributes]
        found += [{**self.attributes, **example} for example in self.examples]
        for name, value in self.attributes.items():
            if any(name in example for example in self.examples):
                continue
            made = [{**self.attributes, name: other} for other in _others(value)]
            legal = next((valuation for valuation in made if self._takes(valuation)), None)
            if legal is None:
                raise PassError(
                    f"the pattern takes no other value of the attribute {name!r} that was tried",
                    remedy=f"Give one that it takes: examples=({{{name!r}: ...}},).",
                )
            found.append(legal)
        return found

    def _takes(self, attributes: Valuation) -> bool:
        made = attempt(self.pattern, *map(torch.clone, self.example_inputs), **attributes)
        return not isinstance(made, Raised)

    def _require_same(self, inputs: Sequence[torch.Tensor], attributes: Valuation) -> None:
        results: list[list[Any]] = []
        for name, function in (("pattern", self.pattern), ("replacement", self.replacement)):
            made = attempt(function, *map(torch.clone, inputs), **attributes)
            if isinstance(made, Raised):
                told = f"the {name} refuses the example: {made.error!s:.200}"
                raise PassError(told) from made.error
            results.append(pytree.tree_leaves(made))
        expected, got = results
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


# -- attributes -----------------------------------------------------------------------------------

_SCALARS = (int, float, bool, str, torch.dtype, type(None))


def _require_known(attributes: Valuation, examples: Sequence[Valuation]) -> None:
    for name, value in [item for known in (attributes, *examples) for item in known.items()]:
        parts: Sequence[Any] = value if isinstance(value, tuple | list) else (value,)
        wrong = next((part for part in parts if type(part) not in _SCALARS), None)
        if wrong is not None:
            raise PassError(
                f"the attribute {name!r} cannot be a {type(wrong).__name__}",
                remedy="Attributes are numbers, bools, strings, dtypes, None, or lists of these.",
            )
        if name not in attributes:
            raise PassError(
                f"examples= has {name!r}, attributes= has not",
                remedy="Give each attribute a value in attributes=.",
            )


def _others(value: Any) -> Iterator[Any]:
    """Yield other values of an attribute, which its pattern may refuse."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (other for other in (value + 1, value - 1, 0) if other != value)
    elif isinstance(value, float):
        yield from (v for v in (value * 0.5 + 0.25, value * 0.5, value + 1.0) if v != value)
    elif isinstance(value, torch.dtype):
        kinds = (torch.float64, torch.float32, torch.int32, torch.int64)
        yield from (kind for kind in kinds if kind != value)
    elif isinstance(value, tuple | list):
        parts = [list(_others(part)) for part in cast(Sequence[Any], value)]
        for changed in zip(*parts, strict=False):
            yield type(cast(Any, value))(changed)
        yield type(cast(Any, value))(reversed(cast(Sequence[Any], value)))


def _frozen(valuation: Valuation) -> dict[str, Attribute]:
    return {name: as_attribute(value) for name, value in valuation.items()}


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_is_symbolic, cast(tuple[Any, ...], value)))
    return isinstance(value, SymExpr)


def _as_given(value: Attribute, example: Any) -> Any:
    """A program's attribute as the functions take it."""
    made = to_torch(value, torch.device("cpu"), _no_function)
    return tuple(made) if isinstance(made, list) and not isinstance(example, list) else made


def _no_function(name: str) -> Function:
    raise PassError(f"the function {name!r} is no attribute")


# -- inputs ---------------------------------------------------------------------------------------

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


def _short(values: Any) -> str:
    return f"{values!r:.300}".replace("\n", " ")
