"""The subject of a judgment: a backend by name or as a value, or a compiled runner."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch

from torch_ir.backends.backend_registry import (
    Backend,
    Options,
    Runner,
    find_backend,
    instance_of,
    known_backends,
    registered_backends,
)
from torch_ir.backends.delegate import body_of, delegated, delegates
from torch_ir.backends.delegating import Delegate, DelegatingExecutor, listed
from torch_ir.backends.native.native_executor import executor_of
from torch_ir.backends.partition import Partition
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Delegated, Support
from torch_ir.errors import CompileError, InvalidIRError
from torch_ir.executor import ExecGraph
from torch_ir.executor.inputs import structured
from torch_ir.infer.bindings import bind_inputs
from torch_ir.ir import IR, OpNode, TensorLeaf
from torch_ir.ir.expressions import Number
from torch_ir.ir.functions import written_out
from torch_ir.ir.process_groups import groups_of, with_group_names
from torch_ir.ir.queries import external_keys
from torch_ir.ir.tree import leaves
from torch_ir.passes.functionalization import functional_form
from torch_ir.torch_api import pytree
from torch_ir.torch_memory import copied

One: TypeAlias = "str | DelegateBackend | type[DelegateBackend]"
Judged: TypeAlias = "One | Sequence[One] | Runner"
Tensors: TypeAlias = Mapping[str, torch.Tensor]


class WholePrograms(DelegateBackend):
    """A backend that takes whole programs, as one that takes any part of one.

    Args:
        name: Its name.
        make: The backend.

    Attributes:
        make: The same.
    """

    def __init__(self, name: str, make: Backend):
        self.name = name
        self.make = make

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return that it does: it says so of no node before it compiles a program."""
        return SUPPORTED

    def compile(self, ir: IR, payload: Tensors) -> Delegated:
        """Compile a part as a program of its own."""
        run = self.make(ir, {}, Options())
        names = ir.input_names

        def call(*given: Any) -> Sequence[torch.Tensor]:
            rest = iter(given)
            taken = [payload[name] if name in payload else next(rest) for name in names]
            return listed(run(*taken, *rest))

        return call


def source_of(backend: DelegateBackend) -> tuple[str, str, str]:
    """Return how a script finds a backend: a folder of modules, an import of one, an expression.

    Of a backend that an installed package offers, the first two are empty.
    """
    made: Any = backend.make if isinstance(backend, WholePrograms) else backend
    module = sys.modules.get(made.__module__)
    is_registered = backend.name in known_backends()
    if is_registered and backend.name not in registered_backends():
        return "", "", repr(backend.name)
    path = Path(getattr(module, "__file__", None) or "backend.py")
    name = path.stem if made.__module__ == "__main__" else made.__module__
    is_package = path.name == "__init__.py"
    place = path.parents[name.count(".") + is_package] if module is not None else path.parent
    if is_registered:
        return str(place), f"import {name}  # registers the backend", repr(backend.name)
    values = [key for key, value in vars(module).items() if value is made] if module else []
    kind = type(made).__name__
    code = values[0] if values else f"{kind}()"
    return str(place), f"from {name} import {values[0] if values else kind}", code


def judged_executor(
    ir: IR, weights: Tensors | None, constants: Tensors | None, judged: Judged | None
) -> DelegatingExecutor | None:
    """Return the program as backends run it; None if nothing is judged but torch.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key.
        constants: Values that are in no state dict.
        judged: Backends, or a runner that has some.

    Raises:
        ExecutionError: There is no such backend.
        InvalidIRError: It is neither a backend nor a runner that can be looked into.
    """
    if judged is None:
        return None
    if isinstance(judged, DelegatingExecutor):
        return judged
    if isinstance(judged, str | type | DelegateBackend):
        judged = (judged,)
    if not isinstance(judged, Iterable):
        raise _unknown("backend", judged)
    backends = [backend_of(item) for item in cast(Sequence[Any], judged)]
    return executor_of(ir, weights, backends, constants)


def graph_of(graph: object) -> ExecGraph | None:
    """Return the compiled graph of a runner, or the graph itself; None if it shows none."""
    found = getattr(graph, "graph", graph)
    return found if isinstance(found, ExecGraph) else None


def require_compiled_from(judged: Iterable[object], ir: IR) -> None:
    """Refuse a compiled program that is another than the one asked about: it would be judged.

    Args:
        judged: Compiled graphs and runners; anything else is left alone.
        ir: The program.

    Raises:
        InvalidIRError: One was compiled from another program.
    """
    for ran in map(_source_of, judged):
        if ran is None or ran is ir:
            continue
        # compiled, its groups have the names of this process
        if difference := _without_groups(ir).diff(_without_groups(ran)):
            raise InvalidIRError(
                "what is judged was compiled from another program; the first change is\n"
                f"{difference.changes[0]}",
                remedy="Compile the program that you give, or give the one that was compiled.",
            )


def _source_of(judged: object) -> IR | None:
    """The program that was compiled, if this is known of what is judged."""
    if isinstance(judged, DelegatingExecutor):
        return judged.source
    graph = graph_of(judged)
    return None if graph is None else graph.ir


def _without_groups(ir: IR) -> IR:
    return with_group_names(ir, dict.fromkeys(groups_of(ir), ""))


def runner_of(graph: object) -> Runner:
    """Require a runner, of which at least the results can be compared.

    Raises:
        InvalidIRError: It cannot be called.
    """
    if not callable(graph):
        raise InvalidIRError(
            f"graph= takes a compiled graph or what compile() returns, got {type(graph).__name__}"
        )
    return graph


class OpaqueRunner(DelegateBackend):
    """A runner of a whole program that shows none of its nodes, as a backend of one delegate.

    Args:
        ir: The program that it runs.
        run: The runner, which takes the model's own arguments.
        inputs: The tensors of the program's inputs; never changed.
        symbols: The value of each symbol among the arguments.

    Attributes:
        ir: The program as one call of a function.
        delegates: The function, by the name of the node that calls it.
        unseen: Why something that the runner makes cannot be compared; empty if all can.

    Raises:
        InvalidIRError: The program reads numbers from tensors.
        PassError: It writes in a way that cannot be followed.
    """

    name = "runner"

    def __init__(
        self,
        ir: IR,
        run: Runner,
        inputs: Sequence[torch.Tensor],
        symbols: Mapping[str, Number],
    ):
        ir = written_out(ir)
        program = functional_form(ir)
        reading = next((node for node in program.nodes if node.binds), None)
        if reading is not None:
            raise InvalidIRError(
                f"node {reading.name!r} reads a number from a tensor: a runner that shows no "
                "nodes cannot be judged on such a program",
                remedy="Give the name of its backend as backend=.",
            )
        self._run, self._inputs = run, inputs
        self._symbols = bind_inputs(program.graph_inputs, inputs, symbols)
        self._keys = external_keys(program)
        state = getattr(run, "buffers", None)
        hidden = [m for m in program.mutations if m.target in self._keys and state is None]
        keys = ", ".join([self._keys[m.target] for m in hidden])
        self.unseen = f"the runner does not show what it leaves in {keys}" if hidden else ""
        self._shown = program.replace(mutations=[m for m in program.mutations if m not in hidden])
        nodes = tuple(program.nodes)
        partition = Partition(self._shown, self.name, (nodes,), nodes, {})
        self.ir = delegated(partition)
        self.delegates = {
            node.name: Delegate(body_of(self.ir, node), self, {}, self._results)
            for node in delegates(self.ir)
        }

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return that it does: it runs the program."""
        return SUPPORTED

    def compile(self, ir: IR, payload: Tensors) -> Delegated:
        """Refuse every part of the program: nothing says what made the runner."""
        raise CompileError("a runner does not say what made it")

    def _results(self, *given: object) -> Sequence[Any]:
        """Run the program on its inputs; find the results of its one function."""
        del given
        program, (call,) = self._shown, self.ir.nodes
        tensors = copied(self._inputs)
        values: dict[str, Any] = dict(zip(program.input_names, tensors, strict=True))
        if program.signature is None:
            made = self._run(*tensors)
            names = list(program.output_names)
        else:
            args, kwargs = structured(program.signature.inputs, values, self._symbols)
            made = self._run(*args, **kwargs)
            found = leaves(program.signature.outputs)
            names = [leaf.name if isinstance(leaf, TensorLeaf) else "" for leaf in found]
        results = pytree.tree_leaves(made)
        if len(results) != len(names):
            return results
        left = dict(getattr(self._run, "buffers", None) or {})
        named = dict(zip(names, results, strict=True))
        for mutation in program.mutations:
            key = self._keys.get(mutation.target)
            named[mutation.value.name] = values[mutation.target] if key is None else left.get(key)
        return [named[meta.name] for meta in call.outputs]


def backend_of(item: Any) -> DelegateBackend:
    """Return the backend of a name, or which something is, as one that takes parts of programs."""
    found = find_backend(item) if isinstance(item, str) else instance_of(item, "backend=")
    if isinstance(found, DelegateBackend):
        return found
    if isinstance(item, str):
        return WholePrograms(item, found)
    raise _unknown("backend", item)


def _unknown(option: str, got: object) -> InvalidIRError:
    return InvalidIRError(
        f"{option}= takes a name, a DelegateBackend, several, or a runner of compile(), got "
        f"{type(got).__name__}"
    )
