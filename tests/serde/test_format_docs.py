"""The document in ``docs/format.md`` is one that this package writes."""

import re
from pathlib import Path

from torch_ir.serde import dumps, loads

PAGE = Path(__file__).parents[2] / "docs/format.md"


def test_the_example_is_what_is_written():
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ir = loads(text)
    assert ir.check() == ()
    assert dumps(ir).decode() == text
