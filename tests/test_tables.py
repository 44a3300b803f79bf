"""Tables look the same everywhere: in a narrow terminal, in color, in a file."""

import pytest

from torch_ir.tables import table


@pytest.mark.parametrize("world", [{"COLUMNS": "10"}, {"FORCE_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_table_does_not_depend_on_the_terminal(world, monkeypatch):
    for name, value in world.items():
        monkeypatch.setenv(name, value)
    rows = [("operator", "time"), ("aten." + "x" * 200, "1,024.5"), ("[red]y[/red] :smile:", "-3")]
    assert table(rows).splitlines() == [
        "operator" + " " * 197 + "  time",
        "aten." + "x" * 200 + "  1,024.5",
        "[red]y[/red] :smile:" + " " * 185 + "       -3",
    ]


def test_columns_align_as_asked_and_rows_end_with_text():
    rows = [("12", "a", ""), ("3", "bcd", "x")]
    assert table(rows, align=("left", "right", "left"), indent="  ") == "  12    a\n  3   bcd  x"
    assert table([]) == ""


def test_characters_that_take_two_columns_count_as_two():
    assert table([("日本", "1"), ("abc", "2")]) == "日本  1\nabc   2"
