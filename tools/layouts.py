"""Call operators on tensors that lie in memory in unusual orders, and lower the calls.

Samples that torch tests an operator with become programs whose tensors are transposed, sliced,
expanded, views with a dimension of one element, or arguments that lie in another order. What
``functionalize``, ``decompose`` and ``to_edge`` make of them must keep their dialect's rules, and
give what eager gives.

    tools/layouts.py [PART PARTS]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import torch_ir
from conformance_case import OPERATORS, Case, dtype_name, first_samples, module_of
from torch_ir import IR, IRExecutor
from torch_ir.dialects import verify

View = Callable[[torch.Tensor], torch.Tensor]
STAGES: dict[str, Callable[[IR], IR]] = {
    "aten": torch_ir.functionalize,
    "core_aten": torch_ir.decompose,
    "edge": lambda ir: torch_ir.to_edge(ir).ir(),
}
SKIPPED = (
    *("svd", "lobpcg", "jiterator", "empty", "resize", "linear_cross_entropy", "tensor_split"),
    *("bernoulli", "cauchy", "exponential", "geometric", "normal", "multinomial", "rand"),
    *("dropout", "uniform", "fractional", "multi_head", "scaled_dot_product", "embedding"),
    *("as_strided", "chalf", "median", "masked_select", "native_group_norm", "scaled_mm"),
)
"""Operators that draw, whose results strides decide, that torch.export gets wrong, that read
memory which is not theirs, or that write to operands, which may be expanded."""


def layouts(t: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, View]]:
    """Yield what a tensor is a view of, and the view."""
    if not t.dim() or not t.numel():
        return
    turned, shape = list(reversed(range(t.dim()))), t.shape
    yield "transposed", t.permute(turned).contiguous(), lambda base: base.permute(turned)
    yield "given", t.permute(turned).contiguous().permute(turned), _same
    yield "sliced", t.repeat_interleave(2, -1), lambda base: base[..., ::2]
    yield "expanded", t[:1].clone(), lambda base: base.expand(shape)
    if t.dim() > 2:
        rows = t[:1].flatten(2).transpose(1, 2).contiguous()
        yield "one", rows, lambda base: base.transpose(1, 2).unflatten(2, shape[2:])
        yield "channels last", t.movedim(1, -1).contiguous(), lambda base: base.movedim(-1, 1)


class Viewed(nn.Module):
    """A module that is given views of its arguments."""

    def __init__(self, module: nn.Module, views: list[View]):
        super().__init__()
        self.module, self.views = module, views

    def forward(self, *bases: torch.Tensor) -> Any:
        """Call the module."""
        return self.module(*[view(base) for view, base in zip(self.views, bases, strict=True)])


def programs(operator: str) -> Iterator[tuple[str, nn.Module, list[torch.Tensor]]]:
    """Yield the first and the largest sample of an operator, in each layout."""
    kinds = OPERATORS[operator].supported_dtypes("cpu")
    if not kinds or any(part in operator for part in SKIPPED):
        return
    kind = torch.float32 if torch.float32 in kinds else min(kinds, key=str)
    case = Case(operator, dtype_name(kind), "function")
    samples = [module_of(case, sample) for sample in first_samples(case, 12)]
    samples.sort(key=lambda made: -max([t.dim() for t in made[1]], default=0))
    for module, tensors in {id(made): made for made in (samples[0], samples[-1])}.values():
        found = [{name: (base, view) for name, base, view in layouts(t)} for t in tensors]
        for name in dict.fromkeys([name for known in found for name in known]):
            pairs = [known.get(name, (t, _same)) for known, t in zip(found, tensors, strict=True)]
            yield name, Viewed(module, [view for _, view in pairs]), [base for base, _ in pairs]


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def faults(operator: str) -> Iterator[str]:
    """Yield what goes wrong with an operator; what eager or torch.export refuses does not."""
    try:
        made = list(programs(operator))
    except Exception:  # noqa: BLE001  # generators of samples raise anything
        return
    for layout, model, bases in made:
        try:
            expected = _leaves(model, bases)
            ir = torch_ir.extract_ir(model.eval(), tuple(bases))
        except Exception:  # noqa: BLE001  # kernels refuse a layout with any error
            continue
        for stage, lower in STAGES.items():
            reason = _fault(ir, lower, bases, expected)
            if reason:
                yield f"{operator}, {layout}, {stage}: {reason}"


def _fault(
    ir: IR, lower: Callable[[IR], IR], bases: list[torch.Tensor], expected: list[Any]
) -> str:
    try:
        lowered = lower(ir)
    except torch_ir.TorchIRError as error:
        allowed = (
            "unsupported-dtype",
            "dtype-constraint",
            "no operator that computes",
            "may not call",
        )
        refused = any(reason in str(error) for reason in allowed)
        return "" if refused else str(error).partition("\n")[0]
    violations = verify(lowered)
    if violations:
        return str(violations[0]).partition("\n")[0]
    try:
        got = _leaves(IRExecutor(lowered), bases)
        for a, b in zip(got, expected, strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-3, atol=1e-4)
    except Exception as error:  # noqa: BLE001  # whatever is raised is what is reported
        return str(error).partition("\n")[0]
    return ""


def _leaves(call: Callable[..., Any], bases: list[torch.Tensor]) -> list[Any]:
    torch.manual_seed(0)
    with torch.no_grad():
        return pytree.tree_leaves(call(*[base.clone() for base in bases]))


def main() -> int:
    """Try all operators, or a part of them."""
    warnings.simplefilter("ignore")
    part, parts = map(int, sys.argv[1:3] or (0, 1))
    count = 0
    for name in sorted(OPERATORS)[part::parts]:
        for text in faults(name):
            count += 1
            print(text, flush=True)
    print(f"{count} faults")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
