"""A pattern, what replaces it, and the proof by trying that both compute the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from itertools import product
from typing import Any, cast

import torch

from torch_ir.dialects.backend.sampling import varied
from torch_ir.errors import PassError, did_you_mean
from torch_ir.ir import IR
from torch_ir.passes.patterns.form import Condition, Form, Function, Valuation
from torch_ir.torch_api import pytree


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A pattern and what replaces it, both functions of the same tensors.

    Both are called with the example, with other numbers in it, and with infinities, zeros and
    NaN, when the rewrite is made; it is refused where they do not give the same. At each place
    both are traced again with the shapes, dtypes and attributes that are there, so they may
    compute with them; a place where the pattern is another one then, or where small tensors show
    a difference, is left alone.

    Attributes:
        pattern: What to look for. The tensors are matched by anything, positional in both.
        replacement: What to put there.
        example_inputs: Tensors to trace and try both with. Shapes and dtypes of a program may
            be others. A list of tensors stands for a list of any length.
        attributes: What both take by keyword, with a value to try each with: numbers, bools,
            strings, dtypes, None, or tuples or lists of numbers. In a program they may have any
            value. The pattern passes them to operators as they are.
        where: Which matches to rewrite, by their nodes, values and attributes; all if not given.
        tolerance: How far the results may be apart, relative to the largest of the pattern's; 0
            asks for the same bits (NaN for NaN).
        examples: Further values to try both with; attributes that one leaves out stay as in
            ``attributes``. Without them other numbers, bools and dtypes are tried.
        choices: What both take by keyword beside the attributes, each with its alternatives:
            anything, such as bools or functions. The pattern may be another one for each; they
            are looked for in the order of their combinations.
        fixed: The arguments that have to be weights or constants which nothing writes, so that
            :func:`torch_ir.passes.fold_weights` computes ahead what depends on them alone.
        positive: The arguments that are positive wherever the pattern stands, such as variances;
            both are tried with numbers of both signs in others.

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
    example_inputs: tuple[torch.Tensor | Sequence[torch.Tensor], ...]
    attributes: Valuation = field(default_factory=dict[str, Any])
    where: Condition | None = None
    tolerance: float = 0.0
    examples: Sequence[Valuation] = field(default=(), kw_only=True)
    choices: Mapping[str, Sequence[Any]] = field(
        default_factory=dict[str, Sequence[Any]], kw_only=True
    )
    fixed: Sequence[str] = field(default=(), kw_only=True)
    positive: Sequence[str] = field(default=(), kw_only=True)
    _forms: dict[tuple[int, ...], Form | None] = field(
        default_factory=dict[tuple[int, ...], "Form | None"], init=False, repr=False
    )

    def __post_init__(self) -> None:
        _require_known(self.attributes, self.examples, self.choices)
        self._require_arguments()
        for number in range(len(self._combinations)):
            self._form(number, self._lengths)

    def forms(self, ir: IR) -> Iterable[Form]:
        """Yield what to look for in a program, in order.

        There is one for each combination of choices, and of the lengths that lists of tensors
        have in the program.
        """
        for number in range(len(self._combinations)):
            first = cast(Form, self._form(number, self._lengths))
            known = first.list_lengths(ir) if self._lengths else ()
            for lengths in product(sorted(known, reverse=True), repeat=len(self._lengths)):
                form = self._form(number, lengths)
                if form is not None:
                    yield form

    @property
    def _lengths(self) -> tuple[int, ...]:
        return tuple([len(v) for v in self.example_inputs if not isinstance(v, torch.Tensor)])

    @property
    def _names(self) -> list[str]:
        """The names of the pattern's tensors; none of a function that does not say them."""
        try:
            return list(signature(self.pattern).parameters)[: len(self.example_inputs)]
        except ValueError:  # a builtin of torch
            return []

    @property
    def _combinations(self) -> list[Valuation]:
        options = product(*self.choices.values())
        return [dict(zip(self.choices, chosen, strict=True)) for chosen in options]

    def _require_arguments(self) -> None:
        for option, given in (("fixed", self.fixed), ("positive", self.positive)):
            names = self._names if given else []
            unknown = next((name for name in given if name not in names), None)
            if unknown is not None:
                raise PassError(
                    f"{option}= has {unknown!r}, which is no tensor of the pattern",
                    remedy=did_you_mean(unknown, names) or "Name parameters of the pattern.",
                )

    def _form(self, number: int, lengths: tuple[int, ...]) -> Form | None:
        """The rewrite of single tensors; None where the pattern takes no such lists."""
        key = (number, *lengths)
        if key in self._forms:
            return self._forms[key]
        rest = iter(lengths)
        inputs = tuple(
            [
                value if isinstance(value, torch.Tensor) else _of_length(value, next(rest))
                for value in self.example_inputs
            ]
        )
        leaves, spec = pytree.tree_flatten(inputs)
        form = Form(
            partial(_called, self.pattern, spec, self._combinations[number]),
            partial(_called, self.replacement, spec, self._combinations[number]),
            tuple(leaves),
            self.attributes,
            self.examples,
            self.where,
            self.tolerance,
            self._positions(self.fixed, inputs),
            frozenset(self._positions(self.positive, inputs)),
        )
        if lengths == self._lengths or form.takes(leaves, self.attributes):
            form.prove()
            self._forms[key] = form
        else:
            self._forms[key] = None
        return self._forms[key]

    def _positions(self, names: Sequence[str], inputs: Sequence[Any]) -> tuple[int, ...]:
        """Where the tensors of some arguments stand among all."""
        marks = [
            bool(names) and self._names[index] in names
            for index, value in enumerate(inputs)
            for _ in pytree.tree_leaves(value)
        ]
        return tuple([index for index, is_named in enumerate(marks) if is_named])


def _of_length(example: Sequence[torch.Tensor], length: int) -> list[torch.Tensor]:
    made = [example[index % len(example)] for index in range(length)]
    return [*made[: len(example)], *varied(made[len(example) :], length)]


def _called(
    function: Function, spec: pytree.TreeSpec, chosen: Valuation, *leaves: Any, **attributes: Any
) -> Any:
    return function(*pytree.tree_unflatten(leaves, spec), **chosen, **attributes)


# -- attributes -----------------------------------------------------------------------------------

_SCALARS = (int, float, bool, str, torch.dtype, type(None))


def _require_known(
    attributes: Valuation, examples: Sequence[Valuation], choices: Mapping[str, Sequence[Any]]
) -> None:
    for name, options in choices.items():
        if name in attributes or not options:
            why = "is an attribute too" if name in attributes else "has no alternative"
            raise PassError(f"the choice {name!r} {why}")
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
