"""Values that depend on weights and constants alone, computed ahead as weights of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from torch_ir.arguments import public
from torch_ir.errors import PassError
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.builder import Builder, Names
from torch_ir.ir.queries import kept_values
from torch_ir.ir.values import dtype_name
from torch_ir.passes.constant_folding import computed_ahead


@dataclass(frozen=True, slots=True)
class FoldedProgram:
    """A program of which a part is computed ahead, and its weights.

    Attributes:
        ir: The program.
        weights: Its weights by key: those that were given and are still used, and the new ones.
        folded: The names of the nodes that new weights stand for, or are used by.
    """

    ir: IR
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    folded: tuple[str, ...]


@public
def fold_weights(ir: IR, weights: Mapping[str, torch.Tensor]) -> FoldedProgram:
    """Compute ahead every value that depends on weights and constants alone.

    torch computes them on the CPU, bit for bit as the program does there; a value that is used by
    what depends on arguments becomes a weight under a key of its own, ``NODE.folded``. What
    :func:`~torch_ir.passes.fold_constants` leaves is left here too: what is written or returned,
    random, not in row-major order, or in a function.

    Args:
        ir: The program.
        weights: Its weights by ``state_dict`` key; they stay as they are.

    Raises:
        PassError: A weight that is needed is not given, or does not have its shape and dtype.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''
        ... ir "Scaled" {
        ...   weight @w: f32[2, 2]
        ...   input %x: f32[2, 2]
        ...   %half: f32[2, 2] = aten.mul.Tensor(@w, 0.5)
        ...   %y: f32[2, 2] = aten.mm.default(%x, %half)
        ...   return %y
        ... }
        ... ''')
        >>> folded = fold_weights(ir, {"w": torch.ones(2, 2)})
        >>> [node.op_type for node in folded.ir.nodes], folded.weights["half.folded"].sum().item()
        (['aten.mm.default'], 2.0)
    """
    edited = WeightEditor(ir, weights)
    given = {
        name: edited.value(meta.replace(name=name))
        for name, (_, meta) in ir.external_values().items()
        if isinstance(meta, TensorMeta) and ir.users.get(name)
    }
    values = computed_ahead(ir, given)
    depends = set(given)
    for node in ir.nodes:
        if not depends.isdisjoint([meta.name for meta in node.inputs]):
            depends.update([meta.name for meta in node.outputs])
    kept: list[OpNode] = []
    needed: dict[str, TensorMeta] = {}
    for node in reversed(ir.nodes):
        made = [meta.name for meta in node.outputs]
        used = [name for name in made if name in needed]
        is_known = bool(made) and values.keys() >= set(made) and depends >= set(made)
        if not (is_known and all(values[name].is_contiguous() for name in used)):
            kept.append(node)
            needed.update({meta.name: meta for meta in node.inputs})
    if len(kept) == len(ir.nodes):
        return FoldedProgram(ir, dict(weights), ())
    made_still = {meta.name for node in kept for meta in node.outputs}
    new = [name for name in sorted(needed.keys() & values.keys()) if name not in made_still]
    for name in new:
        edited.builder.replace(needed[name], edited.added(name, values[name]))
    for node in reversed(kept):
        edited.builder.keep(node)
    return edited.finished(tuple([needed[name].producer_node or name for name in new]))


class WeightEditor:
    """Weights of a program that are changed with it.

    Attributes:
        builder: The changed program.
        weights: The tensors by key.
    """

    def __init__(self, ir: IR, weights: Mapping[str, torch.Tensor]):
        self.ir = ir
        self.builder = Builder(ir)
        self.weights = dict(weights)
        self._external = ir.external_values()
        self._metas = {meta.name: meta for meta in ir.weights}
        self._mapping = dict(ir.weight_name_mapping)
        for alias, key in ir.weight_aliases.items():  # a checkpoint may name a tied weight once
            if alias in weights:
                self.weights.setdefault(key, weights[alias])
        self._keys = Names((*self._metas, *self.weights, *ir.constants))

    def key(self, meta: TensorMeta) -> str:
        """Return the key of the weight that a value is; an empty text for another value."""
        found = self._external.get(meta.name)
        return found[0] if found is not None and found[0] in self._metas else ""

    def value(self, meta: TensorMeta) -> torch.Tensor:
        """Return the tensor of a weight.

        Raises:
            PassError: It is not given, or has another shape or dtype.
        """
        key = self.key(meta)
        value = self.weights.get(key)
        if value is None:
            got = "is not given"
        elif tuple(value.shape) == meta.shape and dtype_name(value.dtype) == meta.dtype:
            return value.detach()
        elif tuple(value.shape) != meta.shape:
            got = f"has shape {list(value.shape)}"
        else:
            got = f"is of {dtype_name(value.dtype)}"
        raise PassError(
            f"the weight {key!r} {got}; folding needs it as {meta}",
            remedy="Give the weights that the program runs with.",
        )

    def added(self, key: str, value: torch.Tensor) -> TensorMeta:
        """Return a new weight with that value, under a key of its own, ``KEY.folded``."""
        wanted = self._keys.fresh(f"{key}.folded")
        self.weights[wanted] = value
        meta = TensorMeta(wanted, tuple(value.shape), dtype_name(value.dtype))
        self._metas[wanted] = meta
        name = self.builder.names.fresh(f"p_{wanted.replace('.', '_')}")
        self._mapping[name] = wanted
        return meta.replace(name=name)

    def finished(self, folded: tuple[str, ...]) -> FoldedProgram:
        """Return the changed program without the weights that only removed nodes used."""
        ir = self.builder.finish()
        kept = kept_values(ir).union(ir.users, [mutation.target for mutation in ir.mutations])
        keys = {self._mapping.get(name, name) for name in kept}
        gone = {self._mapping.get(name, name) for name in self.ir.users.keys() - kept} - keys
        gone |= {alias for alias, key in self.ir.weight_aliases.items() if key in gone}
        weights = {key: value for key, value in self.weights.items() if key not in gone}
        ir = ir.replace(
            weights=[meta for key, meta in self._metas.items() if key not in gone],
            weight_name_mapping={n: k for n, k in self._mapping.items() if k not in gone},
            weight_aliases={a: k for a, k in self.ir.weight_aliases.items() if k not in gone},
        )
        return FoldedProgram(ir, weights, folded)
