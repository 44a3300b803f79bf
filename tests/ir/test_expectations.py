"""Expectations of a program's text, as FileCheck reads them."""

import pytest

from torch_ir import expect, parse
from torch_ir.errors import InvalidIRError

pytest.importorskip("filecheck")
PROGRAM = parse("""ir "Net" {
  input %x: f32[2, 4]
  %a: f32[2, 4] = aten.relu.default(%x)  # net.py:3: relu(x)
  %b: f32[2, 4] = aten.neg.default(%a)
  %c: f32[2, 4] = aten.neg.default(%b)
  %d: f32[2, 4] = aten.add.Tensor(%c, %a)
  return %d
}""")


MET = [
    "CHECK: {{(}}aten.relu.default{{)+}}\nCHECK: [[A:neg]]{{.*}}\nCHECK: [[A]]{{(.default)*}}",
    "CHECK: aten.relu.default\nCHECK-NEXT: aten.neg.default",
    "a remark\n# CHECK: [[V:%[a-z]+]]: f32[2, 4] = aten.relu\n# CHECK: add.Tensor({{%.}}, [[V]])",
    "CHECK-COUNT-2: aten.neg\nCHECK-NOT: aten.neg",
    "CHECK-DAG: aten.add.Tensor\nCHECK-DAG: aten.relu.default",
    'CHECK-LABEL: ir "Net"\nCHECK: input\nCHECK-SAME: f32[2, 4]',
    "CHECK: input %\nCHECK-SAME: {{^}}x\nCHECK-SAME: {{^:}}",
    "CHECK-DAG: %c\nCHECK-NOT: aten.gelu\nCHECK-DAG: %d",
    "CHECK-NOT: aten.gelu",
    "CHECK-NOT: net.py\nCHECK: return",
    "CHECK{LITERAL}: f32[2, 4]",
]
UNMET = [
    ("CHECK: aten.gelu", "line 1: "),
    ("CHECK: aten.relu\nCHECK-NEXT: aten.add", "line 2: "),
    ("CHECK-COUNT-3: aten.neg", "line 1: "),
    ("CHECK: input\nCHECK-NOT: aten.neg\nCHECK: aten.add", "line 2: "),
    ("CHECK: aten.add\nCHECK: aten.relu", "line 2: "),
    ("CHECK: [[V:%[a-z]+]]: {{.*}}neg\nCHECK: add.Tensor([[V]]", "line 2: "),
    ("CHECK: input\nCHECK-SAME: relu", "line 2: "),
    ("CHECK: input\nCHECK-SAME: {{^}}x", "line 2: "),
]


@pytest.mark.parametrize("text", MET)
def test_what_is_met_finds_nothing(text, capsys):
    assert expect(PROGRAM, text) == ()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("text", "line"), UNMET)
def test_what_is_not_met_is_found_with_its_line(text, line):
    (found,) = expect(PROGRAM, text)
    assert found.code == "not-met"
    assert found.message.startswith(line)
    assert "\\x0a" not in str(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "there is no directive CHECK: in the expectations"),
        ("CHECK-NEXT: a", "the expectations begin with CHECK-NEXT, which follows another"),
        (
            "CHECK: a\nCHECK-NXET: b",
            "line 2 of the expectations: there is no directive CHECK-NXET",
        ),
        ("CHECK:", "line 1 of the expectations: found empty check string with prefix 'CHECK:'"),
        (
            "CHECK: relu\n  CHECK-NOT: {{a[}}",
            "line 2 of the expectations: Malformed regex expression: 'a['\n    CHECK-NOT: {{a[}}",
        ),
        (
            "CHECK: [[A:relu]]\nCHECK: [[B]]",
            "line 2 of the expectations: nothing before captures B\n"
            "    CHECK: [[B]]\n"
            "Capture it by [[B:regex]].",
        ),
        ("CHECK: [[#N+1]]", "line 1 of the expectations: numbers are not computed here"),
        ("CHECK: [[#N:]]", "line 1 of the expectations: numbers are not computed here: [[NAME:"),
        ("CHECK: a\nCHECK-COUNT: b", "line 2 of the expectations: CHECK-COUNT says no number"),
        ("CHECK-LABEL: [[A:b]]", "line 1 of the expectations: a label has no variables"),
        ("CHECK: [[A:b]]\nCHECK-LABEL: [[A]]", "line 2 of the expectations: a label has no var"),
    ],
)
def test_a_file_that_cannot_be_met_is_an_error(text, message):
    with pytest.raises(InvalidIRError) as caught:
        expect(PROGRAM, text)
    assert str(caught.value).startswith(message)


def test_another_prefix_is_read_alone():
    text = "CHECK: aten.gelu\nCORE: aten.relu"
    assert expect(PROGRAM, text, prefix="CORE") == ()
    with pytest.raises(InvalidIRError, match="a prefix is a word"):
        expect(PROGRAM, text, prefix="A B")
