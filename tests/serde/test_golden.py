"""Files of every released format version load to the same value forever.

The documents and archives here are never written anew: a change of the format gets a new version,
a new folder, and a step in ``torch_ir.serde.upgrades``. Only their text, ``*.ir``, follows
a change of the printer.
"""

from pathlib import Path

import numpy as np
import pytest

from torch_ir.ir import IR, Constant
from torch_ir.serde import FORMAT_VERSION, dumps, load, read_archive_weights
from torch_ir.serde.upgrades import UPGRADES

GOLDEN = Path(__file__).parents[1] / "golden"
TABLE = Constant.from_list([[1.5, -2], [0.25, 4]], "bfloat16")
VIEWS = IR(
    [],
    [],
    [],
    [],
    constants={
        "table": TABLE,
        "transposed": TABLE.view_of("table", (2, 2), strides=(1, 2)),
        "last": TABLE.view_of("table", (10**6,), strides=(0,), offset=3),
    },
)
"""Frozen, as ``full_ir`` is."""

FILLED = IR(
    [],
    [],
    [],
    [],
    constants={
        "cache": Constant("bfloat16", (1, 8, 4096, 2), bytes(2), is_filled=True),
        "masked": (MASKED := Constant("float32", (65,), b"\0\0\x80\xff" * 65)),
        "row": MASKED.view_of("masked", (2, 2), strides=(1, 2)),
        "few": Constant("float32", (2,), bytes(4), is_filled=True),
    },
)
"""As above; such a file has version 2, the others still 1."""
IRS = {"views": VIEWS, "filled": FILLED}

FILES = sorted(path for path in GOLDEN.glob("v*/*") if path.suffix in (".json", ".tir"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_released_file_loads_to_the_same_value(path, full_ir):
    ir = load(path)
    assert ir == {"full": full_ir, **IRS}[path.stem]
    assert str(ir) == path.with_suffix(".ir").read_text()


def test_the_weights_of_a_released_archive():
    weights = read_archive_weights(GOLDEN / "v1/full.tir")
    assert weights["fc.weight"].tolist() == np.arange(16.0).reshape(4, 4).tolist()


def test_every_version_has_golden_files_and_a_step_to_the_next():
    versions = [f"v{version}" for version in range(1, FORMAT_VERSION + 1)]
    assert sorted({path.parent.name for path in FILES}) == versions
    assert sorted(UPGRADES) == list(range(FORMAT_VERSION))


@pytest.mark.parametrize("name", ["v1/full", "v1/views", "v2/filled"])
def test_the_present_version_is_still_written_the_same(name, full_ir):
    path = GOLDEN / f"{name}.json"
    assert dumps({"full": full_ir, **IRS}[path.stem]) == path.read_bytes()
    assert isinstance(IR.load(path), IR)
