"""Numbers read from tensors, and what is computed with them, are followed without nodes."""

import torch

from torch_ir import IRExecutor, extract_ir, parse


class Chosen(torch.nn.Module):
    """A size that a condition on data chooses."""

    def forward(self, x):
        size = torch.sym_ite(x.sum().item() > 2, 3, 1)
        return torch.full((size,), 7.0), size


class Positions(torch.nn.Module):
    """Where the pieces of a tensor begin depends on data."""

    def forward(self, x, positions):
        return torch.tensor_split(x, positions)


def test_a_condition_chooses_between_integers():
    ir = extract_ir(Chosen().eval(), (torch.tensor([3, 1]),))
    assert str(ir.nodes[-1]).startswith("%full: f32[2*int(u0 > 2) + 1] = aten.full.default(")
    assert parse(str(ir)) == ir
    assert ir.check() == ()
    for data, size in (([3, 1], 3), ([0, 2], 1)):
        result, number = IRExecutor(ir)(torch.tensor(data))
        assert torch.equal(result, torch.full((size,), 7.0))
        assert number == size


def test_a_number_read_from_a_bool_is_a_bool():
    class Item(torch.nn.Module):
        def forward(self, x):
            return x.item()

    ir = extract_ir(Item().eval(), (torch.tensor(True),))
    assert IRExecutor(ir)(torch.tensor(True)) is True
    assert IRExecutor(ir)(torch.tensor(False)) is False


def test_storage_offsets_that_depend_on_data_are_read_as_the_program_runs():
    x = torch.arange(12.0).reshape(6, 2)
    ir = extract_ir(Positions().eval(), (x, torch.tensor([1, 4])))
    assert parse(str(ir)) == ir
    for positions in ([1, 4], [0, 6], [3, 3]):
        expected = torch.tensor_split(x, torch.tensor(positions))
        got = IRExecutor(ir)(x, torch.tensor(positions))
        assert all(map(torch.equal, expected, got))
        assert [t.shape for t in got] == [t.shape for t in expected]
