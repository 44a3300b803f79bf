"""The page on big models runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "big-models.md"


def test_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"__name__": "big_models"}
    for block in blocks:
        exec(compile(block, "big-models.md", "exec"), names)  # our own page
    said = re.findall(r"print\(.*\)  # (.*)", "".join(blocks))
    assert capsys.readouterr().out.splitlines() == said
