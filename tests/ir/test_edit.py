"""Programs with every attribute written out, and the table of schemas that readers need."""

import json
from pathlib import Path

import pytest
import torch

from passes.equal import assert_same
from small_models import CASES
from torch_ir import extract_ir
from torch_ir.executor import check_types
from torch_ir.ir.edit import with_defaults
from torch_ir.ops.schema import lookup
from torch_ir.serde.operator_table import operator_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", CASES)
def test_a_program_with_its_defaults_runs_with_the_same_bits_and_has_no_findings(name):
    case = CASES[name]
    args, kwargs = case.inputs()
    ir = extract_ir(case.model(), args, kwargs=kwargs)
    full = with_defaults(ir)
    assert full.check() == ()
    assert not list(check_types(full))
    for _, graph, node in full.walk():
        schema = graph.schema_of(node.op_type)
        for argument in schema.arguments if schema else ():
            is_said = argument.name in node.attrs or argument.name in node.slots
            assert is_said or argument.takes_tensor or argument.default is None
    assert with_defaults(full) is full
    assert_same(ir, full, case.model().state_dict(), args, kwargs)


def test_the_table_has_the_defaults_in_the_encoding_of_documents():
    table = operator_table()
    arguments = {a["name"]: a for a in table["aten.conv2d.default"]["arguments"]}
    assert arguments["stride"]["default"] == [1, 1]
    assert arguments["bias"]["default"] is None
    assert "default" not in arguments["input"]
    assert arguments["groups"] == {"name": "groups", "type": "SymInt", "default": 1}
    gelu = table["aten.gelu.default"]["arguments"][1]
    assert gelu == {"name": "approximate", "type": "str", "default": "none"}
    assert json.loads((ROOT / "docs/operators.json").read_text()) == table


def test_the_table_of_a_program_has_what_it_calls():
    ir = extract_ir(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    assert operator_table(ir).keys() == {"aten.linear.default"}
    assert (
        operator_table(ir)["aten.linear.default"]["schema"] == lookup("aten.linear.default").text
    )
