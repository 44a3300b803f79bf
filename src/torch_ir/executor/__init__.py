"""Executors: IRs that run on torch's kernels."""

from torch_ir.errors import CompileError, ExecutionError, InputError, MissingWeightsError
from torch_ir.executor.autograd.gradients import Gradients, Pullback
from torch_ir.executor.check.compile import check_types, compile_graph
from torch_ir.executor.graph import ExecGraph, RunStats
from torch_ir.executor.listeners import Listener
from torch_ir.executor.run import IRExecutor, execute_ir
from torch_ir.infer.generators import register_generator
from torch_ir.infer.slots import Idx
from torch_ir.weights.tensor_registry import TensorRegistry, register_executor, unregister_executor

__all__ = [
    "CompileError",
    "ExecGraph",
    "ExecutionError",
    "Gradients",
    "IRExecutor",
    "Idx",
    "InputError",
    "Listener",
    "MissingWeightsError",
    "Pullback",
    "RunStats",
    "TensorRegistry",
    "check_types",
    "compile_graph",
    "execute_ir",
    "register_executor",
    "register_generator",
    "unregister_executor",
]
