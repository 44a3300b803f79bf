"""Memory plans: every value is whole whenever it is read, in an arena that is small."""

import itertools
import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counting import growth
from small_models import CASES
from torch_ir import PassError, TorchIRError, decompose, extract_ir, functionalize, parse
from torch_ir.ir import IR, OpNode, SymbolRange, SymExpr, TensorMeta
from torch_ir.passes.memory_plan import arrange, plan_memory
from torch_ir.passes.memory_plan.bounds import upper_bound
from torch_ir.passes.memory_plan.offsets import (
    Piece,
    arena_size,
    least_arena,
    most_at_once,
    overlapping,
    place,
)

SETTINGS = settings(derandomize=True, max_examples=200, deadline=None)


def simulate(plan):
    """Write every value's mark on its bytes when it is made, and look for it when it is read.

    What has no piece of its own (a view, a result in place of an operand) goes by the piece that
    lists it; a result in place of an operand takes all its bytes, so the operand may not be read
    afterwards.
    """
    ir = plan.ir
    pieces = {value: a for a in plan.allocations for value in a.values}
    owner = {value: value for value in pieces}
    arena = [None] * plan.size

    def bytes_of(value):
        piece = pieces[value]
        assert piece.offset % plan.alignment == 0
        assert piece.offset + piece.size <= plan.size
        return range(piece.offset, piece.offset + piece.size)

    def write(value):
        for index in bytes_of(value):
            arena[index] = value

    def read(value, reader):
        if value in pieces:
            marks = {arena[index] for index in bytes_of(value)}
            assert marks <= {owner[value]}, (value, reader, marks)

    for meta in ir.graph_inputs:
        if meta.name in pieces:
            write(meta.name)
    for node in ir.nodes:
        for meta in node.inputs:
            read(meta.name, node.name)
        schema = ir.schema_of(node.op_type)
        shows = schema is not None and any(result.alias for result in schema.returns)
        taken = {m.name for m in node.inputs}
        workspace = f"{node.name}/workspace"
        for value in [workspace] if workspace in pieces else []:
            write(value)
        for meta in node.outputs:
            if meta.name not in pieces:
                continue
            shared = [v for v in pieces[meta.name].values if v in taken] if shows else []
            if shared:
                owner[meta.name] = owner[shared[0]]
            else:
                write(meta.name)
        for value in [workspace] if workspace in pieces else []:
            read(value, node.name)
    for meta in ir.graph_outputs:
        read(meta.name, "the caller")
    for mutation in ir.mutations:
        read(mutation.value.name, "the caller")


@st.composite
def programs(draw):
    """Functional programs with views, copies, reductions and pointwise operators of two sizes."""
    values = [TensorMeta(name, (2, 3), "float32") for name in ("x", "y")]
    nodes = []
    for index in range(draw(st.integers(1, 16))):
        name = f"n{index}"
        first, second = (draw(st.sampled_from(values)) for _ in range(2))
        shape, attrs, inputs = first.shape, {}, [first]
        kind = draw(
            st.sampled_from(["add", "relu", "transpose", "view", "reshape", "cumsum", "cat", "eq"])
        )
        dtype = "float32"
        match kind:
            case "add" if first.shape == second.shape:
                op, inputs = "aten.add.Tensor", [first, second]
            case "transpose":
                op, shape = "aten.transpose.int", first.shape[::-1]
                attrs = {"dim0": 0, "dim1": len(shape) - 1}
            case "view" | "reshape":
                op, shape = f"aten.{kind}.default", (math.prod(first.shape),)
                attrs = {"size" if kind == "view" else "shape": list(shape)}
            case "cumsum":
                op, attrs = "aten.cumsum.default", {"dim": 0}
            case "cat" if first.shape == second.shape:
                op, inputs = "aten.cat.default", [first, second]
                shape = (2 * first.shape[0], *first.shape[1:])
            case "eq":
                op, attrs, dtype = "aten.eq.Scalar", {"other": 1.0}, "bool"
            case _:
                op = "aten.relu.default"
        nodes.append(OpNode(name, op, inputs, [TensorMeta(name, shape, dtype, name)], attrs))
        values.append(nodes[-1].outputs[0])
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3))
    return IR(nodes, values[:2], outputs, [])


@SETTINGS
@given(programs(), st.sampled_from([1, 4, 16, 64]), st.booleans(), st.booleans(), st.booleans())
def test_b13_what_is_read_is_what_was_written(ir, alignment, inputs, outputs, in_place):
    plan = plan_memory(ir, alignment=alignment, inputs=inputs, outputs=outputs, in_place=in_place)
    simulate(plan)
    assert max(plan.live) <= plan.lower_bound <= plan.size
    if alignment == 1:
        assert plan.lower_bound == max(plan.live)
    together = [Piece(a.name, a.size, a.birth, a.death) for a in plan.allocations]
    assert plan.size <= sum(-(-piece.size // alignment) * alignment for piece in together)


@pytest.mark.parametrize("name", sorted(CASES))
def test_models(name):
    case = CASES[name]
    args, kwargs = case.inputs()
    ir = functionalize(extract_ir(case.model(), args, kwargs=kwargs))
    simulate(plan_memory(ir, inputs=True))


PIECES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 8)), max_size=20
).map(lambda items: [Piece(f"p{i}", s, b, b + d) for i, (s, b, d) in enumerate(items)])


class TestOffsets:
    @SETTINGS
    @given(PIECES, st.sampled_from([1, 8, 64]))
    def test_no_byte_is_shared(self, pieces, alignment):
        offsets = place(pieces, alignment)
        assert not list(overlapping(pieces, offsets))
        for a, b in itertools.combinations(pieces, 2):
            meet = a.birth <= b.death and b.birth <= a.death and a.size and b.size
            ends = offsets[a.name] + a.size, offsets[b.name] + b.size
            if meet:
                assert ends[0] <= offsets[b.name] or ends[1] <= offsets[a.name]
        assert all(offset % alignment == 0 for offset in offsets.values())

    @SETTINGS
    @given(
        PIECES, st.dictionaries(st.sampled_from([f"p{i}" for i in range(20)]), st.integers(0, 30))
    )
    def test_the_checker_finds_what_overlaps(self, pieces, offsets):
        offsets = {piece.name: offsets.get(piece.name, 0) for piece in pieces}
        meets = any(
            a.birth <= b.death
            and b.birth <= a.death
            and max(offsets[a.name], offsets[b.name])
            < min(offsets[a.name] + a.size, offsets[b.name] + b.size)
            for a, b in itertools.combinations(pieces, 2)
        )
        assert bool(list(overlapping(pieces, offsets))) == meets

    @SETTINGS
    @given(PIECES, st.randoms(use_true_random=False))
    def test_b13_the_order_of_the_pieces_does_not_matter(self, pieces, source):
        shuffled = list(pieces)
        source.shuffle(shuffled)
        assert place(shuffled, 8) == place(pieces, 8)

    def test_the_smallest_gap_is_taken(self):
        pieces = [Piece("long", 64, 0, 9), Piece("a", 32, 0, 1), Piece("b", 30, 2, 3)]
        offsets = place(pieces, 1)
        assert arena_size(offsets, {piece.name: piece.size for piece in pieces}) == 96
        assert offsets["a"] == offsets["b"] == 64

    def test_the_first_gap_that_fits_would_need_more(self):
        rows = [(5, 2, 6), (5, 1, 2), (11, 4, 8), (13, 1, 5), (13, 4, 4), (14, 1, 1), (8, 1, 1)]
        pieces = [Piece(f"p{i}", *row) for i, row in enumerate(rows)]
        assert arena_size(place(pieces, 1), {piece.name: piece.size for piece in pieces}) == 43

    @pytest.mark.parametrize("seed", range(4))
    def test_many_at_once_lie_as_do_those_that_are_looked_at_one_by_one(self, seed):
        source = random.Random(seed)
        rows = [
            (source.randrange(0, 90), (b := source.randrange(200)), b + 60) for _ in range(200)
        ]
        pieces = [Piece(f"p{i}", *row) for i, row in enumerate(rows)]
        vast = [replace(piece, size=piece.size << 60) for piece in pieces]  # beyond 64 bits
        offsets = place(pieces, 8)
        assert {name: offset << 60 for name, offset in offsets.items()} == place(vast, 8 << 60)
        assert not list(overlapping(pieces, offsets))

    def test_forty_thousand_pieces(self):
        source = random.Random(0)
        pieces = [
            Piece(f"p{i}", source.randrange(1, 5000), i, i + source.randrange(1, 12))
            for i in range(40_000)
        ]
        assert not list(overlapping(pieces, place(pieces, 64)))
        assert growth(lambda count: place(pieces[:count], 64), 2_000) < 2.5


def sequential(depth):
    model = torch.nn.Sequential(
        *[m for _ in range(depth) for m in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    )
    return functionalize(extract_ir(model.eval(), (torch.ones(4, 16),)))


class TestPlan:
    def test_b13_four_layers_need_the_memory_of_two_results(self):
        plan = plan_memory(sequential(4))
        assert (plan.size, plan.lower_bound) == (512, 512)
        assert [a.values for a in plan.allocations] == [
            ("linear", "relu"),
            ("linear_1", "relu_1"),
            ("linear_2", "relu_2"),
            ("linear_3", "relu_3"),
        ]

    def test_without_results_in_place(self):
        plan = plan_memory(sequential(2), in_place=False)
        assert (plan.size, len(plan.allocations)) == (512, 4)

    def test_b13_inputs_and_outputs_are_a_choice(self):
        ir = sequential(1)
        assert [a.name for a in plan_memory(ir, inputs=True).allocations] == ["input", "linear"]
        assert plan_memory(ir, outputs=False).allocations == ()
        assert plan_memory(ir, outputs=False).size == 0

    def test_an_operand_that_is_still_needed_keeps_its_place(self):
        ir = parse("""ir {
          input %x: f32[4]
          %a: f32[4] = aten.cumsum.default(%x, dim=0)
          %b: f32[4] = aten.relu.default(%a)
          %c: f32[4] = aten.add.Tensor(%a, %b)
          return %c
        }""")
        assert [a.values for a in plan_memory(ir).allocations] == [("a", "c"), ("b",)]

    def test_a_view_that_is_not_in_order_keeps_its_place(self):
        ir = parse("""ir {
          input %x: f32[4, 4]
          %a: f32[4, 4] = aten.cumsum.default(%x, dim=0)
          %t: f32[4, 4] = aten.transpose.int(%a, dim0=0, dim1=1)
          %c: f32[4, 4] = aten.add.Tensor(%a, %t)
          %r: f32[16] = aten.reshape.default(%t, shape=[16])
          return %c, %r
        }""")
        assert [a.values for a in plan_memory(ir).allocations] == [("a", "t"), ("c",), ("r",)]
        last = ir.replace(nodes=ir.nodes[:3], graph_outputs=ir.graph_outputs[:1])
        assert [a.values for a in plan_memory(last).allocations] == [("a", "t"), ("c",)]

    def test_reshape_of_what_is_in_order_is_a_view(self):
        ir = parse("""ir {
          input %x: f32[4, 4]
          %a: f32[4, 4] = aten.cumsum.default(%x, dim=0)
          %r: f32[16] = aten.reshape.default(%a, shape=[16])
          %v: f32[16] = aten.relu.default(%r)
          return %v
        }""")
        assert [a.values for a in plan_memory(ir).allocations] == [("a", "r", "v")]

    def test_functions_have_a_workspace(self):
        ir = parse("""ir {
          func &body {
            input %v: f32[4]
            %a: f32[4] = aten.cumsum.default(%v, dim=0)
            %b: f32[4] = aten.cumsum.default(%a, dim=0)
            return %b
          }
          input %x: f32[4]
          %y: f32[4] = higher_order.invoke_subgraph(operands=[%x], identifier="b", subgraph=&body)
          return %y
        }""")
        plan = plan_memory(ir, alignment=16)
        assert {a.name: a.size for a in plan.allocations} == {"y": 16, "y/workspace": 32}
        assert plan.size == 48

    def test_b14_symbolic_sizes_count_with_their_upper_bounds(self):
        ir = parse("""ir {
          symbol s0: 2..10
          input %x: f32[s0, 4]
          %a: f32[s0, 4] = aten.cumsum.default(%x, dim=0)
          %b: f32[2*s0, 4] = aten.cat.default([%a, %a])
          return %b
        }""")
        plan = plan_memory(ir, alignment=1)
        assert (plan.size, plan.live) == (480, (160, 480))

    def test_b14_a_size_without_a_bound(self):
        ir = parse("""ir {
          symbol s0: 2..
          symbol s1: 2..4
          input %x: f32[s0, s1]
          %a: f32[s0, s1] = aten.cumsum.default(%x, dim=0)
          return %a
        }""")
        with pytest.raises(PassError) as error:
            plan_memory(ir)
        assert str(error.value) == (
            "%a: the size s0 has no upper bound: s0 has none\n"
            "Extract the model with a maximum for it: torch.export.Dim(NAME, max=...)."
        )

    def test_a_program_that_writes_is_refused(self):
        ir = parse("""ir {
          input %x: f32[4]
          %a: f32[4] = aten.relu.default(%x)
          %b: f32[4] = aten.add_.Tensor(%a, %x)
          return %b
        }""")
        with pytest.raises(PassError) as error:
            plan_memory(ir)
        assert str(error.value) == (
            "a memory plan needs a functional program, and 1 node of this one writes to memory\n"
            "    b: aten.add_.Tensor\n"
            "Make it functional first: torch_ir.functionalize(ir), or torch-ir lower --to aten."
        )

    def test_an_alignment_that_is_none(self):
        with pytest.raises(
            PassError, match=r"^the alignment of a memory plan is a positive integer, got 0$"
        ):
            plan_memory(sequential(1), alignment=0)

    def test_b13_written_buffers_are_outside_and_their_values_live_to_the_end(self):
        case = CASES["counting"]
        args, kwargs = case.inputs()
        ir = functionalize(extract_ir(case.model(), args, kwargs=kwargs))
        plan = plan_memory(ir)
        values = {value for a in plan.allocations for value in a.values}
        assert values.isdisjoint(ir.external_values())
        written = {m.value.name for m in ir.mutations}
        assert written
        ends = {a.death for a in plan.allocations if written & set(a.values)}
        assert ends == {len(ir.nodes)}

    def test_the_report(self):
        ir = sequential(2)
        plan = plan_memory(ir)
        first, second, _, title, *_, one, other = str(plan).splitlines()
        assert first == "Sequential: an arena of 512 bytes for 2 pieces, aligned to 64"
        assert second == "no arena is smaller than 512 bytes; this one is as small"
        assert title.startswith("most is needed during linear_1 (aten.linear.default) at ")
        assert [" ".join(row.split()) for row in (one, other)] == [
            "256 at 0 %linear, %relu",
            "256 at 256 %linear_1, %relu_1",
        ]
        assert plan.table().splitlines()[2].split() == (
            ["256", "relu", "(aten.relu.default):", "nothing", "new"]
        )
        assert plan.to_dict()["peak"]["allocations"] == ["linear", "linear_1"]
        assert plan.at(ir.nodes[0])[0].to_dict() == {
            "name": "linear",
            "node": "linear",
            "offset": 0,
            "size": 256,
            "birth": 0,
            "death": 2,
            "values": ["linear", "relu"],
        }

    def test_a_transformer_layer_is_planned_at_the_lower_bound(self):
        layer = torch.nn.TransformerEncoderLayer(32, 4, batch_first=True).eval()
        plan = plan_memory(decompose(extract_ir(layer, (torch.ones(2, 12, 32),))))
        assert plan.size == plan.lower_bound


class TestUpperBounds:
    RANGES = {"s0": SymbolRange(2, 8), "s1": SymbolRange(1, 5), "u": SymbolRange(0, None)}  # noqa: RUF012  # never changed

    @pytest.mark.parametrize(
        "text",
        ["s0", "2*s0 + 1", "s0*s1", "s0 - s1", "s0 // 3", "s0 % 3", "s0**2", "min(s0, s1)",
         "max(s0, 2*s1)", "(s0 + s1) // 2", "8 // s1", "10 - s0"],
    )  # fmt: skip
    def test_no_value_is_larger_and_one_is_as_large(self, text):
        expression = SymExpr(text)
        values = [
            expression.evaluate({"s0": a, "s1": b}) for a in range(2, 9) for b in range(1, 6)
        ]
        assert upper_bound(expression, self.RANGES) == max(values)

    @pytest.mark.parametrize("text", ["u", "u*s0", "u // 2", "u + s0", "max(u, s0)"])
    def test_without_a_bound(self, text):
        with pytest.raises(PassError, match=r"has no upper bound: u has none"):
            upper_bound(SymExpr(text), self.RANGES)

    def test_bounded_although_a_symbol_is_not(self):
        assert upper_bound(SymExpr("min(u, 7)"), self.RANGES) == 7
        assert upper_bound(SymExpr("u % 4"), self.RANGES) == 3
        assert upper_bound(3, {}) == 3

    @pytest.mark.parametrize(
        "text",
        [f"s0 + {10**400}*s1", "s0*s1", f"s0 - {10**400}*u", "(" * 20 + "s0" + " // 3)**64" * 20],
    )
    def test_a_bound_that_is_too_large_counts_as_none(self, text):
        ranges = {
            "s0": SymbolRange(10**6, 10**400), "s1": SymbolRange(0, None), "u": SymbolRange(-1, 2)
        }  # fmt: skip
        with pytest.raises(PassError, match="has no upper bound"):
            upper_bound(SymExpr(text), ranges)


def test_a_cycle_of_nodes_has_no_plan():
    x, a, b = (TensorMeta(name, (2,), "float32", name) for name in "xab")
    x = x.replace(producer_node=None)
    nodes = [
        OpNode("a", "aten.add.Tensor", [x, b], [a]),
        OpNode("b", "aten.relu.default", [a], [b]),
    ]
    with pytest.raises(PassError) as caught:
        plan_memory(IR(nodes, [x], [b], []))
    assert caught.value.message == (
        "a memory plan needs a program in order, and node 'a' uses %b, which no node before it "
        "makes"
    )


def perfect(seed, *, height, steps, cuts):
    """Pieces that fill an arena of a height without a gap: a rectangle, cut at random."""
    source = random.Random(seed)
    parts = [(0, steps, 0, height)]  # from, to, bottom, top
    while len(parts) < cuts:
        part = max(parts, key=lambda p: (p[1] - p[0]) * (p[3] - p[2]) * source.random())
        parts.remove(part)
        a, b, low, high = part
        if b - a > 1 and (source.random() < 0.5 or high - low < 2):
            at = source.randrange(a + 1, b)
            parts += [(a, at, low, high), (at, b, low, high)]
        else:
            at = source.randrange(low + 1, high)
            parts += [(a, b, low, at), (a, b, at, high)]
    return [Piece(f"p{i}", (h - w) * 64, a, b - 1) for i, (a, b, w, h) in enumerate(parts)]


class TestCapacity:
    @pytest.mark.parametrize("seed", range(3))
    def test_pieces_without_a_gap_fit_where_best_fit_needs_more(self, seed):
        pieces = perfect(seed, height=512, steps=40, cuts=60)
        sizes = {piece.name: piece.size for piece in pieces}
        assert arena_size(place(pieces, 64), sizes) > 512 * 64
        offsets = arrange(pieces, 64, 512 * 64)
        assert offsets is not None
        assert arena_size(offsets, sizes) == 512 * 64
        assert not list(overlapping(pieces, offsets))
        assert arrange(pieces, 64, 512 * 64) == offsets

    @SETTINGS
    @given(PIECES, st.sampled_from([1, 8]))
    def test_no_byte_is_shared_and_the_capacity_is_kept(self, pieces, alignment):
        sizes = {piece.name: piece.size for piece in pieces}
        free = arrange(pieces, alignment)
        assert not list(overlapping(pieces, free))
        for capacity in {most_at_once(pieces), arena_size(free, sizes)}:
            offsets = arrange(pieces, alignment, capacity, 200)
            if offsets is not None:
                assert not list(overlapping(pieces, offsets))
                assert arena_size(offsets, sizes) <= capacity
                assert all(offset % alignment == 0 for offset in offsets.values())

    @SETTINGS
    @given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.sampled_from([1, 8, 64]))
    def test_no_arena_is_smaller_than_the_bound_and_one_moment_reaches_it(self, given, alignment):
        pieces = [Piece(f"p{i}", size, 0, 1) for i, size in enumerate(given)]
        orders = [[*pieces[:i], *pieces[i + 1 :], piece] for i, piece in enumerate(pieces)]
        arenas = []
        for order in orders:
            end = 0
            for piece in order:
                end = -(-end // alignment) * alignment + piece.size
            arenas.append(end)
        later = Piece("later", max(given), 2, 3)
        assert least_arena([*pieces, later], alignment) == min(arenas)

    @pytest.mark.parametrize(("unit", "first"), [(2**62, -9), (2**70, 2**61), (1, 2**70)])
    def test_units_and_the_first_step_make_no_difference(self, unit, first):
        pieces = perfect(0, height=512, steps=40, cuts=60)
        moved = [Piece(p.name, p.size * unit, p.birth + first, p.death + first) for p in pieces]
        expected = arrange(pieces, 64, 512 * 64)
        assert expected is not None
        offsets = arrange(moved, 64 * unit, 512 * 64 * unit)
        assert offsets == {name: offset * unit for name, offset in expected.items()}

    def test_sizes_and_times_that_the_search_cannot_count(self):
        sizes = [2**62 + 1, 3 * 2**61 + 7, 2**61 + 5, 2**70]
        pieces = [Piece(f"p{i}", size, i % 2, 2 - i % 2) for i, size in enumerate(sizes)]
        assert not list(overlapping(pieces, arrange(pieces)))
        assert arrange(pieces, capacity=sum(sizes) - 1) is None
        assert arrange(pieces, capacity=2**80) is not None
        long = [Piece(p.name, p.size, p.birth << 62, p.death << 62)
                for p in perfect(0, height=512, steps=40, cuts=60)]  # fmt: skip
        assert arrange(long, 64, 512 * 64) is None

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Piece("a", -1, 0, 1), "the piece 'a' has -1 bytes"),
            (lambda: Piece("a", 1, 5, 2), "from step 5 to 2"),
            (lambda: arrange([Piece("a", 1, 0, 1)], 0), "a positive integer, got 0"),
            (lambda: arrange([Piece("a", 1, 0, 1), Piece("a", 1, 3, 4)]), "the name 'a'"),
            (lambda: arrange([Piece("a", 1, 0, 1)], capacity="2"), "capacity"),
        ],
    )
    def test_what_is_no_arena(self, make, message):
        with pytest.raises(TorchIRError, match=message):
            make()

    @SETTINGS
    @given(programs(), st.integers(0, 200))
    def test_banks(self, ir, capacity):
        plan = plan_memory(ir, alignment=4, capacity={"near": capacity, "far": 1 << 20})
        assert plan.banks["near"] <= capacity
        assert plan.size == sum(plan.banks.values())
        for bank in ("near", "far"):
            inside = [a for a in plan.allocations if a.bank == bank]
            pieces = [Piece(a.name, a.size, a.birth, a.death) for a in inside]
            assert not list(overlapping(pieces, {a.name: a.offset for a in inside}))

    def test_what_does_not_fit(self):
        with pytest.raises(PassError) as error:
            plan_memory(sequential(2), in_place=False, capacity=500)
        assert str(error.value) == (
            "the values do not fit in 500 bytes: 512 are needed at one time\n"
            "Give more, let nodes be reordered (reorder=True), or let results take the place of "
            "operands (in_place=True)."
        )


class TestReorder:
    @SETTINGS
    @given(programs())
    def test_the_peak_is_not_higher_and_the_program_the_same(self, ir):
        plan, first = plan_memory(ir, reorder=True), plan_memory(ir)
        simulate(plan)
        assert plan.lower_bound <= first.lower_bound
        assert sorted(n.name for n in plan.ir.nodes) == sorted(n.name for n in ir.nodes)
        assert plan.ir.check() == ()

    def test_each_branch_is_finished_before_the_next(self):
        lines = [
            f"%a{i}: f32[64, 4] = aten.expand_copy.default(%x, size=[64, 4])" for i in range(5)
        ]
        lines += [f"%s{i}: f32[4] = aten.sum.dim_IntList(%a{i}, dim=[0])" for i in range(5)]
        ir = parse("ir {\n input %x: f32[4]\n" + "\n".join(lines) + "\nreturn %s0, %s4\n}")
        assert plan_memory(ir).lower_bound == 5 * 1024 + 16
        assert plan_memory(ir, reorder=True).lower_bound == 1024 + 64 + 16

    def test_random_numbers_are_drawn_in_their_order(self):
        ir = parse("""ir {
          input %x: f32[64]
          %a: f32[64] = aten.bernoulli.default(%x)
          %b: f32[64] = aten.bernoulli.default(%x)
          %c: f32[] = aten.sum.default(%b)
          %d: f32[] = aten.sum.default(%a)
          return %c, %d
        }""")
        assert [n.name for n in plan_memory(ir, reorder=True).ir.nodes] == ["a", "d", "b", "c"]
