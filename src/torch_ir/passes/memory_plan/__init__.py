"""A place in one arena for every value of a program."""

from torch_ir.passes.memory_plan.offsets import Piece
from torch_ir.passes.memory_plan.packing import arrange
from torch_ir.passes.memory_plan.planning import MemoryPlan, plan_memory

__all__ = ["MemoryPlan", "Piece", "arrange", "plan_memory"]
