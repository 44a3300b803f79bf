"""Programs as stages for ``torch.distributed.pipelining``, a process each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import nn

from torch_ir.arguments import public
from torch_ir.errors import CompileError
from torch_ir.executor import ExecGraph, compile_graph
from torch_ir.frontend.meta import fake_mode
from torch_ir.ir import IR
from torch_ir.passes.cutting import cut
from torch_ir.weights import load_weights

Weights = Mapping[str, torch.Tensor] | str | os.PathLike[str]
_Layout = tuple[torch.Tensor, ...]


class PipelineModule(nn.Module):
    """One stage of a program, which takes and gives tensors.

    Attributes:
        ir: The stage's program.
        input_args: Tensors without data like those that it takes, for one microbatch.
        output_args: Likewise those that it gives.
    """

    def __init__(self, ir: IR, graph: ExecGraph, given: _Layout, made: _Layout):
        super().__init__()
        self.ir = ir
        self._graph = graph
        self._given = given
        self.input_args = tuple([torch.empty_like(t, memory_format=_DENSE) for t in given])
        self.output_args = tuple([torch.empty_like(t, memory_format=_DENSE) for t in made])

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the stage. What it gives is contiguous, and never an argument itself.

        Values arrive contiguous, and get the strides again that they have in the whole program:
        kernels round by them.
        """
        given = [
            _laid_out(tensor, like) for tensor, like in zip(tensors, self._given, strict=True)
        ]
        taken = {id(tensor) for tensor in given} | {id(tensor) for tensor in tensors}
        results = [
            made.view_as(made) if id(made) in taken else made
            for made in map(torch.Tensor.contiguous, self._graph.eval(tuple(given)))
        ]
        return results[0] if len(results) == 1 else tuple(results)


_DENSE = torch.contiguous_format


def _laid_out(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    if tensor.stride() == like.stride() or tensor.shape != like.shape:
        return tensor
    made = torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype, device=tensor.device)
    once = tuple([slice(None if step else 1) for step in like.stride()])  # of what is expanded
    made[once].copy_(tensor[once])
    return made


class PipelineStages(Sequence[PipelineModule]):
    """The stages of a program; each is compiled, with its own weights, when it is first taken."""

    def __init__(self, stages: Sequence[IR], weights: Weights, devices: Sequence[str] | None):
        if devices is not None and len(devices) != len(stages):
            raise CompileError(f"{len(stages)} stages need as many devices, got {len(devices)}")
        self._stages = tuple(stages)
        self._weights = weights
        self._devices = devices
        self._made: dict[int, PipelineModule] = {}

    def __repr__(self) -> str:
        return f"PipelineStages({len(self)} stages, {len(self._made)} compiled)"

    def __len__(self) -> int:
        return len(self._stages)

    def __iter__(self) -> Iterator[PipelineModule]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> PipelineModule:  # pyright: ignore[reportIncompatibleMethodOverride]  # no slices
        position = range(len(self))[index]
        if position not in self._made:
            stage = self._stages[position]
            keys = {meta.name for meta in stage.weights}
            keys |= {alias for alias, key in stage.weight_aliases.items() if key in keys}
            given = self._weights
            given = given if isinstance(given, Mapping) else load_weights(given)  # mapped
            found = {key: given[key] for key in given if key in keys}
            device = None if self._devices is None else self._devices[position]
            if device is not None:
                found = {key: tensor.to(device) for key, tensor in found.items()}
            graph = compile_graph(stage, found, device=device)
            taken, made = self._layouts[position : position + 2]
            self._made[position] = PipelineModule(stage, graph, taken, made)
        return self._made[position]

    @cached_property
    def _layouts(self) -> list[_Layout]:
        """What the first stage takes and each stage gives, as tensors without data."""
        first = self._stages[0].graph_inputs
        with fake_mode():
            values: _Layout = tuple([_empty(tuple(m.shape), m.dtype) for m in first])
            found = [values]
            for stage in self._stages:
                weights = {m.name: _empty(tuple(m.shape), m.dtype) for m in stage.weights}
                values = tuple(compile_graph(stage, weights, check_types=False).eval(values))
                found.append(values)
        return [tuple([_bare(value) for value in values]) for values in found]


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    strides = tensor.stride()
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="meta")


def _empty(shape: tuple[object, ...], dtype: str) -> torch.Tensor:
    sizes = [dim for dim in shape if isinstance(dim, int)]
    if len(sizes) < len(shape):
        raise CompileError(
            "a pipeline needs sizes that are numbers",
            remedy="Extract the program for one microbatch, without dynamic_shapes.",
        )
    return torch.empty(sizes, dtype=getattr(torch, dtype))


@public
def to_pipeline_stages(
    ir: IR, k: int | Sequence[int], weights: Weights, *, devices: Sequence[str] | None = None
) -> PipelineStages:
    """Cut a program into stages for ``torch.distributed.pipelining``.

    Args:
        ir: The program, extracted for one microbatch.
        k: As for :func:`torch_ir.cut`.
        weights: Tensors by name, or a file or folder of them, of which each stage reads its own.
        devices: The device of each stage; that of its weights if not given.

    Returns:
        The stages as modules that take and give tensors, bit for bit what the program computes.

    Raises:
        PassError: The program cannot be cut so.
        CompileError: By taking a stage: it lacks weights, or a size is symbolic.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   %b: f32[2] = aten.neg.default(%a)
        ...   return %b
        ... }''')
        >>> first, second = to_pipeline_stages(ir, 2, {})
        >>> second(first(torch.tensor([-1.0, 2.0])))
        tensor([-0., -2.])
    """
    stages = cut(ir, k)
    return PipelineStages(stages, weights, devices)
