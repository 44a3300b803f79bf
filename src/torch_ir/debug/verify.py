"""Verification: an IR compared with the live model, by output and on request by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any

import torch
from torch import nn

from torch_ir.arguments import public
from torch_ir.debug.eager import FAST_PATH, run_eager, runs_unfused, same_random_numbers
from torch_ir.debug.judging.backends import Judged, judged_executor
from torch_ir.debug.node_comparison import EagerComparison, NodeComparison, NodeDifference
from torch_ir.debug.reference.denotation import PUT_TWICE
from torch_ir.debug.tensor_comparison import Difference, compare_results
from torch_ir.debug.validation import Verdict
from torch_ir.errors import InvalidIRError, Raised, TorchIRError, attempt, counted
from torch_ir.executor import IRExecutor
from torch_ir.executor.inputs import several
from torch_ir.frontend import constants_of
from torch_ir.ir import IR
from torch_ir.ir.functions import written_out
from torch_ir.semantics.operators.indexing import ascending, descending
from torch_ir.tables import Shown, report_text
from torch_ir.torch_api import pytree
from torch_ir.torch_memory import fresh
from torch_ir.weights import load_weights


@dataclass(frozen=True, slots=True)
class VerificationReport(Shown):
    """What came out of a comparison with eager PyTorch.

    Attributes:
        is_valid: Whether every output is the same within the tolerance.
        max_diff: Largest absolute difference of any output.
        mean_diff: Largest mean absolute difference of any output.
        num_outputs: Number of leaves compared.
        output_details: For each output its index, shape, whether it is close, and the differences.
        error_message: Why the comparison failed; None if it did not.
        nodes: What became of the nodes; None unless asked for.
        disabled: What eager was compared without, as the program was exported without it.
        max_diff_as_run: Largest absolute difference from eager as the user runs it, with that.
        undecided: Why nothing can be said of what differs; empty if something can.
    """

    is_valid: bool
    max_diff: float = 0.0
    mean_diff: float = 0.0
    num_outputs: int = 0
    output_details: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    error_message: str | None = None
    nodes: NodeComparison | None = field(default=None, repr=False)
    disabled: tuple[str, ...] = ()
    max_diff_as_run: float = 0.0
    undecided: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the comparison comes to.

        Where every node was asked for, those whose values eager does without leave the program not
        compared, as does an order of writes that eager leaves open.
        """
        if not self.is_valid:
            return "not compared" if self.undecided else "disagree"
        return "not compared" if self.nodes is not None and self.nodes.unknown else "agree"

    @property
    def first_difference(self) -> NodeDifference | None:
        """The first node whose value eager makes otherwise.

        None if the outputs agree or nobody asked.
        """
        return None if self.nodes is None else self.nodes.first_difference

    def __str__(self) -> str:
        differs = "NOT comparable with eager" if self.undecided else "NOT equal to eager"
        verdict = "equal to eager" if self.is_valid else differs
        outputs = counted(self.num_outputs, "output")
        first = f": {outputs}, largest difference {self.max_diff:.3g}"
        if self.disabled and self.max_diff_as_run != self.max_diff:
            first = f" with {' and '.join(self.disabled)} off{first}"
            first += f"; with it eager differs by {self.max_diff_as_run:.3g}"
        lines = [verdict + first]
        for detail in self.output_details:
            if not detail["is_close"]:
                lines.append(f"  output {detail['index']}: {detail['reason']}")
        if self.error_message is not None and not self.output_details:
            lines.append(f"  {self.error_message}")
        if self.undecided:
            lines.append(f"  {self.undecided}")
        if self.nodes is not None:
            lines.append(f"  {self._nodes(self.nodes)}")
        return report_text("\n".join(lines).split("\n"))

    def _nodes(self, nodes: NodeComparison) -> str:
        if nodes.first_difference is not None:
            return f"first node that differs: {nodes.first_difference}"
        if not nodes.unknown:
            return f"every node makes what eager makes: {counted(nodes.compared, 'node')}"
        known = nodes.compared - len(nodes.unknown)
        return (
            f"{known} of {counted(nodes.compared, 'node')} compared; eager does without "
            f"the values of {len(nodes.unknown)} (the first is {nodes.unknown[0]!r})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data."""
        return {**asdict(self), "verdict": self.verdict}


@public
def verify(
    ir: IR,
    model: nn.Module,
    inputs: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
    every_node: bool = False,
    backend: Judged | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> VerificationReport:
    """Run model and IR on copies of the same arguments and compare every output.

    Compared are dtype, shape, structure and value. Eager runs as exported, with the fast path of
    ``nn.MultiheadAttention`` off, and once more with it. The model is left as it was; it runs in
    the mode in which the IR was extracted.

    Args:
        ir: The program.
        model: The live model, with its weights.
        inputs: Positional arguments.
        kwargs: Keyword arguments.
        weights: What the IR runs with; the model's own state dict if not given.
        constants: Values that no state dict has; the model's own if not given.
        every_node: Also look for every node's value among all that eager computes.
        backend: What runs the IR: backends by name or as values, or a runner; torch if none.
        rtol: Allowed relative difference of floats; 0 asks for the same values, signed zeros too.
        atol: Allowed absolute difference.

    Raises:
        WeightLoadError: The weights are not those that the program needs.
        ExecutionError, BackendError: The arguments do not fit, or a node cannot be run.

    Example:
        >>> from torch_ir import extract_ir
        >>> model, inputs = torch.nn.Linear(3, 2), (torch.ones(1, 3),)
        >>> print(verify(extract_ir(model, inputs), model, inputs, every_node=True))
        equal to eager: 1 output, largest difference 0
          every node makes what eager makes: 1 node
    """
    args, named = several(inputs), dict(kwargs or {})
    _require_one(backend, every_node)
    payload = model.state_dict() if weights is None else weights
    known = constants_of(model) if constants is None else constants
    executor = judged_executor(ir, payload, known, backend) or IRExecutor(ir, payload, known)
    eager = partial(run_eager, model, ir, args, named)
    expected = eager()
    with same_random_numbers():
        got = _called(executor, args, named)
    report = _report(compare_results(_as_results(ir, expected), got, rtol=rtol, atol=atol))
    if not report.is_valid and _is_unordered(eager, ir, expected, got, rtol, atol):
        report = replace(report, undecided=PUT_TWICE)
    if runs_unfused(model, ir):
        report = _with_fast_path(report, _as_results(ir, eager(fast_path=True)), got)
    if not every_node:
        return report
    comparison = EagerComparison(IRExecutor(written_out(ir), payload, known), model, args, named)
    return replace(report, nodes=comparison.report(outputs_differ=not report.is_valid))


def _called(run: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    own_args, own_kwargs = fresh((args, dict(kwargs)))
    return run(*own_args, **own_kwargs)


def _require_one(backend: Judged | None, every_node: bool) -> None:
    if backend is not None and every_node:
        raise InvalidIRError(
            "every_node= looks at values that torch makes, not a backend",
            remedy="Find its first wrong node with validate(ir, weights, inputs, backend=...).",
        )


def _is_unordered(
    eager: Callable[..., Any],
    ir: IR,
    expected: Any,
    got: Any,
    rtol: float,
    atol: float,
) -> bool:
    """Whether results differ from eager's in nothing but what the order of writes decides."""
    orders = [attempt(eager, order=order) for order in (ascending, descending)]
    made = [expected, *(order for order in orders if not isinstance(order, Raised))]
    leaves = [pytree.tree_leaves(_as_results(ir, result)) for result in made]
    theirs = pytree.tree_leaves(got)
    if any(len(found) != len(theirs) for found in leaves):
        return False
    known = [_in_any_order(*one) for one in zip(theirs, *leaves, strict=True)]
    return all(d.is_close for d in compare_results(known, theirs, rtol=rtol, atol=atol))


def _in_any_order(got: Any, first: Any, *others: Any) -> Any:
    """What eager makes, with a result's elements where it makes others in another order."""
    if not isinstance(got, torch.Tensor) or not isinstance(first, torch.Tensor):
        return first
    if any(other.shape != first.shape for other in others):
        return got
    if got.shape != first.shape or got.dtype != first.dtype:
        return first
    differs = torch.zeros(first.shape, dtype=torch.bool, device=first.device)
    for other in others:
        differs |= ~((first == other) | ((first != first) & (other != other)))
    return torch.where(differs, got.to(first.device), first)


def _with_fast_path(report: VerificationReport, as_run: Any, got: Any) -> VerificationReport:
    """The report with the difference from eager as the user runs it."""
    largest = _largest(compare_results(as_run, got, rtol=0.0, atol=0.0))
    return replace(report, disabled=(FAST_PATH,), max_diff_as_run=largest)


def _as_results(ir: IR, made: Any) -> Any:
    """What eager made, in the structure of the program's results."""
    if ir.signature is not None:
        return made
    return tuple(leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor))


def _largest(differences: Sequence[Difference]) -> float:
    return max((difference.max_diff for difference in differences), default=0.0)


def _report(differences: list[Difference]) -> VerificationReport:
    wrong = [d for d in differences if not d.is_close]
    return VerificationReport(
        is_valid=not wrong,
        max_diff=_largest(differences),
        max_diff_as_run=_largest(differences),
        mean_diff=max((d.mean_diff for d in differences), default=0.0),
        num_outputs=len(differences),
        output_details=tuple([{"index": i, **asdict(d)} for i, d in enumerate(differences)]),
        error_message=f"{len(wrong)} of {len(differences)} outputs differ: {wrong[0].reason}"
        if wrong
        else None,
    )


@public
def verify_ir_with_state_dict(
    ir: IR,
    state_dict: Mapping[str, torch.Tensor],
    original_model: nn.Module,
    test_inputs: Sequence[Any],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> tuple[bool, VerificationReport]:
    """Compare an IR with these weights against the live model.

    Returns:
        Whether they agree, and the report; what made a comparison impossible is the report's
        ``error_message``.
    """
    try:
        report = verify(
            ir,
            original_model,
            test_inputs,
            weights=state_dict,
            constants=constants,
            rtol=rtol,
            atol=atol,
        )
    except TorchIRError as error:
        report = VerificationReport(False, error_message=str(error))
    return report.is_valid, report


def verify_ir(
    ir: IR,
    weights_path: str | PathLike[str],
    original_model: nn.Module,
    test_inputs: Sequence[Any],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> tuple[bool, VerificationReport]:
    """Verify an IR as :func:`verify_ir_with_state_dict` does, with the weights of a file."""
    try:
        weights = load_weights(weights_path)
    except TorchIRError as error:
        return False, VerificationReport(False, error_message=str(error))
    return verify_ir_with_state_dict(
        ir, weights, original_model, test_inputs, rtol, atol, constants
    )
