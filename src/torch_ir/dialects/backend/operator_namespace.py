"""The Backend operators by name: ``ops.mylib.linrelu.default``."""

from __future__ import annotations

from typing import Any

from torch_ir.dialects.backend.binding import bindings
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.errors import did_you_mean
from torch_ir.ops.spec import OpSpec, spec_of
from torch_ir.torch_api import operator_schema, overload

_KEYS = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "Meta", "CPU")


class OperatorNamespace:
    """Names of Backend operators up to a point: ``ops``, ``ops.mylib``, ``ops.mylib.linrelu``.

    Example:
        >>> ops.executorch_prims.add.int.schema.text
        'executorch_prims::add.int(SymInt a, SymInt b) -> SymInt'
    """

    def __init__(self, path: str = ""):
        self._path = path

    def __getattr__(self, name: str) -> OperatorNamespace | OpSpec:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self._path}.{name}" if self._path else name
        if not self._path:
            _require_namespace(name)
        return _operator(path) if path.count(".") == 2 else OperatorNamespace(path)

    def __repr__(self) -> str:
        return f"<operators of backend.ops{'.' if self._path else ''}{self._path}>"


def namespaces() -> tuple[str, ...]:
    """Return the libraries whose operators belong to a backend, sorted."""
    known = [*BACKEND_SCHEMAS, *bindings()]
    return tuple(sorted({op_type.split(".")[0] for op_type in known}))


def _require_namespace(name: str) -> None:
    if name not in namespaces():
        raise AttributeError(
            f"{name!r} is no library of backend operators; they are {', '.join(namespaces())}"
        )


def _operator(path: str) -> OpSpec:
    from torch_ir.infer.resolve import resolve_operator

    if path in BACKEND_SCHEMAS:
        resolve_operator(path)  # registers it
    operator = overload(*path.split(".", 2))
    if operator is None:
        hint = did_you_mean(path, [*BACKEND_SCHEMAS, *bindings()])
        raise AttributeError(f"there is no backend operator {path!r}{'. ' if hint else ''}{hint}")
    if not any(operator.has_kernel_for_dispatch_key(key) for key in _dispatch_keys()):
        raise AttributeError(
            f"{path} has neither a kernel nor a pattern; give it one with bind_pattern_to_op"
        )
    return spec_of(path, {path: str(operator_schema(operator))})


def _dispatch_keys() -> tuple[Any, ...]:
    import torch

    keys = torch._C.DispatchKey  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    return tuple([getattr(keys, name) for name in _KEYS])


ops = OperatorNamespace()
