"""Three verdicts: that all agree is said only where everything was compared."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torch_ir import compile_graph, extract_ir, parse, register_executor, validate
from torch_ir.backends import SUPPORTED, DelegateBackend, Partitioner, Support, to_backend
from torch_ir.executor import unregister_executor

KINDS = {
    "plain": "aten.sin.default(%{})",
    "open": "aten.empty_like.default(%{})",
    "random": "aten.rand_like.default(%{})",
    "undenoted": "aten._foobar.default(%{})",
    "foreign": "verdicts.twice.default(x=%{})",
    "delegated": "aten.exp.default(%{})",
}
READERS = ["denotation", "eager"]
READ_BY = {
    "plain": READERS,
    "open": READERS,
    "random": ["eager"],
    "undenoted": ["eager"],
    "foreign": [],
    "delegated": [],
}


class Acme:
    """A backend of exponentials, which is not there when the program runs."""

    name = "acme"

    def supports(self, node, ir):
        taken = node.op_type == "aten.exp.default"
        return SUPPORTED if taken else Support.refused("it is no exponential")


@pytest.fixture(scope="module", autouse=True)
def twice():
    register_executor("verdicts.twice.default")(lambda inputs, attrs: [inputs[0] * 2])
    yield
    unregister_executor("verdicts.twice.default")


def program(kinds):
    """A program in which each node reads the input, so that no open value is read."""
    lines = [f"  %v{i}: f32[4] = {KINDS[kind].format('x')}" for i, kind in enumerate(kinds)]
    names = ", ".join(f"%v{i}" for i in range(len(kinds)))
    text = "\n".join(['ir "P" {', "  input %x: f32[4]", *lines, f"  return {names}", "}"])
    return to_backend(parse(text), Partitioner(Acme()))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5),
    st.sampled_from([READERS, ["eager"], ["denotation"]]),
)
def test_all_agree_only_where_all_was_compared(kinds, against):
    ir = program(kinds)
    report = validate(ir, {}, (torch.tensor([0.1, 0.2, 0.3, 0.4]),), against=against)
    assert not report.divergences
    unread = [kind for kind in kinds if not set(READ_BY[kind]) & set(against)]
    delegates = int("delegated" in unread)  # side by side, they are one
    unread = [kind for kind in unread if kind != "delegated"]
    assert len(report.not_compared) == len(unread) + delegates
    assert report.verdict == ("not compared" if report.not_compared else "agree")
    assert report.is_valid is (report.verdict == "agree")
    whole = all(set(against) <= set(READ_BY[kind]) for kind in kinds)
    assert str(report).startswith("all readers agree") is whole
    assert f"{len(report.not_compared)} NOT compared" in str(report) or report.is_valid
    assert report.to_dict()["verdict"] == report.verdict


def test_a_foreign_kernel_is_not_compared_and_named():
    report = validate(program(["plain", "foreign"]), {}, (torch.ones(4),))
    assert report.not_compared == {"v1": "verdicts.twice.default has no denotation"}
    assert str(report).startswith(
        "no reader disagrees on P: denotation 1 of 2, eager 1 of 2; 1 NOT compared (v1)\n"
    )
    assert validate(
        program(["foreign"]), {}, (torch.ones(4),), against=["eager"]
    ).not_compared == {"v0": "foreign kernel"}


def test_delegates_that_torch_ran_say_so():
    report = validate(program(["delegated", "plain"]), {}, (torch.ones(4),))
    assert (report.verdict, report.is_valid) == ("not compared", False)
    assert dict(report.not_compared) == {"acme_0": "delegate not run"}
    assert str(report).endswith("  1 delegate was run by torch, not by backend 'acme'")


def test_the_first_line_names_three_nodes():
    first = str(validate(program(["foreign"] * 5), {}, (torch.ones(4),))).splitlines()[0]
    assert first.endswith("5 NOT compared (v0, v1, v2, …)")


class Keyed(nn.Module):
    def forward(self, pair, *, scale, times):
        return (pair[0] - pair[1]) * scale * times


def test_the_arguments_are_the_models_own():
    args = ((torch.ones(3), torch.zeros(3)),)
    kwargs = {"scale": torch.tensor(2.0), "times": 3}
    ir = extract_ir(Keyed(), args, kwargs=kwargs)
    assert validate(ir, {}, args, kwargs).is_valid
    assert validate(ir, {}, (*args[0], kwargs["scale"])).is_valid  # the graph's inputs


@pytest.mark.parametrize(
    ("text", "dtype", "wrong"),
    [
        ("aten._softmax.default(%x, dim=1, half_to_float=False)", "f32", "sevens"),
        ("aten._softmax.default(%x, dim=1, half_to_float=False)", "bf16", "sevens"),
        ("aten._log_softmax.default(%x, dim=1, half_to_float=False)", "f32", "sevens"),
        ("aten.layer_norm.default(%x, normalized_shape=[1000])", "bf16", "half of it"),
        ("aten.layer_norm.default(%x, normalized_shape=[1000])", "f16", "half of it"),
    ],
)
def test_a_wrong_kernel_is_found_beside_a_mask_and_in_half_types(text, dtype, wrong):
    ir = parse(
        f"ir {{\n input %x: {dtype}[8, 1000]\n %y: {dtype}[8, 1000] = {text}\n return %y\n}}"
    )
    torch.manual_seed(0)
    x = torch.randn(8, 1000)
    if wrong == "sevens":
        x[:, 500:] += -1e9
    x = x.to({"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype])
    assert validate(ir, {}, (x,)).verdict == "agree"
    right = compile_graph(ir).eval((x,))[0]
    made = right.clone()
    made.view(-1)[: made.numel() // 2] = 0
    made = torch.full_like(right, 7.0) if wrong == "sevens" else made
    (op_type,) = [node.op_type for node in ir.nodes]
    register_executor(op_type)(lambda inputs, attributes: [made.clone()])
    try:
        report = validate(ir, {}, (x,), against=["denotation"])
    finally:
        unregister_executor(op_type)
    assert report.verdict == "disagree"


@pytest.mark.parametrize("other", [1 + 1j, torch.tensor(1 + 0.5j)])
def test_what_is_computed_in_complex32_is_not_compared_with_the_denotation(other):
    class Equal(torch.nn.Module):
        def forward(self, x):
            return x == other

    x = torch.ones(3).half()
    report = validate(extract_ir(Equal(), (x,)), {}, (x,))
    assert report.verdict == "agree"
    (reason,) = set(report.undenoted.values())
    assert reason == "NumPy has no element type for complex32"


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_report_says_how_much_a_backend_takes(taken, mode):
    text = "\n".join(f"  %v{i}: f32[4] = aten.neg.default(%x)" for i in range(3))
    ir = parse(f"ir {{\n  input %x: f32[4]\n{text}\n  return %v0, %v1, %v2\n}}")

    class Some(DelegateBackend):
        name = "some"

        def supports(self, node, ir):
            return SUPPORTED if int(node.name[1:]) < taken else Support.refused("no")

        def compile(self, ir, payload):
            return lambda x: [-x for _ in ir.graph_outputs]

    report = validate(ir, {}, (torch.ones(4),), backend=Some(), mode=mode)
    assert report.verdict == "agree"
    assert report.taken == {"some": (taken, 3)}
    assert f"  backend 'some': {taken} of 3 nodes" in str(report).split("\n")
