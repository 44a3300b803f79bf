"""Tensor parallel programs: what one rank computes on its shards of the weights."""

from __future__ import annotations

import copy
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn
from torch.fx.experimental.proxy_tensor import make_fx

from torch_ir.arguments import public
from torch_ir.errors import ExportError
from torch_ir.frontend.export import extract_ir
from torch_ir.ir import IR
from torch_ir.torch_api import fake_store, pytree


@public
def extract_parallel(
    model: nn.Module,
    example_inputs: tuple[Any, ...],
    plan: Mapping[str, Any],
    *,
    ranks: int,
    rank: int = 0,
    group: str = "tp",
) -> IR:
    """Extract what one rank computes, on its own shards of the weights.

    The model is parallelized by torch (``parallelize_module``) under a process group that sends
    nothing, so one process suffices. The weights keep their names; ``ir.metadata["shards"]`` has
    the dimension and the number of parts of those that are split. All ranks have one program,
    unless the plan splits a vocabulary: its rows differ from rank to rank.

    Args:
        model: The whole model; it is not changed, and its weights are not read.
        example_inputs: The arguments of one rank.
        plan: torch's styles by module path: ``{"up": ColwiseParallel(), ...}``.
        ranks: How many ranks there are.
        rank: The rank whose program it is.
        group: The name of the group in the program.

    Raises:
        ExportError: A process group is in use, a weight cannot be split evenly, or torch refuses
            the model.

    Example:
        >>> from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        >>> plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        >>> ir = extract_parallel(model, (torch.ones(1, 4),), plan, ranks=2)
        >>> ir.weights[0].shape, dict(ir.metadata["shards"]["0.weight"])
        ((4, 4), {'dim': 0, 'parts': 2})
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import parallelize_module

    with _fake_group(rank, ranks), torch.no_grad():
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=(group,))
        split = parallelize_module(_without_weights(model), mesh, dict(plan))
        tensors = {**dict(split.named_parameters()), **dict(split.named_buffers())}
        placed = {n: t.placements for n, t in tensors.items() if isinstance(t, DTensor)}
        shards = _shards(tensors, placed, ranks)
        local = {name: _local(tensor) for name, tensor in tensors.items()}

        program = make_fx(_on_shards(split, mesh, placed), tracing_mode="fake")(
            local, *example_inputs
        )
        ir = extract_ir(
            _Local(program, local),
            example_inputs,
            groups={group: mesh.get_group()},
            model_name=type(model).__name__,
        )
    return ir.replace(metadata={**ir.metadata, "shards": shards})


def _on_shards(model: nn.Module, mesh: Any, placed: Mapping[str, Any]) -> Any:
    """Return the function of shards and arguments that the parallelized model is."""
    from torch.distributed.tensor import DTensor

    def call(local: Mapping[str, torch.Tensor], *args: Any) -> Any:
        given = {
            name: DTensor.from_local(tensor, mesh, placed[name], run_check=False)
            if name in placed
            else tensor
            for name, tensor in local.items()
        }
        made = torch.func.functional_call(model, given, args)
        return pytree.tree_map_only(DTensor, lambda made: made.full_tensor(), made)

    return call


@contextmanager
def _fake_group(rank: int, ranks: int) -> Generator[None]:
    if distributed.is_initialized():
        raise ExportError(
            "a process group is in use, and a program for ranks is extracted under one that "
            "sends nothing",
            remedy="Extract in a process without one, save the program, and load it in each.",
        )
    hook = sys.excepthook  # torch puts one in its place, which prefixes every traceback
    distributed.init_process_group("fake", store=fake_store(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        distributed.destroy_process_group()
        sys.excepthook = hook


def _without_weights(model: nn.Module) -> nn.Module:
    """Copy a model with its parameters on meta; its buffers keep their values."""
    on_meta = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad)
        for p in model.parameters()
    }
    return copy.deepcopy(model, dict(on_meta)).eval()


def _local(tensor: Any) -> torch.Tensor:
    here = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return torch.empty(here.shape, dtype=here.dtype) if here.is_meta else here.detach()


def _shards(
    tensors: Mapping[str, Any], placed: Mapping[str, Any], ranks: int
) -> dict[str, dict[str, int]]:
    """Return the dimension and the number of parts of each weight that is split."""
    shards: dict[str, dict[str, int]] = {}
    for name, (placement,) in placed.items():
        if not placement.is_shard():
            continue
        size = tensors[name].shape[placement.dim]
        if size % ranks:
            raise ExportError(
                f"dimension {placement.dim} of {name!r} is {size}, "
                f"which {ranks} ranks cannot share"
            )
        shards[name] = {"dim": placement.dim, "parts": ranks}
    return shards


class _Local(nn.Module):
    """A traced program with the shards of one rank, under the names of the whole model."""

    def __init__(self, program: nn.Module, tensors: Mapping[str, torch.Tensor]):
        super().__init__()
        self.traced_program = program
        for name, constant in list(program.named_buffers(recurse=False)):
            program.register_buffer(name, constant, persistent=False)  # a constant, not a weight
        self.names = tuple(tensors)
        for name, tensor in tensors.items():
            *path, last = name.split(".")
            home: nn.Module = self
            for part in path:
                if part not in home._modules:  # pyright: ignore[reportPrivateUsage]  # a name may be any text
                    home.add_module(part, nn.Module())
                home = home.get_submodule(part)
            home.register_parameter(last, nn.Parameter(tensor, requires_grad=False))

    def forward(self, *args: Any) -> Any:
        return self.traced_program({name: self.get_parameter(name) for name in self.names}, *args)
