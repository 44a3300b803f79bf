"""What the operators mean and cost, in NumPy alone: also where no torch is installed."""

from math import prod

from torch_ir.ops.flops import counts_operations
from torch_ir.semantics import denotes


@denotes("acme.softclip.default", tolerance="function")
def softclip(x, limit=1.0):
    """Return x / (1 + |x| / limit)."""
    return x / (1 + abs(x) / x.dtype.type(limit))


@counts_operations("acme.softclip.default")
def softclip_operations(arguments, results):
    """Count an absolute value, a quotient, a sum and a quotient for each element."""
    return 4 * prod(results[0])
