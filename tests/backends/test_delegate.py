"""Programs whose subgraphs are functions: well-formed, the same in every form, and equal."""

import pytest
import torch
from hypothesis import given, settings
from torch import nn

import torch_ir
from backends.graphs import WEIGHTS, Interpreter, Named, chain, programs
from small_models import CASES
from torch_ir import IR, IRExecutor, check_types, extract_ir, functionalize, parse
from torch_ir.backends import Partitioner, register_backend, to_backend, unregister_backend
from torch_ir.backends.delegate import body_of, delegates
from torch_ir.backends.delegating import DelegatingExecutor
from torch_ir.errors import BackendError, ExecutionError, MissingWeightsError
from torch_ir.ir import Location
from torch_ir.weights.tensor_registry import registered_kernel
from whole_way import same

SETTINGS = settings(derandomize=True, max_examples=40, deadline=None)


def delegated(ir, *operators):
    return to_backend(ir, Partitioner(Named(frozenset(operators))))


@SETTINGS
@given(programs())
def test_every_form_of_the_result_is_well_formed_and_computes_the_same(case):
    ir, taken = case
    result = to_backend(ir, Partitioner(Named(taken)))
    assert result.check() == ()
    assert parse(str(result)) == result
    assert IR.from_dict(result.to_dict()) == result
    x = torch.tensor([-1.5, 0.25, 1.0, 3.0])
    expected = IRExecutor(ir, WEIGHTS).execute([x])
    assert same(IRExecutor(result, WEIGHTS).execute([x]), expected)


@SETTINGS
@given(programs())
def test_it_is_the_same_each_time_and_changes_nothing(case):
    ir, taken = case
    before = str(ir)
    first, second = (to_backend(ir, Partitioner(Named(taken))) for _ in range(2))
    assert (first, str(first), str(ir)) == (second, str(second), before)


def test_a_function_is_closed_named_and_says_where_it_came_from():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Softmax(-1))
    ir = extract_ir(model, (torch.ones(2, 4),))
    result = delegated(ir, "aten.linear.default", "aten.relu.default")
    (call,) = delegates(result)
    body = body_of(result, call)
    assert [n.op_type for n in result.nodes] == [
        "higher_order.invoke_subgraph",
        "aten.softmax.int",
    ]
    assert (call.name, body.metadata["backend"], body.weights) == ("named_0", "named", ())
    assert [m.name for m in body.graph_inputs] == ["input", "p_0_weight", "p_0_bias"]
    assert [n.location for n in body.nodes] == [n.location for n in ir.nodes[:2]]
    assert call.location == ir.nodes[0].location
    assert isinstance(call.location, Location)
    assert delegates(result, "other") == ()


def test_nothing_to_take_gives_the_program_itself():
    ir = chain("a", "b")
    assert delegated(ir) is ir


@pytest.mark.parametrize("name", sorted(CASES))
def test_models_compute_the_same_bits(name, tmp_path):
    case = CASES[name]
    model = case.model()
    args, kwargs = case.inputs()
    ir = functionalize(extract_ir(model, args, kwargs=kwargs))
    operators = sorted({node.op_type for node in ir.nodes})[::2]
    result = delegated(ir, *operators)
    assert result.check() == ()
    assert check_types(result) == check_types(ir)
    result.save(tmp_path / "m.tir")
    loaded = IR.load(tmp_path / "m.tir")
    assert loaded == result
    torch.manual_seed(3)
    expected = IRExecutor(ir, model.state_dict())(*args, **kwargs)
    args, kwargs = case.inputs()  # the first call may have written to its inputs
    torch.manual_seed(3)
    assert same(IRExecutor(loaded, model.state_dict())(*args, **kwargs), expected)


def test_edge_programs_stay_edge():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Softmax(-1))
    x = torch.randn(2, 4)
    edge = torch_ir.to_edge(extract_ir(model, (x,)))
    taken = {"aten.permute_copy.default", "aten.addmm.default", "aten.relu.default"}
    lowered = edge.to_backend(Partitioner(Named(taken)))
    assert [n.op_type for n in lowered.ir().nodes] == [
        "higher_order.invoke_subgraph",
        "aten._softmax.default",
    ]
    assert len(edge.ir().nodes) == 4
    assert torch.equal(IRExecutor(lowered.ir(), model.state_dict())(x), model(x))


def test_a_backend_can_follow_another():
    ir = chain("a", "b", "c", "d")
    first = to_backend(ir, Partitioner(Named({"a", "d"}, "one")))
    both = to_backend(first, Partitioner(Named({"b"}, "two")))
    assert both.check() == ()
    assert [n.name for n in delegates(both, "one")] == ["one_0", "one_1"]
    assert [n.name for n in delegates(both)] == ["one_0", "two_0", "one_1"]
    x = torch.randn(4)
    assert same(IRExecutor(both, {}).execute([x]), IRExecutor(ir, {}).execute([x]))


class TestRunning:
    @pytest.mark.parametrize("name", ["linear", "nested", "conv", "passing", "in place"])
    def test_the_backend_runs_its_part(self, name):
        case = CASES[name]
        model = case.model()
        args, kwargs = case.inputs()
        ir = extract_ir(model, args, kwargs=kwargs)
        operators = sorted({node.op_type for node in functionalize(ir).nodes})[::2]
        backend = Interpreter(*operators)
        run = DelegatingExecutor(ir, model.state_dict(), backend)
        assert backend.bodies
        copied = case.model()
        args, kwargs = case.inputs()
        expected = copied(*args, **kwargs)
        args, kwargs = case.inputs()
        assert same(run(*args, **kwargs), expected)

    def test_by_name_through_the_one_door(self):
        backend = Interpreter("aten.relu.default")
        register_backend("interpreter")(backend)
        try:
            (result,) = torch_ir.compile(chain("a"), {}, backend="interpreter")(torch.ones(4))
            assert torch.equal(result, torch.ones(4))
            with pytest.raises(ExecutionError) as error:
                torch_ir.compile(chain("a"), {}, backend="interpreter", grad=True)
        finally:
            unregister_backend("interpreter")
        assert str(error.value) == (
            "the backend 'interpreter' has no gradients\nUse the backend 'aten'."
        )

    def test_weights_are_held_and_state_is_passed(self):
        class Counting(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(3, 3)
                self.register_buffer("total", torch.zeros(3))

            def forward(self, x):
                self.total.add_(self.fc(x).sum(0))
                return self.total.relu()

        model = Counting()
        ir = extract_ir(model, (torch.ones(2, 3),))
        backend = Interpreter("aten.linear.default", "aten.add.Tensor", "aten.relu.default")
        run = DelegatingExecutor(
            ir, {k: v.clone() for k, v in model.state_dict().items()}, backend
        )
        held = set().union(*backend.payloads)
        assert held == {"p_fc_weight", "p_fc_bias"}
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(2, 3)
            assert torch.equal(run(x), model(x))
        assert torch.equal(run.buffers["total"], model.total)
        run.reset()
        assert torch.equal(run.buffers["total"], torch.zeros(3))

    def test_sizes_that_no_tensor_shows_are_numbers(self):
        ir = parse("""ir {
          symbol s0: 2..8
          input %x: f32[s0, 4]
          %a: f32[s0, 4] = aten.neg.default(%x)
          %flat: f32[4*s0] = aten.view.default(%a, size=[`4*s0`])
          %full: f32[s0] = aten.full.default(size=[`s0`], fill_value=2.0)
          %back: f32[s0, 4] = aten.view.default(%flat, size=[`s0`, 4])
          return %back, %full
        }""")
        backend = Interpreter("aten.full.default", "aten.view.default")
        run = DelegatingExecutor(ir, {}, backend)
        result = to_backend(ir, Partitioner(Named({"full", "back"})))
        assert str(delegates(result)[0].attrs["operands"]) == "(None, SymExpr('s0'))"
        for rows in (2, 5):
            x = torch.randn(rows, 4)
            assert same(run(x), (-x, torch.full((rows,), 2.0)))
            assert same(IRExecutor(result, {})(x), (-x, torch.full((rows,), 2.0)))

    def test_sizes_that_data_decides(self):
        ir = parse("""ir {
          symbol u0: 0..4
          input %x: f32[4]
          %which: i64[u0, 1] = aten.nonzero.default(%x)
          %ones: f32[u0] = aten.full.default(size=[`u0`], fill_value=1.0)
          %b: i64[u0, 1] = aten.neg.default(%which)
          return %b, %ones
        }""")
        taken = ("aten.full.default", "aten.neg.default")
        backend = Interpreter(*taken)
        run = DelegatingExecutor(ir, {}, backend)
        result = to_backend(ir, Partitioner(backend))
        assert result.check() == ()
        for values in ([0.0, 1, 2, 0], [3.0, 1, 2, 0], [0.0] * 4):
            x = torch.tensor(values)
            expected = -x.nonzero(), torch.ones(int(x.count_nonzero()))
            assert same(run(x), expected)
            assert same(IRExecutor(result, {})(x), expected)

    def test_a_mask_that_a_delegate_hands_on_counts_what_torch_counted(self):
        class Masked(torch.nn.Module):
            def forward(self, x, y):
                mask = x.sum(-1) > 0
                return x[mask].relu() + y[mask.to(x.device)] * 2, mask

        given = torch.randn(6, 3), torch.randn(6, 3)
        ir = extract_ir(Masked(), given)
        for taken in (("aten.to.dtype_layout",), ("aten.relu.default",)):
            run = DelegatingExecutor(ir, {}, Interpreter(*taken))
            assert len(run.delegates) == 1
            for x in (*given, torch.zeros(6, 3), torch.ones(6, 3)):
                assert same(run(x, given[1]), Masked()(x, given[1]))

        class Wrong(Interpreter):
            def compile(self, ir, payload):
                return lambda mask, *sizes: [mask.logical_not()]

        run = DelegatingExecutor(ir, {}, Wrong("aten.to.dtype_layout"))
        with pytest.raises(ExecutionError, match=r"the size of %index_1 along axis 0 is not as"):
            run(torch.ones(6, 3), given[1])

    def test_kernels_are_forgotten_with_the_executor(self):
        run = DelegatingExecutor(chain("a"), {}, Interpreter("aten.relu.default"))
        run(torch.ones(4))
        names = [n.op_type for n in run._host.ir.nodes]
        assert registered_kernel(names[0]) is not None
        del run
        assert registered_kernel(names[0]) is None

    def test_a_wrong_number_of_results_is_refused(self):
        class Broken(Interpreter):
            def compile(self, ir, payload):
                return lambda *tensors: []

        run = DelegatingExecutor(chain("a"), {}, Broken("aten.relu.default"))
        with pytest.raises(
            ExecutionError, match=r"the backend 'interpreter' gave 0 results in place of 1"
        ):
            run(torch.ones(4))

    def test_weights_that_are_not_given(self):
        ir = extract_ir(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
        with pytest.raises(MissingWeightsError) as error:
            DelegatingExecutor(ir, None, Interpreter())
        assert str(error.value) == (
            "the program has 2 weights and none were given\n"
            "Give weights, such as model.state_dict()."
        )


@pytest.mark.parametrize("records", [True, False])
def test_what_a_delegate_raises_names_it_whether_torch_records_gradients_or_not(records):
    class Fails(Interpreter):
        name = "fails"

        def compile(self, ir, payload):
            def call(*tensors):
                raise RuntimeError("no power")

            return call

    model, x = nn.Linear(3, 2).eval(), torch.ones(1, 3)
    run = torch_ir.compile(
        extract_ir(model, (x,)), model.state_dict(), backend=Fails("aten.linear.default")
    )
    told = "the backend 'fails' fails to run 'fails_0', a delegate of linear: RuntimeError: no"
    with torch.set_grad_enabled(records):
        for _ in range(2):  # the second call takes the shorter way
            with pytest.raises(BackendError, match=told):
                run(x)
        assert torch.is_grad_enabled() is records
