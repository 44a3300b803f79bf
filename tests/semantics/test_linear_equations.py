"""Linear equations: torch's factors and solutions within bounds that planted errors exceed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import as_numpy, denoted, operator
from semantics.test_tolerance import bounds_of
from torch_ir.errors import InvalidIRError
from torch_ir.semantics import denotation
from torch_ir.semantics.tolerance import bound

DTYPES = (torch.float32, torch.float64, torch.complex64)
SIZES = [(1,), (3,), (20,), (2, 5), (0,)]
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def _factorizations(matrix: torch.Tensor, given: torch.Tensor) -> Iterator[Call]:
    for turned in (matrix, matrix.mT.contiguous().mT):
        yield "_linalg_det.default", (turned,), {}
        yield "_linalg_slogdet.default", (turned,), {}
        yield "linalg_lu_factor_ex.default", (turned,), {}
        yield "linalg_lu.default", (turned,), {}
        yield "linalg_matrix_exp.default", (turned,), {}
        if given.numel():
            yield "linalg_inv_ex.default", (turned,), {}
            yield "_linalg_solve_ex.default", (turned, given), {}
            yield "_linalg_solve_ex.default", (turned, given.mT.contiguous()), {"left": False}


def _solutions(matrix: torch.Tensor, given: torch.Tensor) -> Iterator[Call]:
    size = matrix.shape[-1]
    yield "_linalg_solve_ex.default", (matrix, given[..., 0]), {}
    tall = torch.cat([matrix, matrix[..., :1, :] + 1], -2)
    for oblong in (tall, tall.mT.contiguous()):
        yield "linalg_lu_factor_ex.default", (oblong,), {}
        yield "linalg_lu.default", (oblong,), {}
    factors, pivots, _ = torch.ops.aten.linalg_lu_factor_ex(matrix)
    for asked in ((True, True), (True, False), (False, True)):
        yield "lu_unpack.default", (factors, pivots, *asked), {}
    positive = matrix @ matrix.mH + torch.eye(size, dtype=matrix.dtype)
    lower = torch.linalg.cholesky(positive)
    for flag in (False, True):
        turned = given.mT.contiguous()
        yield "linalg_lu_solve.default", (factors, pivots, given), {"adjoint": flag}
        how = {"adjoint": flag, "left": False}
        yield "linalg_lu_solve.default", (factors, pivots, turned), how
        yield "linalg_cholesky_ex.default", (positive,), {"upper": flag}
        if hasattr(torch.ops.aten, "cholesky"):  # not from torch 2.14 on
            yield "cholesky.default", (positive, flag), {}
        factor = lower.mH if flag else lower
        yield "cholesky_solve.default", (given, factor, flag), {}
        yield "cholesky_inverse.default", (factor, flag), {}
        triangle = matrix + 4 * torch.eye(size, dtype=matrix.dtype)
        for unit in (False, True):
            how = {"upper": flag, "unitriangular": unit}
            yield "linalg_solve_triangular.default", (triangle, given), how
            yield "linalg_solve_triangular.default", (triangle, turned), {**how, "left": False}
            yield "triangular_solve.default", (given, triangle, flag, unit, unit), {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
def test_own_errors_are_within_bounds_that_planted_ones_exceed(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    parts: dict[str, float] = {}
    missed: dict[str, float] = {}
    for sizes in SIZES:
        matrix = torch.randn(*sizes, sizes[-1], dtype=dtype, generator=generator)
        given = torch.randn(*sizes, 2, dtype=dtype, generator=generator)
        calls = list(_factorizations(matrix, given))
        calls += _solutions(matrix, given) if given.numel() else ()
        for name, args, kwargs in calls:
            meant, got, allowed = bounds_of(f"aten.{name}", *args, **kwargs)
            for want, have, most in zip(meant, got, allowed, strict=True):
                off = np.abs(want - have)
                assert want.shape == have.shape
                assert (off <= most).all(), (name, sizes, kwargs)
                judged = np.isfinite(most) & (most > 0) & (np.abs(want) > 0.1)
                if not judged.any():
                    continue
                parts[name] = max(parts.get(name, 0), float((off / most)[judged].max()))
                if sizes[-1] <= 5:
                    planted = np.maximum(1e-3 * np.abs(want), 1e-3)
                    share = float(np.mean((most > planted)[judged]))
                    missed[name] = max(missed.get(name, 0), share)
    assert {name for name, part in parts.items() if part > 1} == set()
    assert {name: share for name, share in missed.items() if share > 0.05} == {}
    if dtype == torch.float32:
        tight = [part for part in parts.values() if part > 0.01]
        assert len(tight) >= len(parts) - 2, parts


@pytest.mark.filterwarnings("ignore")
def test_batches_of_matrices_and_of_right_sides_broadcast() -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(1, 2, 3, 3, generator=generator)
    given = torch.randn(2, 1, 3, 3, generator=generator)
    solutions = [
        call for call in _solutions(matrix, given) if call[0] != "_linalg_solve_ex.default"
    ]
    solutions.append(("_linalg_solve_ex.default", (matrix, given), {}))
    for name, args, kwargs in solutions:
        meant, got, allowed = bounds_of(f"aten.{name}", *args, **kwargs)
        if "solve" in name:
            assert got[0].shape == (2, 2, 3, 3)
        for want, have, most in zip(meant, got, allowed, strict=True):
            assert want.shape == have.shape, name
            assert (np.abs(want - have) <= most).all(), name


def test_what_has_no_solution_is_open() -> None:
    singular = torch.ones(3, 3)
    for name in ("linalg_inv_ex", "_linalg_slogdet"):
        _, _, allowed = bounds_of(f"aten.{name}.default", singular)
        assert np.isinf(allowed[0]).all()
    meant, got, (most, *_) = bounds_of("aten._linalg_det.default", singular)
    assert meant[0] == 0
    assert abs(got[0]) <= most < 1e-5
    halved = torch.arange(1.0, 9.0).outer(torch.linspace(0.1, 3.7, 8))  # rank 1: no minor is not 0
    meant, got, (most, *_) = bounds_of("aten._linalg_det.default", halved)
    assert abs(got[0] - meant[0]) <= most < 1e-3
    negative = torch.eye(3) * torch.tensor([1.0, -2.0, 1.0])
    (_, info), (_, told), _ = bounds_of("aten.linalg_cholesky_ex.default", negative)
    assert info == told == 2
    with pytest.raises(InvalidIRError, match="order 2 is not positive"):
        denotation("aten.cholesky.default").function(negative.numpy())
    with pytest.raises(InvalidIRError, match="solve: info is 2"):
        denotation("aten._linalg_check_errors.default").function(info, "solve", is_matrix=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_singular_factors_have_a_meaning_and_no_bound(left: bool, adjoint: bool) -> None:
    factors, pivots = torch.zeros(2, 2), torch.tensor([1, 2], dtype=torch.int32)
    call = "aten.linalg_lu_solve.default", factors, pivots, torch.ones(2, 2)
    (meant,), (got,), (most,) = bounds_of(*call, left=left, adjoint=adjoint)
    assert not np.isfinite(meant).any()
    assert (np.isfinite(got) == np.isfinite(meant)).all()
    assert np.isinf(most).all()


def test_pivots_that_nearly_tie_are_open() -> None:
    near = torch.tensor([[1.0, 2.0], [1.0 - 2**-24, 5.0]])
    _, _, allowed = bounds_of("aten.linalg_lu_factor_ex.default", near)
    assert all(np.isinf(most).all() for most in allowed)
    apart = torch.tensor([[1.0, 2.0], [0.9, 5.0]])
    _, _, (factors, pivots, _) = bounds_of("aten.linalg_lu_factor_ex.default", apart)
    assert np.isfinite(factors).all()
    assert not pivots.any()


@pytest.mark.parametrize("upper", [False, True])
def test_a_cholesky_factor_that_stops_is_open_and_where_it_stops_is_not(upper: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    square = torch.randn(20, 4, 4, generator=generator)
    definite = square @ square.mT + torch.eye(4)
    dipped = definite - torch.diag(torch.tensor([0.0, 0.0, 90.0, 0.0]))
    ranked = square[..., :1] @ square[..., :1].mT
    for matrices in (definite, -definite, dipped, ranked, torch.ones(1, 4, 4)):
        call = "aten.linalg_cholesky_ex.default", matrices
        (factor, info), (_, found), (most, around) = bounds_of(*call, upper=upper)
        stops = info > 0
        assert factor.shape == most.shape
        assert (np.isinf(most).all((-2, -1)) | ~stops).all()
        assert (np.isinf(around) | (info == found)).all()
        assert not np.isinf(around).all() or matrices is ranked or len(matrices) == 1
    assert np.isinf(around).all()
    empty = torch.ones(2, 0, 0)
    assert not np.isinf(bounds_of("aten.linalg_cholesky_ex.default", empty)[2][1]).any()


@pytest.mark.parametrize("name", ["_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"])
def test_factors_beside_a_solution_are_those_of_the_matrix_as_it_lies(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(2, 4, 4, generator=generator)
    given = (torch.randn(2, 4, 3, generator=generator),) if "solve" in name else ()
    for turned in (matrix, matrix.mT.contiguous().mT):
        meant, got, allowed = bounds_of(f"aten.{name}.default", turned, *given)
        for want, have, most in zip(meant[1:], got[1:], allowed[1:], strict=True):
            assert np.isfinite(most).all()
            assert (np.abs(want.astype("f8") - have.astype("f8")) <= most).all()
        factors = next(i for i, part in enumerate(meant) if i and part.shape == matrix.shape)
        assert (allowed[factors] < 1e-4 * np.abs(meant[factors]).max()).all()


def test_an_exponential_of_terms_of_both_signs_is_bounded_by_its_own_size() -> None:
    matrix = torch.randn(5, 5, generator=torch.Generator().manual_seed(0)) * 9
    (meant,), (got,), (most,) = bounds_of("aten.linalg_matrix_exp.default", matrix)
    assert (np.abs(meant - got) <= most).all()
    assert (most < 1e-3 * np.abs(meant).max()).all()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32, torch.float64])
@pytest.mark.parametrize("upper", [False, True])
def test_a_singular_matrix_may_have_a_cholesky_factor(dtype: torch.dtype, upper: bool) -> None:
    op_type, matrix = "aten.cholesky.default", torch.full((2, 2), 0.7, dtype=dtype)
    factor = denoted(op_type, matrix, upper)
    (allowed,) = bound(op_type, {"self": as_numpy(matrix), "upper": upper}, [factor]) or []
    assert np.isinf(allowed).all()
    matrix[1, 1] = 0.6
    with pytest.raises(InvalidIRError, match="order 2 is not positive"):
        denoted(op_type, matrix, upper)


@pytest.mark.parametrize("rows", [5])
def test_a_complex_solution_by_a_factor_is_bound_by_complex_roundings(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        matrix = torch.randn(rows, rows, dtype=torch.complex64, generator=generator)
        factor = torch.linalg.cholesky(matrix @ matrix.mH + rows * torch.eye(rows))
        given = torch.randn(rows, 3, dtype=torch.complex64, generator=generator)
        arguments = {"self": as_numpy(given), "input2": as_numpy(factor)}
        meant = denoted("aten.cholesky_solve.default", given, factor)
        got = operator("aten.cholesky_solve.default")(given, factor).numpy()
        (allowed,) = bound("aten.cholesky_solve.default", arguments, [meant]) or []
        assert (np.abs(got - meant) <= allowed).all()
        assert np.median(allowed / np.abs(meant)) < (4 * rows + 4) * 2.0**-23


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_overflows_or_is_nothing_on_the_way_to_a_solution_is_open(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    signs = torch.randn(12, 12, dtype=dtype, generator=generator).sign()
    parts = (0.5 + torch.rand(12, 12, dtype=dtype, generator=generator) / 2) * signs
    largest, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny / 4
    for matrix in (parts * largest, parts * least):
        for name, given in (("linalg_inv_ex", ()), ("_linalg_solve_ex", (matrix[:, :2],))):
            _, _, (allowed, *_) = bounds_of(f"aten.{name}.default", matrix, *given)
            assert np.isinf(allowed).all()
        _, _, allowed = bounds_of("aten.linalg_lu_factor_ex.default", matrix)
        assert np.isinf(allowed[1]).all()
