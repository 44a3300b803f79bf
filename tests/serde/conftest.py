"""An IR in which every field of the format occurs, and the published JSON Schema."""

import json
from pathlib import Path

import jsonschema
import pytest

from torch_ir.ir import (
    IR,
    Constant,
    Container,
    FunctionRef,
    Location,
    Mutation,
    OpNode,
    Signature,
    SymbolRange,
    SymExpr,
    TensorLeaf,
    TensorMeta,
    ValueLeaf,
)


@pytest.fixture(scope="session")
def full_ir():
    """Frozen, since golden files of released formats hold it: never change it."""
    x = TensorMeta("x", (SymExpr("s0"), 4), "float32")
    y = TensorMeta("y", (SymExpr("s0"), 4), "float32", "y")
    weight = TensorMeta("fc.weight", (4, 4), "float32")
    where = Location("net.py", 3, "return self.fc(x)", "fc", "torch.nn.Linear")
    attrs = {"p": 0.5, "k": [1, None, "s"], "z": 1j, "n": float("nan"), "body": FunctionRef("f")}
    node = OpNode("y", "my.op.default", [x, x], [y], attrs, {"a": 0, "b": [1, None]}, where)
    inputs = Container("tuple", [Container("tuple", [TensorLeaf("x")]), Container("dict")])
    outputs = Container("my.Output", [TensorLeaf("y"), ValueLeaf(3)], context="{}")
    return IR(
        nodes=[node],
        graph_inputs=[x],
        graph_outputs=[y],
        weights=[weight],
        weight_name_mapping={"p_fc_weight": "fc.weight"},
        constants={
            "small": Constant.from_list([[1, 2]], "int64"),
            "large": Constant("bfloat16", (3,), b"abcdef"),
        },
        model_name="Net",
        pytorch_version="2.13.0",
        symbols={"s0": SymbolRange(1, 8)},
        functions={"f": IR([], [x], [x], [])},
        mutations=[Mutation("x", y)],
        signature=Signature(inputs, outputs),
        dialect="aten",
        weight_aliases={"head.weight": "fc.weight"},
        metadata={"author": "me"},
    )


@pytest.fixture(scope="session")
def schema():
    text = (Path(__file__).parents[2] / "docs/ir.schema.json").read_text()
    return jsonschema.Draft202012Validator(json.loads(text))
