"""The structure of arguments and results as text, in both directions.

``((%x, 3), {"mask": %m}) -> [%y, None]``: tuples, lists and dicts as in Python,
``OrderedDict({...})``, and a registered class by its name: ``my.Output(%y, None, context="[]")``.
A leaf that is itself a list or dict is ``value([1, 2])``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import cast

from torch_ir.errors import InvalidIRError
from torch_ir.frozen import FrozenDict
from torch_ir.ir.text.lexer import (
    Line,
    is_word,
    quote,
    read_sigil,
    read_string,
    read_word,
    sigil,
    word,
)
from torch_ir.ir.text.value_text import MAX_DEPTH, read_value, spell_value
from torch_ir.ir.tree import Container, TensorLeaf, Tree, ValueLeaf
from torch_ir.ir.values import Attribute

_RESERVED = frozenset({"device", "operator", "value"})


def spell_tree(tree: Tree, name: Callable[[str], str] = lambda name: sigil("%", name)) -> str:
    """Spell a structure as text; ``name`` spells the name of a tensor.

    Example:
        >>> spell_tree(Container("dict", (TensorLeaf("x"), ValueLeaf(3)), ("a", "b")))
        '{"a": %x, "b": 3}'
    """
    if isinstance(tree, TensorLeaf):
        return name(tree.name)
    if isinstance(tree, ValueLeaf):
        text = spell_value(tree.value)
        return f"value({text})" if isinstance(tree.value, tuple | FrozenDict) else text
    children = [spell_tree(child, name) for child in tree.children]
    if not tree.context:
        match tree.type:
            case "tuple":
                return f"({children[0]},)" if len(children) == 1 else f"({', '.join(children)})"
            case "list":
                return f"[{', '.join(children)}]"
            case "dict":
                return _spell_dict(tree.keys, children)
            case "OrderedDict":
                return f"OrderedDict({_spell_dict(tree.keys, children)})"
            case _:
                pass
    kind = quote(tree.type) if tree.type in _RESERVED else word(tree.type)
    if tree.keys:
        children.append(f"keys={spell_value(tree.keys)}")
    if tree.context:
        children.append(f"context={quote(tree.context)}")
    return f"{kind}({', '.join(children)})"


def _spell_dict(keys: Sequence[Attribute], children: Sequence[str]) -> str:
    pairs = starmap("{}: {}".format, zip(map(spell_value, keys), children, strict=True))
    return "{" + ", ".join(pairs) + "}"


def read_tree(line: Line, depth: int = 0) -> Tree:
    """Take a structure.

    Raises:
        ParseError: Something else stands here, or structures nest too deeply.
    """
    if depth > MAX_DEPTH:
        raise line.error(f"structures nest more than {MAX_DEPTH} deep")
    token = line.tokens[line.at]
    if token in _BRACKETS:
        line.at += 1
        return _BRACKETS[token](line, depth)
    if token[:1] == "%":
        return TensorLeaf(read_sigil(line, "%", "a tensor"))
    is_call = is_word(token) and line.tokens[line.at + 1] == "("
    if is_call and token == "value":
        line.at += 2
        value = read_value(line)
        line.expect(")")
        return ValueLeaf(value)
    if is_call and token not in ("device", "operator"):
        return _read_registered(line, depth)
    return ValueLeaf(read_value(line))


def _read_list(line: Line, depth: int) -> Container:
    """Read a list and the lists that begin in it, which may be deep and many, in one loop."""
    tokens, at = line.tokens, line.at
    outer: list[list[Tree]] = []
    children: list[Tree] = []
    while True:
        token = tokens[at]
        if token == "]":
            at += 1
            done = Container("list", tuple(children))
            if not outer:
                line.at = at
                return done
            children = outer.pop()
            children.append(done)
            continue
        if children:
            if token != ",":
                line.at = at
                raise line.unexpected("','")
            at += 1
            token = tokens[at]
        if token == "[" and depth + len(outer) < MAX_DEPTH:
            at += 1
            outer.append(children)
            children = []
        else:
            line.at = at
            children.append(read_tree(line, depth + len(outer) + 1))
            at = line.at


def _read_tuple(line: Line, depth: int) -> Container:
    children: list[Tree] = []
    while not line.accept(")"):
        if children:
            line.expect(",")
            if line.accept(")"):
                break
        children.append(read_tree(line, depth + 1))
    else:
        if len(children) == 1:
            raise line.error(
                "expected ','", at=line.at - 1, remedy="A tuple of one is written (%x,)."
            )
    return Container("tuple", tuple(children))


def _read_dict(line: Line, depth: int) -> Container:
    keys: list[Attribute] = []
    children: list[Tree] = []
    while not line.accept("}"):
        if keys:
            line.expect(",")
        keys.append(read_value(line))
        line.expect(":")
        children.append(read_tree(line, depth + 1))
    return Container("dict", tuple(children), tuple(keys))


_BRACKETS = {"(": _read_tuple, "[": _read_list, "{": _read_dict}


def _read_registered(line: Line, depth: int) -> Container:
    start = line.at
    kind = read_word(line, "the type of a container")
    line.expect("(")
    children: list[Tree] = []
    named: dict[str, Attribute] = {}
    while not line.accept(")"):
        if children or named:
            line.expect(",")
        if line.next in ("keys", "context") and line.tokens[line.at + 1] == "=":
            name = line.take()
            line.take()
            named[name] = (
                read_string(line, "the context") if name == "context" else read_value(line)
            )
        else:
            children.append(read_tree(line, depth + 1))
    keys = named.get("keys", ())
    if not isinstance(keys, tuple):
        raise line.error("the keys of a container are a list", at=start)
    if kind == "OrderedDict" and len(children) == 1 and not named:
        only = children[0]
        if isinstance(only, Container) and only.type == "dict" and not only.context:
            return Container(kind, only.children, only.keys)
    try:
        return Container(kind, tuple(children), keys, cast(str, named.get("context", "")))
    except InvalidIRError as error:
        raise line.error(error.message, at=start, remedy=error.remedy) from None
