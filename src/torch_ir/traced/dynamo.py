"""``torch.compile(model, backend="torch_ir")``: what Dynamo captures, run as programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torch_ir.errors import InputError, did_you_mean
from torch_ir.traced.function import make_traced

_OPTIONS = ("executor", "dialect", "strict")


def torch_ir(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Run graphs of ``torch.compile``, which finds this backend by the name ``"torch_ir"``.

    Each graph that Dynamo captures becomes a program when it is first called. Gradients pass
    through it as through any function. What a checkpoint would compute again is kept.

    Args:
        module: The graph.
        example_inputs: What it will be called with; not used.
        options: ``executor``, ``dialect`` and ``strict``, as :func:`torch_ir.make_traced` takes
            them.
        mode: Not taken.

    Raises:
        InputError: An option is unknown, or names what does not exist.

    Example:
        >>> import torch
        >>> compiled = torch.compile(lambda x: x + 1, backend=torch_ir)
        >>> compiled(torch.ones(2))
        tensor([2., 2.])
    """
    if mode is not None:
        raise InputError(
            f"the backend 'torch_ir' has no modes, got {mode!r}", remedy="Give options instead."
        )
    for name in options or {}:
        if name not in _OPTIONS:
            raise InputError(
                f"the backend 'torch_ir' has no option {name!r:.60}",
                remedy=did_you_mean(str(name), _OPTIONS) or f"There are {', '.join(_OPTIONS)}.",
            )
    _write_out_checkpoints(module)
    return make_traced(module.forward, **dict(options or {}))


def _write_out_checkpoints(module: GraphModule) -> None:
    """Call what checkpoints call: values are the same, and torch cannot trace its operator."""
    checkpoint = torch.ops.higher_order.tag_activation_checkpoint
    for node in module.graph.find_nodes(op="call_function", target=checkpoint):
        body: Any = node.args[0]
        with module.graph.inserting_before(node):
            call = module.graph.call_module(body.target, node.args[1:])
        node.replace_all_uses_with(call)
        module.graph.erase_node(node)
    module.recompile()
