"""The denotation as a reader of nodes, with a record of those that it could not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from torch_ir.debug.judging.storages import view_of
from torch_ir.debug.judging.tally import Tally
from torch_ir.debug.reference.denotation import DRAWS, REFUSED, Meanings, errors_of
from torch_ir.debug.reference.strides import READS_MEMORY, reads_memory
from torch_ir.debug.reference.tolerance_check import Error
from torch_ir.errors import TorchIRError
from torch_ir.infer.bindings import Symbols
from torch_ir.infer.storage import share_elements
from torch_ir.ir import IR, OpNode
from torch_ir.ir.aliases import written_tensors
from torch_ir.ops.choices import VALUES_OPEN
from torch_ir.ops.effects import never_writes
from torch_ir.semantics.dtypes import NO_COMPLEX32, Complex32Error
from torch_ir.torch_memory import copied


class Denoting:
    """Compares what nodes made with what they mean.

    Args:
        ir: The program.
        tally: Where is counted what was compared.

    Attributes:
        meanings: What the nodes mean.
        undenoted: Why nodes could not be denoted, by name.
        random: Names of those that drew random numbers.
        decomposed: How many were denoted by what they are made of.
    """

    def __init__(self, ir: IR, tally: Tally):
        self.undenoted: dict[str, str] = {}
        self.random: list[str] = []
        self.decomposed = 0
        self._tally = tally
        self.meanings = Meanings(ir)
        self._copies = may_resize(ir)

    def read(
        self,
        node: OpNode,
        inputs: Sequence[torch.Tensor],
        symbols: Symbols,
        outputs: Sequence[torch.Tensor],
        written: Mapping[str, torch.Tensor],
        *,
        drew: bool,
    ) -> Iterator[tuple[str, Error]]:
        """Yield the difference of each value from the denotation, as ``errors_of`` does."""
        meaning = self.meanings.of(node)
        if reads_memory(node, inputs):
            meaning = READS_MEMORY
        if _reads_what_it_writes(node, inputs, written):
            meaning = "it reads what it writes, in an order of its kernel"
        if any(t.layout != torch.strided for t in (*inputs, *outputs, *written.values())):
            meaning = "NumPy has no sparse tensors"
        if isinstance(meaning, str):
            self._leave(node, meaning)
            return
        loose = ""
        try:
            if self._copies:
                inputs, outputs = map(copied, (inputs, outputs))
                written = dict(zip(written, copied([*written.values()]), strict=True))
            for found in errors_of(meaning, node, inputs, symbols, outputs, written, drew=drew):
                loose = loose or found[1].loose
                yield found
        except TorchIRError as error:
            if drew:  # such as attention with dropout
                self._left_random(node)
                return
            if isinstance(error.__cause__, Complex32Error):
                self._leave(node, NO_COMPLEX32)
                return
            said = error.diagnostics[0].message if error.node == "node" else error.message
            reason = f"{REFUSED}: {said}"
            yield node.name, Error(part=float("inf"), reason=reason)
        if meaning.draws and drew:
            self._left_random(node)
        elif loose and node.op_type not in VALUES_OPEN:
            self._tally.left(node, loose)
        else:
            self._tally.read(node, "denotation")
            self.decomposed += meaning.is_decomposed

    def _leave(self, node: OpNode, reason: str) -> None:
        self.undenoted[node.name] = reason
        self._tally.left(node, reason)

    def _left_random(self, node: OpNode) -> None:
        self.random.append(node.name)
        self._tally.left(node, DRAWS)


def _reads_what_it_writes(
    node: OpNode, inputs: Sequence[torch.Tensor], written: Mapping[str, torch.Tensor]
) -> bool:
    """Whether an operand lies over a part of one that a node writes, in another way."""
    places = {meta.name: (view_of(x), x) for meta, x in zip(node.inputs, inputs, strict=True)}
    return any(
        view != places[name][0] and share_elements(places[name][1], other)
        for name in written
        for view, other in places.values()
    )


def may_resize(ir: IR) -> bool:
    """Return whether a call may resize what it writes: with ``out=``, or to another shape.

    NumPy can see the memory of a tensor only if torch no longer resizes it. It may be the memory
    of any value that is dead by then.

    Example:
        >>> from torch_ir import parse
        >>> may_resize(parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[3] = aten.empty.memory_format([3])
        ...   %z: f32[2] = aten.add.out(%x, 1, out=%y)
        ...   return %z
        ... }'''))
        True
    """
    for node in ir.nodes:
        schema = ir.schema_of(node.op_type)
        if schema is None or never_writes(schema.text):
            continue
        shapes = [meta.shape for meta in node.outputs]
        written = written_tensors(ir, node) or () if shapes else ()
        if any(argument.is_written and argument.keyword_only for argument in schema.arguments):
            return True
        if any(meta.shape not in shapes for meta in written):
            return True
    return False
