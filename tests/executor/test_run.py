"""Running a program: state between calls, what is freed, what is refused, who computes what."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import torch_ir
from small_models import CASES
from torch_ir import IR, OpNode, TensorMeta
from torch_ir.errors import ExecutionError, InputError, InvalidIRError
from torch_ir.executor import (
    IRExecutor,
    TensorRegistry,
    execute_ir,
    register_executor,
    unregister_executor,
)
from torch_ir.ir import SymExpr

X = TensorMeta("x", (2,), "float32")
Y = TensorMeta("y", (2,), "float32", "y")
GIVEN = torch.tensor([1.0, -2.0])


def one_node(op_type, attrs=None, operands=None, output=Y):
    return IR([OpNode("y", op_type, [X], [output], attrs or {}, operands)], [X], [output], [])


def counting():
    case = CASES["counting"]
    model = case.model()
    with pytest.warns(UserWarning, match="the model is in training mode"):
        ir = torch_ir.extract_ir(model, case.inputs()[0])
    return ir, model, case.inputs()[0][0]


# -- state ------------------------------------------------------------------------------------


def test_buffers_go_on_from_call_to_call_and_can_be_reset():
    ir, model, x = counting()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    executor = IRExecutor(ir, weights)
    first = executor(x)
    assert int(executor.buffers["calls"]) == 1
    executor(x)
    assert int(executor.buffers["calls"]) == 2
    assert int(weights["calls"]) == 0
    model(x), model(x)
    assert executor.buffers.keys() <= model.state_dict().keys()
    for key, value in executor.buffers.items():
        assert torch.equal(value, model.state_dict()[key])
    executor.reset()
    assert int(executor.buffers["calls"]) == 0
    assert torch.equal(executor(x), first)


def test_inputs_that_are_refused_change_no_state():
    ir, model, x = counting()
    executor = IRExecutor(ir, model.state_dict())
    executor(x)
    before = executor.buffers
    with pytest.raises(InputError):
        executor(x[:, :2])
    assert all(torch.equal(executor.buffers[key], before[key]) for key in before)


def test_a_result_that_was_returned_is_not_changed_by_the_next_call():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x):
            self.n.add_(x)
            return self.n

    model = Counter().eval()
    executor = IRExecutor(torch_ir.extract_ir(model, (torch.ones(1),)), model.state_dict())
    first = executor(torch.ones(1))
    executor(torch.ones(1))
    assert first.item() == 1.0


def test_an_input_is_written_as_eager_writes_it():
    case = CASES["in place"]
    executor = IRExecutor(torch_ir.extract_ir(case.model(), case.inputs()[0]))
    mine, theirs = case.inputs()[0][0], case.inputs()[0][0]
    _, returned = executor(mine)
    case.model()(theirs)
    assert torch.equal(mine, theirs)
    assert returned is mine or returned.data_ptr() == mine.data_ptr()


# -- the registry of tensors ------------------------------------------------------------------


def test_the_registry_holds_inputs_weights_and_outputs_of_the_last_call():
    model = nn.Linear(3, 2).eval()
    executor = IRExecutor(torch_ir.extract_ir(model, (torch.ones(1, 3),)), model.state_dict())
    assert len(executor.registry) == 0
    x = torch.randn(1, 3)
    y = executor(x)
    assert executor.registry["input"] is x
    assert executor.registry["linear"] is y
    assert torch.equal(executor.registry["p_weight"], model.weight)
    assert repr(executor.registry) == "TensorRegistry(4 tensors)"


def test_a_registry_is_a_mapping_from_names():
    registry = TensorRegistry()
    registry.register("x", GIVEN)
    registry["y"] = GIVEN * 2
    assert registry.get("x") is GIVEN
    assert registry.get("z") is None
    assert (registry.has("y"), "z" in registry, len(registry)) == (True, False, 2)
    with pytest.raises(ExecutionError) as caught:
        registry["yy"]
    assert str(caught.value) == "there is no tensor 'yy'\nDid you mean y?"
    registry.clear()
    assert len(registry) == 0


# -- memory -----------------------------------------------------------------------------------


def test_a_value_is_freed_after_its_last_use():
    class Chain(nn.Module):
        def forward(self, x):
            for _ in range(6):
                x = torch.sin(x)
            return x

    class Alive:
        def __init__(self):
            self.references = []
            self.most = 0

        def will_run(self, node, inputs):
            pass

        def did_run(self, node, outputs):
            self.references.extend(map(weakref.ref, outputs))
            del outputs
            gc.collect()
            self.most = max(self.most, self.count())

        def count(self):
            # a result that takes the place of a dead value is the same object
            return len({id(r()) for r in self.references if r() is not None})

    executor = IRExecutor(torch_ir.extract_ir(Chain(), (torch.ones(4),)))
    alive = Alive()
    executor.call_observed((torch.ones(4),), {}, alive)
    assert len(alive.references) == 6
    assert alive.most <= 2  # a node's input and its output
    assert alive.count() == 1  # the output, in the registry


# -- operators --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("aten.relu", "It is aten.relu.default or aten.relu.out."),
        ("mylib.*", "Name the exact overload, such as 'mylib.double.default'."),
        ("mylib", "Name the exact overload, such as 'mylib.double.default'."),
        ("mylib::double", "Name the exact overload, such as 'mylib.double.default'."),
    ],
)
def test_a_kernel_with_which_nothing_would_run_is_refused(name, hint):
    with pytest.raises(InvalidIRError) as caught:
        register_executor(name)
    assert str(caught.value) == f"{name!r} names no operator\n{hint}"


def test_a_registered_kernel_runs_in_place_of_an_operator():
    ir = one_node("mylib.double.default", {"times": 3}, {"self": 0})

    @register_executor("mylib.double.default")
    def double(inputs, attrs):
        return [inputs[0] * 2 * attrs["times"]]

    try:
        assert torch.equal(execute_ir(ir, (GIVEN,), {})[0], GIVEN * 6)
        with pytest.raises(ExecutionError) as caught:
            register_executor("mylib.double.default")(double)
        assert str(caught.value) == (
            f"mylib.double.default already runs with {double.__qualname__}\n"
            "Remove it with unregister_executor('mylib.double.default') first."
        )
    finally:
        unregister_executor("mylib.double.default")
    unregister_executor("mylib.double.default")  # nothing happens


def test_a_custom_operator_of_a_library_is_called():
    with torch.library._scoped_library("torch_ir_run_test", "FRAGMENT") as library:
        library.define("shift(Tensor x, *, int by=1) -> Tensor")
        library.impl("shift", lambda x, *, by=1: x + by, "CompositeExplicitAutograd")
        ir = one_node("torch_ir_run_test.shift.default", {"by": 5}, {"x": 0})
        assert torch.equal(execute_ir(ir, (GIVEN,), {})[0], GIVEN + 5)


@pytest.mark.parametrize(
    ("ir", "message"),
    [
        (
            one_node("mylib.foo.default", {}, {"self": 0}),
            "node 'y': torch has no operator 'mylib.foo.default'. Import the library that "
            "registers the operators of 'mylib' before running: --import MODULE on the command "
            "line, or an entry point 'mylib' of the group torch_ir.operators in its package.\n"
            "    %y: f32[2] = mylib.foo.default(self=%x)",
        ),
        (
            one_node("aten.reluu.default"),
            "node 'y': there is no operator aten.reluu.default. "
            "Did you mean aten.relu.default or aten.rrelu.default?\n"
            "    %y: f32[2] = aten.reluu.default(*[%x])",
        ),
        (
            one_node("higher_order.nope", {}, {"self": 0}),
            "node 'y': torch has no operator 'higher_order.nope'. "
            "Check the name and the overload.\n"
            "    %y: f32[2] = higher_order.nope(self=%x)",
        ),
        (
            one_node("aten.view.default", {"size": (3,)}),
            "node 'y': aten.view.default failed: shape '[3]' is invalid for input of size 2\n"
            "    %y: f32[2] = aten.view.default(%x, size=[3])",
        ),
        (
            one_node("aten.relu.default", output=Y.replace(producer_output_idx=1)),
            "node 'y': aten.relu.default makes no tensor as %y\n"
            "    %y: f32[2] #1 = aten.relu.default(%x)",
        ),
        (
            one_node("aten.index.Tensor", {"indices": (None,)}, {"self": 0, "indices": (0, 0)}),
            "node 'y': argument 'indices' of aten.index.Tensor has 2 operands, "
            "its attribute is (None,)\n"
            "    %y: f32[2] = aten.index.Tensor(#0, indices=[#0, #0], indices=[None]) of [%x]",
        ),
    ],
)
def test_what_cannot_be_run_is_shown(ir, message):
    with pytest.raises(ExecutionError) as caught:
        execute_ir(ir, (GIVEN,), {})
    assert str(caught.value) == message


def test_an_expression_without_a_value_names_its_node():
    ir = one_node("aten.add.Tensor", {"other": SymExpr("s0")})
    with pytest.raises(ExecutionError, match=r"s0"):
        execute_ir(ir, (GIVEN,), {})


def test_a_failing_kernel_is_the_cause_and_the_source_line_is_shown():
    class Fails(nn.Module):
        def forward(self, x, index):
            return x[index]

    ir = torch_ir.extract_ir(Fails(), (torch.ones(3), torch.tensor([0])))
    with pytest.raises(ExecutionError) as caught:
        execute_ir(ir, (torch.ones(3), torch.tensor([5])), {})
    assert isinstance(caught.value.__cause__, IndexError)
    message = str(caught.value)
    assert message.startswith("node 'index_1': aten.index.Tensor failed: index 5 is out of bounds")
    assert "executor/test_run.py:" in message
    assert message.endswith("in (Fails): return x[index]")


# -- devices ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["run", "meta"])
def test_the_device_of_the_run_stands_in_for_that_of_the_extraction(device):
    node = OpNode("y", "aten.arange.default", [], [Y], {"end": 2.0, "device": torch.device("cpu")})
    node = node.replace(attrs={**node.attrs, "device": torch_ir.ir.Device(device)})
    (made,) = execute_ir(IR([node], [X], [Y], []), (GIVEN,), {})
    assert made.device == GIVEN.device


def test_a_model_on_meta_makes_its_tensors_where_it_runs():
    class Makes(nn.Module):
        def forward(self, x):
            return x + torch.arange(3, device=x.device) + torch.zeros_like(x)

    ir = torch_ir.extract_ir(Makes(), (torch.ones(3, device="meta"),))
    assert 'device("run")' in str(ir)
    assert torch.equal(execute_ir(ir, (torch.ones(3),), {})[0], torch.ones(3) + torch.arange(3))


SPARSE = {
    "softmax": lambda x, s: torch.sparse.softmax(x.to_sparse(), 1).to_dense(),
    "product": lambda x, s: torch.sparse.mm(x.to_sparse(), x.to_sparse()).to_dense(),
    "quotient of an input": lambda x, s: (s / 2).to_dense(),
    "power of an input": lambda x, s: s.pow(2).to_dense(),
}


@pytest.mark.parametrize("name", SPARSE)
def test_kernels_of_sparse_tensors_fill_their_results(name):
    """They resize views of their values, which a view that knows its base does not allow."""

    class Sparse(torch.nn.Module):
        def forward(self, x, s):
            return SPARSE[name](x, s), x.t()

    x = torch.arange(9.0).reshape(3, 3).sin()
    given = (x, x.to_sparse())
    found = IRExecutor(torch_ir.extract_ir(Sparse().eval(), given))(*given)
    assert torch.equal(found[0], SPARSE[name](*given))
    assert found[0].abs().sum() > 0


def test_products_of_conjugated_matrices_have_eagers_bits():
    class Product(nn.Module):
        def forward(self, x, y):
            return x.mH.matmul(y), x.conj().imag @ y.real

    torch.manual_seed(0)
    for _ in range(20):  # torch resolves a conjugate or not by where it comes apart
        x, y = torch.randn(3, 3, dtype=torch.complex64), torch.randn(3, 2, dtype=torch.complex64)
        run = IRExecutor(torch_ir.extract_ir(Product(), (x, y)))
        with torch.no_grad():
            expected = Product()(x, y)
        for mine, theirs in zip(run(x, y), expected, strict=True):
            assert torch.equal(mine, theirs)


# -- what calls of an executor do --------------------------------------------------------------


def test_a_direct_call_is_a_call():
    model, x = torch.nn.Linear(3, 2), torch.randn(1, 3)
    executor = torch_ir.IRExecutor(torch_ir.extract_ir(model, (x,)), model.state_dict())
    direct = executor.direct_call
    for given in (x, torch.zeros(1, 3)):
        assert torch.equal(direct(given), model(given))
        assert executor.registry["linear"].shape == (1, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert direct(x).dtype == torch.float32
    for wrong in ((), (x, x), (x.double(),), (3,), (torch.zeros(2, 3),)):
        with pytest.raises(torch_ir.InputError) as expected:
            executor(*wrong)
        with pytest.raises(torch_ir.InputError) as raised:
            direct(*wrong)
        assert str(raised.value) == str(expected.value)


def test_a_direct_call_keeps_state_and_says_which_node_failed():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen.add_(1)
            return {"mean": x.index_select(0, self.seen.long()) / self.seen}

    x = torch.arange(3.0)
    ir = torch_ir.extract_ir(Counter(), (x,))
    direct = torch_ir.IRExecutor(ir, Counter().state_dict()).direct_call
    assert direct(x) == {"mean": torch.ones(1)}
    assert direct(x) == {"mean": torch.ones(1)}
    with pytest.raises(torch_ir.ExecutionError, match="index"):
        direct(x)


class ClonesConstants(nn.Module):
    """Copies, when they are written, what lies in memory of torch's own alone."""

    def __init__(self):
        super().__init__()
        self.number, self.table = torch.tensor(2.0), torch.arange(3.0)

    def forward(self, x):
        return torch._lazy_clone(self.table) * torch._lazy_clone(self.number) + x


def test_constants_lie_in_memory_of_torchs_own(tmp_path):
    model, x = ClonesConstants(), torch.ones(3)
    torch_ir.extract_ir(model, (x,)).save(tmp_path / "m.tir")
    ir = IR.load(tmp_path / "m.tir")
    assert torch.equal(IRExecutor(ir, {})(x), model(x))
    assert torch_ir.compare(ir, {}, (x,)).verdict == "agree"
