"""Well-formedness: each finding, made by breaking a real program in one way."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from torch import nn

import torch_ir
from strategies import well_formed_irs
from torch_ir import IR, Constant, OpNode, TensorMeta, parse
from torch_ir.errors import InvalidIRError, TorchIRError
from torch_ir.ir import (
    Container,
    FunctionRef,
    Location,
    Mutation,
    Signature,
    SymbolRange,
    SymExpr,
    TensorLeaf,
    ValueLeaf,
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        with torch.no_grad():
            scale = self.fc(x).sum(0)
        left, right = torch.split(self.fc(x), [1, 2], dim=1)
        return torch.cat([right, left], 1) * scale


NET = torch_ir.extract_ir(Net().eval(), (torch.ones(2, 4),))
PLAIN = NET.replace(
    nodes=[node.replace(location=None) for node in NET.nodes],
    functions={
        name: body.replace(nodes=[node.replace(location=None) for node in body.nodes])
        for name, body in NET.functions.items()
    },
)
"""The same without source lines, which would make the messages depend on this file."""


def change(name, **changes):
    """The program with one node changed."""
    return PLAIN.replace(
        nodes=[n.replace(**changes) if n.name == name else n for n in PLAIN.nodes]
    )


def node(name):
    return PLAIN.node(name)


def meta(name):
    return PLAIN.producers[name].outputs[0]


X = NET.graph_inputs[0]
Y = NET.graph_outputs[0]
GHOST = TensorMeta("linaer_1", (2, 3), "float32", "linaer_1")


CAT, SPLIT = node("cat"), node("split_with_sizes")
WRONG_SHAPE = meta("linear_1").replace(shape=(3, 3))
((BODY_NAME, BODY),) = PLAIN.functions.items()

CASES = [
    (
        "duplicate node",
        PLAIN.replace(nodes=[*PLAIN.nodes, node("mul").replace(outputs=[])]),
        ["[duplicate-node] node 'mul': another node has this name"],
    ),
    (
        "duplicate value",
        PLAIN.replace(
            nodes=[
                *PLAIN.nodes,
                OpNode("again", "aten.relu.default", [Y], [Y.replace(producer_node="again")]),
            ]
        ),
        [
            "[duplicate-value] node 'again': %mul is defined twice",
            "[wrong-metadata] %mul is not used as it is defined (expected f32[2, 3] from result 0 "
            "of 'again', got f32[2, 3] from result 0 of 'mul')",
        ],
    ),
    (
        "input twice",
        PLAIN.replace(graph_inputs=[X, X], signature=None),
        ["[duplicate-value] the graph input %x is defined twice"],
    ),
    (
        "input named as a weight",
        PLAIN.replace(graph_inputs=[X, TensorMeta("b_count", (3,), "float32")], signature=None),
        ["[duplicate-value] %b_count is both a graph input and a weight"],
    ),
    (
        "undefined value",
        change("split_with_sizes", inputs=[GHOST]),
        [
            "[undefined-value] node 'split_with_sizes': %linaer_1 is used but never defined. "
            "Did you mean linear_1?"
        ],
    ),
    (
        "used before it is defined",
        PLAIN.replace(nodes=[n for n in PLAIN.nodes if n.name != "cat"] + [CAT]),
        ["[undefined-value] node 'mul': %cat is used but never defined"],
    ),
    (
        "undefined output",
        PLAIN.replace(graph_outputs=[GHOST], signature=None),
        ["[undefined-value] the graph output %linaer_1 is never defined. Did you mean linear_1?"],
    ),
    (
        "used with another shape",
        change("split_with_sizes", inputs=[WRONG_SHAPE]),
        [
            "[wrong-metadata] node 'split_with_sizes': %linear_1 is not used as it is defined "
            "(expected f32[2, 3] from result 0 of 'linear_1', got f32[3, 3] from result 0 of "
            "'linear_1')"
        ],
    ),
    (
        "wrong producer",
        change(
            "split_with_sizes",
            outputs=[SPLIT.outputs[0], SPLIT.outputs[1].replace(producer_output_idx=0)],
        ),
        [
            "[wrong-producer] node 'split_with_sizes': %split_with_sizes.1 is result 0 once more",
            "[wrong-metadata] node 'cat': %split_with_sizes.1 is not used as it is defined "
            "(expected f32[2, 2] from result 0 of 'split_with_sizes', got f32[2, 2] from result 1 "
            "of 'split_with_sizes')",
        ],
    ),
    (
        "unknown operator",
        change("cat", op_type="aten.cat.defualt"),
        [
            "[unknown-operator] node 'cat': there is no operator aten.cat.defualt. "
            "Did you mean aten.cat.default or aten.t.default?"
        ],
    ),
    (
        "inputs that do not fit",
        change("cat", op_type="aten.relu.default", operands=None, attrs={}),
        [
            "[unbound-inputs] node 'cat': the 2 inputs do not fit the arguments of "
            "aten.relu.default"
        ],
    ),
    (
        "inputs of a custom operator without operands",
        change("cat", op_type="mylib.cat.default", operands=None),
        ["[unbound-inputs] node 'cat': no input has an argument"],
    ),
    (
        "unknown argument",
        change("cat", attrs={"dmi": 1}),
        [
            "[unknown-argument] node 'cat': aten.cat.default has no argument 'dmi'. "
            "Did you mean dim?"
        ],
    ),
    (
        "missing argument",
        change("split_with_sizes", attrs={"dim": 1}),
        [
            "[missing-argument] node 'split_with_sizes': argument 'split_sizes' of "
            f"{SPLIT.op_type} is not given"
        ],
    ),
    (
        "operand out of range",
        change("cat", operands={"tensors": (0, 1, 2)}),
        ["[bad-operand] node 'cat': argument 'tensors' takes input 2, the node has 2 inputs"],
    ),
    (
        "argument given twice",
        change("linear_1", attrs={"input": 1}),
        [
            "[bad-operand] node 'linear_1': argument 'input' is given twice, as an input and "
            "as an attribute"
        ],
    ),
    (
        "unused input",
        change("cat", operands={"tensors": (1,)}),
        ["[unused-input] node 'cat': no argument takes input 0 (%split_with_sizes.1)"],
    ),
    (
        "weight listed twice",
        PLAIN.replace(weights=[*PLAIN.weights, PLAIN.weights[0]]),
        ["[duplicate-weight] the weight 'fc.weight' is listed twice"],
    ),
    (
        "mapping to nothing",
        PLAIN.replace(weight_name_mapping={**PLAIN.weight_name_mapping, "p_x": "fc.wieght"}),
        [
            "[dangling-mapping] %p_x is mapped to 'fc.wieght', which is neither a weight nor a "
            "constant. Did you mean fc.weight?"
        ],
    ),
    (
        "alias of nothing",
        PLAIN.replace(weight_aliases={"tied": "nothing"}),
        ["[dangling-alias] 'tied' is another name of 'nothing', which is no weight"],
    ),
    (
        "function that does not exist",
        PLAIN.replace(functions={"submod_l": BODY}),
        [
            "[undefined-function] node 'sum_1': there is no function 'submod_1'. "
            "Did you mean submod_l?"
        ],
    ),
    (
        "function with weights",
        PLAIN.replace(
            functions={BODY_NAME: BODY.replace(weights=[TensorMeta("w", (), "float32")])}
        ),
        [
            f"[open-function] function {BODY_NAME!r} has weights of its own; "
            "it must take them as inputs"
        ],
    ),
    (
        "fault in a function",
        PLAIN.replace(functions={BODY_NAME: BODY.replace(nodes=BODY.nodes[1:])}),
        None,
    ),
    (
        "symbol without a range",
        PLAIN.replace(
            graph_inputs=[X.replace(shape=("s0 + s1", 4))], symbols={"s1": SymbolRange()}
        ),
        None,
    ),
    (
        "mutation of nothing",
        PLAIN.replace(mutations=[*PLAIN.mutations, Mutation("mul", Y)]),
        ["[bad-mutation] %mul is written, and is neither a graph input nor a weight"],
    ),
    (
        "mutation by nothing",
        PLAIN.replace(mutations=[*PLAIN.mutations, Mutation("x", GHOST)]),
        ["[bad-mutation] %x is set to %linaer_1, which is never defined"],
    ),
    (
        "mutation by another type",
        PLAIN.replace(graph_inputs=[X], mutations=[*PLAIN.mutations, Mutation("b_count", X)]),
        None,
    ),
    (
        "mutation that nobody declares",
        PLAIN.replace(mutations=[]),
        ["[undeclared-mutation] %b_count is written in place, and no mutation says so"],
    ),
    (
        "signature of another graph",
        PLAIN.replace(signature=replace(PLAIN.signature, outputs=TensorLeaf("x"))),
        [
            "[bad-signature] the outputs of the signature are not those of the graph "
            "(expected ['mul'], got ['x'])"
        ],
    ),
    (
        "symbol in the signature",
        PLAIN.replace(
            signature=replace(
                PLAIN.signature,
                outputs=Container("tuple", (TensorLeaf("mul"), ValueLeaf(SymExpr("s9")))),
            )
        ),
        ["[unbound-symbol] the symbol s9 in the signature has no range"],
    ),
    (
        "symbol without a value in the signature",
        PLAIN.replace(
            symbols={**PLAIN.symbols, "s9": SymbolRange(0, 9)},
            signature=replace(
                PLAIN.signature,
                outputs=Container("tuple", (TensorLeaf("mul"), ValueLeaf(SymExpr("s9")))),
            ),
        ),
        [
            "[unbound-symbol] the symbol s9 is used in the results, and nothing before gives its "
            "value"
        ],
    ),
    (
        "arguments that are no tuple of two",
        PLAIN.replace(signature=replace(PLAIN.signature, inputs=TensorLeaf("x"))),
        [
            "[bad-signature] the inputs of the signature are no tuple of positional and keyword "
            "arguments"
        ],
    ),
]
"""Name of the case, the broken program, and the findings as text; None has a test of its own."""

BROKEN = {name: (ir, expected) for name, ir, expected in CASES}


def test_the_program_is_well_formed():
    assert NET.check() == ()
    assert NET.check(strict=True) == ()


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_is_found(name):
    ir, expected = BROKEN[name]
    found = [str(finding) for finding in ir.check()]
    if expected is None:
        assert found
    else:
        assert found == expected


@pytest.mark.parametrize("name", BROKEN)
def test_strict_raises_the_first_finding(name):
    ir, _ = BROKEN[name]
    with pytest.raises(InvalidIRError) as caught:
        ir.check(strict=True)
    assert str(caught.value) == str(ir.check()[0])


def test_a_fault_inside_a_function_names_both():
    ir, _ = BROKEN["fault in a function"]
    (name,) = ir.functions
    first = ir.functions[name].nodes[0].name
    assert ir.check()[0].code == "undefined-value"
    assert ir.check()[0].node == f"{name}/{first}"


def test_a_symbol_is_reported_once_wherever_it_occurs():
    ir, _ = BROKEN["symbol without a range"]
    messages = [str(f) for f in ir.check() if f.code == "unbound-symbol"]
    assert messages == ["[unbound-symbol] the symbol s0 in the shape of %x has no range"]


def test_a_finding_shows_the_line_that_made_the_node():
    place = Location("net.py", 7, "return torch.cat(parts)", "head", "net.Head")
    ir = change("cat", attrs={"dmi": 1}, location=place)
    assert str(ir.check()[0]) == (
        "[unknown-argument] node 'cat': aten.cat.default has no argument 'dmi'. "
        "Did you mean dim?\n    at net.py:7 in head (Head): return torch.cat(parts)"
    )
    with pytest.raises(InvalidIRError) as caught:
        ir.check(strict=True)
    assert str(caught.value) == str(ir.check()[0])


def test_every_fault_is_found_at_once():
    ir = change("cat", attrs={"dmi": 1}).replace(mutations=[], weight_aliases={"a": "b"})
    codes = [finding.code for finding in ir.check()]
    assert codes == ["dangling-alias", "unknown-argument", "undeclared-mutation"]


def test_a_reference_in_an_attribute_list_is_followed():
    ir = change("cat", op_type="mylib.branch.default", attrs={"branches": (FunctionRef("no"),)})
    assert [f.code for f in ir.check()] == ["undefined-function"]


@settings(max_examples=50, derandomize=True, deadline=None)
@given(well_formed_irs())
def test_what_is_well_formed_has_no_findings(ir):
    assert ir.check() == ()


@settings(max_examples=50, derandomize=True, deadline=None)
@given(well_formed_irs())
def test_removing_a_node_that_is_used_is_found(ir):
    used = {meta.name for node in ir.nodes for meta in node.inputs}
    for victim in ir.nodes:
        if used & {meta.name for meta in victim.outputs}:
            rest = [node for node in ir.nodes if node is not victim]
            assert "undefined-value" in {f.code for f in ir.replace(nodes=rest).check()}


def test_a_constant_may_be_used_under_its_key():
    y = TensorMeta("y", (1,), "float32", "y")
    table = TensorMeta("table", (1,), "float32")
    ir = IR([OpNode("y", "aten.relu.default", [table], [y])], [], [y], [])
    assert [f.code for f in ir.check()] == ["undefined-value"]
    assert ir.replace(constants={"table": Constant.from_list([1.0], "float32")}).check() == ()
    nothing = Container("tuple", (Container("tuple"), Container("dict")))
    signature = Signature(nothing, TensorLeaf("y"))
    assert [f.code for f in ir.replace(signature=signature).check()] == ["undefined-value"]


@pytest.mark.parametrize("slots", [-2, -1, 1, 10**9, (-1,), (-5, 0), (3,), (None, -7)], ids=str)
@pytest.mark.parametrize("op", ["relu_.default", "relu.default", "reshape.default", "cat.default"])
def test_an_index_that_is_out_of_bounds_is_found_and_refused(op, slots):
    x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "n", 0)
    name = "tensors" if op == "cat.default" else "self"
    ir = IR([OpNode("n", f"aten.{op}", [x], [y], {}, {name: slots})], [x], [y], [])
    assert "bad-operand" in [finding.code for finding in ir.check()]
    assert str(ir)
    with pytest.raises(TorchIRError):
        torch_ir.compile_graph(ir)
    with contextlib.suppress(TorchIRError):  # what it does not touch it may keep
        torch_ir.decompose(ir)


@pytest.mark.parametrize("index", [0, 3])
def test_a_symbol_is_bound_to_a_number(index):
    ir = parse(
        """ir {
          symbol u0: 0..8
          input %x: f32[8]
          %n: i64[u0, 1] = aten.nonzero.default(%x)
          return %n
        }"""
    )
    wrong = ir.replace(nodes=[ir.nodes[0].replace(binds={"u0": index})])
    said = f"result {index}, to which u0 is bound, is no number"
    assert not ir.check()
    assert [(d.code, d.message) for d in wrong.check()] == [("unbound-symbol", said)]
    undeclared = wrong.replace(symbols={})
    assert ("unbound-symbol", said) in [(d.code, d.message) for d in undeclared.check()]
