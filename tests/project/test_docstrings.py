"""Docstrings say what a function does; the tool that counts them finds those that do not."""

import ast

import pytest

from project.test_borders import load_tool

SOURCE = '''
"""{module}"""

def led():
    """Return one."""

def noun():
    """The number one."""

def _private():
    """Whatever."""

class Shape:
    """A shape."""

    @property
    def size(self):
        """The number of elements."""

    def is_empty(self):
        """Whether it has no elements."""

    def __len__(self):
        """The rank."""
'''


@pytest.fixture(scope="module")
def tool():
    return load_tool("check_docstrings")


def test_public_functions_are_counted_and_properties_are_not(tool):
    found = [*tool.of_functions("src/torch_ir/planted.py", ast.parse(SOURCE))]
    assert [one.name for one in found] == ["led", "noun", "Shape.is_empty"]
    assert [tool.is_led_by_verb(one) for one in found] == [True, False, False]
    assert str(found[1]) == "src/torch_ir/planted.py:8: noun: The number one."


def test_phrases_that_say_nothing_are_banned_anywhere(tool):
    tree = ast.parse(SOURCE.replace("Whatever.", "Return one.\n\n    Of two likewise."))
    (one,) = tool.banned_phrases("src/torch_ir/planted.py", tree)
    assert str(one) == "src/torch_ir/planted.py:11: _private: Of two likewise."
    assert all([*tool.banned_phrases(*found)] == [] for found in tool.trees())


def test_the_meanings_of_operators_are_noun_phrases(tool):
    path = "src/torch_ir/semantics/operators/planted.py"
    assert [*tool.of_functions(path, ast.parse(SOURCE))] == []


@pytest.mark.parametrize(
    ("text", "is_clause"),
    [
        ("What a call gives.", True),
        ("Whether two tensors are the same.", True),
        ("Running an IR.", True),
        ("Aliases of a graph.", False),
        ("Broadcasting of shapes.", False),
    ],
)
def test_the_docstring_of_a_module_names_a_thing(tool, text, is_clause):
    module = tool.of_module("planted.py", ast.parse(SOURCE.replace("{module}", text)))
    assert module is not None
    assert tool.is_clause(module) == is_clause


def test_this_tree_keeps_to_the_bound(tool, capsys):
    assert tool.main([]) == 0
    assert capsys.readouterr().out.startswith("docstrings: ")
