"""Gradients of compiled graphs: as eager's, bit for bit; adjoint to tangents; or refused."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch.utils import _pytree as pytree

import torch_ir
from small_models import CASES
from torch_ir import IRExecutor, compile_graph, extract_ir
from torch_ir.errors import CompileError, ExecutionError, InputError
from torch_ir.executor.inputs import flatten_arguments
from torch_samples import first_samples, op_db
from whole_way import same

pytestmark = [
    pytest.mark.filterwarnings("ignore:the model is in training mode"),
    pytest.mark.filterwarnings("ignore:The tensor attributes"),
]


def is_float(value):
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def leaf(value):
    return value.detach().clone().requires_grad_() if is_float(value) else value


def compiled(model, *args, **options):
    weights = dict(model.named_parameters()) | dict(model.named_buffers())
    return compile_graph(extract_ir(model, args), weights, **options)


class Plain(nn.Module):
    """A function as a module."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def function(f, *args):
    return compiled(Plain(f), *args)


# -- as eager -------------------------------------------------------------------------------------


@dataclass
class Run:
    """One call of a model, and gradients of its results."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]


def cotangents_of(outputs):
    torch.manual_seed(7)
    return [torch.randn_like(o) if is_float(o) else None for o in outputs]


def eager(module, names, args, kwargs):
    given = pytree.tree_map(leaf, (args, kwargs))
    torch.manual_seed(3)
    results = module(*given[0], **given[1])
    outputs = [o for o in pytree.tree_leaves(results) if isinstance(o, torch.Tensor)]
    pairs = zip(outputs, cotangents_of(outputs), strict=True)
    ends = [(o, c) for o, c in pairs if o.requires_grad and c is not None]
    by_name = dict(module.named_parameters())
    starts = [value for value in pytree.tree_leaves(given) if is_float(value)]
    starts += [by_name[name] for name in names]
    ends, cotangents = [o for o, _ in ends], [c for _, c in ends]
    found = torch.autograd.grad(ends, starts, cotangents, allow_unused=True)
    zeros = [torch.zeros_like(s) if g is None else g for s, g in zip(starts, found, strict=True)]
    return Run([o.detach() for o in outputs], zeros)


# "in place" writes its input; of "optional", torch's own backward fails; see below for llama
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("in place", "optional", "llama")])
def test_gradients_are_those_of_eager(name):
    case = CASES[name]
    model = case.model()
    args, kwargs = case.inputs()
    ir = extract_ir(model, args, kwargs=kwargs)
    names = [name for name, _ in model.named_parameters()]
    graph = compile_graph(ir, model.state_dict())
    inputs, _ = flatten_arguments(ir, args, kwargs)
    torch.manual_seed(3)
    outputs, pullback = graph.vjp(inputs, weights=names)
    found = pullback.gradients(cotangents_of(outputs))
    mine = [*(g for g in found.inputs if g is not None), *(found.weights[n] for n in names)]
    expected = eager(case.model(), names, args, kwargs)
    assert same(list(outputs), expected.outputs)
    assert same(mine, expected.gradients)
    assert not any(output.requires_grad for output in outputs)


def test_gradients_of_a_language_model_are_those_of_what_was_exported():
    case = CASES["llama"]  # it computes its attention in another way when it is exported
    model = case.model()
    args, kwargs = case.inputs()
    ir = extract_ir(model, args, kwargs=kwargs)
    names = [name for name, _ in model.named_parameters()]
    outputs, pullback = compile_graph(ir, model.state_dict()).vjp(
        flatten_arguments(ir, args, kwargs)[0], weights=names
    )
    found = pullback.gradients(cotangents_of(outputs)).weights
    exported = torch.export.export(model, args, kwargs).module()
    expected = eager(exported, names, args, kwargs)
    assert same([found[name] for name in names], expected.gradients)


def test_autograd_goes_through_eval():
    model = CASES["conv in training"].model()
    (image,), _ = CASES["conv in training"].inputs()
    ir = extract_ir(model, (image,))
    parameters = {name: nn.Parameter(p.detach().clone()) for name, p in model.named_parameters()}
    executor = IRExecutor(ir, {**model.state_dict(), **parameters}, grad=True)
    for step in range(3):
        x, y = leaf(image * step), leaf(image * step)
        executor(x)[0].square().sum().backward()
        model(y)[0].square().sum().backward()
        assert same(x.grad, y.grad)
    for name, parameter in model.named_parameters():
        assert same(parameters[name].grad, parameter.grad), name
    assert same(executor.buffers, dict(model.named_buffers()))
    assert not executor.registry["relu_" if executor.registry.has("relu_") else "linear"].grad_fn


def test_nothing_is_recorded_where_nothing_asks():
    model = nn.Linear(3, 2)
    x = torch.ones(1, 3, requires_grad=True)
    ir = extract_ir(model, (x.detach(),))
    graph = compile_graph(ir, dict(model.named_parameters()))
    assert not graph.eval((x,))[0].requires_grad
    recording = compile_graph(ir, dict(model.named_parameters()), grad=True)
    assert recording.eval((x,))[0].requires_grad
    with torch.no_grad():
        assert not recording.eval((x,))[0].requires_grad


def test_control_flow_has_gradients():
    def branch(x):
        return torch.cond(x.sum() > 0, lambda y: y.sin() * y, lambda y: y.exp(), (x,))

    graph = function(branch, torch.ones(3))
    for x in (torch.ones(3), -torch.ones(3)):
        _, pullback = graph.vjp((x,))
        y = leaf(x)
        (expected,) = torch.autograd.grad((y.sin() * y if x.sum() > 0 else y.exp()).sum(), y)
        assert same(pullback((torch.ones(3),)), (expected,))


def test_symbolic_sizes_have_gradients():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Softmax(0))
    dim = torch.export.Dim("rows")
    ir = extract_ir(model, (torch.randn(4, 4),), dynamic_shapes=({0: dim},))
    graph = compile_graph(ir, model.state_dict())
    for rows in (2, 5):
        x, cotangent = torch.randn(rows, 4), torch.randn(rows, 3)
        _, pullback = graph.vjp((x,))
        y = leaf(x)
        assert same(pullback((cotangent,)), torch.autograd.grad(model(y), y, cotangent))


def test_results_whose_size_depends_on_data_have_gradients():
    graph = function(lambda x, mask: x[mask] * 2, torch.ones(4), torch.ones(4).bool())
    mask = torch.tensor([True, False, True, True])
    (output,), pullback = graph.vjp((torch.ones(4), mask))
    gradient, none = pullback((torch.arange(1.0, 4),))
    assert output.shape == (3,)
    assert gradient.tolist() == [2.0, 0.0, 4.0, 6.0]
    assert none is None


def test_a_region_without_gradients_passes_none():
    def frozen(x):
        with torch.no_grad():
            y = x.exp()
        return x * y

    graph = function(frozen, torch.ones(3))
    x = torch.tensor([0.5, 1.0, 2.0])
    _, pullback = graph.vjp((x,))
    assert same(pullback((torch.ones(3),)), (x.exp(),))
    with pytest.raises(CompileError, match="tangents would pass where no gradient does"):
        graph.jvp((x,), (x,))


# -- adjointness ----------------------------------------------------------------------------------

# One operator of each kind of formula; the whole list is a matter of minutes.
ADJOINT = """
abs acos add addmm amax asinh atan2 baddbmm bmm cat clamp clone cos cross cummax cumprod cumsum
diag_embed diff einsum erf exp expand fft.fft2 fft.rfft flip fmod gather hypot index_add
index_select kron lerp linalg.det linalg.inv linalg.norm linalg.solve log log_softmax
logcumsumexp logsumexp masked_fill masked_select matmul mean median mm mul mv
nn.functional.avg_pool2d nn.functional.conv2d nn.functional.conv_transpose2d
nn.functional.cross_entropy nn.functional.embedding nn.functional.gelu nn.functional.group_norm
nn.functional.layer_norm nn.functional.linear nn.functional.max_pool2d nn.functional.mse_loss
nn.functional.pixel_shuffle nn.functional.silu nn.functional.softplus norm outer permute pow
prod reciprocal remainder reshape roll rsqrt scatter scatter_add sigmoid sin softmax sort split
sqrt stack std sub sum tanh topk trace transpose tril unfold var where
"""
OPERATORS = {info.name: info for info in op_db if not info.variant_test_name}


@dataclass
class Sample:
    """A call of an operator, as a module of the tensors in it."""

    graph: Any
    inputs: list[torch.Tensor]


def sample_of(name):
    """The first sample of an operator that has more than one element."""
    info = OPERATORS[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in first_samples(info, torch.float64, 100):
            call = (sample.input, sample.args, sample.kwargs)
            values, spec = pytree.tree_flatten(call)
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
            if not any(is_float(tensor) and tensor.numel() > 1 for tensor in tensors):
                continue
            break

        def run(*given):
            pending = iter(given)
            filled = [next(pending) if isinstance(v, torch.Tensor) else v for v in values]
            first, args, kwargs = pytree.tree_unflatten(filled, spec)
            return info.op(first, *args, **kwargs)

        tensors = [tensor.detach().clone() for tensor in tensors]
        return Sample(function(run, *tensors), tensors)


def product(left, right):
    """The inner product over the reals of lists of tensors."""
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    return sum((a.conj() * b).sum().real.item() for a, b in pairs)


@pytest.mark.parametrize("name", ADJOINT.split())
def test_tangents_and_gradients_are_adjoint(name):
    sample = sample_of(name)
    torch.manual_seed(1)
    tangents = [torch.randn_like(x) if is_float(x) else None for x in sample.inputs]
    outputs, pushed = sample.graph.jvp(sample.inputs, tangents)
    again, pullback = sample.graph.vjp(sample.inputs)
    assert same(outputs, again)
    cotangents = [torch.randn_like(o) if is_float(o) else None for o in outputs]
    pulled = pullback(cotangents)
    one, other = product(pushed, cotangents), product(tangents, pulled)
    assert one != 0
    assert one == pytest.approx(other, rel=1e-9, abs=1e-12)


# -- what has no gradient -------------------------------------------------------------------------


def findings_of(caught):
    return [(finding.code, finding.node) for finding in caught.value.findings]


def test_a_call_without_a_gradient_that_none_would_come_to():
    def dropped(x, y):
        kept = torch.bernoulli(x * y, p=0.5)
        mask = kept[None].repeat(2, 1) == 1
        return torch.where(mask, x, 0) * y + kept.detach()

    args = (torch.arange(1.0, 4), torch.ones(3) * 2)
    program = torch_ir.compile(function(dropped, *args).ir, grad=True)
    made = []
    for run in (program, dropped):
        given = [t.clone().requires_grad_() for t in args]
        torch.manual_seed(1)
        result = run(*given)
        made.append([result, *torch.autograd.grad(result.sum(), given)])
    assert all(map(torch.equal, *made))
    for later in ("x + kept[:1]", "x.clone().copy_(kept)"):
        ir = function(passing(later), args[0]).ir
        with pytest.raises(CompileError, match=r"bernoulli\.p has no gradient: it has none"):
            compile_graph(ir, grad=True)


def passing(later):
    return lambda x: eval(later, {"x": x, "kept": torch.bernoulli(x, p=0.5)})  # of this file alone


def test_an_operator_without_a_formula_is_refused_before_anything_runs():
    def undifferentiable(x, y):
        return torch.special.gammainc(x.relu(), y) + torch.heaviside(x, y)

    args = (torch.ones(3), torch.ones(3))
    graph = function(undifferentiable, *args)
    for ask in (lambda: graph.vjp(args), lambda: graph.jvp(args, args)):
        with pytest.raises(CompileError) as caught:
            ask()
        assert findings_of(caught) == [("no-gradient", "special_gammainc")]
    with pytest.raises(CompileError) as caught:
        compile_graph(graph.ir, grad=True)
    message = str(caught.value)
    assert message.startswith(
        "node 'special_gammainc': aten.special_gammainc.default has no gradient: the derivative "
        "for 'igamma: input' is not implemented.\n"
        "    %special_gammainc: f32[3] = aten.special_gammainc.default(%relu, "
    )
    assert "test_gradients.py" in message
    with pytest.raises(CompileError) as caught:
        compile_graph(graph.ir, grad=True, collect=True)
    assert findings_of(caught) == [
        ("no-gradient", "special_gammainc"),
        ("no-gradient", "heaviside"),
    ]


def test_an_operator_that_no_gradient_passes_needs_no_formula():
    def harmless(x):
        return x * torch.heaviside(x.detach(), torch.ones(())) + torch.bincount(x.argsort()).sum()

    graph = function(harmless, torch.ones(3))
    x = torch.tensor([-1.0, 0.5, 2.0])
    _, pullback = graph.vjp((x,))
    assert pullback((torch.ones(3),))[0].tolist() == [0.0, 1.0, 1.0]


def test_what_is_written_in_place_carries_the_gradient_of_what_was_written():
    def written(x):
        y = torch.zeros(3)
        z = y.view(3)
        y.add_(x)
        return torch.heaviside(z, x.detach())

    with pytest.raises(CompileError) as caught:
        function(written, torch.ones(3)).vjp((torch.ones(3),))
    assert findings_of(caught) == [("no-gradient", "heaviside")]


LIBRARY = torch.library.Library("gradients_test", "DEF")
LIBRARY.define("silent(Tensor x) -> Tensor")
LIBRARY.impl("silent", lambda x: x * 2, "CPU")
torch.library.register_fake("gradients_test::silent", torch.empty_like, lib=LIBRARY)


@torch.library.custom_op("gradients_test::loud", mutates_args=())
def loud(x: torch.Tensor) -> torch.Tensor:
    return x * 2


loud.register_fake(torch.empty_like)


@pytest.mark.parametrize("operator", ["silent", "loud"])
def test_custom_operators_without_a_formula_are_refused(operator):
    call = getattr(torch.ops.gradients_test, operator)
    graph = function(lambda x: call(x) + x, torch.ones(3))
    assert same(graph.eval((torch.ones(3),)), (torch.full((3,), 3.0),))
    for ask in (
        lambda: graph.vjp((torch.ones(3),)),
        lambda: graph.jvp((torch.ones(3),), (torch.ones(3),)),
        lambda: compile_graph(graph.ir, grad=True),
    ):
        with pytest.raises(CompileError) as caught:
            ask()
        assert findings_of(caught) == [("no-gradient", operator)]


def test_registered_kernels_have_no_known_formula():
    graph = function(lambda x: x.relu(), torch.ones(3))

    @torch_ir.register_executor("aten.relu.default")
    def kernel(inputs, attrs):
        return [inputs[0].clamp(min=0)]

    try:
        with pytest.raises(CompileError, match="it runs with a kernel that was registered for it"):
            compile_graph(graph.ir, grad=True)
    finally:
        torch_ir.executor.unregister_executor("aten.relu.default")


def test_fewer_operators_carry_tangents():
    args = (torch.ones(1, 2, 4, 8),) * 3
    graph = function(F.scaled_dot_product_attention, *args)
    graph.vjp(args)
    with pytest.raises(CompileError) as caught:
        graph.jvp(args, args)
    assert findings_of(caught) == [("no-gradient", "scaled_dot_product_attention")]
    assert "has no gradient in forward mode: " in str(caught.value)


def test_a_program_that_writes_its_input_has_no_gradient():
    graph = compiled(CASES["in place"].model(), torch.ones(2, 3))
    with pytest.raises(CompileError) as caught:
        graph.vjp((torch.ones(2, 3),))
    assert str(caught.value) == (
        "the program writes to its input %x, of which there is then no gradient. "
        "Extract a model that works on a copy of it."
    )
    assert findings_of(caught) == [("written-input", "")]


def test_a_weight_that_the_program_writes_has_no_gradient():
    model = nn.Embedding(5, 3, max_norm=0.5)
    places = torch.tensor([0, 2])
    with pytest.raises(CompileError) as caught:
        compiled(model, places, grad=True)
    assert str(caught.value) == (
        "the program writes to its weight @weight, of which a run has its own copy, without a "
        "gradient. Let the weight require no gradient, or trace the model with make_traced."
    )
    assert findings_of(caught) == [("written-input", "")]
    twin = copy.deepcopy(model)
    traced = torch_ir.make_traced(model)
    for run, trained in ((traced, model), (twin, twin)):
        run(places).square().sum().backward()
        assert trained.weight.grad is not None
    assert same([model.weight, model.weight.grad], [twin.weight, twin.weight.grad])
    compiled(model.requires_grad_(False), places, grad=True).eval((places,))


class Remembering(nn.Module):
    """A buffer that takes what depends on the input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x * x)
        return self.total * 1


def test_gradients_are_those_of_one_call():
    graph = compiled(Remembering(), torch.ones(3))
    x = torch.arange(3.0)
    for calls in (1, 2, 3):
        (output,), pullback = graph.vjp((x,))
        assert same(output, calls * x * x)
        assert same(pullback((torch.ones(3),)), (2 * x,))
    (output,), (tangent,) = graph.jvp((x,), (torch.ones(3),))
    assert same((output, tangent), (4 * x * x, 2 * x))
    assert same(graph.buffers, {"total": 4 * x * x})


# -- arguments ------------------------------------------------------------------------------------


def test_cotangents_and_tangents_that_do_not_fit_are_refused():
    graph = function(lambda x: x.topk(2), torch.ones(3))
    x = torch.arange(3.0)
    _, pullback = graph.vjp((x,))
    refused = [
        (torch.ones(2), "expected 2 cotangents, one for each output, got a tensor"),
        ((None,), "expected 2 cotangents, one for each output, got 1"),
        (
            (torch.ones(3), None),
            "the cotangent of output 0 (%topk.0: f32[2]) does not fit it: "
            "expected f32[2] on cpu, got f32[3] on cpu",
        ),
        (
            (None, torch.ones(2)),
            "the cotangent of output 1 (%topk.1: i64[2]) must be None: "
            "the output can have no gradient",
        ),
        ((1.0, None), "the cotangent of output 0 (%topk.0: f32[2]) must be a tensor or None, "),
    ]
    for cotangents, message in refused:
        with pytest.raises(InputError) as caught:
            pullback(cotangents)
        assert str(caught.value).startswith(message)
    with pytest.raises(InputError) as caught:
        graph.jvp((x,), (x.double(),))
    assert "expected f32[3] on cpu, got f64[3] on cpu" in str(caught.value)
    with pytest.raises(InputError, match="expected 1 input"):
        graph.vjp((x, x))
    with pytest.raises(InputError, match="wrong shape"):
        graph.jvp((torch.ones(4),), (torch.ones(4),))


def test_none_stands_for_zeros():
    graph = function(lambda x, y: (x * y, x + y), torch.ones(2), torch.ones(2))
    args = (torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]))
    _, pullback = graph.vjp(args)
    assert same(pullback((torch.ones(2), None)), (args[1], args[0]))
    assert same(pullback((None, None)), (torch.zeros(2), torch.zeros(2)))
    _, pushed = graph.jvp(args, (None, torch.ones(2)))
    assert same(pushed, (args[0], torch.ones(2)))


def test_weights_are_asked_for_by_key():
    model = CASES["embedding"].model()
    tokens = torch.arange(4).view(2, 2)
    graph = compiled(model, tokens)
    _, pullback = graph.vjp((tokens,), weights=["head.weight"])
    outputs = [torch.ones_like(o) for o in graph.eval((tokens,))]
    found = pullback.gradients(outputs)
    assert found.inputs == (None,)
    assert list(found.weights) == ["head.weight"], "a tied weight has each of its names"
    with pytest.raises(InputError) as caught:
        graph.vjp((tokens,), weights=["bag.wieght"])
    assert str(caught.value) == "the program has no weight 'bag.wieght'\nDid you mean bag.weight?"
    counting = compiled(CASES["counting"].model(), torch.ones(5, 4))
    for key, reason in {
        "calls": "the weight 'calls' can have no gradient: it is int64",
        "norm.running_mean": "the weight 'norm.running_mean' can have no gradient: "
        "the program writes to it",
    }.items():
        with pytest.raises(InputError) as caught:
            counting.vjp((torch.ones(5, 4),), weights=[key])
        assert str(caught.value) == reason


def test_modes_around_a_call_do_not_matter():
    graph = function(lambda x: x.exp(), torch.ones(2))
    with torch.inference_mode():
        x = torch.ones(2)
        (output,), pullback = graph.vjp((x,))
        (gradient,) = pullback((torch.ones(2),))
    assert same(gradient, output)
    with torch.no_grad():
        _, pullback = graph.vjp((torch.ones(2),))
        assert same(pullback((torch.ones(2),)), (gradient,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ExecutionError) as caught:
        graph.jvp((torch.ones(2),), (torch.ones(2),))
    assert str(caught.value) == (
        "forward-mode differentiation does not nest: another level is around this call"
    )


def test_tangents_pass_what_lies_in_one_place_twice():
    graph = function(lambda x: x.expand(2, 3)[:, :2].sin(), torch.ones(3))
    (value,), (tangent,) = graph.jvp((torch.ones(3),), (torch.ones(3) * 2,))
    assert torch.equal(tangent, 2 * torch.ones(2, 2).cos())
    assert torch.equal(value, torch.ones(2, 2).sin())
