"""Delta debugging of programs: nodes, then weights, sizes, dtypes, values and attributes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from torch_ir.arguments import public, require_seconds
from torch_ir.debug.comparing.sources import TorchSource, external_tensors
from torch_ir.debug.eager import same_random_numbers
from torch_ir.debug.shrinking.minimal import minimal
from torch_ir.debug.shrinking.reduced import Oracle, Reduced, count_elements
from torch_ir.debug.shrinking.simplification import Failing, simpler
from torch_ir.errors import InvalidIRError, Raised, TorchIRError, attempt
from torch_ir.executor.inputs import check_inputs, require_values
from torch_ir.ir import IR
from torch_ir.ir.values import kind_without_values
from torch_ir.passes.cutting.parts import nodes_alone
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.inline import inline_functions
from torch_ir.passes.requirements import is_functional
from torch_ir.torch_memory import copied
from torch_ir.weights import check_weights


@public
def reduce(
    ir: IR,
    weights: Mapping[str, torch.Tensor] | None,
    inputs: Sequence[torch.Tensor],
    oracle: Oracle,
    *,
    seconds: float = 60.0,
    shapes: bool = True,
) -> Reduced:
    """Make a failing program small: it keeps failing in the same way.

    Delta debugging in rounds: halves, quarters, … of the nodes, whose missing operands become
    inputs with the values that they had; outputs; weights into inputs; sizes, dtypes, values and
    attributes. A candidate counts only if the oracle's answer equals that for the whole program,
    and only well-formed programs are shown to it.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key.
        inputs: A tensor for each graph input.
        oracle: Says whether a program fails, and how.
        seconds: How long to try; the smallest found so far is returned then.
        shapes: Whether to make tensors smaller too.

    Raises:
        InvalidIRError: The whole program does not fail.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[8, 4]
        ...   %a: f32[8, 4] = aten.exp.default(%x)
        ...   %b: f32[8, 4] = aten.neg.default(%a)
        ...   %c: f32[8, 4] = aten.relu.default(%b)
        ...   return %c
        ... }''')
        >>> def has_neg(ir, weights, inputs):
        ...     return any(node.op_type == "aten.neg.default" for node in ir.nodes)
        >>> print(reduce(ir, {}, (torch.ones(8, 4),), has_neg).ir)
        ir {
          input %a: f32[1, 1]
          %b: f32[1, 1] = aten.neg.default(%a)
          return %b
        }
    """
    search = _Reduction(oracle, seconds)
    require_seconds(seconds)
    require_values(ir, inputs)
    given = check_weights(ir, weights or {}, strict=False)
    if kind := next(filter(None, map(kind_without_values, given.values())), ""):
        raise InvalidIRError(f"a weight is a {kind} tensor, which has no values to make simpler")
    start = Failing(ir, given, tuple(inputs))
    failure = search.first(start)
    best = search.small(start, shapes=shapes)
    used = {key: best.weights[key] for key in [meta.name for meta in best.ir.weights]}
    return Reduced(
        *(best.ir, used, best.inputs, failure, search.calls, len(ir.nodes)),
        count_elements({m.name: start.weights[m.name] for m in ir.weights}, start.inputs),
        not search.is_over,
    )


class _Reduction:
    """Asks the oracle, as long as there is time."""

    def __init__(self, oracle: Oracle, seconds: float):
        self.calls = 0
        self.failure = ""
        self._oracle = oracle
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether time has run out."""
        return time.monotonic() > self._end

    def first(self, case: Failing) -> str:
        """Return how the whole program fails.

        Raises:
            InvalidIRError: It does not.
        """
        told = self._told(case)
        if told is None:
            raise InvalidIRError(
                "the whole program does not fail",
                remedy="Give an oracle that says that it does, with these inputs.",
            )
        self.failure = told
        return told

    def _told(self, case: Failing) -> str | None:
        self.calls += 1
        is_safe = is_functional(case.ir)  # else a run may write to them
        inputs = case.inputs if is_safe else tuple(copied(case.inputs))
        told = self._oracle(case.ir, case.weights, inputs)
        return "it fails" if told is True else (told or None)

    def fails(self, case: Failing | None) -> bool:
        """Return whether a candidate fails in the same way."""
        if case is None or self.is_over or not case.ir.nodes:
            return False
        return self._told(case) == self.failure

    # -- rounds -----------------------------------------------------------------------------------

    def small(self, case: Failing, *, shapes: bool) -> Failing:
        """Return the smallest case found."""
        changes = (inline_functions,)
        if not is_functional(case.ir):
            changes = (without_writes, *changes)
        for change in changes:
            with_change = _changed(case, change)
            if with_change is not None and self.fails(with_change):
                case = with_change
        while not self.is_over:
            before = case
            case = self._fewer_nodes(case)
            case = self._fewer_outputs(case)
            for smaller in simpler(shapes=shapes):
                case = self._simplified(case, smaller)
            if len(case.ir.nodes) == len(before.ir.nodes):
                break
        return case

    def _fewer_nodes(self, case: Failing) -> Failing:
        """Delta debugging over the nodes."""
        if len(case.ir.nodes) < 2:
            return case
        recorded = _RecordedProgram(case)
        names = [node.name for node in case.ir.nodes]
        kept = minimal(names, lambda part: self.fails(recorded.part(part)))
        return case if len(kept) == len(names) else recorded.part(kept) or case

    def _fewer_outputs(self, case: Failing) -> Failing:
        outputs = list(case.ir.graph_outputs)
        if len(outputs) < 2:
            return case

        def part(kept: Sequence[int]) -> Failing:
            ir = case.ir.replace(graph_outputs=[outputs[i] for i in kept], signature=None)
            return replace(case, ir=ir)

        kept = minimal(list(range(len(outputs))), lambda some: self.fails(part(some)))
        return case if len(kept) == len(outputs) else part(kept)

    def _simplified(
        self, case: Failing, smaller: Callable[[Failing], Iterable[Failing | None]]
    ) -> Failing:
        """Take each simpler case that fails, until none does."""
        found = True
        while found and not self.is_over:
            found = False
            for candidate in smaller(case):
                if candidate is not None and self.fails(candidate):
                    case, found = candidate, True
                    break
        return case


@dataclass
class _RecordedProgram:
    """A program with every value of one run, of which parts can be cut."""

    case: Failing

    def __post_init__(self) -> None:
        with same_random_numbers():
            self._values = dict(_values_of(self.case))

    def part(self, names: Sequence[str]) -> Failing | None:
        """Return some nodes as a case of their own; None where that is no program."""
        try:
            ir = nodes_alone(self.case.ir, names).replace(signature=None)
            given = tuple([self._values[name] for name in ir.input_names])
        except (TorchIRError, KeyError):
            return None
        if ir.symbols and ir.check():  # what gives a symbol its value was left out
            return None
        weights = {meta.name: self.case.weights[meta.name] for meta in ir.weights}
        return Failing(ir, weights, given)


def _values_of(case: Failing) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every value of a run with torch, as far as it gets."""
    ir = case.ir
    symbols = check_inputs(ir, case.inputs, torch.device("cpu"), {})
    values = external_tensors(ir, case.weights, None)
    values |= dict(zip(ir.input_names, case.inputs, strict=True))
    yield from values.items()
    for node in ir.nodes:
        made = attempt(TorchSource().results, ir, node, values, symbols)
        if isinstance(made, Raised):  # the program may be one that torch refuses
            return
        values |= made
        yield from made.items()


def _changed(case: Failing, change: Callable[[IR], IR]) -> Failing | None:
    try:
        ir = change(case.ir)
    except TorchIRError:
        return None
    return None if ir is case.ir else replace(case, ir=ir)
