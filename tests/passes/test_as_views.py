"""Writes through operators that give lists of views, and beside them."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import torch_ir
from torch_ir import decompose, extract_ir, functionalize, parse
from torch_ir.errors import TorchIRError
from torch_ir.passes import passes_named, run_passes
from torch_samples import first_samples, op_db


def broadcast_first(a, b):
    x, y = torch.broadcast_tensors(a, b)
    x[0] = 5
    return x * 2, y + 0, a + 0


def broadcast_twice(a, b):
    x, y = torch.broadcast_tensors(a, a[:1])
    y[0].mul_(3)
    return x + 0, y + 0, a + b


def broadcast_base(a, b):
    x, y = torch.broadcast_tensors(a, b)
    a.mul_(2)
    return x + 0, y + 0


def grid_line(a, b):
    x, y = torch.meshgrid(a[:, 0], b[0], indexing="ij")
    x[:, 0].mul_(3)
    return x + 0, y + 0, a + 0


def grid_base(a, b):
    x, y = torch.meshgrid(a[:, 0], b[0], indexing="xy")
    b[0].add_(3)
    return x + 0, y + 0, b + 0


def grid_of_numbers(a, b):
    x, y, z = torch.meshgrid(a[0, 0], b[0, 0], a[0], indexing="xy")
    z[0, 0].add_(3)
    return x + 0, y + 0, z + 0, a + 0


def at_least_three(a, b):
    x, y = torch.atleast_3d([a, b[0]])
    x.mul_(2)
    y[0].zero_()
    return x + 0, y + 0, a + 0, b + 0


def at_least_one(a, b):
    x, y = torch.atleast_1d(a[0, 0], b)
    x.add_(2)
    return x + 0, y + 0, a + 0


def edges(a, b):
    bins = [a[:2, 0].abs().cumsum(0), b[0].abs().cumsum(0)]
    counts, made = torch.histogramdd(a[:, :2], bins)
    made[0].mul_(2)
    made[1].add_(1)
    return counts + 0, made[0] + 0, bins[0] + 0, bins[1] + 0


MODELS = (
    *(broadcast_first, broadcast_twice, broadcast_base, grid_line, grid_base, grid_of_numbers),
    *(at_least_three, at_least_one, edges),
)


@pytest.mark.parametrize("lowered", [functionalize, decompose])
@pytest.mark.parametrize("function", MODELS)
def test_what_is_written_is_what_eager_writes(function, lowered):
    class Model(nn.Module):
        def forward(self, a, b):
            return function(a, b)

    torch.manual_seed(0)
    inputs = torch.randn(4, 3), torch.randn(1, 3)
    written = [tensor.clone() for tensor in inputs]
    ir = extract_ir(Model(), tuple(tensor.clone() for tensor in inputs))
    wanted = Model()(*written)
    for program in (ir, lowered(ir)):
        given = [tensor.clone() for tensor in inputs]
        made = torch_ir.compile(program, {})(*given)
        assert all(map(torch.equal, made, wanted))
        assert all(map(torch.equal, given, written))


@pytest.mark.parametrize("function", MODELS)
def test_a_pass_says_of_what_views_are_made(function):
    class Model(nn.Module):
        def forward(self, a, b):
            return function(a, b)

    ir = extract_ir(Model(), (torch.randn(4, 3), torch.randn(1, 3)))
    assert run_passes(ir, passes_named("functionalize"), verify="each").ir == functionalize(ir)


def test_edges_that_are_the_callers_are_known_to_be_written():
    class Edges(nn.Module):
        def forward(self, x, first, second):
            made = torch.histogramdd(x, [first, second]).bin_edges
            made[1].mul_(2)
            return made[0] + made[1]

    call = torch.rand(9, 2), torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 0.25, 1.0])
    ir = extract_ir(Edges(), call)
    assert [mutation.target for mutation in ir.mutations] == ["second"]
    assert torch_ir.validate(ir, {}, call).verdict == "agree"


def test_results_of_a_node_with_names_of_their_own_stay_apart():
    ir = parse("""ir {
      input %x: f32[4]
      %a: f32[2], %b: f32[2] = pair: aten.split.Tensor(%x, 2)
      %z: f32[4] = aten.exp_.default(%x)
      %s: f32[2] = aten.add.Tensor(%a, %b)
      %t: f32[2] = aten.mul.Tensor(%b, %s)
      return %s, %t
    }""")
    program = functionalize(ir)
    assert not program.check()
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    first, second = torch_ir.compile(program, {})(x.clone())
    assert torch.equal(first, x.exp()[:2] + x.exp()[2:])
    assert torch.equal(second, first * x.exp()[2:])


@pytest.mark.parametrize("is_base", [False, True])
def test_parts_whose_sizes_data_decides(is_base):
    class Parts(nn.Module):
        def forward(self, x, places):
            first, second, third = torch.tensor_split(x, places)
            (x if is_base else second).mul_(3)
            return first + 0, second + 0, third + 0

    x, places = torch.randn(7, 3), torch.tensor([2, 3])
    ir = extract_ir(Parts(), (x.clone(), places))
    for at in ([2, 3], [0, 7], [4, 4]):
        given, written = x.clone(), x.clone()
        made = torch_ir.compile(functionalize(ir), {})(given, torch.tensor(at))
        wanted = Parts()(written, torch.tensor(at))
        assert all(map(torch.equal, made, wanted))
        assert torch.equal(given, written)


class Shared(NamedTuple):
    """A call of one of torch's own samples, of whose results one shares an argument's memory."""

    call: object
    tensors: list[torch.Tensor]
    position: int


def shared_results(entry):
    is_float = torch.float32 in entry.dtypes
    for sample in first_samples(entry, torch.float32, 3) if is_float else ():
        leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[i].detach().clone() for i in places]
        if not tensors or any(t.layout is not torch.strided for t in tensors):
            continue

        def call(given, entry=entry, leaves=leaves, spec=spec, places=places):
            known = dict(zip(places, given, strict=True))
            args, kwargs = tree_unflatten([known.get(i, x) for i, x in enumerate(leaves)], spec)
            made = tree_leaves(entry.op(*args, **kwargs))
            return [t for t in made if isinstance(t, torch.Tensor)]

        given = [tensor.clone() for tensor in tensors]
        taken = {t.untyped_storage().data_ptr() for t in given if t.numel()}
        try:
            results = call(given)
        except RuntimeError:  # a view of more memory than a copy has
            continue
        for position, result in enumerate(results):
            is_plain = result.layout is torch.strided and result.dtype is torch.float32
            if is_plain and result.numel() and result.untyped_storage().data_ptr() in taken:
                yield Shared(call, tensors, position)
                break


def written_through(shared, *, is_base):
    class Write(nn.Module):
        def forward(self, *tensors):
            made = shared.call(tensors)
            if is_base:
                for tensor in tensors:
                    if tensor.dtype is torch.float32:
                        tensor.mul_(3)
            else:
                made[shared.position].mul_(2)
            return tuple([torch.add(t, 0) for t in made if t.layout is torch.strided])

    return Write()


REFUSED = {"as_strided", "cartesian_prod", "unfold"}
"""Writes to overlapping memory, and what none writes through."""
NOT_EXPORTED = {"narrow", "tensor_split"}
"""torch.export refuses their samples, and leaves modes of its tracing behind."""
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}


def test_a_write_beside_each_view_of_torchs_operators_is_what_eager_writes():
    seen, refused = set(), set()
    for entry in op_db:
        if entry.name in UNINITIALIZED | NOT_EXPORTED or entry.name.startswith(
            "jiterator"
        ):  # of GPUs only
            continue
        for shared, is_base in itertools.product(shared_results(entry), (False, True)):
            model = written_through(shared, is_base=is_base)
            written, given = [[t.clone() for t in shared.tensors] for _ in range(2)]
            try:
                wanted = model(*written)
            except RuntimeError:  # eager writes to no memory that overlaps
                continue
            seen.add(entry.name)
            try:
                ir = functionalize(extract_ir(model, tuple([t.clone() for t in given])))
                if any(ir.effects(node).draws for node in ir.nodes):
                    continue  # torch's sample sets a seed of its own
            except TorchIRError:
                refused.add(entry.name)
                continue
            made = torch_ir.compile(ir, {})(*given)
            for first, second in zip([*made, *given], [*wanted, *written], strict=True):
                torch.testing.assert_close(
                    first, second, rtol=0, atol=0, equal_nan=True, msg=entry.name
                )
    assert len(seen) > 60
    assert refused <= REFUSED
