"""Chains of dtype casts as one cast, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_ir.arguments import public
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.builder import Builder
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.dead_code import eliminate_dead_code
from torch_ir.passes.no_ops import remove_no_ops

CASTS = frozenset({"aten._to_copy.default", "aten.to.dtype", "prims.convert_element_type.default"})

_INTEGERS = {  # the least and the largest value
    "bool": (0, 1),
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
}
_FLOATS = {  # bits of the significand, and of the exponent
    "bfloat16": (8, 8),
    "float16": (11, 5),
    "float32": (24, 8),
    "float64": (53, 11),
}


@dataclass(frozen=True)
class CleanCasts(Pass):
    """Makes one cast of a chain of casts; see :func:`clean_casts`."""

    name: ClassVar[str] = "clean-casts"

    def call(self, ir: IR) -> PassResult:
        """Remove casts that others make redundant."""
        return PassResult.of(ir, clean_casts(ir))


@public
def clean_casts(ir: IR) -> IR:
    """Merge each chain of casts into one, and remove those that change no dtype.

    A cast is passed over if it keeps every value, as ``float16`` to ``float32`` does. The bits
    stay, but for those of a signaling NaN, which the longer way makes quiet. Functions are
    changed too. The same object if there is nothing to do.

    Example:
        >>> from torch_ir import parse
        >>> print(clean_casts(parse('''
        ... ir "There" {
        ...   input %x: i8[2]
        ...   %a: i32[2] = aten._to_copy.default(%x, dtype=torch.int32)
        ...   %b: f32[2] = aten._to_copy.default(%a, dtype=torch.float32)
        ...   return %b
        ... }
        ... ''')))
        ir "There" {
          input %x: i8[2]
          %b: f32[2] = aten._to_copy.default(%x, dtype=torch.float32)
          return %b
        }
    """
    shortened = _shortened(ir)
    result = remove_no_ops(shortened, CASTS)
    return ir if result is ir else eliminate_dead_code(result)


def _shortened(ir: IR) -> IR:
    builder = Builder(ir)
    builder.map_functions(_shortened)
    memory = StorageGroups(ir)
    producers = dict(ir.producers)
    for node in ir.nodes:
        while (source := _passed_over(node, producers, memory)) is not None:
            inner = producers[node.inputs[0].name]
            node = node.replace(inputs=(source,)).derived_from(inner, node)
        producers.update({meta.name: node for meta in node.outputs})
        builder.keep(node)
    return builder.finish()


def _passed_over(
    node: OpNode, producers: dict[str, OpNode], memory: StorageGroups
) -> TensorMeta | None:
    """Return the source of an inner cast that the outer cast makes redundant, or None."""
    if not _is_plain(node):
        return None
    inner = producers.get(node.inputs[0].name)
    if inner is None or not _is_plain(inner):
        return None
    source, middle, target = inner.inputs[0], inner.outputs[0], node.outputs[0]
    if any(memory.is_written(meta.name) for meta in (source, middle, target)):
        return None
    fits = keeps_values(source.dtype, middle.dtype) and (
        # what an integer holds of a float that is too large is up to the conversion
        source.dtype not in _FLOATS or target.dtype in _FLOATS or target.dtype == "bool"
    )
    return source if fits else None


def _is_plain(node: OpNode) -> bool:
    """Whether a node is a cast, and nothing else."""
    if node.op_type not in CASTS or len(node.inputs) != 1 or len(node.outputs) != 1:
        return False
    others = {name for name, value in node.attrs.items() if value not in (None, False)}
    asked = next((v for v in node.attrs.values() if isinstance(v, DType)), None)
    is_copy = node.op_type != "aten.to.dtype" or node.inputs[0].dtype != node.outputs[0].dtype
    return others == {"dtype"} and asked == DType(node.outputs[0].dtype) and is_copy


def keeps_values(source: str, target: str) -> bool:
    """Return whether every value of one dtype is one of the other.

    Example:
        >>> keeps_values("float16", "float32"), keeps_values("int32", "float32")
        (True, False)
    """
    if source in _INTEGERS and target in _INTEGERS:
        (least, largest), (lower, upper) = _INTEGERS[source], _INTEGERS[target]
        return lower <= least and largest <= upper and target != "bool"
    if source in _INTEGERS and target in _FLOATS:
        bits, exponent = _FLOATS[target]
        return max(map(abs, _INTEGERS[source])) <= 2 ** min(bits, 2 ** (exponent - 1) - 1)
    if source in _FLOATS and target in _FLOATS:
        pairs = zip(_FLOATS[source], _FLOATS[target], strict=True)
        return all(narrow <= wide for narrow, wide in pairs)
    return False
