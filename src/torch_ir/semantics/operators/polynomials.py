"""Orthogonal polynomials by their recurrences, of real numbers; 0 of negative degrees.

Integers and booleans are taken as float32; the degree is cut off to an integer. One that int64
does not hold is taken for a negative one, as processors convert it.

Source: NIST Digital Library of Mathematical Functions, 18.9; the pages of ``torch.special``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.pointwise import floating, is_real, pointwise, require_type
from torch_ir.semantics.registry import declare

Step = Callable[[int, Array, Array, Array], Array]
"""The polynomial of degree k + 1, of k, x and those of degrees k and k - 1."""
GREATEST = {"float32": 128, "float64": 512}
"""Degrees from which on Hermite's polynomials are NaN."""
MOST = 100_000
"""Steps that a recurrence takes: a number in a tensor is not to keep its reader for hours."""


def _doubled(k: int, x: Array, p: Array, before: Array) -> Array:
    return 2 * x * p - before


def _hermite(k: int, x: Array, p: Array, before: Array) -> Array:
    return 2 * x * p - 2 * k * before


def _hermite_e(k: int, x: Array, p: Array, before: Array) -> Array:
    return x * p - k * before


def _laguerre(k: int, x: Array, p: Array, before: Array) -> Array:
    return ((2 * k + 1 - x) * p - k * before) / (k + 1)


def _legendre(k: int, x: Array, p: Array, before: Array) -> Array:
    return ((2 * k + 1) * x * p - k * before) / (k + 1)


RECURRENCES: Mapping[str, tuple[Callable[[Array], Array], Step, str]] = {
    "chebyshev_polynomial_t": (lambda x: x, _doubled, "Chebyshev's of the first kind"),
    "chebyshev_polynomial_u": (lambda x: 2 * x, _doubled, "Chebyshev's of the second kind"),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, _doubled, "Chebyshev's of the third kind"),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, _doubled, "Chebyshev's of the fourth kind"),
    "hermite_polynomial_h": (lambda x: 2 * x, _hermite, "Hermite's of physicists"),
    "hermite_polynomial_he": (lambda x: x, _hermite_e, "Hermite's of statisticians"),
    "laguerre_polynomial_l": (lambda x: 1 - x, _laguerre, "Laguerre's"),
    "legendre_polynomial_p": (lambda x: x, _legendre, "Legendre's"),
}
"""The polynomial of degree 1, the recurrence, and whose polynomials they are."""
POLYNOMIALS: Mapping[str, tuple[str, ...]] = {
    name: tuple([f"aten.special_{name}.{kind}" for kind in ("default", "x_scalar", "n_scalar")])
    for known in RECURRENCES
    for name in ((known, f"shifted_{known}") if known.startswith("chebyshev") else (known,))
}
"""The overloads of each kind of polynomial."""


def by_recurrence(first: Callable[[Array], Array], step: Step, x: Array, degrees: Array) -> Array:
    """Compute polynomials of given degrees, each at its own number.

    Raises:
        InvalidIRError: A degree is greater than :data:`MOST`.
    """
    whole = np.where(degrees < 2.0**63, np.trunc(degrees), -1.0)
    if whole.max(initial=0) > MOST:
        raise InvalidIRError(
            f"a polynomial of degree {whole.max():g} takes more than {MOST} steps"
        )
    total = np.where(whole == 0, np.ones_like(x), np.zeros_like(x))
    before, p = np.ones_like(x), first(x)
    for k in range(1, int(whole.max(initial=0)) + 1):
        total = np.where(whole == k, p, total)
        before, p = p, step(k, x, p, before)
    return np.where(np.isnan(x) & (whole > 0), np.nan, total)


def _declare(name: str, first: Callable[[Array], Array], step: Step, text: str) -> None:
    is_shifted = name.startswith("shifted")

    def denoted(x: Array | float, n: Array | float) -> Array:
        require_type(name, is_real, x, n)
        dtype = floating(x, n)

        def of(values: Array, degrees: Array) -> Array:
            moved = 2 * values - 1 if is_shifted else values
            if not name.startswith("hermite"):
                return by_recurrence(first, step, moved, degrees)
            lost = (degrees >= GREATEST.get(dtype.name, 128)) & (degrees < 2.0**63)
            found = by_recurrence(first, step, moved, np.where(lost, 0, degrees))
            return np.where(lost, np.nan, found)

        return pointwise(of, x, n, dtype=dtype)

    where = "at ``2x − 1``" if is_shifted else "at ``x``"
    meaning = f"The polynomial of degree n of {text}, {where}."
    declare(denoted, meaning, *POLYNOMIALS[name])


for _name in POLYNOMIALS:
    _declare(_name, *RECURRENCES[_name.removeprefix("shifted_")])
