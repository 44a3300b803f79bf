"""What the tables say of sharing, writing and drawing is what torch does, overload by overload."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from ops.calls import SKIPPED, sweep
from ops.samples import watch_samples
from torch_ir.errors import InvalidIRError
from torch_ir.ops import aliases
from torch_ir.ops.aliases import BY_ITEM, Sharing, sharing
from torch_ir.ops.schema import known_operators, lookup, parse_schema

ATTEMPTS = int(os.environ.get("TORCH_IR_ATTEMPTS", "40"))
SAMPLES = int(os.environ.get("TORCH_IR_SAMPLES", "2"))
UNCALLED = 920
"""Overloads that take none of the arguments that are made up for them; may only get fewer."""

WRITES_AT_TIMES = {"writes self: aten.cov.default"}
"""A fault of torch: weighted covariance of one observation subtracts the mean in place."""


@pytest.fixture(scope="module")
def samples():
    """The calls that torch's own samples of its operators make."""
    return watch_samples(SAMPLES)


def test_the_tables_say_what_torchs_own_samples_do(samples):
    assert len(samples.calls) > 900
    assert not samples.faults, "\n".join(samples.faults[:50])


def test_the_tables_say_what_torch_does(tmp_path, samples):
    found = sweep(ATTEMPTS, tmp_path)
    assert found.keys() == set(known_operators()) - SKIPPED
    faults = [m for _, messages in found.values() for m in messages]
    faults = [m for m in faults if m.partition("(")[0] not in WRITES_AT_TIMES]
    assert not faults, "\n".join(sorted(faults)[:50])
    uncalled = [name for name, (n, _) in found.items() if not n and name not in samples.calls]
    sys.stdout.write(f"{len(uncalled)} of {len(found)} overloads were not called:\n")
    sys.stdout.write("\n".join(sorted(uncalled)))
    assert len(uncalled) <= UNCALLED


def test_a_mark_is_shared_always():
    schema = parse_schema("my::op(Tensor(a) x, Tensor y) -> (Tensor(a), Tensor)")
    assert [dict(shared) for shared in sharing(schema)] == [{"x": Sharing.ALWAYS}, {}]
    chunks = sharing(lookup("aten.chunk.default"))
    assert [dict(shared) for shared in chunks] == [{"self": Sharing.ALWAYS}]


@pytest.mark.parametrize("row", ["aten.view.default/self", "aten.mm.default/other"])
def test_a_row_that_repeats_or_contradicts_a_schema_is_refused(row, monkeypatch):
    monkeypatch.setattr(aliases, "_UNMARKED", {Sharing.BY_VALUE: row})
    aliases._rows.cache_clear()
    try:
        with pytest.raises(InvalidIRError, match="repeat its schema or contradict it"):
            aliases._rows()
    finally:
        aliases._rows.cache_clear()


def test_items_share_by_place_where_a_list_is_given_for_a_list():
    for name in known_operators():
        schema = lookup(name)
        lists = {a.name for a in schema.arguments if a.type.startswith("Tensor[")}
        is_by_item = any(lists & shared.keys() for shared in sharing(schema)) and (
            schema.returns[-1].type.startswith("Tensor[")
        )
        assert is_by_item == (name in BY_ITEM), name
    for name in BY_ITEM:
        namespace, operator, overload = name.split(".")
        given = [torch.ones(2), torch.ones(2), torch.ones(2)]
        rest = {"indexing": "xy"} if overload == "indexing" else {}
        first = () if lookup(name).arguments[0].type == "Tensor[]" else (torch.ones(2, 3),)
        call = getattr(getattr(getattr(torch.ops, namespace), operator), overload)
        made = call(*first, given, **rest)
        made = made[-1] if first else made
        assert [result.data_ptr() for result in made] == [tensor.data_ptr() for tensor in given]
