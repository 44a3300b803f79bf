"""Values that follow from the order in which a kernel writes to one place in memory.

torch leaves it open which of several values stays there: kernels take one or another from call to
call, as threads go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ir.debug.reference.denotation import Meaning, allowances
from torch_ir.debug.reference.openness import puts_twice
from torch_ir.debug.reference.tolerance_check import same_bits
from torch_ir.errors import TorchIRError
from torch_ir.infer.storage import elements_are_apart
from torch_ir.ir import Constant, OpNode
from torch_ir.ir.expressions import Number
from torch_ir.ops.choices import leaves_writes_open
from torch_ir.ops.schema import lookup
from torch_ir.ops.variants import Variant, functional_variant
from torch_ir.semantics import denotation
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.operators.indexing import WriteOrder, put, written_in
from torch_ir.semantics.operators.movement import strided_places
from torch_ir.torch_api import extent_of, overload


def order_of_writes(
    meaning: Meaning | str,
    node: OpNode,
    inputs: Sequence[torch.Tensor],
    symbols: Mapping[str, Number],
    got: tuple[Sequence[torch.Tensor], Mapping[str, torch.Tensor]],
    other: Mapping[str, torch.Tensor],
) -> str:
    """Return why two results of a node may be right both; empty if one has to be wrong.

    That is where they differ in nothing but what the order of writes decides, and are each what
    some order gives.

    Args:
        meaning: What the node means, or why that is unknown.
        node: The node.
        inputs: Its inputs, as they were before it ran.
        symbols: The symbols that are known.
        got: Its outputs, and what it left in its inputs, by name.
        other: Other values, by those names; what was left in ``x`` as ``written x``.
    """
    outputs, written = got
    if isinstance(meaning, str):
        return ""
    if not (any(map(_repeats, written.values())) or puts_twice(meaning.ir)):
        return ""
    results = dict(zip([meta.name for meta in node.outputs], outputs, strict=True))
    values = results | {f"written {name}": tensor for name, tensor in written.items()}
    reason = ""
    try:
        for found in allowances(meaning, node, inputs, symbols, outputs, written):
            theirs, mine = other[found.value], values[found.value]
            if same_bits(theirs, mine).reason and found.unordered is not None:
                theirs = torch.where(torch.from_numpy(found.unordered), mine.cpu(), theirs.cpu())
                reason = found.reason
            if found.error(found.bound).reason or same_bits(theirs, mine).reason:
                return ""
    except TorchIRError:  # the denotation refuses the inputs
        return ""
    return reason


class WritesReordered(TorchDispatchMode):
    """Runs calls that write several values to one place in memory in another order of writes.

    Args:
        order: The order.

    Example:
        >>> from torch_ir.semantics.operators.indexing import descending
        >>> places = torch.tensor([0, 0])
        >>> with WritesReordered(descending):
        ...     torch.zeros(1).index_copy(0, places, torch.tensor([1.0, 2.0]))
        tensor([1.])
    """

    supports_higher_order_operators = True
    """Of a call of control flow, the bodies run as they are."""

    def __init__(self, order: WriteOrder):
        super().__init__()
        self._order = order

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, and put what it writes in the other order."""
        call = _WritingCall.of(func, args, kwargs or {})
        with written_in(self._order):
            puts = () if call is None else call.puts()
        result = func(*args, **(kwargs or {}))
        for target, values in puts:
            (result if target is None else target).copy_(values)
        return result


class _WritingCall(NamedTuple):
    """A call of an operator of torch.

    Attributes:
        functional: The operator that gives what this one writes; itself where it writes nothing.
        named: The arguments by name.
    """

    functional: Variant
    named: Mapping[str, Any]

    @classmethod
    def of(cls, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _WritingCall | None:
        """A call that may write to one place more than once; None of others."""
        schema = lookup(str(func))
        if schema is None:
            return None
        names = [argument.name for argument in schema.arguments]
        written = [argument.name for argument in schema.arguments if argument.is_written]
        own = Variant(schema.op_type, {name: name for name in names}, {})
        variant = functional_variant(schema, written) if written else own
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        return None if variant is None else cls(variant, named)

    def puts(self) -> Sequence[tuple[torch.Tensor | None, torch.Tensor]]:
        """The tensors that are written, None for the result, and what they hold afterwards."""
        op_type, written = self.functional.op_type, [*self.functional.results]
        given = {
            mine: self.named[name]
            for mine, name in self.functional.arguments.items()
            if name in self.named
        }
        if leaves_writes_open(op_type, given):
            arrays = {name: _arrays(value) for name, value in given.items()}
            made = denotation(op_type).function(**arrays)
            target = self.named[written[0]] if written else None
            return [(target, Constant.from_numpy(made).torch())]
        target = self.named.get(written[0]) if len(written) == 1 else None
        operator = overload(*op_type.split("."))
        if not isinstance(target, torch.Tensor) or operator is None or not _repeats(target):
            return ()
        span = _span(target)
        values = as_array(operator(**given)[...].expand(target.shape))
        places = strided_places(len(span), target.shape, target.stride(), 0)
        after = put(as_array(span), places, values, accumulate=False)
        return [(span, Constant.from_numpy(after).torch())]


def _arrays(value: Any) -> Any:
    """An argument as a denotation takes it."""
    if isinstance(value, list | tuple):
        return [_arrays(item) for item in value]
    return as_array(value.detach()) if isinstance(value, torch.Tensor) else value


def _repeats(tensor: torch.Tensor) -> bool:
    """Whether several elements of a tensor are one place in memory."""
    is_strided = tensor.layout == torch.strided
    return is_strided and not elements_are_apart(tensor.shape, tensor.stride())


def _span(tensor: torch.Tensor) -> torch.Tensor:
    """All memory from the first element of a tensor to the last one, as a vector."""
    return tensor.as_strided((extent_of(tensor),), (1,))
