"""Layers with dropout, hooks, layers and memories of their own: the functions that they become."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

from frontend.test_regions import Block as Plain
from frontend.test_regions import Stack
from torch_ir import IRExecutor, extract_ir
from torch_ir.ir import IR
from torch_ir.passes import inline_functions
from whole_way import same

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


class Block(Plain):
    """A layer, and what it does with what it has made."""

    def __init__(self, last: Callable[[Any, torch.Tensor], torch.Tensor] = lambda _, y: y):
        super().__init__()
        self.last = last

    def forward(self, x):
        return self.last(self, super().forward(x))


def extracted(model: nn.Module, *, training: bool = False) -> IR:
    """The program with regions: the flat one when written out, with eager's bits."""
    model = model.train(training).requires_grad_(False)
    fresh = copy.deepcopy(model)
    ir = extract_ir(model, (X,), regions="auto")
    one, other = (inline_functions(program) for program in (extract_ir(fresh, (X,)), ir))
    assert not one.diff(other), str(one.diff(other))
    assert [n.location for n in one.nodes] == [n.location for n in other.nodes]
    executor = IRExecutor(ir, model.state_dict())
    torch.manual_seed(1)
    got = executor(X)
    torch.manual_seed(1)
    assert same(got, model(X))
    return ir


def functions(ir: IR) -> list[str]:
    """The function of each member, or why it has none."""
    return [fate.get("function") or fate["flat"] for fate in ir.metadata["regions"].values()]


def dropped(whole: bool) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    """Reads what dropout gives and is given, or the first twice."""

    def last(layer: nn.Module, y: torch.Tensor) -> torch.Tensor:
        part = F.dropout(y, 0.5, layer.training)
        return part + (y if whole else part)

    return last


@pytest.mark.parametrize("training", [True, False])
def test_what_dropout_gives_is_told_from_what_it_is_given(training):
    ir = extracted(Stack(*[Block(dropped(w)) for w in (True, False) * 2]), training=training)
    value = torch.ones(1)
    is_copy = torch.ops.aten.dropout.default.decompose(value, 0.5, training) is not value
    assert functions(ir) == (["layers", "layers_1"] * 2 if is_copy else ["layers"] * 4)


DROPOUTS = (F.dropout, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dropout", DROPOUTS)
def test_layers_with_any_dropout_are_one_function(dropout, training):
    blocks = [Block(lambda layer, y: dropout(y, 0.5, layer.training) + y) for _ in range(3)]
    assert functions(extracted(Stack(*blocks), training=training)) == ["layers"] * 3


@pytest.mark.parametrize("training", [True, False])
def test_layers_with_dropout_in_place(training):
    blocks = [Block(lambda layer, y: F.dropout(y, 0.5, layer.training, True) + y) for _ in "123"]
    assert functions(extracted(Stack(*blocks), training=training)) == ["layers"] * 3


HOOKS = {
    "after": lambda layer: layer.register_forward_hook(lambda _, args, result: result + args[0]),
    "before": lambda layer: layer.register_forward_pre_hook(lambda _, args: (args[0] * 2,)),
    "with keywords": lambda layer: layer.register_forward_hook(
        lambda layer, args, kwargs, result: result * layer.up.bias.sum(), with_kwargs=True
    ),
    "inside": lambda layer: layer.up.register_forward_hook(lambda _, args, result: result * 2),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_run_once(hook):
    blocks = [Block() for _ in range(3)]
    for block in blocks:
        HOOKS[hook](block)
    assert functions(extracted(Stack(*blocks))) == ["layers"] * 3


def test_hooks_of_all_modules_keep_layers_flat():
    def doubled(module: nn.Module, args: Any, result: Any) -> Any:
        return result * 2 if isinstance(module, Block) else None

    handle = nn.modules.module.register_module_forward_hook(doubled)
    try:
        ir = extracted(Stack(*[Block() for _ in range(3)]))
    finally:
        handle.remove()
    assert functions(ir) == ["hooks are registered for all modules"] * 3


def test_layers_that_only_call_layers():
    ir = extracted(Stack(*[nn.Sequential(*[nn.Linear(4, 4), nn.Tanh()] * 2) for _ in range(3)]))
    assert ir.metadata["regions"] == {f"layers.{i}": {"function": "layers"} for i in range(3)}


class PartlyCast(Stack):
    """It calls every second layer in a region that switches autocast off."""

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            with torch.autocast("cpu", torch.bfloat16, enabled=index % 2 == 0):
                x = layer(x)
        return x


def test_layers_in_regions_under_autocast_stay_flat():
    reasons = functions(extracted(PartlyCast(*[Block() for _ in range(4)])))
    assert "layers.1 is called in a region under autocast" in reasons[1]


class Casting(Block):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


def test_layers_with_regions_under_autocast_have_no_line_of_ours():
    model = Stack(*[Casting() for _ in range(3)]).eval().requires_grad_(False)
    ir = extract_ir(model, (X,), regions="auto", verify_regions=True)
    assert functions(ir) == ["layers"] * 3
    files = {node.location.file for _, _, node in inline_functions(ir).walk() if node.location}
    assert not any(file.endswith("opaque.py") for file in files)


class Remembers(Block):
    """It fills a cache at the first call, counts its calls, and notes them in a list of all."""

    def __init__(self, notes: list[int]):
        super().__init__()
        self.cache: dict[str, torch.Tensor] = {}
        self.calls, self.notes = 0, notes

    def forward(self, x):
        if "bias" not in self.cache:
            self.cache["bias"] = self.up.bias[:4] * 2
        self.calls += 1
        self.notes.append(self.calls)
        self.seen = x * self.calls
        return super().forward(self.seen) + self.cache["bias"]


@pytest.mark.parametrize("regions", [None, "auto", ["layers.0", "layers.1"]])
@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_what_layers_remember_is_as_it_was_before_they_were_traced(regions):
    notes: list[int] = []
    model = Stack(*[Remembers(notes) for _ in range(3)]).eval().requires_grad_(False)
    for _ in range(2):
        ir = extract_ir(model, (X,), regions=regions)
        for layer in model.layers:
            assert layer.notes is notes
            assert (layer.cache, layer.calls, layer.notes, hasattr(layer, "seen")) == (
                *({}, 0, []),
                False,
            )
        got = IRExecutor(ir, model.state_dict())(X)
        assert same(got, copy.deepcopy(model)(X))


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_layers_that_remember_are_one_function():
    model = Stack(*[Remembers([]) for _ in range(3)])
    assert functions(extracted(model)) == ["layers"] * 3
