"""Autograd functions with gradients of their own, of which a trace keeps the forward alone."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_ir
from torch_ir.errors import CompileError
from torch_ir.passes import inline_functions


class Clipped(torch.autograd.Function):
    """Doubles; its gradient is not that of doubling."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-1, 1)


class Straight(torch.autograd.Function):
    """Rounds, and passes gradients through, in the style that vmap takes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].abs()


straight = Straight.apply
NAMES = tuple(f"{__name__}.{name}" for name in ("Clipped", "Straight"))
LONG = (torch.sin, torch.relu, torch.cos, torch.tanh)
X = torch.tensor([[0.2, -1.4, 3.0]])


class Net(nn.Module):
    def __init__(self, *functions):
        super().__init__()
        self.fc, self.functions = nn.Linear(3, 3), functions

    def forward(self, x):
        x = self.fc(x)
        for function in self.functions:
            x = function(x)
        return x


def program(*functions, **options):
    model = Net(*functions).eval()
    return torch_ir.extract_ir(model, (X,), **options), model


def refusals(ir, model, **options):
    weights = dict(model.named_parameters())
    ones = (torch.ones(1, 3),)
    graph = torch_ir.compile_graph(ir, weights)
    assert torch.equal(graph.eval((X,))[0], model(X).detach())
    for ask in (
        lambda: graph.vjp((X,)),
        lambda: graph.vjp((X,), weights=["fc.weight"]),
        lambda: graph.jvp((X,), ones),
        lambda: torch_ir.compile_graph(ir, weights, grad=True),
        lambda: torch_ir.compile_graph(ir, weights, grad=["x"], collect=True),
        lambda: torch_ir.compile(ir, weights, grad=True)(X),
    ):
        with pytest.raises(CompileError) as caught:
            ask()
        assert [finding.code for finding in caught.value.findings] == ["custom-gradient"]
        yield str(caught.value)


def message(names):
    return (
        f"the model applies {names}: torch.export keeps the operators of its forward, whose "
        "gradient may be another than that of its backward. Make it an operator, with "
        "torch.library.custom_op and register_autograd, or extract a model without it."
    )


def test_gradients_are_refused_where_a_function_has_its_own():
    ir, model = program(Clipped.apply)
    assert ir.metadata["custom_gradients"] == NAMES[:1]
    assert set(refusals(ir, model)) == {message(NAMES[0])}


def test_each_function_is_named_once_wherever_it_is_applied():
    ir, model = program(Clipped.apply, nn.Sequential(Net(straight), nn.ReLU()), Clipped.apply)
    assert ir.metadata["custom_gradients"] == NAMES
    assert set(refusals(ir, model)) == {message(", ".join(NAMES))}


def test_checkpoints_that_enter_autograd_again_run_without_it_in_the_trace():
    ir, model = program(lambda x: checkpoint(torch.sin, x, use_reentrant=True))
    assert set(refusals(ir, model)) == {message("torch.utils.checkpoint.CheckpointFunction")}


def test_hooks_on_gradients_are_seen():
    def hooked(x):
        x.register_hook(lambda gradient: gradient * 3)
        return x.sin()

    before = torch.Tensor.register_hook
    ir, model = program(hooked)
    assert set(refusals(ir, model)) == {message("torch.Tensor.register_hook")}
    layer = nn.ReLU()
    layer.register_full_backward_hook(lambda module, given, made: None)
    ir, model = program(layer)
    hook = "torch.nn.modules._functions.BackwardHookFunction"
    assert set(refusals(ir, model)) == {message(hook)}
    assert torch.Tensor.register_hook is before


def test_a_function_in_a_branch_is_seen_without_its_name():
    def branch(x):
        return torch.cond(x.sum() > 0, lambda y: straight(y), torch.sin, (x,))

    ir, model = program(branch)
    assert set(refusals(ir, model)) == {message("torch.autograd.Function")}


@pytest.mark.parametrize("regions", ["auto", ["layers.0", "layers.1"]])
def test_a_function_in_a_region_is_seen(regions):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Net(straight, *LONG), Net(straight, *LONG)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    ir = torch_ir.extract_ir(Layers().eval(), (X,), regions=regions)
    assert ir.functions, ir.metadata
    assert ir.metadata["custom_gradients"] == NAMES[1:]


def test_passes_files_and_parts_keep_what_is_known(tmp_path):
    ir, _ = program(Clipped.apply)
    (ir.save(tmp_path / "net.json"), ir.save(tmp_path / "net.zip"))
    for made in (
        torch_ir.functionalize(ir),
        torch_ir.decompose(ir),
        torch_ir.to_edge(ir).ir(),
        inline_functions(ir),
        torch_ir.cut(ir, outputs=[ir.nodes[-1].name]),
        torch_ir.parse(str(ir)),
        *(torch_ir.IR.load(path) for path in tmp_path.iterdir()),
    ):
        assert made.metadata["custom_gradients"] == NAMES[:1]


def test_what_a_file_says_is_shown_in_one_line():
    ir, model = program()
    for value, shown in ((["a\x1b[2J\nb"], r"a\x1b[2J\x0ab"), (7, "7"), ({"a": 1}, "a")):
        lying = ir.replace(metadata={"custom_gradients": value})
        with pytest.raises(CompileError) as caught:
            torch_ir.compile_graph(lying, model.state_dict(), grad=True)
        assert shown in str(caught.value)


# -- what has the gradient of its operators ---------------------------------------------------


@torch.library.custom_op("custom_gradients_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda ctx, gradient: gradient * 5)


def test_other_programs_keep_their_bytes_and_gradients():
    def checkpointed(x):
        return checkpoint(torch.sin, x, use_reentrant=False)

    def branch(x):
        return torch.cond(x.sum() > 0, torch.cos, torch.sin, (x,))

    def still(x):
        with torch.no_grad():
            y = x.sin()
        return x * y

    for function in (torch.relu, twice, branch, checkpointed, still):
        ir, model = program(function)
        assert "custom_gradients" not in ir.metadata
        _, pullback = torch_ir.compile_graph(ir, model.state_dict()).vjp((X,))
        x = X.clone().requires_grad_()
        model(x).sum().backward()
        assert torch.equal(pullback((torch.ones(1, 3),))[0], x.grad)


def test_torch_is_left_as_it_was():
    above = Clipped.__mro__[2]
    before = {"apply" in vars(cls) for cls in (Clipped, above)}
    seen = []

    class Meanwhile(nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=lambda: seen.append(straight(torch.ones(1))))
            thread.start()
            thread.join()
            return x + 1

    ir = torch_ir.extract_ir(Meanwhile(), (X,))
    assert "custom_gradients" not in ir.metadata
    assert len(seen) == 1
    with pytest.raises(torch_ir.errors.ExportError):
        program(lambda x: straight(x).no_such_thing)
    assert {"apply" in vars(cls) for cls in (Clipped, above)} == before == {False}
    x = X.clone().requires_grad_()
    straight(x).sum().backward()
    assert torch.equal(x.grad, X.abs())
