"""A program on its way to that of one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch_ir.ir import IR, Constant, Mutation, OpNode, TensorMeta
from torch_ir.ir.builder import with_leaves
from torch_ir.passes.sharding.call_rules import step_of
from torch_ir.passes.sharding.lookups import clear, looked_up, mask_of_layout, masked
from torch_ir.passes.sharding.placements import Owned, PlacedCall, ShardStep, Split
from torch_ir.passes.sharding.rank_builder import RankBuilder

_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})


class RankProgram(RankBuilder):
    """A program on its way to that of one rank, node by node."""

    def program(self) -> IR:
        """Return the program of the rank."""
        ir = self.ir
        for node in ir.nodes:
            self._node(node)
        placed = {name: self.placed[name] for name in ir.external_values()}
        mutations = [
            Mutation(m.target, self.form(m.value, placed.get(m.target))) for m in ir.mutations
        ]
        outputs = [self.form(meta, None) for meta in ir.graph_outputs]
        signature = ir.signature
        if signature is not None:
            values = dict(zip(ir.output_names, outputs, strict=True))
            signature = replace(signature, outputs=with_leaves(signature.outputs, values))
        self.builder.returns(outputs, signature, mutations)
        made = self.builder.finish()
        dims = {key: dim for key, dim in self.dims.items() if key not in made.constants}
        facts: dict[str, Any] = {
            "shards": {key: {"dim": dim, "parts": self.ranks} for key, dim in dims.items()},
            **({"gathered": tuple(self.gathered)} if self.gathered else {}),
        }
        sizes = {key: Split(dim) for key, dim in dims.items()}
        return made.replace(
            weights=[
                meta.replace(shape=self.local(meta.shape, sizes.get(meta.name)))
                for meta in made.weights
            ],
            constants={key: self._constant(key, value) for key, value in made.constants.items()},
            metadata={**made.metadata, **facts},
        )

    def _constant(self, key: str, value: Constant) -> Constant:
        if key not in self.dims:
            return value
        dim, tensor = self.dims[key], value.torch()
        size = tensor.shape[dim] // self.ranks
        self.depends_on_rank |= not value.is_filled
        return Constant.from_torch(tensor.narrow(dim, self.rank * size, size).contiguous())

    # -- nodes ------------------------------------------------------------------------------------

    def _node(self, node: OpNode) -> None:
        placements = tuple([self.placed[meta.name] for meta in node.inputs])
        if node.op_type.split(".")[1] in _ZEROS:
            self.zeros.update(meta.name for meta in node.outputs)
        whole = ShardStep((None,) * len(placements), (None,) * len(node.outputs))
        masked = {owner: len(mask.shape) for owner, mask in self.elsewhere.items()}
        call = PlacedCall(node, placements, self.ranks, frozenset(self.zeros), masked)
        if not any(placements):
            self._keep(node, whole)
        elif not looked_up(self, call):
            self._keep(node, step_of(call) or whole)

    def _keep(self, node: OpNode, step: ShardStep) -> None:
        """Append a node on what a rank has."""
        taken = zip(node.inputs, step.taken, strict=True)
        inputs = [self.form(meta, placement, node) for meta, placement in taken]
        if step.reduce is not None:
            self._reduced(node, step, inputs)
            return
        if step.clear is not None:
            (meta,) = node.outputs
            found = self.emit(
                node, node.op_type, node.arguments(inputs), meta, meta.shape, "found"
            )
            clear(self, node, found, step.clear)
            self.hold(meta, *step.given)
            return
        outputs: list[TensorMeta] = []
        for meta, placement in zip(node.outputs, step.given, strict=True):
            outputs.append(meta.replace(shape=self.local(meta.shape, placement)))
            self.hold(outputs[-1], placement)
        self._follow(node, step)
        changed = node.replace(inputs=inputs, outputs=outputs, attrs={**node.attrs, **step.attrs})
        self.builder.nodes.append(node if changed == node else changed)

    def _follow(self, node: OpNode, step: ShardStep) -> None:
        """Keep the mask of what is owned where its layout changes."""
        has = self.placed[node.inputs[0].name] if node.inputs else None
        given = step.given[0] if step.given else None
        if isinstance(has, Owned) and isinstance(given, Owned) and has.owner != given.owner:
            mask = mask_of_layout(self, node, has.owner)
            if mask is not None:
                self.elsewhere[given.owner] = mask

    def _reduced(self, node: OpNode, step: ShardStep, inputs: Sequence[TensorMeta]) -> None:
        """Append a node whose result the ranks put together."""
        (meta,) = node.outputs
        arguments = {**node.arguments(inputs), **step.attrs}
        operator, late = node.op_type, None
        if step.late is not None:
            late = arguments.pop(step.late)
            operator, arguments = _without_addend(operator, arguments)
        part = self.emit(node, operator, arguments, meta, meta.shape, "part")
        if step.clear is not None:
            part = masked(self, node, part, self.elsewhere[step.clear])
        how = step.reduce or "sum"
        if late is None:
            self.reduce(node, part, how, own=True)
        else:
            whole = self.reduce(node, part, how)
            self.append(node, "aten.add.Tensor", {"self": whole, "other": late}, meta)
        self.hold(meta, None)


def _without_addend(operator: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The product alone of one that adds to it."""
    if operator == "aten.addmm.default":
        return "aten.mm.default", {"self": arguments["mat1"], "mat2": arguments["mat2"]}
    if operator == "aten.baddbmm.default":
        return "aten.bmm.default", {"self": arguments["batch1"], "mat2": arguments["batch2"]}
    return operator, dict(arguments)
