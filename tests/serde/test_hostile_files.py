"""Reading takes work and memory in proportion to the file, however hostile it is.

Work is counted, not timed: a file of a megabyte then takes less than a second. The files are those
of ``tests/hostile``; ``tools/hostile_files.py`` measures them at their full size.
"""

import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

import torch_ir
from counting import calls_made
from hostile import HOSTILE
from hostile.json_files import attributes, document, nested, tensor
from project.tool import ROOT
from torch_ir import serde
from torch_ir.errors import ParseError, SerializationError, TorchIRError
from torch_ir.ir.expressions import normal_form
from torch_ir.ops.schema import parse_schema

SIZE = 20_000
CALLS = 7
"""Functions called for each byte, beside those of any load."""
BYTES = 200
"""Of memory for each byte of a file, beside those of any load."""


@pytest.fixture(scope="module")
def read():
    import sys

    sys.path.insert(0, str(ROOT / "tools"))
    from fuzz_judging import read

    yield read
    sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize("name", HOSTILE)
def test_work_and_memory_are_in_proportion(name, read, tmp_path, monkeypatch):
    monkeypatch.setattr(normal_form, "DOCUMENT_WORK", 0)  # so that a short document has few
    normal_form._spelling.cache_clear()
    normal_form._normal_form.cache_clear()
    data = HOSTILE[name](SIZE)

    def attempt():
        with suppress(TorchIRError):
            read(name.split(":")[0], data, Path(tmp_path))

    attempt()  # what is imported and cached once for all
    tracemalloc.start()
    attempt()
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    normal_form._spelling.cache_clear()
    normal_form._normal_form.cache_clear()
    assert memory <= 500_000 + BYTES * len(data)
    hints = 1_200_000 if name == "text: a name that is not there" else 20_000
    assert calls_made(attempt) <= hints + CALLS * len(data)


@pytest.mark.parametrize("make", [str, "a{}*b + 1".format, "max(s0, {}, s1)".format])
def test_a_large_program_has_room_for_its_expressions(make):
    made = [tensor(f"x{i}", f"s{i % 500} + 2", make(i % 3000 + 1)) for i in range(20_000)]
    assert len(serde.loads(document(graph_inputs=made)).graph_inputs) == 20_000


def expanded(count):
    return document(graph_inputs=[tensor(f"x{i}", f"(a + b + c)**12 + {i}") for i in range(count)])


def test_the_expressions_of_a_document_are_bounded():
    with pytest.raises(SerializationError) as caught:
        serde.loads(expanded(200), name="m.json")
    assert caught.value.message == (
        "m.json: at $.graph_inputs[59].shape[0]: the expressions of the document are too many, or "
        "too large when they are expanded, for its size"
    )
    lines = [f"input %x: f32[(a + b + c)**12 + {i}]" for i in range(200)]
    with pytest.raises(ParseError, match=r"^line 61: the expressions of the document are too"):
        torch_ir.parse("\n".join(["ir {", *lines, "}"]))


def test_each_document_begins_anew():
    for _ in range(4):
        assert len(serde.loads(expanded(50)).graph_inputs) == 50


def test_attributes_as_deep_as_may_be_take_two_calls_a_level():
    data = attributes(lambda i: nested(60, i))(SIZE)
    assert calls_made(lambda: serde.loads(data)) < 1.5 * len(data)


def test_a_quote_that_is_never_closed():
    with pytest.raises(torch_ir.InvalidIRError):
        parse_schema('m::o(str a="' + '\\"' * 1_000_000 + ") -> Tensor")
