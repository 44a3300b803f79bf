"""Functions run as programs: traced once, kept in a cache with an exact key."""

from torch_ir.traced.function import CacheInfo, Traced, TraceWarning, make_ir, make_traced
from torch_ir.traced.report import ExecutorReport, NodeReport
from torch_ir.traced.run.execute import execute

__all__ = [
    "CacheInfo",
    "ExecutorReport",
    "NodeReport",
    "TraceWarning",
    "Traced",
    "execute",
    "make_ir",
    "make_traced",
]
