"""Edge in the strict reading of its specification: no number in or out, anywhere."""

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from small_models import CASES
from torch_ir import IRExecutor, extract_ir, to_edge
from torch_ir.dialects import verify
from torch_ir.dialects.edge.dialect import edge_dialect
from torch_ir.errors import DialectError
from torch_ir.ir.tree import leaves
from whole_way import same

STRICT = edge_dialect(strict=True)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


FUNCTIONS = [
    lambda x: x > 0,
    lambda x: x.eq(0.5),
    lambda x: x % 3,
    lambda x: x.fmod(-2),
    lambda x: torch.div(x, 3, rounding_mode="floor"),
    lambda x: torch.add(x, x, alpha=1),
    lambda x: x.clamp(-0.5, 1),
    lambda x: x.clamp(min=0),
    lambda x: torch.full((2, 3), 7, dtype=x.dtype) + x.sum(),
    lambda x: torch.full_like(x, 2.5),
    lambda x: torch.arange(1, 9, 2) * x.sum(),
    lambda x: torch.zeros(3).masked_fill(torch.tensor([True, False, True]), 0.1) + x.sum(),
    lambda x: x.scatter(0, torch.tensor([0, 1]), 3),
    lambda x: torch.fill(x, 5),
    lambda x: nn.functional.pad(x, (1, 2)),
    lambda x: torch.where(x > 0, x, 0.1),
    lambda x: [x + 1, {"count": 3, "half": 0.5, "yes": True}],
]
FLOATS = [
    *(lambda x, power=power: (x.abs() + 0.1) ** power for power in (0, 1, 2, 3, 0.5, -1, -2)),
    lambda x: 2**x,
    lambda x: nn.functional.leaky_relu(x, 0.3),
    nn.functional.leaky_relu,
    nn.functional.hardtanh,
    nn.functional.relu6,
    lambda x: nn.functional.hardswish(x),
    lambda x: nn.functional.layer_norm(x, (67,)),
    lambda x: x.var(),
]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8)


def as_tensors(value):
    return torch.utils._pytree.tree_map(
        lambda leaf: (
            leaf
            if isinstance(leaf, torch.Tensor)
            else torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)
        ),
        value,
    )


def drawn(dtype):
    torch.manual_seed(0)
    values = torch.randn(67) * 3
    return values.abs().to(dtype) if dtype is torch.uint8 else values.to(dtype)


def assert_strict(functions, x):
    """One program for all, which gives the bits that torch gives after its decompositions."""
    exported = export(Function(lambda x: [function(x) for function in functions]), (x,))
    ir = to_edge(exported, strict=True).ir()
    assert verify(ir, STRICT) == ()
    numbers = [leaf for leaf in leaves(ir.signature.outputs) if not hasattr(leaf, "name")]
    assert numbers == []
    expected = as_tensors(exported.run_decompositions().module()(x))
    for number, (got, wanted) in enumerate(zip(IRExecutor(ir, {})(x), expected, strict=True)):
        assert same(got, wanted), number


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_becomes_a_tensor_that_gives_the_same_bits(dtype):
    assert_strict(FUNCTIONS, drawn(dtype))


def takes(function, x):
    try:
        function(x)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_bounds_that_the_type_does_not_hold_bound_as_torch_has_it(dtype):
    far = 2**40
    pairs = [(-1, None), (-1, 1), (None, 300), (-300, 300), (-far, far), (2, far), (-far, 7)]
    bounded = [
        *(lambda x, low=low, high=high: x.clamp(low, high) for low, high in pairs),
        *(lambda x, low=low: torch.clamp_min(x, low) for low, _ in pairs if low is not None),
        lambda x: nn.functional.hardtanh(x, -300, 300),
    ]
    x = torch.arange(256).to(dtype)
    assert_strict([lambda x: x + 1, *(f for f in bounded if takes(f, x))], x)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_floating_point])
def test_powers_and_activations_round_as_their_kernels_do(dtype):
    more = {torch.float16: (-0.5, 2.5, -3, 4), torch.bfloat16: (2.5, -3, 4)}
    powers = more.get(dtype, (-0.5,))
    others = [lambda x, power=power: (x.abs() + 0.1) ** power for power in powers]
    assert_strict([*FLOATS, *others], drawn(dtype))


@pytest.mark.parametrize(("dtype", "power"), [(torch.float32, 2.5), (torch.bfloat16, -0.5)])
def test_a_power_that_only_the_kernel_for_numbers_rounds_so_is_refused(dtype, power):
    with pytest.raises(DialectError) as caught:
        to_edge(export(Function(lambda x: x**power), (drawn(dtype),)), strict=True)
    assert [(v.code, v.found) for v in caught.value.violations] == [
        ("number-argument", str(power))
    ]


@pytest.mark.parametrize("name", ["linear", "conv", "attention", "einsum", "bert", "llama"])
def test_models_have_no_numbers(name):
    case = CASES[name]
    args, kwargs = case.inputs()
    ir = extract_ir(case.model(), args, kwargs=kwargs)
    strict = to_edge(ir, strict=True)
    weights = case.model().state_dict()
    assert verify(strict.ir(), STRICT) == ()
    assert same(
        IRExecutor(strict.ir(), weights)(*args, **kwargs),
        IRExecutor(to_edge(ir).ir(), weights)(*args, **kwargs),
    )


def test_what_needs_numbers_is_listed_in_one_error():
    def needs(x, scale):
        first = nn.functional.elu(x, 2.0) * scale
        return torch.add(first, x, alpha=3), x.shape[0]

    rows = ({0: Dim("rows", min=2, max=9)}, None)
    exported = export(Function(needs), (torch.ones(4), 1.5), dynamic_shapes=(rows,))
    with pytest.raises(DialectError) as caught:
        to_edge(exported, strict=True)
    found = caught.value.violations
    assert [(v.code, v.node, v.found) for v in found] == [
        ("number-in-signature", "", "1.5"),
        ("number-in-signature", "", "s0"),
        ("number-argument", "elu", "2.0"),
        ("number-argument", "add", "3"),
    ]
    assert {v.remedy for v in found} == {
        "to_edge(..., strict=True) makes a tensor where one does the same; else leave strict out."
    }
    assert verify(to_edge(exported).ir()) == ()
