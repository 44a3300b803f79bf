"""Tokens of IR text: the expression that finds them, names and strings, and a line with a caret.

Every statement of IR text is one line. A line is split into tokens by one expression that always
makes progress and never looks at a character more than a few times, so that hostile text costs no
more than its length.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from torch_ir.errors import ParseError, by_code

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'  # the closing quote is missed by the reader, not here

TOKEN = re.compile(
    rf"""[ \t\r\f\v]*+(
      \#(?!-?\d).*                                       # comment, to the end of the line
    | {_STRING}
    | [%@&](?:[\w.]++|{_STRING})                         # value, weight or constant, function
    | %\[                                                # list of tensors
    | \#-?(?:0x[0-9a-f]++|\d++)                          # input or result by its number
    | [A-Za-z_]\w*+\[[^\[\]"`]*+\]                       # type: f32[2, s0]
    | (?:sha256|bytes|fill):[0-9a-f]++
    | [A-Za-z_][\w.]*+
    | \([-+]?(?:\d|nan|inf)[^()\s,j]*+j\)                # complex number
    | ->
    | -?(?:0x[0-9a-f]++|\d++(?:\.\d++)?(?:e[-+]?\d++)?|inf)
    | \.\.
    | `[^`]*+`?                                          # expression over symbols
    | \S
    )""",
    re.VERBOSE | re.ASCII,
)

_SLOT = re.compile(r"#-?\d")
_BARE_NAME = re.compile(r"[\w.]+", re.ASCII)
_BARE_WORD = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.?))", re.ASCII | re.DOTALL
)
_SIMPLE_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_SPELLED_ESCAPES = {value: f"\\{key}" for key, value in _SIMPLE_ESCAPES.items()}
_NOT_BARE = frozenset({"None", "none"})

MAX_DECIMAL_BITS = 4096
"""Integers of more bits are written in hexadecimal, which Python reads at any length."""

PICTURE_WIDTH = 120


class Line:
    """One line as tokens, with a position; the empty string stands behind the last token."""

    __slots__ = ("at", "comment", "number", "text", "tokens")

    def __init__(self, number: int, text: str, tokens: list[str]):
        self.number = number
        self.text = text
        self.tokens = tokens
        self.at = 0
        self.comment = ""
        if tokens and tokens[-1][0] == "#" and not _SLOT.match(tokens[-1]):
            self.comment = tokens.pop()[1:].strip()
        tokens.append("")

    @property
    def next(self) -> str:
        """The token at the position, which stays."""
        return self.tokens[self.at]

    def take(self) -> str:
        """Take the token at the position and move on."""
        token = self.tokens[self.at]
        if token:
            self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Take the next token if it is this one; return whether it was."""
        if self.tokens[self.at] != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        """Take this token.

        Raises:
            ParseError: Another one stands here.
        """
        if self.tokens[self.at] != token:
            raise self.unexpected(f"{token!r}")
        self.at += 1

    def end(self) -> None:
        """Check that the statement ends here.

        Raises:
            ParseError: Something follows.
        """
        if self.tokens[self.at]:
            raise self.unexpected("the end of the line")

    def unexpected(self, wanted: str) -> ParseError:
        """Return the error that something else was wanted at the position."""
        token = self.next
        return self.error(
            f"expected {wanted}, got {f'{token!r:.60}' if token else 'the end of the line'}"
        )

    def error(
        self, message: str, *, at: int | None = None, remedy: str | None = None
    ) -> ParseError:
        """Return the error with this line as its picture and a caret under one token."""
        start, stop = self._span(self.at if at is None else at)
        left = max(0, start - PICTURE_WIDTH // 2) if stop > PICTURE_WIDTH else 0
        shown = "".join(
            c if c.isprintable() else " " for c in self.text[left : left + PICTURE_WIDTH]
        )
        carets = "^" * max(1, min(stop, left + PICTURE_WIDTH) - start)
        margin = " " * len(str(self.number))
        picture = f"{self.number} | {shown.rstrip()}\n{margin} | {' ' * (start - left)}{carets}"
        return ParseError(f"line {self.number}: {message}", picture=picture, remedy=remedy or None)

    def _span(self, index: int) -> tuple[int, int]:
        if self.tokens[index]:
            return next(islice(TOKEN.finditer(self.text), index, None)).span(1)
        end = (
            len(self.text.partition("#")[0].rstrip()) if self.comment else len(self.text.rstrip())
        )
        return end, end + 1


# -- names and strings ----------------------------------------------------------------------------


def quote(text: str) -> str:
    r"""Quote a string, with Python's escapes for whatever does not print.

    Example:
        >>> print(quote('say "a"\n'))
        "say \"a\"\n"
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join([_escape(character) for character in text]) + '"'


def _escape(character: str) -> str:
    if character in _SPELLED_ESCAPES:
        return _SPELLED_ESCAPES[character]
    return character if character.isprintable() else by_code(character)


def unquote(line: Line, token: str) -> str:
    """Return the string that a token (the one before the position) spells.

    Raises:
        ParseError: The closing quote is missing, or an escape is unknown.
    """
    body = token[1:-1]
    if "\\" not in token and len(token) > 1 and token[-1] == '"':
        return body
    parts: list[str] = []
    start = 0
    for match in _ESCAPE.finditer(token, 1):
        parts.append(token[start or 1 : match.start()])
        parts.append(_unescape(line, match))
        start = match.end()
    if start >= len(token) or token[-1] != '"' or len(token) == 1:
        raise line.error("the string has no closing quote", at=line.at - 1)
    parts.append(token[start:-1])
    return "".join(parts)


def _unescape(line: Line, match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits:
        code = int(digits, 16)
        if code <= 0x10FFFF:
            return chr(code)
    elif match[4] in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[match[4]]
    raise line.error(
        f"{match[0]} is not an escape",
        at=line.at - 1,
        remedy='The escapes are \\n, \\r, \\t, \\", \\\\, \\xhh, \\uhhhh and \\Uhhhhhhhh.',
    )


@lru_cache(maxsize=16384)
def sigil(mark: str, name: str) -> str:
    """Spell a name behind its mark: ``%x``, ``@fc1.weight``, ``&body``; quoted unless plain.

    Example:
        >>> sigil("%", "split.0"), sigil("@", "a b")
        ('%split.0', '@"a b"')
    """
    plain = _BARE_NAME.fullmatch(name) and name not in _NOT_BARE
    return mark + (name if plain else quote(name))


@lru_cache(maxsize=16384)
def word(name: str) -> str:
    """Spell a name without a mark; in quotes unless it is a plain word.

    Example:
        >>> word("aten.add.Tensor"), word("2nd"), word("none")
        ('aten.add.Tensor', '"2nd"', '"none"')
    """
    plain = _BARE_WORD.fullmatch(name) and name not in _NOT_BARE
    return name if plain else quote(name)


def read_sigil(line: Line, mark: str, what: str) -> str:
    """Take a name behind its mark."""
    token = line.next
    if token[:1] != mark or len(token) < 2 or token == "%[":
        raise line.unexpected(f"{what} such as {mark}name")
    line.at += 1
    return unquote_name(line, token)


def unquote_name(line: Line, token: str) -> str:
    """Return the name in a token with a mark (the one before the position)."""
    return unquote(line, token[1:]) if token[1] == '"' else token[1:]


def is_word(token: str) -> bool:
    """Return whether a token is a name without a mark: a plain word or a string."""
    return token[:1] == '"' or _BARE_WORD.fullmatch(token) is not None


def read_word(line: Line, what: str) -> str:
    """Take a name without a mark."""
    token = line.next
    if not is_word(token):
        raise line.unexpected(what)
    line.at += 1
    return unquote(line, token) if token[0] == '"' else token


def read_string(line: Line, what: str) -> str:
    """Take a string in quotes."""
    token = line.next
    if token[:1] != '"':
        raise line.unexpected(f"{what} in double quotes")
    line.at += 1
    return unquote(line, token)


# -- integers -------------------------------------------------------------------------------------


def spell_int(value: int) -> str:
    """Spell an integer in decimal, or in hexadecimal if it is very long."""
    return str(value) if value.bit_length() <= MAX_DECIMAL_BITS else hex(value)


def parse_int(line: Line, token: str) -> int:
    """Return the integer that a token (the one before the position) spells."""
    try:
        return int(token, 16) if "x" in token else int(token)
    except ValueError:
        raise line.error(
            f"{token!r:.60} is not an integer",
            at=line.at - 1,
            remedy="Integers of more than 4,000 digits are written in hexadecimal."
            if len(token) > 4000
            else None,
        ) from None


def read_int(line: Line) -> int:
    """Take an integer."""
    token = line.next
    if not token or token[0] not in "-0123456789" or token == "->":
        raise line.unexpected("an integer")
    line.at += 1
    return parse_int(line, token)
