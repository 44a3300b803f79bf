"""Programs that write through an operator, and read again, do what eager does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import torch_ir
from torch_ir.errors import InputError, PassError
from torch_ir.passes import functionalize

OPERATORS = {
    "atleast_1d": torch.atleast_1d,
    "atleast_3d": torch.atleast_3d,
    "broadcast_tensors": lambda v: torch.broadcast_tensors(v)[0],
    "clone": torch.clone,
    "conj_physical": torch.conj_physical,
    "contiguous": lambda v: v.contiguous(),
    "contiguous_of_a_turn": lambda v: v.t().contiguous(),
    "dropout": lambda v: functional.dropout(v, 0.5, False),
    "einsum": lambda v: torch.einsum("ij->ji", v),
    "feature_dropout": lambda v: functional.dropout1d(v, 0.5, False),
    "flatten": torch.flatten,
    "flatten_of_a_turn": lambda v: v.t().flatten(),
    "meshgrid": lambda v: torch.meshgrid(v[0], indexing="ij")[0],
    "sum_to_size": lambda v: v.sum_to_size(2, 3),
    "sum_to_one_row": lambda v: v.sum_to_size(1, 3),
    "to": lambda v: v.to(torch.float32),
    "to_copy": lambda v: v.to(torch.float32, copy=True),
    "to_another": lambda v: v.to(torch.float64),
    "type_as": lambda v: v.type_as(v),
    "unsafe_chunk": lambda v: torch.unsafe_chunk(v, 2)[0],
    "unsafe_split": lambda v: torch.unsafe_split(v, 1)[1],
    "unsafe_view": lambda v: torch.ops.aten._unsafe_view(v, [3, 2]),
    "view": lambda v: v.view(6),
}


BY_LAYOUT = {"contiguous_of_a_turn", "flatten_of_a_turn", "sum_to_one_row"}
"""They copy here, which only a call tells: the buffer is declared as written, to be safe."""

NOT_FOLLOWED = {"einsum"}
"""A view that no functional program can write through."""


class Program(nn.Module):
    """Writes through an operator of what it keeps, is given, makes or holds constant."""

    def __init__(self, operator, place):
        super().__init__()
        self.operator, self.place = operator, place
        self.register_buffer("b", torch.arange(6.0).reshape(2, 3))
        self.c = torch.arange(6.0).reshape(2, 3)

    def forward(self, x):
        places = {"buffer": self.b, "input": x, "intermediate": x * 2, "constant": self.c}
        value = places[self.place]
        result = self.operator(value)
        result.add_(1)
        return value + x, result * 2


def written(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("place", ["buffer", "input", "intermediate", "constant"])
@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_written_through_an_operator_is_what_eager_writes(name, place):
    model = Program(OPERATORS[name], place).eval()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    traced = copy.deepcopy(model)
    ir = torch_ir.extract_ir(traced, (torch.ones(2, 3),))
    assert ir.check() == ()
    programs = [ir]
    if name in NOT_FOLLOWED:
        with pytest.raises(PassError, match="it writes through node"):
            torch_ir.functionalize(ir)
    else:
        programs.append(torch_ir.functionalize(ir))

    given = [torch.full((2, 3), 2.0), torch.full((2, 3), 5.0)]
    eager = copy.deepcopy(model)
    eager.c = traced.c.clone()  # what torch.export keeps of a constant that is written
    arguments = [x.clone() for x in given]
    expected = [eager(x) for x in arguments]
    kept = written(model.state_dict(), eager.state_dict())
    targets = {ir.weight_name_mapping.get(m.target, m.target) for m in ir.mutations}
    if place == "buffer":
        assert targets == ({"b"} if name in BY_LAYOUT else kept)
    if place == "intermediate":
        assert targets == set()
    for program in programs:
        run = torch_ir.compile(program, weights)
        for _ in range(2):
            for x, wanted, after in zip(given, expected, arguments, strict=True):
                x = x.clone()
                results = run(x)
                assert all(map(torch.equal, results, wanted))
                assert torch.equal(x, after)
            assert all(torch.equal(run.buffers[key], eager.state_dict()[key]) for key in kept)
            run.reset()
        assert not written(weights, model.state_dict())


@pytest.mark.parametrize("place", ["buffer", "input", "intermediate", "constant"])
@pytest.mark.parametrize("name", OPERATORS)
def test_validation_agrees_and_leaves_what_it_is_given(name, place):
    model, x = Program(OPERATORS[name], place).eval(), torch.full((2, 3), 2.0)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    ir = torch_ir.extract_ir(copy.deepcopy(model), (torch.ones(2, 3),))
    report = torch_ir.validate(ir, weights, (x,))
    assert not report.divergences, str(report)
    kept = [tensor.clone() for tensor in (*weights.values(), model.c)]
    torch_ir.verify(ir, model, (x,), weights=weights)
    assert all(map(torch.equal, (*weights.values(), model.c), kept))
    assert torch.equal(x, torch.full((2, 3), 2.0))
    assert not written(weights, model.state_dict())


class WritesFirst(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2 + x


_PAIRS = {
    "one tensor": lambda t: (t[:6], t[:6]),
    "overlapping": lambda t: (t[:6], t[2:8]),
    "reversed order": lambda t: (t[2:8], t[:6]),
    "other strides": lambda t: (t[:6], t[::2][:6]),
    "neighbors": lambda t: (t[:6], t[6:]),
    "interleaved": lambda t: (t[::2], t[1::2]),
    "columns": lambda t: (t.view(2, 6)[:, :3], t.view(2, 6)[:, 3:]),
}
"""Views of one tensor of 12 elements that a call may give."""


@pytest.mark.parametrize("pair", _PAIRS)
@pytest.mark.parametrize("backend", ["aten", "reference", "inductor"])
@pytest.mark.parametrize("is_functional", [False, True])
def test_a_call_whose_arguments_overlap_is_as_in_eager_or_refused(
    pair: str, backend: str, is_functional: bool
):
    take = _PAIRS[pair]
    model, shape = WritesFirst(), take(torch.zeros(12))[0].shape
    ir = torch_ir.extract_ir(model, (torch.zeros(shape), torch.zeros(shape)))
    run = torch_ir.compile(functionalize(ir) if is_functional else ir, {}, backend=backend)
    memory, own = torch.arange(12.0), torch.arange(12.0)
    expected = model(*take(memory))
    is_apart = pair in ("neighbors", "interleaved", "columns")
    if is_apart or (backend == "aten" and not is_functional):
        assert torch.equal(run(*take(own)), expected)
        assert torch.equal(own, memory)
    else:
        with pytest.raises(InputError, match="share memory, and the program writes %x"):
            run(*take(own))
        assert torch.equal(own, torch.arange(12.0))


def test_inputs_that_overlap_stay_so_where_they_are_copied():
    model, t = WritesFirst(), torch.arange(4.0)
    ir = torch_ir.extract_ir(model, (t.clone(), t.clone()))
    assert torch_ir.verify(ir, model, (t, t)).is_valid
    assert torch_ir.validate(ir, {}, (t, t)).is_valid
    for judge in (
        lambda: torch_ir.verify(functionalize(ir), model, (t, t)),
        lambda: torch_ir.validate(functionalize(ir), {}, (t, t)),
        lambda: torch_ir.compare(ir, {}, (t, t)),
    ):
        with pytest.raises(InputError) as caught:
            judge()
        assert str(caught.value) == (
            "inputs %x and %y share memory, and the program writes %x\n"
            "Give it %y.clone(), or run the program as it was extracted, on the backend 'aten'."
        )
    assert torch.equal(t, torch.arange(4.0))
