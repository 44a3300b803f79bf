"""Branches, loops and regions: functions of the program, run as eager runs them."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import torch_ir
from older_torch import since_2_13
from torch_ir import IRExecutor
from torch_ir.errors import ConversionError
from whole_way import Lambda, kept, runs_as_eager, same

X = torch.arange(16.0).reshape(4, 4) / 8 - 0.9


@torch.compiler.nested_compile_region
def region(x, weight):
    return (x @ weight).relu()


# -- branches ---------------------------------------------------------------------------------


def choose(m, x):
    return torch.cond(x.sum() > 0, m.first, m.second, (x,))


def choose_in_a_choice(m, x):
    def inner(x):
        return torch.cond(x.max() > 1, lambda y: m.first(y), lambda y: y * m.weight, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: m.second(x), (x,))


def choose_a_structure(m, x):
    return torch.cond(
        x.sum() > 0,
        lambda x, y: (x + y, {"k": [m.first(x)]}),
        lambda x, y: (x - y, {"k": [y.sin()]}),
        (x, x * 2),
    )


def choose_by_a_constant(m, x):
    table = torch.tensor([0.5, 0.25, 0.125, 1.0], device=x.device)
    return torch.cond(x[0, 0] > 0, lambda x: x * table, lambda x: x - table, (x,))


# -- loops ------------------------------------------------------------------------------------


def loop(m, x):
    def body(count, x):
        return count + 1, m.first(x)

    return while_loop(lambda count, x: count < 3, body, (torch.tensor(0), x))


def loop_until(m, x):
    return while_loop(lambda x: x.abs().sum() < 100, lambda x: (x * 2 + 1,), (x,))


def running_sum(m, x):
    return scan(lambda carry, row: (carry + m.first(row), carry * row), x[0], x, dim=0)


def scan_of_structures(m, x):
    def step(carry, row):
        return {"total": carry["total"] + row["a"]}, [row["b"] * 2, carry["total"].clone()]

    return scan(step, {"total": x[0]}, {"a": x, "b": x.sin()}, dim=0)


def scan_backwards(m, x):
    return scan(lambda carry, row: (carry + row, carry * 1), m.total, x, dim=1, reverse=True)


def row_by_row(m, x):
    return map_over(lambda row, weight: row @ weight, x, m.weight)


def products(m, x):
    return associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic")


def loop_with_a_choice(m, x):
    def body(count, x):
        return count + 1, torch.cond(count % 2 == 0, m.first, lambda x: x + m.total, (x,))

    return while_loop(lambda count, x: count < 4, body, (torch.tensor(0), x))


# -- regions and calls of functions -----------------------------------------------------------


def regions(m, x):
    return region(region(x, m.weight), m.weight)


def saved_memory(m, x):
    return checkpoint(lambda y: m.first(y).relu() + m.weight, x, use_reentrant=False)


def attention(m, x):
    query = torch.stack([x, m.weight]).view(1, 2, 4, 4)
    return flex_attention(query, query, query, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.5)


def masked_attention(m, x):
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 4, 4, device=x.device)
    query = torch.stack([x, m.weight]).view(1, 2, 4, 4)
    return flex_attention(query, query, query, block_mask=mask)


def wide_products(m, x):
    left, right = (x * 3).to(torch.int8), (x * 2).to(torch.int8)
    return out_dtype(torch.ops.aten.mm.default, torch.int32, left, right)


def vectorized(m, x):
    def one(row, column):
        return (row * column).sum() + m.first(row).max(), row.sort().values

    return torch.vmap(torch.vmap(one, in_dims=(None, 0)), in_dims=(0, None))(x, x.T)


def vectorized_with_an_axis(m, x):
    return torch.vmap(torch.dot, in_dims=(1, 0), out_dims=0)(x, m.weight)


def constants_in_branches(m, x):
    def marked(x):
        marked = x.clone()
        marked[0] = 1.5
        return marked

    return torch.cond(x.sum() > 0, lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), marked, (x,))


def constants_further_in(m, x):
    def body(count, x):
        return count + 1, constants_in_branches(m, x) * torch.tensor(0.5)

    return while_loop(lambda count, x: count < torch.tensor(3), body, (torch.tensor(0), x))


def constants_on_both_sides_of_a_choice(m, x):
    def inner(x):
        return torch.cond(
            x.max() > 1, lambda x: x + torch.tensor(1.0), lambda x: x * torch.tensor(3.0), (x,)
        )

    return torch.cond(x.sum() > 0, inner, lambda x: x - torch.tensor(0.5), (x,))


def constants_in_a_scan(m, x):
    return scan(lambda c, row: (c * torch.tensor(0.5) + row, c + 1), torch.zeros_like(x[0]), x)


def vectorized_without_gradients(m, x):
    with torch.no_grad():
        return torch.vmap(lambda row: row.softmax(0))(x)


def strict(m, x):
    return torch._higher_order_ops.strict_mode(lambda x: m.first(x), (x,))


PROGRAMS = {
    "strict_mode": strict,
    "cond": choose,
    "scan": running_sum,
    "while_loop": loop,
    "map_impl": row_by_row,
    "flex_attention": attention,
    "out_dtype": wide_products,
}
MORE = [
    *(choose_in_a_choice, choose_a_structure, choose_by_a_constant),
    *(loop_until, scan_of_structures, scan_backwards, loop_with_a_choice),
    *(products, regions, saved_memory),
    *(masked_attention, vectorized, vectorized_with_an_axis, vectorized_without_gradients),
    *(constants_in_branches, constants_further_in, constants_in_a_scan),
    constants_on_both_sides_of_a_choice,
]
CALLS = [(X,), (-X,), (X * 3 + 2,)]


def operators_of(ir):
    """The operators of a program and of all its functions."""
    inner = [operator for body in ir.functions.values() for operator in operators_of(body)]
    return {node.op_type for node in ir.nodes}.union(inner)


@pytest.mark.parametrize("operator", PROGRAMS)
def test_a_higher_order_operator_runs_as_in_eager(operator):
    ir = runs_as_eager(lambda: Lambda(PROGRAMS[operator]).eval(), *CALLS)
    assert f"higher_order.{operator}" in operators_of(ir)


@pytest.mark.parametrize("function", MORE)
def test_functions_nest_close_over_weights_and_return_structures(function):
    runs_as_eager(lambda: Lambda(function).eval(), *CALLS)


def test_gradients_pass_through_a_scan():
    torch.manual_seed(0)
    model = Lambda(running_sum).train()
    run = torch_ir.compile(
        torch_ir.extract_ir(model, (X,)), dict(model.state_dict(keep_vars=True)), grad=True
    )
    wanted = [model.first.weight, model.first.bias]
    found, expected = (
        torch.autograd.grad(sum(part.square().sum() for part in made), wanted)
        for made in (run(X), model(X))
    )
    torch.testing.assert_close(found, expected)


class Chosen(nn.Module):
    """Branches and a loop over sizes that vary."""

    def forward(self, x):
        doubled = torch.cond(x.sum() > 0, lambda x: x * x.shape[0], lambda x: x + 1, (x,))
        _, rows = scan(lambda carry, row: (carry + row, carry * 2), x[0], x, dim=0)
        return doubled, rows, x.shape[0] + 1


def test_sizes_vary_inside_functions():
    calls = [(torch.linspace(-1, 2, size * 3).reshape(size, 3),) for size in (4, 2, 7)]
    shapes = ({0: Dim("rows", min=2, max=50)},)
    runs_as_eager(lambda: Chosen().eval(), *calls, dynamic_shapes=shapes)


def test_a_place_is_never_in_code_that_torch_writes():
    first, again = (torch_ir.extract_ir(Lambda(choose).eval(), (X,)) for _ in range(2))
    assert "eval_with_key" not in str(first)
    assert str(first) == str(again)


class Regions(nn.Module):
    """A region that is called twice."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return region(region(x, self.weight), self.weight)


def test_a_region_that_torch_traces_once_is_one_function_called_twice():
    torch.manual_seed(0)
    model = Regions().eval().requires_grad_(False)
    ir = torch_ir.extract_ir(torch.export.export(model, (X,), strict=True))
    assert [n.op_type for n in ir.nodes] == ["higher_order.invoke_subgraph"] * 2
    assert len({node.attrs["subgraph"] for node in ir.nodes}) == 1
    assert same(IRExecutor(kept(ir), model.state_dict())(X), model(X))


# -- what is refused --------------------------------------------------------------------------


class Prints(nn.Module):
    """Two calls of an operator that is not translated."""

    def forward(self, x):
        torch._higher_order_ops.print("{}", x.sum())
        torch._higher_order_ops.print("{}", x.max())
        return x + 1


def test_an_operator_that_is_not_translated_is_named_with_its_line():
    with pytest.raises(ConversionError) as caught:
        torch_ir.extract_ir(Prints().eval(), (X,))
    lines, first = inspect.getsourcelines(Prints)
    line = first + next(i for i, text in enumerate(lines) if "x.sum()" in text)
    file = ir_file()
    assert str(caught.value) == (
        "the program holds 2 things that cannot be translated\n"
        "    - node 'print_1': the higher-order operator print is not translated yet "
        f'(at {file}:{line} in (Prints): torch._higher_order_ops.print("{{}}", x.sum()))\n'
        "    - node 'print_2': the higher-order operator print is not translated yet "
        f'(at {file}:{line + 1} in (Prints): torch._higher_order_ops.print("{{}}", x.max()))'
    )


def ir_file():
    """This file, as locations tell it."""
    return torch_ir.extract_ir(Chosen().eval(), (X,)).nodes[0].location.file


class Gradient(nn.Module):
    """A gradient by functorch, which closes over a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return torch.func.grad(lambda t: (t * self.weight).pow(3).sum())(x)


@since_2_13("does not export them, and says so")
@pytest.mark.filterwarnings("ignore:A model attribute")
def test_levels_of_functorch_that_torch_cannot_write_out_are_refused():
    with pytest.raises(ConversionError) as caught:
        torch_ir.extract_ir(Gradient().eval(), (X,))
    assert str(caught.value) == (
        "torch.export does not trace the gradients of torch.func in a model: it took values of "
        "their trace for constants\n"
        "Trace the function with make_traced, or take the gradient outside the model."
    )


leaves = torch.utils._pytree.tree_leaves
_LOOP = torch._higher_order_ops.while_loop
_SCAN = torch._higher_order_ops.scan
PRODUCTS = {
    "while_loop": lambda x: _LOOP(
        lambda i, a: i < a.shape[0],
        lambda i, a: (i + a.shape[0] // 2, a + i),
        (torch.tensor(0), x.flatten().clone()),
    ),
    "cond": lambda x: torch.cond(
        x.sum() > 0, lambda a: a * a.shape[0], lambda a: a + a.shape[0], (x.flatten(),)
    ),
    "nested": lambda x: torch.cond(
        x.sum() > 0,
        lambda a: torch.cond(a.mean() > 1, lambda b: b * b.shape[0], lambda b: b + 1, (a,)),
        lambda a: a - a.shape[0],
        (x.flatten(),),
    ),
    "scan": lambda x: _SCAN(
        lambda c, a: (c + a.shape[0], a * c), x.sum(), x.flatten().expand(2, -1).clone()
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_bodies_know_sizes_that_no_argument_alone_tells(name):
    class Call(torch.nn.Module):
        def forward(self, x):
            return PRODUCTS[name](x)

    x = torch.randn(4, 6)
    auto = torch.export.Dim.AUTO
    ir = torch_ir.extract_ir(Call(), (x,), dynamic_shapes=({0: auto, 1: auto},))
    for done in (ir, torch_ir.decompose(ir)):
        for given in (x, -x[:3], x.abs()[:, :5]):
            made = leaves(torch_ir.IRExecutor(done, {})(given))
            assert all(map(torch.equal, made, leaves(Call()(given))))
    assert torch_ir.validate(ir, {}, (x,)).verdict == "agree"
