"""When a function is traced again, why, and what is kept."""

from __future__ import annotations

import copy
import functools
import random
import threading
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from torch_ir import IR, execute, make_ir, make_traced
from torch_ir.errors import InputError, TraceError
from torch_ir.traced import TraceWarning

X = torch.arange(6.0).view(2, 3)


def misses(traced) -> int:
    return traced.cache_info().misses


def test_values_of_equal_kind_are_told_apart_by_type():
    traced = make_traced(lambda x, s: x + s if isinstance(s, bool) else x * s)
    for count, value in enumerate((1, True, 1.0, 0.0, -0.0, float("nan")), 1):
        traced(X, value)
        traced(X, value)
        assert misses(traced) == count


def test_the_structure_and_types_of_arguments_are_part_of_the_key():
    traced = make_traced(lambda items: items[0] + 1)
    calls = ([X], (X,), [X, X], [X, X.clone()], [X.t()], [X.double()], [X[:, :2]])
    for count, value in enumerate(calls, 1):
        traced(value)
        traced(value)
        assert misses(traced) == count


def test_equal_objects_in_other_places_are_no_reason_to_trace():
    table = {"k": [1, 2]}

    def function(x):
        return x * table["k"][0]

    traced = make_traced(function)
    traced(X)
    table = {"k": [1, 2]}
    traced(X)
    assert traced.cache_info()[:2] == (1, 1)
    table["k"][0] = 5
    assert torch.equal(traced(X), X * 5)


def test_attributes_of_objects_are_watched():
    class Settings:
        __slots__ = ("scale",)

    class Options:
        offset = 1

    settings, options = Settings(), Options()
    settings.scale = 2

    traced = make_traced(lambda x: x * settings.scale + options.offset)
    assert torch.equal(traced(X), X * 2 + 1)
    settings.scale = 3
    assert torch.equal(traced(X), X * 3 + 1)
    options.offset = 2
    assert torch.equal(traced(X), X * 3 + 2)
    Options.offset = 7
    del options.offset
    assert torch.equal(traced(X), X * 3 + 7)


def test_functions_that_are_called_are_watched():
    def inner(x, power=2):
        return x**power

    traced = make_traced(lambda x: inner(x))
    assert torch.equal(traced(X), X**2)
    inner.__defaults__ = (3,)
    assert torch.equal(traced(X), X**3)
    inner.__code__ = (lambda x, power=2: x + power).__code__
    assert torch.equal(traced(X), X + 3)


def test_the_oldest_programs_are_forgotten():
    traced = make_traced(lambda x, n: x * n, cache=2)
    for n in (1, 2, 1, 3, 1, 2):
        traced(X, n)
    assert traced.cache_info() == (2, 4, 2, 2)
    traced.cache_clear()
    assert traced.cache_info() == (0, 0, 2, 0)


def test_a_function_can_be_traced_at_each_call():
    traced = make_traced(lambda x: x + 1, cache=0)
    traced(X)
    traced(X)
    assert traced.cache_info() == (0, 2, 0, 0)


def test_what_differs_is_named():
    scale = 2

    def function(x, mode, *, options=None):
        return x * scale

    traced = make_traced(function)
    assert traced.explain_miss(X, "a") == "no call has been traced"
    traced(X, "a", options={"k": X})
    assert traced.explain_miss(X, "a", options={"k": X}) == "there is a program for this call"
    assert traced.explain_miss(X, "b", options={"k": X}) == "mode was 'a', and is 'b'"
    assert traced.explain_miss(X.t(), "a", options={"k": X}) == (
        "x was f32[2, 3], and is f32[3, 2], strides [1, 3]\n"
        "options['k'] was the same tensor as x, and is f32[2, 3]"
    )
    with torch.no_grad():
        expected = "grad mode was True, and is False"
        assert traced.explain_miss(X, "a", options={"k": X}) == expected
    scale = 3
    expected = "scale (closed over) was 2, and is 3"
    assert traced.explain_miss(X, "a", options={"k": X}) == expected


def test_a_function_that_is_traced_again_and_again_says_why():
    traced = make_traced(lambda x, n: x * n)
    for n in range(7):
        traced(X, n)
    with pytest.warns(TraceWarning, match="has been traced 8 times; .* because n was 6, and is 7"):
        traced(X, 7)


def test_sizes_can_stay_symbolic():
    traced = make_traced(lambda x: x * x.shape[0], dynamic=True, dialect="aten")
    for rows in (3, 4, 7):
        x = torch.ones(rows, 5)
        assert torch.equal(traced(x), x * rows)
    assert traced.cache_info()[:2] == (2, 1)
    assert torch.equal(traced(torch.ones(1, 5)), torch.ones(1, 5))
    assert str(traced.ir(torch.ones(3, 5)).graph_inputs[0]) == "%x: f32[s0, s1]"


def test_a_branch_on_a_symbolic_size_makes_two_programs():
    traced = make_traced(lambda x: x + 1 if x.shape[0] > 3 else x - 1, dynamic=True)
    for rows in (2, 3, 4, 5, 2):
        x = torch.ones(rows, 5)
        assert torch.equal(traced(x), x + 1 if rows > 3 else x - 1)
    assert misses(traced) == 2


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x, n: x * n.item(), torch.int64),
        (lambda x, n: x * n.item(), torch.float64),
        (lambda x, n: x[: n.item()], torch.int64),
        (lambda x, n: x.sum() + torch.zeros(n.item()), torch.int64),
    ],
)
def test_a_number_that_an_argument_holds_is_read_by_each_call(function, dtype):
    traced = make_traced(function, dynamic=True)
    x = torch.randn(5)
    for value in (2, 4, 0, 1):
        number = torch.tensor(value, dtype=dtype)
        assert torch.equal(traced(x, number), function(x, number))
    assert traced.cache_info().misses == 1


def test_a_branch_on_a_number_that_an_argument_holds_is_refused():
    traced = make_traced(lambda x, n: x * 2 if n.item() > 1 else x, dynamic=True)
    with pytest.raises(TraceError, match="depends on the values of a tensor"):
        traced(torch.ones(3), torch.tensor(2))


def test_several_threads():
    traced = make_traced(lambda x, n: x * n)
    wrong: list[int] = []

    def work(n: int) -> None:
        wrong.extend(n for _ in range(20) if not torch.equal(traced(X, n % 3), X * (n % 3)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert misses(traced) == 3


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_a_tensor_that_is_kept_is_refused_and_what_keeps_it_is_restored(fails):
    net = torch.nn.Linear(3, 3)
    net.last = None

    def function(x):
        net.last = net(x)
        if fails:
            raise ValueError("after it")
        return net.last

    with pytest.raises(TraceError, match=r"keeps a tensor that it computes, in net\.last"):
        make_traced(function)(X)
    assert net.last is None


class Grids(torch.nn.Module):
    """What makes a tensor once for each size, and keeps it."""

    size = grid = None

    def forward(self, x):
        if self.size != len(x):
            self.size, self.grid = len(x), torch.arange(float(len(x)))
        return x + self.grid


def test_a_tensor_that_a_module_makes_once_is_closed_over_after_a_call():
    grids = Grids()
    traced = make_traced(grids)
    with pytest.raises(TraceError) as refusal:
        traced(torch.ones(3))
    assert str(refusal.value) == (
        "the function keeps a tensor that it computes, in Grids.grid: the next call would not "
        "find it there\nWrite to a tensor in place (as with copy_), or return it. What is made "
        "once and kept (a mask, a grid) is closed over where the function was called before "
        "tracing it."
    )
    for size in (3, 4):
        expected = grids(torch.ones(size))
        assert torch.equal(traced(torch.ones(size)), expected)


@pytest.mark.parametrize("limit", [None, 4])
def test_a_tensor_that_a_cache_keeps_is_refused_and_the_cache_is_emptied(limit):
    @functools.lru_cache(limit)
    def mask(size):
        return torch.ones(size, size).tril()

    traced = make_traced(lambda x: x @ mask(3))
    with pytest.raises(TraceError, match="keeps a tensor that it computes, in the cache of mask"):
        traced(X)
    assert mask.cache_info().currsize == 0
    assert type(mask(3)) is torch.Tensor
    assert torch.equal(traced(X), X @ torch.ones(3, 3).tril())
    mask(3).zero_()  # it is closed over now, and read at each run
    assert not traced(X).any()


@pytest.mark.parametrize(
    "generator",
    [random.Random(3), np.random.default_rng(3), np.random.RandomState(3)],
    ids=lambda generator: type(generator).__name__,
)
def test_random_numbers_of_a_generator_that_is_not_of_torch_are_refused(generator):
    first = copy.deepcopy(generator).random()
    with pytest.raises(TraceError, match="draws random numbers from Python or NumPy"):
        make_traced(lambda x: x * float(generator.random()))(X)
    assert generator.random() == first
    held = SimpleNamespace(generator=generator, k=2.0)
    assert torch.equal(make_traced(lambda x: x * held.k)(X), X * 2)


def test_derivatives_beside_a_hook_of_a_given_tensor_are_refused():
    weight = torch.ones(3, requires_grad=True)

    def slope(x):
        return torch.autograd.grad((x * weight).sum(), [weight])[0]

    traced = make_traced(slope)
    assert torch.equal(traced(X), slope(X))
    hook = weight.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(TraceError, match="has a hook on its gradient, which no program calls"):
        traced(X)
    hook.remove()
    assert torch.equal(traced(X), slope(X))
    assert misses(traced) <= 3


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.numpy(), "gives a tensor to NumPy"),
        (lambda x: x.data_ptr(), "reads an address"),
        (lambda x: x.requires_grad_() * 2, "changes whether a tensor that it is given requires"),
        (lambda x: (torch.manual_seed(0), x)[1], "seeds torch's random numbers"),
        (lambda x: x * __import__("random").random(), "draws random numbers from Python or NumPy"),
    ],
)
def test_what_cannot_be_traced_is_refused(function, message: str):
    state = torch.get_rng_state()
    with pytest.raises(TraceError, match=message):
        make_traced(function)(X.clone())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_tensor_that_nothing_shows_is_refused():
    hidden = SimpleQueue()
    hidden.put(torch.ones(3))

    with pytest.raises(TraceError) as caught:
        make_traced(lambda x: x + hidden.get())(X)
    assert caught.value.message.startswith(
        "the function uses a tensor float32[3] that is found neither in its arguments nor in "
        "what it closes over (at "
    )


def test_numbers_of_a_closed_over_tensor_are_read_at_each_run():
    table = torch.tensor([1.0, 2.0])
    traced = make_traced(lambda x: x * table.tolist()[1])
    assert torch.equal(traced(X), X * 2)
    table[1] = 5
    assert torch.equal(traced(X), X * 5)
    assert misses(traced) == 1


def test_an_error_of_the_function_is_its_own():
    def function(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        make_traced(function)(X)


def test_what_is_no_function_is_refused():
    with pytest.raises(InputError) as caught:
        make_traced(3)
    assert str(caught.value) == "what is traced is a function, got int"
    with pytest.raises(InputError) as caught:
        make_traced(torch.add, dialect="core")
    assert str(caught.value).startswith("there is no dialect 'core' of traced programs\n")


# -- programs and executors -----------------------------------------------------------------------


def test_nothing_runs_where_the_program_is_asked_for():
    x = torch.zeros(3)
    ir = make_ir(lambda x: x.add_(1) * 2, dialect="aten")(x)
    assert isinstance(ir, IR)
    assert ir.dialect == "aten"
    assert torch.equal(x, torch.zeros(3))
    assert ir.nodes[0].location.file.endswith("test_cache.py")


def test_a_program_can_be_saved(tmp_path):
    ir = make_ir(lambda x, y: torch.softmax(x @ y.t(), -1))(X, X)
    ir.save(tmp_path / "program.json")
    assert IR.load(tmp_path / "program.json") == ir
    assert ir.dialect == "prims"
    assert ir.check() == ()


@pytest.mark.parametrize("executor", ["aten", "prims", "reference"])
def test_every_executor_computes_the_same(executor: str):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Softmax(-1))
    other = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Softmax(-1)
    )
    other.load_state_dict(net.state_dict())
    traced = make_traced(net, executor=executor)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(traced(X), other(X))
    torch.testing.assert_close(dict(net.state_dict()), dict(other.state_dict()))


def test_an_executor_that_computes_first_refuses_inputs_that_share_memory():
    x = torch.zeros(4)
    traced = make_traced(lambda x, y: x.add_(1) + y, executor="reference")
    with pytest.raises(TraceError, match="inputs share memory, and the function writes to it"):
        traced(x[:3], x[1:])
    assert torch.equal(x, torch.zeros(4))


def test_executing_graphs_of_others():
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: x * 2)(X)
    assert torch.equal(execute(graph, X), X * 2)
    assert torch.equal(execute(graph, X, executor="reference"), X * 2)
    assert torch.equal(execute(make_ir(lambda x: x * 2)(X), X), X * 2)
    with pytest.raises(InputError, match="there is no executor 'nvfuser'"):
        execute(graph, X, executor="nvfuser")
    with pytest.raises(InputError, match="what is executed is a graph module or an IR, got int"):
        execute(3)


def test_a_decorated_method():
    class Model:
        def __init__(self) -> None:
            self.scale = 2

        @make_traced
        def forward(self, x):
            return x * self.scale

    model = Model()
    assert torch.equal(model.forward(X), X * 2)
    model.scale = 3
    assert torch.equal(model.forward(X), X * 3)
