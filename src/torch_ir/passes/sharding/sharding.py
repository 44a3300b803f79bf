"""Programs of ranks: what each computes on its own parts of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_ir.arguments import public
from torch_ir.errors import PassError
from torch_ir.ir import IR
from torch_ir.ir.process_groups import groups_of
from torch_ir.passes.dead_code import eliminate_dead_code
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.inline import inline_functions
from torch_ir.passes.sharding.rank_program import RankProgram
from torch_ir.passes.sharding.sharding_plan import split_dims

DIALECTS = ("export", "aten", "core_aten")


@public
def shard(ir: IR, plan: Mapping[str, Any], *, ranks: int, group: str = "tp") -> tuple[IR, ...]:
    """Turn a program into one for each rank of a group, which share its weights.

    A style says how the ranks share the weights of a module: ``"column"`` by what it gives,
    ``"row"`` by what it takes, ``"vocabulary"`` by the entries of a table or the classes of a
    head, ``"expert"`` by dimension 0; a number is a dimension. What follows from that for each
    value is found operator by operator. Where an operator needs a value whole, the ranks gather
    it; sums over what is split are put together at once. Inputs and results are whole on each
    rank. Values and weights keep their names; ``ir.metadata["shards"]`` has the dimension and the
    number of parts of each weight that is split, ``"gathered"`` the values that are gathered.
    Functions are inlined, nothing is written in place, and state that the plan splits stays so.

    Args:
        ir: The program.
        plan: A style, or a dimension, by module path or key; both may have ``*``. Also
            ``ColwiseParallel()`` and ``RowwiseParallel()`` of torch.
        ranks: How many ranks share the weights.
        group: The name of their group in the programs.

    Returns:
        A program for each rank; the same object where nothing in it depends on the rank.

    Raises:
        PassError: The plan does not fit the program, ranks cannot share a weight equally, or the
            program calls collectives already or is no longer in ATen's operators.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   weight @up.weight: f32[8, 4] as %a
        ...   weight @down.weight: f32[4, 8] as %b
        ...   input %x: f32[1, 4]
        ...   %h: f32[1, 8] = aten.linear.default(%x, %a)
        ...   %y: f32[1, 4] = aten.linear.default(%h, %b)
        ...   return %y
        ... }''')
        >>> for node in shard(ir, {"up": "column", "down": "row"}, ranks=2)[0].nodes:
        ...     print(node.name, node.op_type, node.outputs[0].shape)
        h aten.linear.default (1, 4)
        y_part aten.linear.default (1, 4)
        y_reduced _c10d_functional.all_reduce.default (1, 4)
        y _c10d_functional.wait_tensor.default (1, 4)
    """
    if ir.dialect not in DIALECTS:
        raise PassError(
            f"a program of the dialect {ir.dialect!r} cannot be shared by ranks",
            remedy="Share the program that it was made of, and lower that of each rank.",
        )
    for name, node in groups_of(ir).items():
        raise PassError(f"node {node.name!r} is a collective of the group {name!r} already")
    flat = eliminate_dead_code(without_writes(inline_functions(ir)))
    dims = split_dims(flat, plan, ranks)
    made: list[IR] = []
    for rank in range(ranks):
        of_rank = RankProgram(flat, dims, rank, ranks, group)
        made.append(of_rank.program())
        if not of_rank.depends_on_rank:
            return (made[0],) * ranks
    return tuple(made)
