"""Small functions that a tracer gets wrong: each does what it does untraced, or says why not."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # as everybody calls it

from torch_ir import make_traced
from torch_ir.errors import InputError, TraceError
from traced.comparing import agree, same

SCALE = 2.0
torch.manual_seed(0)
A, B = torch.randn(4, 5), torch.randn(4, 5)
W, C = torch.randn(3, 5), torch.randn(3)
T = torch.tensor([0, 1, 2, 1])
IMAGE, KERNEL = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)


def check(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Compare with eager; the traced function, which traced once and hit after that."""
    traced = make_traced(function)
    agree(function, traced, *args, **kwargs)
    assert traced.cache_info()[:2] == (2, 1)
    return traced


def test_01_one_operator():
    traced = check(torch.add, A, B)
    assert [node.op_type for node in traced.ir(A, B).nodes] == ["prims.add.default"]


def test_02_the_order_of_keyword_arguments_does_not_matter():
    traced = make_traced(lambda x, *, y, z: torch.add(x, y) - z)
    agree(lambda x, *, y, z: torch.add(x, y) - z, traced, A, y=B, z=A, times=1)
    agree(lambda x, *, y, z: torch.add(x, y) - z, traced, A, z=A, y=B, times=1)
    assert traced.cache_info()[:2] == (1, 1)


def test_03_a_number():
    def function(x, s):
        return x * s + 1

    traced = check(function, A, 2.5)
    agree(function, traced, A, 3.0)


def test_04_a_flag():
    def function(x, f):
        return x + 1 if f else x - 1

    traced = check(function, A, True)
    agree(function, traced, A, False)


def test_05_a_string():
    def function(x, mode):
        return F.gelu(x, approximate=mode)

    traced = check(function, A, "tanh")
    agree(function, traced, A, "none")


def test_06_none_and_the_argument_itself():
    def function(x, m):
        return x if m is None else x + m

    assert check(function, A, None)(A, None) is A


def test_07_an_in_place_operator_runs_once():
    def function(x):
        x.add_(1.0)
        return x * 2

    check(function, torch.zeros(3))
    x = torch.zeros(3)
    assert torch.equal(make_traced(function)(x), torch.full((3,), 2.0))
    assert torch.equal(x, torch.ones(3))


def test_08_a_branch_on_values_is_refused_with_the_line():
    def function(x):
        return x + 1 if x.sum() > 0 else x - 1

    line = function.__code__.co_firstlineno + 1
    with pytest.raises(TraceError) as caught:
        make_traced(function)(A)
    assert str(caught.value) == (
        f"the program depends on the values of a tensor bool[] at {__file__}:{line}: which way it "
        "goes is not known while it is traced\n"
        "    return x + 1 if x.sum() > 0 else x - 1\n"
        "Choose values with torch.where, or branches with torch.cond; or take the number with "
        ".item() outside, and give it as an argument."
    )


def test_09_a_branch_on_a_shape():
    def function(x):
        return x + 1 if x.shape[0] > 3 else x - 1

    traced = check(function, A)
    agree(function, traced, A[:3])


def test_10_a_loop_of_python():
    def function(x, n):
        for _ in range(n):
            x = x * 2
        return x

    traced = check(function, A, 3)
    agree(function, traced, A, 4)
    assert len(traced.ir(A, 4).nodes) == 4


def test_11_dropout_draws_as_eager_does():
    def function(x):
        return F.dropout(x, 0.5, True)

    traced = check(function, torch.ones(6))
    torch.manual_seed(0)
    assert traced(torch.ones(6)).tolist() == [0, 0, 2, 0, 0, 0]


def test_12_random_numbers_are_those_of_the_run():
    def function(x):
        return x + torch.rand_like(x)

    traced = check(function, torch.zeros(2))
    torch.manual_seed(0)
    fresh = make_traced(function)
    assert torch.allclose(fresh(torch.zeros(2)), torch.tensor([0.4963, 0.7682]), atol=1e-4)
    assert not torch.equal(traced(torch.zeros(2)), traced(torch.zeros(2)))


def test_13_linear_and_relu():
    check(lambda x, w, c: F.relu(F.linear(x, w, c)), A, W, C)


def test_14_softmax():
    check(lambda x: torch.softmax(x, -1), A)


def test_15_layer_norm():
    check(lambda x: F.layer_norm(x, (5,)), A)


def test_16_convolution_and_pool():
    check(lambda x, k: F.max_pool2d(F.conv2d(x, k), 2), IMAGE, KERNEL)


def test_17_cross_entropy():
    check(lambda x, t: F.cross_entropy(x, t), A, T)


def test_18_embedding():
    check(lambda t, e: F.embedding(t, e), T, torch.randn(10, 6))


def test_19_attention():
    check(F.scaled_dot_product_attention, *(torch.randn(1, 2, 4, 8) for _ in range(3)))


def test_20_einsum():
    check(lambda x, y: torch.einsum("ij,kj->ik", x, y), A, B)


def test_21_a_tuple_of_results():
    check(lambda x: (x.sin(), x.cos()), A)


def test_22_nested_results_with_a_number():
    check(lambda x: {"s": x.sin(), "n": [x.exp(), 3]}, A)


def test_23_nested_arguments():
    check(lambda d: d["x"] + d["y"][0], {"x": A, "y": [B]})


def test_24_none_and_a_number_among_results():
    check(lambda x: (x + 1, None, 7), A)


def test_25_an_unknown_executor_is_refused_before_anything_is_traced():
    calls: list[int] = []

    def function(x):
        calls.append(1)
        return x

    traced = make_traced(function)
    with pytest.raises(InputError) as caught:
        traced(A, executor="nvfuser")
    assert caught.value.message == "there is no executor 'nvfuser'"
    with pytest.raises(InputError, match=r"Did you mean aten\?"):
        make_traced(function, executor="atan")
    assert not calls


def test_26_no_executor_is_the_default_one():
    assert torch.equal(make_traced(torch.add)(A, B, executor=None), A + B)
    assert torch.equal(make_traced(torch.add, executor=None)(A, B), A + B)
    assert torch.equal(make_traced(torch.add)(A, B, executor="aten"), A + B)


def test_27_a_module_in_a_closure():
    net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())

    def function(x):
        return net(x)

    traced = check(function, A)
    with torch.no_grad():
        net[0].weight.mul_(-2)
    agree(function, traced, A)
    net[0].weight = torch.nn.Parameter(torch.ones(3, 5))
    agree(function, traced, A)


def test_28_a_module_and_its_mode():
    net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Dropout(0.5))
    traced = check(net, A)
    net.eval()
    agree(net, traced, A)
    net[1].p = 0.9
    net.train()
    agree(net, traced, A)


def test_29_gradients_of_a_result():
    def function(x):
        return (x**2).sum()

    traced = make_traced(function)
    for _ in range(2):
        x = A.clone().requires_grad_()
        traced(x).backward()
        assert torch.equal(x.grad, 2 * A)
        assert torch.equal(torch.autograd.grad(traced(x), x)[0], 2 * A)
    assert torch.equal(torch.func.grad(traced)(A), 2 * A)
    assert torch.equal(make_traced(torch.func.grad(function))(A), 2 * A)
    agree(function, traced, A.clone().requires_grad_())


def test_30_gradients_taken_inside():
    def function(x):
        return torch.autograd.grad((x**3).sum(), x)[0]

    check(function, A.clone().requires_grad_())


def test_31_a_number_read_from_a_tensor():
    def function(x):
        return x * x.sum().item()

    traced = check(function, A)
    agree(function, traced, B)
    assert traced.cache_info().misses == 1
    check(lambda x: (x, x.sum().item()), A)


def test_32_a_shape_that_depends_on_data():
    def function(x):
        return torch.nonzero(x > 0)

    traced = check(function, A)
    agree(function, traced, B)
    assert traced.cache_info().misses == 1


def test_33_a_closed_over_tensor():
    b = B.clone()

    def function(x):
        return x + b

    traced = check(function, A)
    b = A.clone()
    agree(function, traced, A)
    b.mul_(3)
    agree(function, traced, A)
    b = torch.ones(5)
    agree(function, traced, A)
    assert traced.cache_info().misses == 2


def test_34_types_are_promoted():
    check(lambda x, y: x + y, A, B.double())


def test_35_side_effects_of_python_happen_when_a_call_is_traced():
    seen: list[tuple[int, ...]] = []

    def function(x):
        print(x.shape)  # noqa: T201  # a side effect that the function cannot read
        seen.append(1)
        return x + 1

    traced = make_traced(function)
    traced(A)
    assert len(seen) == 1
    agree(function, traced, A)


# -- further cases --------------------------------------------------------------------------------


def test_batch_norm_moves_its_statistics_once():
    def function(x, m, v):
        return F.batch_norm(x, m, v, training=True)

    x, m, v = torch.arange(6.0).view(3, 2), torch.zeros(2), torch.ones(2)
    check(function, x, m, v)
    make_traced(function)(x, m, v)
    assert torch.allclose(m, torch.tensor([0.2, 0.3]))
    assert torch.allclose(v, torch.tensor([1.3, 1.3]))


def test_a_batch_norm_module_in_training():
    net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    other = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    other.load_state_dict(net.state_dict())
    traced = make_traced(net)
    for _ in range(3):
        ours, theirs = traced(A).square().sum(), other(A).square().sum()
        ours.backward()
        theirs.backward()
    assert same(dict(net.state_dict()), dict(other.state_dict()))
    assert same(net[0].weight.grad, other[0].weight.grad)
    assert net[1].num_batches_tracked == 3
    assert traced.cache_info()[:2] == (2, 1)


def test_writing_an_element():
    def function(x):
        x[0] = x[0] + 1
        return x

    check(function, torch.zeros(3))


def test_arguments_that_are_the_same_tensor():
    def function(x, y):
        return x.add_(1) + y

    z = torch.zeros(2)
    traced = check(function, z, z)
    agree(function, traced, torch.zeros(2), torch.zeros(2))


def test_arguments_that_share_memory():
    def function(x, y):
        return x.add_(1) + y

    base = torch.zeros(4)
    traced = check(function, base[:2], base[1:3])
    agree(function, traced, torch.zeros(2), torch.zeros(2))


def test_a_loop_on_values_is_refused():
    def function(x):
        while (x.sum() < 5).item():
            x.add_(1)
        return x

    with pytest.raises(TraceError, match=f"at {__file__}:"):
        make_traced(function)(torch.zeros(3))


def test_a_result_that_shows_an_argument():
    traced = check(lambda z: z.view(2, 2), torch.zeros(4))
    z = torch.ones(4)
    traced(z).add_(5)
    assert torch.equal(z, torch.full((4,), 6.0))


def test_a_parameter_of_the_users_called_executor():
    def function(x, executor):
        return x * executor

    traced = make_traced(function, executor="aten")
    assert torch.equal(traced(A, executor=3), A * 3)


def test_parameters_of_an_executor():
    assert torch.equal(make_traced(torch.add)(A, B, executor_parameters=None), A + B)
    with pytest.raises(InputError, match="the executor 'aten' takes no parameters, got fast"):
        make_traced(torch.add)(A, B, executor_parameters={"fast": True})


def test_vmap_inside_and_outside():
    def function(x):
        return torch.vmap(lambda row: (row**3).sum())(x)

    check(function, A)
    traced = make_traced(lambda row: (row**3).sum())
    assert same(torch.vmap(traced)(A), function(A))


def test_a_traced_function_in_another():
    inner = make_traced(lambda x: x * SCALE)
    check(lambda x: inner(x) + 1, A)


def test_a_traced_function_under_torch_compile():
    traced = make_traced(lambda x: x * 2)
    compiled = torch.compile(lambda x: traced(x) + 1, backend="eager", fullgraph=True)
    assert same(compiled(A), A * 2 + 1)


def test_cond():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    traced = check(function, A)
    agree(function, traced, -A)


def test_cond_over_a_closed_over_tensor():
    b = B.clone()

    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x + b, lambda x: x - b, (x,))

    traced = make_traced(function)
    agree(function, traced, A)
    b.mul_(2)
    agree(function, traced, A)
    b = A.clone()
    agree(function, traced, A)


def test_meta_tensors():
    agree(lambda x: x + 1, make_traced(lambda x: x + 1), torch.empty(3, device="meta"))


def test_a_complex_number():
    check(lambda x: x * 1j, A)


def test_sparse_tensors():
    def function(x):
        return x @ torch.ones(5, 2)

    agree(function, make_traced(function), A.to_sparse())


def test_conversion_to_the_type_of_another():
    check(lambda x, y: x.to(y), A, B.double())


def test_a_mask():
    check(lambda x: x[x > 0], A)


def test_an_array_of_numpy():
    array = np.ones(5)

    def function(x):
        return x + torch.from_numpy(array)

    traced = check(function, A)
    array[:] = 3
    agree(function, traced, A)


MEMORIES = {
    "an array": (torch.from_numpy, np.ones(2)),
    "a row of an array": (torch.as_tensor, np.ones((2, 2))[1]),
    "bytes": (lambda held: torch.frombuffer(held, dtype=torch.float32), bytearray(8)),
    "a view of bytes": (
        lambda held: torch.frombuffer(held, dtype=torch.uint8),
        memoryview(bytearray(8)),
    ),
}


@pytest.mark.parametrize("is_argument", [False, True])
@pytest.mark.parametrize("memory", MEMORIES)
def test_memory_that_the_caller_sees_is_read_alone(memory, is_argument):
    show, kept = MEMORIES[memory]

    def traced(function):
        if is_argument:
            return lambda: make_traced(function)(kept)
        return lambda: make_traced(lambda: function(kept))()

    def written(held):
        shown = show(held)
        shown.view(-1)[:1].zero_()
        return shown + 1

    for function, what in ((written, "writes to"), (lambda held: [show(held)[:1]], "returns")):
        with pytest.raises(TraceError) as caught:
            traced(function)()
        assert str(caught.value) == (
            f"the function {what} a tensor in the memory of an array or buffer that its caller "
            "sees\n"
            "Give the tensor (torch.from_numpy) as an argument, or copy it (clone)."
        )
    assert torch.equal(traced(lambda held: show(held) + 1)(), show(kept) + 1)
    assert torch.equal(traced(lambda held: show(held).clone().zero_())(), 0 * show(kept))


def test_an_array_of_the_function_may_be_written():
    def function(x):
        made = torch.from_numpy(np.eye(5))
        made[0] = 2
        return made, x * made[1]

    check(function, A)


def test_two_dictionaries():
    check(lambda p, g: {k: p[k] - 0.1 * g[k] for k in p}, {"a": A, "b": B}, {"a": B, "b": A})


def test_a_result_that_is_no_tree_is_refused():
    with pytest.raises(TraceError) as caught:
        make_traced(lambda x: types.SimpleNamespace(y=x + 1))(A)
    assert str(caught.value) == (
        "the function returns a SimpleNamespace, which may hold tensors that are not found\n"
        "Return tuples, lists and dicts, or register the class with "
        "torch.export.register_dataclass or torch.utils._pytree.register_pytree_node."
    )


def test_autocast():
    def function(x, y):
        return x @ y.t()

    traced = make_traced(function)
    agree(function, traced, A, B)
    with torch.autocast("cpu"):
        assert agree(function, traced, A, B).dtype is torch.bfloat16
    agree(function, traced, A, B)

    def inside(x, y):
        with torch.autocast("cpu"):
            return x @ y.t()

    check(inside, A, B)


def test_no_grad_outside_and_inside():
    def function(x):
        with torch.no_grad():
            y = x * 2
        return x * y

    traced = make_traced(function)
    x = A.clone().requires_grad_()
    agree(function, traced, x)
    assert same(torch.autograd.grad(traced(x).sum(), x), torch.autograd.grad(function(x).sum(), x))
    with torch.no_grad():
        agree(function, traced, x)


def test_a_transposed_argument():
    result = check(lambda x: x + 1, torch.randn(3, 1).t())(torch.randn(3, 1).t())
    assert result.stride() == (torch.randn(3, 1).t() + 1).stride()
    check(lambda x: x + 1, A.t())


def test_a_buffer_of_torchs_own_class_that_is_read_and_written():
    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = torch.nn.Buffer(torch.zeros(3))
            self.table = torch.nn.Buffer(torch.ones(3), persistent=False)

        def forward(self, x):
            self.calls.add_(1)
            return x * self.table + self.calls, self.table

    module, traced = Counted(), make_traced(Counted())
    for call in range(2):
        x = torch.full((3,), float(call))
        got, expected = traced(x), module(x)
        assert same(got, expected)
