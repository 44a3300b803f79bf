"""Plant faults in compiled graphs and in denotations, and see that ``validate`` finds them all.

A fault in a compiled graph: the graph of an altered program is compiled, and validated as if it
were that of the right one. It must be found by each reader by itself. A fault in a denotation: the
function that says what an operator means is replaced by a wrong one. ``fault_cases.py`` has the
altered calls and ``fault_denotations.py`` what is wrong with a denotation alone; faults that are
about memory (a result that takes the place of a value which is still read) are here.

A fault that changes no bit of any value on the inputs at hand shows nothing about ``validate``:
the tool refuses it, so that none is counted.

Usage: ``python tools/planted_faults.py [--some N] [--verbose]``; exit status 1 if one survives.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from fault_cases import Alter, Case, cases
from fault_delegates import DELEGATES, DelegateFault
from fault_denotations import WRONG, Wrong
from fault_kernels import KernelFault, call_of, is_above, kernel, kernel_faults
from fault_memory import MEMORY, MemoryFault
from fault_places import PLACES
from semantics_calls import to_numpy
from torch_ir import (
    IR,
    ExecGraph,
    OpNode,
    TensorMeta,
    ValidationReport,
    compile_graph,
    denote,
    register_executor,
    validate,
)
from torch_ir.debug.tensor_comparison import digest
from torch_ir.executor import unregister_executor
from torch_ir.ir.check import check
from torch_ir.semantics import Denotation, denotation, registry

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    Attributes:
        place: ``"graph"``, ``"memory"``, ``"denotation"``, ``"kernel"`` or ``"delegate"``.
        op: The operator.
        what: What is wrong.
        subject: What makes it.
    """

    place: str
    op: str
    what: str
    subject: Any

    def __str__(self) -> str:
        return f"{self.place}: {self.op}: {self.what}"


def faults() -> list[Fault]:
    """Every fault, in a fixed order."""
    found: list[Fault] = []
    for case in cases():
        for alter in case.alterations:
            found += [Fault(place, case.op, alter.what, (case, alter)) for place in alter.places]
    found += [Fault("denotation", wrong.op, wrong.what, wrong) for wrong in WRONG]
    found += [Fault("memory", fault.op, fault.what, fault) for fault in (*MEMORY, *PLACES)]
    found += [Fault("delegate", fault.op, fault.what, fault) for fault in DELEGATES]
    found += [Fault("kernel", fault.op, fault.told, fault) for fault in kernel_faults()]
    return found


def is_found(fault: Fault) -> bool:
    """Whether ``validate`` finds a fault.

    Raises:
        ValueError: It changes nothing.
    """
    match fault.subject:
        case MemoryFault() as memory:
            return _memory_is_found(memory)
        case DelegateFault() as delegate:
            return delegate.is_found()
        case KernelFault() as wrong_kernel:
            return not kernel_survives(fault, wrong_kernel)
        case Wrong() as wrong:
            ir, inputs = program(Case(wrong.op, wrong.tensors, wrong.attrs, ()))
            right = denotation(wrong.op).function
            return _denotation_is_found(fault, ir, inputs, wrong.function(right))
        case (Case() as case, Alter() as alter) if fault.place == "graph":
            return _graph_is_found(fault, case, alter)
        case (Case() as case, Alter() as alter):
            ir, inputs = program(case)
            return _denotation_is_found(fault, ir, inputs, _altered_denotation(case.op, alter))
    raise TypeError(f"{fault} is of no known kind")


# -- programs -------------------------------------------------------------------------------------


def program(case: Case) -> tuple[IR, Inputs]:
    """A call as a program, and its inputs."""
    tensors: list[torch.Tensor] = []
    operands: dict[str, Any] = {}
    for name, value in case.tensors.items():
        many = value if isinstance(value, list) else [value]
        indices = tuple(range(len(tensors), len(tensors) + len(many)))
        operands[name] = indices if isinstance(value, list) else indices[0]
        tensors += many
    inputs = [_meta(f"x{i}", tensor) for i, tensor in enumerate(tensors)]
    return _of(case.op, inputs, operands, case.attrs, tensors), tuple(tensors)


def _of(
    op: str,
    inputs: list[TensorMeta],
    operands: Mapping[str, Any],
    attrs: Mapping[str, Any],
    tensors: list[torch.Tensor],
) -> IR:
    """The program of one call, its outputs as torch makes them."""
    _, name, overload = op.split(".")
    operator = getattr(getattr(torch.ops.aten, name), overload)
    named = dict(attrs)
    for argument, slots in operands.items():
        many = isinstance(slots, tuple)
        named[argument] = [tensors[i] for i in slots] if many else tensors[slots]
    made = operator(**named)
    results = list(made) if isinstance(made, list | tuple) else [made]
    single = len(results) == 1
    outputs = [
        _meta("y" if single else f"y.{i}", tensor, "y", i) for i, tensor in enumerate(results)
    ]
    node = OpNode("y", op, inputs, outputs, dict(attrs), operands)
    return IR([node], inputs, outputs, [], model_name=op)


def _meta(name: str, tensor: torch.Tensor, producer: str | None = None, i: int = 0) -> TensorMeta:
    return TensorMeta(name, tuple(tensor.shape), str(tensor.dtype)[6:], producer, i)


# -- faults in a graph ----------------------------------------------------------------------------


def altered(case: Case, alter: Alter) -> Case:
    """The call with what is wrong with it."""
    tensors, attrs = dict(case.tensors), {**case.attrs, **alter.put}
    for name in alter.drop:
        attrs.pop(name, None)
    if alter.swap is not None:
        first, second = alter.swap
        tensors[first], tensors[second] = tensors[second], tensors[first]
    if alter.turn:
        tensors[alter.turn] = tensors[alter.turn][::-1]
    return Case(alter.op or case.op, tensors, attrs, ())


def _graph_is_found(fault: Fault, case: Case, alter: Alter) -> bool:
    ir, inputs = program(case)
    wrong = altered(case, alter)
    places = {id(tensor): i for i, tensor in enumerate(inputs)}
    operands = {
        name: tuple([places[id(t)] for t in value])
        if isinstance(value, list)
        else places[id(value)]
        for name, value in wrong.tensors.items()
    }
    mutant = _of(wrong.op, list(ir.graph_inputs), operands, wrong.attrs, list(inputs))
    graph = compile_graph(mutant)
    _require_observable(fault, compile_graph(ir).eval(inputs), graph.eval(inputs))
    graph.ir = ir
    return all(
        not validate(ir, {}, inputs, graph=graph, against=[reader]).is_valid
        for reader in ("denotation", "eager")
    )


def _require_observable(fault: Fault, right: Any, wrong: Any) -> None:
    pairs = list(zip(right, wrong, strict=False))
    if len(right) == len(wrong) and all(_same(first, second) for first, second in pairs):
        raise ValueError(f"{fault} changes nothing")


def _same(first: Any, second: Any) -> bool:
    first, second = np.asarray(first), np.asarray(second)
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return first.tobytes() == second.tobytes()


# -- faults in a kernel ---------------------------------------------------------------------------

READERS = (("denotation",), ("eager",), ("denotation", "eager"))


def kernel_survives(fault: Fault, wrong: KernelFault) -> list[str]:
    """By which readers a fault of a kernel is not found; those below the threshold by eager alone.

    Raises:
        ValueError: It changes nothing.
    """
    call = call_of(wrong.case, wrong.dtype, wrong.size, wrong.mask, wrong.layout)
    tensors = list(call.tensors.values())
    inputs = [_meta(f"x{i}", tensor) for i, tensor in enumerate(tensors)]
    places = {name: place for place, name in enumerate(call.tensors)}
    ir = _of(wrong.op, inputs, places, call.attrs, tensors)
    with _registered([kernel(wrong, [*call.tensors])]):
        graph = compile_graph(ir)
    _require_observable(fault, _bits(compile_graph(ir).eval(tensors)), _bits(graph.eval(tensors)))
    above = is_above(wrong, call)
    return [
        " and ".join(readers)
        for readers in READERS
        if (above or "eager" in readers)
        and validate(ir, {}, tensors, graph=graph, against=readers).is_valid
    ]


def _bits(values: Any) -> list[Any]:
    return [to_numpy(value) for value in values]


# -- faults in a denotation -----------------------------------------------------------------------


def _altered_denotation(op: str, alter: Alter) -> Any:
    function = denotation(alter.op or op).function

    def wrong(**arguments: Any) -> Any:
        values = {**arguments, **alter.put}
        for name in alter.drop:
            values.pop(name, None)
        if alter.swap is not None:
            first, second = alter.swap
            values[first], values[second] = values[second], values[first]
        if alter.turn:
            values[alter.turn] = values[alter.turn][::-1]
        return function(**values)

    return wrong


def _denotation_is_found(fault: Fault, ir: IR, inputs: Inputs, function: Any) -> bool:
    right = denote(ir, {}, inputs)
    with planted(fault.op, function), np.errstate(all="ignore"):
        try:
            _require_observable(fault, right, denote(ir, {}, inputs))
        except ValueError:
            raise
        except Exception:  # noqa: BLE001  # a wrong shape or type is refused: that shows
            pass
        return not validate(ir, {}, inputs, against=["denotation"]).is_valid


@contextmanager
def planted(op: str, function: Any) -> Iterator[None]:
    """Let an operator mean something else."""
    known = registry._DENOTATIONS
    function.__module__ = known[op].function.__module__  # its tolerance stays that of its family
    with patch.dict(known, {op: Denotation(op, function, known[op].draws)}):
        yield


# -- faults in memory -----------------------------------------------------------------------------


def _memory_is_found(fault: MemoryFault) -> bool:
    ir, wrong, inputs, weights = fault.right(), fault.wrong(), fault.inputs(), fault.weights()
    assert not check(ir)
    right_graph = compile_graph(ir, weights)
    right = _run(right_graph, inputs)
    assert validate(ir, weights, inputs).is_valid, f"{fault.op}: the right program disagrees"
    with _registered(fault.kernels):
        graph = compile_graph(wrong, weights)
    if right == _run(graph, inputs):
        raise ValueError(f"memory: {fault.op}: {fault.what} changes nothing")
    graph.ir = ir
    reports: list[ValidationReport] = []
    for reader in ("denotation", "eager"):
        graph.reset()
        reports.append(validate(ir, weights, inputs, graph=graph, against=[reader]))
    assert not any(tensor.any() for tensor in weights.values()), "it writes to the weights"
    return all(any(d.memory for d in report.divergences) for report in reports)


def _run(graph: ExecGraph, inputs: Inputs) -> list[Any]:
    """What a run gives and leaves: bits, and which results share memory with what."""
    given = [tensor.clone() for tensor in inputs]
    made = [*graph.eval(given), *given]
    storages = [tensor.untyped_storage().data_ptr() for tensor in made]
    buffers = {key: digest(tensor) for key, tensor in graph.buffers.items()}
    found: list[Any] = [buffers, *map(digest, made)]
    pairs = zip(made, storages, strict=True)
    found += [(storages.index(storage), tensor.stride()) for tensor, storage in pairs]
    graph.reset()
    return found


@contextmanager
def _registered(kernels: Sequence[tuple[str, Any]]) -> Iterator[None]:
    for op, function in kernels:
        register_executor(op)(function)
    try:
        yield
    finally:
        for op, _ in kernels:
            unregister_executor(op)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--some", type=int, metavar="N", default=1, help="every Nth fault only")
    parser.add_argument("--verbose", action="store_true", help="name every fault")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    below: Counter[str] = Counter()
    survivors: list[Fault] = []
    for fault in faults()[:: options.some]:
        found = is_found(fault)
        counts[fault.place] += 1
        if isinstance(fault.subject, KernelFault) and found:
            wrong = fault.subject
            call = call_of(wrong.case, wrong.dtype, wrong.size, wrong.mask, wrong.layout)
            below[wrong.what] += not is_above(wrong, call)
        if not found:
            survivors.append(fault)
        if options.verbose or not found:
            print(f"{'found' if found else 'SURVIVES'}  {fault}", flush=True)
    parts = ", ".join(f"{count} in {place}" for place, count in counts.items())
    print(f"{counts.total()} faults planted ({parts}); {len(survivors)} survive")
    said = ", ".join(f"{count} of {what!r}" for what, count in below.items() if count)
    print(f"below the threshold of the denotation, and found by eager: {said or 'none'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
