"""The identifiers of one generated function."""

from __future__ import annotations

from torch_ir.executor.codegen.lines import GeneratedModule, spelled
from torch_ir.ir import SymExpr


class LocalNames:
    """Gives the values and symbols of a function their identifiers.

    Args:
        module: The module that the function stands in.
        path: ``run``, or the function's name among the graph's functions.
        is_main: Whether it is the graph's own function.
    """

    def __init__(self, module: GeneratedModule, path: str, *, is_main: bool):
        self.module = module
        self.path = path
        self.is_main = is_main
        self._values: dict[str, str] = {}

    def value(self, name: str) -> str:
        """Return the identifier of a value."""
        given = self._values.get(name)
        if given is None:
            given = self._values[name] = self.module.names.of(f"value of {self.path}", name)
        return given

    def symbol(self, name: str) -> str:
        """Return the identifier of a symbol."""
        return self.module.names.of(f"symbol of {self.path}", name)

    def copy(self, name: str) -> str:
        """Return the identifier of a copy of a value."""
        return self.module.names.of(f"copy in {self.path}", name)

    def buffer(self, name: str) -> str:
        """Return the identifier of a buffer for whose value another tensor stands."""
        return self.module.names.of(f"buffer in {self.path}", name)

    def result(self, node: str) -> str:
        """Return the identifier of all that a node gives."""
        return self.module.names.of(f"result in {self.path}", f"{node}_result")

    def part(self, name: str) -> str:
        """Return the identifier of a part of a long function."""
        return self.module.names.of(f"part of {self.path}", name)

    def function(self, name: str) -> str:
        """Return the identifier of a function that this one refers to."""
        return self.module.names.of("function", self.path_of(name))

    def path_of(self, name: str) -> str:
        """Return the path of a function that this one refers to."""
        return name if self.is_main else f"{self.path}/{name}"

    def expression(self, value: SymExpr) -> str:
        """Return an expression over symbols in Python."""
        return spelled(self.module, value, {name: self.symbol(name) for name in value.symbols})
