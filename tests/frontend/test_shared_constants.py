"""Constants of a model that share memory or lie in another order: stored once, run as in eager."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir, parse
from torch_ir.errors import ConversionError, InvalidIRError
from torch_ir.executor import IRExecutor, execute_ir
from torch_ir.frontend import convert_exported_program
from torch_ir.frontend.lifted_constants import stored_constants, with_constants
from torch_ir.ir import IR, Mutation, OpNode, TensorMeta
from torch_ir.passes import decompose, fold_constants, functionalize
from torch_ir.serde import dumps, load, loads, save
from torch_ir.torch_api import bytes_of


class Shared(nn.Module):
    """Constants of every kind of view, in one dtype."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        table = torch.randn(60, 60, generator=torch.Generator().manual_seed(0)).to(dtype)
        self.table = table
        self.row = table[3]
        self.transposed = table.t()
        self.windows = table.reshape(-1).as_strided((50, 60), (10, 1), 5)
        image = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
        self.image = image.contiguous(memory_format=torch.channels_last)
        self.mask = torch.zeros(1, dtype=torch.bool).expand(10**6)
        self.flags = torch.tensor([[True, False], [False, True], [True, True]]).t()

    def forward(self, x):
        return {
            "table": x @ self.table,
            "row": x + self.row,
            "transposed": x @ self.transposed,
            "windows": x @ self.windows.t(),
            "convolved": nn.functional.conv2d(self.image, self.image[:, :, :3, :3] * 2),
            "image": self.image,
            "mask": self.mask[:60] | (x > 0),
            "flags": self.flags.logical_not(),
            "all": self.mask,
        }


def assert_same_bits(found, wanted):
    """As eager: the same bits and the same strides."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].stride() == tensor.stride(), name
        assert torch.equal(bytes_of(found[name]), bytes_of(tensor)), name


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def model(request):
    return Shared(request.param)


@pytest.fixture(scope="module")
def example(model):
    return torch.randn(4, 60, generator=torch.Generator().manual_seed(2)).to(model.table.dtype)


@pytest.fixture(scope="module")
def ir(model, example):
    return extract_ir(model, (example,))


def test_what_shares_memory_is_stored_once(ir):
    assert ir.check() == ()
    views = {key: c.view for key, c in ir.constants.items() if c.view is not None}
    assert {key: (v.base, v.strides, v.offset) for key, v in views.items()} == {
        "row": ("table", (1,), 180),
        "transposed": ("table", (1, 60), 0),
        "windows": ("table", (10, 1), 5),
        "image": ("image.storage", (75, 1, 15, 3), 0),
        "mask": ("mask.storage", (0,), 0),
        "flags": ("flags.storage", (1, 2), 0),
    }
    stored = {key: c.shape for key, c in ir.constants.items() if c.view is None}
    assert stored == {
        "table": (60, 60),
        "image.storage": (150,),
        "mask.storage": (1,),
        "flags.storage": (6,),
    }


def test_every_way_of_storing_runs_with_the_bits_and_strides_of_eager(
    tmp_path, model, example, ir
):
    wanted = model(example)
    assert_same_bits(IRExecutor(ir)(example), wanted)
    assert_same_bits(IRExecutor(parse(str(ir), constants=ir.constants))(example), wanted)
    assert_same_bits(IRExecutor(loads(dumps(ir)))(example), wanted)
    save(ir, tmp_path / "net.tir")
    assert load(tmp_path / "net.tir") == ir
    assert_same_bits(IRExecutor(load(tmp_path / "net.tir"))(example), wanted)
    values = 3600 * model.table.element_size() + 150 * model.table.element_size()
    assert (tmp_path / "net.tir").stat().st_size < values + 24_000  # the document is most of it


def test_an_expanded_constant_takes_no_room(tmp_path):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = torch.zeros(1).expand(10**6)

        def forward(self, x):
            return self.mask + x

    ir = extract_ir(Masked(), (torch.ones(1),))
    save(ir, tmp_path / "net.tir")
    assert (tmp_path / "net.tir").stat().st_size < 10_000
    assert torch.equal(IRExecutor(load(tmp_path / "net.tir"))(torch.ones(1)), torch.ones(10**6))


def test_tensors_of_the_executor_share_memory(model, ir):
    held = IRExecutor(ir).graph.payload
    table = held["c_table"]
    assert held["c_row"].data_ptr() == table[3].data_ptr()
    assert held["c_transposed"].data_ptr() == held["c_table"].data_ptr()
    assert held["c_mask"].untyped_storage().nbytes() == 1


def test_tensors_may_be_given_in_place_of_constants(model, example, ir):
    zeros = torch.zeros_like(model.row)
    found = IRExecutor(ir, constants={"row": zeros})(example)
    assert torch.equal(found["row"], example)
    assert torch.equal(found["table"], model(example)["table"])
    table = torch.ones(60, 60, dtype=model.table.dtype)
    found = IRExecutor(ir, constants={"table": table})(example)
    assert torch.equal(found["row"], example + 1)  # a view shows what its base holds
    meant = torch_ir.compile(ir, {"table": table}, backend="reference")(example)
    assert torch.equal(meant["row"], found["row"])
    assert torch_ir.validate(ir, {}, (example,), constants={"table": table}).is_valid


def test_passes_keep_what_views_need(example, model, ir):
    for change in (functionalize, decompose, fold_constants):
        changed = change(ir)
        assert changed.check() == ()
        assert_same_bits_as_values(IRExecutor(changed)(example), model(example))


def assert_same_bits_as_values(found, wanted):
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor)


def test_a_program_of_torch_has_the_views_alone(model, example, ir):
    exported = torch_ir.to_exported_program(ir)
    assert sorted(exported.constants) == [
        *("flags", "image", "mask", "row", "table", "transposed", "windows")
    ]
    row, table = exported.constants["row"], exported.constants["table"]
    assert row.data_ptr() == table[3].data_ptr()
    assert_same_bits(exported.module()(example), model(example))
    again = convert_exported_program(exported)
    assert again.constants == ir.constants
    assert_same_bits(IRExecutor(again)(example), model(example))


def test_a_view_that_is_folded_takes_its_base_along():
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.columns = torch.arange(6.0).reshape(3, 2).t()

        def forward(self, x):
            return x + self.columns.sum(dim=0)

    ir = extract_ir(Folded(), (torch.ones(3),))
    assert sorted(ir.constants) == ["columns", "columns.storage"]
    folded = fold_constants(ir)
    assert len(folded.nodes) == 1
    assert [constant.tolist() for constant in folded.constants.values()] == [[1.0, 5.0, 9.0]]


def test_a_reshape_of_a_transposed_constant_is_lowered_as_torch_does():
    class Reshaped(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.arange(12.0).reshape(3, 4).t()

        def forward(self, x):
            return self.table.reshape(-1) + x, self.table.contiguous() * x[0]

    x = torch.ones(12)
    ir = extract_ir(Reshaped(), (x,))
    core = decompose(ir)
    for found, wanted in zip(IRExecutor(core)(x), Reshaped()(x), strict=True):
        assert torch.equal(found, wanted)


# -- what is stored -------------------------------------------------------------------------------


def test_a_contiguous_tensor_by_itself_stays_as_it_is():
    whole = torch.arange(12)
    found = stored_constants({"a": whole[:4].reshape(2, 2), "b": whole[4:8], "c": whole[10]})
    assert {key: c.view for key, c in found.items()} == {"a": None, "b": None, "c": None}
    assert found["a"].tolist() == [[0, 1], [2, 3]]


def test_overlapping_windows_are_views_of_what_they_occupy():
    whole = torch.arange(100)
    found = stored_constants({"a": whole[10:16], "b": whole[14:20], "c": whole[40:43]})
    assert list(found) == ["a", "b", "c", "a.storage"]
    assert found["a.storage"].tolist() == list(range(10, 20))
    assert (found["a"].view.offset, found["b"].view.offset) == (0, 4)
    assert found["c"].view is None


def test_the_key_of_a_base_is_a_fresh_one():
    whole = torch.arange(10)
    tensors = {"a": whole[:6], "b": whole[4:], "a.storage": torch.ones(1)}
    found = stored_constants(tensors, taken=["a.storage_1"])
    assert found["a"].view.base == found["b"].view.base == "a.storage_2"
    assert found["a.storage"].tolist() == [1.0]


@pytest.mark.parametrize(
    "tensors",
    [
        {"column": torch.ones(100, 100)[:, 3]},
        {"first": torch.arange(10**4).as_strided((2,), (9000,)), "row": torch.arange(3)},
        {"complex": torch.ones(3, dtype=torch.complex64).conj()},
        {"empty": torch.ones(0, 3).t()},
    ],
    ids=lambda tensors: next(iter(tensors)),
)
def test_no_more_is_stored_than_the_values_are(tensors):
    found = stored_constants(tensors)
    assert list(found) == list(tensors)
    for key, tensor in tensors.items():
        assert found[key].view is None
        assert found[key].tolist() == tensor.tolist()


def test_one_tensor_under_two_keys_is_stored_once():
    table = torch.arange(6.0).reshape(2, 3)
    found = stored_constants({"a": table, "b": table, "c": table.t()})
    assert (found["b"].view.base, found["c"].view.base) == ("a", "a")
    assert list(found) == ["a", "b", "c"]


def test_tensors_of_two_dtypes_in_one_memory_are_stored_apart():
    table = torch.arange(4.0)
    found = stored_constants({"a": table, "bits": table.view(torch.int32)})
    assert (found["a"].view, found["bits"].view) == (None, None)
    with pytest.raises(InvalidIRError) as caught:
        stored_constants({"a": table, "bits": table.view(torch.int32)}, written=["a"])
    assert str(caught.value) == (
        "the program writes 'a', which shares its memory with 'bits' of another dtype "
        "(torch.float32 and torch.int32)"
    )


# -- what is written ------------------------------------------------------------------------------


class Written(nn.Module):
    """Two buffers that overlap, of which the program writes one or both."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        memory = torch.arange(12.0)
        first = memory.view(3, 4) if kind != "windows" else memory[:8]
        second = memory.view(3, 4)[1] if kind != "windows" else memory[4:].view(2, 4).t()
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)

    def forward(self, x):
        before = self.first * 1
        self.second.add_(1)
        if self.kind == "both":
            self.first.mul_(2)
        return before, x + self.first, x + self.second


@pytest.mark.parametrize("kind", ["one", "both", "windows"])
def test_buffers_that_overlap_are_written_as_in_eager(kind):
    model, x = Written(kind), torch.ones(())
    exported = torch.export.export(Written(kind), (x,))
    ir = convert_exported_program(exported)
    assert ir.check() == ()
    (base,) = ir.constants
    assert base == ("first.storage" if kind == "windows" else "first")
    assert [mutation.target for mutation in ir.mutations] == [
        "first.storage" if kind == "windows" else "b_first"
    ]
    executor, module = IRExecutor(ir), exported.module()
    functional = IRExecutor(functionalize(ir))
    first = executor(x)
    for wanted, of_torch, found, also in zip(
        *[[run(x) for _ in range(3)] for run in (model, module, functional)],
        [first, executor(x), executor(x)],
        strict=True,
    ):
        for tensors in zip(wanted, of_torch, found, also, strict=True):
            assert all(torch.equal(tensor, tensors[0]) for tensor in tensors)
    executor.reset()
    assert all(map(torch.equal, executor(x), first))


def test_torch_itself_does_not_decompose_buffers_that_overlap():
    exported = torch.export.export(Written("one"), (torch.ones(()),))
    with pytest.raises(AssertionError, match="expected compiled_fn to be GraphModule"):
        exported.run_decompositions({})


def test_a_view_that_a_functional_program_writes_is_refused():
    meta = TensorMeta("a", (6,), "float32")
    made = TensorMeta("y", (4,), "float32", "y")
    view = TensorMeta("b", (4,), "float32")
    node = OpNode("y", "aten.relu.default", [view], [made])
    ir = IR([node], [], [made], [meta, view], mutations=[Mutation("b", made)])
    memory = torch.arange(6.0)
    with pytest.raises(InvalidIRError) as caught:
        with_constants(ir, {"a": memory, "b": memory[2:]}, ())
    assert str(caught.value) == (
        "what the program leaves in 'b' is part of the memory of another constant"
    )


def test_a_written_buffer_that_overlaps_one_of_another_dtype_is_refused():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            memory = torch.zeros(4)
            self.register_buffer("numbers", memory, persistent=False)
            self.register_buffer("bits", memory.view(torch.int32), persistent=False)

        def forward(self, x):
            self.numbers.add_(1)
            return x + self.numbers, x + self.bits

    with pytest.raises(ConversionError) as caught:
        extract_ir(Mixed(), (torch.ones(4),))
    assert str(caught.value) == (
        "the program holds 1 thing that cannot be translated\n"
        "    - the program writes 'numbers', which shares its memory with 'bits' of another dtype "
        "(torch.float32 and torch.int32)"
    )


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda b, x: b.double(), "f64[4]"),
        (lambda b, x: b.to(torch.int64) + 1, "i64[4]"),
        (lambda b, x: x.sum(), "f32[]"),
        (lambda b, x: b[:1] + 1, "f32[1]"),
        (lambda b, x: torch.cat([b, b]), "f32[8]"),
    ],
)
def test_a_buffer_that_is_set_to_another_type_is_refused(change, found):
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.ones(4))

        def forward(self, x):
            self.state = change(self.state, x)
            return x + self.state.sum()

    with pytest.raises(ConversionError) as caught:
        extract_ir(Changing(), (torch.ones(4),))
    assert (
        f"the model sets %b_state: f32[4] to a tensor {found}, and a program keeps the shape and "
        "dtype of what it writes"
    ) in str(caught.value)
    assert caught.value.remedy == (
        "Give the buffer the type that it ends with, or write into it with copy_()."
    )


def test_a_buffer_that_is_written_keeps_its_key():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(2, 3).t(), persistent=False)

        def forward(self, x):
            self.state.add_(x)
            return self.state * 1

    ir = extract_ir(Transposed(), (torch.ones(()),))
    executor = IRExecutor(ir)
    executor(torch.ones(())), executor(torch.ones(()))
    assert torch.equal(executor.buffers["state"], torch.full((3, 2), 2.0))
    assert torch.equal(execute_ir(ir, (torch.ones(()),), {})[0], torch.ones(3, 2))
