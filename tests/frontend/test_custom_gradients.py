"""Autograd functions with gradients of their own, of which a trace keeps the forward alone."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_ir
from frontend.doubled import Doubled
from older_torch import since_2_13
from torch_ir.errors import CompileError, TraceError
from torch_ir.passes import inline_functions
from torch_ir.torch_api import APPLIED_IN_C


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


class Chosen(torch.autograd.Function):
    """Its gradient depends on the data of another one."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5 if gradient.sum() > 0 else gradient


class Several(torch.autograd.Function):
    """Keeps tensors and numbers in many ways, and gives a result without a gradient."""

    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.exp, ctx.size, ctx.factor = x.exp(), x.shape[0], factor
        ctx.save_for_backward(y)
        made = ctx.exp * y * factor, x.argmax(), y + 1
        ctx.mark_non_differentiable(*made[1:])
        return made

    @staticmethod
    def backward(ctx, gradient, *others):
        (y,) = ctx.saved_tensors
        masked = gradient.clone()
        masked[y < 0] = 0
        return masked * ctx.exp * ctx.size, gradient * y * ctx.factor + others[1], None


class Drops(torch.autograd.Function):
    """Draws what it multiplies by, and takes derivatives inside."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = ctx.x.sin() * torch.rand_like(x)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        return torch.autograd.grad(ctx.y, ctx.x, gradient)[0] * 3


class Same(torch.autograd.Function):
    """Gives its argument back, with another gradient."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * -0.5


def several(x):
    y, position, more = Several.apply(x, x.sin(), 2.5)
    return y + position + more


def doubled(x):
    return Doubled.apply(x.clone())


def recomputed(x):
    return checkpoint(lambda y: Clipped.apply(y.sin()), x, use_reentrant=False)


def applied(function):
    """What applies a function by the method that its class has then."""
    return lambda *args: function.apply(*args)


TRANSLATED = (*map(applied, (Clipped, Straight, Drops, Same)), several, recomputed)
straight = applied(Straight)
NAMES = tuple(f"{kind.__module__}.{kind.__name__}" for kind in (Doubled, Chosen))
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


def gradients(run, x, parameters):
    x = x.detach().requires_grad_()
    for parameter in parameters:
        parameter.grad = None
    torch.manual_seed(0)
    run(x).sum().backward()
    return x.grad, *[parameter.grad for parameter in parameters]


def same(found, wanted):
    return all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("function", TRANSLATED)
def test_gradients_of_a_class_are_those_of_eager(function, tmp_path):
    ir, model = program(function)
    assert "custom_gradients" not in ir.metadata
    assert ir.check() == ()
    ir.save(tmp_path / "net.json")
    parameters = dict(model.named_parameters())
    wanted = gradients(model, X, parameters.values())
    for read in (ir, torch_ir.parse(str(ir)), torch_ir.IR.load(tmp_path / "net.json")):
        assert read == ir
        run = torch_ir.compile(read, parameters, grad=True)
        assert same(gradients(run, X, parameters.values()), wanted)
    torch.manual_seed(0)
    _, pullback = torch_ir.compile_graph(ir, parameters).vjp((X,))
    assert torch.equal(pullback((torch.ones(1, 3),))[0], wanted[0])


def test_a_method_that_was_taken_from_its_class_is_seen():
    ir, model = program(taken := Clipped.apply)
    if APPLIED_IN_C:
        assert ir.metadata["custom_gradients"] == (f"{__name__}.Clipped",)
        with pytest.raises(TraceError, match="function Clipped, whose own formula is not traced"):
            torch_ir.make_traced(taken)(X.clone().requires_grad_())
        return
    parameters = dict(model.named_parameters())
    run = torch_ir.compile(ir, parameters, grad=True)
    wanted = gradients(model, X, parameters.values())
    assert same(gradients(run, X, parameters.values()), wanted)
    assert same(gradients(torch_ir.make_traced(taken), X, ()), gradients(taken, X, ()))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", TRANSLATED)
def test_traced_functions_have_gradients_of_a_class(function, dynamic):
    traced = torch_ir.make_traced(function, dynamic=dynamic)
    for x in (X, X.repeat(3, 2)):
        assert same(gradients(traced, x, ()), gradients(function, x, ()))


@pytest.mark.parametrize("function", [applied(Clipped), several])
def test_compiled_functions_have_gradients_of_a_class(function):
    compiled = torch.compile(function, backend="torch_ir")
    assert same(gradients(compiled, X, ()), gradients(function, X, ()))


class Mixed(torch.autograd.Function):
    """Multiplies in the dtype of autocast, with a backward that has none."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return (gradient @ weight.to(gradient.dtype).t()).to(x.dtype) * 2, weight * 3


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.weight = nn.Linear(3, 3), nn.Parameter(torch.eye(3) + 0.3)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return Mixed.apply(self.fc(x), self.weight).float()


def test_functions_under_autocast_have_gradients_of_eager():
    model = Autocast().eval()
    parameters = dict(model.named_parameters())
    wanted = gradients(model, X, parameters.values())
    ir = torch_ir.extract_ir(model, (X,))
    assert "custom_gradients" not in ir.metadata
    for run in (torch_ir.compile(ir, parameters, grad=True), torch_ir.make_traced(model)):
        assert same(gradients(run, X, parameters.values()), wanted)


class Once(Straight):
    """Says that its gradient has none."""

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].abs()


def twice_differentiated(function):
    x = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return torch.autograd.grad(found.sum(), x)[0]


def test_gradients_of_gradients_of_a_class_are_those_of_eager_or_refused():
    for function in (straight, several, lambda x: Same.apply(x) * x):
        wanted = twice_differentiated(function)
        assert torch.equal(twice_differentiated(torch_ir.make_traced(function)), wanted)
    traced = torch_ir.make_traced(applied(Once))
    assert same(gradients(traced, X, ()), gradients(Once.apply, X, ()))
    x = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(traced(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        found.sum().backward()


def test_gradients_are_refused_where_a_backward_cannot_be_traced():
    ir, model = program(doubled)
    assert ir.metadata["custom_gradients"] == NAMES[:1]
    assert set(refusals(ir, model)) == {message(NAMES[0])}
    with pytest.raises(TraceError, match="gradients pass through the autograd function Chosen"):
        torch_ir.make_traced(applied(Chosen))(X.clone().requires_grad_())


def test_each_function_is_named_once_wherever_it_is_applied():
    ir, model = program(doubled, nn.Sequential(Net(applied(Chosen)), nn.ReLU()), doubled)
    assert ir.metadata["custom_gradients"] == NAMES
    assert set(refusals(ir, model)) == {message(", ".join(NAMES))}


def test_passes_that_write_a_call_out_say_that_its_gradient_is_lost():
    ir, model = program(applied(Clipped))
    for made in (torch_ir.functionalize(ir), torch_ir.decompose(ir), inline_functions(ir)):
        assert made.metadata["custom_gradients"] == ("Clipped",)
        assert made.functions == {}
    assert set(refusals(made, model)) == {message("Clipped")}


def reentrant(function, **options):
    return lambda x: checkpoint(function, x * 2, use_reentrant=True, **options)


dropped = reentrant(lambda x: Straight.apply(nn.functional.dropout(x, 0.5)))
within = reentrant(lambda x: checkpoint(torch.sin, x, use_reentrant=True) + x)


@pytest.mark.parametrize("function", [dropped, within, reentrant(lambda x: x)])
def test_reentrant_checkpoints_have_gradients_of_what_they_compute(function):
    ir, model = program(function)
    assert "custom_gradients" not in ir.metadata
    parameters = dict(model.named_parameters())
    wanted = gradients(model, X, parameters.values())
    run = torch_ir.compile(ir, parameters, grad=True)
    assert same(gradients(run, X, parameters.values()), wanted)
    traced = torch_ir.make_traced(function)
    assert same(gradients(traced, X, ()), gradients(function, X, ()))


def test_reentrant_checkpoints_are_refused_whose_gradients_are_others_in_eager():
    def unfed(x):  # no argument requires a gradient: eager gives none to what is inside
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return checkpoint(nn.Linear(3, 3), x.detach(), use_reentrant=True)

    name = "torch.utils.checkpoint.CheckpointFunction"
    drawn = reentrant(nn.Dropout().train(), preserve_rng_state=False)
    for function in (unfed, drawn, reentrant(lambda x: (x, torch.ones(3)))):
        ir, _ = program(lambda x, f=function: x + f(x)[0])
        assert ir.metadata["custom_gradients"] == (name,)
    with pytest.raises(TraceError, match="through the autograd function CheckpointFunction"):
        torch_ir.make_traced(drawn)(X.clone().requires_grad_())


SCALE = 0.5


def hooked(hook, use=torch.sin):
    """A function that registers a hook on what it computes."""

    def run(x):
        y = x * 2
        y.register_hook(hook)
        return use(y) + y

    return run


def masked(x):
    y = x * 2
    mask = y > 0
    y.register_hook(lambda gradient: torch.where(mask, gradient * SCALE, gradient.clamp(-1, 1)))
    return y.sin()


@pytest.mark.parametrize(
    "function",
    [
        hooked(lambda gradient: gradient * SCALE),
        pytest.param(masked, marks=since_2_13("compiles its hook to code that does not run")),
    ],
)
def test_hooks_that_are_formulas_are_in_the_program(function):
    ir, model = program(function)
    assert "custom_gradients" not in ir.metadata
    parameters = dict(model.named_parameters())
    wanted = gradients(model, X, parameters.values())
    run = torch_ir.compile(ir, parameters, grad=True)
    assert same(gradients(run, X, parameters.values()), wanted)
    for traced in (torch_ir.make_traced(function), torch.compile(function, backend="torch_ir")):
        assert same(gradients(traced, X, ()), gradients(function, X, ()))


def rebound(x):
    y, scale = x * 2, 2
    y.register_hook(lambda gradient: gradient * scale)
    scale = 3
    return y


def written(x):
    y, mask = x * 2, torch.ones(3)
    y.register_hook(lambda gradient: gradient * mask)
    mask.zero_()
    return y


def removed(x):
    y = x * 2
    handle = y.register_hook(lambda gradient: gradient * 3)
    handle.remove()
    return y.sin()


def used(x):
    y = x * 2
    z = y.sin()
    y.register_hook(lambda gradient: gradient * 3)
    return y + z


def hooked_twice(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    y.register_hook(lambda gradient: gradient + 1)
    return y


def saved_otherwise(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        return x.sin()


@pytest.mark.parametrize(
    "function",
    [
        hooked([].append),
        hooked(lambda gradient: None),
        hooked(lambda gradient: gradient * 2 if gradient.sum() > 0 else gradient),
        hooked(lambda gradient: (lambda g: g * SCALE)(gradient)),
        *(rebound, written, removed, used, hooked_twice, saved_otherwise),
    ],
)
def test_other_hooks_are_refused(function):
    ir, model = program(function)
    (name,) = ir.metadata["custom_gradients"]
    assert name in ("torch.Tensor.register_hook", "torch.autograd.graph.saved_tensors_hooks")
    assert set(refusals(ir, model)) == {message(name)}
    with pytest.raises(TraceError, match="registers a hook on gradients that cannot be traced"):
        torch_ir.make_traced(function)(X.clone().requires_grad_())


def test_hooks_of_modules_are_seen_and_torch_is_left_as_it_was():
    before = torch.Tensor.register_hook
    layer = nn.ReLU()
    layer.register_full_backward_hook(lambda module, given, made: None)
    ir, model = program(layer)
    hook = "torch.nn.modules._functions.BackwardHookFunction"
    assert set(refusals(ir, model)) == {message(hook)}
    assert torch.Tensor.register_hook is before


def test_a_function_in_a_branch_has_its_gradient():
    def branch(x):
        return torch.cond(x.sum() > 0, lambda y: straight(y), torch.sin, (x,))

    ir, model = program(branch)
    parameters = dict(model.named_parameters())
    run = torch_ir.compile(ir, parameters, grad=True)
    for x in (X, -X * 9):
        wanted = gradients(model, x, parameters.values())
        assert same(gradients(run, x, parameters.values()), wanted)


@pytest.mark.parametrize("regions", ["auto", ["layers.0", "layers.1"]])
def test_layers_with_a_function_are_traced_each_for_itself(regions):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Net(straight, *LONG), Net(applied(Same), *LONG)])
            self.layers.extend([Net(straight, *LONG), Net(applied(Chosen), *LONG)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    ir = torch_ir.extract_ir(Layers().eval(), (X,), regions=regions)
    assert ir.metadata["custom_gradients"] == NAMES[1:]
    model = Layers().eval()
    del model.layers[3]
    ir = torch_ir.extract_ir(model, (X,), regions=regions)
    parameters = dict(model.named_parameters())
    wanted = gradients(model, X, parameters.values())
    run = torch_ir.compile(ir, parameters, grad=True)
    assert same(gradients(run, X, parameters.values()), wanted)


def test_passes_files_and_parts_keep_what_is_known(tmp_path):
    ir, _ = program(doubled)
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


def test_a_compiled_program_with_a_custom_gradient_is_validated():
    class Rounded(nn.Module):
        def forward(self, x):
            return Straight.apply(x) + 1

    x = torch.randn(4)
    ir = torch_ir.extract_ir(Rounded(), (x,))
    report = torch_ir.validate(ir, {}, (x,), graph=torch_ir.compile_graph(ir))
    assert (report.verdict, report.compared) == ("agree", {"denotation": 2, "eager": 2})
