"""Three readers of one IR: what is compared, what is told, and what can be run again."""

import dataclasses
import json
import runpy
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from older_torch import since_2_13
from torch_ir import compile_graph, denote, extract_ir, parse, register_executor, validate
from torch_ir.debug.reference.tolerance_check import same_bits, within
from torch_ir.errors import ExecutionError, InputError, InvalidIRError
from torch_ir.executor import unregister_executor
from torch_ir.passes import decompose
from torch_ir.semantics import Denotation, denotation, registry


class Net(nn.Module):
    """In-place operators, a buffer that is written, a recurrent layer, a view."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.gru = nn.GRU(4, 3, batch_first=True)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        y = self.norm(self.conv(x)).relu_()
        y += self.calls
        return self.gru(y.flatten(2).transpose(1, 2))[0].softmax(-1)


def seeded(build, *shape):
    torch.manual_seed(0)
    return build(), (torch.randn(shape),)


def of(call, inputs="input %x: f32[4]", result="f32[4]"):
    return parse(f'ir "One" {{\n{inputs}\n%y: {result} = {call}\nreturn %y\n}}')


def type_text(dtype):
    return {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]


def double(inputs, attrs):
    return [inputs[0].relu() * 2]


def status(script):
    """The exit status of a script."""
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(script))
    return int(caught.value.code)


@pytest.fixture
def doubled_relu():
    register_executor("aten.relu.default")(double)
    yield
    unregister_executor("aten.relu.default")


class TestAgreement:
    def test_every_node_of_a_model_with_state_and_in_place_operators(self):
        model, inputs = seeded(lambda: Net().eval(), 2, 2, 5, 5)
        ir = extract_ir(model, inputs)
        report = validate(ir, model.state_dict(), inputs)
        assert report.is_valid
        assert report.first is None
        assert report.nodes == len(ir.nodes)
        assert report.compared == {"denotation": len(ir.nodes), "eager": len(ir.nodes)}
        assert report.decomposed >= 4  # add_ twice, relu_, and the recurrent layer
        assert "aten.gru.input" in report.worst()

    def test_training_in_place_writes_of_statistics_are_compared(self):
        model, inputs = seeded(lambda: nn.BatchNorm1d(3).train(), 8, 3)
        report = validate(extract_ir(model, inputs), model.state_dict(), inputs)
        assert report.is_valid
        assert report.undenoted == {}

    def test_nothing_that_was_given_changes(self):
        model, inputs = seeded(lambda: Net().train(), 2, 2, 5, 5)
        ir = extract_ir(model, inputs)
        weights = {key: value.clone() for key, value in model.state_dict().items()}
        before, state = inputs[0].clone(), torch.get_rng_state()
        assert validate(ir, weights, inputs).is_valid
        assert torch.equal(inputs[0], before)
        assert torch.equal(torch.get_rng_state(), state)
        for key, value in model.state_dict().items():
            assert torch.equal(weights[key], value)

    def test_symbols_of_sizes_and_of_data(self):
        class Dynamic(nn.Module):
            def forward(self, x, n):
                return x[x > 0].repeat(2) * 2, x.new_full((n.item(),), 3.0)

        inputs = (torch.tensor([1.0, -1.0, 2.0]), torch.tensor(4))
        batch = torch.export.Dim("batch", min=2)
        ir = extract_ir(Dynamic(), inputs, dynamic_shapes=({0: batch}, None))
        report = validate(ir, {}, (torch.tensor([1.0, -1.0, 2.0, 5.0]), torch.tensor(5)))
        assert report.is_valid
        assert report.undenoted == {}
        assert validate(ir, {}, inputs, against=["denotation"]).compared == {
            "denotation": len(ir.nodes)
        }

    def test_control_flow_and_scopes(self):
        class Flow(nn.Module):
            def forward(self, x):
                with torch.no_grad():
                    y = x.sin()
                return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a * 2, (y,))

        inputs = (torch.tensor([1.0, 2.0]),)
        ir = extract_ir(Flow(), inputs)
        for given in (inputs, (-inputs[0],)):
            report = validate(ir, {}, given)
            assert report.is_valid
            assert report.undenoted == {}
            assert report.compared["denotation"] == report.compared["eager"] == report.nodes

    def test_indices_among_equal_elements(self):
        ir = parse("""ir {
          input %x: f32[6]
          %y.0: f32[3], %y.1: i64[3] = aten.topk.default(%x, 3)
          return %y.1
        }""")
        assert validate(ir, {}, (torch.tensor([1.0, 2, 2, 2, 2, 2]),)).is_valid

    @pytest.mark.parametrize("call", ["sort.default(%x)", "topk.default(%x, 6)"])
    @pytest.mark.parametrize(
        ("places", "verdict"), [([5, 1, 3, 2, 4, 0], "agree"), ([1, 1, 3, 2, 4, 0], "disagree")]
    )
    def test_no_element_is_chosen_twice(self, call, places, verdict):
        x = torch.tensor([3.0, 2, 2, 2, 2, 2]) * (1 if "sort" in call else -1)
        values = x[torch.tensor([5, 1, 3, 2, 4, 0])]
        inputs, outputs = "input %x: f32[6]", "%v: f32[6], %i: i64[6]"
        ir = parse(f"ir {{\n {inputs}\n {outputs} = s: aten.{call}\n return %i\n}}")
        op_type = ir.nodes[0].op_type
        register_executor(op_type)(lambda *_: [values, torch.tensor(places)])
        try:
            assert validate(ir, {}, (x,), against=["denotation"]).verdict == verdict
        finally:
            unregister_executor(op_type)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("mode", ["sum", "max"])
    @pytest.mark.parametrize("ends", [[0, 3], [0, 3, 6]])
    def test_bags_whose_sizes_torch_infers_otherwise(self, dtype, mode, ends):
        is_last = len(ends) == 3
        bags = nn.EmbeddingBag(7, 4, mode=mode, include_last_offset=is_last, dtype=dtype)
        inputs = (torch.arange(6), torch.tensor(ends))
        ir = extract_ir(bags.eval(), inputs)
        for program in (ir, decompose(ir)):
            assert validate(program, bags.state_dict(), inputs).verdict == "agree"

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_bags_of_rows_that_do_not_lie_one_by_one(self, dtype):
        table, offsets = torch.randn(4, 7).to(dtype).t(), torch.tensor([0, 3])
        call, element = "aten._embedding_bag.default(%t, %i, %o)", type_text(dtype)
        inferred = 6 if dtype == torch.bfloat16 else 0
        results = f"%y.0: {element}[2, 4], %y.1: i64[{inferred}], %y.2: i64[2], %y.3: i64[2]"
        ir = parse(f"""ir {{
          input %t: {element}[7, 4]
          input %i: i64[6]
          input %o: i64[2]
          {results} = {call}
          return %y.0, %y.1
        }}""")
        assert validate(ir, {}, (table, torch.arange(6), offsets)).verdict == "agree"

    def test_random_nodes_have_shapes_and_types_only(self):
        ir = of("aten.rand_like.default(%x)")
        report = validate(ir, {}, (torch.ones(4),))
        assert report.random == ("y",)
        assert report.is_valid
        assert report.compared == {"denotation": 0, "eager": 1}
        assert str(report).splitlines()[0] == (
            "no reader disagrees on One: denotation 0 of 1, eager 1 of 1"
        )
        assert str(report).splitlines()[-1] == "  random, shapes and types only: y"

    def test_another_package_s_operator_may_draw_without_saying_so(self):
        @torch.library.custom_op("judged::noisy", mutates_args=())
        def noisy(x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand(x.shape)

        noisy.register_fake(torch.empty_like)

        class Noisy(nn.Module):
            def forward(self, x):
                return torch.ops.judged.noisy(x)

        ir = extract_ir(Noisy(), (torch.ones(4),))
        report = validate(ir, {}, (torch.ones(4),))
        assert report.verdict == "agree"
        assert report.compared == {"denotation": 0, "eager": 1}

    def test_dropout_that_draws_nothing_is_compared_by_value(self):
        for train, random in ((False, ()), (True, ("y",))):
            ir = of(f"aten.dropout.default(%x, 0.5, {train})")
            assert validate(ir, {}, (torch.ones(4),)).random == random

    def test_what_has_no_denotation_is_named(self):
        ir = of("aten._foobar.default(%x)")
        report = validate(ir, {}, (torch.rand(4),))
        assert report.undenoted == {"y": "aten._foobar.default has no denotation"}
        assert report.compared == {"denotation": 0, "eager": 1}
        assert str(report) == (
            "no reader disagrees on One: denotation 0 of 1, eager 1 of 1\n"
            "  denotation: 0 compared, 0 by decomposition\n"
            "  eager: 1 compared\n"
            "  without denotation: aten._foobar.default has no denotation (1)"
        )

    def test_values_that_nobody_defines_are_not_compared(self):
        assert validate(of("aten.empty_like.default(%x)"), {}, (torch.ones(4),)).is_valid


class TestDivergence:
    def test_a_wrong_kernel_is_found_by_both_readers(self, doubled_relu):
        ir = of("aten.relu.default(%x)")
        report = validate(ir, {}, (torch.tensor([-1.0, 1, 2, 3]),))
        assert not report.is_valid
        assert [d.reader for d in report.divergences] == ["denotation", "eager"]
        assert str(report) == (
            "readers DISAGREE on One: 1 node\n"
            "  denotation: 1 compared, 0 by decomposition\n"
            "  eager: 1 compared\n"
            "  1 node diverges; first:\n"
            "  node 'y': %y and the denotation disagree: "
            "3 of 4 values are off by up to 3, and must not\n"
            "    %y: f32[4] = aten.relu.default(%x)"
        )

    def test_errors_do_not_add_up(self, doubled_relu):
        ir = parse("""ir {
          input %x: f32[4]
          %a: f32[4] = aten.relu.default(%x)
          %b: f32[4] = aten.exp.default(%a)
          %c: f32[4] = aten.neg.default(%b)
          return %c
        }""")
        report = validate(ir, {}, (torch.tensor([-1.0, 1, 2, 3]),))
        assert {divergence.node for divergence in report.divergences} == {"a"}

    def test_the_source_line_is_told(self, doubled_relu):
        model, inputs = seeded(nn.ReLU, 3)
        first = validate(extract_ir(model, inputs), {}, inputs).first
        assert "activation.py:" in first.location
        assert str(first).endswith(f"\n    at {first.location}")

    def test_a_value_whose_memory_is_taken(self, tmp_path):
        right = """ir {{
          input %x: f32[4]
          %a: f32[4] = aten.sin.default(%x)
          %b: f32[4] = aten.cos{}.default(%a)
          %c: f32[4] = aten.mul.Tensor(%a, %b)
          return %c
        }}"""
        graph = compile_graph(parse(right.format("_")))
        graph.ir = ir = parse(right.format(""))
        report = validate(ir, {}, (torch.ones(4),), graph=graph, repro=tmp_path)
        assert [d.reader for d in report.divergences] == ["memory"]
        assert list(tmp_path.iterdir()) == []  # the node alone cannot show it
        assert str(report.first) == (
            "node 'b': %b and its memory disagree: "
            "it lies in the memory of %a, which is still needed\n"
            "    %b: f32[4] = aten.cos.default(%a)"
        )

    def test_a_graph_compiled_with_other_weights(self):
        model, inputs = seeded(lambda: nn.Linear(3, 2), 1, 3)
        ir = extract_ir(model, inputs)
        graph = compile_graph(ir, {k: v * 2 for k, v in model.state_dict().items()})
        report = validate(ir, model.state_dict(), inputs, graph=graph)
        assert {d.reason for d in report.divergences} == {
            "the graph was compiled with another value"
        }
        assert {d.value for d in report.divergences} == {"p_weight", "p_bias"}

    def test_a_graph_compiled_with_another_weight_that_it_only_returns(self):
        ir = parse("ir {\n weight @w: f32[3]\n return @w\n}")
        graph = compile_graph(ir, {"w": torch.ones(3)})
        report = validate(ir, {"w": torch.zeros(3)}, (), graph=graph)
        assert [d.value for d in report.divergences] == ["w"]

    def test_a_denotation_that_refuses(self):
        def refuses(self):
            raise InvalidIRError("no")

        known = registry._DENOTATIONS
        refuses.__module__ = denotation("aten.sin.default").function.__module__
        with patch.dict(known, {"aten.sin.default": Denotation("aten.sin.default", refuses)}):
            report = validate(of("aten.sin.default(%x)"), {}, (torch.ones(4),))
        assert report.first.reason == "the denotation refuses it: no"

    def test_an_unknown_reader(self):
        with pytest.raises(InvalidIRError) as caught:
            validate(of("aten.sin.default(%x)"), {}, (torch.ones(4),), against=["eagre"])
        assert str(caught.value) == ("there is no reader 'eagre'\nDid you mean eager?")

    def test_a_reader_that_is_in_no_list(self):
        with pytest.raises(InvalidIRError) as caught:
            validate(of("aten.sin.default(%x)"), {}, (torch.ones(4),), against="eager")
        assert str(caught.value) == "against is a list of str, got 'eager'\nGive ['eager']."

    @pytest.mark.parametrize("depth", [1, 2])
    def test_memory_that_a_branch_shows_and_nothing_has_written_is_not_compared(self, depth):
        class Branches(nn.Module):
            def forward(self, p, x):
                def branch(x, level):
                    if not level:
                        return torch.empty_like(x).sigmoid() + x
                    return torch.cond(p, lambda x: branch(x, level - 1), lambda x: x + 1, (x,))

                return branch(x, depth)

        args = (torch.tensor(True), torch.randn(64))
        ir = extract_ir(Branches(), args)
        garbage = [torch.randn(64) for _ in range(64)]
        del garbage
        report = validate(ir, {}, args)
        assert not report.divergences
        for reason in report.not_compared.values():
            assert reason == "its values are open"

    def test_a_program_that_fails_says_so(self):
        ir = of("aten.index_select.default(%x, 0, %i)", "input %x: f32[4]\ninput %i: i64[4]")
        with pytest.raises(ExecutionError, match=r"node 'y': aten\.index_select\.default failed"):
            validate(ir, {}, (torch.ones(4), torch.full((4,), 9)))


class TestReport:
    def test_it_is_frozen_and_plain_as_json(self, doubled_relu):
        report = validate(of("aten.relu.default(%x)"), {}, (torch.ones(4),))
        with pytest.raises(dataclasses.FrozenInstanceError):
            report.nodes = 3
        data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert data["is_valid"] is False
        assert data["divergences"][0]["node"] == "y"
        assert data["errors"][0]["part"] == "inf"
        assert data["errors"][0]["absolute"] == 1.0

    def test_the_worst_value_of_each_operator(self):
        ir = parse("""ir {
          input %x: f32[64]
          %a: f32[64] = aten.sigmoid.default(%x)
          %b: f32[64] = aten.sigmoid.default(%a)
          %c: f32[64] = aten.neg.default(%b)
          return %c
        }""")
        report = validate(ir, {}, (torch.linspace(0.1, 3, 64),))
        worst = report.worst()
        assert set(worst) == {"aten.sigmoid.default"}  # neg is exact
        assert worst["aten.sigmoid.default"].part == max(error.part for error in report.errors)
        assert 0 < worst["aten.sigmoid.default"].ulp <= 4
        head, row = report.table().splitlines()
        assert head.split() == [
            "operator",
            "value",
            "ulp",
            "absolute",
            "relative",
            "of",
            "allowed",
        ]
        assert row.split()[0] == "aten.sigmoid.default"
        exact = validate(of("aten.neg.default(%x)"), {}, (torch.ones(4),))
        assert exact.table() == "all values are exactly what they mean"

    def test_inputs_and_a_script_that_runs(self, tmp_path, doubled_relu):
        ir = parse("""ir "Two" {
          input %x: f32[4]
          %a: f32[4] = aten.neg.default(%x)
          %b: f32[4] = aten.relu.default(%a)
          return %b
        }""")
        x = torch.tensor([-1.0, 1, -2, 3])
        saved = tmp_path / "first.safetensors"
        report = validate(ir, {}, (x,), save_inputs=saved, repro=tmp_path / "repro")
        assert not report.is_valid
        assert torch.equal(load_file(saved)["a"], -x)
        script = tmp_path / "repro" / "repro.py"
        assert "aten.relu.default as node 'b' of Two." in script.read_text()
        assert status(script) == 1
        unregister_executor("aten.relu.default")
        assert status(script) == 0
        register_executor("aten.relu.default")(double)

    def test_nothing_is_written_where_all_agree(self, tmp_path):
        ir = of("aten.neg.default(%x)")
        validate(ir, {}, (torch.ones(4),), repro=tmp_path / "repro")
        assert list(tmp_path.iterdir()) == []


class TestValues:
    def test_other_types_and_shapes(self):
        error = within(np.ones(2, "float32"), np.ones(3, "int64"), np.zeros(2))
        assert error.reason == "it is int64 of shape [3], and means float32 of shape [2]"

    def test_nan_and_infinity_must_be_in_place(self):
        nan, one = np.float32([np.nan, np.inf]), np.float32([1, np.inf])
        allowed = np.full(2, 10.0)
        assert within(nan, nan, allowed).is_none
        assert within(nan, one, allowed).reason == (
            "1 of 2 values differ: NaN or infinity is where the other has none"
        )

    def test_units_relative_and_absolute(self):
        error = within(np.float32([2.0]), np.float32([2.0 + 2**-21]), np.array([2**-20]))
        assert (error.ulp, error.absolute, error.relative) == (2, 2**-21, 2**-22)
        assert error.part == 0.5
        assert not error.reason
        assert not error.is_none

    def test_the_sign_of_zero_counts_against_eager_alone(self):
        zero = torch.zeros(1)
        assert same_bits(zero, -zero).reason == "1 of 1 values differ in the sign of zero"
        assert within(zero.numpy(), -zero.numpy(), np.zeros(1)).is_none


class TestRepro:
    def script(self, tmp_path, model, inputs, dynamic=None):
        """What the script of the first divergence prints, after a fault in the denotation."""
        ir = extract_ir(model, inputs, dynamic_shapes=dynamic)
        known = registry._DENOTATIONS
        op = ir.nodes[0].op_type
        right = denotation(op).function

        def wrong(**arguments):
            made = right(**arguments)
            return [part + 1 for part in made] if isinstance(made, list) else made + 1

        wrong.__module__ = right.__module__
        with patch.dict(known, {op: Denotation(op, wrong)}):
            assert not validate(ir, {}, inputs, repro=tmp_path).is_valid
        assert status(tmp_path / "repro.py") == 0
        return (tmp_path / "repro.py").read_text()

    def test_symbolic_sizes_are_those_of_the_run(self, tmp_path):
        class Half(nn.Module):
            def forward(self, x):
                return x.sigmoid().repeat(2)

        batch = torch.export.Dim("batch", min=2)
        text = self.script(tmp_path, Half(), (torch.ones(6),), ({0: batch},))
        assert "%sigmoid: f32[6] = aten.sigmoid.default(%x)" in text

    def test_a_branch_with_constants(self, tmp_path):
        table = torch.arange(20.0)

        class Flow(nn.Module):
            def forward(self, p, x):
                return torch.cond(p, lambda a: a + table, lambda a: a * 2, (x,))

        text = self.script(tmp_path, Flow(), (torch.tensor(True), torch.ones(20)))
        assert "higher_order.cond" in text

    def test_a_branch_of_a_branch_with_constants(self, tmp_path):
        table = torch.arange(20.0)

        class Flow(nn.Module):
            def forward(self, p, x):
                def outer(p, a):
                    return torch.cond(p, lambda a: a + table, lambda a: a * 2, (a,))

                return torch.cond(p, outer, lambda p, a: a * 2, (p, x))

        text = self.script(tmp_path, Flow(), (torch.tensor(True), torch.ones(20)))
        assert "higher_order.cond" in text


def test_a_functional_tensor_is_refused_before_anything_runs():
    ir = parse("ir {\n input %x: f32[2]\n %y: f32[2] = aten.relu.default(%x)\n return %y\n}")
    given = torch._to_functional_tensor(torch.ones(2))
    with pytest.raises(InputError, match="input 0 is a functional tensor"):
        validate(ir, None, (given,))
    with pytest.raises(InputError, match="a functional tensor has no plain values"):
        denote(ir, {}, (given,))


def test_a_tensor_of_zeros_without_memory_is_read_as_zeros():
    ir = parse("""ir {
      %z: f32[2] = aten._efficientzerotensor.default(size=[2])
      %y: bf16[2] = aten._to_copy.default(%z, dtype=torch.bfloat16)
      %s: f32[2] = aten.cos.default(%z)
      return %z, %y, %s
    }""")
    report = validate(ir, {}, ())
    assert report.verdict == "agree", str(report)


class Looked(nn.Module):
    def forward(self, x):
        ranks = (x.sigmoid() * 5).round()
        found = torch.cond(
            x.sum() > -1e9,
            lambda x, at: (
                x.gather(0, at.long()),
                x[:, at[0].long()],
                x.index_select(0, at[0].long()),
            ),
            lambda x, at: (x + at, x + at, x + at),
            (x, ranks),
        )
        return found, x.quantile(torch.tensor([0.0, 0.4, 1.0]), dim=1), x.nanquantile(1.0)


@since_2_13("compares quantiles with a constant by their values as it exports")
def test_places_that_are_computed_stay_within_what_is_looked_up():
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    x[0] = torch.tensor([100.0, -100.0, 0.0, 1.0, 50.0, -50.0])  # the last place and the first
    report = validate(extract_ir(Looked().eval(), (x,)), {}, (x,))
    assert report.verdict == "agree", str(report)


def test_a_tensor_that_out_gives_its_size_is_looked_at_before():
    ir = parse("""ir {
      input %x: f32[2, 3]
      %made: f32[0] = aten.empty.memory_format([0])
      %sums: f32[2, 3] = aten.cumsum.out(%x, dim=0, out=%made)
      return %sums
    }""")
    report = validate(ir, {}, (torch.ones(2, 3),))
    assert report.divergences == ()


def test_bytes_that_are_no_truth_values_are_open_to_what_reads_them():
    ir = parse("""
ir "Bytes" {
  input %x: f16[1]
  %view: b8[2] = aten.view.dtype(%x, dtype=torch.bool)
  %to: f32[2] = aten.to.dtype(%view, dtype=torch.float32)
  %not: b8[2] = aten.logical_not.default(%view)
  return %view, %to, %not
}
""")
    odd = validate(ir, {}, (torch.ones(1, dtype=torch.float16),), against=["denotation"])
    assert not odd.divergences
    assert set(odd.not_compared) == {"to", "not"}
    plain = validate(ir, {}, (torch.zeros(1, dtype=torch.float16),), against=["denotation"])
    assert not plain.divergences
    assert not plain.not_compared


NORMS = {
    "batch": lambda x, w: torch.nn.functional.batch_norm(x, w, w * 2, w, w),
    "training": lambda x, w: torch.nn.functional.batch_norm(x, w + 0, w + 1, w, w, training=True),
    "instance": lambda x, w: torch.nn.functional.instance_norm(x, weight=w, bias=w),
    "layer": lambda x, w: torch.nn.functional.layer_norm(x, (4,), w, w),
    "group": lambda x, w: torch.nn.functional.group_norm(x, 2, w, w),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_half_types_by_wider_numbers_agree_where_they_are_split_up(norm, dtype):
    model = torch.nn.Module()
    model.forward = NORMS[norm]
    args = (torch.randn(2, 4, 3, 4).to(dtype), torch.rand(4) + 0.5)
    program = decompose(extract_ir(model, args))
    assert validate(program, {}, args).verdict == "agree"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_in_half_types_agree_in_training(dtype):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(dtype)
    args = (torch.randn(2, 3, 6, 6).to(dtype),)
    ir = extract_ir(model, args)
    for program in (ir, decompose(ir)):
        assert validate(program, model.state_dict(), args).verdict == "agree"


def test_a_body_may_have_a_size_that_is_a_product_of_sizes_outside():
    class Scan(nn.Module):
        def forward(self, x):
            rows = x.reshape(1, 1, -1)
            add = lambda carry, row: (carry + row, carry * 1)  # noqa: E731  # as a user writes it
            return torch._higher_order_ops.scan(add, rows[0].clone(), rows.clone())[0]

    free = torch.export.Dim.DYNAMIC
    ir = extract_ir(Scan(), (torch.rand(4, 5),), dynamic_shapes=({0: free, 1: free},))
    report = validate(ir, {}, (torch.rand(3, 7),))
    assert report.verdict == "agree"
