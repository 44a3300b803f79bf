"""What a reader of bad IR text sees: the sentence, the line with a caret, the remedy."""

from __future__ import annotations

import pytest

from torch_ir.errors import ParseError
from torch_ir.ir import IR, Constant
from torch_ir.ir.text import parse


def graph(*lines: str) -> str:
    return "\n".join(["ir {", *(f"  {line}" for line in lines), "}"])


def refusal(text: str, **options: object) -> str:
    with pytest.raises(ParseError) as caught:
        parse(text, **options)  # type: ignore[arg-type]  # wrong types are tried too
    return str(caught.value)


X = "input %x: f32[2]"


def node(call: str) -> str:
    return graph(X, f"%y: f32[2] = {call}")


def test_the_error_shows_the_line_the_place_and_the_remedy():
    assert refusal(graph("input %x: f23[2]")) == (
        "line 2: 'f23' is not an element type\n"
        "    2 |   input %x: f23[2]\n"
        "      |             ^^^^^^\n"
        "Did you mean f32?"
    )
    assert refusal(node("aten.relu.default(%z)")) == (
        "line 3: %z is not defined\n"
        "    3 |   %y: f32[2] = aten.relu.default(%z)\n"
        "      |                                  ^^\n"
        "A value without definition is written with its type, as in %z: f32[2]."
    )
    assert refusal(node("aten.relu.default(%x")) == (
        "line 3: expected ',', got the end of the line\n"
        "    3 |   %y: f32[2] = aten.relu.default(%x\n"
        "      |                                    ^"
    )


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("", "the text holds no IR", 'It begins with: ir "name" {'),
        (
            "graph {",
            "line 1: expected an IR, got 'graph'",
            'The text begins with: ir "name" {',
        ),
        ("ir {", "line 1: the bracket { is never closed", None),
        ("ir {\n}\nir {\n}", "line 3: the text goes on behind the end of the IR", None),
        (graph("imput %x: f32[2]"), "line 2: 'imput' is not a statement", "Did you mean input?"),
        (graph("input %x: f32[-1]"), "line 2: a dimension cannot be negative, got -1", None),
        (graph("input %xs: f32[]", "return %x"), "line 3: %x is not defined", "Did you mean xs?"),
        (
            graph("weight @fc.w: f32[2]", "return @fc"),
            "line 3: there is no weight or constant @fc",
            "Did you mean fc.w?",
        ),
        (
            node("aten.add.Tensor(%x, %x, alpha=true)"),
            "line 3: expected a value, got 'true'",
            "Did you mean True?",
        ),
        (
            node("aten.add.Tensor(%x, alpha=1, %x)"),
            "line 3: an argument without a name stands where only named ones can",
            None,
        ),
        (
            node("my.op.default(%x)"),
            "line 3: the arguments of my.op.default are not known, so they cannot be given by "
            "position",
            "Write name=value, or *[%x, %y] for tensors alone.",
        ),
        (
            node("aten.relu.default(%x, %x)"),
            "line 3: aten.relu.default takes 1 argument by position",
            "aten::relu(Tensor self) -> Tensor",
        ),
        (
            node("aten.add.Tensor(#0, #0)"),
            "line 3: inputs by number need the list of inputs",
            "As in aten.add.Tensor(#0, #0) of [%x].",
        ),
        (
            node("aten.add.Tensor(#0, %x) of [%x]"),
            "line 3: the inputs are listed behind 'of', so tensors are given by number",
            "As in aten.add.Tensor(#0, #0) of [%x].",
        ),
        (node("aten.add.Tensor(%x, self=%x)"), "line 3: the argument self is given twice", None),
        (node("my.op(*[%x], k=%x)"), "line 3: a call of *[...] has no other tensors", None),
        (
            graph(X, "%a: f32[2], %b: f32[2] = aten.add.Tensor(%x, %x)"),
            "line 3: the node has no name",
            "Name it, as in %a: f32[2], %b: f32[2] = pair: my.op.default(%x).",
        ),
        (graph('metadata "k" = "abc'), "line 2: the string has no closing quote", None),
        (
            graph(r'metadata "k" = "a\q"'),
            r"line 2: \q is not an escape",
            r"The escapes are \n, \r, \t, \", \\, \xhh, \uhhhh and \Uhhhhhhhh.",
        ),
        (
            graph('metadata "k" = s0'),
            "line 2: expected a value, got 's0'",
            "Expressions over symbols are written in backquotes, strings in double quotes.",
        ),
        (graph('metadata "k" = `s0 +`'), "line 2: 's0 +' is not an expression", None),
        (
            graph('metadata "k" = (1, 2)'),
            "line 2: expected a value, got '('",
            "Lists are written [1, 2].",
        ),
        (
            graph('metadata "k" = [%x]'),
            "line 2: the tensor %x cannot stand here; a value is expected",
            None,
        ),
        (
            graph('metadata "k" = torch.float31'),
            "line 2: expected a value, got 'torch.float31'",
            "Did you mean torch.float32 or torch.float16?",
        ),
        (
            graph("constant @c: i64[2] = [1]"),
            "line 2: the values of i64[2] have another shape",
            None,
        ),
        (graph("constant @c: i8[1] = [300]"), "line 2: a value does not fit i8[1]", None),
        (
            graph("constant @c: i8[1] = sha256:12"),
            "line 2: a constant i8[1] needs its data or the SHA-256 of it",
            None,
        ),
        (
            graph("constant @c: i8[1] = bytes:1"),
            "line 2: bytes are written as pairs of hexadecimal digits",
            None,
        ),
        (
            graph("constant @c: f8e5m2[1] = [1]"),
            "line 2: the values of f8e5m2[1] are written as bytes:, in hexadecimal",
            None,
        ),
        (
            graph("constant @c: f32[s0] = [1]"),
            "line 2: a constant has no symbolic dimensions",
            None,
        ),
        (graph("symbol s0: 4..2"), "line 2: the range 4..2 is empty", None),
        (graph('torch "1"', 'torch "2"'), "line 3: torch is given twice", None),
        (graph("return", "return"), "line 3: return is given twice", None),
        (
            graph("signature (%x) -> %x"),
            "line 2: expected ','",
            "A tuple of one is written (%x,).",
        ),
        (graph('dialect "aten" x'), "line 2: expected the end of the line, got 'x'", None),
        (b"ir {}", "IR text is a str, got bytes", None),
    ],
)
def test_every_fault_has_its_sentence(text: str, message: str, remedy: str | None):
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


def test_a_value_given_for_a_constant_is_the_one_that_the_text_names():
    big = Constant("uint8", (17,), bytes(17))
    text = str(IR([], [], [], [], constants={"c": big}))
    other = Constant("uint8", (17,), b"x" * 17)
    assert refusal(text, constants={"c": other}) == (
        "line 2: the value given for @c is another one\n"
        f"    2 |   constant @c: u8[17] = sha256:{big.digest()}\n"
        f"      |                         {'^' * 71}\n"
        f"It is a u8[17] with sha256:{other.digest()}."
    )
    assert refusal(text, constants={"c": "text"}).startswith(
        "line 2: the value given for @c: a constant cannot be a str\n"
    )
    assert refusal(text, constants={"d": big}) == (
        "the text has no constant 'd', for which a value is given"
    )


@pytest.mark.parametrize(
    "text",
    [
        graph('metadata "k" = ' + "[" * 100_000),
        graph("signature " + "(" * 100_000),
        graph("signature " + "a(" * 100_000),
        "ir {\n" + "func &f {\n" * 100_000,
        graph('metadata "k" = ' + '\\"' * 100_000),
        graph('metadata "k" = ' + '"\\' * 100_000),
        graph("input %x: " + "f32[" * 100_000),
        graph("a[" * 100_000),
        graph("(1" * 100_000),
        graph("`" * 100_001),
        graph("%y: f32[2] = " + "x" * 1_000_000),
        graph("%" * 100_000),
        graph('metadata "k" = ' + "9" * 1_000_000),
        graph("input %x: f32[" + "9" * 1_000_000 + "]"),
        graph("input %x: f32[" + "(" * 100_000 + "]"),
        graph("input %x: f32[" + "s0*" * 100_000 + "s0]"),
        graph('metadata "k" = `' + "-" * 3000 + "s0`"),
        graph(*[f"input %{'x' * 5000}{i}: f32[2]" for i in range(50)], "return %" + "x" * 5000),
        "\0" * 100_000,
        "ir {" + "\n" * 1_000_000,
    ],
    ids=lambda text: repr(text[:30]),
)
def test_hostile_text_is_refused(text: str):
    with pytest.raises(ParseError):
        parse(text)  # in quadratic time it would take minutes


def test_comments_may_hold_anything():
    comment = "# " + "a:1 in b (" * 20_000
    assert parse(graph(X, f"%y: f32[2] = aten.relu.default(%x)  {comment}")).nodes


@pytest.mark.parametrize("call", ["aten.rleu.default(%x)", "aten.rleu.default(%x, 3)"])
def test_a_misspelled_operator_is_refused_by_its_name(call):
    with pytest.raises(ParseError, match=r"there is no operator aten\.rleu\.default") as caught:
        parse(f"ir {{\n  input %x: f32[2]\n  %a: f32[2] = {call}\n  return %a\n}}")
    assert "Did you mean aten.relu.default" in str(caught.value)


def test_operators_of_unknown_libraries_need_named_arguments():
    with pytest.raises(ParseError, match=r"the arguments of my\.op are not known"):
        parse("ir {\n  input %x: f32[2]\n  %a: f32[2] = my.op(%x)\n  return %a\n}")
