"""The Edge operators by name: ``ops.aten.sigmoid.default``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from torch_ir.errors import ExecutionError, InvalidIRError, did_you_mean
from torch_ir.ops.dtype_constraints import constraint_of, typed_schema
from torch_ir.ops.schema import Schema, known_operators
from torch_ir.ops.spec import OpSpec, spec_of


@dataclass(frozen=True, slots=True)
class EdgeOp(OpSpec):
    """An Edge operator: its spec, which may be called with torch's tensors."""

    @property
    def _schema(self) -> Schema:
        """The schema under the name that torch's operators and ExecuTorch's have it."""
        return self.schema

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator with torch.

        Raises:
            ExecutionError: The torch that runs has no such operator.
        """
        from torch_ir.torch_api import overload

        operator = overload(*self.op_type.split(".", 2))
        if operator is None:
            raise ExecutionError(f"torch has no operator {self.op_type!r}")
        return operator(*args, **kwargs)


@cache
def edge_op(op_type: str) -> EdgeOp:
    """Return the Edge operator of an overload: its spec, with dtypes in the schema.

    An operator without dtype rows takes every dtype that Edge has.

    Raises:
        InvalidIRError: There is no such operator; the message names the closest.
    """
    spec = spec_of(op_type)
    table = constraint_of(op_type)
    return EdgeOp(op_type, typed_schema(spec.schema, table), spec.traits, table)


class EdgeNamespace:
    """Names of operators up to a point: ``ops``, ``ops.aten``, ``ops.aten.sigmoid``."""

    def __init__(self, path: str = ""):
        self._path = path

    def __getattr__(self, name: str) -> EdgeNamespace | EdgeOp:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self._path}.{name}" if self._path else name
        if path.count(".") == 2:
            found: EdgeNamespace | EdgeOp = _operator(path)
        else:
            _require_known(path)
            found = EdgeNamespace(path)
        setattr(self, name, found)  # the next look-up finds it without this method
        return found

    def __dir__(self) -> list[str]:
        prefix = f"{self._path}." if self._path else ""
        depth = prefix.count(".")
        return sorted(
            {name.split(".")[depth] for name in known_operators() if name.startswith(prefix)}
        )

    def __repr__(self) -> str:
        return f"<operators of edge.ops{'.' if self._path else ''}{self._path}>"


def _operator(path: str) -> EdgeOp:
    try:
        return edge_op(path)
    except InvalidIRError as error:
        raise _absent(path, error.remedy or "") from None


def _require_known(path: str) -> None:
    prefix = f"{path}."
    known = known_operators()
    if not any(name.startswith(prefix) for name in known):
        depth = path.count(".") + 1
        names = {".".join(name.split(".")[:depth]) for name in known}
        raise _absent(path, did_you_mean(path, names))


def _absent(path: str, hint: str) -> AttributeError:
    return AttributeError(f"there is no Edge operator {path!r}{'. ' if hint else ''}{hint}")


ops = EdgeNamespace()
