"""Values as one rank has them, and the collectives that change that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_ir.errors import PassError
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.builder import Builder
from torch_ir.ir.symbols import Dim
from torch_ir.ir.values import MemoryFormat
from torch_ir.passes.sharding.placements import Placement, Split

_REDUCE = "_c10d_functional.all_reduce.default"
_GATHER = "_c10d_functional.all_gather_into_tensor.default"
_WAIT = "_c10d_functional.wait_tensor.default"


class RankBuilder:
    """A program of one rank, and what the rank has of each value.

    Attributes:
        rank: The rank.
        ranks: How many there are.
        depends_on_rank: Whether anything so far depends on which rank it is.
        gathered: The values that were gathered.
        placed: How each value lies.
        zeros: The values that are known to be 0 everywhere.
        elsewhere: For each owner, a mask over leading dimensions: True where other ranks own it.
    """

    def __init__(self, ir: IR, dims: Mapping[str, int], rank: int, ranks: int, group: str):
        self.ir, self.dims = ir, dims
        self.rank, self.ranks, self.group = rank, ranks, group
        self.depends_on_rank = False
        self.gathered: dict[str, None] = {}
        self.builder = Builder(ir)
        self.placed: dict[str, Placement] = {}
        self._forms: dict[tuple[str, Placement], TensorMeta] = {}
        self.zeros: set[str] = set()
        self.elsewhere: dict[str, TensorMeta] = {}
        for name, (key, meta) in ir.external_values().items():
            placement = Split(dims[key]) if key in dims else None
            shape = self.local(meta.shape, placement)
            self.hold(TensorMeta(name, shape, meta.dtype), placement)
        for meta in ir.graph_inputs:
            self.hold(meta, None)

    def local(self, shape: Sequence[Dim], placement: Placement) -> tuple[Dim, ...]:
        """Return the shape of what a rank has of a value."""
        sizes = list(shape)
        if isinstance(placement, Split):
            sizes[placement.dim] = self.share(sizes[placement.dim])
        return tuple(sizes)

    def share(self, size: Dim) -> int:
        """Return the size of what a rank has of a dimension."""
        if not isinstance(size, int) or size % self.ranks:
            raise PassError(f"{self.ranks} ranks cannot share a dimension of size {size}")
        return size // self.ranks

    def hold(self, meta: TensorMeta, placement: Placement) -> None:
        """Say what a rank has of the value of that name."""
        self.placed[meta.name] = placement
        self._forms[meta.name, placement] = meta

    def emit(
        self,
        node: OpNode | None,
        operator: str,
        arguments: Mapping[str, Any],
        like: TensorMeta,
        shape: Sequence[Dim],
        part: str,
        dtype: str | None = None,
    ) -> TensorMeta:
        """Append a call with one result, under a name beside that of the value it is for."""
        results = [(tuple(shape), dtype or like.dtype)]
        name = f"{like.name}_{part}"
        return self.builder.emit(operator, arguments, like=node, results=results, name=name)[0]

    def append(
        self, node: OpNode, operator: str, arguments: Mapping[str, Any], meta: TensorMeta
    ) -> None:
        """Append the call that gives the result of a node, under the node's own name."""
        self.builder.emit(operator, arguments, like=node.replace(outputs=[meta]))

    def reduce(
        self, node: OpNode | None, part: TensorMeta, how: str = "sum", *, own: bool = False
    ) -> TensorMeta:
        """Append the sum over the ranks (or what ``how`` says) of what each has.

        Args:
            node: The node that it is made for.
            part: What each rank has.
            how: The reduction.
            own: Whether it is the result of the node, and gets its name.
        """
        base = part if node is None else node.outputs[0]
        base = base if own else part
        arguments = {"input": part, "reduce_op": how, "group_name": self.group}
        found = self.emit(node, _REDUCE, arguments, base, part.shape, "reduced")
        if own and node is not None:
            self.append(node, _WAIT, {"tensor": found}, node.outputs[0])
            return node.outputs[0]
        return self.emit(node, _WAIT, {"tensor": found}, base, part.shape, "awaited")

    # -- forms of values --------------------------------------------------------------------------

    def form(self, meta: TensorMeta, wanted: Placement, user: OpNode | None = None) -> TensorMeta:
        """Return a value in the placement that is wanted, from what the rank has of it."""
        name = meta.name
        if (name, wanted) not in self._forms:
            node, has = self.ir.producers.get(name) or user, self.placed[name]
            if (name, None) not in self._forms:
                held = self._forms[name, has]
                if isinstance(has, Split):
                    self.gathered[name] = None
                    self._forms[name, None] = self._gathered(node, held, has.dim)
                else:
                    self._forms[name, None] = self.reduce(node, held)
            if isinstance(wanted, Split):
                self._forms[name, wanted] = self._part(node, self._forms[name, None], wanted)
        return self._forms[name, wanted]

    def _gathered(self, node: OpNode | None, held: TensorMeta, dim: int) -> TensorMeta:
        """Append what puts the parts of a value together along a dimension."""
        order = [dim, *(d for d in range(len(held.shape)) if d != dim)]
        turned = self._permuted(node, held, held, order) if dim else held
        clone = {"self": turned, "memory_format": MemoryFormat("contiguous_format")}
        own = self.emit(node, "aten.clone.default", clone, held, turned.shape, "own")
        shape = (int(str(own.shape[0])) * self.ranks, *own.shape[1:])
        arguments = {"input": own, "group_size": self.ranks, "group_name": self.group}
        found = self.emit(node, _GATHER, arguments, held, shape, "gathered")
        whole = self.emit(node, _WAIT, {"tensor": found}, held, shape, "awaited")
        back = [order.index(d) for d in range(len(order))]
        return self._permuted(node, held, whole, back) if dim else whole

    def _permuted(
        self, node: OpNode | None, like: TensorMeta, meta: TensorMeta, order: Sequence[int]
    ) -> TensorMeta:
        arguments = {"self": meta, "dims": tuple(order)}
        shape = [meta.shape[dim] for dim in order]
        return self.emit(node, "aten.permute.default", arguments, like, shape, "permuted")

    def _part(self, node: OpNode | None, whole: TensorMeta, wanted: Split) -> TensorMeta:
        """Append what picks the part of this rank from a whole value."""
        size = self.share(whole.shape[wanted.dim])
        self.depends_on_rank = True
        start = self.rank * size
        arguments = {"self": whole, "dim": wanted.dim, "start": start, "end": start + size}
        shape = self.local(whole.shape, wanted)
        return self.emit(node, "aten.slice.Tensor", arguments, whole, shape, "part")
