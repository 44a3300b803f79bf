"""Numbers read from tensors, and what is computed with them, are followed without nodes."""

import math

import pytest
import torch
from torch.export import Dim

from older_torch import since_2_13
from torch_ir import IRExecutor, extract_ir, parse
from torch_ir.errors import ExecutionError
from whole_way import Lambda, kept


class Chosen(torch.nn.Module):
    """A size that a condition on data chooses."""

    def forward(self, x):
        size = torch.sym_ite(x.sum().item() > 2, 3, 1)
        return torch.full((size,), 7.0), size


class Positions(torch.nn.Module):
    """Where the pieces of a tensor begin depends on data."""

    def forward(self, x, positions):
        return torch.tensor_split(x, positions)


def test_a_condition_chooses_between_integers():
    ir = extract_ir(Chosen().eval(), (torch.tensor([3, 1]),))
    assert str(ir.nodes[-1]).startswith("%full: f32[2*int(u0 > 2) + 1] = aten.full.default(")
    assert parse(str(ir)) == ir
    assert ir.check() == ()
    for data, size in (([3, 1], 3), ([0, 2], 1)):
        result, number = IRExecutor(ir)(torch.tensor(data))
        assert torch.equal(result, torch.full((size,), 7.0))
        assert number == size


def test_a_number_read_from_a_bool_is_a_bool():
    class Item(torch.nn.Module):
        def forward(self, x):
            return x.item()

    ir = extract_ir(Item().eval(), (torch.tensor(True),))
    assert IRExecutor(ir)(torch.tensor(True)) is True
    assert IRExecutor(ir)(torch.tensor(False)) is False


def test_storage_offsets_that_depend_on_data_are_read_as_the_program_runs():
    x = torch.arange(12.0).reshape(6, 2)
    ir = extract_ir(Positions().eval(), (x, torch.tensor([1, 4])))
    assert parse(str(ir)) == ir
    for positions in ([1, 4], [0, 6], [3, 3]):
        expected = torch.tensor_split(x, torch.tensor(positions))
        got = IRExecutor(ir)(x, torch.tensor(positions))
        assert all(map(torch.equal, expected, got))
        assert [t.shape for t in got] == [t.shape for t in expected]


class Cache(torch.nn.Module):
    """A cache that is written at a place from data, beside a call of vmap."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 6, 3))

    def forward(self, x, place):
        place = place.item()
        self.cache[:, place : place + 1] = x
        return self.cache + torch.func.vmap(torch.sum)(x)[:, None, None]


@since_2_13("refuses a slice between places from data")
def test_storage_offsets_from_data_keep_their_symbols_where_torch_traces_again():
    x = torch.arange(6.0).reshape(2, 1, 3)
    ir = kept(extract_ir(Cache(), (x, torch.tensor(1))))
    assert ir.check() == ()
    model, run = Cache(), IRExecutor(ir, Cache().state_dict())
    for place in (0, 4, 4, 5):
        given = (x + place, torch.tensor(place))
        assert torch.equal(run(*given), model(*given))
        assert torch.equal(run.buffers["cache"], model.cache)


def test_bits_of_sizes_are_combined():
    def bits(m, x):
        n = x.shape[0]
        return x * (n & 6) + (n | 9)

    rows = {"args": ({0: Dim("n", min=2)},)}
    ir = kept(extract_ir(Lambda(bits).eval(), (torch.ones(5, 4),), dynamic_shapes=rows))
    assert "bit_and(s0, 6)" in str(ir)
    for n in (5, 6, 15):
        x = torch.full((n, 4), 0.5)
        assert torch.equal(IRExecutor(ir, Lambda(bits).state_dict())(x), bits(None, x))


def test_floating_point_factors_of_sizes_are_kept():
    def steps(m, x):
        return torch.arange(0, x.shape[0] * 0.7, 0.3, device=x.device)

    rows = {"args": ({0: Dim("n", min=2)},)}
    ir = kept(extract_ir(Lambda(steps).eval(), (torch.ones(5, 4),), dynamic_shapes=rows))
    for n in (5, 6, 100):
        x = torch.ones(n, 4)
        assert torch.equal(IRExecutor(ir, Lambda(steps).state_dict())(x), steps(None, x))


def test_conditions_on_floating_point_sizes_are_kept():
    def smaller(m, x):
        return torch.nn.functional.interpolate(x.t()[None], scale_factor=0.7, mode="linear")

    rows = {"args": ({0: Dim.DYNAMIC},)}
    ir = kept(extract_ir(Lambda(smaller).eval(), (torch.ones(6, 4),), dynamic_shapes=rows))
    assert "int(0.7 * float(s0)) >= 2" in map(str, ir.guards)
    for n in (6, 17):
        x = torch.arange(n * 4.0).reshape(n, 4)
        assert torch.equal(IRExecutor(ir, Lambda(smaller).state_dict())(x), smaller(None, x))


def test_a_tensor_filled_with_a_number_from_data_has_its_kind():
    def filled(m, x):
        return torch.full((3,), x.item())

    for value, other in ((0.5, 2.5), (4, 7)):
        ir = kept(extract_ir(Lambda(filled).eval(), (torch.tensor(value),)))
        result = IRExecutor(ir, Lambda(filled).state_dict())(torch.tensor(other))
        assert torch.equal(result, torch.full((3,), other))
        assert result.dtype == (torch.float32 if isinstance(value, float) else torch.int64)


def known_number(m, x, v):
    torch._check(v.item() == 4)
    return x * 2


def number_that_is_a_size(m, x, v):
    torch._check(v.item() == x.shape[0])
    return x * 2


def count_that_is_a_size(m, x, v):
    rows = v.nonzero()
    torch._check(rows.shape[0] == x.shape[0])
    return x * rows


ROWS = {"args": ({0: Dim.DYNAMIC}, None)}


@pytest.mark.parametrize(
    ("function", "shapes", "good", "bad", "message"),
    [
        (known_number, None, 4, 5, "the value of u0 is 5, which is outside its range 4..4"),
        (number_that_is_a_size, ROWS, 6, 5, "Runtime assertion failed for expression u0 == s0"),
        (
            count_that_is_a_size,
            ROWS,
            [1, 1, 1, 1, 1, 1, 0],
            [1, 1, 1, 0, 0, 0, 0],
            "Runtime assertion failed for expression u0 == s0",
        ),
    ],
)
def test_what_torch_concludes_of_numbers_from_data_is_checked(
    function, shapes, good, bad, message
):
    """torch writes the size for the number, in its own assertion too."""
    x = torch.ones(6, 1)
    model = Lambda(function).eval()
    ir = kept(extract_ir(model, (x, torch.tensor(good)), dynamic_shapes=shapes))
    executor = IRExecutor(ir, model.state_dict())
    assert torch.equal(executor(x, torch.tensor(good)), function(None, x, torch.tensor(good)))
    with pytest.raises(ExecutionError) as caught:
        executor(x, torch.tensor(bad))
    assert message in str(caught.value)


def test_symbols_that_torch_names_anew_are_no_news():
    def chosen(_, x):
        count = x.argmax().item()
        torch._check(count >= 0)
        torch._check(count <= 100)
        return torch.ones(count) * 2, x.nonzero() + 1

    x, model = torch.tensor([0.0, 3.0, 2.0, 5.0]), Lambda(chosen)
    ir = extract_ir(torch.export.export(model, (x,)).run_decompositions())
    assert ir.check() == ()
    run = IRExecutor(ir, model.state_dict())
    for given in (x, x.flip(0)):
        for mine, theirs in zip(run(given), model(given), strict=True):
            assert torch.equal(mine, theirs)


SIZES_AS_NUMBERS = {
    "float": lambda x: x * float(x.shape[0]),
    "int": lambda x: x * int(x.shape[0] / 2),
    "bool": lambda x: x * bool(x.shape[0]),
    "round": lambda x: x * round(float(x.shape[0]) / 3, 1),
    "floor": lambda x: x * math.floor(x.shape[0] / 2),
    "ceil": lambda x: x * math.ceil(x.shape[0] / 2),
    "trunc": lambda x: x * math.trunc(x.shape[0] / 2),
    "sqrt": lambda x: x / math.sqrt(x.shape[0]),
    "power": lambda x: x * float(x.shape[0]) ** 2,
    "quotient": lambda x: x * (float(x.shape[0]) // 2),
    "of all": lambda x: x / float(x.numel()),
    "one of": lambda x: x * (x.shape[0] in (4, 8)),
    "of a tensor": lambda x: x * torch.tensor(float(x.shape[0])),
    "of a range": lambda x: x + torch.arange(float(x.shape[0])).sum(),
    "of a full one": lambda x: x + torch.full((2,), float(x.shape[0])).sum(),
    "of a bound": lambda x: x.clamp(max=float(x.shape[0])),
}


@pytest.mark.parametrize("name", SIZES_AS_NUMBERS)
def test_sizes_are_numbers_on_meta_as_on_the_cpu(name: str) -> None:
    function = SIZES_AS_NUMBERS[name]

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    given = [torch.ones(6, 6, device=device) for device in ("cpu", "meta")]
    shapes = ({0: torch.export.Dim("n", min=2, max=64)},)
    real, meta = (extract_ir(Model(), (x,), dynamic_shapes=shapes) for x in given)
    assert str(meta) == str(real)
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(IRExecutor(meta, {})(x), function(x))


def test_extraction_leaves_tensors_on_meta_as_they_were() -> None:
    """A fake tensor marks its storage, whose address nobody may ask for then."""
    model, x = torch.nn.Linear(4, 4, device="meta"), torch.ones(2, 4, device="meta")
    extract_ir(model, (x,))
    assert [tensor.data_ptr() for tensor in (x, *model.parameters())] == [0, 0, 0]
