"""Several values that are put at one place: any of them is right, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from torch_ir import IR, DelegateBackend, OpNode, extract_ir, register_executor, validate, verify
from torch_ir.backends import SUPPORTED, Support
from torch_ir.debug.reference.eager_call import call_plainly
from torch_ir.executor import unregister_executor

REASON = "several values are put at one place, and which stays is open"
PLACE, VALUES = 1, (2.0, -3.0, 5.0)
INDICES = torch.tensor([PLACE, PLACE, PLACE, 3])
TENSOR = torch.tensor([*VALUES, 4.0])
Function = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], Any]

FORMS: Mapping[str, Function] = {
    "index_put": lambda m, x, i, v: x.index_put((i,), v),
    "_unsafe_index_put": lambda m, x, i, v: torch.ops.aten._unsafe_index_put(x, [i], v),
    "index_copy": lambda m, x, i, v: x.index_copy(0, i, v),
    "put": lambda m, x, i, v: x.put(i, v),
    "scatter": lambda m, x, i, v: x.scatter(0, i, v),
    "as_strided_scatter": lambda m, x, i, v: x.as_strided_scatter(v.view(2, 2), (2, 2), (1, 1)),
    "max_unpool2d": lambda m, x, i, v: torch.ops.aten.max_unpool2d(
        v.reshape(1, 2, 2), i.reshape(1, 2, 2), [1, 5]
    ),
    "max_unpool3d": lambda m, x, i, v: torch.ops.aten.max_unpool3d(
        v.reshape(1, 1, 2, 2), i.reshape(1, 1, 2, 2), [1, 1, 5], [1, 1, 1], [0, 0, 0]
    ),
    "index_put_": lambda m, x, i, v: x.clone().index_put_((i,), v),
    "index_copy_": lambda m, x, i, v: x.clone().index_copy_(0, i, v),
    "put_": lambda m, x, i, v: x.clone().put_(i, v),
    "scatter_": lambda m, x, i, v: x.clone().scatter_(0, i, v),
    "an input": lambda m, x, i, v: (x.index_put_((i,), v), x * 1)[1],
    "a buffer": lambda m, x, i, v: (m.state.scatter_(0, i, v), x * 1)[1],
}
PUTTING = ("put", "copy", "scatter", "unpool")


class Module(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("state", torch.zeros(5))

    def forward(self, x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> Any:
        return self.function(self, x, i, v)


def _extracted(function: Function) -> tuple[IR, Module, tuple[torch.Tensor, ...]]:
    inputs = torch.zeros(5), INDICES, TENSOR
    model = Module(function)
    return extract_ir(Module(function), inputs), model, tuple(t.clone() for t in inputs)


def _putting(ir: IR) -> OpNode:
    (node,) = [n for n in ir.nodes if any(part in n.op_type for part in PUTTING)]
    return node


@contextmanager
def _leaving(ir: IR, node: OpNode, value: float) -> Generator[None]:
    """Let a node leave a value at the place to which three are put."""

    def kernel(inputs: Sequence[torch.Tensor], attributes: Mapping[str, Any]) -> list[Any]:
        made = call_plainly(node, inputs, {}, ir.functions, torch.device("cpu"))
        made[0].view(-1)[PLACE] = value
        return made

    register_executor(node.op_type)(kernel)
    try:
        yield
    finally:
        unregister_executor(node.op_type)


@pytest.mark.parametrize("form", FORMS)
def test_any_of_the_values_is_right(form: str) -> None:
    ir, model, inputs = _extracted(FORMS[form])
    weights = model.state_dict()
    for value in VALUES[1:] if "strided" in form else VALUES:
        with _leaving(ir, _putting(ir), value):
            assert validate(ir, weights, inputs).verdict == "agree"
            assert validate(ir, weights, inputs, against=["denotation"]).verdict == "agree"
            report = validate(ir, weights, inputs, against=["eager"])
        assert report.verdict != "disagree"
        assert set(report.not_compared.values()) <= {REASON}


@pytest.mark.parametrize("form", FORMS)
def test_no_other_value_is_right(form: str) -> None:
    ir, model, inputs = _extracted(FORMS[form])
    for value in (0.0, 2.0000002):
        for reader in ("denotation", "eager"):
            with _leaving(ir, _putting(ir), value):
                report = validate(ir, model.state_dict(), inputs, against=[reader])
            assert report.verdict == "disagree", (value, reader)
            assert report.first is not None
            assert report.first.node == _putting(ir).name


class First(DelegateBackend):
    """Takes puts and what follows; of several values the first stays, and some are wrong."""

    name = "first"

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def supports(self, node: OpNode, ir: IR) -> Support:
        return SUPPORTED  # it is asked for puts and relu alone

    def compile(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Any:
        def put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            made = x.clone()
            for place, value in reversed([*zip(i.tolist(), v.tolist(), strict=True)]):
                made[place] = value * self.factor if place == PLACE else value
            return made

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            values = dict(zip(ir.input_names, tensors, strict=True))
            for node in ir.nodes:
                call = put if "put" in node.op_type else torch.relu
                values[node.name] = call(*[values[meta.name] for meta in node.inputs])
            return [values[name] for name in ir.output_names]

        return run


def test_a_backend_may_keep_another_value_than_torch() -> None:
    for function in (FORMS["index_put"], lambda m, x, i, v: x.index_put((i,), v).relu()):
        ir, model, inputs = _extracted(function)
        report = validate(ir, model.state_dict(), inputs, backend=First())
        assert report.verdict != "disagree", str(report)
        assert set(report.not_compared.values()) <= {REASON}
        verified = verify(ir, model, inputs, backend=First())
        assert (verified.verdict, verified.undecided) == ("not compared", REASON)
    ir, model, inputs = _extracted(FORMS["index_put"])
    assert validate(ir, model.state_dict(), inputs, backend=First(1.5)).verdict == "disagree"
    verified = verify(ir, model, (*inputs[:2], inputs[2] * 0 + 1), backend=First(1.5))
    assert verified.verdict == "disagree"


def test_what_follows_in_a_function_is_open() -> None:
    def function(m: Any, x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> Any:
        return torch.cond(
            x.sum() < 1,
            lambda x, i, v: x.index_put((i,), v).exp(),
            lambda x, i, v: x + v[0],
            (x, i, v),
        )

    ir, model, inputs = _extracted(function)
    (node,) = [node for node in ir.nodes if "cond" in node.op_type]
    with _leaving(ir, node, torch.tensor(VALUES[0]).exp().item()):
        report = validate(ir, model.state_dict(), inputs)
    assert report.verdict == "not compared"
    assert set(report.not_compared.values()) == {REASON}
