"""Compare what an operator means with what torch's kernel gives.

``from semantics.compare import check, refused``
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from torch_ir.errors import InvalidIRError
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ops.schema import Schema, lookup
from torch_ir.semantics import denotation
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import is_complex, is_float

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from semantics_calls import to_numpy as as_numpy  # the path comes first

NOT_GIVEN = (
    "device",
    "layout",
    "pin_memory",
    "memory_format",
    "generator",
    "non_blocking",
)


def operator(op_type: str) -> Any:
    """torch's operator of an exact overload, ``aten.add.Tensor``."""
    namespace, base, overload = op_type.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload)


def recorded_schema(op_type: str) -> Schema:
    """The schema with the names that programs have, whichever torch runs."""
    schema = lookup(op_type)
    assert schema is not None
    return schema


def is_held(dtype: torch.dtype) -> bool:
    """Whether programs can hold tensors of a type: torch 2.14 has more than torch 2.13."""
    return str(dtype).removeprefix("torch.") in DTYPES


def denoted(op_type: str, *args: Any, **kwargs: Any) -> Any:
    """What the denotation gives for torch's arguments; it must not write to them."""
    schema = recorded_schema(op_type)
    given = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)}
    numpy_arguments = {
        name: as_numpy(value) for name, value in (given | kwargs).items() if name not in NOT_GIVEN
    }
    before = {name: _copied(value) for name, value in numpy_arguments.items()}
    found = denotation(op_type)
    more: dict[str, Any] = {"draws": Draws(0, "node")} if found.draws else {}
    result = found.function(**numpy_arguments, **more)
    for name, value in numpy_arguments.items():
        assert _same_bytes(value, before[name]), f"{op_type} writes to its argument {name}"
    return result


def check(op_type: str, *args: Any, ulp: float = 0, atol: float = 0, **kwargs: Any) -> None:
    """Assert that the denotation gives what torch gives for the same arguments.

    Types and shapes must be equal. Values must be equal, NaN where torch has NaN; zeros of one
    sign where ``ulp`` is 0. Else they differ by no more than ``ulp`` units in the last place of
    the value (of the modulus, for complex numbers) or by ``atol``.
    """
    expected = operator(op_type)(*_cloned(args), **_cloned(kwargs))
    got = denoted(op_type, *args, **kwargs)
    call = ", ".join([*map(_text, args), *(f"{key}={_text(kwargs[key])}" for key in kwargs)])
    compare(got, expected, ulp=ulp, atol=atol, where=f"{op_type}({call})")


def compare(got: Any, expected: Any, *, ulp: float = 0, atol: float = 0, where: str = "") -> None:
    """Assert that a denotation's result is torch's, within the tolerance of :func:`check`."""
    if isinstance(expected, (list, tuple)):
        assert isinstance(got, (list, tuple)), f"{where}: got one result"
        assert len(got) == len(expected), f"{where}: {len(got)} results, not {len(expected)}"
        for mine, theirs in zip(got, expected, strict=True):
            compare(mine, theirs, ulp=ulp, atol=atol, where=where)
    elif isinstance(expected, torch.Tensor):
        assert isinstance(got, np.ndarray), f"{where}: got {type(got).__name__}, no array"
        _compare_arrays(got, as_numpy(expected), ulp, atol, where)
    elif isinstance(expected, float) and expected != expected:
        assert isinstance(got, float), where
        assert got != got, where
    else:
        assert (type(got), got) == (type(expected), expected), f"{where}: {got} != {expected}"


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else repr(value)


def agree(op_type: str, *args: Any, **kwargs: Any) -> None:
    """Assert that torch and the denotation refuse the arguments both, or give the same.

    For what versions of torch do not do alike.
    """
    try:
        operator(op_type)(*_cloned(args), **_cloned(kwargs))
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        refused(op_type, *args, **kwargs)
    else:
        check(op_type, *args, **kwargs)


def refused(op_type: str, *args: Any, **kwargs: Any) -> str:
    """Assert that torch and the denotation both refuse the arguments; the latter's message."""
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)):
        operator(op_type)(*_cloned(args), **_cloned(kwargs))
    with pytest.raises(InvalidIRError) as caught:
        denoted(op_type, *args, **kwargs)
    return str(caught.value)


def _compare_arrays(
    got: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    ulp: float,
    atol: float,
    where: str,
) -> None:
    assert got.dtype == expected.dtype, f"{where}: {got.dtype}, torch has {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: {got.shape}, torch has {expected.shape}"
    if not (is_float(got.dtype) or is_complex(got.dtype)):
        np.testing.assert_array_equal(got, expected, err_msg=where)
        return
    wide = "complex128" if is_complex(got.dtype) else "float64"
    with np.errstate(all="ignore"):
        mine, theirs = got.astype(wide), expected.astype(wide)
        equal = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        error = np.where(equal, 0.0, np.abs(mine - theirs))
        unit = spacing(np.abs(theirs), expected.dtype)
    wrong = ~(error <= np.maximum(ulp * unit, atol))  # true where one is NaN
    if wrong.any():
        worst = np.unravel_index(np.argmax(np.where(wrong, _finite(error), -1)), error.shape)
        raise AssertionError(
            f"{where}: {np.count_nonzero(wrong)} differ; at {[int(i) for i in worst]} "
            f"{got[worst]}, torch has {expected[worst]}: {error[worst] / unit[worst]:.3g} ulp"
        )
    if not (ulp or atol):
        for part in ("real", "imag") if is_complex(got.dtype) else ("real",):
            signs = [np.signbit(getattr(x, part)) | np.isnan(theirs) for x in (mine, theirs)]
            np.testing.assert_array_equal(*signs, err_msg=f"{where}: the sign of a zero")


def _finite(error: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(np.isnan(error), np.inf, error)


def spacing(magnitudes: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """One unit in the last place of each magnitude (float64), were it of the element type.

    Of what is less than twice the least normal number (of float32, for half precision), all of
    that: vector kernels may make it 0.
    """
    real = {"complex128": "float64", "complex64": "float32"}.get(dtype.name, dtype)
    info: Any = ml_dtypes.finfo(np.dtype(real))
    least = float(info.smallest_subnormal)
    _, exponents = np.frexp(np.minimum(magnitudes, float(info.max)))
    units = np.maximum(np.ldexp(1.0, exponents - 1 - info.nmant), least)
    normal = float(np.finfo("float64" if info.bits == 64 else "float32").smallest_normal)
    return np.asarray(np.where(magnitudes < 2 * normal, max(2 * normal, least), units))


def _cloned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    return type(value)(map(_cloned, value)) if isinstance(value, (list, tuple)) else value


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return type(value)(map(_copied, value)) if isinstance(value, (list, tuple)) else value


def _same_bytes(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return first.tobytes() == second.tobytes()
    if isinstance(first, (list, tuple)):
        return all(map(_same_bytes, first, second))
    return True
