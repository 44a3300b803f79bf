"""Values that the strides of an operand decide: every form of a program gives eager's, or refuses.

``as_strided`` reads memory; ``select_scatter`` and its like write to a copy with the strides of
their operand, in which windows lie at one place. A form whose values lie otherwise is another
program.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import parse
from torch_ir.errors import ExecutionError, InputError, PassError
from torch_ir.passes import run_passes
from torch_ir.passes.pass_registry import pass_names, passes_named
from torch_samples import first_samples, op_db


def _read(x: torch.Tensor, stride: tuple[int, int] = (1, 3)) -> torch.Tensor:
    return torch.as_strided(x, (3, 2), stride) + 1


def _windows(x: torch.Tensor) -> torch.Tensor:
    return x.flatten().unfold(0, 3, 1)


def _written(x: torch.Tensor) -> torch.Tensor:
    turned = (x * 2).t()
    turned.as_strided((3, 2), (1, 3)).fill_(7)
    return turned + 1


PROGRAMS = {
    "turned": lambda x: _read(x.t()),
    "turned result": lambda x: _read((x * 2).t()),
    "result of a turned one": lambda x: _read(x.t() * 2),
    "gelu of a turned one": lambda x: _read(nn.functional.gelu(x.t())),
    "flipped": lambda x: _read(torch.flip(x.t(), [0])),
    "windows": lambda x: _read(_windows(x)),
    "rows": lambda x: _read(x[1:], (1, 2)),
    "rows from the start": lambda x: torch.as_strided(x[1:], (3, 2), (1, 3), 0) + 1,
    "copied": lambda x: _read(x.t().contiguous()) + _read(x.t().clone()),
    "converted": lambda x: _read((x.t() + 0).to(torch.float32)),
    "joined": lambda x: _read(torch.cat([x.t()])),
    "shaped anew": lambda x: _read(x.t().reshape(4, 3)) + _read(x.t().flatten()),
    "dropped": lambda x: _read(nn.functional.dropout(x.t(), 0.5, False)),
    "channels last": lambda x: _read(
        torch.relu(x.view(1, 2, 3, 2).to(memory_format=torch.channels_last))
    ),
    "written": _written,
    "scattered": lambda x: torch.as_strided_scatter(x.t(), x[:, :2], (3, 2), (1, 3)) + 1,
    "scattered result": lambda x: torch.as_strided_scatter(
        torch.sin(x.t()), x[:, :2], (3, 2), (1, 3)
    ),
    "selected windows": lambda x: torch.select_scatter(_windows(x), x.flatten()[:10], 1, 1) + 1,
    "sliced windows": lambda x: torch.slice_scatter(_windows(x), x.view(-1, 1)[:10], 1, 0, 1),
    "diagonal of windows": lambda x: torch.diagonal_scatter(_windows(x)[:3], x[0, :3]),
    "copied windows": lambda x: torch.select_scatter(_windows(x).clone(), x.flatten()[:10], 1, 1),
}
FORMS = {
    "export": lambda ir: ir,
    "aten": torch_ir.functionalize,
    "core_aten": torch_ir.decompose,
    "edge": lambda ir: torch_ir.to_edge(ir).ir(),
}
REFUSED = {
    "core_aten": {"selected windows", "sliced windows", "diagonal of windows"},
    "edge": {"selected windows", "sliced windows", "diagonal of windows"}
    | {"scattered", "scattered result"},
}
"""What cannot be lowered: nothing says in values alone which of them lie at one place."""


class Program(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.function = PROGRAMS[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_eager_gives_or_refuses(name: str, form: str, x: torch.Tensor):
    model = Program(name).eval()
    ir = torch_ir.extract_ir(model, (x,))
    if name in REFUSED.get(form, ()):
        with pytest.raises(PassError, match="it reads memory by strides of %"):
            FORMS[form](ir)
        return
    lowered, expected = FORMS[form](ir), model(x.clone())
    assert torch.equal(torch_ir.compile(lowered, {})(x.clone()), expected)
    for inner in pass_names() if form == "export" else ():
        if inner == "decompose" and name in REFUSED["core_aten"]:
            continue
        changed = run_passes(lowered, passes_named(inner)).ir
        assert torch.equal(torch_ir.compile(changed, {})(x.clone()), expected), inner
    if name in REFUSED["edge"]:
        message = "reads memory by strides, and the denotation has values alone"
        with pytest.raises(ExecutionError, match=message):
            torch_ir.compile(lowered, {}, backend="reference")
        return
    reference = torch_ir.compile(lowered, {}, backend="reference")
    torch.testing.assert_close(reference(x.clone()), expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_strides_decide_is_compared_with_eager_alone(name: str, x: torch.Tensor):
    ir = torch_ir.extract_ir(Program(name).eval(), (x,))
    report = torch_ir.validate(ir, {}, (x,))
    assert report.verdict in ("agree", "not compared"), str(report)
    assert set(report.not_compared.values()) <= {"it reads memory by strides, not a value"}
    comparison = torch_ir.compare(ir, {}, (x,))
    assert "DISAGREES" not in str(comparison)


def test_the_denotation_refuses_an_input_whose_memory_is_read_and_is_not_its_own(x: torch.Tensor):
    ir = torch_ir.extract_ir(Program("turned").eval(), (x,))
    run = torch_ir.compile(ir, {}, backend="reference")
    with pytest.raises(InputError) as caught:
        run(torch.ones(6, 4)[::2])
    assert str(caught.value) == (
        "input %x is a view, and the program reads its memory by strides\n"
        "Give it a copy in memory of its own: x.contiguous().clone()."
    )


def test_the_denotation_refuses_a_weight_whose_memory_is_read_and_lies_in_another_order():
    ir = parse("""ir {
      weight @w: f32[3, 4]
      %y: f32[3, 2] = aten.as_strided.default(@w, size=[3, 2], stride=[1, 3])
      return %y
    }""")
    weight = torch.arange(12.0).view(3, 4)
    expected = torch.as_strided(weight, (3, 2), (1, 3))
    assert torch.equal(torch_ir.compile(ir, {"w": weight}, backend="reference")()[0], expected)
    turned = {"w": weight.t().contiguous().t()}
    assert not torch.equal(torch_ir.compile(ir, turned)()[0], expected)
    with pytest.raises(ExecutionError, match="reads memory by strides"):
        torch_ir.compile(ir, turned, backend="reference")


def test_copies_stay_where_views_would_change_what_is_read():
    ir = parse("""ir {
      dialect "edge"
      input %x: f32[3, 4]
      %t: f32[4, 3] = aten.permute_copy.default(%x, dims=[1, 0])
      %y: f32[3, 2] = aten.as_strided_copy.default(%t, size=[3, 2], stride=[1, 3])
      return %y
    }""")
    x = torch.arange(12.0).view(3, 4)
    expected = torch.as_strided_copy(torch.permute_copy(x, [1, 0]), [3, 2], [1, 3])
    assert torch.equal(torch_ir.compile(ir, {})(x)[0], expected)


# -- the law: which operators these are -----------------------------------------------------------

_KNOWN = {"as_strided", "as_strided_copy", "as_strided_scatter"}
_KNOWN |= {"diagonal_scatter", "select_scatter", "slice_scatter"}
_OPEN = {"cauchy", "exponential", "geometric", "log_normal", "normal", "uniform", "multinomial"}
_OPEN |= {"empty_like", "bernoulli", "rand_like", "randn_like", "randint_like"}
"""Operators that draw in the order of memory, or give what was in it."""


def _in_windows(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor of that shape whose neighbors in every dimension lie at one place."""
    count = sum(tensor.shape) - tensor.dim() + 1
    if tensor.layout is not torch.strided or tensor.dim() < 2 or tensor.numel() < 2:
        return None
    memory = tensor.detach().reshape(-1)[:count].clone()
    return memory.as_strided(tensor.shape, (1,) * tensor.dim())


def test_no_other_operator_gives_other_values_of_windows():
    found = set()
    for entry in op_db:
        # the fused kernel of attention reads what nothing wrote, of a query that is no dense one
        is_left = (
            "scaled_dot" in entry.name or "jiterator" in entry.name
        )  # GPUs alone run the other
        if is_left or torch.float32 not in entry.supported_dtypes("cpu"):
            continue
        for sample in first_samples(entry, torch.float32, 5):
            first = _in_windows(sample.input) if isinstance(sample.input, torch.Tensor) else None
            if first is None:
                continue
            made = []
            for given in (first, first.contiguous()):
                torch.manual_seed(0)
                try:
                    made.append(entry.op(given, *sample.args, **sample.kwargs))
                except (RuntimeError, IndexError, ValueError):
                    break
            flat = [torch.utils._pytree.tree_leaves(one) for one in made]
            for one, other in zip(*flat, strict=True) if len(flat) == 2 else ():
                is_dense = isinstance(one, torch.Tensor) and one.layout is torch.strided
                if is_dense and not torch.allclose(one, other, 1e-3, 1e-3, equal_nan=True):
                    found.add(entry.name)
    assert found - _OPEN == _KNOWN
