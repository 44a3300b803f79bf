"""Functions of symbols that are written out where they are called with other sizes."""

from __future__ import annotations

import pytest
import torch

from torch_ir import compile_graph, parse
from torch_ir.passes import decompose, inline_functions

SIZES = """ir "sizes" {
  symbol s0: 2..
  symbol u0: 0..
  symbol u1: 0..
  func &grow "grow" {
    symbol k: 2..
    signature ((%a,), {}) -> (%y,)
    input %a: f32[k, 2]
    %z: f32[k, 3] = aten.zeros.default(size=[`k`, 3])
    %y: f32[k, 5] = aten.cat.default([%a, %z], dim=1)
    return %y
  }
  func &find "find" {
    symbol k: 2..
    symbol u0: 0..
    signature ((%a,), {}) -> (%y,)
    input %a: f32[k, 5]
    %n: i64[u0, 2] = aten.nonzero.default(%a)
    %o: i64[u0] = aten.arange.default(end=`u0`)
    %c: i64[u0, 1] = aten.unsqueeze.default(%o, dim=1)
    %y: i64[u0, 2] = aten.add.Tensor(%n, %c)
    return %y
  }
  signature ((%x,), {}) -> (%c.0, %d.0)
  input %x: f32[s0, 2]
  %xx: f32[2*s0, 2] = aten.cat.default([%x, %x])
  %a.0: f32[s0, 5] = a: higher_order.invoke_subgraph(operands=[%x], identifier="g", subgraph=&grow)
  %b.0: f32[2*s0, 5] = b: higher_order.invoke_subgraph(operands=[%xx], identifier="g", \
subgraph=&grow)
  %c.0: i64[u1, 2] = c: higher_order.invoke_subgraph(operands=[%a.0], identifier="f", \
subgraph=&find)
  %d.0: i64[u0, 2] = d: higher_order.invoke_subgraph(operands=[%b.0], identifier="f", \
subgraph=&find)
  return %c.0, %d.0
}"""


@pytest.mark.parametrize("lower", [inline_functions, lambda ir: decompose(inline_functions(ir))])
def test_symbols_become_what_each_call_gives(lower):
    ir = parse(SIZES)
    assert ir.check() == ()
    done = lower(ir)
    assert done.check() == ()
    for size in (2, 3):
        x = torch.arange(2.0 * size).reshape(size, 2) - 1
        before, after = compile_graph(ir).eval((x,)), compile_graph(done).eval((x,))
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_size_that_no_call_records_gets_a_name_of_its_own():
    text = SIZES.replace("(%y,)\n    input %a: f32[k, 5]", "(%t,)\n    input %a: f32[k, 5]")
    text = text.replace(
        "    return %y\n  }\n  signature",
        "    %t: i64[] = aten.sum.default(%y)\n    return %t\n  }\n  signature",
    )
    text = text.replace("i64[u1, 2] = c:", "i64[] = c:").replace("i64[u0, 2] = d:", "i64[] = d:")
    ir = parse(text)
    assert ir.check() == ()
    done = inline_functions(ir)
    assert done.check() == ()
    x = torch.arange(6.0).reshape(3, 2) - 1
    assert compile_graph(done).eval((x,)) == compile_graph(ir).eval((x,))
    assert not done.functions
