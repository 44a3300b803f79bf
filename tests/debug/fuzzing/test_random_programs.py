"""Random programs are valid, varied, and find what is wrong with a backend."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from torch_ir import IR, IRExecutor, fuzz, parse, random_program, validate
from torch_ir.backends import SUPPORTED, DelegateBackend, Support
from torch_ir.debug.fuzzing.random_programs import callable_operators
from torch_ir.errors import InvalidIRError
from torch_ir.ir.builder import subgraph
from torch_ir.torch_versions import RECORDED, minor_version


@pytest.fixture(scope="module")
def programs():
    return [random_program(seed, nodes=8) for seed in range(100)]


def test_random_programs_are_well_formed_and_come_back_from_text_and_json(programs):
    for program in programs:
        assert program.ir.check() == ()
        assert parse(str(program.ir)) == program.ir
        assert IR.from_dict(program.ir.to_dict()) == program.ir


SHOWING = ["aten.group_norm.default", "aten.fake_quantize_*_cachemask_backward.default"]
"""Operators that take weights, and those that may give what they take."""


@pytest.mark.parametrize("seed", [20, 97, 191])
def test_what_may_show_a_weight_and_is_written_is_declared(seed):
    operators = [*SHOWING, "aten.neg.default", "aten.scatter.value"]
    program = random_program(seed, nodes=8, operators=operators)
    assert program.ir.aliases.undecided
    assert program.ir.check() == ()
    if minor_version(torch.__version__) == RECORDED:  # others have other operators to draw from
        assert program.ir.mutations
    assert validate(program.ir, program.weights, program.inputs).verdict == "agree"


def test_random_programs_run_as_eager_does(programs):
    for program in programs[:30]:
        report = validate(program.ir, program.weights, program.inputs, against=("eager",))
        assert report.verdict == "agree", str(report)


def test_random_programs_are_varied(programs):
    overloads = Counter(node.op_type for p in programs for node in p.ir.nodes)
    dtypes = {meta.dtype for p in programs for node in p.ir.nodes for meta in node.outputs}
    writing = [p for p in programs if any(p.ir.effects(node).writes for node in p.ir.nodes)]
    assert len(overloads) >= 90
    assert len(dtypes) >= 7
    assert len(writing) >= 5
    assert sum(bool(p.ir.symbols) for p in programs) >= 5
    assert overloads["higher_order.cond"]
    assert overloads["higher_order.while_loop"]


def test_a_seed_makes_the_same_program_again(programs):
    again = random_program(7, nodes=8)
    assert again.ir == programs[7].ir
    assert all(map(torch.equal, again.inputs, programs[7].inputs))


def test_operators_and_dtypes_can_be_chosen():
    ir = random_program(3, nodes=4, operators=["aten.mul.*"], dtypes=["float64"]).ir
    assert {node.op_type.split(".")[1].rstrip("_") for node in ir.nodes} == {"mul"}
    assert {meta.dtype for node in ir.nodes for meta in node.outputs} == {"float64"}
    with pytest.raises(InvalidIRError, match=r"^no operator matches acme"):
        random_program(0, operators=["acme.*"])


class Wrong(DelegateBackend):
    """Runs with torch; one operator is another."""

    def __init__(self, operator: str, other: str = "aten.neg.default"):
        self.name, self.operator, self.other = "wrong", operator, other

    def supports(self, node, ir) -> Support:
        is_plain = node.op_type.startswith("aten.")
        return SUPPORTED if is_plain else Support.refused("not aten")

    def compile(self, ir, payload):
        nodes = [
            node.replace(op_type=self.other) if node.op_type == self.operator else node
            for node in ir.nodes
        ]
        graph = IRExecutor(ir.replace(nodes=nodes), {}).graph
        names = [name for name in ir.input_names if name not in payload]

        def run(*given):
            count = len(names)
            values = {**payload, **dict(zip(names, given[:count], strict=True))}
            sizes = {"s0": given[count]} if given[count:] else {}
            return graph.run([values[name].clone() for name in ir.input_names], sizes)[0]

        return run


@pytest.mark.parametrize("operator", ["aten.tanh.default", "aten.sigmoid.default"])
def test_a_wrong_operator_is_found_and_made_small(operator, tmp_path):
    report = fuzz(
        Wrong(operator),
        operators=[operator, "aten.neg.default", "aten.mul.Tensor"],
        dtypes=["float32"],
        programs=6,
        nodes=5,
        out=tmp_path,
    )
    in_place = operator.replace(".default", "_.default")  # a backend is given what it computes
    assert operator in {found.operator for found in report.findings} <= {operator, in_place}
    assert all(len(found.ir.nodes) <= 2 for found in report.findings)
    assert (tmp_path / report.findings[0].name / "repro.py").exists()


def test_each_wrong_operator_of_a_program_is_found_and_made_small():
    operators = ["aten.neg.default", "aten.sin.default", "aten.abs.default", "aten.exp.default"]

    class Whole(Wrong):
        def compile(self, ir, payload):
            graphs = [IRExecutor(subgraph(ir, [n], n.outputs), {}).graph for n in ir.nodes]

            def run(*given):
                values = dict(zip(ir.input_names, given, strict=True))
                for node, graph in zip(ir.nodes, graphs, strict=True):
                    (made,) = graph.eval([values[meta.name] for meta in node.inputs])
                    values[node.outputs[0].name] = made + 1
                return [values[name] for name in ir.output_names]

            return run

    report = fuzz(Whole("none"), operators=operators, dtypes=["float32"], programs=1, nodes=8)
    called = {*report.operators}
    assert len(called) > 3
    assert {found.operator for found in report.findings} == called
    assert all(len(found.ir.nodes) == 1 for found in report.findings)


def test_what_is_made_small_is_the_failure_that_was_found():
    operators = ["aten.tanh.default"]
    report = fuzz(Wrong(*operators), operators=operators, dtypes=["float16"], programs=1, nodes=2)
    (found,) = report.findings
    assert found.dtypes == "half"
    assert {meta.dtype for node in found.ir.nodes for meta in node.outputs} == {"float16"}


def test_what_the_run_itself_raises_is_a_finding(monkeypatch):
    def broken(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("torch_ir.debug.fuzzing.fuzzing.validate", broken)
    (found,) = fuzz("aten", operators=["aten.neg.default"], programs=1, nodes=1).findings
    assert (found.kind, found.operator) == ("error", "aten.neg.default")
    assert found.comparison.reason == "KeyError: 'lost'"


def test_a_right_backend_gives_no_finding():
    report = fuzz(Wrong("none"), programs=15, nodes=6)
    assert report.findings == ()
    assert report.programs == 15


@pytest.mark.parametrize(
    "name",
    [
        *("nll_loss", "nll_loss_forward", "nll_loss_nd", "nll_loss2d", "nll_loss2d_forward"),
        *("multi_margin_loss_backward", "multilabel_margin_loss_backward"),
        *("conv_tbc", "_slow_conv2d_forward", "slow_conv3d_forward"),
        *("slow_conv_dilated2d", "slow_conv_dilated3d"),
        *("slow_conv_transpose2d", "slow_conv_transpose3d"),
        *("max_unpool2d", "max_unpool3d", "fractional_max_pool2d", "fractional_max_pool3d"),
        *("_int_mm", "_grouped_mm", "_weight_int8pack_mm", "embedding_renorm"),
        *("glu_jvp", "_masked_softmax", "_masked_softmax_backward", "_upsample_lanczos2d_aa"),
    ],
)
def test_operators_of_which_operands_have_to_fit_are_called(name):
    op_type = f"aten.{name}.default"
    programs = [
        random_program(
            seed, nodes=1, operators=[op_type], dtypes=["float32"], dynamic=False, writes=False
        )
        for seed in range(6)
    ]
    (program, *_) = [program for program in programs if program.ir.nodes]
    report = validate(program.ir, program.weights, program.inputs)
    assert report.verdict == "agree", str(report)


UNREACHED = {
    # the sizes that torch foresees are not those that its kernel gives
    *("_batch_norm_no_update.default", "_native_batch_norm_legit_no_training.default"),
    *("_grid_sampler_2d_cpu_fallback.default", "_grid_sampler_2d_cpu_fallback_backward.default"),
    *("mkldnn_convolution.default", "_padded_dense_to_jagged_forward.default"),
    # operands are what another operator gave: a factorization, alignments, places of bags
    *(
        "_ctc_loss_backward.Tensor",
        "_ctc_loss_backward.default",
        "_embedding_bag_backward.default",
    ),
    *("_embedding_bag_dense_backward.default", "_pack_padded_sequence.default"),
    "_embedding_bag_per_sample_weights_backward.default",
    *("batch_norm_backward.default", "native_batch_norm_backward.default"),
    *("linalg_ldl_solve.default", "linalg_lu_solve.default"),
    # codes, switches and scales that belong to each other
    "_fused_moving_avg_obs_fq_helper_functional.default",
    *("_scaled_mm.default", "_scaled_mm_v2.default"),
}


def test_random_programs_call_every_operator_but_those_that_are_named():
    def is_called(op_type):
        for seed in range(24):
            dtypes = ("complex64",) if seed % 4 == 3 else None
            given = {"operators": [op_type], "dtypes": dtypes, "dynamic": False}
            program = random_program(seed, nodes=1, **given, writes=False, control_flow=False)
            if any(node.op_type == op_type for node in program.ir.nodes):
                return True
        return False

    missing = {name for name in callable_operators() if not is_called(name)}
    assert missing - {f"aten.{name}" for name in UNREACHED} == set()
