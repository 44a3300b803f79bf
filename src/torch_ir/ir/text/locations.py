"""A node's location as the trailing comment of its line, in both directions.

``# net.py:9 in fc1 (torch.nn.modules.linear.Linear): x = self.fc1(x)`` where that reads back as
the same location, else the same with every part in quotes. Any other comment is a comment.
"""

from __future__ import annotations

import re

from torch_ir.ir.node import Location
from torch_ir.ir.text.lexer import Line, parse_int, quote, spell_int, unquote

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_QUOTED = re.compile(
    rf"({_STRING}):(-?(?:0x[0-9a-f]+|\d+)) in ({_STRING}) \(({_STRING})\): ({_STRING})", re.ASCII
)
_FILE = re.compile(
    r"(?P<file>[^\s\"].*?):(?P<line>\d+)"
    r"(?: in (?:(?P<module>[\w.]+)(?: \((?P<kind>[\w.<>]+)\))?|\((?P<root>[\w.<>]+)\)))?"
    r"(?:: (?P<code>.+))?",
    re.ASCII,
)
_MODULE = re.compile(
    r"in (?:(?P<module>[\w.]+) )?\((?P<kind>[\w.<>]+)\)(?:: (?P<code>.+))?", re.ASCII
)


def spell_location(location: Location) -> str:
    """Spell a location as a comment, without its mark."""
    text = _plain(location)
    if text.isprintable() and text == text.strip() and _read_plain(text) == location:
        return text
    file, module, kind, code = map(
        quote, (location.file, location.module, location.module_type, location.code)
    )
    return f"{file}:{spell_int(location.line)} in {module} ({kind}): {code}"


def _plain(location: Location) -> str:
    place = f"{location.file}:{spell_int(location.line)}" if location.file else ""
    kind = f"({location.module_type})" if location.module_type else ""
    inside = f"{location.module} {kind}".strip()
    text = f"{place} in {inside}".lstrip() if inside else place
    return f"{text}: {location.code}" if location.code else text


def read_location(line: Line) -> Location | None:
    """Read the location that the comment of a line spells; None for another comment."""
    comment = line.comment
    if not comment:
        return None
    if comment[0] != '"':
        return _read_plain(comment)
    match = _QUOTED.fullmatch(comment)
    if match is None:
        return None
    file, module, kind, code = [unquote(line, match[group]) for group in (1, 3, 4, 5)]
    return Location(file, parse_int(line, match[2]), code, module, kind)


def _read_plain(text: str) -> Location | None:
    match = _FILE.fullmatch(text)
    if match is not None:
        file, number, module, kind, root, code = match.groups("")
        if len(number) > 18 or str(int(number)) != number:
            return None
        return Location(file, int(number), code, module, kind or root)
    match = _MODULE.fullmatch(text)
    if match is None:
        return None
    module, kind, code = match.groups("")
    return Location("", 0, code, module, kind)
