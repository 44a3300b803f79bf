"""Sizes that vary: every form in which torch.export takes them, and sizes that depend on data."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim, ShapesCollection

import torch_ir
from older_torch import since_2_13
from torch_ir.ir import SymbolRange
from whole_way import runs_as_eager

BATCH = Dim("batch", min=2, max=64)


class Unary(nn.Module):
    """A function of one argument, as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Binary(Unary):
    """A function of two arguments, as a module."""

    def forward(self, x, y):
        return self.function(x, y)


def ramp(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 7


# -- the forms of torch.export ----------------------------------------------------------------


@pytest.mark.parametrize(
    "dynamic_shapes",
    [
        ({0: BATCH},),
        ((BATCH, None),),
        {"x": {0: BATCH}},
        ({0: Dim.DYNAMIC},),
        [[Dim.AUTO, Dim.STATIC]],
    ],
    ids=["by axis", "by position", "by name", "dynamic", "auto and static"],
)
def test_one_size_varies(dynamic_shapes):
    def mixed(x):
        made = x.reshape(-1), x.new_zeros(x.shape[0] * 3 + 1)
        return made, x.shape[0] // 2, x.mean(0), x.cumsum(0)

    calls = [(ramp(size, 2),) for size in (4, 2, 3, 11)]
    ir = runs_as_eager(lambda: Unary(mixed).eval(), *calls, dynamic_shapes=dynamic_shapes)
    ((size, width),) = [meta.shape for meta in ir.graph_inputs]
    assert (size.is_symbol, width) == (True, 2)


def test_sizes_are_given_inside_structures():
    def dots(pairs):
        return {key: left @ right for key, (left, right) in pairs.items()}

    size = Dim("size")
    calls = [({"a": (ramp(n, 2), ramp(2, 3)), "b": [ramp(4, n), ramp(n, 4)]},) for n in (5, 2, 9)]
    ir = runs_as_eager(
        lambda: Unary(dots).eval(),
        *calls,
        dynamic_shapes=({"a": ({0: size}, None), "b": [{1: size}, {0: size}]},),
    )
    assert len(ir.symbols) == 1


def test_sizes_are_given_as_a_collection():
    x, y = ramp(3, 4), ramp(4, 5)
    shapes = ShapesCollection()
    shapes[x] = (Dim.DYNAMIC, Dim.STATIC)
    shapes[y] = {1: Dim.DYNAMIC}
    ir = torch_ir.extract_ir(Binary(torch.matmul).eval(), (x, y), dynamic_shapes=shapes)
    calls = [(x, y), (ramp(7, 4), ramp(4, 2))]
    runs_as_eager(lambda: Binary(torch.matmul).eval(), *calls, programs=[ir])
    assert len(ir.symbols) == 2


@pytest.mark.parametrize(
    ("function", "axes", "sizes"),
    [
        (lambda x, y: x + y[1:], ({0: BATCH}, {0: BATCH + 1}), [(n, n + 1) for n in (4, 2, 9)]),
        (lambda x, y: x + y[::2], ({0: BATCH}, {0: 2 * BATCH}), [(n, 2 * n) for n in (4, 2, 9)]),
        (
            lambda x, y: x + y[1::2][:-1],
            ({0: 2 * BATCH}, {0: 4 * BATCH + 2}),
            [(2 * n, 4 * n + 2) for n in (4, 2, 9)],
        ),
        (lambda x, y: x * y, ({0: BATCH}, {0: BATCH}), [(n, n) for n in (4, 2, 9)]),
        (torch.outer, ({0: Dim("a")}, {0: Dim("b")}), [(3, 4), (4, 3), (8, 2)]),
    ],
    ids=["one more", "twice", "derived alone", "shared", "two"],
)
def test_sizes_that_depend_on_one_another(function, axes, sizes):
    calls = [(ramp(left), ramp(right)) for left, right in sizes]
    runs_as_eager(lambda: Binary(function).eval(), *calls, dynamic_shapes=axes)


def test_every_axis_varies():
    def attend(x):
        batch, heads, length, width = x.shape
        scores = torch.softmax(x @ x.transpose(-1, -2) / width**0.5, -1)
        out = (scores @ x).transpose(1, 2).reshape(batch, length, heads * width)
        mask = torch.ones(length, length).tril().bool()
        return out, mask, batch * heads, length + 1 > width

    shapes = (dict.fromkeys(range(4), Dim.DYNAMIC),)
    calls = [(ramp(*shape),) for shape in ((2, 3, 5, 4), (3, 2, 7, 6))]
    ir = runs_as_eager(lambda: Unary(attend).eval(), *calls, dynamic_shapes=shapes)
    assert len(ir.symbols) == 4


def test_a_layer_keeps_the_range_that_it_needs():
    def make():
        return nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.AdaptiveAvgPool2d(1)).eval()

    axes = {"input": {0: BATCH, 2: Dim("height", min=8), 3: Dim("width", min=8, max=99)}}
    calls = [(ramp(*shape),) for shape in ((2, 2, 9, 12), (5, 2, 8, 8), (3, 2, 30, 17))]
    ir = runs_as_eager(make, *calls, dynamic_shapes=axes)
    assert sorted(ir.symbols.values(), key=str) == sorted(
        [SymbolRange(2, 64), SymbolRange(8, None), SymbolRange(8, 99)], key=str
    )


@pytest.mark.parametrize("size", [2, 7])
def test_a_size_that_torch_makes_a_number_is_refused(size):
    """Torch's second way of tracing makes it one without a word."""
    every_other = Unary(lambda x: x.flip(0)[::2]).eval()
    traced = {"dynamic_shapes": ({0: BATCH},)}
    if size > 2:
        assert torch_ir.extract_ir(every_other, (ramp(size, 2),), **traced).symbols
        return
    with pytest.raises(torch_ir.errors.ExportError, match="Constraints violated"):
        torch_ir.extract_ir(every_other, (ramp(size, 2),), **traced)


def test_numbers_among_the_arguments_vary():
    def window(x, start):
        return x * start, torch.full((start + 1,), 2.5), start * 2

    calls = [(ramp(9), start) for start in (3, 2, 8)]
    runs_as_eager(lambda: Binary(window).eval(), *calls, dynamic_shapes=(None, Dim.DYNAMIC))


# -- sizes and numbers that depend on data ----------------------------------------------------

DEPENDING = {
    "nonzero": lambda x: torch.nonzero(x > 1),
    "mask": lambda x: (x[x > 1] * 2, x.masked_select(x < 1).sum()),
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "arithmetic of such sizes": lambda x: torch.cat([x[x > 1], x[x <= 1].repeat(2)]),
    "repeat_interleave": lambda x: torch.arange(4).repeat_interleave(x[:4].long()),
    "a row for each": lambda x: torch.zeros(x[x > 1].shape[0], 3) + 1,
    "size as a result": lambda x: x[x > 1].shape[0],
    "item": lambda x: x.sum().item() * 2,
    "int item": lambda x: (x.long().sum().item() + 1) // 2,
    "bool item": lambda x: (x.sum() > 5).item(),
    "items in a list": lambda x: x[:3].tolist(),
    "boolean of a size": lambda x: x[x > 1].shape[0] > 2,
}


@pytest.mark.parametrize("name", DEPENDING)
def test_what_depends_on_data_is_read_as_the_program_runs(name):
    calls = [(ramp(20),), (-ramp(20),), (ramp(20).flip(0),), (ramp(20) + 2,)]
    if name in ("repeat_interleave",):
        calls = [(tensor.abs(),) for (tensor,) in calls]
    runs_as_eager(lambda: Unary(DEPENDING[name]).eval(), *calls)


@pytest.mark.parametrize("squeeze", [torch.squeeze, lambda x: x.squeeze((0, 1))])
def test_a_squeeze_leaves_sizes_from_data_and_says_where_eager_drops_one(squeeze):
    def places(x):
        return squeeze(torch.nonzero(x > 1)) * 2

    shown = [tensor.clone() for tensor in (ramp(20), -ramp(20))]
    ir = runs_as_eager(lambda: Unary(places).eval(), *[(x,) for x in shown])
    with pytest.raises(
        torch_ir.ExecutionError,
        match=r"squeeze leaves a dimension from data: u0 != 1\n.*\n.*at .*test_dynamic_shapes.py",
    ):
        torch_ir.execute_ir(ir, (torch.tensor([2.0] + 19 * [0.0]),), weights={})


def test_a_slice_to_a_number_that_data_gives():
    def head(x, n):
        count = n.item()
        torch._check(count >= 0)
        torch._check(count <= x.shape[0])
        return x[:count] * 2, x.narrow(0, 0, count), torch.full((count + 1,), 3.0)

    calls = [(ramp(6), torch.tensor(n)) for n in (2, 0, 6, 1)]
    ir = runs_as_eager(lambda: Binary(head).eval(), *calls)
    assert SymbolRange(0, 6) in ir.symbols.values()


def test_what_depends_on_data_and_a_size_that_varies_go_together():
    def chosen(x):
        kept = x[x.sum(1) > 3]
        return kept, kept.shape[0] + x.shape[0], torch.cat([kept, x])

    calls = [(ramp(size, 3),) for size in (5, 2, 12)]
    runs_as_eager(lambda: Unary(chosen).eval(), *calls, dynamic_shapes=({0: BATCH},))


def test_no_node_is_made_for_arithmetic_on_sizes():
    def sized(x):
        rows, columns = x.shape
        return x.new_full(((rows * columns + 3) // 2, max(rows, 1)), rows % 3)

    x = ramp(4, 5)
    ir = torch_ir.extract_ir(
        Unary(sized).eval(), (x,), dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    )
    assert [node.op_type for node in ir.nodes] == ["aten.new_full.default"]
    calls = [(ramp(*shape),) for shape in ((4, 5), (7, 2))]
    runs_as_eager(lambda: Unary(sized).eval(), *calls, programs=[ir])


COUNTED = {
    "nonzero": lambda x: torch.nonzero(torch.tensor([3])) + x[:1].long(),
    "no dimensions": lambda x: (torch.nonzero(torch.tensor(3)), x + 1),
    "where": lambda x: torch.where(torch.tensor([True]))[0] * x,
    "unique": lambda x: torch.unique(torch.tensor([4.0])) * x,
    "counts": lambda x: torch.unique(x, return_counts=True)[1] + x.long(),
}


BEFORE_2_13 = since_2_13("records counts as floats where it counts itself")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=BEFORE_2_13 if n in ("unique", "counts") else ()) for n in COUNTED],
)
def test_sizes_that_torch_counted_while_it_traced(name):
    class Counts(nn.Module):
        def forward(self, x):
            return COUNTED[name](x)

    x = torch.arange(4.0)
    ir = torch_ir.extract_ir(Counts(), (x,))
    assert torch_ir.parse(str(ir)) == ir
    programs = [ir, torch_ir.functionalize(ir)]
    programs += [] if name == "where" else [torch_ir.decompose(ir)]
    for done in programs:
        made, wanted = torch_ir.IRExecutor(done, {})(x), Counts()(x)
        for one, other in zip([*made], [*wanted], strict=True):
            assert torch.equal(one, other)
    assert torch_ir.validate(ir, {}, (x,)).verdict == "agree"


REPEATED = torch.tensor([2, 1, 0, 1])

PINNED = {
    "bincount": torch.bincount,
    "weighted bincount": lambda x: torch.bincount(x, x.float(), minlength=2),
    "nonzero": torch.nonzero,
    "argwhere": torch.argwhere,
    "where": lambda x: torch.where(x)[0],
    "unique": torch.unique,
    "counts": lambda x: torch.unique(x, return_counts=True)[1],
    "unique_consecutive": torch.unique_consecutive,
    "unique rows": lambda x: torch.unique(x[:, None], dim=0),
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "mask": lambda x: x[x > 0],
    "repeat_interleave": torch.repeat_interleave,
    "repeated": lambda x: torch.repeat_interleave(x + 1, x),
    "packed": lambda x: (
        nn.utils.rnn.pack_padded_sequence(torch.ones(3, 4, 2), x.sort(descending=True)[0] + 1).data
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=BEFORE_2_13 if n in ("unique", "counts") else ()) for n in PINNED],
)
def test_a_size_from_data_that_is_proved_stays_checked_on_the_way_through_torch(name):
    size = PINNED[name](REPEATED).shape[0]

    def proved(x):
        found = PINNED[name](x)
        torch._check(found.shape[0] == size)
        return found * 2

    wanted, program = proved(REPEATED), torch_ir.extract_ir(Unary(proved), (REPEATED,))
    for _ in range(3):
        assert torch.equal(torch_ir.compile(program)(REPEATED), wanted)
        with pytest.raises(torch_ir.TorchIRError):
            torch_ir.compile(program)(torch.tensor([0, 0, 0, 3]))
        program = torch_ir.extract_ir(torch_ir.to_exported_program(program))


def test_sequences_are_packed_into_as_many_rows_as_they_have_steps():
    def packed(x, lengths):
        made = nn.utils.rnn.pack_padded_sequence(x, lengths)
        return made.data.sin(), made.batch_sizes, made.data.shape[0] * 2

    calls = [(ramp(5, 3, 2), torch.tensor(sizes)) for sizes in ([4, 2, 1], [5, 5, 2])]
    runs_as_eager(lambda: Binary(packed).eval(), *calls)
    traced = torch_ir.make_traced(packed)
    for x, lengths in calls:
        for made, wanted in zip(traced(x, lengths), packed(x, lengths), strict=True):
            assert made == wanted if type(wanted) is int else torch.equal(made, wanted)
    assert traced.cache_info().misses == 1
