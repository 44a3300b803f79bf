"""A program through everything that keeps it, from the CPU and from meta, compared with eager."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import torch_ir
from torch_ir import IR, IRExecutor
from torch_ir.executor import check_types


class Lambda(nn.Module):
    """A module of one function; it is given the module and has two layers, a weight and a buffer.

    Layers that the function does not use leave no trace in the program but their names.
    """

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("total", torch.zeros(4))
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The function of the module and the arguments."""
        return self.function(self, *args, **kwargs)


def same(left: Any, right: Any) -> bool:
    """Whether two results have the same structure, types, dtypes, shapes and bits."""
    left_leaves, left_spec = pytree.tree_flatten(left)
    right_leaves, right_spec = pytree.tree_flatten(right)
    return left_spec == right_spec and all(map(_same_leaf, left_leaves, right_leaves))


def _same_leaf(left: Any, right: Any) -> bool:
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return type(left) is type(right) and left == right
    return left.dtype == right.dtype and left.shape == right.shape and _bits(left) == _bits(right)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().resolve_conj().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def kept(ir: IR) -> IR:
    """The program as it comes back from a file, after every check of it and of its text."""
    findings = [*ir.check(), *check_types(ir)]
    assert not findings, [*map(str, findings)]
    assert torch_ir.parse(str(ir), constants=ir.constants) == ir
    with tempfile.TemporaryDirectory() as folder:
        for name in ("program.tir", "program.json"):
            ir.save(Path(folder, name))
            loaded = torch_ir.load_ir(Path(folder, name))
            assert loaded == ir
    return loaded


def extracted(make: Callable[[], nn.Module], args: tuple[Any, ...], **options: Any) -> list[IR]:
    """The programs of a model on the CPU and on meta; they are told to be the same calls."""
    programs: list[IR] = []
    for device in ("cpu", "meta"):
        given = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), args)  # noqa: B023  # called at once
        programs.append(torch_ir.extract_ir(_made(make, device), given, **options))
    calls = [[(node.name, node.op_type) for node in ir.nodes] for ir in programs]
    assert calls[0] == calls[1], calls
    return programs


def runs_as_eager(
    make: Callable[[], nn.Module],
    *calls: tuple[Any, ...],
    programs: list[IR] | None = None,
    **options: Any,
) -> IR:
    """The program of the model on the CPU, after calls that gave the bits of eager.

    It is extracted for the first call, and runs all of them in order, each from the same seed; the
    state that it keeps and the arguments that it writes are compared too.
    """
    programs = extracted(make, calls[0], **options) if programs is None else programs
    for ir in programs:
        model = _made(make, "cpu")
        weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        executor = IRExecutor(kept(ir), weights)
        for call in calls:
            mine, theirs = copy.deepcopy(call), copy.deepcopy(call)
            torch.manual_seed(1)
            got = executor(*mine)
            torch.manual_seed(1)
            with torch.no_grad():
                expected = model(*theirs)
            assert same(got, expected), (got, expected)
            assert same(mine, theirs)
        state = model.state_dict()
        assert same(executor.buffers, {key: state[key] for key in executor.buffers})
    return programs[0]


def _made(make: Callable[[], nn.Module], device: str) -> nn.Module:
    torch.manual_seed(0)
    with torch.device(device):
        model = make()
    return model.requires_grad_(False)
