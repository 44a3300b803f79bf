"""Programs of ranks: what each computes on its own parts of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch_ir.arguments import public
from torch_ir.errors import PassError, did_you_mean, short
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.process_groups import groups_of
from torch_ir.passes.dead_code import eliminate_dead_code
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.inline import inline_functions
from torch_ir.passes.sharding.placements import positive
from torch_ir.passes.sharding.rank_program import RankProgram

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


# -- plans ----------------------------------------------------------------------------------------


STYLES = ("column", "row", "vocabulary", "expert", "whole")
_OF_TORCH = {"ColwiseParallel": "column", "RowwiseParallel": "row"}
_TURNED = frozenset({"aten.t.default", "aten.transpose.int", "aten.permute.default"})
_SAME = frozenset({"aten.to.dtype", "aten._to_copy.default", "aten.clone.default"})


def split_dims(ir: IR, plan: Mapping[str, Any], ranks: int) -> dict[str, int]:
    """Return by the key of a weight or constant the dimension that the ranks share.

    Args:
        ir: The program, without calls of functions.
        plan: A style, or a dimension, for each pattern of module paths or keys.
        ranks: How many ranks there are.

    Raises:
        PassError: A pattern fits nothing, there is no such style, two disagree about a weight, or
            the ranks cannot share a dimension equally.
    """
    if ranks < 1:
        raise PassError(f"a program is shared by 1 rank or more, not by {ranks}")
    names = {key: (name, meta) for name, (key, meta) in ir.external_values().items()}
    found: dict[str, int] = {}
    for pattern, wanted in plan.items():
        style: Any = _OF_TORCH.get(type(wanted).__name__, wanted)
        keys = [k for k in names if any(fnmatchcase(n, pattern) for n in (k, _module_of(k)))]
        if not keys:
            raise PassError(
                f"no weight of the program is called or lies in {pattern!r}",
                remedy=did_you_mean(pattern, dict.fromkeys([*names, *map(_module_of, names)]))
                or f"Patterns are of weights, or of modules: {short(sorted(names))}.",
            )
        if type(style) is not int and not (isinstance(style, str) and style in STYLES):
            raise PassError(
                f"{style!r:.60} is no way to share a weight",
                remedy=did_you_mean(str(style), STYLES)
                or f"There are {', '.join(STYLES)}, and the number of a dimension.",
            )
        for key in keys:
            name, meta = names[key]
            dim = _dim_of(ir, name, len(meta.shape), style)
            if found.get(key, dim) != dim:
                raise PassError(f"the plan splits {key!r} along {found[key]} and along {dim}")
            if dim is not None:
                _require_even(key, meta.shape, dim, ranks)
                found[key] = dim
    return found


def _module_of(key: str) -> str:
    return key.rpartition(".")[0]


def _require_even(key: str, shape: tuple[Any, ...], dim: int, ranks: int) -> None:
    if not 0 <= dim < len(shape):
        raise PassError(f"{key!r} has no dimension {dim}: its shape is {list(shape)}")
    if not isinstance(shape[dim], int) or shape[dim] % ranks:
        raise PassError(
            f"dimension {dim} of {key!r} is {shape[dim]}, which {ranks} ranks cannot share"
        )


def _dim_of(ir: IR, name: str, rank: int, style: str | int) -> int | None:
    """The dimension of a weight that a style splits; None where every rank has all of it."""
    if isinstance(style, int):
        return style if rank else None
    if style == "whole" or rank == 0:
        return None
    if style == "expert":
        return 0
    if rank == 1:
        return None if style == "row" else 0
    takes, gives, is_table = _sides(ir, name, rank)
    if style == "vocabulary":
        return takes if is_table else gives
    return gives if style == "column" else takes


def _sides(ir: IR, name: str, rank: int) -> tuple[int, int, bool]:
    """The dimension of what a weight takes and of what it gives, and whether it is a table."""
    order = list(range(rank))  # of a view of the weight, by its dimension, that of the weight
    node = next(iter(ir.users.get(name, ())), None)
    while node is not None and node.op_type in _TURNED | _SAME:
        order = [order[dim] for dim in _order(node, rank)]
        name = node.outputs[0].name
        node = next(iter(ir.users.get(name, ())), None)
    operator = "" if node is None else node.op_type.split(".")[1]
    if operator == "embedding":
        return order[0], order[1], True
    last: tuple[TensorMeta, ...] = () if node is None else tuple(node.inputs)
    is_right = any(meta.name == name for meta in last[1:])
    if operator in ("mm", "addmm", "matmul", "bmm", "baddbmm") and is_right:
        return order[-2], order[-1], False
    return order[1], order[0], False


def _order(node: OpNode, rank: int) -> list[int]:
    if node.op_type in _SAME:
        return list(range(rank))
    dims = node.argument("dims")
    if dims is not None:
        return [positive(dim, rank) for dim in dims]
    order = list(range(rank))
    a, b = (positive(node.argument(n, d), rank) for n, d in (("dim0", 0), ("dim1", 1)))
    order[a], order[b] = order[b], order[a]
    return order
