"""What the operators mean, in NumPy alone: also where no torch is installed."""

from torch_ir.semantics import denotes


@denotes("acme.softclip.default", tolerance="function")
def softclip(x, limit=1.0):
    """Return x / (1 + |x| / limit)."""
    return x / (1 + abs(x) / x.dtype.type(limit))
