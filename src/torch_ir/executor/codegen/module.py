"""Generated source as a module that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import CodeType, TracebackType
from typing import Any

import torch

from torch_ir.executor.codegen.lines import CodeLine
from torch_ir.executor.codegen.names import printable
from torch_ir.executor.codegen.source import Source
from torch_ir.infer.binder import BoundCall
from torch_ir.weights.tensor_registry import DirectKernel


@dataclass(frozen=True, slots=True)
class Compiled:
    """A module of generated code, bound to its weights.

    Attributes:
        run: Runs the graph on its inputs and the values of ``symbols``; returns its outputs and
            the values of ``returned_symbols``.
        accepts: The values of ``symbols`` for inputs that fit, or None.
        symbols: The symbols that a call gives.
        returned_symbols: The symbols that results are computed from.
        filename: The name under which tracebacks know the module.
        source: Its source.
    """

    run: Callable[..., tuple[Any, ...]]
    accepts: Callable[..., tuple[Any, ...] | None]
    symbols: tuple[str, ...]
    returned_symbols: tuple[str, ...]
    filename: str
    source: Source

    def lines_of(self, traceback: TracebackType | None) -> Iterator[CodeLine]:
        """Yield the lines on which a traceback passes, the outermost first."""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                yield self.source.line_at(traceback.tb_lineno)
            traceback = traceback.tb_next


_NUMBER = count(1)  # tells the modules of a process apart in tracebacks


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """Generated source, compiled by Python.

    Attributes:
        source: The source.
        code: Its code.
        filename: The name under which tracebacks know it.
    """

    source: Source
    code: CodeType
    filename: str

    def bind(self, payload: Mapping[str, torch.Tensor]) -> Compiled:
        """Bind the tensor behind each external name to the module."""
        loader = _Loader(self.source)
        namespace: dict[str, Any] = {"__name__": self.filename, "__loader__": loader}
        exec(self.code, namespace)  # noqa: S102  # our own text: all names in it are made here
        kernels = {key: _kernel(call) for key, call in self.source.kernels.items()}
        return Compiled(
            namespace["bind"](payload, kernels),
            namespace["accepts"],
            self.source.symbols,
            self.source.returned_symbols,
            self.filename,
            self.source,
        )


def compile_source(source: Source, name: str) -> CompiledModule:
    """Let Python compile the source of a graph of that name."""
    # no brackets around it: then tracebacks would not ask the loader for the lines
    filename = f"torch-ir: {printable(name) or 'graph'} {next(_NUMBER)}"
    return CompiledModule(
        source, compile(source.code, filename, "exec", dont_inherit=True), filename
    )


def _kernel(call: BoundCall) -> Callable[[Sequence[torch.Tensor]], Any]:
    """A kernel that a user registered, as generated code calls it."""
    function: Any = call.target
    if isinstance(function, DirectKernel):
        return function.call
    return lambda inputs: function(list(inputs), call.node.attrs)


class _Loader:
    """Shows tracebacks the lines of generated code."""

    def __init__(self, source: Source):
        self._source = source

    def get_source(self, name: str) -> str:
        """The text of the module."""
        return self._source.text
