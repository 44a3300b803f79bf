"""Models whose programs have symbols, in a module that any process can import by one name."""

from __future__ import annotations

import hashlib

import torch
from torch import nn
from torch.export import Dim

import torch_ir
from torch_ir.serde import dumps

BATCH = Dim("batch", min=2, max=64)


class FromData(nn.Module):
    """Sizes and numbers that data gives, the first of them as a result only at the end."""

    def forward(self, x, y, n):
        large, small = x[x > 1], y[y > 1]
        count = n.item()
        torch._check(count >= 0)
        torch._check(count <= x.shape[0])
        enough = (large.shape[0] > 2) & (small.shape[0] > 3)
        total = y.sum().item() * 2.0
        return count * 2, torch.cat([large, small]), x[:count], total, enough


class Branches(nn.Module):
    """Control flow whose bodies and predicate know the sizes."""

    def forward(self, x, y):
        def twice(x, y):
            return torch.cat([x, y]) * 2, x.new_ones(x.shape[0] + y.shape[0]).sum()

        def once(x, y):
            return torch.cat([x, y]) + 1, x.sum()

        return torch.cond(x.shape[0] > y.shape[0], twice, once, (x, y)), x.shape[0] * y.shape[0]


class Even(nn.Module):
    """A guard, and a number among the arguments."""

    def forward(self, x, scale):
        return x.reshape(-1, 2) * scale, scale + x.shape[0]


DYNAMIC = {
    "from data": (
        FromData,
        (torch.arange(6.0), torch.arange(13.0), torch.tensor(2)),
        {"x": {0: BATCH}, "y": {0: 2 * BATCH + 1}, "n": None},
    ),
    "branches": (Branches, (torch.ones(5), torch.ones(4)), ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})),
    "guard": (Even, (torch.ones(6, 3), 4), ({0: Dim.DYNAMIC}, Dim.DYNAMIC)),
}


def extracted(name):
    make, args, shapes = DYNAMIC[name]
    return torch_ir.extract_ir(make().eval(), args, dynamic_shapes=shapes)


def hashes():
    """The hash of each program's document."""
    return {name: hashlib.sha256(dumps(extracted(name))).hexdigest() for name in DYNAMIC}
