"""Measure how tight the bounds of ``torch_ir.semantics.tolerance`` are; write docs/thresholds.md.

For operators, element types, sizes and masks, over five seeds: the greatest error of torch's own
kernel as a part of its bound, and the share of elements in which a relative error of 8 units (of
the type's epsilon) would be seen. The exit status is 1 where a kernel is out of its bound.

Usage: ``python tools/measure_thresholds.py``
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semantics_calls import bound as named
from semantics_calls import to_numpy
from threshold_survey import section, survey
from torch_ir.semantics import denotation
from torch_ir.semantics.tolerance import bound, kind_of

PAGE = Path(__file__).parents[1] / "docs/thresholds.md"
SEEDS = 5
TYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZES = (4, 16, 48)
MASKS = (None, -1e4, -1e9)
SAMPLES = 8
Make = Callable[..., torch.Tensor]

INTRODUCTION = """\
# How tight tolerances are

Written by `make thresholds` (tools/measure_thresholds.py) in PyTorch {version} on the CPU. For
each operator and element type, over {seeds} seeds of normal random operands, at small, usual and
large sizes, masked and not: the greatest **error** of torch's own kernel as a part of what
[semantics.md](semantics.md#tolerances) allows (1 is the limit; 0 is equal to the bit), and the
share of elements (normal numbers) in which a planted relative error of 8 ε of the type is
**seen**; of `softmax` and `gelu` in float32 of 32 ε. Errors are measured on positive operands,
too, whose sums do not cancel. Where they do cancel, what is small beside its terms cannot be
told from rounding in float32. Averages are pooled from positive operands, as after a `relu`. A
mask is put on a part of each row: {masks}.

| operator | rule | {columns} |
|---|---|{rule}|
"""


@dataclass(frozen=True, slots=True)
class Case:
    """An operator and how its arguments are made, from random tensors, a size and a mask."""

    op_type: str
    arguments: Callable[[Make, int, float | None], tuple[Any, ...]]
    masked: bool = False

    def units(self, dtype: torch.dtype) -> int:
        """How many units the planted error is."""
        coarse = self.op_type in ("aten._softmax.default", "aten.gelu.default")
        return 32 if coarse and dtype == torch.float32 else 8


def masked(make: Make, size: int, mask: float | None, width: int) -> torch.Tensor:
    """Random rows, of which the second half is masked out."""
    rows = make(8, width * size)
    if mask is not None:
        rows[:, width * size // 2 :] = mask
    return rows


def attention(make: Make, size: int, mask: float | None) -> tuple[Any, ...]:
    """Operands of two heads, and a mask for the last third of the keys."""
    query, key, value = make(1, 2, size, 32), make(1, 2, 2 * size, 32), make(1, 2, 2 * size, 32)
    if mask is None:
        return query, key, value
    added = torch.zeros(1, 1, size, 2 * size, dtype=query.dtype)
    added[..., size:] = mask
    return query, key, value, added


def _elementwise() -> Iterator[Case]:
    for name in (
        "exp",
        "tanh",
        "erf",
        "sigmoid",
        "silu",
        "gelu",
        "mish",
        "softplus",
        "sin",
        "elu",
    ):
        yield Case(f"aten.{name}.default", lambda make, n, _: (make(n, 64),))
    for name in ("sqrt", "log", "rsqrt", "reciprocal", "logit"):
        yield Case(f"aten.{name}.default", lambda make, n, _: (make(n, 64).sigmoid(),))
    for name in ("add", "mul", "div", "atan2"):
        overload = "default" if name == "atan2" else "Tensor"
        yield Case(f"aten.{name}.{overload}", lambda make, n, _: (make(n, 64), make(n, 64)))
    yield Case("aten.lerp.Scalar", lambda make, n, _: (make(n, 64), make(n, 64), 0.3))
    yield Case("aten.addcmul.default", lambda make, n, _: (make(n, 64), make(n, 64), make(n, 64)))
    yield Case("aten.pow.Tensor_Scalar", lambda make, n, _: (make(n, 64).abs(), 2.5))


def _sums() -> Iterator[Case]:
    yield Case("aten.mm.default", lambda make, n, _: (make(n, 8 * n), make(8 * n, n)))
    yield Case("aten.bmm.default", lambda make, n, _: (make(2, n, 8 * n), make(2, 8 * n, n)))
    yield Case("aten.addmm.default", lambda make, n, _: (make(n), make(n, 8 * n), make(8 * n, n)))
    yield Case("aten.linear.default", lambda make, n, _: (make(n, 384), make(n, 384), make(n)))
    yield Case(
        "aten.convolution.default",
        lambda make, n, _: (
            *(make(1, n, 12, 12), make(n, n, 3, 3), make(n)),
            *([1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        ),
    )
    for name in ("sum.dim_IntList", "mean.dim"):
        yield Case(f"aten.{name}", lambda make, n, _: (make(8, 64 * n), [1]))
    yield Case("aten.cumsum.default", lambda make, n, _: (make(8, 16 * n), 1))
    yield Case("aten.avg_pool2d.default", lambda make, n, _: (make(1, 4, n, n).abs(), [2, 2]))
    yield Case("aten.prod.dim_int", lambda make, n, _: (make(8, n), 1))


def _rows() -> Iterator[Case]:
    for name in ("_softmax", "_log_softmax"):
        yield Case(
            f"aten.{name}.default",
            lambda make, n, mask: (masked(make, n, mask, 21), 1, False),
            masked=True,
        )
    yield Case(
        "aten.logsumexp.default",
        lambda make, n, mask: (masked(make, n, mask, 21), [1]),
        masked=True,
    )
    yield Case("aten.scaled_dot_product_attention.default", attention, masked=True)
    yield Case(
        "aten.native_layer_norm.default",
        lambda make, n, _: (make(8, 16 * n), [16 * n], make(16 * n), make(16 * n), 1e-5),
    )
    yield Case(
        "aten.native_group_norm.default",
        lambda make, n, _: (make(2, 8, n, n), make(8), make(8), 2, 8, n * n, 4, 1e-5),
    )
    yield Case(
        "aten._native_batch_norm_legit_no_training.default",
        lambda make, n, _: (
            *(make(2, 8, n, n), make(8), make(8), make(8), make(8).abs() + 0.5),
            *(0.1, 1e-5),
        ),
    )
    yield Case("aten._fused_rms_norm.default", lambda make, n, _: (make(8, n), [n], make(n), 1e-5))
    yield Case("aten.var.correction", lambda make, n, _: (make(8, 16 * n), [1]))
    yield Case("aten.linalg_vector_norm.default", lambda make, n, _: (make(8, 16 * n), 2, [1]))
    for name in ("upsample_bilinear2d", "upsample_bicubic2d"):
        yield Case(
            f"aten.{name}.default",
            lambda make, n, _: (make(1, 2, 4 * n, 4 * n), [7 * n // 2, 5 * n], False),
        )


def cases() -> tuple[Case, ...]:
    """Every case."""
    return (*_elementwise(), *_sums(), *_rows())


def measured(case: Case, dtype: torch.dtype) -> tuple[float, float]:
    """The greatest part of the bound, and the least share of elements, over sizes and masks."""
    part, least = 0.0, 1.0
    for mask in MASKS if case.masked else MASKS[:1]:
        if mask is not None and mask < torch.finfo(dtype).min:
            continue
        seen: list[np.ndarray[Any, Any]] = []
        for size in SIZES:
            for seed in range(SEEDS):
                generator = torch.Generator().manual_seed(seed)

                def make(*shape: int, draws: torch.Generator = generator) -> torch.Tensor:
                    return torch.randn(shape, generator=draws).to(dtype)

                worst, found = once(case, case.arguments(make, size, mask), dtype)
                seen.append(found)

                def positive(*shape: int, draws: torch.Generator = generator) -> torch.Tensor:
                    return torch.randn(shape, generator=draws).abs().to(dtype)

                others, _ = once(case, case.arguments(positive, size, mask), dtype)
                part = max(part, worst, others)
        least = min(least, float(np.concatenate(seen).mean()))
    return part, least


def once(
    case: Case, args: tuple[Any, ...], dtype: torch.dtype
) -> tuple[float, np.ndarray[Any, Any]]:
    """One call: the part of the bound, and of each element whether a planted error is seen."""
    namespace, base, overload = case.op_type.split(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), base), overload)
    arguments = {name: to_numpy(value) for name, value in named(operator, args, {}).items()}
    with np.errstate(all="ignore"):
        meant = denotation(case.op_type).function(**arguments)
    results = list(meant) if isinstance(meant, tuple) else [meant]
    given = to_numpy(operator(*args))
    theirs = list(given) if isinstance(given, tuple | list) else [given]
    allowed = bound(case.op_type, arguments, results) or []
    first, second = results[0].astype("float64"), theirs[0].astype("float64")
    differs = first != second
    parts = np.abs(first - second)[differs] / allowed[0][differs]
    counted = (np.abs(first) >= torch.finfo(dtype).smallest_normal) & np.isfinite(first)
    sizes, limits = np.abs(first[counted]), allowed[0][counted]
    planted = case.units(dtype) * torch.finfo(dtype).eps * sizes
    return float(parts.max(initial=0)), planted > limits


def main() -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = [str(dtype).removeprefix("torch.") for dtype in TYPES]
    columns = " | ".join(f"{name}: error | seen" for name in names)
    text = INTRODUCTION.format(
        version=torch.__version__.partition("+")[0],
        seeds=SEEDS,
        masks=", ".join(f"{mask:g}" for mask in MASKS if mask is not None),
        columns=columns,
        rule="---:|---:|" * (len(names) - 1) + "---:|---:",
    )
    worst = 0.0
    for case in cases():
        row = [measured(case, dtype) for dtype in TYPES]
        worst = max(worst, *(part for part, _ in row))
        shown = " | ".join(f"{part:.2f} | {seen:.0%}" for part, seen in row)
        text += f"| `{case.op_type}` | {kind_of(case.op_type)} | {shown} |\n"
    found = survey(TYPES, SAMPLES)
    PAGE.write_text(text + section(found, SAMPLES), encoding="utf-8")
    return int(worst > 1 or any(f.verdict == "vacuous" for f in found.values()))


if __name__ == "__main__":
    sys.exit(main())
