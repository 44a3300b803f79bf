"""The page of refusals has a line for each code that the source can give, and no other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKERS = ("Diagnostic", "DiagnosticError", "violation")
CODE = re.compile(r"[a-z]+(-[a-z]+)+")
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def constants(tree):
    """The names that a module gives to texts."""
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    return {ast.unparse(n.targets[0]): text(n.value) for n in named if text(n.value)}


def text(node):
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else ""


def given_codes():
    """The codes of errors, and of what is found, with a file that has each."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = constants(tree)
        codes = [names[name] for name in ("code", "FORBIDDEN") if name in names]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                codes += [text(n.value) for n in node.body if is_code(n)]
            elif isinstance(node, ast.Call) and makes_finding(node):
                codes.append(text(node.args[0]) or names.get(ast.unparse(node.args[0]), ""))
        found |= {code: path.name for code in codes if CODE.fullmatch(code)}
    return found


def makes_finding(call):
    return bool(call.args) and ast.unparse(call.func).rpartition(".")[2] in MAKERS


def is_code(node):
    target = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    return target is not None and ast.unparse(target) == "code" and node.value is not None


def rows():
    return ROW.findall((ROOT / "docs" / "faq.md").read_text(encoding="utf-8"))


def test_the_page_has_each_code_that_the_source_gives():
    codes = given_codes()
    assert len(codes) > 60
    missing = {code: name for code, name in codes.items() if code not in dict.fromkeys(listed())}
    assert not missing, f"docs/faq.md has no line for {missing}"
    assert sorted(set(listed()) - codes.keys()) == []
    assert len(listed()) == len(set(listed()))


def listed():
    return [code for code, _, _ in rows()]


@pytest.mark.parametrize("column", [1, 2], ids=["what", "remedy"])
def test_each_line_says_what_is_refused_and_what_to_do(column):
    short = [row[0] for row in rows() if len(row[column].split()) < 3]
    assert short == []
