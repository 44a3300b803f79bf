"""Small graphs made by hand for the tests of dialects."""

from torch_ir import IR, OpNode, TensorMeta
from torch_ir.dialects import verify


def value(name, shape=(2, 3), dtype="float32"):
    return TensorMeta(name, shape, dtype)


def graph(op_type, inputs, outputs, attrs=None, *, operands=None, dialect="edge", **fields):
    """A program of one call, which takes its inputs and gives its outputs."""
    made = [
        meta.replace(producer_node="y", producer_output_idx=index)
        for index, meta in enumerate(outputs)
    ]
    node = OpNode("y", op_type, inputs, made, attrs or {}, operands)
    given = list({meta.name: meta for meta in inputs}.values())
    return IR([node], given, made, [], dialect=dialect, **fields)


def rules(ir, dialect=None, **options):
    """The codes of the rules that a program breaks."""
    return [violation.code for violation in verify(ir, dialect, **options)]
