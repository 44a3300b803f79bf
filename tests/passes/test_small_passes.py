"""Small passes: what each changes, and that every result stays bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from passes.equal import assert_same, operators
from torch_ir import IRExecutor, extract_ir, parse
from torch_ir.ir import Constant
from torch_ir.passes import (
    clean_casts,
    common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    inline_functions,
    remove_no_ops,
    run_passes,
)
from torch_ir.passes.pass_registry import passes_named

ALL = "no-ops,fold-constants,clean-casts,cse,inline-functions,dce"

STEPS = {
    "neg": lambda x: x.neg(),
    "twice": lambda x: x.exp() + x.exp(),
    "view": lambda x: x.view(3, 3),
    "transposed": lambda x: x.t().contiguous(),
    "turned": lambda x: x.t().clone().permute(1, 0),
    "same": lambda x: x.permute(0, 1).transpose(1, 1)[:, 0:3].expand(3, 3),
    "clone": lambda x: x.clone(),
    "write": lambda x: x.clone().add_(1),
    "write-through": lambda x: _written_through(x),
    "write-after": lambda x: _written_after(x),
    "mask": lambda x: x.masked_fill(torch.ones(3, 3).tril() == 0, -1e3),
    "table": lambda x: x @ (torch.arange(9, dtype=torch.float32).view(3, 3).t() / 7),
    "round": lambda x: x.half().float().double().float(),
    "there-and-back": lambda x: x.double().to(torch.float32),
    "to-int": lambda x: (x * 3).to(torch.int8).to(torch.int32).to(torch.int64).float(),
    "random": lambda x: x + torch.rand_like(x) + torch.rand_like(x),
}


def _written_through(x):
    y = x.clone()
    y.view(9)[2:4] = 5.0
    return y + x


def _written_after(x):
    first = x.exp()
    y = x.clone()
    y.mul_(2)
    return first + x.exp() + y.exp()


class Chain(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def forward(self, x):
        for name in self.names:
            x = STEPS[name](x)
        return x, x.clone()


@settings(derandomize=True, max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6))
def test_every_pass_keeps_every_bit(names):
    ir = extract_ir(Chain(names), (torch.randn(3, 3),))
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    for step in passes_named(ALL):
        result = run_passes(ir, [step])
        assert result.modified == (result.ir != ir)
        assert step(ir).ir == result.ir  # deterministic
        assert_same(ir, result.ir, {}, (x,))
    assert_same(ir, run_passes(ir, passes_named(ALL)).ir, {}, (x,))


def program(body: str, head: str = "input %x: f32[2, 2]"):
    return parse(f'ir "P" {{\n  {head}\n{body}\n}}')


@pytest.mark.parametrize("change", [common_subexpressions, remove_no_ops, clean_casts])
def test_a_program_with_nothing_to_do_is_the_same_object(change):
    ir = program("%y: f32[2, 2] = aten.neg.default(%x)\nreturn %y")
    assert change(ir) is ir
    assert fold_constants(ir) is ir
    assert inline_functions(ir) is ir


# -- common subexpressions ------------------------------------------------------------------------


def test_numbers_that_are_equal_but_not_the_same_are_told_apart():
    ir = program("""
  %a: f32[2, 2] = aten.mul.Tensor(%x, 0.0)
  %b: f32[2, 2] = aten.mul.Tensor(%x, -0.0)
  %y: f32[2, 2] = aten.sub.Tensor(%a, %b)
  return %y""")
    assert common_subexpressions(ir) is ir


@pytest.mark.parametrize(
    "body",
    [
        "%a: f32[2, 2] = aten.exp.default(%x)\n%b: f32[2, 2] = aten.exp.default(%x)\n"
        "return %a, %b",
        "%a: f32[2, 2] = aten.exp.default(%x)\n%b: f32[2, 2] = aten.exp.default(%x)\n"
        "%c: f32[2, 2] = aten.neg_.default(%a)\n%d: f32[2, 2] = aten.add.Tensor(%b, %c)\n"
        "return %d",
        "%a: f32[2, 2] = aten.rand_like.default(%x)\n%b: f32[2, 2] = aten.rand_like.default(%x)\n"
        "%d: f32[2, 2] = aten.add.Tensor(%b, %a)\nreturn %d",
    ],
    ids=["both-returned", "one-written", "random"],
)
def test_nodes_that_may_be_told_apart_stay(body):
    ir = program(body)
    assert common_subexpressions(ir) is ir


def test_the_earlier_node_stays_with_its_location():
    class Twice(nn.Module):
        def forward(self, x):
            a = x.exp()
            return a + x.exp()

    ir = extract_ir(Twice(), (torch.ones(2),))
    done = common_subexpressions(ir)
    assert [node.op_type for node in done.nodes] == ["aten.exp.default", "aten.add.Tensor"]
    assert [node.location for node in done.nodes] == [ir.nodes[0].location, ir.nodes[2].location]


# -- no-ops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "goes"),
    [
        ("aten.clone.default(%a)", True),
        ("aten.permute.default(%a, [0, -1])", True),
        ("aten.permute.default(%a, [1, 0])", False),
        ("aten.slice.Tensor(%a, 0, 0, 9223372036854775807)", True),
        ("aten._to_copy.default(%a, dtype=torch.float32)", True),
        ("aten.dropout.default(%a, 0.5, False)", True),
        ("aten.dropout.default(%a, 0.5, True)", False),
        ('aten.to.device(%a, device("cuda:0"), torch.float32)', False),
    ],
)
def test_what_gives_what_it_is_given_goes(line, goes):
    ir = program(f"""
  %a: f32[2, 2] = aten.neg.default(%x)
  %b: f32[2, 2] = {line}
  %y: f32[2, 2] = aten.exp.default(%b)
  return %y""")
    assert [node.name for node in remove_no_ops(ir).nodes] == (
        ["a", "y"] if goes else ["a", "b", "y"]
    )


def test_a_copy_of_another_layout_stays():
    ir = program("""
  %a: f32[2, 2] = aten.t.default(%x)
  %b: f32[2, 2] = aten.clone.default(%a, memory_format=torch.contiguous_format)
  %c: f32[4] = aten.view.default(%b, [4])
  %y: f32[4] = aten.exp.default(%c)
  return %y""")
    assert remove_no_ops(ir) is ir


@pytest.mark.parametrize(
    "body",
    [
        "%a: f32[2, 2] = aten.clone.default(%x)\nreturn %a",
        "%a: f32[2, 2] = aten.neg.default(%x)\n%b: f32[2, 2] = aten.clone.default(%a)\n"
        "return %a, %b",
        "%a: f32[2, 2] = aten.neg.default(%x)\n%b: f32[2, 2] = aten.clone.default(%a)\n"
        "%c: f32[2, 2] = aten.exp_.default(%b)\n%d: f32[2, 2] = aten.add.Tensor(%a, %c)\n"
        "return %d",
    ],
    ids=["of-an-argument", "both-returned", "written"],
)
def test_a_copy_that_somebody_needs_stays(body):
    ir = program(body)
    assert remove_no_ops(ir) is ir


# -- constants ------------------------------------------------------------------------------------


def test_constants_larger_than_asked_are_not_made():
    ir = program("""
  %a: f32[2, 2] = aten.full.default([2, 2], 1.5)
  %y: f32[2, 2] = aten.add.Tensor(%x, %a)
  return %y""")
    assert fold_constants(ir, max_bytes=15) is ir
    done = fold_constants(ir, max_bytes=16)
    assert done.constants == {"a": Constant.from_list([[1.5] * 2] * 2, "float32")}


def test_a_constant_that_nothing_uses_any_more_goes():
    ir = program(
        "%a: f32[2] = aten.neg.default(@k)\n%y: f32[2] = aten.add.Tensor(%x, %a)\nreturn %y",
        "constant @k: f32[2] = [1.0, -0.0]\n  input %x: f32[2]",
    )
    done = fold_constants(ir)
    assert done.constants == {"a": Constant.from_list([-1.0, 0.0], "float32")}
    assert_same(ir, done, {}, (torch.tensor([-0.0, 0.0]),))


@pytest.mark.parametrize(
    "body",
    [
        "%a: f32[2, 2] = aten.ones.default([2, 2])\nreturn %a",
        "%a: f32[2, 2] = aten.ones.default([2, 2])\n%b: f32[2, 2] = aten.add_.Tensor(%a, %x)\n"
        "return %b",
        "%a: f32[2, 2] = aten.rand.default([2, 2])\n%b: f32[2, 2] = aten.add.Tensor(%a, %x)\n"
        "return %b",
        '%a: f32[2, 2] = aten.ones.default([2, 2], device=device("cuda"))\n'
        "%b: f32[2, 2] = aten.add.Tensor(%a, %x)\nreturn %b",
    ],
    ids=["returned", "written", "random", "elsewhere"],
)
def test_what_is_not_known_ahead_stays(body):
    ir = program(body)
    assert fold_constants(ir) is ir


@pytest.mark.parametrize(("says", "goes"), [("float32", True), ("int64", False)])
def test_a_check_of_a_known_type_goes_if_it_holds(says, goes):
    ir = program(f"""
  %a: f32[2, 2] = aten.full.default([2, 2], 1.5)
  check: aten._assert_tensor_metadata.default(%a, dtype=torch.{says}, device=device("run"))
  %b: f32[2, 2] = aten.exp.default(%a)
  %y: f32[2, 2] = aten.mul.Tensor(%x, %b)
  return %y""")
    kept = ["y"] if goes else ["check", "y"]
    assert [node.name for node in fold_constants(ir).nodes] == kept


def test_a_value_that_does_not_lie_in_row_major_order_is_not_stored():
    ir = program("""
  %a: f32[2, 2] = aten.full.default([2, 2], 1.5)
  %b: f32[2, 2] = aten.t.default(%a)
  %y: f32[2, 2] = aten.mm.default(%x, %b)
  return %y""")
    done = fold_constants(ir)
    assert [node.op_type for node in done.nodes] == ["aten.t.default", "aten.mm.default"]
    assert_same(ir, done, {}, (torch.randn(2, 2),))


# -- casts ----------------------------------------------------------------------------------------


def test_a_cast_that_loses_something_stays():
    ir = program("""
  %a: f16[2, 2] = aten._to_copy.default(%x, dtype=torch.float16)
  %b: f32[2, 2] = aten._to_copy.default(%a, dtype=torch.float32)
  return %b""")
    assert clean_casts(ir) is ir


def test_a_cast_there_and_back_goes():
    ir = program("""
  %a: f32[2, 2] = aten.neg.default(%x)
  %b: f64[2, 2] = aten._to_copy.default(%a, dtype=torch.float64)
  %c: f32[2, 2] = aten._to_copy.default(%b, dtype=torch.float32)
  %y: f32[2, 2] = aten.exp.default(%c)
  return %y""")
    assert [node.name for node in clean_casts(ir).nodes] == ["a", "y"]


# -- functions ------------------------------------------------------------------------------------


def test_checkpoints_are_written_out():
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def forward(self, x):
            return checkpoint(lambda v: v.relu().exp(), x, use_reentrant=False) + 1

    ir = extract_ir(Block(), (torch.ones(2, requires_grad=True),))
    done = inline_functions(ir)
    assert not any(op.startswith("higher_order.") for op in operators(done))
    assert not done.functions
    assert_same(ir, done, {}, (torch.randn(2),))


def test_repeated_blocks_are_written_out():
    ir = parse("""
ir "Blocks" {
  input %x: f32[2]
  func &block "block" {
    input %a: f32[2]
    %b: f32[2] = aten.exp.default(%a)
    return %b
  }
  %y: f32[2] = higher_order.invoke_subgraph(subgraph=&block, identifier="b", operands=[%x])
  %z: f32[2] = higher_order.invoke_subgraph(subgraph=&block, identifier="b", operands=[%y])
  return %z
}
""")
    done = inline_functions(ir)
    assert [node.op_type for node in done.nodes] == ["aten.exp.default"] * 2
    assert not done.functions
    assert_same(ir, done, {}, (torch.randn(2),))


def test_dead_code_goes_after_all_others():
    ir = program("""
  %a: f32[2, 2] = aten.exp.default(%x)
  %b: f32[2, 2] = aten.exp.default(%x)
  return %x""")
    done = run_passes(ir, passes_named("cse,dce"))
    assert not done.ir.nodes
    assert eliminate_dead_code(done.ir) is done.ir


RESOLVING = {
    "resolve_conj": lambda z: torch.view_as_real(z.resolve_conj()),
    "resolve_neg": lambda z: z.imag.resolve_neg().view(torch.int32),
    "clone": lambda z: torch.view_as_real(z.clone()),
    "clone-negative": lambda z: z.imag.clone().view(torch.int32),
    "copy": lambda z: torch.view_as_real(z.to(z.dtype, copy=True)),
    "contiguous": lambda z: z.imag.contiguous().view(torch.int32),
    "repeat": lambda z: torch.view_as_real(z.repeat(1, 1)),
    "view_copy": lambda z: torch.view_as_real(torch.view_copy(z, (2, 3))),
}


@pytest.mark.parametrize("name", RESOLVING)
@pytest.mark.parametrize("is_given", [False, True], ids=["made", "given"])
def test_copies_that_resolve_a_lazy_conjugate_stay(name, is_given):
    class Resolving(nn.Module):
        def forward(self, x):
            return RESOLVING[name](x if is_given else (x * 2).conj())

    z = torch.randn(2, 3, dtype=torch.complex64)
    z = z.conj() if is_given else z
    ir = extract_ir(Resolving(), (z,))
    assert torch.equal(IRExecutor(remove_no_ops(ir))(z), Resolving()(z))
