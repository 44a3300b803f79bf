"""Core ATen without numbers: each that a tensor can stand for becomes one.

The strict reading of the specification has no scalar anywhere. Overloads that take one have a
counterpart that takes a tensor, or another operator computes the same, bit for bit. What has
neither stays, and the verifier of the strict dialect lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch  # this module is imported where programs are lowered, and only there

from torch_ir.ir import IR, Constant, OpNode, Signature, TensorLeaf, TensorMeta, Tree
from torch_ir.ir.builder import Builder
from torch_ir.ir.tree import ValueLeaf, map_leaves
from torch_ir.ops.clamps import cut_bound
from torch_ir.passes.edge.promotion import cast_number

MAX_FOLDED = 1 << 16
"""How many elements a constant may have that takes the place of a call."""

_PAIRS = (
    *("add", "sub", "mul", "div", "fmod", "remainder"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le", "gt", "ge"),
)

_WITH_TENSORS: Mapping[str, str] = {
    **{f"aten.{name}.Scalar": f"aten.{name}.Tensor" for name in _PAIRS},
    "aten.div.Scalar_mode": "aten.div.Tensor_mode",
    "aten.pow.Scalar": "aten.pow.Tensor_Tensor",
}
"""Overloads that take numbers, to those that take tensors in their place, by the same names."""

_DEFAULTS: Mapping[tuple[str, str], int] = {
    **{(f"aten.{name}", "alpha"): 1 for name in ("add.Tensor", "sub.Tensor")},
    **{(f"aten.{name}", "alpha"): 1 for name in ("add.Scalar", "sub.Scalar")},
    ("aten.addmm.default", "alpha"): 1,
    ("aten.addmm.default", "beta"): 1,
    ("aten.constant_pad_nd.default", "value"): 0,
    ("aten.var.correction", "correction"): 1,
}
"""Numbers that need not be said."""


def without_numbers(ir: IR) -> IR:
    r"""Replace numbers that a program takes and returns by tensors, where there can be any.

    Args:
        ir: A program in core ATen.

    Example:
        >>> from torch_ir import parse
        >>> ir = without_numbers(parse('''
        ... ir "Keep" {
        ...   dialect "core_aten"
        ...   input %x: f32[2]
        ...   %square: f32[2] = aten.pow.Tensor_Scalar(%x, exponent=2)
        ...   %large: b8[2] = aten.gt.Scalar(%square, other=0.5)
        ...   return %large
        ... }
        ... '''))
        >>> print(*ir.nodes, sep="\n")
        %square: f32[2] = aten.mul.Tensor(%x, %x)
        %large: b8[2] = aten.gt.Tensor(%square, other=0.5)
    """
    return _Numbers(ir).run()


@dataclass(slots=True)
class _Numbers:
    """One graph on its way."""

    ir: IR
    is_body: bool = False
    builder: Builder = field(init=False)

    def __post_init__(self) -> None:
        self.builder = Builder(self.ir)

    def run(self) -> IR:
        """Convert the graph and its functions."""
        for node in self.ir.nodes:
            self._add(_without_defaults(self.builder.mapped(node)))
        self.builder.map_functions(lambda body: _Numbers(body, is_body=True).run())
        signature = self.ir.signature
        if signature is not None and not self.is_body:
            given: list[TensorMeta] = []
            tree = self._results(signature.outputs, given)
            if tree != signature.outputs:
                self.builder.returns(given, Signature(signature.inputs, tree))
        return self.builder.finish()

    def _results(self, tree: Tree, given: list[TensorMeta]) -> Tree:
        """The tree of results with a constant for each number; its tensors are added in order."""

        def result(leaf: TensorLeaf | ValueLeaf) -> Tree:
            if isinstance(leaf, TensorLeaf):
                meta = self.builder.value(self._outputs()[leaf.name])
            elif isinstance(leaf.value, bool | int | float):
                meta = self._constant(torch.tensor(leaf.value, dtype=_EXACT[type(leaf.value)]))
            else:
                return leaf
            given.append(meta)
            return TensorLeaf(meta.name)

        return map_leaves(tree, result)

    def _outputs(self) -> Mapping[str, TensorMeta]:
        return self.ir.view("outputs by name", lambda: {m.name: m for m in self.ir.graph_outputs})

    def _constant(self, tensor: torch.Tensor) -> TensorMeta:
        return self.builder.constant(Constant.from_torch(tensor), "number", shared=False)

    # -- one node ---------------------------------------------------------------------------------

    def _add(self, node: OpNode) -> None:
        rewrite = _REWRITES.get(node.op_type)
        if node.op_type in _WITH_TENSORS:
            node = node.replace(op_type=_WITH_TENSORS[node.op_type])
        elif rewrite is not None and rewrite(self, node):
            return
        self.builder.nodes.append(node)

    def number(self, node: OpNode, name: str, dtype: str) -> TensorMeta | None:
        """The constant for an argument; None in functions, which have none, and for sizes."""
        value: Any = node.attrs.get(name)
        if self.is_body or not isinstance(value, bool | int | float | complex):
            return None
        return self._constant(cast_number(value, dtype))

    def _beside(
        self, node: OpNode, part: str, op_type: str, like: TensorMeta, /, **arguments: Any
    ) -> TensorMeta:
        """Add a call beside a node; return its result, which has the type of another value."""
        name, results = f"{node.name}_{part}", [(like.shape, like.dtype)]
        return self.builder.emit(op_type, arguments, like=node, results=results, name=name)[0]

    def _instead(self, node: OpNode, op_type: str, /, **arguments: Any) -> bool:
        """Add a call in the place of a node."""
        return bool(self.builder.emit(op_type, arguments, like=node))

    # -- calls that give the same numbers: whether there are any ----------------------------------

    def folded(self, node: OpNode) -> bool:
        """A tensor that is known: ``arange`` and ``scalar_tensor``."""
        (result,) = node.outputs
        known = {k: node.attrs[k] for k in ("start", "end", "step", "s") if k in node.attrs}
        numbers = all(isinstance(value, bool | int | float) for value in known.values())
        if self.is_body or not numbers or (result.nbytes or MAX_FOLDED + 1) > MAX_FOLDED:
            return False
        dtype = getattr(torch, result.dtype)
        arguments: Any = known
        if "s" in known:
            tensor = torch.ops.aten.scalar_tensor.default(arguments["s"], dtype=dtype)
        else:
            tensor = torch.ops.aten.arange.start_step(**arguments, dtype=dtype)
        self.builder.replace(result, self._constant(tensor))
        return True

    def filled(self, node: OpNode) -> bool:
        """One number everywhere: a constant, expanded."""
        (result,) = node.outputs
        number = self.number(
            node, "fill_value" if "fill_value" in node.attrs else "value", result.dtype
        )
        if number is None:
            return False
        return self._instead(node, "aten.expand.default", self=number, size=result.shape)

    def scattered(self, node: OpNode) -> bool:
        """A number that is scattered, as a tensor of the shape of the index."""
        number = self.number(node, "value", node.outputs[0].dtype)
        if number is None:
            return False
        index: TensorMeta = node.argument("index")
        like, size = index.replace(dtype=number.dtype), index.shape
        source = self._beside(node, "src", "aten.expand.default", like, self=number, size=size)
        scatter = node.replace(
            op_type="aten.scatter.src",
            inputs=(*node.inputs, source),
            attrs={"dim": node.attrs["dim"]},
            operands={**node.slots, "src": len(node.inputs)},
        )
        self.builder.nodes.append(scatter)
        return True

    def power(self, node: OpNode) -> bool:
        """A power, where other calls give its bits.

        The kernel for a number has short cuts, and in single and double precision it rounds other
        powers otherwise than that for tensors.
        """
        exponent = node.attrs["exponent"]
        (base,), (result,) = node.inputs, node.outputs
        is_real = isinstance(exponent, bool | int | float)
        if is_real and "float" in base.dtype and base.dtype != "float16":
            short = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent)
            if short == "rsqrt" and base.dtype == "bfloat16":
                return False  # neither is what the kernel computes
            if short is not None:
                return self._instead(node, f"aten.{short}.default", self=base)
            if exponent == 2:
                return self._instead(node, "aten.mul.Tensor", self=base, other=base)
            if exponent in (3, -2):
                mul = "aten.mul.Tensor"
                square = self._beside(node, "square", mul, result, self=base, other=base)
                if exponent == 3:
                    return self._instead(node, mul, self=square, other=base)
                return self._instead(node, "aten.reciprocal.default", self=square)
            if base.dtype != "bfloat16" and exponent not in (0, 1):
                return False
        self.builder.nodes.append(node.replace(op_type="aten.pow.Tensor_Tensor"))
        return True

    def clamped(self, node: OpNode) -> bool:
        """``clamp`` with bounds that the type of its operand holds."""
        return self._clamp(node, node.attrs)

    def bounded(self, node: OpNode) -> bool:
        """``hardtanh``, which is ``clamp`` with defaults."""
        bounds = {
            "min": node.attrs.get("min_val", -1),
            "max": node.attrs.get("max_val", 1),
        }
        return self._clamp(node, bounds)

    def _clamp(self, node: OpNode, bounds: Mapping[str, Any]) -> bool:
        dtype = getattr(torch, node.outputs[0].dtype)
        if not (dtype is torch.bool or dtype.is_floating_point or dtype.is_complex):
            info = torch.iinfo(dtype)
            bounds = {
                name: cut_bound(value, info.min, info.max, lower=name == "min")
                if isinstance(value, int | float)
                else value
                for name, value in bounds.items()
            }
        self.builder.nodes.append(node.replace(op_type="aten.clamp.Tensor", attrs=bounds))
        return True

    def leaky(self, node: OpNode) -> bool:
        """``leaky_relu``: the product with the slope where a number is not positive."""
        (given,), (result,) = node.inputs, node.outputs
        slope, truth = node.attrs.get("negative_slope", 0.01), result.replace(dtype="bool")
        scaled = self._beside(node, "mul", "aten.mul.Tensor", result, self=given, other=slope)
        positive = self._beside(node, "gt", "aten.gt.Tensor", truth, self=given, other=0)
        where = "aten.where.self"
        return self._instead(node, where, condition=positive, self=given, other=scaled)


_EXACT = {bool: torch.bool, int: torch.int64, float: torch.float64}
"""The dtype that holds every number of a kind."""

_REWRITES: Mapping[str, Callable[[_Numbers, OpNode], bool]] = {
    "aten.arange.start_step": _Numbers.folded,
    "aten.scalar_tensor.default": _Numbers.folded,
    "aten.full.default": _Numbers.filled,
    "aten.full_like.default": _Numbers.filled,
    "aten.fill.Scalar": _Numbers.filled,
    "aten.scatter.value": _Numbers.scattered,
    "aten.pow.Tensor_Scalar": _Numbers.power,
    "aten.clamp.default": _Numbers.clamped,
    "aten.hardtanh.default": _Numbers.bounded,
    "aten.leaky_relu.default": _Numbers.leaky,
}


def _without_defaults(node: OpNode) -> OpNode:
    """The call without numbers that are the defaults of its arguments."""
    attrs = {
        name: value
        for name, value in node.attrs.items()
        if (node.op_type, name) not in _DEFAULTS or value != _DEFAULTS[node.op_type, name]
    }
    return node if len(attrs) == len(node.attrs) else node.replace(attrs=attrs)
