"""What a user holds shows itself in one readable line."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir.backends import support
from torch_ir.backends.delegating import DelegatingExecutor
from torch_ir.backends.reference import ReferenceParts
from torch_ir.dialects import dialect
from torch_ir.edge import to_edge
from torch_ir.executor import compile_graph
from torch_ir.ir.diagnostics import Diagnostics
from torch_ir.passes import fold_batch_norm, run_passes

MODEL = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()).eval()
X = torch.ones(2, 4)
IR = torch_ir.extract_ir(MODEL, (X,))
WEIGHTS = MODEL.state_dict()
SHOWN = repr(IR)


def compiled():
    return compile_graph(IR, WEIGHTS)


def run():
    executor = torch_ir.IRExecutor(IR, WEIGHTS)
    executor(X)
    return executor


def pullback():
    return compile_graph(IR, WEIGHTS, grad=["0.weight"]).vjp((X,))[1]


def traced():
    function = torch_ir.make_traced(lambda x: x + 1)
    function(X)
    return function


HELD = {
    "IRExecutor": run,
    "TensorRegistry": lambda: run().registry,
    "ExecGraph": compiled,
    "Pullback": pullback,
    "RunStats": lambda: compiled().run_stats,
    "ReferenceExecutor": lambda: torch_ir.compile(IR, WEIGHTS, backend="reference"),
    "DelegatingExecutor": lambda: DelegatingExecutor(IR, WEIGHTS, ReferenceParts()),
    "ReferenceParts": ReferenceParts,
    "Partition": lambda: torch_ir.Partitioner(ReferenceParts())(IR),
    "SupportReport": lambda: support(IR, ReferenceParts()),
    "EdgeProgram": lambda: to_edge(IR),
    "Dialect": lambda: dialect("edge"),
    "Diagnostics": Diagnostics,
    "Diff": lambda: IR.diff(torch_ir.decompose(IR)),
    "PassResult": lambda: run_passes(IR, []),
    "FoldedProgram": lambda: fold_batch_norm(IR, WEIGHTS),
    "MemoryPlan": lambda: torch_ir.plan_memory(torch_ir.functionalize(IR)),
    "Profile": lambda: torch_ir.profile(compiled(), (X,), repeat=1),
    "Captured": lambda: torch_ir.capture(compiled(), (X,)),
    "ValidationReport": lambda: torch_ir.validate(IR, WEIGHTS, (X,)),
    "VerificationReport": lambda: torch_ir.verify(IR, MODEL, (X,)),
    "Traced": traced,
    "CacheInfo": lambda: traced().cache_info(),
    "ExecutorReport": lambda: traced().report(X),
    "IR": lambda: IR,
    "Constant": lambda: torch_ir.Constant.from_list([1.0] * 50, "float32"),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_user_holds_is_one_readable_line(name):
    shown = repr(HELD[name]())
    assert shown.startswith(f"{name}(")
    assert "\n" not in shown
    assert " at 0x" not in shown
    assert len(shown) <= 200


def test_executors_show_their_program():
    assert repr(run()) == f"IRExecutor({SHOWN}, grad=False)"


def test_gradients_show_types_alone():
    assert (
        repr(gradients()) == "Gradients(inputs=['f32[2, 4]'], weights={'0.weight': 'f32[4, 4]'})"
    )


def gradients():
    return torch_ir.executor.Gradients((X,), {"0.weight": MODEL[0].weight})
