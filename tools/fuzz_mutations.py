"""Mutations of files: of bytes, of the tokens of a text, of a JSON tree, of an archive's members.

``mutated(kind, sample, corpus, random)`` gives the bytes of a file near to ``sample``, into which
parts of the other samples may have come. The same state of ``random`` gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from random import Random
from typing import Any

from fuzz_programs import edited_program
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ops.schema import known_operators
from torch_ir.serde.archive import MANIFEST
from torch_ir.serde.zipped import add_member

Corpus = Sequence[bytes]

NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    7,
    2**31 - 1,
    2**31,
    -(2**31),
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
)
TEXTS = (
    *("", " ", "x", "%x", "@x", "s0", "u0", "2*s0", "s0 // 0", "s0 % 2", "-s0", "1e999", "nan"),
    *("max(s0, u0)", "abs(-s0)", "s0**9", "s0*s0*s0", "None", "True", "run", "cuda:99", "meta"),
    *("\x1b]0;x\x07", "\u202e", "\ud800", "\0", "é", "a" * 300, "(" * 70, "../../x", "/dev/zero"),
    *("float32", "int64", "bool", "float4_e2m1fn_x2", "complex32", "quint8", "sparse_csr"),
)  # fmt: skip
SCALARS = (None, True, False, 0.5, -0.0, float("nan"), float("inf"), 1e308, *NUMBERS, *TEXTS)


PROGRAMS = ("json", "text", "archive")
TYPED = 0.1
"""The share of files whose program is changed so that its types hold."""
MAX_BYTES = 200_000
"""Of a file, about: edits that multiply what others have made stop there."""


def mutated(kind: str, sample: bytes, corpus: Corpus, random: Random) -> bytes:
    """Return a file near to a sample; the kinds are those of ``MUTATORS``."""
    if kind in PROGRAMS and random.random() < TYPED:
        made = edited_program(sample, kind, random)
        if made is not None:
            return made
    if random.random() < 0.1:
        return edited_bytes(sample, random.choice(corpus), random)
    return MUTATORS[kind](sample, corpus, random)


# -- bytes ----------------------------------------------------------------------------------------


def edited_bytes(data: bytes, other: bytes, random: Random) -> bytes:
    """Flip, set, insert, remove, repeat or splice some bytes, or cut the end off."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        place = random.randrange(len(made) + 1)
        size = random.choice((1, 1, 2, 4, 8, 64))
        match random.randrange(7):
            case 0 if place < len(made):
                made[place] ^= 1 << random.randrange(8)
            case 1:
                made[place : place + size] = random.randbytes(size)
            case 2:
                del made[place : place + size]
            case 3:
                made[place:place] = made[place : place + size] * random.choice((1, 2, 50))
            case 4:
                start = random.randrange(len(other) + 1)
                made[place : place + size] = other[start : start + size]
            case 5:
                bits = random.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(made)))
                made[place : place + 8] = bits.to_bytes(8, "little")
            case _ if random.random() < 0.2:
                del made[place:]
    return bytes(made)


# -- text -----------------------------------------------------------------------------------------

_TOKENS = re.compile(rb"\w[\w.]*|\s+|.", re.DOTALL)


def edited_text(data: bytes, corpus: Corpus, random: Random) -> bytes:
    """Change, repeat, move or drop tokens and lines, also with those of another text."""
    other = random.choice(corpus)
    for _ in range(random.choice((1, 1, 2, 3))):
        if random.random() < 0.25:
            parts, others, end = data.split(b"\n"), other.split(b"\n"), b"\n"
        else:
            parts, others, end = _TOKENS.findall(data), _TOKENS.findall(other), b""
        if not parts or not others:
            return data
        place, second = random.randrange(len(parts)), random.randrange(len(parts))
        match random.randrange(6):
            case 0:
                del parts[place]
            case 1:
                parts.insert(place, parts[second])
            case 2:
                parts[place], parts[second] = parts[second], parts[place]
            case 3:
                parts[place] = random.choice(others)
            case 4:
                parts[place:place] = [parts[place]] * random.choice((1, 2, 40, 300))
            case _:
                parts[place] = other_word(parts[place].decode("utf8", "replace"), random).encode(
                    "utf8", "surrogatepass"
                )
        data = end.join(parts)
    return data


def other_word(text: str, random: Random) -> str:
    """Return another word of the kind that a word seems to be."""
    if re.fullmatch(r"-?\d+", text) and len(text) < 30:
        return str(other_number(int(text), random))
    if text.count(".") >= 2 and text in _operators():
        return _other_operator(text, random)
    if text in DTYPES:
        return random.choice(sorted(DTYPES))
    if text and random.random() < 0.3:
        place = random.randrange(len(text))
        return text[:place] + random.choice("_.01x+*-% ,()[]{}:=@&\\\"'\n\x1b") + text[place + 1 :]
    return random.choice(TEXTS)


def other_number(number: int, random: Random) -> int:
    """Return a number beside another one, or one at which something ends."""
    near = (number - 1, number + 1, 2 * number, -number)
    return random.choice((*near, *near, *NUMBERS))


@cache
def _operators() -> dict[str, list[str]]:
    """Each operator, and those that begin with the same word."""
    families: dict[str, list[str]] = {}
    for name in sorted(known_operators()):
        families.setdefault(name.split(".")[1].split("_")[0], []).append(name)
    return {name: family for family in families.values() for name in family}


def _other_operator(name: str, random: Random) -> str:
    families = _operators()
    return random.choice(families[name] if random.random() < 0.5 else list(families))


# -- JSON -----------------------------------------------------------------------------------------


def edited_json(data: bytes, corpus: Corpus, random: Random) -> bytes:
    """Change the tree of a document; what is no JSON is changed as bytes."""
    try:
        tree, made = json.loads(data), ""
        for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
            tree = edited_tree(tree, corpus, random)
            made = json.dumps(tree)
            if len(made) > MAX_BYTES:
                break
        return made.encode()
    except (ValueError, RecursionError):
        return edited_bytes(data, random.choice(corpus), random)


def edited_tree(tree: Any, corpus: Corpus, random: Random) -> Any:
    """Change one place of a JSON tree, in place where there is one."""
    places = list(_places(tree))
    if not places:
        return random.choice(SCALARS)
    holder, key = random.choice(places)
    value = holder[key]
    match random.randrange(9):
        case 0 | 1 | 2:
            holder[key] = _other_value(value, random)
        case 3:
            del holder[key]
        case 4:
            other, name = random.choice(places)
            holder[key], other[name] = json.loads(json.dumps(other[name])), value
        case 5 if isinstance(holder, list):
            count = random.choice((1, 1, 2, 30, 500))
            holder[key:key] = [value] * min(count, MAX_BYTES // len(json.dumps(value)))
        case 5 | 6 if isinstance(holder, dict):
            name = random.choice([*holder, random.choice(TEXTS), str(random.choice(places)[1])])
            holder[name] = value if random.random() < 0.5 else holder.pop(key)
        case 7:
            _take_from_another(holder, key, corpus, random)
        case _:
            for _ in range(random.choice((1, 1, 2, 70))):
                value = random.choice(([value], {str(key): value}))
            holder[key] = value
    return tree


def _take_from_another(holder: Any, key: Any, corpus: Corpus, random: Random) -> None:
    """Put the value of the same key of another document here, or any value where none has it."""
    places = _places_of(random.choice(corpus))
    alike = [(other, name) for other, name in places if name == key and isinstance(key, str)]
    if alike or places:
        other, name = random.choice(alike or places)
        holder[key] = json.loads(json.dumps(other[name]))


@lru_cache(maxsize=1 << 14)
def _places_of(data: bytes) -> list[tuple[Any, Any]]:
    try:
        return list(_places(json.loads(data)))
    except (ValueError, RecursionError):
        return []


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree: what holds it, and its key or index there."""
    left = [tree]
    while left:
        holder = left.pop()
        items: Any = ()
        if isinstance(holder, dict):
            items = holder.items()
        elif isinstance(holder, list):
            items = enumerate(holder)
        for key, value in items:
            yield holder, key
            left.append(value)


def _other_value(value: Any, random: Random) -> Any:
    if random.random() < 0.3:
        return random.choice(SCALARS)
    match value:
        case bool():
            return not value
        case int():
            return other_number(value, random)
        case float():
            return random.choice(
                (value * 2, -value, *[s for s in SCALARS if isinstance(s, float)])
            )
        case str():
            return other_word(value, random)
        case list() if value:
            return random.sample(value, random.randrange(len(value) + 1))
        case _:
            return random.choice(([], {}, *SCALARS))


# -- archives -------------------------------------------------------------------------------------


def edited_archive(data: bytes, corpus: Corpus, random: Random) -> bytes:
    """Change a member of an archive; its manifest may state the new size and hash."""
    members = dict(_members(data))
    if not members:
        return edited_bytes(data, random.choice(corpus), random)
    name = random.choice(list(members))
    others = [found for other in corpus if (found := _members(other).get(name)) is not None]
    edit = edited_json if name.endswith(".json") else edited_tensors
    members[name] = edit(members[name], others or [members[name]], random)
    if random.random() < 0.1:
        members[random.choice((*members, "x", "../x", "ir.json"))] = members.pop(name)
    if random.random() < 0.9:
        members = _stated(members)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for member, content in members.items():
            add_member(archive, member, len(content), [content])
    return made.getvalue()


def _stated(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with a manifest that is true, where it is one."""
    try:
        manifest = json.loads(members[MANIFEST])
        manifest["members"] = {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            for name, content in members.items()
            if name != MANIFEST
        }
        return {**members, MANIFEST: json.dumps(manifest).encode()}
    except (KeyError, TypeError, ValueError, RecursionError):
        return members


@lru_cache(maxsize=1 << 14)
def _members(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, KeyError, OSError, EOFError, NotImplementedError):
        return {}


def edited_tensors(data: bytes, corpus: Corpus, random: Random) -> bytes:
    """Change the header of a safetensors file, whose length may be kept true; or its bytes."""
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= len(data) - 8 or random.random() < 0.3:
        return edited_bytes(data, random.choice(corpus), random)
    header = edited_json(data[8 : 8 + size], [other[8:] for other in corpus], random)
    stated = len(header) if random.random() < 0.9 else random.choice(NUMBERS) % 2**64
    return stated.to_bytes(8, "little") + header + data[8 + size :]


def edited_weights(data: bytes, corpus: Corpus, random: Random) -> bytes:
    """Change a file of weights: safetensors, a checkpoint of torch, an archive or an index."""
    alike = [other for other in corpus if other[:2] == data[:2]] or corpus
    if data[:2] != b"PK":
        edit = edited_json if data[:1] == b"{" else edited_tensors
        return edit(data, alike, random)
    members = dict(_members(data))
    if MANIFEST in members:
        return edited_archive(data, alike, random)
    if members:
        name = random.choice(list(members))
        members[name] = edited_bytes(members[name], random.choice(alike), random)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member), content)
    return made.getvalue()


MUTATORS: dict[str, Callable[[bytes, Corpus, Random], bytes]] = {
    "json": edited_json,
    "text": edited_text,
    "archive": edited_archive,
    "old": edited_json,
    "weights": edited_weights,
}
