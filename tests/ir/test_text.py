"""IR text: what is printed, and the law that it reads back as the same IR."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from strategies import arbitrary_irs, well_formed_irs

from torch_ir.ir import IR
from torch_ir.ir.text import parse

law = settings(
    derandomize=True,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


@given(well_formed_irs())
@settings(law, max_examples=150)
def test_a_well_formed_ir_is_read_back(ir: IR):
    assert parse(str(ir)) == ir


@given(arbitrary_irs())
@settings(law, max_examples=400)
def test_any_ir_is_read_back(ir: IR):
    assert parse(str(ir)) == ir
