"""Constants that are views of others: read where they stand, looked up when all are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch_ir.errors import InvalidIRError
from torch_ir.ir.constants import bound_view, view_of_view
from torch_ir.ir.tensor import Constant, ConstantView
from torch_ir.ir.text.lexer import Line, sigil


@dataclass(frozen=True, slots=True)
class WrittenView:
    """A view as the text has it.

    Attributes:
        line: Its line.
        at: The position of the word ``view`` in it.
        dtype: The element type.
        shape: Dimensions.
        view: Where its values lie.
        path: What its value is called among the values that are given beside the text.
        given: That value; None if there is none.
    """

    line: Line
    at: int
    dtype: str
    shape: tuple[int, ...]
    view: ConstantView
    path: str
    given: Constant | None


def with_views(
    constants: Mapping[str, Constant], views: Mapping[str, WrittenView]
) -> dict[str, Constant]:
    """Complete the constants of a graph by those that are views of others.

    Args:
        constants: Those that are no views.
        views: The others.

    Raises:
        ParseError: A view is not one of a constant here, or another value is given for it.
    """
    found = dict(constants)
    for key, written in views.items():
        found[key] = _bound(key, written, constants, views)
    return found


def _bound(
    key: str,
    written: WrittenView,
    constants: Mapping[str, Constant],
    views: Mapping[str, WrittenView],
) -> Constant:
    line, base, shown = written.line, written.view.base, sigil("@", key)
    try:
        if base in views:
            raise view_of_view(shown, base, views[base].view.base)
        constant = bound_view(constants, shown, written.dtype, written.shape, written.view)
    except InvalidIRError as error:
        at = written.at if base in constants else written.at + 2
        raise line.error(error.message, at=at, remedy=error.remedy) from None
    if written.given is not None and not _is_given(constant, written.given):
        raise line.error(
            f"the value given for @{written.path} is another one",
            at=written.at,
            remedy=f"The text has a view of {sigil('@', base)}; give the value of that one.",
        )
    return constant


def _is_given(constant: Constant, given: Constant) -> bool:
    """Whether a value that is given for a view is what the view shows."""
    if given.view is not None:
        return given == constant
    if constant.data is None or (given.dtype, given.shape) != (constant.dtype, constant.shape):
        return False
    return constant.on_its_own() == given
