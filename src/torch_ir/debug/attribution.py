"""Quantization noise: what each quantized value costs the outputs, and what to leave in float."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any, cast

import torch

from torch_ir.arguments import public
from torch_ir.debug.comparing.sources import external_tensors
from torch_ir.debug.reference.eager_call import bind, call_plainly
from torch_ir.errors import InvalidIRError, counted
from torch_ir.executor.inputs import check_inputs
from torch_ir.ir import IR, OpNode
from torch_ir.ir.functions import written_out
from torch_ir.passes.functionalization import functional_form
from torch_ir.semantics.operators.quantization import QUANTIZING
from torch_ir.tables import Rows, Shown, report_text, table
from torch_ir.torch_memory import copied

QUANTIZES = QUANTIZING | {"torchao.quantize_affine.default"}
DEQUANTIZES = frozenset(name.replace(".quantize", ".dequantize") for name in QUANTIZES)
RUNS = 10
"""Forward runs for each sample: in float, as it is, as proposed, and each of the worst pairs."""
PROBES = 2
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class PairNoise:
    """The noise of one pair of quantize and dequantize.

    Attributes:
        quantize: Name of the node that quantizes.
        node: Name of the node, weight or input whose value it takes.
        location: The user's source line of that.
        sqnr: Signal to noise at the pair, in decibels.
        output_sqnr: That of the outputs where only this pair quantizes; None where derivatives
            tell nothing and it was not measured.
        is_measured: Whether that was measured, not estimated by derivatives.
    """

    quantize: str
    node: str
    location: str
    sqnr: float
    output_sqnr: float | None
    is_measured: bool


@dataclass(frozen=True, slots=True)
class Attribution(Shown):
    """What each pair costs.

    Attributes:
        model_name: Name of the program.
        rows: The pairs, the worst for the outputs first.
        output_sqnr: Signal to noise of the outputs of the whole program, in decibels.
        keep: The ``quantize`` of the pairs to leave in float to reach the budget.
        kept_sqnr: What the outputs then have, measured; None without a budget.
        runs: How many forward runs each sample took.
    """

    model_name: str
    rows: tuple[PairNoise, ...] = field(repr=False)
    output_sqnr: float
    keep: tuple[str, ...] = ()
    kept_sqnr: float | None = None
    runs: int = 0

    def _cells(self, top: int | None) -> list[tuple[str, ...]]:
        rows = [("quantize", "of", "SQNR", "outputs' SQNR", "location")]
        for row in self.rows[:top]:
            mark = "" if row.is_measured else "~"
            cost = "?" if row.output_sqnr is None else f"{mark}{row.output_sqnr:.1f} dB"
            place = row.location.partition(" in ")[0]
            rows.append((row.quantize, row.node, f"{row.sqnr:.1f} dB", cost, place))
        return rows

    def table(self, top: int | None = None) -> str:
        """Format the pairs as a table, the worst first.

        ``~`` marks what is estimated, ``?`` what is not known.
        """
        return table(self._cells(top))

    def __str__(self) -> str:
        pairs = counted(len(self.rows), "pair")
        lines = [f"{pairs}, outputs at {self.output_sqnr:.1f} dB, {self.runs} forward runs"]
        if self.kept_sqnr is not None:
            kept = ", ".join(self.keep) or "nothing"
            lines.append(f"  leave in float for {self.kept_sqnr:.1f} dB: {kept}")
        lines += self.table(20).splitlines()
        return report_text(lines)

    def _picture(self) -> str:
        from torch_ir.viz.plots import plot

        told = [row.output_sqnr for row in self.rows if row.output_sqnr is not None]
        return plot(self).svg if any(map(math.isfinite, told)) else ""

    def _grid(self) -> Rows:
        return self._cells(50)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data; a ratio without noise becomes None."""
        return {
            **{key: _finite(value) for key, value in asdict(self).items()},
            "rows": [{k: _finite(v) for k, v in asdict(row).items()} for row in self.rows],
        }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@public
def attribute(
    ir: IR,
    weights: Mapping[str, torch.Tensor] | None,
    inputs: Sequence[torch.Tensor],
    *,
    samples: Iterable[Sequence[torch.Tensor]] = (),
    budget: float | None = None,
) -> Attribution:
    """Tell which quantized values cost the outputs their accuracy.

    A pair is a quantize whose codes a dequantize takes. The float program is the same without its
    pairs. What each pair alone does to the outputs is estimated from one run by derivatives:
    rounding errors of elements are taken to be independent, and those of the worst pairs are then
    measured, each by a run; at most 10 runs for each sample. Pairs of which derivatives tell
    nothing, such as those before a sign, take every third of these runs, the noisiest first.

    Args:
        ir: A quantized program.
        weights: Tensors by ``state_dict`` key.
        inputs: A tensor for each graph input.
        samples: More inputs.
        budget: A signal-to-noise ratio of the outputs, in decibels: ``keep`` then names the pairs
            to leave in float.

    Raises:
        InvalidIRError: It has no pair, or no output of floating-point numbers.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[4]
        ...   %q: i8[4] = LIB.quantize_per_tensor.default(%x, 0.1, 0, -128, 127, torch.int8)
        ...   %d: f32[4] = LIB.dequantize_per_tensor.default(%q, 0.1, 0, -128, 127, torch.int8)
        ...   return %d
        ... }'''.replace("LIB", "quantized_decomposed"))
        >>> found = attribute(ir, {}, (torch.tensor([0.11, 0.52, -0.3, 0.9]),))
        >>> [(row.quantize, row.node, round(row.sqnr, 1)) for row in found.rows], found.runs
        ([('q', 'x', 33.7)], 2)
    """
    program = functional_form(written_out(ir))
    pairs = _pairs(program)
    known = external_tensors(program, weights, None)
    runs = [_Sample(program, pairs, known, s) for s in (tuple(inputs), *map(tuple, samples))]
    signal = sum(run.signal for run in runs)
    whole = sum(run.noise(pairs) for run in runs)
    noise = {name: sum(run.estimates[name] for run in runs) for name in pairs}
    worst = _to_measure(noise, runs)
    is_single = len(pairs) == 1
    measured = {n: whole if is_single else sum(r.noise({n}) for r in runs) for n in worst}
    noise |= measured
    keep, kept = (), None
    if budget is not None:
        keep = _kept(noise, signal, whole, budget)
        kept = _decibels(signal, sum(run.noise(pairs.keys() - set(keep)) for run in runs))
    rows = [_row(program, pairs[n], n, runs, noise[n], n in measured) for n in pairs]
    rows.sort(key=lambda row: (row.output_sqnr is None, row.output_sqnr or 0.0))
    made = tuple(rows), _decibels(signal, whole), keep, kept
    return Attribution(ir.model_name, *made, max(run.count for run in runs))


def _to_measure(noise: Mapping[str, float], runs: Sequence[_Sample]) -> list[str]:
    """Choose the pairs to measure: two with the greatest estimates for each without one."""
    told = sorted([n for n in noise if not math.isnan(noise[n])], key=lambda n: -noise[n])
    untold = sorted([n for n in noise if math.isnan(noise[n])], key=lambda n: _own(n, runs))
    turns = zip_longest(told[::2], told[1::2], untold)
    return [name for turn in turns for name in turn if name is not None][: RUNS - 3]


def _kept(
    noise: Mapping[str, float], signal: float, whole: float, budget: float
) -> tuple[str, ...]:
    """The fewest pairs without which the noise is as small as the budget asks."""
    noise = {name: power for name, power in noise.items() if not math.isnan(power)}
    total = sum(noise.values())
    left, keep = total, list[str]()
    for name in sorted(noise, key=lambda n: -noise[n]):
        scaled = left * (whole / total if total else 1.0)  # noises may add up to more, or less
        if _decibels(signal, scaled) >= budget:
            break
        keep.append(name)
        left = max(left - noise[name], 0.0)
    return tuple(keep)


def _pairs(program: IR) -> dict[str, OpNode]:
    """The nodes that quantize what is dequantized again, by name."""
    users = program.users
    found = {
        node.name: node
        for node in program.nodes
        if node.op_type in QUANTIZES
        and any(u.op_type in DEQUANTIZES for u in users.get(node.outputs[0].name, ()))
    }
    if not found:
        raise InvalidIRError(
            "no node dequantizes what a node of the program quantizes",
            remedy="Give a program that was quantized, as convert_pt2e of torchao does it.",
        )
    return found


def _row(
    program: IR, pair: OpNode, name: str, runs: Sequence[_Sample], noise: float, measured: bool
) -> PairNoise:
    source = pair.inputs[0]
    maker = program.producers.get(source.name)
    place = str((maker or pair).location or "")
    of = source.name if maker is None else maker.name
    cost = None if math.isnan(noise) else _decibels(sum(run.signal for run in runs), noise)
    return PairNoise(name, of, place, _own(name, runs), cost, measured)


def _own(name: str, runs: Sequence[_Sample]) -> float:
    signal = sum(run.signals[name] for run in runs)
    return _decibels(signal, sum(run.errors[name] for run in runs))


def _decibels(signal: float, noise: float) -> float:
    if noise <= 0:
        return math.inf
    is_told = signal > 0 and math.isfinite(noise)
    return 10 * math.log10(signal / noise) if is_told else -math.inf


def _power(values: Iterable[torch.Tensor]) -> float:
    """Return the sum of the squares of all finite elements."""
    doubles = [v.detach().double() for v in values]
    return sum(float(v[v.isfinite()].square().sum()) for v in doubles)


def _distance(made: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the sum of the squares of all errors; infinity where one element alone is finite."""
    differ = (made != wanted) & ~(made.isnan() & wanted.isnan())
    square = float((made[differ].double() - wanted[differ].double()).square().sum())
    return math.inf if math.isnan(square) else square


class _Sample:
    """One set of inputs: a float run with derivatives, then runs in which some pairs quantize."""

    def __init__(
        self,
        program: IR,
        pairs: Mapping[str, OpNode],
        known: Mapping[str, torch.Tensor],
        inputs: Sequence[torch.Tensor],
    ):
        self.program, self.pairs, self.known = program, pairs, known
        self.inputs, self.count = inputs, 0
        self.taken: dict[str, torch.Tensor] = {}
        self.moved: dict[str, torch.Tensor] = {}
        with torch.enable_grad():
            outputs = self._run((), record=True)
            probed = self._gradients(outputs)
        self.outputs = [out.detach() for out in outputs]
        self.signal = _power(self.outputs)
        self.signals = {n: _power([t]) for n, t in self.taken.items()}
        self.errors = {n: _distance(t, torch.zeros_like(t)) for n, t in self.moved.items()}
        self.estimates: dict[str, float] = {}
        for name in pairs:
            squares = [float((g * self.moved[name]).square().sum()) for g in probed[name]]
            told = sum(squares) / max(len(squares), 1)
            # of a step, such as a sign, the derivative is zero wherever there is one
            is_told = math.isfinite(told) and (told > 0 or not self.errors[name])
            self.estimates[name] = told if is_told else math.nan

    def noise(self, active: Collection[str]) -> float:
        """Return the noise of the outputs where only some pairs quantize."""
        with torch.no_grad():
            made = self._run(active)
        return sum(map(_distance, made, self.outputs))

    def _gradients(self, outputs: Sequence[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        """Derivatives of the outputs, weighed by random signs, by what each pair takes."""
        found: dict[str, list[torch.Tensor]] = {name: [] for name in self.pairs}
        ends = [out for out in outputs if out.requires_grad]
        names = [name for name, tensor in self.taken.items() if tensor.requires_grad]
        draws = torch.Generator().manual_seed(0)
        for number in range(PROBES if ends and names else 0):
            signs = [torch.randint(0, 2, e.shape, generator=draws).to(e) * 2 - 1 for e in ends]
            made = cast(Any, torch.autograd.grad)(
                ends,
                [self.taken[name] for name in names],
                signs,
                allow_unused=True,
                retain_graph=number + 1 < PROBES,
            )
            for name, gradient in zip(names, made, strict=True):
                if gradient is not None:  # else the outputs do not depend on it
                    found[name].append(gradient.detach().double())
        return found

    def _call(self, node: OpNode, values: Mapping[str, torch.Tensor]) -> list[Any]:
        given = [values[meta.name] for meta in node.inputs]
        return call_plainly(node, given, self.symbols, self.program.functions, _CPU)

    def _run(self, active: Collection[str], *, record: bool = False) -> list[torch.Tensor]:
        """The outputs of floating-point numbers; pairs that are not active pass on what they take.

        Raises:
            InvalidIRError: There is none.
        """
        program = self.program
        self.count += 1
        self.symbols = dict(check_inputs(program, self.inputs, _CPU, {}))
        values = dict(self.known)
        values |= dict(zip(program.input_names, copied(self.inputs), strict=True))
        for node in program.nodes:
            source = program.producers.get(node.inputs[0].name) if node.inputs else None
            if record and node.name in self.pairs:
                tensor = values[node.inputs[0].name]
                if not tensor.requires_grad:
                    tensor = values[node.inputs[0].name] = tensor.detach().requires_grad_()
                self.taken[node.name] = tensor
            passed = None
            if node.op_type in DEQUANTIZES and source is not None and source.name in self.pairs:
                passed = None if source.name in active else values[source.inputs[0].name]
            if record and passed is not None and source is not None:
                with torch.no_grad():
                    back = self._call(node, values)[0]
                self.moved.setdefault(source.name, back.double() - passed.detach().double())
            if passed is not None:
                made: list[Any] = [passed.to(getattr(torch, node.outputs[0].dtype))]
            elif node.name in self.pairs and node.name not in active:
                with torch.no_grad():
                    made = self._call(node, values)
            else:
                made = self._call(node, values)
            for meta in node.outputs:
                values[meta.name] = made[meta.producer_output_idx]
            bind(node, made, self.symbols)
        found = [values[name] for name in program.output_names]
        floats = [out for out in found if out.is_floating_point()]
        if not floats:
            raise InvalidIRError("no output of the program has floating-point numbers")
        return floats
