"""The judgment of a backend: each delegate by its meaning, and the node at which it goes wrong.

A delegate is judged as a whole on the inputs that it had. What is wrong is looked for in its body:
each node is compiled alone where the delegate had torch's values, and the body is cut by prefixes
in program order, which finds what only a fused body does wrong, in log2(n) compilations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

import torch

from torch_ir.backends.delegate import CALL, function_of, sizes_of
from torch_ir.backends.delegating import Delegate, listed, misfit
from torch_ir.backends.native.attempts import is_same
from torch_ir.backends.protocol import DelegateBackend, Delegated, compiled_by
from torch_ir.debug.judging.accumulation import Accumulation
from torch_ir.debug.reference.denotation import Meaning, allowances, meaning_of
from torch_ir.debug.reference.tolerance_check import Error, with_one_unit
from torch_ir.debug.validation import Reader
from torch_ir.errors import BackendError, OptionalDependencyError, Raised, attempt, first_line
from torch_ir.executor import ExecGraph, IRExecutor
from torch_ir.executor.listeners import Table
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.aliases import Aliases
from torch_ir.ir.node import needs
from torch_ir.ir.queries import live_out
from torch_ir.ir.symbols import shape_at
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.dtypes import is_inexact
from torch_ir.torch_memory import copied

Mode = Literal["isolated", "accumulated"]
"""Whether a delegate is given torch's values, or those that the delegates before it made."""

Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Finding:
    """How far a value of a delegate is from what a reader gives.

    Attributes:
        node: The node of the program that makes it.
        value: Its name.
        reader: The reader.
        error: How far it is off.
        delegate: Name of the delegate.
        body: The smallest function found that shows it.
        inputs: The inputs of that function, by name.
    """

    node: OpNode
    value: str
    reader: Reader
    error: Error
    delegate: str
    body: IR
    inputs: Values = field(repr=False)


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the calls of a program's delegates.

    Attributes:
        delegates: What backends run, by the name of the node that calls it.
        against: The readers that are asked.
        drift: How far the inputs of delegates are off by what backends before them rounded, where
            a delegate is given their values; None where it is given torch's.
        unseen: Why something that the delegates make cannot be compared; empty if all can.
        taken: How many nodes of how many each backend that was asked takes, by its name.
        aliases: What may share memory, where the graph that runs does not say; delegates that hold
            weights may give views of these.
        repeats: Whether a second call on the same values means the same; a runner keeps the state
            of the program.
    """

    delegates: Mapping[str, Delegate]
    against: tuple[Reader, ...]
    drift: Accumulation | None = None
    unseen: str = ""
    taken: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    aliases: Aliases | None = None
    repeats: bool = True

    def knows(self, node: OpNode) -> bool:
        """Return whether a node calls a delegate of a backend."""
        return node.name in self.delegates

    def backend_of(self, found: Finding) -> DelegateBackend:
        """Return the backend that ran what was found."""
        return next(
            d.backend for d in self.delegates.values() if d.body.model_name == found.delegate
        )

    def findings(
        self,
        node: OpNode,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor] | None,
        symbols: Symbols,
    ) -> tuple[list[Finding], str]:
        """Return what is off in a call, and why it cannot be compared; empty if it was.

        Args:
            node: The call, as torch's graph or that of the backend has it.
            inputs: Its inputs, as they were before it ran.
            outputs: What the backend made, where it runs with the others' values; None to ask it.
            symbols: The symbols known by then.

        Raises:
            TorchIRError: The backend runs nothing here, as something that it needs is missing.
        """
        delegate = self.delegates[node.name]
        held = {} if self.drift is None else delegate.held
        names = [name for name in delegate.body.input_names if name not in held]
        given = {**held, **dict(zip(names, inputs, strict=False))}
        graph = IRExecutor(delegate.body, {}).graph
        case = _DelegateCall(delegate, graph, self.against, symbols, self.drift, self.repeats)
        found = case.findings(given, outputs)
        if self.drift is not None:
            self.drift.forget(node)
        return found


@dataclass(frozen=True, slots=True)
class _DelegateCall:
    """Judges one call of a delegate.

    Attributes:
        delegate: The function, its backend, and the inputs that are the same in every call.
        graph: The function as torch runs it.
        against: The readers that are asked.
        symbols: The value of each symbol.
        drift: How far inputs are off already.
        repeats: Whether a second call means the same.
        calls: How often what is compiled is called; the last call is judged.
    """

    delegate: Delegate
    graph: ExecGraph
    against: tuple[Reader, ...]
    symbols: Symbols
    drift: Accumulation | None
    repeats: bool = True
    calls: int = 1

    def findings(
        self, given: Values, results: Sequence[torch.Tensor] | None
    ) -> tuple[list[Finding], str]:
        """Return what is off in a call, and why it cannot be compared; empty if it was.

        Args:
            given: The inputs of the body, by name.
            results: What the backend made of them; None to run it, and each node alone too.

        Raises:
            TorchIRError: The backend runs nothing here, as something that it needs is missing.
        """
        body = self.delegate.body
        meaning = meaning_of(body.replace(signature=None))
        if isinstance(meaning, str) or meaning.open_reason:
            return [], meaning if isinstance(meaning, str) else meaning.open_reason
        alone: list[Finding] | None = [] if results is None and len(body.nodes) > 1 else None
        torch_values = self.torch_values(given, body.output_names, alone)
        made = self.called(body, self.delegate.compiled, given) if results is None else results
        whole = list(self.compared(body, meaning, given, made, torch_values))
        if self.drift is not None:
            whole = self._accumulated(self.drift, meaning, given, made, whole)
        if self.repeats and results is None and not isinstance(made, str):
            again = () if _is_wrong(whole) else _again(self, meaning, given, made)
            if again:
                return [*(alone or ()), *again], ""
        if _is_wrong(whole):
            named = alone if alone and _is_wrong(alone) else None
            return named or [*(alone or ()), *(self.smallest(given) or whole)], ""
        found = [*(alone or ()), *whole]
        loose = next((item.error.loose for item in whole if item.error.loose), "")
        parts = _in_halves(self, body.nodes, given) if loose and not _is_wrong(found) else ()
        return [*found, *parts], loose

    def _accumulated(
        self,
        drift: Accumulation,
        meaning: Meaning,
        given: Values,
        results: Sequence[torch.Tensor] | str,
        found: Sequence[Finding],
    ) -> list[Finding]:
        """What is more off than what the inputs are off by explains."""
        body = self.delegate.body
        if isinstance(results, str) or _malformed(body, results):
            return list(found)
        call = _call(body)
        inputs = [given[meta.name] for meta in body.graph_inputs]
        total = drift.allowances(meaning, call, inputs, results, self.symbols)
        explained: list[Finding] = []
        for item in found:
            allowed = total.get(item.value, ())
            errors = [a.error(with_one_unit(a.bound, a.expected)) for a in allowed]
            error = max(errors or [item.error], key=lambda e: (bool(e.reason), e.part))
            explained.append(replace(item, error=item.error if error.reason else error))
        wrong = {item.value for item in explained if item.error.reason}
        for name in total.keys() - wrong:
            drift.keep(total[name])
        return explained

    def torch_values(
        self, given: Values, names: Iterable[str], alone: list[Finding] | None = None
    ) -> dict[str, torch.Tensor]:
        """Return some values of the body as torch makes them; with a list, each node is tried.

        What the backend makes of each node by itself, on torch's values, is added to the list.
        """
        copies = dict(zip(given, copied(list(given.values())), strict=True))
        inputs = [copies[meta.name] for meta in self.delegate.body.graph_inputs]
        sizes = {str(size): size.evaluate(self.symbols) for size in sizes_of(self.delegate.body)}
        if alone is None:
            return {**given, **self.graph.values(inputs, names, sizes)}
        table = _Each(frozenset(names), self, alone)
        self.graph.run(inputs, sizes, table, reuse=False)
        return {**given, **table.values}

    def smallest(self, given: Values) -> list[Finding]:
        """Return what is off in the shortest prefix of the body that is wrong."""
        nodes = self.delegate.body.nodes
        good, bad, found = 0, len(nodes), list[Finding]()
        while bad - good > 1:
            half, middle, tried = (good + bad) // 2, good, None
            # a prefix that the backend refuses moves the border outward
            for middle in (*range(half, bad), *range(half - 1, good, -1)):
                tried = self.part(nodes[:middle], given)
                if tried is not None:
                    break
            if tried is None:
                break
            if _is_wrong(tried):
                bad, found = middle, tried
            else:
                good = middle
        for part in _groups(nodes[:bad], self.symbols):
            names = {meta.name for meta in part}
            tried = self.part(nodes[:bad], given, part) or []
            if any(item.error.reason and item.value in names for item in tried):
                found = tried
                break
        first = next((item for item in found if item.error.reason), None)
        return [] if first is None else [item for item in found if item.node is first.node]

    def part(
        self, nodes: Sequence[OpNode], given: Values, shown: Sequence[TensorMeta] = ()
    ) -> list[Finding] | None:
        """Return what is off in nodes of the body by themselves; None if they are refused.

        Args:
            nodes: The nodes.
            given: The inputs of the body, by name.
            shown: Values to look at besides what the rest of the body reads; they come first.
        """
        live = live_out(self.delegate.body, nodes)
        returned = list({meta.name: meta for meta in (*shown, *live)}.values())
        names = {meta.name for meta in returned} | needs(nodes).keys() - given.keys()
        return self.tried(nodes, returned, self.torch_values(given, names))

    def tried(
        self, nodes: Sequence[OpNode], returned: Sequence[TensorMeta], known: Values
    ) -> list[Finding] | None:
        """Return what is off in nodes compiled for themselves; None if the backend refuses."""
        backend = self.delegate.backend
        name = self.delegate.body.model_name
        body = function_of(self.delegate.body, nodes, returned, name, backend.name)
        meaning = meaning_of(body.replace(signature=None))
        if isinstance(meaning, str) or meaning.open_reason:
            return None
        held = {n: t for n, t in self.delegate.held.items() if n in body.input_names}
        given = {meta.name: known[meta.name] for meta in body.graph_inputs}
        compiled = attempt(compiled_by, backend, body, held)
        if isinstance(compiled, Raised):  # it refuses the part
            return None
        return list(self.compared(body, meaning, given, self.called(body, compiled, given), known))

    def called(self, body: IR, compiled: Delegated, given: Values) -> Sequence[torch.Tensor] | str:
        """Return what a compiled function gives on copies of its inputs, or how it fails."""
        names = [n for n in body.input_names if n not in self.delegate.held]
        tensors = copied([given[name] for name in names])
        sizes = [size.evaluate(self.symbols) for size in sizes_of(body)]
        with torch.no_grad():
            for _ in range(self.calls - 1):
                attempt(compiled, *tensors, *sizes)
            made = attempt(lambda: listed(compiled(*tensors, *sizes)))
        if not isinstance(made, Raised):
            return _writes(dict(zip(names, tensors, strict=True)), given) or made
        if isinstance(made.error, (BackendError, OptionalDependencyError)):
            raise made.error  # it does not run anything here
        return f"the backend fails: {type(made.error).__name__}: {first_line(made.error)}"

    def compared(
        self,
        body: IR,
        meaning: Meaning,
        given: Values,
        results: Sequence[torch.Tensor] | str,
        known: Values,
    ) -> Iterator[Finding]:
        """Compare results with the meaning, and with torch's within the same bound."""
        name = self.delegate.body.model_name
        if isinstance(results, str) or _malformed(body, results):
            reason = results if isinstance(results, str) else _malformed(body, results)
            node = body.nodes[-1]
            error = Error(part=float("inf"), reason=reason)
            for reader in self.against:
                yield Finding(node, node.outputs[-1].name, reader, error, name, body, given)
            return
        inputs = [given[meta.name] for meta in body.graph_inputs]
        for allowed in allowances(meaning, _call(body), inputs, self.symbols, results, {}):
            node = body.producers[allowed.value]
            bound = with_one_unit(allowed.bound, allowed.expected)
            denoted = allowed.error(bound)
            if "denotation" in self.against:
                yield Finding(node, allowed.value, "denotation", denoted, name, body, given)
            is_alike = allowed.chosen is None and is_inexact(allowed.got.dtype)
            if "eager" in self.against and (denoted.reason or is_alike):
                torchs = allowed.in_its_order(as_array(known[allowed.value]))
                eager = denoted if allowed.is_relation else allowed.off(torchs, bound)
                yield Finding(node, allowed.value, "eager", eager, name, body, given)


def _again(
    case: _DelegateCall, meaning: Meaning, given: Values, first: Sequence[torch.Tensor]
) -> list[Finding]:
    """What a second call gets wrong where the first is right, as of state that is kept."""
    body = case.delegate.body
    made = case.called(body, case.delegate.compiled, given)
    if not isinstance(made, str) and not _malformed(body, made):
        pairs = zip(first, made, strict=False)
        if all(is_same(one, other) for one, other in pairs):
            return []
    known = case.torch_values(given, body.output_names)
    found = list(case.compared(body, meaning, given, made, known))
    if not _is_wrong(found):
        return []
    found = replace(case, calls=2).smallest(given) or found
    return [replace(item, error=item.error.in_a_second_call()) for item in found]


def _writes(copies: Values, given: Values) -> str:
    """What a backend did to copies of its inputs; nothing if it left them as they were given."""
    written = [name for name, copy in copies.items() if not is_same(given[name], copy)]
    return f"the backend writes to its input %{written[0]}" if written else ""


def _in_halves(case: _DelegateCall, nodes: Sequence[OpNode], given: Values) -> Iterator[Finding]:
    """What is off in the halves of some nodes, and in the halves of these, until they show it."""
    middle = len(nodes) // 2
    for half in (nodes[:middle], nodes[middle:]):
        if len(half) < 2:
            continue  # it was tried alone
        tried = case.part(half, given)
        yield from tried or ()
        if tried is None or any(item.error.loose for item in tried):
            yield from _in_halves(case, half, given)


class _Each(Table):
    """Keeps some values of a body as torch makes them, and judges a backend on each node alone."""

    def __init__(self, names: frozenset[str], case: _DelegateCall, found: list[Finding]):
        super().__init__(names, None, torch.clone)
        self._case = case
        self._found = found
        self._given: dict[str, torch.Tensor] = {}

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """Keep the inputs of a node until it has run."""
        self._given = {m.name: tensor for m, tensor in zip(node.inputs, inputs, strict=True)}

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Judge the node."""
        given, self._given = self._given, {}
        given |= {m.name: tensor for m, tensor in zip(node.outputs, outputs, strict=True)}
        self._found += self._case.tried([node], node.outputs, given) or []
        super().did_run(node, outputs)


def _groups(nodes: Iterable[OpNode], symbols: Symbols) -> Iterator[list[TensorMeta]]:
    """The values of nodes in groups, none of them larger than two of the largest value."""
    made = [meta for node in nodes for meta in node.outputs]
    sizes = [prod(shape_at(meta.shape, symbols)) for meta in made]
    part, size = list[TensorMeta](), 0
    for meta, count in zip(made, sizes, strict=True):
        if part and size + count > 2 * max(sizes):
            yield part
            part, size = [], 0
        part.append(meta)
        size += count
    yield part


def _is_wrong(found: Iterable[Finding]) -> bool:
    return any(item.error.reason for item in found)


def _call(body: IR) -> OpNode:
    return OpNode(body.model_name, CALL, body.graph_inputs, body.graph_outputs)


def _malformed(body: IR, results: Sequence[object]) -> str:
    """Why results are not those of a function at all; empty if they fit."""
    fault = misfit(body.graph_outputs, results)
    return f"the backend gave {fault}" if fault else ""
