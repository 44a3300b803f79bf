"""Calls that repeat what was looked at before, and those that only seem to."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend
from torch_ir.errors import InputError


class Net(nn.Module):
    def forward(self, x, y):
        return torch.tanh(x) * 2 + y, x @ y.t()


class Runtime(NativeBackend):
    """A library in C, which reads memory as if it lay in order; a fault may come later."""

    name, version = "memory", "1"

    def __init__(self, later=None):
        self.later, self.is_late = later, False

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        run = program.module()

        def call(*given):
            assert all(tensor.data_ptr() for tensor in given)
            flat = [t.detach().as_strided(t.shape, strides(t.shape)) for t in given]
            made = run(*[torch.from_numpy(t.resolve_neg().numpy().copy()) for t in flat])
            unmarked = any(t.is_neg() for t in given)
            made = [-t if unmarked else t for t in made]  # C knows of no mark
            return self.later(made) if self.is_late else made

        return call


def strides(shape):
    return [8, 1] if len(shape) == 2 else [1]


torch.manual_seed(0)
X, Y = torch.randn(4, 8), torch.randn(4, 8)


def repeated(backend):
    run = torch_ir.compile(extract_ir(Net(), (X, Y)), {}, backend=backend)
    for _ in range(9):
        run(torch.randn(4, 8), torch.randn(4, 8))
    assert [verdict.used for verdict in run.verdicts] == [True]
    return run


class Own(torch.Tensor):
    """A class of a user."""


OTHERS = {
    "turned": lambda: X.t().contiguous().t(),
    "strided": lambda: torch.stack([X, X], -1)[..., 0],
    "expanded": lambda: X[:1].expand(4, 8),
    "negated": lambda: torch._neg_view(X),
    "zeros without memory": lambda: torch._efficientzerotensor((4, 8)),
    "leaf": lambda: X.clone().requires_grad_(),
    "result": lambda: X.clone().requires_grad_() * 1,
    "parameter": lambda: nn.Parameter(X),
    "class": lambda: X.clone().as_subclass(Own),
    "at an offset": lambda: torch.cat([torch.zeros(1), X.flatten()])[1:].view(4, 8),
    "plain": lambda: X + 1,
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("place", [0, 1])
def test_arguments_of_every_kind_after_many_plain_ones(kind, place):
    run = repeated(Runtime())
    for _ in range(20):  # more often than kinds are remembered
        given = [X, Y]
        given[place] = OTHERS[kind]()
        expected = Net()(
            *[t.detach().resolve_neg().clone().as_subclass(torch.Tensor) for t in given]
        )
        results = run(*given)
        torch.testing.assert_close(results, expected)
        assert not any(result.requires_grad for result in results)
        torch.testing.assert_close(run(X, Y), Net()(X, Y))


def test_threads_get_the_results_of_their_own_calls():
    run = repeated(Runtime())

    def differing(seed):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
        expected = Net()(x, Y)
        return sum(not torch.equal(run(x, Y)[0], expected[0]) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(differing, range(8))) == 0


def test_other_modes_after_many_plain_calls():
    run, expected = repeated(Runtime()), Net()(X, Y)
    for _ in range(20):
        for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu")):
            with mode:
                torch.testing.assert_close(run(X, Y), expected)
                torch.testing.assert_close(run(X + 0, Y), expected)
        torch.testing.assert_close(run(X, Y), expected)


class Recording(Runtime):
    """A library whose kernels torch would record."""

    name = "recording"

    def build(self, program, options):
        run = program.module()
        return lambda *given: self.later(run(*given)) if self.is_late else run(*given)


MODES = (torch.enable_grad, torch.no_grad, torch.inference_mode)


@pytest.mark.parametrize("first", ["leaf", "plain"])
@pytest.mark.parametrize("mode", MODES)
def test_no_call_records_gradients_whatever_was_looked_at_before(first, mode):
    backend = Recording(raises)
    run = repeated(backend)
    for backend.is_late in (False, True):  # then it fails, and torch runs all
        with mode():
            for _ in range(3):
                run(OTHERS[first](), Y)
        for later in MODES:
            with later():
                for kind in ("leaf", "plain", "result"):
                    given = OTHERS[kind]()
                    made = run(given, Y)
                    torch.testing.assert_close(made, Net()(given.detach(), Y))
                    assert not any(result.requires_grad for result in made)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((X,), "args has 1 argument, expected 2"),
        ((X, Y, Y), "args has 3 arguments, expected 2"),
        ((X, Y.double()), "has the wrong dtype: expected f32[4, 8], got f64[4, 8]"),
        ((X, Y[:3]), "has the wrong shape: expected f32[4, 8], got f32[3, 8]"),
        ((X, 2.0), "must be a tensor, got float"),
        ((X, torch.nested.nested_tensor([X, Y])), "is a nested tensor, expected f32[4, 8]"),
        ((X, X.to_mkldnn()), "is a mkldnn tensor, expected f32[4, 8]"),
        ((X, X.to("meta")), "is on meta, expected cpu"),
    ],
    ids=["too few", "too many", "dtype", "shape", "number", "nested", "opaque", "meta"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_arguments_that_do_not_fit_are_refused_after_many_plain_calls(given, told):
    run = repeated(Runtime())
    with pytest.raises(InputError) as caught:
        run(*given)
    assert told in str(caught.value)
    torch.testing.assert_close(run(X, Y), Net()(X, Y))


def raises(made):
    raise RuntimeError("the device is gone")


LATER = {
    "raises": raises,
    "other types": lambda made: [made[0].double(), made[1]],
    "other shapes": lambda made: [made[0][:2], made[1]],
    "fewer": lambda made: made[:1],
    "no tensors": lambda made: [None, made[1]],
}


@pytest.mark.parametrize("fault", LATER)
def test_what_a_runtime_does_wrong_later_is_seen(fault):
    backend = Runtime(LATER[fault])
    run = repeated(backend)
    backend.is_late = True
    torch.testing.assert_close(run(X, Y), Net()(X, Y))
    assert [verdict.used for verdict in run.verdicts] == [False]
