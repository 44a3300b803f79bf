"""Score cards of backends: what fails, what is not taken, what ends the process."""

import json

import pytest
import torch

from torch_ir import DelegateBackend, cases, compile_graph, conform, parse
from torch_ir.backends import SUPPORTED, NativeBackend, Support
from torch_ir.debug.conformance.operator_cases import made_cases, operator_cases
from torch_ir.debug.conformance.scorecard import Conformance
from torch_ir.errors import ExecutionError, InvalidIRError

WANTED = ["aten.add.Tensor", "aten.exp.default", "aten.mm.default", "aten.amax.default"]
DEVICE = """
import os, time
from torch_ir import DelegateBackend, compile_graph
from torch_ir.backends import SUPPORTED

class Device(DelegateBackend):
    name = "device"
    def supports(self, node, ir):
        return SUPPORTED
    def compile(self, ir, payload):
        operator = ir.nodes[0].op_type
        if operator == "aten.exp.default":
            os.abort()
        if operator == "aten.amax.default":
            time.sleep(60)
        return lambda *given: list(compile_graph(ir).eval(given))
"""


class Wrong(DelegateBackend):
    """Runs with torch; one operator is wrong, another one is not taken."""

    name = "wrong"

    def __init__(self, operator="", refused=""):
        self.operator, self.refused = operator, refused

    def supports(self, node, ir):
        return Support.refused("no") if node.op_type == self.refused else SUPPORTED

    def compile(self, ir, payload):
        graph = compile_graph(ir)
        wrong = ir.nodes[0].op_type == self.operator

        def run(*given):
            made = list(graph.eval(given))
            return [~t if t.dtype == torch.bool else t + 1 for t in made] if wrong else made

        return run


def test_what_writes_to_memory_is_not_given_to_a_backend_that_takes_all():
    card = conform(Wrong(), operators=["aten.resize_.default"])
    assert {(row.status, row.reason) for row in card.rows} == {
        ("unsupported", "it writes to memory, and backends are given what does not")
    }


def test_a_backend_that_writes_to_its_operands_fails_though_its_results_are_right():
    class Writes(Wrong):
        def compile(self, ir, payload):
            run = super().compile(ir, payload)

            def written(*given):
                made = [result.clone() for result in run(*given)]
                given[0].fill_(1)
                return made

            return written

    card = conform(Writes(), operators=["aten.exp.default"], dtypes=["float32"])
    assert card.failures
    assert all("writes to its input %" in row.reason for row in card.failures)


def test_operators_whose_operands_have_to_fit_are_tried_with_random_calls():
    names = [
        "convolution.default",
        "native_group_norm.default",
        "avg_pool2d.default",
        "sort.stable",
    ]
    wanted = [*(f"aten.{name}" for name in names), "aten.sort.stable"]
    card = conform(Wrong("aten.convolution.default"), operators=wanted, dtypes=["float32"])
    assert {row.operator for row in card.rows} == {*wanted}
    assert {row.operator for row in card.failures} == {"aten.convolution.default"}


def test_a_right_backend_passes_everything_of_many_operators_and_dtypes():
    card = conform(Wrong(), operators=WANTED)
    assert card.failures == ()
    assert card.score == 1.0
    assert len({row.dtype for row in card.rows}) >= 5
    assert {row.operator for row in card.rows} == set(WANTED)
    assert json.loads(json.dumps(card.to_dict()))["score"] == 1.0


@pytest.mark.parametrize("operator", WANTED)
def test_a_planted_fault_of_an_operator_is_found_and_no_other(operator):
    card = conform(Wrong(operator, "aten.mm.default"), operators=WANTED, dtypes=["float32"])
    taken = operator != "aten.mm.default"
    assert {row.operator for row in card.failures} == ({operator} if taken else set())
    refused = [row for row in card.rows if row.status == "unsupported"]
    assert {row.operator for row in refused} == {"aten.mm.default"}
    assert card.matrix()[operator]["plain" if taken else "matrices"] == (
        "fail" if taken else "unsupported"
    )


class Refusing(NativeBackend):
    """A runtime whose converter knows less than its table says."""

    name, version = "refusing", "1"

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        raise ValueError("no such kernel: exp")


def test_what_a_runtime_refuses_to_convert_is_not_supported_in_its_own_words():
    card = conform(Refusing(), operators=["aten.exp.default"], dtypes=["float32"])
    assert card.failures == ()
    assert {(row.status, row.reason) for row in card.rows} == {
        ("unsupported", "refusing refuses it: ValueError: no such kernel: exp")
    }


def test_cards_are_compared_saved_and_written_as_markdown(tmp_path):
    old, new = (
        conform(Wrong(name), operators=["aten.exp.*"], dtypes=["float32"])
        for name in ("", "aten.exp.default")
    )
    assert all(line.endswith("pass -> wrong") for line in new.diff(old))
    new.save(tmp_path / "card.json")
    assert Conformance.load(tmp_path / "card.json") == new
    new.save(tmp_path / "card.md")
    assert "| aten.exp.default | 0 |" in (tmp_path / "card.md").read_text().replace(
        "| 1 |", "| 0 |"
    )
    assert "<table>" in new._repr_html_()


def test_a_process_that_dies_or_hangs_is_replaced(tmp_path):
    (tmp_path / "device.py").write_text(DEVICE)
    ir = parse("""ir {
      input %x: f32[3]
      %a: f32[3] = aten.exp.default(%x)
      %b: f32[] = aten.amax.default(%a)
      %c: f32[3] = aten.add.Tensor(%a, %b)
      return %c
    }""")
    chosen = cases([ir], strides=False)
    card = conform(f"{tmp_path / 'device.py'}:Device", cases=chosen, seconds=12.0)
    assert {row.operator: row.status for row in card.rows} == {
        "aten.add.Tensor": "pass",
        "aten.amax.default": "timeout",
        "aten.exp.default": "crash",
    }


def test_a_backend_that_cannot_be_loaded_is_refused_before_any_case(tmp_path):
    (tmp_path / "device.py").write_text("import no_such_runtime\n")
    for name, why in ((f"{tmp_path / 'device.py'}:Device", "no_such_runtime"), ("nil", "'nil'")):
        with pytest.raises(ExecutionError, match=why):
            conform(name, operators=["aten.exp.default"], dtypes=["float32"])


def test_an_operator_that_nothing_matches_is_refused():
    with pytest.raises(InvalidIRError, match=r"no operator matches aten\.nope"):
        operator_cases(["aten.nope"])


def test_each_pattern_has_to_match():
    given = operator_cases(["aten.relu.default"], ["float32"])
    for chosen in (None, given):
        with pytest.raises(InvalidIRError) as caught:
            conform("aten", operators=["aten.relu*", "aten.rleu.default"], cases=chosen)
        assert str(caught.value).startswith(
            "no operator matches aten.rleu.default\nDid you mean aten.relu.default"
        )


def test_the_shipped_cases_are_those_that_are_made_here():
    names = ["aten.maximum.default", "aten.where.self", "aten.convolution.default"]
    made = made_cases(names)
    kept = operator_cases(names)
    assert [case.id for case in kept] == [case.id for case in made]
    assert [case.program for case in kept] == [case.program for case in made]
    assert {kept[case.id].count for case in made} == {case.count for case in made}
    few = operator_cases(["aten.where.self"], ["int8"])
    assert {case.inputs[0].dtype for case in few} == {"bool"}
    assert {case.inputs[1].dtype for case in few} == {"int8"}
    assert 0 < len(few) < len(operator_cases(["aten.where.self"]))


def test_what_the_shipped_cases_lack_is_made():
    assert [
        o.dtype
        for c in operator_cases(["aten.exp.default"], ["float64", "complex64"])
        for o in c.inputs
        if c.outputs[0].shape == (2, 3, 4)
    ] == ["complex64", "float64"]


def test_most_operators_are_tried_with_five_dtypes_or_more():
    found = {}
    for case in operator_cases():
        found.setdefault(case.operator, set()).add(case.inputs[0].dtype)
    assert len(found) >= 340
    assert sum(len(dtypes) >= 5 for dtypes in found.values()) >= 250


def test_sequences_are_sorted_and_special_numbers_are_tried():
    names = ["aten.searchsorted.Tensor", "aten.bucketize.Tensor", "aten.maximum.default"]
    card = conform(Wrong(), operators=names, dtypes=["float32", "int64"])
    assert card.failures == ()
    (case,) = [
        case
        for case in operator_cases(["aten.maximum.default"], ["float32"])
        if any(origin.model == "plain" for origin in case.origins)
    ]
    first = case.tensors(special=True)[0]
    assert first.isnan().any()
    assert first.isinf().any()


def test_a_backend_that_loses_nan_is_found_by_special_numbers():
    class Flat(Wrong):
        def compile(self, ir, payload):
            graph = compile_graph(ir)
            return lambda *given: [t.nan_to_num() for t in graph.eval(given)]

    card = conform(Flat(), operators=["aten.exp.default"], dtypes=["float32"])
    assert [row.status for row in card.failures] == ["nan"]
    assert card.failures[0].reason.startswith("with NaN, infinities and extremes: ")


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (lambda calls, given: calls == 2, ", in a second call"),
        (lambda calls, given: not given[0].is_contiguous(), "where operands lie otherwise in "),
        (lambda calls, given: given[0].storage_offset() > 0, "where operands lie otherwise in "),
    ],
    ids=["second call", "strides", "offset"],
)
def test_a_fault_of_a_second_call_or_of_other_strides_is_found(fails, said):
    class Sometimes(DelegateBackend):
        name = "sometimes"

        def supports(self, node, ir):
            return SUPPORTED

        def compile(self, ir, payload):
            graph, calls = compile_graph(ir.replace(signature=None)), []

            def call(*given):
                calls.append(None)
                wrong = fails(len(calls), given)
                return [result + 1 if wrong else result for result in graph.eval(given)]

            return call

    card = conform(Sometimes(), operators=["aten.mul.Tensor"], dtypes=["float32"])
    assert {row.status for row in card.failures} == {"wrong"}
    assert all(said in row.reason for row in card.failures)
