"""The types that a graph's operators give, derived anew, against those that are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from torch_ir.errors import InvalidIRError
from torch_ir.infer.bind import (
    Call,
    Expression,
    Function,
    Listed,
    Literal,
    Named,
    Operand,
    Read,
)
from torch_ir.infer.bindings import Symbols
from torch_ir.infer.meta import (
    Exact,
    Pattern,
    Proof,
    Result,
    Signature,
    Type,
    in_row_major_order,
    prove,
    prove_fake,
)
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

    def __init__(self, symbols: Symbols, given: frozenset[str]):
        self._symbols = symbols
        self._given = given
        self._types: dict[str, Type] = {}

    def take(self, name: str, kind: Type) -> None:
        """Record the type of a weight, which is there to be looked at."""
        self._types[name] = kind

    def believe(self, meta: TensorMeta) -> None:
        """Record a value's declared type, with its elements in row-major order.

        Raises:
            DiagnosticError: ``impossible-shape``: no tensor has that shape.
        """
        self._types[meta.name] = self.recorded(meta)

    def recorded(self, meta: TensorMeta) -> Type:
        """Return the declared type of a value.

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
        return Type(tuple(shape), stride, getattr(torch, meta.dtype))

    def at(self, metas: Sequence[TensorMeta]) -> str:
        """Describe the values of symbols with which shapes were tried."""
        dims = [dim for meta in metas for dim in meta.shape if isinstance(dim, SymExpr)]
        names = {name for dim in dims for name in dim.symbols}
        values = self._symbols
        tried = ", ".join(f"{name} = {values[name]}" for name in sorted(names) if name in values)
        return f" (with {tried})" if tried else ""

    def step(self, call: Call) -> Proof | None:
        """Derive the results of a node, and compare them with what is recorded.

        Raises:
            DiagnosticError: ``refused-arguments``: torch refuses the call; ``wrong-type``: a
                result has another shape or dtype than recorded. The recorded types hold then.
        """
        signature = self.signature(call)
        if signature is not None:
            proof = prove(signature)
            if self._takes(call, proof):
                return proof
        for meta in call.node.outputs:
            self.believe(meta)
        if signature is None:
            return None
        proof = self._settled(call, signature)
        for meta in call.node.outputs:
            made = _result(proof, meta)
            if made is not None and not self._depends_on_data(meta):
                self._types[meta.name] = made.type
        return proof

    def _takes(self, call: Call, proof: Proof) -> bool:
        """Take the types of results that are, to the letter, what is recorded, as most are."""
        made = proof.results or ()
        for meta in call.node.outputs:
            index = meta.producer_output_idx
            result = made[index] if index < len(made) else None
            if result is None or result.type.shape != meta.shape:
                return False
            if result.type.dtype is not getattr(torch, meta.dtype):
                return False
            self._types[meta.name] = result.type
        return proof.results is not None

    def _settled(self, call: Call, signature: Signature) -> Proof:
        """The proof of a call; by the more exact ways where the fast one finds a fault.

        Kernels without data may lay out their results otherwise than those that run, so a call
        is refused only if torch refuses it for tensors in row-major order too.
        """
        proof = prove(signature)
        if self._fault(call, proof) is None:
            return proof
        proof = prove_fake(signature)
        fault = self._fault(call, proof)
        if fault is None:
            return proof
        proof = prove(in_row_major_order(signature))
        if proof.refusal or self._fault(call, proof) is not None:
            raise fault
        return replace(proof, in_place=None)

    def _fault(self, call: Call, proof: Proof) -> DiagnosticError | None:
        node = call.node
        if proof.refusal:
            if any(self._depends_on_data(meta) for meta in (*node.inputs, *node.outputs)):
                return None
            return DiagnosticError("refused-arguments", f"{node.op_type} failed: {proof.refusal}")
        if proof.results is None:
            return None
        for meta in node.outputs:
            made = _result(proof, meta)
            if made is None:
                return DiagnosticError(
                    "wrong-type", f"{node.op_type} makes no tensor as %{meta.name}"
                )
            if not self._agrees(meta, made.type):
                return self._wrong_type(node, meta, made.type)
        return None

    def _agrees(self, meta: TensorMeta, made: Type) -> bool:
        recorded = self._types[meta.name]
        if made.dtype != recorded.dtype or len(made.shape) != len(recorded.shape):
            return False
        pairs = zip(meta.shape, made.shape, recorded.shape, strict=True)
        return all(size == wanted or self._is_unknown(dim) for dim, size, wanted in pairs)

    def _is_unknown(self, dim: object) -> bool:
        return isinstance(dim, SymExpr) and not self._given.issuperset(dim.symbols)

    def _depends_on_data(self, meta: TensorMeta) -> bool:
        return any(self._is_unknown(dim) for dim in meta.shape)

    def _wrong_type(self, node: OpNode, meta: TensorMeta, made: Type) -> DiagnosticError:
        dtype = str(made.dtype)
        return DiagnosticError(
            "wrong-type",
            f"%{meta.name} is not what {node.op_type} gives" + self.at([*node.inputs, meta]),
            expected=type_text(TensorMeta("", made.shape, dtype)),
            found=type_text(meta),
        )

    # -- patterns ---------------------------------------------------------------------------------

    def signature(self, call: Call) -> Signature | None:
        """Return a call of an operator by its types; None if a type or number is not known."""
        if not isinstance(call.target, OpOverload):
            return None
        try:
            args = tuple([self._pattern(operand) for operand in call.args])
            kwargs = tuple([(name, self._pattern(operand)) for name, operand in call.kwargs])
        except (InvalidIRError, _UntypedError):  # an expression without a value, or no plain value
            return None
        return Signature(call.target, args, kwargs)

    def _pattern(self, operand: Operand) -> Pattern:
        if type(operand) is Read and operand.name in self._types:
            return self._types[operand.name]
        match operand:
            case Literal(value=value):
                return _literal(value)
            case Expression(value=value):
                number = value.evaluate(self._symbols)
                return Exact(type(number), number)
            case Listed(parts=parts):
                return tuple([self._pattern(part) for part in parts])
            case Read() | Function() | Named():  # a value that is not strided has no type here
                raise _UntypedError


class _UntypedError(Exception):
    """A call has an argument that no operator with a schema takes."""


def _literal(value: Any) -> Pattern:
    if value is None:
        return None
    if type(value) in _PLAIN:
        return Exact(type(value), value)
    if isinstance(value, list):
        return tuple([_literal(item) for item in value])  # pyright: ignore[reportUnknownVariableType]  # of whatever the attribute holds
    raise _UntypedError


_PLAIN = frozenset(
    [
        *(bool, int, float, complex, str),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    ]
)


def _result(proof: Proof, meta: TensorMeta) -> Result | None:
    results = proof.results
    if results is None or meta.producer_output_idx >= len(results):
        return None
    return results[meta.producer_output_idx]
