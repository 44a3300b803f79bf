"""Functions that write their operands, as a layer with a cache: made functional, lowered, run."""

from __future__ import annotations

import pytest
import torch

from torch_ir import compile_graph, parse, to_edge, validate
from torch_ir.errors import PassError
from torch_ir.ir import Mutation
from torch_ir.passes import decompose, functionalize

LAYER = """
  func &layer "layer" {
    signature ((%h, %w, %k, %n), {}) -> (%o,)
    input %h: f32[1, 4]
    input %w: f32[4, 4]
    input %k: f32[6, 4]
    input %n: i64[1]
    %p: f32[1, 4] = aten.mm.default(%h, %w)
    %ic: f32[6, 4] = aten.index_copy_.default(%k, dim=0, index=%n, source=%p)
    %len: i64[1] = aten.add_.Scalar(%n, other=1)
    %s: f32[4] = aten.sum.dim_IntList(%k, dim=[0])
    %o: f32[1, 4] = aten.add.Tensor(%p, %s)
    return %o
  }"""


def call(name, operands, results="%{0}.0: f32[1, 4]", function="layer"):
    """The line of a call."""
    return (
        f"{results.format(name)} = {name}: higher_order.invoke_subgraph(operands=[{operands}], "
        f'identifier="{function}", subgraph=&{function})'
    )


def program(*lines, functions=LAYER, result="%b.0"):
    """A program of two caches and their lengths that calls functions."""
    inputs = {
        "x": "f32[1, 4]",
        "w": "f32[4, 4]",
        "k0": "f32[6, 4]",
        "k1": "f32[6, 4]",
        "kk": "f32[2, 6, 4]",
        "n": "i64[1]",
        "m": "i64[1]",
    }
    taken = "\n  ".join(f"input %{name}: {kind}" for name, kind in inputs.items())
    signature = f"signature (({', '.join(f'%{name}' for name in inputs)}), {{}}) -> ({result},)"
    body = "\n  ".join(lines)
    return parse(
        f'ir "decode" {{{functions}\n  {signature}\n  {taken}\n  {body}\n  return {result}\n}}'
    )


def inputs():
    """What a call is given, the same each time."""
    draw = torch.Generator().manual_seed(0)
    shapes = ((1, 4), (4, 4), (6, 4), (6, 4), (2, 6, 4))
    drawn = [torch.randn(shape, generator=draw) for shape in shapes]
    return [*drawn, torch.tensor([2]), torch.tensor([3])]


TWO_LAYERS = (call("a", "%x, %w, %k0, %n"), call("b", "%a.0, %w, %k1, %m"))
OUTER = LAYER.replace("\n", "\n  ").rstrip()
NESTED = f"""
  func &outer "outer" {{{OUTER}
    signature ((%h, %w, %c, %d, %n), {{}}) -> (%q.0,)
    input %h: f32[1, 4]
    input %w: f32[4, 4]
    input %c: f32[6, 4]
    input %d: f32[6, 4]
    input %n: i64[1]
    {call("p", "%h, %w, %c, %n")}
    {call("q", "%p.0, %w, %d, %n")}
    return %q.0
  }}"""
PROGRAMS = {
    "two layers": program(*TWO_LAYERS),
    "one cache in both": program(call("a", "%x, %w, %k0, %n"), call("b", "%a.0, %w, %k0, %n")),
    "a cache that is used after it": program(
        *TWO_LAYERS,
        "%c: f32[4] = aten.sum.dim_IntList(%k0, dim=[0])",
        "%d: f32[1, 4] = aten.add.Tensor(%b.0, %c)",
        result="%d",
    ),
    "parts of one cache": program(
        "%k: f32[6, 4] = aten.select.int(%kk, dim=0, index=0)",
        "%l: f32[6, 4] = aten.select.int(%kk, dim=0, index=1)",
        call("a", "%x, %w, %k, %n"),
        call("b", "%a.0, %w, %l, %m"),
        "%c: f32[] = aten.sum.default(%kk)",
        "%d: f32[1, 4] = aten.add.Tensor(%b.0, %c)",
        result="%d",
    ),
    "a cache of the program's own": program(
        "%k: f32[6, 4] = aten.neg.default(%k0)",
        call("a", "%x, %w, %k, %n"),
        call("b", "%a.0, %w, %k, %m"),
        "%c: f32[1, 4] = aten.slice.Tensor(%k, dim=0, start=2, end=3)",
        "%d: f32[1, 4] = aten.add.Tensor(%b.0, %c)",
        result="%d",
    ),
    "functions in a function": program(
        call("a", "%x, %w, %k0, %k1, %n", function="outer"),
        call("b", "%a.0, %w, %k1, %k0, %n", function="outer"),
        functions=NESTED,
    ),
}


def run(ir):
    """The results of a program, and what it has made of what it was given."""
    given = inputs()
    return [*compile_graph(ir).eval(given), *given]


def with_mutations(ir):
    """The program, declaring what it writes."""
    written = [meta for meta in ir.graph_inputs if meta.name in ir.aliases.written]
    return ir.replace(mutations=[Mutation(meta.name, meta) for meta in written])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_that_writes_operands_is_lowered_and_runs_bitwise_as_before(name):
    ir = with_mutations(PROGRAMS[name])
    assert ir.check() == ()
    before = run(ir)
    assert not all(torch.equal(a, b) for a, b in zip(before[1:], inputs(), strict=True))
    for lowered in (functionalize(ir), decompose(ir), decompose(functionalize(ir))):
        assert lowered.check() == ()
        assert not any(node.op_type.endswith("_.default") for node in lowered.nodes)
        after = run(lowered)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_that_writes_operands_is_validated_and_reaches_edge(name):
    ir = with_mutations(PROGRAMS[name])
    for program in (ir, functionalize(ir), to_edge(ir).ir()):
        assert program.check() == ()
        assert validate(program, {}, inputs()).is_valid


def test_a_call_that_is_given_one_memory_twice_is_refused():
    both = LAYER.replace("%h: f32[1, 4]", "%h: f32[6, 4]").replace("[1, 4]", "[6, 4]")
    ir = program(call("b", "%k0, %w, %k0, %n", "%{0}.0: f32[6, 4]"), functions=both)
    with pytest.raises(PassError, match="under another name"):
        functionalize(ir)
