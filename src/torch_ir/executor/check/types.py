"""Recorded shapes and dtypes against what the operators give, inferred anew without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch_ir.errors import InvalidIRError
from torch_ir.infer.binder import BoundCall
from torch_ir.infer.bindings import DataSizes, Symbols
from torch_ir.infer.engine import draws_by_name, evaluate_unbacked
from torch_ir.infer.meta import MetaResult, evaluate_fake, evaluate_meta
from torch_ir.infer.types import CallSignature, Outcome, TensorType
from torch_ir.ir import IR, Dim, OpNode, SymExpr, TensorMeta
from torch_ir.ir.analysis.sparse import SparseValues
from torch_ir.ir.diagnostics import DiagnosticError
from torch_ir.ir.queries import symbols_in, takes_free_number
from torch_ir.ir.symbols import value_at
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import attribute_symbols, row_major
from torch_ir.torch_api import OpOverload


class Derivation:
    """The types of a graph's values when its symbols have certain values.

    A result that a function or a user's kernel makes is believed, and that of an operator on a
    sparse tensor which refuses the dense one that stands for it here. A size that data decides is
    a new symbol, or one that the program reads and asserts.

    Args:
        symbols: The value of each symbol.
        ir: The graph; what depends on other symbols than those of its arguments depends on data.
    """

    def __init__(self, symbols: Symbols, ir: IR):
        self._symbols = symbols
        self._ir = ir
        self._given = ir.given_symbols
        self._types: dict[str, TensorType] = {}
        self._sparse = SparseValues(ir)

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
                size = int(value_at(dim, self._symbols))
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
        values = self._symbols
        names = sorted(symbols_in(metas) & values.keys())
        tried = ", ".join(f"{name} = {values[name]}" for name in names)
        return f" (with {tried})" if tried else ""

    def step(self, call: BoundCall) -> MetaResult | None:
        """Derive the results of a node, and compare them with what is recorded.

        Raises:
            DiagnosticError: ``refused-arguments``: torch refuses the call; ``wrong-type``: a
                result has another shape or dtype than recorded. The recorded types hold then.
        """
        signature, takes_sparse = self.signature(call), self._sparse.takes(call.node)
        self._sparse.keep(call.node)
        if signature is not None:
            found = evaluate_meta(signature)
            if self._takes(call, found):
                return found
        for meta in call.node.outputs:
            self.believe(meta)
        if signature is None:
            return None
        try:
            found = self._settled(call, signature)
        except DiagnosticError:
            if takes_sparse:
                return None
            raise
        if found.kind == "data-dependent":
            self._require_sizes(call.node, evaluate_unbacked(signature))
        if found.kind != "ok":
            return found
        for meta in call.node.outputs:
            made = found.result(meta)
            if made is not None and not any(map(self._is_unknown, meta.shape)):
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
            if not self._given.issuperset(node.symbols) or takes_free_number(self._ir, node):
                return None  # torch was asked for numbers that data or a caller gives otherwise
            return DiagnosticError("refused-arguments", f"{node.op_type} failed: {found.refusal}")
        if found.kind != "ok":
            return None
        for meta in node.outputs:
            made = found.result(meta)
            if made is None:
                return _no_tensor(node, meta)
            if not self._agrees(node, meta, made):
                return self._wrong_type(node, meta, made)
        return None

    def _agrees(self, node: OpNode, meta: TensorMeta, made: TensorType) -> bool:
        recorded = self._types[meta.name]
        if made.dtype != recorded.dtype or len(made.shape) != len(recorded.shape):
            return False
        pairs = zip(meta.shape, made.shape, recorded.shape, strict=True)
        return all(
            size == wanted or (self._is_unknown(dim) and not _follows(node, dim))
            for dim, size, wanted in pairs
        )

    def _require_sizes(self, node: OpNode, found: Outcome) -> None:
        """Refuse what is recorded of results whose sizes data decides, unless it is so.

        Raises:
            DiagnosticError: ``wrong-type``.
        """
        if found.kind != "data-dependent" or not found.results:
            return  # torch cannot tell
        own: dict[str, Dim] = {}
        for meta in node.outputs:
            made = found.result(meta)
            if made is None:
                raise _no_tensor(node, meta)
            if made.dtype != meta.dtype or len(made.shape) != len(meta.shape):
                raise self._wrong_type(node, meta, made)
            for axis, size in enumerate(made.shape):
                if isinstance(size, int):
                    if self._types[meta.name].shape[axis] != size:
                        raise self._wrong_type(node, meta, made)
                elif not _is_found(self._ir, node, meta, axis, size, own):
                    raise DiagnosticError(
                        "wrong-type",
                        f"data decides dimension {axis} of %{meta.name}",
                        expected="a new symbol",
                        found=str(meta.shape[axis]),
                    )

    def _is_unknown(self, dim: object) -> bool:
        return isinstance(dim, SymExpr) and not self._given.issuperset(dim.symbols)

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


def _no_tensor(node: OpNode, meta: TensorMeta) -> DiagnosticError:
    return DiagnosticError("wrong-type", f"{node.op_type} makes no tensor as %{meta.name}")


def _is_found(
    ir: IR, node: OpNode, meta: TensorMeta, axis: int, size: Dim, own: dict[str, Dim]
) -> bool:
    """Whether a size that data decides is recorded as a symbol which the node binds to it.

    So is another result's that is the same size.
    """
    sizes = ir.view("data_sizes", lambda: DataSizes(ir))
    text = str(meta.shape[axis])
    is_told = text in sizes.bound(node) or sizes.is_counted(node, text)
    if is_told or own.get(text) == size or sizes.is_asserted(meta, axis):
        return own.setdefault(text, size) == size
    return False


def _follows(node: OpNode, dim: Dim) -> bool:
    """Whether nothing but the sizes of a node's inputs can give a size with these symbols."""
    taken = {s for meta in node.inputs for size in meta.shape for s in attribute_symbols(size)}
    is_plain = not any(map(attribute_symbols, node.attrs.values()))
    return is_plain and taken.issuperset(attribute_symbols(dim))
