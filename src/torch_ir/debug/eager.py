"""Runs of the live model that leave no trace on it, with a record of its values."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ir.debug.reference.write_order import WritesReordered
from torch_ir.debug.tensor_comparison import digest
from torch_ir.errors import ExecutionError, raised_as
from torch_ir.frontend.kept_attributes import kept_attributes
from torch_ir.ir import IR
from torch_ir.ir.queries import external_keys, op_types
from torch_ir.kernel_switches import has_fused_attention, unfused_attention
from torch_ir.semantics.operators.indexing import WriteOrder
from torch_ir.torch_api import pytree
from torch_ir.torch_memory import copied, fresh

SEED = 0
"""Both sides draw their random numbers from this seed."""


FAST_PATH = "nn.MultiheadAttention's fast path"
"""What eager is compared without where the program does not call it: it rounds differently."""

_FUSED = "aten._transformer_encoder_layer_fwd.default"


def runs_unfused(model: nn.Module, ir: IR) -> bool:
    """Return whether eager may take a fused path of attention that a program of it does not."""
    return has_fused_attention(model) and _FUSED not in op_types(ir)


def run_eager(
    model: nn.Module,
    ir: IR,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    fast_path: bool = False,
    recorded: bool = False,
    order: WriteOrder | None = None,
) -> Any:
    """Run the model on copies of the arguments.

    Its mode, its state and the random state stay as they were. The model runs in the mode in
    which the IR was extracted, without gradients, with its parameters detached: some kernels
    choose their algorithm by whether a weight requires a gradient. The fused inference path of
    ``nn.MultiheadAttention`` is off where it was when the program was exported, unless
    ``fast_path`` leaves it as the user has it. Where it is ``recorded``, a mode sees operators,
    under which torch itself runs less: it loses the structure of what a loop carries, for one. Of
    several values that are put at one place, an ``order`` of writes says which stays.

    Raises:
        ExecutionError: The model fails; its error is the cause.
    """
    how = "fails where its operators are recorded" if recorded else "itself fails on these inputs"
    remedy = "validate(ir, weights, inputs) compares each node, too." if recorded else None
    written = _written_weights(ir)
    tensors = {
        **{
            name: parameter.detach().clone() if name in written else parameter.detach()
            for name, parameter in model.named_parameters()
        },
        **{name: buffer.detach().clone() for name, buffer in model.named_buffers()},
    }
    run_args, run_kwargs = fresh((args, dict(kwargs)))
    with (
        same_random_numbers(),
        nullcontext() if fast_path or not runs_unfused(model, ir) else unfused_attention(),
        _mode(model, ir.metadata.get("training") is True),
        kept_attributes(model, copies=copied),
        nullcontext() if order is None else WritesReordered(order),
        torch.no_grad(),
        raised_as(
            lambda error: ExecutionError(
                f"the model {how}: {type(error).__name__}: {error}", remedy=remedy
            )
        ),
    ):
        return torch.func.functional_call(model, tensors, run_args, run_kwargs, tie_weights=True)


def _written_weights(ir: IR) -> set[str]:
    """The keys of the weights that a program writes, under every name that a model has them."""
    keys = external_keys(ir)
    written = {keys.get(mutation.target, mutation.target) for mutation in ir.mutations}
    return written | {alias for alias, key in ir.weight_aliases.items() if key in written}


@contextmanager
def same_random_numbers() -> Generator[None]:
    """Draw from the fixed seed inside, and continue as before afterwards."""
    # where there is no accelerator to seed, torch.manual_seed formats a stack and keeps it
    generator = torch if torch.accelerator.is_available() else torch.default_generator
    with torch.random.fork_rng():
        generator.manual_seed(SEED)
        yield


@contextmanager
def _mode(model: nn.Module, training: bool) -> Generator[None]:
    before = [(module, module.training) for module in model.modules()]
    try:
        if model.training != training:
            model.train(training)
        yield
    finally:
        for module, was_training in before:
            module.training = was_training


@dataclass(frozen=True, slots=True)
class Made:
    """One tensor that eager made: the operator, its dtype and shape, and the hash of its value."""

    operator: str
    kind: tuple[torch.dtype, tuple[int, ...]]
    digest: bytes


class Recorder(TorchDispatchMode):
    """Records every tensor that torch makes while active; keeps hashes, not values.

    Args:
        keep: Position in :attr:`made` of one tensor whose value is kept, or None.
    """

    supports_higher_order_operators = True
    """Of a call of control flow, what it gives is recorded, not what its bodies make."""

    def __init__(self, keep: int | None = None):
        super().__init__()
        self.made: list[Made] = []
        self.kept: torch.Tensor | None = None
        self._keep = keep

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and record its results."""
        result = func(*args, **(kwargs or {}))
        for value in pytree.tree_leaves(result):
            if isinstance(value, torch.Tensor):
                if len(self.made) == self._keep:
                    self.kept = value.detach().clone()
                kind = (value.dtype, tuple(value.shape))
                self.made.append(Made(str(func), kind, digest(value)))
        return result
