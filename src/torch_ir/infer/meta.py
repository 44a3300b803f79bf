"""Evaluate a call on meta tensors; find faster bindings that dispatch to the same overload.

A call is run once on meta tensors of its arguments' types: that says what it gives. Then torch's
own Python bindings of that name are tried: one that reaches exactly this overload with exactly
these arguments may stand for it, and saves the look-ups of the operator object. Both are
remembered for calls of equal signatures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch

from torch_ir.errors import Raised, attempt
from torch_ir.infer.dispatch import PythonBinding, bindings_of, first_reaching, twin_of
from torch_ir.infer.engine import Trial, evaluate, remembered, trial
from torch_ir.infer.recurrence import in_two_steps
from torch_ir.infer.resolve import resolve_operator
from torch_ir.infer.types import CallSignature, Outcome, TensorType
from torch_ir.torch_api import BelowViewTracking, OpOverload


@dataclass(frozen=True, slots=True)
class MetaResult(Outcome):
    """What was found about a call.

    Attributes:
        binding: A binding that reaches the operator; None if none is shown to.
        in_place: A binding that reaches the operator's in-place variant; None if none is.
        takes_tensor: Whether the second argument, a number, may as well be a tensor without
            dimensions of the result's type.
    """

    binding: PythonBinding | None = None
    in_place: PythonBinding | None = None
    takes_tensor: bool = False


def evaluate_meta(signature: CallSignature) -> MetaResult:
    """Run a call on tensors without data, and look for a binding that reaches its operator.

    Example:
        >>> from torch_ir.ir import FrozenDict
        >>> x = TensorType((2, 3), "float32", (3, 1))
        >>> relu = CallSignature("aten.relu.default", FrozenDict(), FrozenDict(self=0), (x,))
        >>> found = evaluate_meta(relu)
        >>> found.results[0] == x, found.binding.name, found.in_place.name
        (True, 'relu', 'relu_')
    """
    return in_two_steps(partial(remembered, _evaluate_meta), signature)


def evaluate_fake(signature: CallSignature) -> MetaResult:
    """Return the outcome under torch's fake tensors, without a binding."""
    made = evaluate(signature)
    return MetaResult(made.results, made.shares, made.kind, made.refusal, made.remedy)


def _evaluate_meta(signature: CallSignature) -> MetaResult:
    with no_gradients():
        made = attempt(trial, signature, "meta")  # a kernel may lack a meta version
        outcome = made if isinstance(made, Raised) else made.outcome()
        if isinstance(made, Trial) and isinstance(outcome, Outcome) and outcome.kind == "ok":
            operator = cast(OpOverload, resolve_operator(signature.op_type))
            args, kwargs = tuple(made.args), made.kwargs
            found = first_reaching(bindings_of(operator, args, kwargs), operator, made, made.made)
            in_place = _in_place(operator, made, outcome)
            takes_tensor = _takes_tensor(operator, made, outcome)
            return MetaResult(
                outcome.results,
                outcome.shares,
                binding=found,
                in_place=in_place,
                takes_tensor=takes_tensor,
            )
    return evaluate_fake(signature)


class no_gradients:  # noqa: N801  # a context, spelled as torch.no_grad is
    """Run below autograd: results are plain tensors, and composite operators stay whole."""

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self._guard = BelowViewTracking()
        self._guard.__enter__()

    def __exit__(self, *error: object) -> None:
        self._guard.__exit__(None, None, None)
        torch.set_grad_enabled(self._before)


_ARITHMETIC = (
    torch.ops.aten.add.Tensor,
    torch.ops.aten.sub.Tensor,
    torch.ops.aten.mul.Tensor,
    torch.ops.aten.div.Tensor,
)
_COMPUTED_AS_THEY_ARE = (torch.float32, torch.float64, torch.int32, torch.int64)


def _takes_tensor(operator: OpOverload, made: Trial, outcome: Outcome) -> bool:
    """Whether a number may be given as a tensor, made once instead of at every call.

    torch wraps a number into a tensor and converts that to the type in which it computes. Where
    this is the first argument's own type, which weighs more than a number, the converted tensor
    gives the same call of the same kernel. (Half types read the number itself, in more bits.)
    """
    if operator not in _ARITHMETIC or made.kwargs or len(made.args) != 2:
        return False
    first, second = made.args
    result = outcome.results[0]
    return (
        isinstance(first, torch.Tensor)
        and type(second) in (int, float)
        and result is not None
        and made.made.dtype == first.dtype
        and first.dtype in _COMPUTED_AS_THEY_ARE
        and (type(second) is int or first.dtype.is_floating_point)
        and -(2**63) <= second < 2**63
    )


def _in_place(operator: OpOverload, made: Trial, outcome: Outcome) -> PythonBinding | None:
    """A binding of the variant that writes its result into its first argument."""
    first = made.args[0] if made.args else None
    if torch.Tag.pointwise not in operator.tags or not isinstance(first, torch.Tensor):
        return None
    result = outcome.results[0] if len(outcome.results) == 1 else None
    if result is None or outcome.shares[0] or result != TensorType.of(first):
        return None
    twin = twin_of(operator)
    if twin is None:
        return None
    bindings = bindings_of(twin, tuple(made.args), made.kwargs)
    return first_reaching(bindings, twin, made, first)
