"""Parts of programs as programs, and programs as chains of stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from torch_ir.arguments import public
from torch_ir.errors import PassError
from torch_ir.ir import IR, OpNode
from torch_ir.passes.cutting.parts import cut_part, module_fingerprints, nodes_around
from torch_ir.passes.cutting.stages import blocked_cuts, cut_stages, is_border

__all__ = ["blocked_cuts", "cut", "is_border", "module_fingerprints", "nodes_around"]


@overload
def cut(
    ir: IR,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    nodes: Sequence[str] | None = None,
) -> IR: ...
@overload
def cut(
    ir: IR, stages: int | Sequence[int], *, cost: Callable[[OpNode], float] | None = None
) -> tuple[IR, ...]: ...
@public
def cut(
    ir: IR,
    stages: int | Sequence[int] | None = None,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    nodes: Sequence[str] | None = None,
    cost: Callable[[OpNode], float] | None = None,
) -> IR | tuple[IR, ...]:
    """Cut a part out of a program, or the program into a chain of stages.

    A part is what values need, or exactly some nodes. Stages hold all nodes in order: each takes
    what the one before gives, values that pass through included.

    Nodes keep their order, names, locations and attributes. Weights, constants, functions,
    symbols and guards come along as far as the part uses them.

    Args:
        ir: The program.
        inputs: Values that become graph inputs; what makes them is left out.
        outputs: Values that the part returns, in this order; those of the program if empty.
        stages: The number of stages, balanced by cost and preferably whole layers, or the
            positions of the nodes that begin the second stage and the following.
        cost: The cost of a node; the bytes of its results and of weights that it uses first.
        nodes: Names of the nodes to keep, in place of both. The part takes what these take from
            elsewhere, and returns what anything else uses or returns, and what nothing uses.

    Returns:
        The stages, or the part, whose inputs are the cut values and then those of the program that
        it uses. It has a signature only where it takes sizes that none of its inputs shows.

    Raises:
        InvalidIRError: There is no such value or node; the message names the closest.
        PassError: A write to memory would be on one side, and its memory on both.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   %b: f32[2] = aten.neg.default(%a)
        ...   %c: f32[2] = aten.exp.default(%b)
        ...   return %c
        ... }''')
        >>> print(cut(ir, inputs=["a"], outputs=["b"]))
        ir {
          input %a: f32[2]
          %b: f32[2] = aten.neg.default(%a)
          return %b
        }
        >>> cut(ir, nodes=["a", "c"]).input_names, cut(ir, nodes=["a", "c"]).output_names
        (('b', 'x'), ('a', 'c'))
        >>> [stage.output_names for stage in cut(ir, 2)]
        [('a',), ('c',)]
    """
    if stages is not None and (inputs or outputs or nodes is not None):
        raise PassError("a program is cut into stages or to a part, not both")
    if stages is not None:
        return cut_stages(ir, stages, cost)
    return cut_part(ir, inputs=inputs, outputs=outputs, nodes=nodes)
