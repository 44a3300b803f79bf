"""Tolerances: stated for each overload, within what kernels do, and no wider than a fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import torch_ir
from semantics.compare import as_numpy, denoted, operator, recorded_schema
from semantics.samples import ordinary
from torch_ir.errors import InvalidIRError
from torch_ir.semantics import denotation, denoted_operators, denotes
from torch_ir.semantics.bounds.table import RULES
from torch_ir.semantics.tolerance import bound, kind_of, spacing, states_tolerance

UNIT = 2.0**-23
HALF = (torch.float16, torch.bfloat16)


def bounds_of(op_type: str, *args: Any, **kwargs: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """What a call means, what torch gives for it, both in float64, and how far that may be off."""
    schema = recorded_schema(op_type)
    names = [argument.name for argument in schema.arguments]
    arguments = {
        n: as_numpy(v) for n, v in {**dict(zip(names, args, strict=False)), **kwargs}.items()
    }
    meant, got = denoted(op_type, *args, **kwargs), operator(op_type)(*args, **kwargs)
    mine = list(meant) if isinstance(meant, tuple) else [meant]
    theirs = list(got) if isinstance(got, tuple | list) else [got]
    allowed = bound(op_type, arguments, mine)
    assert allowed is not None
    return [m.astype("float64") for m in mine], [t.double().numpy() for t in theirs], allowed


def parts_of(op_type: str, *args: Any, **kwargs: Any) -> float:
    """The greatest error of torch's kernel as a part of what is allowed."""
    meant, got, allowed = bounds_of(op_type, *args, **kwargs)
    parts = [
        (np.abs(m - g)[m != g] / a[m != g]).max(initial=0.0)
        for m, g, a in zip(meant, got, allowed, strict=True)
    ]
    return float(max(parts))


# -- the table ------------------------------------------------------------------------------------


def test_each_overload_is_in_the_table_and_no_other() -> None:
    ours = {op for op in denoted_operators() if _is_ours(op)}
    assert set(RULES) == ours


def _is_ours(op_type: str) -> bool:
    return denotation(op_type).function.__module__.startswith("torch_ir.semantics.operators.")


def test_what_is_not_denoted_has_no_tolerance() -> None:
    with pytest.raises(InvalidIRError) as caught:
        bound("aten.vieww.default", {}, [])
    assert str(caught.value).startswith("aten.vieww.default has no denotation")


def test_each_rule_has_its_reason() -> None:
    assert all(rule.__doc__ for rule in RULES.values())


# -- denotations of other packages ----------------------------------------------------------------


def test_a_name_like_one_of_ours_says_nothing() -> None:
    @denotes("tolerancetest.relu.default")
    def matmul(x: Any) -> Any:
        return x

    x = np.ones(2, "f4")
    assert not states_tolerance("tolerancetest.relu.default")
    assert kind_of("tolerancetest.relu.default") == ""
    assert bound("tolerancetest.relu.default", {"x": x}, [matmul(x)]) is None


def test_a_kind_or_a_function_states_it() -> None:
    @torch_ir.denotes("tolerancetest.softclip.default", tolerance="function")
    def softclip(x: Any) -> Any:
        return np.tanh(x)

    def own(arguments: Mapping[str, Any], results: Sequence[Any]) -> list[Any]:
        return [0.5 * np.abs(arguments["x"])]

    denotes("tolerancetest.own.default", tolerance=own)(lambda x: x)
    x = np.array([1.0, -2.0], "f4")
    (first,) = bound("tolerancetest.softclip.default", {"x": x}, [softclip(x)]) or []
    assert (first / spacing(softclip(x)) <= 8).all()
    (second,) = bound("tolerancetest.own.default", {"x": x}, [x]) or []
    assert second.tolist() == [0.5, 1.0]


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidIRError) as caught:
        denotes("tolerancetest.other.default", tolerance="rouded")  # type: ignore[arg-type]  # the fault
    assert "rounded" in str(caught.value)


# -- primitives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op_type", ["aten.cat.default", "aten.neg.default", "aten.amax.default"])
def test_moved_and_chosen_elements_are_equal(op_type: str) -> None:
    assert kind_of(op_type) in ("exact", "")
    x = ordinary(torch.float32, 4, 3)
    args = ([x, x],) if op_type == "aten.cat.default" else (x,)
    _, _, (allowed,) = bounds_of(op_type, *args)
    assert not allowed.any()


def test_integers_are_equal() -> None:
    x = ordinary(torch.int64, 3, 3)
    _, _, (allowed,) = bounds_of("aten.mm.default", x, x)
    assert not allowed.any()


def test_cancelled_terms_still_count() -> None:
    """1000 - 1000 is 0, but a kernel may be off by what it rounded on the way."""
    x, y = torch.tensor([[1e3, 1e3]]), torch.tensor([[1.0], [-1.0]])
    (meant,), _, (allowed,) = bounds_of("aten.mm.default", x, y)
    assert meant.item() == 0
    assert 1000 * UNIT < allowed.item() < 5000 * UNIT


def test_what_overflows_on_the_way_is_open() -> None:
    x = torch.tensor([[3e38, 3e38]])
    _, _, (allowed,) = bounds_of("aten.mm.default", x, torch.tensor([[1.0], [-1.0]]))
    assert allowed.item() == np.inf


def test_a_unit_in_the_last_place() -> None:
    values = np.array([1, -1.5, 2, 1e-30], "f4")
    assert spacing(values).tolist() == [UNIT, UNIT, 2 * UNIT, 2.0**-123]
    assert spacing(np.array([3 + 4j], "complex64")).tolist() == [4 * UNIT]


def test_a_unit_near_zero_is_what_kernels_flush() -> None:
    assert spacing(np.array([0, 1e-38, 1e-45], "f4")).tolist() == [2.0**-125] * 3
    assert spacing(np.array([0, 1e-7], "f2")).tolist() == [2.0**-24] * 2


def test_a_mean_in_a_narrower_type_rounds_what_it_adds():
    ir = torch_ir.parse(
        "ir {\n  input %x: f32[4]\n"
        "  %y: f16[] = aten.mean.dim(%x, dim=[0], dtype=torch.float16)\n  return %y\n}"
    )
    for seed in range(10):
        x = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        report = torch_ir.compare(ir, {}, (x - x.mean(),))
        assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", HALF)
def test_kernels_that_keep_a_sum_in_half_a_word_are_within_bounds(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for size in (1, 2, 3, 8, 40):
        for offset in (0, 60):
            x = (torch.randn(60, size, generator=generator) * 3 + offset).to(dtype)
            parts = [parts_of("aten.log_softmax.int", row, 0) for row in x]
            worst = max(worst, *parts, parts_of("aten._log_softmax.default", x, 1, False))
    assert 0.25 < worst <= 1
