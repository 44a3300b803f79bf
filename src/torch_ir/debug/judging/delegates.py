"""The judgement of a backend: each delegate by its meaning, and the node at which it goes wrong.

A delegate is judged as a whole on the inputs that it had. What is wrong is looked for in its body:
each node is compiled alone where the delegate had torch's values, and the body is cut by prefixes
in program order, which finds what only a fused body does wrong, in log2(n) compilations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from torch_ir.backends.delegate import CALL, function_of
from torch_ir.backends.delegating import Delegate, DelegatingExecutor
from torch_ir.backends.protocol import Delegated
from torch_ir.debug.copies import copied
from torch_ir.debug.judging.denoting import RANDOM, untold, without_tolerance
from torch_ir.debug.reference.denotation import Meaning, allowances, meaning_of
from torch_ir.debug.reference.eager_call import Symbols
from torch_ir.debug.reference.tolerance_check import Error, within
from torch_ir.debug.validation import Reader
from torch_ir.errors import ExecutionError, TorchIRError, first_line
from torch_ir.executor import IRExecutor
from torch_ir.executor.listeners import Table
from torch_ir.ir import IR, OpNode, SymExpr, TensorMeta, ValueLeaf
from torch_ir.ir.tree import leaves
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.dtypes import Array, is_complex, is_float
from torch_ir.semantics.tolerance import spacing

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
        executor: The program with its delegates; their kernels live as long as it.
        against: The readers that are asked.
        mode: What the delegates are given.
    """

    executor: DelegatingExecutor
    against: tuple[Reader, ...]
    mode: Mode

    def knows(self, node: OpNode) -> bool:
        """Return whether a node calls a delegate of a backend."""
        return node.name in self.executor.delegates

    def findings(
        self,
        node: OpNode,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        symbols: Symbols,
    ) -> Iterable[Finding] | str:
        """Return what is off in a call, or why it cannot be compared.

        Args:
            node: The call, as torch's graph or that of the backend has it.
            inputs: Its inputs, as they were before it ran.
            outputs: What it made: torch in isolated mode, else the backend.
            symbols: The symbols known by then.

        Raises:
            ExecutionError: The backend fails on the delegate.
        """
        delegate = self.executor.delegates[node.name]
        isolated = self.mode == "isolated"
        held = {} if isolated else delegate.held
        names = [name for name in delegate.body.input_names if name not in held]
        given = {**held, **dict(zip(names, inputs, strict=False))}
        case = _Case(delegate, self.against, symbols)
        return case.findings(given, None if isolated else outputs, alone=isolated)


@dataclass(frozen=True, slots=True)
class _Case:
    """Judges one call of a delegate.

    Attributes:
        delegate: The function, its backend, and the inputs that are the same in every call.
        against: The readers that are asked.
        symbols: The value of each symbol.
    """

    delegate: Delegate
    against: tuple[Reader, ...]
    symbols: Symbols

    def findings(
        self, given: Values, results: Sequence[torch.Tensor] | None, *, alone: bool
    ) -> Iterator[Finding] | str:
        """Return what is off in a call, or why it cannot be compared.

        Args:
            given: The inputs of the body, by name.
            results: What the backend made of them; None to run it.
            alone: Whether each node of the body is compiled and judged alone, too.

        Raises:
            ExecutionError: The backend fails on the delegate.
        """
        body = self.delegate.body
        meaning = meaning_of(body.replace(signature=None))
        if isinstance(meaning, str):
            return meaning
        if operator := without_tolerance(meaning.ir):
            return untold(operator)
        if meaning.draws:
            return RANDOM
        if meaning.has_open_values:
            return "it is made of values that are open"
        if results is None:
            results = self._own(given)
        return self._findings(meaning, given, results, alone)

    def _own(self, given: Values) -> Sequence[torch.Tensor]:
        """What the backend's own function for the whole body gives."""
        try:
            return self._called(self.delegate.body, self.delegate.compiled, given)
        except TorchIRError:
            raise
        except Exception as error:  # a backend's code may raise anything
            name = self.delegate.backend.name
            raise ExecutionError(
                f"the backend {name!r} fails on {self.delegate.body.model_name!r}: "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error

    def _findings(
        self, meaning: Meaning, given: Values, results: Sequence[torch.Tensor], alone: bool
    ) -> Iterator[Finding]:
        body = self.delegate.body
        torch_values = self._torch_values(given)
        wrong: list[Finding] = []
        if alone and len(body.nodes) > 1:
            wrong = [f for node in body.nodes for f in self._alone(node, given, torch_values)]
            yield from wrong
        whole = list(self._compared(body, meaning, given, results, torch_values))
        if any(found.error.reason for found in wrong):
            return
        if any(found.error.reason for found in whole) and len(body.nodes) > 1:
            yield from self._smallest(given, torch_values) or whole
        else:
            yield from whole

    def _torch_values(self, given: Values) -> dict[str, torch.Tensor]:
        """Every value of the body as torch makes it, node by node."""
        body = self.delegate.body
        copies = dict(zip(given, copied(list(given.values())), strict=True))
        inputs = [copies[meta.name] for meta in body.graph_inputs]
        sizes = {str(size): size.evaluate(self.symbols) for size in _sizes(body)}
        table = Table(None, None, copy=True)
        IRExecutor(body, {}).graph.run(inputs, sizes, table, reuse=False)
        return {**given, **table.values}

    def _alone(self, node: OpNode, given: Values, known: Values) -> list[Finding]:
        """What the backend makes of one node, on torch's values."""
        return self._tried([node], list(node.outputs), known) or []

    def _smallest(self, given: Values, known: Values) -> list[Finding]:
        """What is off in the shortest prefix of the body that is wrong."""
        nodes = self.delegate.body.nodes
        good, bad, found = 0, len(nodes), list[Finding]()
        while bad - good > 1:
            half, middle, tried = (good + bad) // 2, good, None
            # a prefix that the backend refuses moves the border outward
            for middle in (*range(half, bad), *range(half - 1, good, -1)):
                tried = self._tried(nodes[:middle], self._live(middle), known)
                if tried is not None:
                    break
            if tried is None:
                break
            if any(item.error.reason for item in tried):
                bad, found = middle, tried
            else:
                good = middle
        shown = [meta for node in nodes[:bad] for meta in node.outputs]
        every = self._tried(nodes[:bad], shown, known) or []
        found = [item for item in every if item.error.reason] or found
        first = next((item for item in found if item.error.reason), None)
        return [] if first is None else [item for item in found if item.node is first.node]

    def _live(self, length: int) -> list[TensorMeta]:
        """The values of a prefix that the rest of the body reads or the program takes."""
        body = self.delegate.body
        used = {meta.name for node in body.nodes[length:] for meta in node.inputs}
        used |= {meta.name for meta in body.graph_outputs}
        made = [meta for node in body.nodes[:length] for meta in node.outputs]
        return [meta for meta in made if meta.name in used]

    def _tried(
        self, nodes: Sequence[OpNode], returned: Sequence[TensorMeta], known: Values
    ) -> list[Finding] | None:
        """What is off in some nodes compiled for themselves; None if the backend refuses them."""
        backend = self.delegate.backend
        name = self.delegate.body.model_name
        body = function_of(self.delegate.body, nodes, returned, name, backend.name)
        meaning = meaning_of(body.replace(signature=None))
        if isinstance(meaning, str) or without_tolerance(meaning.ir):
            return None
        if meaning.draws or meaning.has_open_values:
            return None
        held = {n: t for n, t in self.delegate.held.items() if n in body.input_names}
        given = {meta.name: known[meta.name] for meta in body.graph_inputs}
        try:
            results = self._called(body, backend.compile(body, held), given)
        except Exception:  # noqa: BLE001 - whatever a backend raises, it refuses the part
            return None
        return list(self._compared(body, meaning, given, results, known))

    def _called(self, body: IR, compiled: Delegated, given: Values) -> list[torch.Tensor]:
        """What a compiled function gives on copies of its inputs."""
        names = [n for n in body.input_names if n not in self.delegate.held]
        tensors = copied([given[name] for name in names])
        sizes = [int(size.evaluate(self.symbols)) for size in _sizes(body)]
        with torch.no_grad():
            return list(compiled(*tensors, *sizes))

    def _compared(
        self,
        body: IR,
        meaning: Meaning,
        given: Values,
        results: Sequence[torch.Tensor],
        known: Values,
    ) -> Iterator[Finding]:
        """Compare results with the meaning, and with torch's within the same bound."""
        call = OpNode(body.model_name, CALL, body.graph_inputs, body.graph_outputs)
        inputs = [given[meta.name] for meta in body.graph_inputs]
        name = self.delegate.body.model_name
        for allowed in allowances(meaning, call, inputs, self.symbols, results, {}):
            node = body.producers[allowed.value]
            bound = _with_one_unit(allowed.bound, allowed.expected)
            denoted = within(allowed.expected, allowed.got, bound)
            if "denotation" in self.against:
                yield Finding(node, allowed.value, "denotation", denoted, name, body, given)
            if "eager" in self.against and (denoted.reason or _is_rounded(allowed.got)):
                eager = within(as_array(known[allowed.value]), allowed.got, bound)
                yield Finding(node, allowed.value, "eager", eager, name, body, given)


def _sizes(body: IR) -> list[SymExpr]:
    """The sizes that a function takes beside tensors."""
    given = leaves(body.signature.inputs) if body.signature is not None else ()
    sizes = [leaf.value for leaf in given if isinstance(leaf, ValueLeaf)]
    return [size for size in sizes if isinstance(size, SymExpr)]


def _is_rounded(values: Array) -> bool:
    return is_float(values.dtype) or is_complex(values.dtype)


def _with_one_unit(bound: Array, expected: Array) -> Array:
    """A bound that leaves the last place of every number that is rounded to the backend."""
    if not _is_rounded(expected):
        return bound
    with np.errstate(all="ignore"):
        return np.asarray(bound + np.nan_to_num(spacing(expected), posinf=0.0))
