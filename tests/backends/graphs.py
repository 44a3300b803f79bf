"""Small graphs, generated ones among them, and backends that take what a set of names says."""

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

from torch_ir.backends import SUPPORTED, DelegateBackend, Support
from torch_ir.executor import IRExecutor
from torch_ir.ir import IR, OpNode, TensorMeta


@dataclass(frozen=True)
class Named:
    """Takes the nodes of these names, or of these operators."""

    taken: Collection[str] = field(default_factory=frozenset)
    name: str = "named"

    def supports(self, node, ir):
        is_taken = node.name in self.taken or node.op_type in self.taken
        return SUPPORTED if is_taken else Support.refused("it is not among the names")


class Interpreter(DelegateBackend):
    """Takes some operators, and runs its subgraphs with torch."""

    name = "interpreter"

    def __init__(self, *operators):
        self.operators = operators
        self.bodies = []
        self.payloads = []

    def supports(self, node, ir):
        if node.op_type in self.operators:
            return SUPPORTED
        return Support.refused(f"{node.op_type} is not for it")

    def compile(self, ir, payload):
        self.bodies.append(ir)
        self.payloads.append(dict(payload))
        run = IRExecutor(ir, {})

        def call(*given):
            given = iter(given)
            count = len(ir.graph_inputs)
            tensors = [payload.get(m.name) for m in ir.graph_inputs]
            tensors = [next(given) if tensor is None else tensor for tensor in tensors]
            assert len(tensors) == count
            return run(*tensors, *given)

        return call


def node(name, op_type, inputs, shape=(4,), **attrs):
    return OpNode(name, op_type, inputs, [TensorMeta(name, shape, "float32", name)], attrs)


def chain(*names, op_type="aten.relu.default"):
    """x -> names[0] -> names[1] …, the last one returned."""
    x = value = TensorMeta("x", (4,), "float32")
    nodes = []
    for name in names:
        nodes.append(node(name, op_type, [value]))
        value = nodes[-1].outputs[0]
    return IR(nodes, [x], [value], [])


@st.composite
def programs(draw):
    """A functional program of unary and binary operators, and the names of some of its nodes."""
    values = [TensorMeta(name, (4,), "float32") for name in ("x", "w")]
    nodes = []
    for index in range(draw(st.integers(1, 14))):
        first, second = (draw(st.sampled_from(values)) for _ in range(2))
        if draw(st.booleans()):
            made = node(f"n{index}", "aten.add.Tensor", [first, second], alpha=2)
        else:
            made = node(f"n{index}", "aten.tanh.default", [first])
        nodes.append(made)
        values.append(made.outputs[0])
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3))
    taken = frozenset(n.name for n in nodes if draw(st.booleans()))
    weight = TensorMeta("k.w", (4,), "float32")
    return IR(nodes, values[:1], outputs, [weight], {"w": "k.w"}), taken


WEIGHTS = {"k.w": torch.tensor([0.5, -1.0, 2.0, 0.25])}
