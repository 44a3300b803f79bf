"""Constants of a text, read with the values that are given for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_ir.errors import InvalidIRError, ParseError, did_you_mean
from torch_ir.ir.tensor import Constant, as_constant, type_text
from torch_ir.ir.text.constants import constant_from_values, read_view
from torch_ir.ir.text.draft import Draft, require_new
from torch_ir.ir.text.lexer import Line, read_sigil
from torch_ir.ir.text.nodes import Types, read_names
from torch_ir.ir.text.value_text import read_type, read_value
from torch_ir.ir.text.views import WrittenView


class ConstantReader:
    """Reads the constants of a text.

    Args:
        given: Values for constants that the text names by hash only, by path.
        types: Types that have been read.
    """

    def __init__(self, given: Mapping[str, Any], types: Types):
        self._given_values = given
        self._types = types
        self._taken: set[str] = set()

    def finish(self) -> None:
        """Check that the text has every constant for which a value is given.

        Raises:
            ParseError: It does not.
        """
        unknown = sorted(set(self._given_values) - self._taken)
        if unknown:
            raise ParseError(
                f"the text has no constant {unknown[0]!r}, for which a value is given",
                remedy=did_you_mean(unknown[0], self._taken),
            )

    def read(self, line: Line, graph: Draft, functions: Sequence[str]) -> None:
        """Read a constant of a graph.

        Args:
            line: Its line, behind the first word.
            graph: The graph.
            functions: The names of the functions around it, from the outermost.
        """
        key = read_sigil(line, "@", "a constant")
        for known in (graph.constants, graph.views):
            require_new(line, known, key, f"the constant @{key}")
        line.expect(":")
        at = line.at
        dtype, dims = read_type(line, self._types)
        shape = tuple([dim for dim in dims if isinstance(dim, int)])
        if len(shape) < len(dims):
            raise line.error("a constant has no symbolic dimensions", at=at)
        read_names(line, graph, key)
        line.expect("=")
        path = "/".join([*functions, key])
        if line.accept("view"):
            at, view = line.at - 1, read_view(line)
            given = self._value(line, path)
            graph.views[key] = WrittenView(line, at, dtype, shape, view, path, given)
            return
        constant = self._values(line, dtype, shape)
        graph.constants[key] = self._given(line, path, constant)

    def _values(self, line: Line, dtype: str, shape: tuple[int, ...]) -> Constant:
        at = line.at
        kind, _, digits = line.next.partition(":")
        try:
            if kind == "sha256":
                line.take()
                return Constant(dtype, shape, None, digits)
            if kind in ("bytes", "fill"):
                line.take()
                is_filled = kind == "fill"
                return Constant(dtype, shape, bytes.fromhex(digits), is_filled=is_filled)
            return constant_from_values(dtype, shape, read_value(line))
        except (InvalidIRError, ValueError) as error:
            if isinstance(error, ParseError):
                raise
            message = getattr(error, "message", "bytes are written as pairs of hexadecimal digits")
            raise line.error(message, at=at) from None

    def _value(self, line: Line, path: str) -> Constant | None:
        """The value that is given for a constant, or None."""
        self._taken.add(path)
        if path not in self._given_values:
            return None
        try:
            return as_constant(self._given_values[path])
        except InvalidIRError as error:
            raise line.error(
                f"the value given for @{path}: {error.message}", remedy=error.remedy
            ) from None

    def _given(self, line: Line, path: str, constant: Constant) -> Constant:
        value = self._value(line, path)
        if value is None:
            return constant
        if value != constant:
            raise line.error(
                f"the value given for @{path} is another one",
                at=len(line.tokens) - 2,
                remedy=f"It is a {type_text(value)} with sha256:{value.digest()}.",
            )
        return value
