"""Repeated layers as calls of one function, and back."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from torch_ir import compile_graph, extract_ir, load_ir, parse
from torch_ir.ir import IR
from torch_ir.passes import Outline, functionalize, inline_functions, outline, run_passes
from whole_way import same

OPERATORS = ("relu.default", "neg.default", "sin.default", "cos.default")


def kept(ir: IR, **options: int) -> IR:
    """The outlined program, after all that holds of any."""
    made = outline(ir, **options)
    assert made.check() == ()
    flat, back = inline_functions(ir), inline_functions(made)
    assert not flat.diff(back), str(flat.diff(back))
    assert [node.location for node in flat.nodes] == [node.location for node in back.nodes]
    assert outline(made, **options) == made
    assert parse(str(made), constants=made.constants) == made
    assert IR.from_dict(made.to_dict()) == made
    return made


def calls(ir: IR) -> list[str]:
    """The functions that are called, in order."""
    return [name for node in ir.nodes for name in node.functions]


def layered(seed: int) -> IR:
    """A random program: layers of a few kinds, some of them inside of others."""
    draw = random.Random(seed)
    kinds = [
        [(draw.choice(OPERATORS), draw.randrange(3), draw.choice(("", ".fc"))) for _ in range(5)]
        for _ in range(2)
    ]
    lines, made = [], ["x", "w"]
    for layer in range(draw.randrange(3, 7)):
        path = draw.choice((f"layers.{layer}", f"stages.0.blocks.{layer}"))
        local = [made[-1], draw.choice(("w", made[-1]))]
        kind = draw.choice(kinds)
        for position, (operator, back, inside) in enumerate(kind):
            name = f"v{layer}_{position}"
            operand = local[-1 - back] if back < len(local) else local[0]
            if position == 3:
                call = f"aten.add.Tensor(%{operand}, %{local[0]})"
            elif position == 4 and draw.random() < 0.3:
                call = f"aten.mul_.Scalar(%{local[2]}, other={float(draw.randrange(2))!r})"
            else:
                call = f"aten.{operator}(%{operand})"
            lines.append(f"  %{name}: f32[2] = {call}  # in {path}{inside} (net.Layer)")
            local.append(name)
        made.append(local[-1])
        if draw.random() < 0.4:
            lines.append(f"  %k{layer}: f32[2] = aten.exp.default(%{local[-2]})")
    text = "\n".join(lines)
    return parse(
        f'ir "Random" {{\n  input %x: f32[2]\n  input %w: f32[2]\n{text}\n  return %{made[-1]}\n}}'
    )


@pytest.mark.parametrize("seed", range(40))
def test_every_program_comes_back(seed, tmp_path):
    ir = layered(seed)
    made = kept(ir)
    given = (torch.tensor([0.5, -2.0]), torch.tensor([1.5, 0.25]))
    runs = [compile_graph(p).eval([t.clone() for t in given]) for p in (ir, made)]
    assert same(*runs)
    made.save(tmp_path / "program.tir")
    assert load_ir(tmp_path / "program.tir") == made
    assert same(compile_graph(functionalize(made)).eval(given), runs[0])


class Block(nn.Module):
    """A layer that writes a cache which it is given."""

    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.scale = scale

    def forward(self, x, cache):
        cache.add_(x.mean(0))
        return x + self.down(torch.relu(self.up(x * self.scale + cache)))


class Net(nn.Module):
    """Blocks with caches of their own; the number of each scale."""

    def __init__(self, *scales: float):
        super().__init__()
        self.layers = nn.ModuleList(map(Block, scales))
        for index in range(len(scales)):
            self.register_buffer(f"cache{index}", torch.zeros(4))
        self.eval().requires_grad_(False)

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = layer(x, getattr(self, f"cache{index}"))
        return x


def test_layers_with_caches_are_one_function_compiled_once():
    torch.manual_seed(0)
    net, x = Net(1.0, 1.0, 1.0, 1.0), torch.randn(2, 4)
    ir = extract_ir(net, (x,))
    made = kept(ir)
    assert calls(made) == ["layers"] * 4
    assert made.functions["layers"].metadata["module"] == "layers.0"
    assert [node.location.module for node in made.nodes if node.functions] == [
        f"layers.{index}" for index in range(4)
    ]
    weights = net.state_dict()
    graph = compile_graph(made, weights)
    assert graph.source.count("def ") == compile_graph(ir, weights).source.count("def ") + 1
    expected = [net(x) for _ in range(2)]
    assert same([graph.eval((x,))[0] for _ in range(2)], expected)


def test_layers_that_compute_something_else_stay_apart():
    ir = extract_ir(Net(1.0, 2.0, 1.0, 2.0, 3.0), (torch.randn(2, 4),))
    made = kept(ir)
    assert calls(made) == ["layers", "layers_1", "layers", "layers_1"]
    assert any(node.location and node.location.module == "layers.4" for node in made.nodes)


def test_equal_numbers_of_other_types_stay_apart():
    text = """ir {
      input %x: f32[2]
      %a: f32[2] = aten.mul.Scalar(%x, other=1)  # in layers.0 (net.Layer)
      %b: f32[2] = aten.relu.default(%a)  # in layers.0 (net.Layer)
      %c: f32[2] = aten.mul.Scalar(%b, other=1.0)  # in layers.1 (net.Layer)
      %d: f32[2] = aten.relu.default(%c)  # in layers.1 (net.Layer)
      return %d
    }"""
    assert outline(ir := parse(text), min_nodes=2) is ir
    assert calls(outline(parse(text.replace("1.0", "1")), min_nodes=2)) == ["layers"] * 2


def test_sizes_that_no_operand_has_are_operands():
    text = """ir {
      symbol s0: 2..
      signature ((%x, `s0`), {}) -> (%b,)
      input %x: f32[2]
      %a: f32[s0, 2] = aten.expand.default(%x, size=[`s0`, 2])  # in layers.0 (net.Layer)
      %y: f32[2] = aten.sum.dim_IntList(%a, dim=[0])  # in layers.0 (net.Layer)
      %c: f32[s0, 2] = aten.expand.default(%y, size=[`s0`, 2])  # in layers.1 (net.Layer)
      %b: f32[2] = aten.sum.dim_IntList(%c, dim=[0])  # in layers.1 (net.Layer)
      return %b
    }"""
    made = kept(parse(text), min_nodes=2)
    assert calls(made) == ["layers"] * 2
    assert str(made.nodes[0].attrs["operands"][1]) == "s0"


def test_layers_that_bind_symbols_stay():
    layer = """
      %n{0}: i64[u{0}, 1] = aten.nonzero.default(%x)  # in layers.{0} (net.Layer)
      %s{0}: i64[] = aten.sum.default(%n{0})  # in layers.{0} (net.Layer)"""
    ir = parse(f"""ir {{
      symbol u0: 0..
      symbol u1: 0..
      input %x: f32[2]{layer.format(0)}{layer.format(1)}
      return %s0, %s1
    }}""")
    assert outline(ir, min_nodes=2) is ir


def test_the_pass_has_options_and_compares():
    ir = extract_ir(Net(1.0, 1.0), (torch.randn(2, 4),))
    assert not run_passes(ir, [Outline(min_calls=3)]).modified
    assert run_passes(ir, [Outline()]).ir == outline(ir)
    assert str(Outline(min_nodes=2)) == "outline{min_nodes=2}"


class Region(Block):
    """A block that torch is told to compile once."""

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def test_marked_regions_are_one_function_and_know_their_layers():
    net = nn.Sequential(*[Region() for _ in range(4)])
    ir = extract_ir(torch.export.export(net, (torch.randn(2, 4),), strict=True))
    assert len(ir.functions) == 1
    flat = inline_functions(ir)
    modules = {node.location.module for node in flat.nodes}
    assert modules == {f"{i}{part}" for i in range(4) for part in ("", ".up", ".down")}


def test_functions_that_differ_in_names_only_are_merged():
    class Switch(nn.Module):
        def forward(self, x):
            for _ in range(3):
                x = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
            return x

    ir = extract_ir(Switch(), (torch.randn(2),))
    assert len(ir.functions) == 2
    assert ir.check() == ()
    x = torch.randn(2)
    assert same(compile_graph(ir).eval((x,)), (Switch()(x),))
