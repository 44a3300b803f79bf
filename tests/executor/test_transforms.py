"""Calls that torch transforms, traces or differentiates: eager's results, or refused in words."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import func, nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import torch_ir
from torch_ir import IRExecutor, extract_ir
from torch_ir.backends import SUPPORTED, DelegateBackend, NativeBackend, Support
from torch_ir.errors import CompileError, ExecutionError, Raised, TorchIRError, attempt
from torch_ir.executor import Listener, register_executor, unregister_executor


class Net(nn.Module):
    """Layers, their product, and values whose memory a run takes for the next one."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.convolution = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x, y):
        first = self.linear(x) + y
        second = self.convolution(first.unsqueeze(0)).squeeze(0)
        return torch.tanh(second) * 2 + y.sum(), first.t() @ second


class Runtime(NativeBackend):
    """A library in C: it sees the values that lie in memory, and nothing else."""

    name, version = "values", "1"

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        run = program.module()

        def call(*given):
            made = run(*[torch.from_numpy(tensor.detach().numpy().copy()) for tensor in given])
            return [torch.from_numpy(result.detach().numpy().copy()) for result in made]

        return call


class Own(DelegateBackend):
    """A backend of a user, for one operator."""

    name = "own"

    def supports(self, node, ir):
        is_tanh = node.op_type == "aten.tanh.default"
        return SUPPORTED if is_tanh else Support.refused("it is no tanh")

    def compile(self, ir, payload):
        return lambda x: [torch.from_numpy(x.detach().tanh().numpy())]


torch.manual_seed(0)
NET = Net().eval().requires_grad_(False)
X, Y, MANY = torch.randn(4, 8), torch.randn(4, 8), torch.randn(3, 4, 8)


def settled(backend):
    run = torch_ir.compile(extract_ir(NET, (X, Y)), NET.state_dict(), backend=backend)
    for _ in range(3):  # until nothing is looked at but what may have changed
        for x in MANY:
            run(x, Y)
    return run


RUNS = {
    "aten": lambda: torch_ir.compile(extract_ir(NET, (X, Y)), NET.state_dict()),
    "not compiled yet": lambda: IRExecutor(extract_ir(NET, (X, Y)), NET.state_dict()),
    "gradients": lambda: torch_ir.compile(extract_ir(NET, (X, Y)), NET.state_dict(), grad=True),
    "runtime": lambda: settled(Runtime()),
    "delegates": lambda: settled(Own()),
}
HAS_DERIVATIVES = ("aten", "not compiled yet", "gradients")


def traced_by(trace):
    """What a trace of a function gives for an argument that it was not traced with."""
    return lambda f: trace(lambda x: f(x, Y), X)(MANY[0])


def exported(function, x):
    class Caller(nn.Module):
        def forward(self, x):
            return function(x)

    return torch.export.export(Caller(), (x,)).module()


def compiled(backend):
    def trace(function, x):
        torch._dynamo.reset()
        run = torch.compile(lambda x: [part * 2 for part in function(x + 1)], backend=backend)
        run(x)
        return run

    return trace


def on_another_default_device(f):
    with torch.device("meta"):
        return f(X, Y)


SEEN = {
    "vmap": lambda f: func.vmap(lambda x: f(x, Y))(MANY),
    "vmap of what is added in place": lambda f: func.vmap(lambda y: f(X, y))(MANY),
    "vmap twice": lambda f: func.vmap(func.vmap(f))(MANY[:, None], MANY[:, None] + 1),
    "vmap beside": lambda f: func.vmap(lambda x: f(X, Y)[0] + x)(MANY),
    "functionalize": lambda f: func.functionalize(lambda x: f(x, Y))(X),
    "make_fx": traced_by(lambda f, x: make_fx(f)(x)),
    "make_fx on fakes": traced_by(
        lambda f, x: make_fx(f, tracing_mode="fake", _allow_non_fake_inputs=True)(x)
    ),
    "make_fx before dispatch": traced_by(lambda f, x: make_fx(f, pre_dispatch=True)(x)),
    "jit.trace": traced_by(lambda f, x: torch.jit.trace(f, (x,), check_trace=False)),
    "export": traced_by(exported),
    "another default device": on_another_default_device,
    "compile": traced_by(compiled("eager")),
    "compile, functional": traced_by(compiled("aot_eager")),
}


def with_tangents(f):
    with forward_ad.dual_level():
        results = f(forward_ad.make_dual(X, MANY[1]), Y)
        return [part for result in results for part in forward_ad.unpack_dual(result)]


DIFFERENTIATED = {
    "grad": lambda f: func.grad(lambda x: f(x, Y)[1].sin().sum())(X),
    "vjp": lambda f: func.vjp(lambda x: f(x, Y), X)[1]((MANY[0], torch.ones(8, 8))),
    "jvp": lambda f: func.jvp(lambda x: f(x, Y), (X,), (MANY[0],)),
    "jacfwd": lambda f: func.jacfwd(lambda x: f(x, Y)[0])(X),
    "jacrev": lambda f: func.jacrev(lambda x: f(x, Y)[0])(X),
    "hessian": lambda f: func.hessian(lambda x: f(x, Y)[1].sum())(X),
    "linearize": lambda f: func.linearize(lambda x: f(x, Y)[1], X)[1](MANY[0]),
    "vmap of grad": lambda f: func.vmap(func.grad(lambda x: f(x, Y)[1].sum()))(MANY),
    "tangents": with_tangents,
}


@pytest.fixture(scope="module", params=RUNS)
def runner(request):
    return request.param, RUNS[request.param]()


@pytest.mark.parametrize("way", SEEN)
def test_transforms_and_traces_see_a_program(runner, way):
    _, run = runner
    torch.testing.assert_close(SEEN[way](run), SEEN[way](NET))
    torch.testing.assert_close(run(X, Y), NET(X, Y))


@pytest.mark.parametrize("way", DIFFERENTIATED)
def test_derivatives_are_eagers_or_refused_and_never_zero(runner, way):
    name, run = runner
    if name in HAS_DERIVATIVES:
        torch.testing.assert_close(DIFFERENTIATED[way](run), DIFFERENTIATED[way](NET))
    else:
        with pytest.raises(CompileError, match="has no gradient: it runs with a kernel that was"):
            DIFFERENTIATED[way](run)
    torch.testing.assert_close(run(X, Y), NET(X, Y))


@pytest.mark.parametrize("way", [*SEEN, *DIFFERENTIATED])
def test_the_first_call_may_be_a_transformed_one(way):
    run = IRExecutor(extract_ir(NET, (X, Y)), NET.state_dict())
    transformed = {**SEEN, **DIFFERENTIATED}[way]
    torch.testing.assert_close(transformed(run), transformed(NET))


class Doubled(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2


def test_a_kernel_of_which_nothing_is_known_has_no_derivative():
    @register_executor("aten.tanh.default")
    def tanh(inputs, attrs):
        return [torch.from_numpy(inputs[0].detach().tanh().numpy())]

    try:
        run = torch_ir.compile(extract_ir(Doubled(), (X,)), {})
        assert torch.equal(run(X), Doubled()(X))
        for transform in (
            lambda: func.grad(lambda x: run(x).sum())(X),
            lambda: func.jvp(run, (X,), (Y,)),
        ):
            with pytest.raises(CompileError, match=r"node 'tanh': aten.tanh.default has no grad"):
                transform()
    finally:
        unregister_executor("aten.tanh.default")


def test_a_checkpoint_runs_a_program_again():
    parameters = {name: nn.Parameter(p) for name, p in NET.named_parameters()}
    run = torch_ir.compile(extract_ir(NET, (X, Y)), parameters, grad=True)

    def gradient(f):
        x = X.clone().requires_grad_()
        checkpoint(lambda x: f(x, Y)[1].sin(), x, use_reentrant=False).sum().backward()
        return x.grad

    torch.testing.assert_close(gradient(run), gradient(NET))


def test_a_listener_of_a_transformed_call_is_told_of_every_node():
    class Names(Listener):
        def __init__(self):
            self.names = []

        def did_run(self, node, outputs):
            self.names.append(node.name)

    run, listener = torch_ir.compile(extract_ir(NET, (X, Y)), NET.state_dict()), Names()
    gradient = func.grad(lambda x: run.graph.eval((x, Y), listener=listener)[1].sin().sum())
    torch.testing.assert_close(gradient(X), DIFFERENTIATED["grad"](NET))
    assert listener.names == [node.name for node in run.ir.nodes]


def test_what_computes_beside_torch_says_that_it_cannot_be_transformed(tmp_path):
    ir = extract_ir(NET, (X, Y))
    reference = torch_ir.compile(ir, NET.state_dict(), backend="reference")
    for way in ("vmap", "make_fx", "jit.trace", "tangents", "grad"):
        with pytest.raises(ExecutionError) as caught:
            {**SEEN, **DIFFERENTIATED}[way](reference)
        assert str(caught.value) == (
            "the backend 'reference', which computes in NumPy, cannot be transformed or traced\n"
            "Compile it for the backend 'aten', which can."
        )
    save_file(NET.state_dict(), tmp_path / "weights.safetensors")
    streaming = torch_ir.compile(ir, tmp_path / "weights.safetensors", memory="1MB")
    with pytest.raises(ExecutionError) as caught:
        SEEN["vmap"](streaming)
    assert str(caught.value) == (
        "a program that streams its weights cannot be transformed or traced\n"
        "Compile it for the backend 'aten', which can."
    )


def test_zeros_without_memory_are_given_to_runtimes_as_zeros():
    zeros = torch._efficientzerotensor((4, 8))  # as forward derivatives have them
    run = settled(Runtime())
    torch.testing.assert_close(run(zeros, Y), NET(torch.zeros(4, 8), Y))


def tensors_of(results):
    return results if isinstance(results, tuple | list) else (results,)


WAYS = {
    "vmap": lambda f, x: func.vmap(f)(torch.stack([x, x + 0.5, x * 2])),
    "jvp": lambda f, x: func.jvp(f, (x,), (torch.ones_like(x),)),
    "grad": lambda f, x: func.grad(lambda x: sum(part.float().sum() for part in f(x)))(x),
}


@pytest.mark.filterwarnings("ignore")
def test_random_programs_are_transformed_as_what_torch_exports():
    compared, refused = dict.fromkeys(WAYS, 0), 0
    for seed in range(50):
        made = torch_ir.random_program(seed, nodes=5, writes=False)
        place = next((i for i, t in enumerate(made.inputs) if t.is_floating_point()), None)
        if place is None:
            continue
        runs = (
            torch_ir.compile(made.ir, made.weights),
            torch_ir.to_exported_program(made.ir, made.weights).module(),
        )
        functions = [at(run, made.inputs, place) for run in runs]
        for name, way in WAYS.items():
            ours, torchs = [attempt(way, f, made.inputs[place]) for f in functions]
            if isinstance(ours, Raised):
                assert isinstance(ours.error, TorchIRError), (seed, name)
                refused += not isinstance(torchs, Raised)
            elif not isinstance(torchs, Raised):
                torch.testing.assert_close(
                    ours, torchs, equal_nan=True, check_dtype=False, rtol=1e-3, atol=1e-4
                )
                compared[name] += 1
    assert min(compared.values()) > 20
    assert refused < sum(compared.values()) / 4  # what torch takes as zero, silently


def at(run, inputs, place):
    """A program as a function of one of its inputs, to what may have derivatives."""

    def function(x):
        results = tensors_of(run(*inputs[:place], x, *inputs[place + 1 :]))
        return tuple([part for part in results if part.is_floating_point()])

    return function
