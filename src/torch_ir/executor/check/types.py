"""Recorded shapes and dtypes against what the operators give, inferred anew without data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from torch_ir.errors import InvalidIRError
from torch_ir.infer.bind import BoundCall
from torch_ir.infer.bindings import Symbols
from torch_ir.infer.engine import draws_by_name
from torch_ir.infer.meta import MetaResult, evaluate_fake, evaluate_meta
from torch_ir.infer.types import CallSignature, TensorType
from torch_ir.ir import OpNode, SymExpr, TensorMeta
from torch_ir.ir.diagnostics import DiagnosticError
from torch_ir.ir.tensor import row_major, type_text
from torch_ir.torch_api import OpOverload


class Derivation:
    """The types of a graph's values when its symbols have certain values.

    A result that depends on data, or that a function or a user's kernel makes, is believed.

    Args:
        symbols: The value of each symbol.
        given: The symbols that the arguments of a call give; what depends on others depends on
            data.
    """

    def __init__(self, symbols: Symbols, given: Collection[str]):
        self._symbols = symbols
        self._given = frozenset(given)
        self._types: dict[str, TensorType] = {}

    def take(self, name: str, kind: TensorType) -> None:
        """Record the type of a weight, which is there to be looked at."""
        self._types[name] = kind

    def believe(self, meta: TensorMeta) -> None:
        """Record a value as it is declared, with its elements in row-major order.

        Raises:
            DiagnosticError: ``impossible-shape``: no tensor has that shape.
        """
        self._types[meta.name] = self.recorded(meta)

    def recorded(self, meta: TensorMeta) -> TensorType:
        """The declared type of a value.

        Raises:
            DiagnosticError: ``impossible-shape``.
        """
        shape: list[int] = []
        for dim in meta.shape:
            try:
                size = int(dim.evaluate(self._symbols) if isinstance(dim, SymExpr) else dim)
            except InvalidIRError as error:
                raise DiagnosticError(
                    "impossible-shape", f"{meta} is no tensor: {error.message}"
                ) from None
            shape.append(size)
        if any(not 0 <= size < 1 << 62 for size in shape):
            at = self.at([meta])
            raise DiagnosticError(
                "impossible-shape", f"{meta} is no tensor: its shape is {shape}{at}"
            )
        stride = row_major(shape)
        if shape and stride[0] * max(shape[0], 1) >= 1 << 62:
            message = f"{meta} is no tensor: it is too large{self.at([meta])}"
            raise DiagnosticError("impossible-shape", message)
        return TensorType(tuple(shape), meta.dtype, stride)

    def at(self, metas: Sequence[TensorMeta]) -> str:
        """With which values of their symbols shapes were tried."""
        dims = [dim for meta in metas for dim in meta.shape if isinstance(dim, SymExpr)]
        names = {name for dim in dims for name in dim.symbols}
        values = self._symbols
        tried = ", ".join(f"{name} = {values[name]}" for name in sorted(names) if name in values)
        return f" (with {tried})" if tried else ""

    def step(self, call: BoundCall) -> MetaResult | None:
        """Derive the results of a node, and compare them with what is recorded.

        Raises:
            DiagnosticError: ``refused-arguments``: torch refuses the call; ``wrong-type``: a
                result has another shape or dtype than recorded. The recorded types hold then.
        """
        signature = self.signature(call)
        if signature is not None:
            found = evaluate_meta(signature)
            if self._takes(call, found):
                return found
        for meta in call.node.outputs:
            self.believe(meta)
        if signature is None:
            return None
        found = self._settled(call, signature)
        if found.kind != "ok":
            return found
        for meta in call.node.outputs:
            made = found.result(meta)
            if made is not None and not self._depends_on_data(meta):
                self._types[meta.name] = made
        return found

    def _takes(self, call: BoundCall, found: MetaResult) -> bool:
        """Take the types of results that are, to the letter, what is recorded, as most are."""
        if found.kind != "ok":
            return False
        for meta in call.node.outputs:
            made = found.result(meta)
            if made is None or made.shape != meta.shape or made.dtype != meta.dtype:
                return False
            self._types[meta.name] = made
        return True

    def _settled(self, call: BoundCall, signature: CallSignature) -> MetaResult:
        """What is found about a call; by the more exact ways where the fast one finds a fault.

        Kernels without data may lay out their results otherwise than those that run, so a call
        is refused only if torch refuses it for tensors in row-major order too.
        """
        found = evaluate_meta(signature)
        if self._fault(call, found) is None:
            return found
        found = evaluate_fake(signature)
        fault = self._fault(call, found)
        if fault is None:
            return found
        found = evaluate_meta(signature.in_row_major_order())
        if found.refusal or self._fault(call, found) is not None:
            raise fault
        return replace(found, in_place=None)

    def _fault(self, call: BoundCall, found: MetaResult) -> DiagnosticError | None:
        node = call.node
        if found.refusal:
            if any(self._depends_on_data(meta) for meta in (*node.inputs, *node.outputs)):
                return None
            return DiagnosticError("refused-arguments", f"{node.op_type} failed: {found.refusal}")
        if found.kind != "ok":
            return None
        for meta in node.outputs:
            made = found.result(meta)
            if made is None:
                return DiagnosticError(
                    "wrong-type", f"{node.op_type} makes no tensor as %{meta.name}"
                )
            if not self._agrees(meta, made):
                return self._wrong_type(node, meta, made)
        return None

    def _agrees(self, meta: TensorMeta, made: TensorType) -> bool:
        recorded = self._types[meta.name]
        if made.dtype != recorded.dtype or len(made.shape) != len(recorded.shape):
            return False
        pairs = zip(meta.shape, made.shape, recorded.shape, strict=True)
        return all(size == wanted or self._is_unknown(dim) for dim, size, wanted in pairs)

    def _is_unknown(self, dim: object) -> bool:
        return isinstance(dim, SymExpr) and not self._given.issuperset(dim.symbols)

    def _depends_on_data(self, meta: TensorMeta) -> bool:
        return any(self._is_unknown(dim) for dim in meta.shape)

    def _wrong_type(self, node: OpNode, meta: TensorMeta, made: TensorType) -> DiagnosticError:
        return DiagnosticError(
            "wrong-type",
            f"%{meta.name} is not what {node.op_type} gives" + self.at([*node.inputs, meta]),
            expected=type_text(made),
            found=type_text(meta),
        )

    def signature(self, call: BoundCall) -> CallSignature | None:
        """Return a call of an operator by its types; None if a type or number is not known."""
        node = call.node
        if not isinstance(call.target, OpOverload) or draws_by_name(node):
            return None
        types = [self._types.get(meta.name) for meta in node.inputs]
        known = tuple([kind for kind in types if kind is not None])
        return None if len(known) < len(types) else CallSignature.of(node, known, self._symbols)
