"""The constants of a program as a whole: which of them share their data, and what they need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torch_ir.errors import InvalidIRError, counted, did_you_mean
from torch_ir.ir.tensor import Constant, ConstantView
from torch_ir.ir.values import dtype_name


def needed_constants(
    constants: Mapping[str, Constant], keys: Iterable[str]
) -> dict[str, Constant]:
    """Return the constants of these keys, and the bases of those that are views.

    Whoever drops constants keeps these.

    Args:
        constants: Constants by key, as in ``ir.constants``.
        keys: Those that are wanted; keys of something else are passed over.

    Example:
        >>> from torch_ir.ir import Constant
        >>> table = Constant.from_list([1, 2, 3, 4], "int64")
        >>> view = table.view_of("table", (2,), strides=(1,))
        >>> list(needed_constants({"other": table, "row": view, "table": table}, ["row"]))
        ['row', 'table']
    """
    wanted = set(keys)
    views = [constants[key].view for key in wanted if key in constants]
    wanted.update(view.base for view in views if view is not None)
    return {key: constant for key, constant in constants.items() if key in wanted}


def bound_view(
    constants: Mapping[str, Constant],
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    view: ConstantView,
) -> Constant:
    """Make a view of one of the constants.

    Args:
        constants: Constants by key, as in ``ir.constants``.
        name: What to call it in errors.
        dtype: Its element type.
        shape: Its dimensions.
        view: Where its values lie.

    Raises:
        InvalidIRError: It cannot be one: there is no such base, or the base is a view, has another
            dtype, or has fewer elements.
    """
    fault = _misfit(constants, name, dtype, shape, view)
    if fault is not None:
        raise fault
    base = constants[view.base]
    return base.view_of(view.base, shape, strides=view.strides, offset=view.offset)


def view_fault(constants: Mapping[str, Constant], key: str) -> InvalidIRError | None:
    """Describe what is wrong with a view among the constants; None if nothing is.

    Args:
        constants: Constants by key, as in ``ir.constants``.
        key: The key of one of them.
    """
    constant, name = constants[key], f"the constant {key!r}"
    if constant.view is None:
        return None
    fault = _misfit(constants, name, constant.dtype, constant.shape, constant.view)
    if fault is None and not constant.has_data_of(constants[constant.view.base]):
        fault = InvalidIRError(
            f"{name} is a view of {constant.view.base!r}, which has other values now",
            remedy="Make it anew with view_of() of its base, or drop the view with on_its_own().",
        )
    return fault


def view_of_view(name: str, base: str, first: str) -> InvalidIRError:
    """Return the error that a constant is a view of a view, which is one of ``first``."""
    return InvalidIRError(
        f"{name} is a view of {base!r}, which is itself a view",
        remedy=f"Say where its values lie in {first!r}.",
    )


def _misfit(
    constants: Mapping[str, Constant],
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    view: ConstantView,
) -> InvalidIRError | None:
    base = constants.get(view.base)
    if base is None:
        hint = did_you_mean(view.base, constants)
        return InvalidIRError(
            f"{name} is a view of {view.base!r:.80}, which is no constant",
            remedy=hint or "Keep the base with its views, or drop the view with on_its_own().",
        )
    if base.view is not None:
        return view_of_view(name, view.base, base.view.base)
    if base.dtype != dtype_name(dtype):
        return InvalidIRError(
            f"{name} is {dtype_name(dtype)}, and a view of {view.base!r}, which is {base.dtype}",
            remedy="A view has the dtype of its base.",
        )
    if len(view.strides) == len(shape) and view.end(shape) > math.prod(base.shape):
        place = "begins" if 0 in shape else "ends"
        position = view.offset if 0 in shape else view.end(shape) - 1
        elements = counted(math.prod(base.shape), "element")
        return InvalidIRError(
            f"{name} {place} at element {position} of {view.base!r}, which has {elements}",
            remedy="Strides and offset count elements of the base, from 0.",
        )
    return None
