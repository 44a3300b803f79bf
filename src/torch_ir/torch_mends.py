"""Mend what traces of torch get wrong, in every version so far or in an older one.

A trace takes torch's word for the types of results, and goes on with them. So nothing behind it
could mend a program, and a fault is mended for whatever runs in the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import accumulate
from typing import Any

import torch
import torch._decomp.decompositions
from torch._export.passes import replace_set_grad_with_hop_pass as scopes_of_torch
from torch._export.passes import replace_with_hop_pass_util as scopes_in_parts
from torch._export.utils import sequential_split
from torch._higher_order_ops.wrap import wrap_with_set_grad_enabled
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx import GraphModule, proxy
from torch.fx.experimental import symbolic_shapes

from torch_ir.torch_versions import torch_is

State = tuple[torch.Tensor, torch.Tensor]
_SET_GRAD = torch._C._set_grad_enabled  # pyright: ignore[reportPrivateUsage]  # what torch traces


def mend_torch() -> None:
    """Mend what is wrong in this version."""
    fakes: Any = fake_impls.op_implementations_dict
    fakes[torch.ops.aten._pack_padded_sequence.default] = _packed
    GraphModule.delete_all_unused_submodules = _delete_all_unused_submodules
    scopes_of_torch.replace_set_grad_with_hop_pass = gradient_scopes
    if torch_is("2.13"):
        return
    written: Any = torch._decomp.decompositions
    written.one_layer_lstm = _with_states_of_two_dimensions(written.one_layer_lstm)
    kinds: Any = proxy._create_arg_bypass  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    kinds[torch.Generator] = _held


def _packed(
    mode: Any, operator: Any, values: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed sequences and their batch sizes, which are integers; data decides both lengths.

    The first is the sum of the lengths of sequences, the second the greatest of them.
    """
    del batch_first  # both of its first two dimensions become one
    env = mode.shape_env
    if env is None or not env.allow_dynamic_output_shape_ops:
        raise DynamicOutputShapeException(operator)
    rows, batches = env.create_unbacked_symint(), env.create_unbacked_symint()
    for size in (rows, batches):
        symbolic_shapes._constrain_range_for_size(size, min=1)  # pyright: ignore[reportPrivateUsage]  # no sequence is empty; torch has no public name
    return values.new_empty((rows, *values.shape[2:])), lengths.new_empty((batches,))


def _delete_all_unused_submodules(self: GraphModule) -> None:
    """Delete what no node of a trace names, but not what lies in a body that one names."""
    nodes = [node for op in ("call_module", "get_attr") for node in self.graph.find_nodes(op=op)]
    named = {str(node.target) for node in nodes}
    used = {above for name in named for above in _path(name)}
    for name, _ in list(self.named_modules()):
        if name and name not in used and named.isdisjoint(_path(name)):
            self.delete_submodule(name)


def _path(name: str) -> Iterator[str]:
    return accumulate(name.split("."), "{}.{}".format)


def gradient_scopes(module: GraphModule, signature: Any = None) -> tuple[GraphModule, Any]:
    """Return a trace in which switches of gradients are calls of a body, and its signature.

    torch's own way drops a switch before which something else stands in its part of the trace: a
    body of control flow that the part calls, or an autocast region that it lies in. Of a switch in
    a body it asks whether gradients are on where the trace is made, and not where the body runs.
    """
    if module.graph.find_nodes(op="call_function", target=_SET_GRAD):
        parts = sequential_split(module, lambda node: node.target is _SET_GRAD)
        split: Any = scopes_in_parts._sequential_split_and_maybe_inline_subgraphs_helper  # pyright: ignore[reportPrivateUsage]  # torch has no public name
        module, signature = split(parts, signature, _scope_of_part)
    for node in module.graph.find_nodes(op="get_attr"):
        body = getattr(module, str(node.target), None)
        if isinstance(body, GraphModule):
            scopes = [user for user in node.users if user.target is wrap_with_set_grad_enabled]
            is_on: Any = scopes[0].args[0] if scopes else torch.is_grad_enabled()
            with torch.set_grad_enabled(is_on):
                setattr(module, str(node.target), gradient_scopes(body)[0])
    return module, signature


def _scope_of_part(node: torch.fx.Node) -> None:
    """Call a part of a trace as a body where it begins with another mode, or write it out."""
    part: Any = getattr(node.graph.owning_module, str(node.target))
    first = next(item for item in part.graph.nodes if item.op != "placeholder")
    for given in part.graph.find_nodes(op="placeholder"):
        if given > first:  # torch 2.11 names the first nodes as if they were all placeholders
            first.prepend(given)
    switches = part.graph.find_nodes(op="call_function", target=_SET_GRAD)
    if switches and switches[0].args[0] != torch.is_grad_enabled():
        scopes_of_torch._replace_with_hop(node)  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    else:
        scopes_of_torch._remove_set_grad_and_inline(node)  # pyright: ignore[reportPrivateUsage]  # as above


def _held(tracer: Any, generator: torch.Generator) -> torch.fx.Node:
    """A generator as an attribute of the graph, as torch 2.13 holds it."""
    name = tracer.tensor_attrs.get(generator)
    if name is None:
        name = tracer.tensor_attrs[generator] = tracer.get_fresh_qualname("_generator")
        setattr(tracer.root, name, generator)
    return tracer.create_node("get_attr", name, (), {})


def _with_states_of_two_dimensions(
    layer: Callable[..., tuple[torch.Tensor, State]],
) -> Callable[..., tuple[torch.Tensor, State]]:
    """One layer of an LSTM whose states keep no dimension of steps, whatever the batch size."""

    @wraps(layer)
    def mended(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, State]:
        out, (hidden, cell) = layer(*args, **kwargs)
        return out, (hidden.view(hidden.shape[-2:]), cell.view(cell.shape[-2:]))

    return mended
