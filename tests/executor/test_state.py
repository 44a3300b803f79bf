"""What goes on from call to call: buffers and random numbers, as in eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

import torch_ir
from torch_ir.errors import ConversionError, ExecutionError
from torch_ir.executor import IRExecutor, register_executor, unregister_executor
from whole_way import Lambda, runs_as_eager, same

pytestmark = pytest.mark.filterwarnings("ignore:the model is in training mode")


def ramp(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 7


# -- buffers ----------------------------------------------------------------------------------


def test_statistics_of_a_batch_norm_go_on_and_start_again():
    def make():
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()).train()

    calls = [(ramp(5, 4).sin(),), (ramp(5, 4).cos() * 3,), (ramp(5, 4) - 2,)]
    ir = runs_as_eager(make, *calls)
    torch.manual_seed(0)
    model = make()
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    executor = IRExecutor(ir, weights)
    first = executor(*calls[0])
    after_one = executor.buffers
    assert int(after_one["1.num_batches_tracked"]) == 1
    executor(*calls[1])
    assert int(executor.buffers["1.num_batches_tracked"]) == 2
    assert int(after_one["1.num_batches_tracked"]) == 1, "what was asked for stays as it was"
    executor.reset()
    assert same(executor(*calls[0]), first)
    assert same(executor.buffers, after_one)
    assert same(weights, dict(model.state_dict()))


class Delay(nn.Module):
    """A delay line: one buffer takes the old value of another."""

    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.zeros(2))
        self.register_buffer("two", torch.zeros(2))

    def forward(self, x):
        out = self.one + self.two
        self.one.copy_(self.two)
        self.two.copy_(x)
        return out


class Swap(Delay):
    """Two buffers take one another's old values."""

    def forward(self, x):
        old = self.one.clone()
        self.one.copy_(self.two + x)
        self.two.copy_(old - x)
        return self.one * self.two


class Average(nn.Module):
    """A running average, a counter, and an input that is written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(2))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        self.average.mul_(0.9).add_(x, alpha=0.1)
        x.mul_(2)
        return self.average.clone(), x


class Tied(nn.Module):
    """One buffer under two names."""

    def __init__(self):
        super().__init__()
        buffer = torch.zeros(2)
        self.register_buffer("one", buffer)
        self.register_buffer("two", buffer)

    def forward(self, x):
        self.one.add_(x)
        return self.two * 2


class Shown(nn.Module):
    """Returns what it writes, a view of it, and a part of what the buffer was."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("seen", torch.ones(2))
        self.register_buffer("hidden", torch.ones(2))

    def forward(self, x):
        new, old = self.kept * 0.5 + x, self.seen[:1]
        self.kept.copy_(new)
        self.seen.copy_(x * 3)
        self.hidden.copy_(self.hidden + x)
        return new, new[1:], old, self.kept, self.hidden * 2


class Twice(nn.Module):
    """Two buffers take one value, which a third takes in another order in memory."""

    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.zeros(2))
        self.register_buffer("two", torch.zeros(2))
        self.register_buffer("turned", torch.zeros(2, 2).t())

    def forward(self, x):
        new = self.one + x
        self.one.copy_(new)
        self.two.copy_(new)
        self.turned.copy_(self.turned + x)
        return self.two * 2, self.turned.sum()


CALLS = [(torch.tensor([1.0, -2.0]) * factor,) for factor in (1, 3, 0.5, -1)]


@pytest.mark.parametrize("make", [Delay, Swap, Average, Tied, Shown, Twice])
def test_buffers_and_inputs_are_written_as_in_eager(make):
    runs_as_eager(lambda: make().eval(), *CALLS)


@pytest.mark.parametrize("make", [Delay, Swap, Average, Tied, Shown, Twice])
def test_functional_programs_write_back_as_eager_does(make):
    ir = torch_ir.functionalize(torch_ir.extract_ir(make().eval(), CALLS[0]))
    runs_as_eager(lambda: make().eval(), *CALLS, programs=[ir])


@pytest.mark.parametrize("make", [Delay, Swap, Average, Shown])
def test_what_a_functionalized_program_writes_back_is_read_before_it_is_written(make):
    exported = torch.export.export(make().eval(), CALLS[0]).run_decompositions({})
    ir = torch_ir.extract_ir(exported)
    assert any(mutation.value.name != mutation.target for mutation in ir.mutations)
    runs_as_eager(lambda: make().eval(), *CALLS, programs=[ir])


def test_a_buffer_takes_the_memory_of_a_value_that_nothing_else_has():
    exported = torch.export.export(Shown().eval(), CALLS[0]).run_decompositions({})
    executor = IRExecutor(torch_ir.extract_ir(exported), exported.state_dict)
    results = [[r.clone() for r in executor(*call)] for call in CALLS]
    source = executor.graph.source
    assert source.count("hand_over(b_hidden") == 1
    assert source.count("hand_over(") == 1, "what is returned or shown is copied"
    executor.reset()
    kept = [executor(*call) for call in CALLS]
    assert same([list(r) for r in kept], results), "results stay what they were"


def test_a_buffer_never_takes_the_memory_of_what_is_given():
    """What a program writes to a buffer may be an argument, or a weight, itself."""
    ir = torch_ir.parse("""ir {
  weight @w: f32[2]
  weight @a: f32[2]
  weight @b: f32[2]
  mutate @a = %x
  mutate @b = @w
  input %x: f32[2]
  %y: f32[2] = aten.add.Tensor(@a, @b)
  return %y
}""")
    weights = {name: torch.zeros(2) for name in "ab"} | {"w": torch.ones(2)}
    executor, x = IRExecutor(ir, weights), torch.full((2,), 5.0)
    executor(x)
    x.fill_(7)
    weights["w"].fill_(9)
    assert same(executor.buffers, {"a": torch.full((2,), 5.0), "b": torch.ones(2)})
    executor.reset()
    assert weights["w"].tolist() == [9.0, 9.0]
    assert x.tolist() == [7.0, 7.0]


def test_a_tied_buffer_has_one_state():
    model = Tied().eval()
    executor = IRExecutor(torch_ir.extract_ir(model, CALLS[0]), model.state_dict())
    executor(*CALLS[0])
    assert executor.buffers.keys() == {"one"}


class MayFail(nn.Module):
    """Writes a buffer, then reads a row that may not be there."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, row):
        self.calls.add_(1)
        return x[row] * self.calls


def after_a_failure(functional):
    """An executor after a good call and one that fails behind the write of its buffer."""
    x, good, bad = ramp(3), torch.tensor([1]), torch.tensor([7])
    exported = torch.export.export(MayFail().eval(), (x, good))
    ir = torch_ir.extract_ir(exported.run_decompositions({}) if functional else exported)
    executor = IRExecutor(ir, MayFail().state_dict())
    executor(x, good)
    with pytest.raises(ExecutionError, match="out of bounds"):
        executor(x, bad)
    return executor, x, good


def test_a_call_that_fails_before_its_first_write_leaves_the_buffers_as_they_were():
    executor, x, good = after_a_failure(functional=True)
    assert int(executor.buffers["calls"]) == 1
    assert same(executor(x, good), x[good] * 2)


def test_half_written_buffers_are_not_used_again():
    executor, x, good = after_a_failure(functional=False)
    with pytest.raises(ExecutionError) as caught:
        executor(x, good)
    assert str(caught.value) == (
        "the buffers are half written: the last call failed between two writes\n"
        "Call reset() to start again with their first values."
    )
    executor.reset()
    assert same(executor(x, good), x[good])


def test_state_made_in_inference_mode_goes_on_outside_of_it():
    ir = torch_ir.extract_ir(MayFail().eval(), (ramp(3), torch.tensor([1])))
    with torch.inference_mode():
        executor = IRExecutor(ir, MayFail().state_dict())
        executor(ramp(3), torch.tensor([1]))
    assert same(executor(ramp(3), torch.tensor([1])), ramp(3)[1:2] * 2)


@pytest.mark.parametrize("is_functional", [False, True], ids=["in place", "functional"])
def test_a_call_within_a_call_is_refused_where_both_write(is_functional):
    line = "aten.add.Tensor(@seen, 1)" if is_functional else "aten.add_.Tensor(@seen, 1)"
    text = """ir {
      weight @seen: f32[2]
      MUTATE
      input %x: f32[2]
      %a: f32[2] = LINE
      %y: f32[2] = mylib.again.default(x=%x)
      %z: f32[2] = aten.add.Tensor(%a, %y)
      return %z
    }"""
    mutate = f"mutate @seen = {'%a' if is_functional else '@seen'}"
    ir = torch_ir.parse(text.replace("MUTATE", mutate).replace("LINE", line))
    called = []

    @register_executor("mylib.again.default")
    def again(inputs, _attrs):
        if called:
            return [called.pop()(inputs[0])[0] + 0]
        return [inputs[0] * 10]

    try:
        run, other = [IRExecutor(ir, {"seen": torch.zeros(2)}) for _ in range(2)]
        x = torch.ones(2)
        called.append(run)
        with pytest.raises(ExecutionError) as caught:
            run(x)
        assert caught.value.message.startswith(
            "node 'y': the program is called within a call of it, and both would write its buffers"
        )
        assert caught.value.remedy == (
            "Compile the program once more for calls within a call, which then has buffers of "
            "its own."
        )
        run.reset()
        called.append(other)
        assert same(run(x)[0], torch.full((2,), 12.0))
        assert same(run(x)[0], torch.full((2,), 12.0))
    finally:
        unregister_executor("mylib.again.default")


# -- random numbers ---------------------------------------------------------------------------


def random_numbers(m, x):
    return {
        "dropout": F.dropout(x, 0.5, True),
        "rand": torch.rand(3, device=x.device) + torch.rand_like(x).sum(),
        "normal": torch.normal(x, 1.0) + torch.randn(4, device=x.device),
        "bernoulli": torch.bernoulli(x.sigmoid()),
        "multinomial": torch.multinomial(x.abs() + 0.1, 3),
        "randperm": torch.randperm(5, device=x.device),
        "randint": torch.randint(0, 99, (4,), device=x.device),
        "in place": torch.empty(3, device=x.device).uniform_() + x.clone().exponential_().sum(),
        "attention": F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
    }


def test_the_same_seed_gives_the_same_bits():
    x = ramp(4, 4)
    ir = runs_as_eager(lambda: Lambda(random_numbers).eval(), (x,), (x + 1,))
    torch.manual_seed(0)
    executor = IRExecutor(ir, Lambda(random_numbers).state_dict())

    def draw(seed):
        torch.manual_seed(seed)
        return executor(x)

    assert same(draw(5), draw(5))
    assert not same(draw(5), draw(6))


def test_dropout_in_training_draws_as_in_eager():
    def make():
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.LSTM(8, 3)).train()

    runs_as_eager(make, (ramp(5, 4),), (ramp(5, 4) * 2,))


class RowOfTable(nn.Module):
    """A buffer that is a view of another one, and one of them is written."""

    def __init__(self, persistent):
        super().__init__()
        self.register_buffer("table", torch.zeros(2, 3))
        self.register_buffer("row", self.table[0], persistent=persistent)

    def forward(self, x):
        """The sum of the table, after its first row has grown."""
        self.row.add_(x)
        return self.table.sum(0)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_written_view_of_another_buffer_is_refused(device, persistent):
    with torch.device(device):
        model, x = RowOfTable(persistent), torch.ones(3)
    with pytest.raises(ConversionError) as caught:
        torch_ir.extract_ir(model.eval(), (x,))
    assert str(caught.value) == (
        "the program holds 1 thing that cannot be translated\n"
        "    - the program writes 'row', which shares its memory with 'table'; a state dict holds "
        "them apart\n"
        "Make one a buffer, and take the view of it in forward."
    )


def test_a_buffer_of_another_shape_than_the_program_was_traced_for_is_told():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", ramp(2, 3))

        def forward(self, x):
            return self.table.t_() + x

    ir = torch_ir.extract_ir(Turned(), (torch.tensor(1.0),))
    run, x = IRExecutor(ir, Turned().state_dict()), torch.tensor(2.0)
    assert torch.equal(run(x), ramp(2, 3).T + 2)
    with pytest.raises(ExecutionError) as raised:
        run(x)
    assert str(raised.value) == (
        "the last call gave %b_table the shape [3, 2], and the program was traced for [2, 3]\n"
        "Call reset() to start again with first values, or extract the model again: with such a "
        "buffer it is another program."
    )
    run.reset()
    assert torch.equal(run(x), ramp(2, 3).T + 2)
