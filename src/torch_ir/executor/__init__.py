"""Running an IR on torch's kernels."""

from torch_ir.errors import ExecutionError, InputError, MissingWeightsError
from torch_ir.executor.program import Observer
from torch_ir.executor.registry import TensorRegistry, register_executor, unregister_executor
from torch_ir.executor.run import IRExecutor, execute_ir
from torch_ir.executor.types import check_types

__all__ = [
    "ExecutionError",
    "IRExecutor",
    "InputError",
    "MissingWeightsError",
    "Observer",
    "TensorRegistry",
    "check_types",
    "execute_ir",
    "register_executor",
    "unregister_executor",
]
