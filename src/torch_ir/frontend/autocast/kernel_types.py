"""Types of values under autocast, where torch recorded those that they have without it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.fx import GraphModule
from torch.fx.node import Node as FxNode
from torch.fx.node import map_arg

from torch_ir.errors import Raised, attempt
from torch_ir.frontend.autocast.scopes import AUTOCAST_ARGUMENTS
from torch_ir.ops.bodies import AUTOCAST_REGION
from torch_ir.torch_api import FakeTensor, HigherOrderOperator, OpOverload, pytree


@contextmanager
def types_under_autocast(module: GraphModule) -> Generator[None]:
    """Record the types that kernels give under autocast, while the ``with`` block runs.

    torch's bytecode tracer records a graph whose regions its kernels never ran in: a product of
    matrices is float32 there, and bfloat16 when the program runs.

    Args:
        module: A traced graph; its records are put back.
    """
    graphs = [m.graph for m in module.modules() if isinstance(m, GraphModule)]
    if not any(_is_region(node) for graph in graphs for node in graph.nodes):
        yield
        return
    kept: dict[FxNode, Any] = {}
    with torch.no_grad():
        _Types(kept).follow(module, None)
    try:
        yield
    finally:
        for node, value in kept.items():
            node.meta["val"] = value


def _is_region(node: FxNode) -> bool:
    is_call = isinstance(node.target, HigherOrderOperator)
    return is_call and f"higher_order.{node.target}" == AUTOCAST_REGION


class _Types:
    """Calls what depends on a region, on fake tensors, and records other types than those known.

    Attributes:
        kept: What torch recorded, by node.
    """

    def __init__(self, kept: dict[FxNode, Any]):
        self.kept = kept

    def follow(self, module: GraphModule, given: Sequence[Any] | None) -> Any:
        """Return the results of a graph for some arguments; as recorded if None."""
        values = iter(() if given is None else given)
        for node in module.graph.nodes:
            if node.op == "output":
                return map_arg(node.args[0], _recorded)
            if node.op == "placeholder":
                made = _recorded(node) if given is None else next(values, None)
            elif node.op == "call_function":
                made = self._called(module, node, is_inside=given is not None)
            else:
                continue
            self._correct(node, made)
        return None

    def _called(self, module: GraphModule, node: FxNode, *, is_inside: bool) -> Any:
        if _is_region(node):
            return self._region(module, node)
        is_new = any(given in self.kept for given in node.all_input_nodes)
        if not (is_inside or is_new) or isinstance(node.target, HigherOrderOperator):
            return None
        args, kwargs = map_arg((node.args, node.kwargs), _recorded)
        if not isinstance(node.target, OpOverload):  # such as the item of a tuple
            return attempt(cast(Any, node.target), *args, **kwargs)
        mode = next((t.fake_mode for t in _tensors((args, kwargs, _recorded(node)))), None)
        if mode is None:
            return None
        with mode:
            return attempt(node.target, *args, **kwargs)

    def _region(self, module: GraphModule, node: FxNode) -> Any:
        count = len(AUTOCAST_ARGUMENTS)
        (device, dtype, enabled, cached), body = node.args[:count], node.args[count]
        held = module.get_submodule(str(cast(FxNode, body).target))
        given = map_arg(node.args[count + 1 :], _recorded)
        with torch.autocast(cast(str, device), cast(Any, dtype), bool(enabled), cast(Any, cached)):
            return self.follow(cast(GraphModule, held), list(given))

    def _correct(self, node: FxNode, made: Any) -> None:
        """Record another type than the one that is known, and nothing else."""
        known = node.meta.get("val")
        found, structure = pytree.tree_flatten(made)
        recorded, other = pytree.tree_flatten(known)
        if isinstance(made, Raised) or structure != other:
            return
        new = [_typed(a, b) for a, b in zip(recorded, found, strict=True)]
        if any(a is not b for a, b in zip(recorded, new, strict=True)):
            self.kept.setdefault(node, known)
            node.meta["val"] = pytree.tree_unflatten(new, structure)


def _recorded(node: FxNode) -> Any:
    return node.meta.get("val")


def _tensors(value: Any) -> Iterator[FakeTensor]:
    return (item for item in pytree.tree_leaves(value) if isinstance(item, FakeTensor))


def _typed(recorded: Any, made: Any) -> Any:
    """The recorded fake tensor with the type of another."""
    if not (isinstance(recorded, FakeTensor) and isinstance(made, torch.Tensor)):
        return recorded
    if recorded.dtype == made.dtype:
        return recorded
    with recorded.fake_mode:
        return torch.empty_strided(
            recorded.shape, recorded.stride(), dtype=made.dtype, device=recorded.device
        )
