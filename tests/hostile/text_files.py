"""Programs as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hostile.json_files import EXPRESSIONS, Files


def program(lines: Iterable[str]) -> bytes:
    """Make the text of a program of these lines."""
    return "\n".join(["ir {", *lines, "}"]).encode()


def lines_of(make: Callable[[int], str]) -> Callable[[int], bytes]:
    """Make the text of a program whose lines are all of a kind."""

    def made(size: int) -> bytes:
        count = size // (len(make(1000)) + 2)
        return program([make(i) for i in range(count)])

    return made


def node(arguments: str) -> str:
    """Make the text of a node with these arguments."""
    return f"%y: f32[] = aten.relu.default({arguments})"


TEXT: Files = {
    **{
        f"text: shapes of {what}": lines_of(lambda i, make=make: f"input %x: f32[{make(i)}]")
        for what, make in EXPRESSIONS.items()
    },
    "text: functions": lines_of(lambda i: f"func &f{i} {{\n}}"),
    "text: functions in functions": lambda size: program(
        [*[f"func &f{i} {{" for i in range(90)], *["input %x: f32[2]"] * (size // 17), *["}"] * 90]
    ),
    "text: inputs": lines_of(lambda i: f"input %x{i}: f32[{i}]"),
    "text: nodes": lines_of(lambda i: f"%n{i}: f32[2] = aten.relu.default(%n{i - 1}: f32[2])"),
    "text: nodes without results": lines_of(lambda i: f"n{i}: a.b.c()"),
    "text: a node of many results": lambda size: program(
        [", ".join([f"%n.{i}: f32[2]" for i in range(size // 18)]) + " = n: a.b.c()"]
    ),
    "text: a node of many references": lambda size: program(
        ["input %x: f32[2]", f"n: a.b.c(a=[{'%x, ' * (size // 4)}])"]
    ),
    "text: a node of many arguments": lambda size: program(
        [f"n: a.b.c({', '.join([f'a{i}=1' for i in range(size // 9)])})"]
    ),
    "text: arguments in order": lambda size: program([f"n: a.b.c({'1, ' * (size // 3)})"]),
    "text: inputs by number": lambda size: program(
        ["input %x: f32[2]", f"n: a.b.c(a=[{'#0, ' * (size // 4)}]) of [%x]"]
    ),
    "text: bound symbols": lambda size: program(
        [f"n: a.b.c() -> {', '.join([f'u{i}' for i in range(size // 8)])}"]
    ),
    "text: results of no name": lines_of(lambda i: f"%a{i}: f32[2], %b{i}: f32[2] = a.b.c()"),
    "text: symbols": lines_of(lambda i: f"symbol s{i}: 0.."),
    "text: guards": lines_of(lambda i: f"guard `s{i} < 5`"),
    "text: weights": lines_of(lambda i: f"weight @w{i}: f32[2] as %w{i}, %v{i}"),
    "text: names": lines_of(lambda i: f"name %n{i} = @w"),
    "text: aliases": lines_of(lambda i: f"alias @n{i} = @w"),
    "text: metadata": lines_of(lambda i: f'metadata "{i}" = 1'),
    "text: metadata nested 90 deep": lines_of(lambda i: f'metadata "{i}" = {"[" * 90}{"]" * 90}'),
    "text: metadata of small lists": lambda size: program(
        [f'metadata "a" = [{"[]," * (size // 3)}]']
    ),
    "text: metadata of dicts": lambda size: program([f'metadata "a" = [{"{}," * (size // 3)}]']),
    "text: metadata of numbers": lambda size: program([f'metadata "a" = [{"1," * (size // 2)}]']),
    "text: metadata of words": lambda size: program(
        [f'metadata "a" = [{"torch.int8," * (size // 11)}]']
    ),
    "text: metadata of expressions": lambda size: program(
        [f'metadata "a" = [{",".join([f"`s{i}+1`" for i in range(size // 10)])}]']
    ),
    "text: mutations": lambda size: program(
        ["input %x: f32[2]", *["mutate %x = %x"] * (size // 15)]
    ),
    "text: operators": lines_of(lambda i: f'operator "m::o{i}(Tensor a) -> Tensor"'),
    "text: an operator of escapes": lambda size: program(
        ['operator "m::o(str a=' + '\\"' + '\\\\\\"' * (size // 4) + ') -> Tensor"']
    ),
    "text: returned values": lambda size: program(
        ["input %x: f32[2]", f"return {', '.join(['%x'] * (size // 4))}"]
    ),
    "text: signature, wide": lambda size: program([f"signature ({'%x, ' * (size // 4)}) -> %y"]),
    "text: signature, of tuples": lambda size: program(
        [f"signature ({'(),' * (size // 3)}) -> 1"]
    ),
    "text: signature, deep": lambda size: program(
        [f"signature [{', '.join(['[' * 80 + ']' * 80] * (size // 162))}] -> %y"]
    ),
    "text: signature, of dicts": lambda size: program(
        [f"signature {{{', '.join([f'{i}: %x' for i in range(size // 10)])}}} -> %y"]
    ),
    "text: constants": lines_of(lambda i: f"constant @c{i}: i64[] = {i}"),
    "text: constants by hash": lines_of(lambda i: f"constant @c{i}: i64[] = sha256:{i:064x}"),
    "text: constants by bytes": lines_of(lambda i: f"constant @c{i}: i64[] = bytes:{i:016x}"),
    "text: a constant as lists": lambda size: program(
        [f"constant @c: i8[{size // 3}] = [{', '.join('1' * (size // 3))}]"]
    ),
    "text: a constant as small lists": lambda size: program(
        [f"constant @c: i8[{size // 5}, 1] = [{', '.join(['[1]'] * (size // 5))}]"]
    ),
    "text: a constant by bytes": lambda size: program(
        [f"constant @c: u8[{size // 2}] = bytes:{'00' * (size // 2)}"]
    ),
    "text: locations": lines_of(lambda i: f"n{i}: a.b.c() # a.py:{i} in m.m{i} (C): x"),
    "text: a location of places": lambda size: program(
        [f"n: a.b.c() # a{':1 in a' * (size // 8)}"]
    ),
    "text: a location of digits": lambda size: program([f"n: a.b.c() # a:{'1' * size}x"]),
    "text: a location of words": lambda size: program([f"n: a.b.c() # a:1 in {'a.' * size}!"]),
    "text: a location of quotes": lambda size: program([f'n: a.b.c() # "{chr(92) * size}']),
    "text: a long name": lambda size: program([f"input %{'x' * size}: f32[2]"]),
    "text: a long string": lambda size: program([f'torch "{"x" * size}"']),
    "text: a string of escapes": lambda size: program(['torch "' + "\\x1b" * (size // 4) + '"']),
    "text: a string that is not closed": lambda size: program(['torch "' + "\\n" * (size // 2)]),
    "text: quotes": lambda size: program(['"' * size]),
    "text: backquotes": lambda size: program(["`" * size]),
    "text: dots": lambda size: program(["." * size]),
    "text: a number": lambda size: program([f'metadata "a" = {"9" * size}']),
    "text: a float": lambda size: program([f'metadata "a" = 0.{"9" * size}']),
    "text: a hexadecimal number": lambda size: program([f'metadata "a" = 0x{"9" * size}']),
    "text: a complex number": lambda size: program([f'metadata "a" = ({"9" * size}']),
    "text: types that are not closed": lambda size: program(["f32[" * (size // 4)]),
    "text: a type of many sizes": lambda size: program([f"input %x: f32[{'1, ' * (size // 3)}1]"]),
    "text: a type of brackets": lambda size: program([f"input %x: f32[{'(' * size}]"]),
    "text: marks": lambda size: program(["%" * size]),
    "text: numbers behind marks": lambda size: program(["#1" * (size // 2)]),
    "text: brackets": lambda size: program(["[" * size]),
    "text: comments": lambda size: program(["#"] * (size // 2)),
    "text: empty lines": lambda size: b"\n" * size,
    "text: carriage returns": lambda size: b"\r" * size,
    "text: spaces": lambda size: program([" " * size + "x"]),
    "text: other letters": lambda size: program(["é" * (size // 2)]),
    "text: no statement": lambda size: program([*["input %x: f32[2]"] * (size // 17), "inptu"]),
    "text: a name that is not there": lambda size: program(
        [*[f"input %{i:0190}: f32[2]" for i in range(size // 205)], f"return %{'0' * 180}1"]
    ),
    "text: a weight that is not there": lambda size: program(
        [*[f"weight @w{i}: f32[2]" for i in range(size // 20)], "return @w"]
    ),
    "text: an argument that is not there": lambda size: program(
        [f"n: aten.relu.default({'a' * size}=1)"]
    ),
    "text: an error at the end of a line": lambda size: program(
        [f'metadata "a" = [{"1," * (size // 2)} ?]']
    ),
}
