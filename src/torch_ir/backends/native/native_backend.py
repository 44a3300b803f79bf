"""The base of backends that are runtimes of their own: they take programs of torch.export."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torch_ir.backends.native.withheld import withheld
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Delegated, Support
from torch_ir.errors import CompileError, TorchIRError, raised_as
from torch_ir.ir import IR, OpNode

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from torch_ir.backends.backend_registry import Options, Runner


class NativeBackend(DelegateBackend):
    """A runtime that compiles programs of ``torch.export``, and is believed nothing.

    A subclass says what it supports, and builds. The rest is done here: the program is decomposed
    as far as the runtime needs it, and partitioned; each delegate is compared with its meaning
    before it is used; what the runtime refuses or gets wrong is found by halving and runs on
    torch. Buffers that the program writes are inputs and outputs of delegates, never the
    runtime's. Calls of one delegate take turns unless ``is_thread_safe``.

    Attributes:
        name: The name under which it is registered, and by which its delegates are named.
        version: The version of the runtime; part of the key of the cache.
        takes: Operators to keep whole that a decomposition would split up.
        is_thread_safe: Whether what ``build`` returns may be called from several threads at once.
        in_place: Operators that write a part of an argument and whose result the runtime gives in
            the argument's memory where :meth:`into` asks for it.

    Example:
        >>> from torch_ir import parse
        >>> from torch_ir.backends import compile
        >>> class Torch(NativeBackend):
        ...     name = "torch_again"
        ...     version = "1"
        ...     def build(self, program, options):
        ...         return program.module()
        >>> run = compile(parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   return %a
        ... }'''), backend=Torch())
        >>> [(verdict.nodes, verdict.used, verdict.part) for verdict in run.verdicts]
        [(('a',), True, 0.0)]
    """

    version: str = ""
    takes: frozenset[str] = frozenset()
    is_thread_safe: bool = False
    in_place: frozenset[str] = frozenset()

    @abstractmethod
    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Convert and compile a program to a function.

        Args:
            program: Functional, without state; its weights are its own.
            options: Those that were given to :func:`torch_ir.compile`.

        Returns:
            A function that takes the program's inputs (a size is an ``int``), contiguous, and
            gives its outputs. They must not share memory with those of other calls.

        Raises:
            Exception: Any: the runtime refuses the program, which is then halved.
        """

    def into(self, built: Delegated, places: Mapping[int, int]) -> Delegated:
        """Return what ``build`` made as a function that gives some results in arguments' memory.

        Nothing but the operator that writes the result reads the argument. Where the function
        cannot, it gives another tensor.

        Args:
            built: What it returned.
            places: The position of the argument by that of the result, which then is the very
                tensor that was given.
        """
        raise NotImplementedError

    def pack(self, built: Delegated) -> bytes | None:
        """Return what ``build`` made as bytes for the cache; None where it cannot be kept."""

    def unpack(
        self, blob: bytes, program: ExportedProgram, options: Mapping[str, Any]
    ) -> Delegated:
        """Return what ``pack`` was given.

        Args:
            blob: What it returned, in a process of the same versions.
            program: The program that it was built from.
            options: The options that it was built with.
        """
        raise NotImplementedError

    def operators(self) -> Collection[str] | None:
        """Return the operators that the runtime has, by overload; None where no table says."""

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether the runtime runs a node: by operator, element types and the deny list.

        What no runtime may run is withheld from one whatever its own method says.
        """
        if reason := withheld(node, ir):
            return Support.refused(reason)
        facts = facts_of(self.name)
        if reason := facts.denied.get(node.op_type):
            return Support.refused(reason)
        known = self.operators()
        if known is not None and node.op_type not in known:
            return Support.refused(f"{self.name} has no {node.op_type}")
        for meta in (*node.inputs, *node.outputs):
            if reason := facts.dtypes.get(meta.dtype):
                return Support.refused(reason)
        reason = facts.reason_for(node)
        return Support.refused(reason) if reason else SUPPORTED

    def prepare(self, ir: IR) -> IR:
        """Return the program with what the runtime lacks split up, where that helps."""
        from torch_ir.backends.native.preparation import prepared_to_run

        return prepared_to_run(ir, (self,))

    def compile(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Delegated:
        """Build a subgraph, unverified; see :meth:`DelegateBackend.compile`.

        Raises:
            CompileError: The runtime refuses it, in its own words.
        """
        from torch_ir.backends.native.attempts import said
        from torch_ir.backends.native.building import built
        from torch_ir.backends.native.places import writes_unseen

        if writes_unseen(ir, payload):
            raise CompileError(
                f"{self.name} is not given it: it writes to places that it computes, at which "
                "nothing looks as torch does",
                remedy="Use torch_ir.compile(..., backend=...), which leaves them to torch.",
            )
        with raised_as(
            lambda error: CompileError(f"{self.name} refuses it: {said(error)}"),
            passing=(TorchIRError,),
        ):
            return built(self, ir, payload, {}, None)

    def __call__(
        self, ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
    ) -> Runner:
        """The program with what is verified on this runtime, and the rest on torch.

        Raises:
            ExecutionError: Gradients are asked for: a delegate has none.
            MissingWeightsError: The program has weights and none were given.
            WeightLoadError: The weights are not those that it needs.
        """
        from torch_ir.backends.native.native_executor import NativeExecutor

        self.require_no_grad(options)
        return NativeExecutor(ir, weights, (self,), options)


class Facts:
    """What is known of a runtime, from its file in ``backends/runtimes/data``.

    Attributes:
        translated: Operators that it has beside those that it names itself.
        denied: Why it is not given an operator, by overload.
        inexact: Why it is given an operator only where a tolerance is, by overload.
        dtypes: Why it is not given tensors of an element type.
        results: Operators or overloads, what matters of element types and ranks of their results,
            of element types of their inputs and of their arguments, and why it is not given them.
    """

    def __init__(self, document: Mapping[str, Any]):
        self.translated: frozenset[str] = frozenset(document.get("translated", ()))
        self.denied: Mapping[str, str] = document.get("denied", {})
        reasons: Mapping[str, Sequence[str]] = document.get("inexact", {})
        self.inexact = {op_type: why for why, types in reasons.items() for op_type in types}
        self.dtypes: Mapping[str, str] = document.get("dtypes", {})
        self.results: Sequence[Mapping[str, Any]] = document.get("results", ())

    def reason_for(self, node: OpNode) -> str:
        """Return why the runtime is not given a node with such results; empty if it is."""
        packet = node.op_type.rpartition(".")[0]
        made = {meta.dtype for meta in node.outputs}
        taken = {meta.dtype for meta in node.inputs}
        ranks = {len(meta.shape) for meta in node.outputs}
        for rule in self.results:
            known = {"dtypes": made, "inputs": taken, "ranks": ranks}
            told = all(found & {*rule[name]} for name, found in known.items() if name in rule)
            told &= rule.get("arguments", {}).items() <= node.attrs.items()
            if told and not {packet, node.op_type}.isdisjoint(rule["operators"]):
                return rule["reason"]
        return ""


@lru_cache
def facts_of(runtime: str) -> Facts:
    """Read what is known of a runtime; nothing where there is no file of it."""
    file = files("torch_ir.backends.runtimes") / "data" / f"{runtime}.json"
    return Facts(json.loads(file.read_text()) if file.is_file() else {})
