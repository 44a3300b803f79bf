"""Compare torch's own kernels with what their operators mean, on random calls of every operator.

Of each operator that :func:`torch_ir.debug.random_program` calls, in each element type, calls are
drawn: of small sizes, of none and one, and of large ones; on operands as they are drawn, in other
layouts, a thousand times as large or small, distributed so that roundings add up one way (all
equal but one of sixteen, far from zero, one far from the rest), and if asked for with special
values. torch's own error may take all of a bound and no more. The exit status is 1 where some call
is out of its bound.

Usage: ``python tools/own_errors.py [--seeds 3] [--only PATTERN] [--dtypes float16,bfloat16]``
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from multiprocessing import get_context

import torch

from torch_ir import IR
from torch_ir.debug.fuzzing.random_programs import callable_operators, random_program
from torch_ir.debug.reference.denotation import Meaning, Meanings, errors_of
from torch_ir.debug.reference.eager_call import call_plainly
from torch_ir.errors import TorchIRError
from torch_ir.ops.layouts import READING_MEMORY
from torch_ir.torch_memory import copied

DTYPES = (
    *("float32", "float16", "bfloat16", "float64", "complex64", "complex128"),
    *("int64", "uint8", "bool"),
)
SIZES: Mapping[str, tuple[int, ...] | None] = {
    "small": None,
    "empty": (0, 1, 2),
    "large": (1, 2, 17),
}
SPECIAL = (0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e30, 1e-30, 3e38)


@dataclass(frozen=True, slots=True)
class Found:
    """A call that is out of its bound.

    Attributes:
        op_type: The operator.
        how: The element type, the seed, the sizes and the operands.
        part: The error as a part of the bound.
        reason: What is wrong, or how it raises.
    """

    op_type: str
    how: str
    part: float
    reason: str


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, in the reverse order of axes in memory."""
    axes = tuple(reversed(range(tensor.dim())))
    return tensor.permute(axes).contiguous().permute(axes)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, each the second of two in memory."""
    return torch.stack([tensor, tensor], -1)[..., 1]


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """The values times a number, where they are of a floating-point type."""
    return tensor * factor if tensor.is_floating_point() or tensor.is_complex() else tensor


def special(tensor: torch.Tensor) -> torch.Tensor:
    """The values with some that are handled apart, a third of all."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    places = torch.arange(tensor.numel()).reshape(tensor.shape)
    chosen = torch.tensor(SPECIAL, dtype=tensor.dtype)[places // 3 % len(SPECIAL)]
    return torch.where(places % 3 == 1, chosen, tensor)


def everywhere(
    tensor: torch.Tensor, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """What a function makes of the values and their places, where they are not integers."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return tensor
    return change(tensor, torch.arange(tensor.numel()).reshape(tensor.shape)).to(tensor.dtype)


def mostly(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """The values with all but one of sixteen the same number."""
    return everywhere(tensor, lambda values, at: torch.where(at % 16 == 5, values, value))


def outlying(tensor: torch.Tensor) -> torch.Tensor:
    """The values with the middle one a thousand times as large."""
    return everywhere(tensor, lambda v, at: torch.where(at == at.numel() // 2, 1000 * v, v))


def offset(tensor: torch.Tensor) -> torch.Tensor:
    """The values a hundred greater."""
    return everywhere(tensor, lambda values, _: values + 100)


OPERANDS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as drawn": torch.clone,
    "transposed": transposed,
    "sliced": sliced,
    "large": partial(scaled, factor=1000),
    "small": partial(scaled, factor=1e-3),
    "mostly zero": partial(mostly, value=0.0),
    "mostly equal": partial(mostly, value=0.7),
    "far from zero": offset,
    "one far from the rest": outlying,
    "special": special,
}


AS_LAID_OUT = READING_MEMORY | {
    f"aten.{name}.default"
    for name in (
        "native_group_norm_backward",  # its caller makes operands contiguous, and it reads so
        "_scaled_dot_product_flash_attention_for_cpu",  # its callers see to the strides
        "adaptive_max_pool3d_backward",  # it reads the indices as if they were contiguous
        "_masked_softmax",  # and the mask
        "_masked_softmax_backward",
    )
}
"""Operators that are called on contiguous operands alone."""
AS_DISTRIBUTED = frozenset(
    (
        *(f"aten.searchsorted.{overload}" for overload in ("Tensor", "Scalar")),  # what is sorted
        "aten.bucketize.Tensor",
        "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",  # scales over 0
        "aten.fake_quantize_per_tensor_affine.tensor_qparams",
        "aten.fake_quantize_per_channel_affine.default",
        "aten.fake_quantize_per_channel_affine_cachemask.default",
        "quantized_decomposed.fake_quant_per_channel.default",
    )
)
"""Operators whose operands have to be as they are drawn, in any layout."""
LAYOUTS = ("as drawn", "transposed", "sliced")
FINITE = tuple(name for name in OPERANDS if name != "special")
"""Without NaN and infinities among the operands, of which kernels differ from each other."""


def of_operator(
    op_type: str,
    *,
    dtypes: Sequence[str] = DTYPES,
    seeds: Sequence[int] = range(3),
    sizes: Sequence[str] = tuple(SIZES),
    operands: Sequence[str] = FINITE,
) -> tuple[int, list[Found]]:
    """Count the calls that were made of an operator, and return those out of their bounds."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count, found = 0, list[Found]()
    for dtype, size, seed in product(dtypes, sizes, seeds):
        program = random_program(
            seed,
            nodes=1,
            operators=[op_type],
            dtypes=[dtype],
            dynamic=False,
            writes=False,
            sizes=SIZES[size],
        )
        if not program.ir.nodes:
            continue
        meaning = Meanings(program.ir).of(program.ir.nodes[0])
        given = {**program.weights}
        given |= zip([m.name for m in program.ir.graph_inputs], program.inputs, strict=True)
        for how in operands:
            if op_type in AS_LAID_OUT and how in ("transposed", "sliced"):
                continue
            if op_type in AS_DISTRIBUTED and how not in LAYOUTS:
                continue
            changed = {name: OPERANDS[how](tensor) for name, tensor in given.items()}
            for part, reason in errors(program.ir, meaning, changed):
                count += 1
                if part > 1:
                    text = f"{dtype}, seed {seed}, {size} sizes, operands {how}"
                    found.append(Found(op_type, text, part, reason))
    return count, found


def errors(
    ir: IR, meaning: Meaning | str, given: Mapping[str, torch.Tensor]
) -> Iterator[tuple[float, str]]:
    """The error of each result of a program's one call, as a part of its bound, and the reason."""
    (node,) = ir.nodes
    if isinstance(meaning, str):
        return  # of half complex numbers, which NumPy has not
    inputs = [given[meta.name] for meta in node.inputs]
    try:
        made = call_plainly(node, copied(inputs), {}, {}, torch.device("cpu"))
    except (RuntimeError, ValueError, IndexError, TypeError, ArithmeticError, TorchIRError):
        return  # torch refuses these values
    try:
        for _, error in errors_of(meaning, node, inputs, {}, made, {}, drew=False):
            yield error.part, error.reason
    except Exception as error:  # noqa: BLE001  # nothing may be raised: it is what is looked for
        yield float("inf"), f"{type(error).__name__}: {str(error)[:150]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seeds", type=int, default=3, help="calls of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="*", help="operators, as in file names")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="element types")
    parser.add_argument("--sizes", default=",".join(SIZES), help="of small, empty, large")
    parser.add_argument("--operands", default=",".join(FINITE), help="how these are changed")
    options = parser.parse_args()
    names = [name for name in callable_operators() if fnmatchcase(name, options.only)]
    judge = partial(
        of_operator,
        dtypes=options.dtypes.split(","),
        seeds=range(options.first, options.first + options.seeds),
        sizes=options.sizes.split(","),
        operands=options.operands.split(","),
    )
    total, wrong = 0, 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        for count, found in pool.map(judge, names):
            total, wrong = total + count, wrong + len(found)
            for one in found:
                print(f"{one.op_type}: {one.how}: {one.part:.3g}: {one.reason}", flush=True)
    print(f"{total} results of {len(names)} operators: {wrong} out of their bounds")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
