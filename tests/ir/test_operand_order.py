"""The order in which a node lists its tensors and arguments says nothing."""

import random

import pytest

from small_models import CASES
from torch_ir import IR, extract_ir
from torch_ir.debug import validate
from torch_ir.ir import OpNode, TensorMeta
from torch_ir.ops.schema import known_operators

RESULT = [TensorMeta("y", (2,), "float32", "y")]


def plain_calls():
    """A call of each operator that takes several tensors, in the schema's order."""
    for op_type in known_operators():
        for count in range(9, 1, -1):
            given = [TensorMeta(f"x{i}", (2,), "float32") for i in range(count)]
            node = OpNode("y", op_type, given, RESULT)
            if node.operands:
                yield node
                break


def shuffled(node, draws):
    """The same call with its tensors and arguments in another order."""
    order = draws.sample(range(len(node.inputs)), len(node.inputs))
    inputs = [node.inputs[old] for old in order]

    def place(slots):
        return tuple(map(order.index, slots)) if isinstance(slots, tuple) else order.index(slots)

    names = draws.sample([*node.operands], len(node.operands))
    operands = {name: place(node.operands[name]) for name in names}
    return OpNode(node.name, node.op_type, inputs, node.outputs, node.attrs, operands)


def listed(node):
    return node.inputs, [*node.operands.items()]


def test_tensors_stand_in_the_order_of_the_schema_however_they_are_given():
    draws, count = random.Random(0), 0
    for node in plain_calls():
        for _ in range(3):
            assert listed(shuffled(node, draws)) == listed(node)
        count += 1
    assert count > 1000


def test_tensors_of_unknown_arguments_stay_as_they_are():
    x, y = (TensorMeta(name, (2,), "float32") for name in "xy")
    for op_type, operands in (
        ("mylib.op.default", {"b": 1, "a": 0}),
        ("aten.sub.Tensor", {"other": 0, "unknown": 1}),
        ("aten.sub.Tensor", {"other": 0, "self": 7}),
        ("aten.sub.Tensor", {"other": 0}),
    ):
        node = OpNode("y", op_type, [x, y], RESULT, {}, operands)
        assert listed(node) == ((x, y), [*operands.items()])


@pytest.mark.parametrize("name", ["attention", "conv", "bert"])
def test_a_loaded_program_is_judged_by_the_same_bounds(name, tmp_path):
    case, path = CASES[name], tmp_path / "program.json"
    model, (args, kwargs) = case.model(), case.inputs()
    ir = extract_ir(model, args, kwargs=kwargs)
    ir.save(path)
    loaded = IR.load(path)
    assert [*map(listed, loaded.nodes)] == [*map(listed, ir.nodes)]
    weights = model.state_dict()
    reports = [validate(program, weights, args, kwargs=kwargs) for program in (ir, loaded)]
    first, second = ([(e.value, e.part) for e in report.errors] for report in reports)
    assert first == second
    assert any(part for _, part in first)
