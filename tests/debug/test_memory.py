"""Values are where they were made, views show what they must, and state is left as it is meant."""

import weakref

import pytest
import torch
from torch import nn

from torch_ir import DelegateBackend, compile_graph, extract_ir, parse, validate
from torch_ir.backends import SUPPORTED
from torch_ir.debug.judging import expecting
from torch_ir.debug.reference.eager_call import call_plainly
from torch_ir.torch_memory import copied

READERS = ["denotation", "eager"]


def kinds(right, wrong, inputs, weights=None, against=READERS):
    """The kinds of memory faults that are found where one program is compiled for another."""
    graph = compile_graph(parse(wrong), weights or {})
    graph.ir = ir = parse(right)
    report = validate(ir, weights or {}, inputs, graph=graph, against=against)
    return [(d.value, d.memory) for d in report.divergences if d.memory]


def agrees(text, inputs, weights=None):
    return validate(parse(text), weights or {}, inputs).is_valid


@pytest.mark.parametrize("reader", READERS)
class TestRepros:
    def test_an_operand_from_another_storage(self, reader):
        text = """ir "P" {{
          input %x: f32[3]
          %a: f32[3] = aten.sin.default(%x)
          %b: f32[3] = aten.cos.default(%x)
          %c: f32[3] = aten.add_.Tensor(%b, %x)
          %d: f32[3] = aten.mul.Tensor(%{}, 2.0)
          return %d, %a, %c
        }}"""
        right, inputs = text.format("a"), (torch.ones(3),)
        assert agrees(right, inputs)
        assert kinds(right, text.format("c"), inputs, against=[reader]) == [("a", "place")]

    @pytest.mark.parametrize("call", ["select.int(@b, 0, 1)", "select.int(@b, 1, 0)"])
    def test_a_view_of_other_memory(self, reader, call):
        text = """ir "P" {{
          weight @b: f32[3, 3]
          input %x: f32[3]
          %v: f32[3] = aten.{}
          %w: f32[3] = aten.copy_.default(%v, %x)
          mutate @b = @b
          return %x
        }}"""
        right, weights = text.format("select.int(@b, 0, 0)"), {"b": torch.zeros(3, 3)}
        inputs = (torch.ones(3),)
        assert agrees(right, inputs, weights)
        found = kinds(right, text.format(call), inputs, weights, [reader])
        assert found[0] == ("v", "view")
        assert torch.equal(weights["b"], torch.zeros(3, 3))

    def test_another_final_state(self, reader):
        text = """ir "P" {{
          weight @n: f32[3]
          input %x: f32[3]
          %p: f32[3] = aten.sin.default(%x)
          %q: f32[3] = aten.cos.default(%x)
          mutate @n = %{}
          return %p, %q
        }}"""
        right, inputs, weights = text.format("p"), (torch.ones(3),), {"n": torch.zeros(3)}
        assert agrees(right, inputs, weights)
        assert kinds(right, text.format("q"), inputs, weights, [reader]) == [("n", "state")]
        assert torch.equal(weights["n"], torch.zeros(3))


class Shows(nn.Module):
    """Returns a buffer that it writes, and views of it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.arange(6.0))

    def forward(self, x):
        self.b.add_(x)
        whole = self.b.view(2, 3)
        return whole[0].expand(5, 3), whole[1], whole.t(), self.b, x * 2


def places(results):
    """Offset, strides, and the first result that shares the storage, of each result."""
    keys = [tensor.untyped_storage().data_ptr() for tensor in results]
    return [
        (tensor.storage_offset(), tensor.stride(), keys.index(key))
        for tensor, key in zip(results, keys, strict=True)
    ]


def test_results_that_show_written_state_lie_in_one_copy_of_it():
    ir, x = extract_ir(Shows(), (torch.ones(1),)), torch.ones(1)
    graph, model = compile_graph(ir, Shows().state_dict()), Shows()
    for _ in range(2):
        got, expected = graph.eval((x,)), model(x)
        assert places(got) == places(expected)
        assert all(map(torch.equal, got, expected))
        kept = graph.buffers["b"]
        got[3].zero_()
        assert not got[1].any()
        assert torch.equal(graph.buffers["b"], kept)
    assert validate(ir, Shows().state_dict(), (x,)).is_valid


def test_a_view_that_becomes_another_view_of_the_same_elements_spills_nothing():
    ir = parse("""ir {
      input %x: f32[2, 3]
      %c: f32[2, 3] = aten.clone.default(%x)
      %v: f32[2, 2] = aten.slice.Tensor(%c, dim=1, start=0, end=2)
      %w: f32[2, 2] = aten.swapaxes_.default(%v, axis0=0, axis1=1)
      %y: f32[2, 2] = aten.exp.default(%w)
      return %y, %c
    }""")
    report = validate(ir, {}, (torch.randn(2, 3),))
    assert report.divergences == (), str(report)


def test_a_value_that_its_last_reader_spoils(monkeypatch):
    text = """ir "P" {
      input %x: f32[3]
      %a: f32[3] = aten.sin.default(%x)
      %b: f32[3] = aten.neg.default(%a)
      return %b
    }"""
    assert agrees(text, (torch.ones(3),))
    monkeypatch.setattr(
        "torch_ir.executor.graph._writing", lambda _: ()
    )  # as if no result took another's place
    assert ("a", "changed") in kinds(text, text, (torch.ones(3),))


def test_what_eager_gives_is_freed_before_a_node_runs(monkeypatch):
    """In a right run plain operators are called once, first, and nothing of theirs is held."""
    made: list[weakref.ref[torch.Tensor]] = []

    def called(*args):
        assert not any(reference() is not None for reference in made)
        results = call_plainly(*args)
        made.extend(weakref.ref(tensor) for tensor in results)
        return results

    monkeypatch.setattr(expecting, "call_plainly", called)
    ir = extract_ir(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Softmax(-1)), (torch.ones(2, 4),))
    weights = {f"0.{name}": torch.rand(size) for name, size in (("weight", (4, 4)), ("bias", 4))}
    report = validate(ir, weights, (torch.ones(2, 4),))
    assert report.verdict == "agree"
    assert len(made) == len(ir.nodes)
    assert not any(reference() is not None for reference in made)


def test_only_what_a_node_may_write_is_copied():
    x, y = torch.arange(6.0).reshape(2, 3), torch.ones(3)
    first, row, other = copied([x, x[1], y], [1])
    assert other is y
    assert first.data_ptr() != x.data_ptr()
    assert row.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded")
def test_a_write_through_repeated_memory_spills_nothing():
    text = """ir "P" {
      input %x: f32[2]
      %y: f32[2] = aten.sin.default(%x)
      %e: f32[3, 2] = aten.expand.default(%y, [3, 2])
      %m: b8[3, 2] = aten.gt.Scalar(%e, 0.0)
      %f: f32[3, 2] = aten.masked_fill_.Scalar(%e, %m, 2.0)
      return %y, %f
    }"""
    assert agrees(text, (torch.tensor([1.0, -1.0]),))


class Whole(DelegateBackend):
    """Takes all of a program as one part."""

    name = "whole"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        graph = compile_graph(ir)

        def run(*given):
            rest = iter(given)
            return graph.eval([payload[n] if n in payload else next(rest) for n in ir.input_names])

        return run


def test_results_of_a_part_that_takes_state_may_be_copies():
    ir = parse("""ir "P" {
      weight @h: f32[4]
      weight @k: f32[4]
      input %x: f32[4]
      %a: f32[4] = aten.add_.Tensor(@h, %x)
      %v: f32[3] = aten.slice.Tensor(@k, 0, 1, 4)
      %w: f32[2] = aten.slice.Tensor(%x, 0, 0, 2)
      %b: f32[2] = aten.slice.Tensor(%a, 0, 0, 2)
      mutate @h = @h
      return %v, %w, %b, @k
    }""")
    weights = {"h": torch.zeros(4), "k": torch.ones(4)}
    report = validate(ir, weights, (torch.ones(4),), backend=Whole())
    assert report.verdict == "agree", report
