"""Layers that are traced once each: what is shared, what stays flat and why, and the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch._subclasses import FakeTensorMode

from torch_ir import IR, IRExecutor, extract_ir, load_ir
from torch_ir.errors import ExportError
from torch_ir.passes import inline_functions
from whole_way import same

CALLS = 0


class Block(nn.Module):
    """A layer; what it does may depend on all that a layer can read."""

    def __init__(self, **facts: Any):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)
        self.facts = facts

    def forward(self, x, **_):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Layers one after the other."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def functions(ir: IR) -> list[str]:
    """The function, or a part of the reason, of each member."""
    return [fate.get("function") or fate["flat"] for fate in ir.metadata["regions"].values()]


def extracted(model: nn.Module, *args: Any, regions: Any = "auto") -> IR:
    """The program with regions, which is the flat one when written out, and gives eager's bits."""
    model = model.eval().requires_grad_(False)
    flat = extract_ir(model, args)
    ir = extract_ir(model, args, regions=regions, model_name=flat.model_name)
    assert ir.check() == ()
    one, other = inline_functions(flat), inline_functions(ir)
    assert not one.diff(other), str(one.diff(other))
    assert [n.location for n in one.nodes] == [n.location for n in other.nodes]
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    executor = IRExecutor(ir, weights)
    assert same(executor(*args), model(*args))
    assert same(dict(executor.buffers), {k: model.state_dict()[k] for k in executor.buffers})
    return ir


def test_equal_layers_are_one_function(tmp_path):
    ir = extracted(Stack(*[Block() for _ in range(4)]), torch.randn(2, 4))
    assert functions(ir) == ["layers"] * 4
    assert len(ir.nodes) == 4
    ir.save(tmp_path / "net.tir")
    assert load_ir(tmp_path / "net.tir") == ir


class Indexed(Block):
    def forward(self, x):
        return super().forward(x) * (self.facts["index"] // 2 + 1)


class Moded(Block):
    def forward(self, x):
        return F.gelu(super().forward(x), approximate=self.facts["mode"])


class Epsilon(Block):
    def forward(self, x):
        return F.layer_norm(super().forward(x), (4,), eps=self.facts["eps"])


class Table(Block):
    def forward(self, x):
        return super().forward(x) * torch.tensor(self.facts["table"])


class Counted(Block):
    def forward(self, x):
        global CALLS  # that is the point
        CALLS += 1
        return super().forward(x) * CALLS


class Shaped(Block):
    def forward(self, x):
        y = super().forward(x)
        return y if self.facts["keep"] else torch.cat([y, y])[:2]


class Wider(Block):
    def forward(self, x):
        return torch.cat([super().forward(x)] * 2)


@pytest.mark.parametrize(
    ("layers", "distinct"),
    [
        ([Indexed(index=i) for i in range(4)], 2),
        ([Moded(mode=m) for m in ("none", "tanh") * 2], 2),
        ([Epsilon(eps=e) for e in (1e-5, 1e-6, 1e-5, 1e-6)], 2),
        ([Shaped(keep=k) for k in (True, False, True, False)], 2),
    ],
    ids=["index", "string", "epsilon", "branch"],
)
def test_layers_of_two_kinds_are_two_functions(layers, distinct):
    ir = extracted(Stack(*layers), torch.randn(2, 4))
    assert len(set(functions(ir))) == len(ir.functions) == distinct


class Counting(Stack):
    def forward(self, x):
        global CALLS
        CALLS = 0
        return super().forward(x)


def test_layers_that_count_stay_flat():
    ir = extracted(Counting(*[Counted() for _ in range(3)]), torch.randn(2, 4))
    assert functions(ir) == ["no other member does the same"] * 3


def test_results_of_other_shapes_stay_flat():
    ir = extracted(Stack(*[Wider() for _ in range(3)]), torch.randn(2, 4))
    assert functions(ir) == ["no other member does the same"] * 3


class Tables(Stack):
    """It has tables itself, before, between and after layers that have some."""

    def forward(self, x):
        for layer in self.layers:
            x = layer(x + torch.tensor([0.5, 1.0, 0.0, 2.0]))
        return x * torch.tensor([[1.0], [3.0]])


def test_tables_are_operands_that_each_call_has_for_itself():
    tables = [[1.0, 2.0, 3.0, 4.0]] * 2 + [[1.0, 2.0, 3.0, 5.0]]
    ir = extracted(Tables(*[Table(table=t) for t in tables]), torch.randn(2, 4))
    assert functions(ir) == ["layers", "layers", "no other member does the same"]
    assert len(ir.constants) == 7


def test_a_table_of_an_array_that_may_be_written_stays_flat():
    table = np.arange(4, dtype=np.float32)
    ir = extracted(Stack(*[Table(table=table) for _ in range(3)]), torch.randn(2, 4))
    assert all("constant of its own" in reason for reason in functions(ir))


class Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.sin() * torch.tensor(1.5)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * (ctx.scale + CALLS), None


class OtherGradient(Gradient):
    """Another function that does the same."""


class Differentiated(Block):
    def forward(self, x):
        global CALLS  # which the gradient reads
        CALLS = self.facts.get("calls", 0)
        return super().forward(self.facts.get("function", Gradient).apply(x, self.facts["scale"]))


@pytest.mark.parametrize(
    ("layers", "distinct"),
    [
        ([Differentiated(scale=2.0) for _ in range(3)], 1),
        ([Differentiated(scale=s) for s in (2.0, 3.0) * 2], 2),
        ([Differentiated(scale=2.0, calls=c) for c in (0, 1) * 2], 2),
        ([Differentiated(scale=2.0, function=f) for f in (Gradient, OtherGradient) * 2], 1),
    ],
    ids=["equal", "an argument", "what the gradient reads", "the class"],
)
def test_layers_with_gradients_of_their_own(layers, distinct):
    ir = extracted(Stack(*layers), torch.randn(2, 4))
    assert len(set(functions(ir))) == len(ir.functions) == distinct


def test_a_layer_that_changes_what_others_do_is_noticed():
    class Sets(Block):
        def forward(self, x, **_):
            global CALLS
            CALLS += 1
            return super().forward(x)

    class Reads(Counting):
        def forward(self, x):
            return super().forward(x) * CALLS

    for layers in ([Sets() for _ in range(3)], [Stage(Sets(), Sets()) for _ in range(3)]):
        ir = extracted(Reads(*layers), torch.randn(2, 4))
        assert set(functions(ir)) == {"the model does something else where its layers are not run"}


def test_tied_weights_are_part_of_the_wiring():
    layers = [Block() for _ in range(4)]
    for layer in layers[1:]:
        layer.up = layers[0].up
    layers[3].down.bias = layers[3].norm.bias
    ir = extracted(Stack(*layers), torch.randn(2, 4))
    assert functions(ir) == ["layers"] * 3 + ["no other member does the same"]


def test_a_layer_that_is_called_twice_or_never_stays_flat():
    class Twice(Stack):
        def forward(self, x):
            for layer in self.layers[:3]:
                x = layer(x)
            return self.layers[0](x)

    ir = extracted(Twice(*[Block() for _ in range(4)]), torch.randn(2, 4))
    assert functions(ir) == ["it is called 2 times", "layers", "layers", "it is never called"]


def test_skip_connections_and_nested_results():
    class Pair(Block):
        def forward(self, x, skip=None, *, scale):
            y = super().forward(x) * scale
            return {"y": y if skip is None else y + skip, "sizes": (2, None), "more": [y.sin()]}

    class Skips(Stack):
        def forward(self, x):
            seen, y = [], x
            for layer in self.layers:
                made = layer(y, seen[-2] if len(seen) > 1 else None, scale=2.0)
                y = made["y"]
                seen.append(made["more"][0])
            return y, seen[-1]

    ir = extracted(Skips(*[Pair() for _ in range(5)]), torch.randn(2, 4))
    assert (
        functions(ir) == ["layers", "layers", *["layers_1"] * 2, "layers_1"]
        or len(ir.functions) >= 2
    )


class Cached(Block):
    def forward(self, x, cache, position):
        cache.index_copy_(0, position, x.mean(0, keepdim=True))
        return super().forward(x) + cache.sum(0)


class Decoder(Stack):
    """Layers with static caches, which are buffers of the model or lie in an object."""

    def __init__(self, hidden: bool, *layers: nn.Module):
        super().__init__(*layers)
        self.hidden = hidden
        for index in range(len(layers)):
            self.register_buffer(f"cache_{index}", torch.zeros(3, 4))

    def forward(self, x, position):
        for index, layer in enumerate(self.layers):
            x = layer(x, getattr(self, f"cache_{index}"), position)
        return x


class Holder:
    """What holds caches, and is no tensor."""


class Hidden(Cached):
    def forward(self, x, holder, position):
        return super().forward(x, holder.caches[self.facts["index"]], position)


class HiddenDecoder(Decoder):
    def forward(self, x, position):
        holder = self.__dict__.setdefault("holder", Holder())
        holder.caches = [getattr(self, f"cache_{i}") for i in range(len(self.layers))]
        for layer in self.layers:
            x = layer(x, holder, position)
        return x


@pytest.mark.parametrize(
    "model",
    [
        Decoder(False, *[Cached() for _ in range(3)]),
        HiddenDecoder(True, *[Hidden(index=i) for i in range(3)]),
    ],
    ids=["arguments", "in an object"],
)
def test_static_caches_are_operands(model):
    ir = extracted(model, torch.randn(2, 4), torch.tensor([1]))
    assert functions(ir) == ["layers"] * 3
    assert sorted(m.target for m in ir.mutations) == [f"b_cache_{i}" for i in range(3)]


def test_a_value_that_leaves_another_way_keeps_its_layer_flat():
    class Leaks(Block):
        def forward(self, x):
            y = super().forward(x)
            self.facts["out"].append(y.sin())
            return y

    class Reads(Stack):
        def forward(self, x):
            out = self.layers[0].facts["out"]
            out.clear()
            return super().forward(x) + out[0]

    out: list[torch.Tensor] = []
    ir = extracted(Reads(*[Leaks(out=out) for _ in range(3)]), torch.randn(2, 4))
    assert "used after it" in functions(ir)[0]


def test_layers_inside_of_layers():
    stages = [Stack(Block(), Block()), Stack(Block(), Block(), Block())]
    ir = extracted(Stack(*stages), torch.randn(2, 4))
    assert len(ir.functions) == 1
    assert functions(ir).count("layers") == 5


def test_paths_name_the_regions():
    model = Stack(*[Block() for _ in range(4)])
    ir = extracted(model, torch.randn(2, 4), regions=["layers.1", "layers.3"])
    assert ir.metadata["regions"] == {
        "layers.1": {"function": "layers"},
        "layers.3": {"function": "layers"},
    }
    with pytest.raises(ExportError) as caught:
        extract_ir(model, (torch.randn(2, 4),), regions=["layer.1"])
    assert caught.value.message == "the model has no module 'layer.1'"
    assert caught.value.remedy == "Did you mean layers.1 or layers.3?"


def test_sizes_that_vary(tmp_path):
    model = Stack(*[Block() for _ in range(3)]).eval()
    ir = extract_ir(
        model,
        (torch.randn(2, 4),),
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        regions="auto",
        verify_regions=True,
    )
    assert functions(ir) == ["layers"] * 3
    for rows in (2, 5):
        x = torch.randn(rows, 4)
        assert same(IRExecutor(ir, model.state_dict())(x), model(x))


def test_the_model_is_left_as_it_was():
    with torch.device("meta"):
        model, x = Stack(*[Block() for _ in range(3)]).eval(), torch.randn(2, 4)
    before = dict(model.named_parameters())
    ir = extract_ir(model, (x,), regions="auto", verify_regions=True)
    assert functions(ir) == ["layers"] * 3
    after = dict(model.named_parameters())
    assert all(after[name] is before[name] for name in before)
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


class Spectrum(nn.Module):
    """What it makes is read by an attribute, which is a call of torch."""

    def forward(self, x):
        return x + torch.fft.fft(x.sin().cos().tanh().sigmoid()).real


class Masked(nn.Module):
    """It casts a mask to the type that it has: that is the mask itself, which others read."""

    def forward(self, x, mask):
        return (x.sin().cos().tanh() + mask.to(x.dtype)).sigmoid()


class MaskedLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Masked() for _ in range(3)])

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Dropped(Block):
    """It drops out nothing of a part of a value: a copy where it is exported, else the part."""

    def forward(self, x):
        part = F.dropout(torch.cat([x, x], -1)[..., :-3], 0.5, self.training)
        return super().forward(x + part.to(x.dtype)[..., :4])


def test_layers_with_dropout_are_one_function():
    ir = extracted(Stack(*[Dropped() for _ in range(3)]), torch.randn(2, 4))
    assert functions(ir) == ["layers"] * 3


def test_results_that_are_attributes_and_casts_that_do_nothing():
    x = torch.randn(2, 8)
    spectra = nn.Sequential(*[Spectrum() for _ in range(3)])
    ir = extract_ir(spectra, (x,), regions="auto", verify_regions=True)
    assert all("function" in fate for fate in ir.metadata["regions"].values())
    extract_ir(MaskedLayers(), (x, x.sign()), regions="auto", verify_regions=True)


class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        self.seen[1:].mul_(2).add_(1)
        self.seen = self.seen.clone()
        return self.fc(x) * self.calls + self.seen.sum()


@pytest.mark.parametrize("regions", [None, "auto", ["0", "1", "2"]])
def test_what_layers_write_is_as_it_was_before_they_were_traced(regions):
    model = nn.Sequential(*[Written() for _ in range(3)]).eval()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    held = [(name, id(tensor), tensor._version) for name, tensor in model.named_buffers()]
    extract_ir(model, (torch.ones(2, 4),), regions=regions)
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    assert held == [(name, id(tensor), tensor._version) for name, tensor in model.named_buffers()]


OPERATORS = {
    "views": lambda x: x.t().contiguous().t().view(-1, 2, 2).flatten(1)[:, ::2].repeat(1, 2),
    "layouts": lambda x: (
        x[None, :, :, None].to(memory_format=torch.channels_last)[0, ..., 0].contiguous() * 2
    ),
    "an expanded operand": lambda x: x + x[:1].expand(2, 4) + x.sum(1, keepdim=True).expand_as(x),
    "results of several": lambda x: torch.cat(
        [x.topk(2).values, x.sort().values.chunk(2, 1)[1]], 1
    ),
    "written in place": lambda x: (
        x.clone().add_(1).mul_(x).index_fill_(1, torch.arange(1, 2), 3.0)
    ),
    "written through a view": lambda x: (lambda y: (y[:, 1:].zero_(), y)[1])(x * 2),
    "views of views that are written": lambda x: (
        lambda y: (y.t()[1:].view(3, 2).add_(1), y.mul_(2), y.diagonal().zero_(), y)[-1]
    )(x * 2),
    "several results": lambda x: torch.cat(
        [*x.chunk(2, -1), *x.sort(-1), *x.topk(2), *x.split([1, 3], -1)], -1
    )[:, :4],
    "what it is given": lambda x: x.contiguous().to(x.dtype).expand(2, 4).reshape(2, 4),
    "a view of another type": lambda x: (x * 2).view(torch.int32).view(torch.float32),
    "other types": lambda x: (x > 0).sum(1, keepdim=True) + x.double().to(torch.int8).float(),
    "numbers alike": lambda x: (x * 1 + 1.0 + True).clamp(min=-1, max=1.0) // 1,
    "made from nothing": lambda x: x + torch.arange(4) + torch.full((2, 1), 2.0) + torch.eye(2, 4),
    "complex": lambda x: torch.view_as_real(torch.fft.fft(x).conj() * 1j).sum(-1),
    "sizes of the operand": lambda x: x.new_zeros(x.shape[0], x.size(-1)) + x.numel(),
    "the default type": lambda x: x + torch.zeros(4, dtype=torch.get_default_dtype()),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, 2, 4)] * 3).view(2, 4),
    "an operand by name": lambda x: torch.where(x > 0, input=x, other=torch.mul(input=x, other=2)),
    "arguments that are text": lambda x: torch.einsum(
        "ij,ij->ij", x, F.gelu(x, approximate="tanh")
    ),
}


class Applied(Block):
    """It calls operators on its input first."""

    def forward(self, x):
        return super().forward(self.facts["operators"](x))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_call_that_is_made_once_for_all_layers_gives_what_it_gives(name):
    layers = [Applied(operators=OPERATORS[name]) for _ in range(3)]
    assert functions(extracted(Stack(*layers), torch.randn(2, 4))) == ["layers"] * 3


def test_views_of_layers_that_repeat_are_not_computed_again(monkeypatch):
    seen: list[str] = []
    dispatch = FakeTensorMode.dispatch

    def noted(self, func, *rest):
        seen.append(str(func))
        return dispatch(self, func, *rest)

    monkeypatch.setattr(FakeTensorMode, "dispatch", noted)
    layers = [Applied(operators=lambda x: x.t().t()) for _ in range(9)]
    extract_ir(Stack(*layers).requires_grad_(False), (torch.randn(2, 4),), regions="auto")
    assert 0 < seen.count("aten.t.default") < 9


def test_calls_that_differ_in_a_number_its_type_or_a_layout_are_told_apart():
    made = [
        lambda x: x + 1,
        lambda x: x + 1.0,
        lambda x: x + True,
        lambda x: x.t().clone().t() + 1,
    ]
    layers = [Applied(operators=operators) for operators in made * 2]
    found = functions(extracted(Stack(*layers), torch.randn(2, 4)))
    assert found[:4] == found[4:]
    assert len({*found}) == 4


class Writing(Block):
    """A layer that writes a buffer of its own, one of all layers, and its operand."""

    def __init__(self, holder=None):
        super().__init__(holder=holder)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, **_):
        self.calls += 1
        if self.facts["holder"] is not None:
            x = x * self.facts["holder"].seen.add_(self.calls)
        return super().forward(x.mul_(self.calls))


class Stage(Block):
    """A layer with a list of layers in it."""

    def __init__(self, *inner: nn.Module):
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x, **_):
        x = super().forward(x) * 2
        for layer in self.inner:
            x = layer(torch.tanh(x), scale=x.size(0))
        return x


class Sharing(Stack):
    """Stages whose inner layers write one buffer of the model."""

    def __init__(self):
        super().__init__(*[Stage(Writing(self), Writing(self)) for _ in range(3)])
        self.register_buffer("seen", torch.zeros(4))


@pytest.mark.parametrize(
    "model",
    [
        Stack(*[Stage(Block(), Block()) for _ in range(3)]),
        Stack(*[Stage(Writing(), Block()) for _ in range(3)]),
        Stack(*[Stage(Stage(Writing()), Stage(Block())) for _ in range(3)]),
    ],
    ids=["nested", "writing", "in two levels"],
)
def test_the_outermost_of_equal_layers_are_the_functions(model):
    ir = extracted(model, torch.randn(2, 4))
    assert functions(ir) == ["layers"] * 3
    assert len(ir.nodes) == 3


def test_layers_that_write_what_all_share_stay_flat():
    assert not extracted(Sharing(), torch.randn(2, 4)).functions


class AsksForParameters(Stack):
    def forward(self, x):
        count = sum(parameter.numel() for parameter in self.parameters())
        return super().forward(x * next(self.parameters()).shape[0]) * count


class ReadsAWeight(Stack):
    def forward(self, x):
        return super().forward(x) + self.layers[1].down.bias


@pytest.mark.parametrize("kind", [AsksForParameters, ReadsAWeight])
def test_a_model_that_asks_for_the_parameters_of_layers(kind):
    ir = extracted(kind(*[Block() for _ in range(3)]), torch.randn(2, 4))
    assert functions(ir) == ["layers"] * 3
    weights = [meta.name for meta in ir.weights]
    assert weights == [*kind(*[Block() for _ in range(3)]).state_dict()]
