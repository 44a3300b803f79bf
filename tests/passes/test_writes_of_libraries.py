"""Operators of libraries that write to their arguments, and the functional ones beside them."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import decompose, extract_ir, functionalize
from torch_ir.errors import PassError
from torch_ir.executor import IRExecutor
from torch_ir.ir.queries import op_types


def _damp(x, by=0.5):
    x.mul_(by)


class Damped(nn.Module):
    def forward(self, x):
        y = x + 1
        torch.ops.writing_library.damp_(y[0], 0.25)
        return y * 2


def test_an_operator_of_a_library_that_writes_becomes_the_one_without_an_underscore():
    x = torch.randn(2, 3)
    with torch.library._scoped_library("writing_library", "FRAGMENT") as library:
        library.define("damp_(Tensor(a!) x, float by=0.5) -> ()", tags=torch.Tag.pt2_compliant_tag)
        library.impl("damp_", _damp, "CompositeExplicitAutograd")
        ir = extract_ir(Damped(), (x,))
        with pytest.raises(PassError) as caught:
            functionalize(ir)
        assert caught.value.diagnostics[0].message == (
            "there is no operator that computes what it writes, such as "
            "writing_library.damp.default, which returns its results, then what it writes"
        )
        library.define("damp(Tensor x, float by=0.5) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
        library.impl("damp", lambda x, by=0.5: x * by, "CompositeExplicitAutograd")
        for lower in (functionalize, decompose):
            lowered = lower(ir)
            assert all(lowered.effects(n).is_pure for n in lowered.nodes)
            assert list(lowered.operators) == ["writing_library.damp.default"]
            assert torch.equal(IRExecutor(lowered)(x), Damped()(x))


# -- names without an underscore, as torch.library.custom_op takes them ---------------------------


@torch.library.custom_op("writing_ops::push", mutates_args={"rows"})
def push(rows: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Add to rows, and return twice what they are then."""
    rows.add_(by)
    return rows * 2


@torch.library.custom_op("writing_ops::push_functional", mutates_args=())
def push_functional(rows: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What push returns, and what it writes."""
    return (rows + by) * 2, rows + by


@torch.library.custom_op("writing_ops::count", mutates_args={"all"})
def count(all: list[torch.Tensor]) -> None:
    """Add 1 to each."""
    for one in all:
        one.add_(1)


push.register_fake(lambda rows, by: torch.empty_like(rows))
push_functional.register_fake(lambda rows, by: (torch.empty_like(rows), torch.empty_like(rows)))


class Pushes(nn.Module):
    """Writes to a buffer, to a part of it, and uses what is returned."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(3))

    def forward(self, x):
        first = push(by=x, rows=self.rows)
        push(self.rows[:2], first[1:])
        return self.rows + first


class Counts(nn.Module):
    def forward(self, x):
        one, other = x.clone(), x * 2
        count([one, other])
        return one + other


@pytest.mark.parametrize("lower", [functionalize, decompose])
def test_what_an_operator_returns_comes_before_what_it_writes(lower):
    model, x = Pushes(), torch.randn(3)
    lowered = lower(extract_ir(model, (x,)))
    assert {kind for kind in op_types(lowered) if kind.startswith("writing")} == {
        "writing_ops.push_functional.default"
    }
    run = IRExecutor(lowered, model.state_dict())
    for _ in range(3):
        assert torch.equal(run(x), model(x))
    assert torch_ir.verify(lowered, model, (x,))


def test_what_is_written_in_lists_is_returned_as_lists():
    x = torch.randn(3)
    ir = extract_ir(Counts(), (x,))
    with pytest.raises(PassError) as caught:
        functionalize(ir)
    assert caught.value.diagnostics[0].message == (
        "there is no operator that computes what it writes, such as "
        "writing_ops.count_functional.default, which returns its results, then what it writes"
    )
    with torch.library._scoped_library("writing_ops", "FRAGMENT") as library:
        library.define("count_functional(Tensor[] all) -> Tensor[]")
        library.impl("count_functional", lambda all: [x + 1 for x in all], "CPU")
        library.impl("count_functional", lambda all: [x + 1 for x in all], "Meta")
        assert torch.equal(IRExecutor(functionalize(ir))(x), Counts()(x))
