"""Other kernels of torch's own: packed weights and channels-last convolutions, where they win."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.operator_schemas import normalize_function
from torch.nn.utils.fusion import fuse_conv_bn_weights

from torch_ir.backends.native.auto import GAIN, least
from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.protocol import SUPPORTED, Delegated, Support
from torch_ir.errors import BackendError
from torch_ir.ir import IR, OpNode

LINEAR, CONVOLUTION = "aten.linear.default", "aten.conv2d.default"
_BETWEEN = frozenset(
    ("aten.relu.default", "aten.add.Tensor", "aten.batch_norm.default", "aten.max_pool2d.default")
)
"""What keeps images channels-last between convolutions."""


class Tuned(NativeBackend):
    """Runs linear layers and convolutions on oneDNN, with weights packed once.

    What a batch norm does after a convolution is part of its weights. A delegate that is not
    faster than torch's default kernels is refused.
    """

    name = "tuned"
    version = torch.__version__
    is_thread_safe = True

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether torch has another kernel for the node, of static float32 tensors."""
        if node.op_type not in (LINEAR, CONVOLUTION, *_BETWEEN):
            return Support.refused("torch has one kernel for it")
        metas = (*node.inputs, *node.outputs)
        if not all(meta.is_static and meta.dtype == "float32" for meta in metas):
            return Support.refused("it is not of float32 tensors of static sizes")
        if node.op_type != LINEAR and len(node.outputs[0].shape) != 4:
            return Support.refused("it is not of images")
        if node.op_type != LINEAR and node.attrs.get("training", False):
            return Support.refused("it trains")
        held = () if node.op_type in ("aten.relu.default", "aten.add.Tensor") else node.inputs[1:]
        if any(meta.name not in ir.external_values() for meta in held):
            return Support.refused("its weight is computed")
        return SUPPORTED

    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Rewrite a program, and see that it gains.

        Raises:
            BackendError: It does not.
        """
        plain: Any = program.module(check_guards=False)
        module: Any = program.module(check_guards=False)
        given = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        if not _rewritten(module):
            raise BackendError("nothing in it has another kernel")
        samples = [
            torch.randn(tuple(v.shape), dtype=torch.float32, device=v.device).to(v.dtype)
            for v in given
        ]
        with torch.no_grad():
            us, other = least((lambda: module(*samples), lambda: plain(*samples)), 0.1)
        if us > GAIN * other:
            raise BackendError(f"torch's own kernels take {other:.0f} us, these {us:.0f}")
        return module


def _rewritten(module: GraphModule) -> bool:
    """Put other kernels in the place of those that have some; return whether there is one."""
    found = [node for node in module.graph.nodes if str(node.target) in _REWRITES]
    for index, node in enumerate(found):
        _REWRITES[str(node.target)](module, node, f"packed_{index}")
    (end,) = module.graph.find_nodes(op="output")
    with module.graph.inserting_before(end):
        end.args = map_arg(end.args, lambda n: module.graph.call_method("contiguous", (n,)))
    module.graph.eliminate_dead_code()
    module.recompile()
    return bool(found)


def _linear(module: GraphModule, node: Node, name: str) -> None:
    given = _arguments(node)
    rows = math.prod(given["input"].meta["val"].shape[:-1])
    weight = torch.ops.mkldnn._reorder_linear_weight(_value(module, given["weight"]), rows)
    module.register_buffer(name, weight, persistent=False)
    with module.graph.inserting_before(node):
        packed = module.graph.get_attr(name)
        args = (given["input"], packed, given["bias"], "none", [], "")
        made = module.graph.call_function(torch.ops.mkldnn._linear_pointwise.default, args)
        made.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(made)


def _convolution(module: GraphModule, node: Node, name: str) -> None:
    """Convolve channels-last; what follows alone, batch norm, addition and relu, is part of it."""
    given = _arguments(node)
    weight, bias = _value(module, given["weight"]), _value(module, given["bias"])
    last = node
    if (norm := _only_user(last, "aten.batch_norm.default")) is not None:
        n = _arguments(norm)
        mean, variance, scale, shift = [
            _value(module, n[key]) for key in ("running_mean", "running_var", "weight", "bias")
        ]
        weight, bias = fuse_conv_bn_weights(weight, bias, mean, variance, n["eps"], scale, shift)
        last = norm
    other = None
    if (added := _only_user(last, "aten.add.Tensor")) is not None and not added.kwargs:
        others = [arg for arg in added.args if isinstance(arg, Node) and arg is not last]
        if len(added.args) == 2 and others and _shape(others[0]) == _shape(last):
            other, last = others[0], added
    relu = _only_user(last, "aten.relu.default")
    last = last if relu is None else relu
    place = [_pair(given[key]) for key in ("padding", "stride", "dilation")]
    size = list(given["input"].meta["val"].shape)
    options = (*place, given["groups"])
    weight = torch.ops.mkldnn._reorder_convolution_weight(weight, *options, size)
    module.register_buffer(name, weight, persistent=False)
    module.register_buffer(f"{name}_bias", bias, persistent=False)
    graph: Any = module.graph
    channels_last = {"memory_format": torch.channels_last}
    with graph.inserting_before(last):
        x = graph.call_method("contiguous", (given["input"],), channels_last)
        packed, shift = graph.get_attr(name), None
        if bias is not None:
            shift = graph.get_attr(f"{name}_bias")
        if other is None:
            kind = "none" if relu is None else "relu"
            args = (x, packed, shift, *options, kind, [], "")
            made = graph.call_function(torch.ops.mkldnn._convolution_pointwise.default, args)
        else:
            other = graph.call_method("contiguous", (other,), channels_last)
            kind = None if relu is None else "relu"
            args = (x, other, packed, shift, *options, "add", 1, kind, [], "")
            made = graph.call_function(torch.ops.mkldnn._convolution_pointwise.binary, args)
        made.meta["val"] = last.meta["val"]
    last.replace_all_uses_with(made)


_REWRITES: Mapping[str, Callable[[GraphModule, Node, str], None]] = {
    LINEAR: _linear,
    CONVOLUTION: _convolution,
}


def _arguments(node: Node) -> dict[str, Any]:
    """The arguments of a call by name, defaults filled in."""
    found = normalize_function(
        cast(Any, node.target), node.args, node.kwargs, normalize_to_only_use_kwargs=True
    )
    assert found is not None  # noqa: S101  # both operators have one overload
    return found.kwargs


def _value(module: GraphModule, node: Node | None) -> Any:
    """A weight; None where there is none."""
    return None if node is None else attrgetter(str(node.target))(module).detach()


def _only_user(node: Node, target: str) -> Node | None:
    """The one call that takes a value, if it is of that operator and the value its first."""
    users = list(node.users)
    return users[0] if len(users) == 1 and str(users[0].target) == target else None


def _shape(node: Node) -> torch.Size:
    return node.meta["val"].shape


def _pair(sizes: Sequence[int]) -> list[int]:
    return list(sizes) * 2 if len(sizes) == 1 else list(sizes)


TUNED = Tuned()
"""The backend."""
