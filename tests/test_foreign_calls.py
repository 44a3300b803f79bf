"""The calls of a pytorch-ir 0.2.3 user, argument by argument, on this package."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import torch_ir
from torch_ir import (
    IR,
    ConversionError,
    ExecutionError,
    ExportError,
    IRExecutor,
    OpNode,
    SerializationError,
    TensorMeta,
    VerificationReport,
    WeightLoadError,
    convert_exported_program,
    deserialize_ir,
    execute_ir,
    export_model,
    extract_ir,
    generate_op_distribution_pie,
    ir_to_mermaid,
    load_ir,
    load_weights,
    load_weights_pt,
    load_weights_safetensors,
    register_executor,
    register_op,
    save_ir,
    serialize_ir,
    validate_ir,
    verify_ir,
    verify_ir_with_state_dict,
)


class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x):
        return torch.relu(self.linear(x))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return MyModel()


@pytest.fixture(scope="module")
def ir():
    with torch.device("meta"):
        meta = MyModel()
    return extract_ir(meta.eval(), (torch.randn(1, 10, device="meta"),))


X = torch.arange(10.0).view(1, 10)


def test_extraction_from_meta(ir):
    with torch.device("meta"):
        meta = MyModel().eval()
    inputs = (torch.randn(1, 10, device="meta"),)
    assert ir.model_name == "MyModel"
    named = extract_ir(meta, inputs, model_name="Mine", strict=False)
    assert named.model_name == "Mine"
    assert extract_ir(meta, inputs, model_name="Mine", strict=True) == named
    exported = export_model(meta, inputs, strict=True)
    assert convert_exported_program(exported, model_name="Mine", strict=False) == named
    with pytest.raises(ExportError):
        extract_ir(MyModel(), (X,), strict=True)


def test_what_a_node_and_a_tensor_say(ir):
    linear, relu = ir.nodes
    assert (linear.name, linear.op_type) == ("linear", "aten.linear.default")
    assert [t.name for t in linear.inputs] == ["x", "p_linear_weight", "p_linear_bias"]
    assert relu.inputs[0].producer_node == "linear"
    assert relu.inputs[0].producer_output_idx == 0
    assert linear.inputs[0].producer_node is None
    assert [t.name for t in ir.weights] == ["linear.weight", "linear.bias"]
    assert ir.weight_name_mapping["p_linear_weight"] == "linear.weight"
    assert ir.pytorch_version == torch.__version__
    assert tuple(ir.graph_outputs[0].shape) == (1, 5)
    assert ir.graph_outputs[0].dtype == "float32"


def test_storing(ir, tmp_path):
    path = tmp_path / "deep" / "model.json"
    save_ir(ir, path)
    assert load_ir(str(path)) == ir
    text = serialize_ir(ir)
    assert isinstance(text, str)
    assert {"model_name", "pytorch_version", "graph_inputs", "graph_outputs", "weights"} < set(
        json.loads(text)
    )
    assert deserialize_ir(text) == ir
    assert validate_ir(ir) is True
    ir.save(str(tmp_path / "model.json"))
    assert IR.load(str(tmp_path / "model.json")) == ir
    assert IR.from_dict(ir.to_dict()) == ir
    assert OpNode.from_dict(ir.nodes[0].to_dict()) == ir.nodes[0]
    assert TensorMeta.from_dict(ir.weights[0].to_dict()) == ir.weights[0]
    with pytest.raises(SerializationError):
        deserialize_ir("{not json")
    with pytest.raises(SerializationError):
        validate_ir(ir.replace(nodes=[ir.nodes[0], ir.nodes[0]]))


def test_a_missing_file_is_the_error_that_it_was(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_ir(tmp_path / "nothing.json")
    with pytest.raises(WeightLoadError):
        load_weights(tmp_path / "nothing.pt")


def test_weights(model, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    save_file(model.state_dict(), str(tmp_path / "w.safetensors"))
    for load, name in (
        (load_weights, "w.pt"),
        (load_weights, "w.safetensors"),
        (load_weights_pt, "w.pt"),
        (load_weights_safetensors, "w.safetensors"),
    ):
        weights = load(str(tmp_path / name))
        assert set(weights) == {"linear.weight", "linear.bias"}
        assert torch.equal(weights["linear.bias"], model.linear.bias)


def test_running(ir, model, tmp_path):
    expected = model(X)
    (made,) = execute_ir(ir, (X,), weights=model.state_dict())
    assert torch.equal(made, expected)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    assert torch.equal(execute_ir(ir, (X,), weights_path=str(tmp_path / "w.pt"))[0], expected)
    with pytest.raises(ValueError, match="Either weights or weights_path must be provided"):
        execute_ir(ir, (X,))

    executor = IRExecutor(ir)
    with pytest.raises(ExecutionError):
        executor.execute((X,))
    executor.load_weights(tmp_path / "w.pt")
    assert torch.equal(executor.execute((X,))[0], expected)
    executor.load_weights_from_state_dict(model.state_dict())
    assert torch.equal(executor.execute((X,))[0], expected)
    assert executor.registry.has("p_linear_weight")
    with pytest.raises(ExecutionError):
        executor.execute(())
    with pytest.raises(WeightLoadError):
        IRExecutor(ir, {"linear.weight": torch.ones(1)})
    assert torch.equal(IRExecutor(ir, model.state_dict(), constants={}).execute((X,))[0], expected)


def test_verifying(ir, model, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    is_valid, report = verify_ir(
        ir=ir,
        weights_path=str(tmp_path / "w.pt"),
        original_model=model,
        test_inputs=(X,),
    )
    assert is_valid is True
    assert isinstance(report, VerificationReport)
    assert (report.is_valid, report.max_diff, report.num_outputs) == (True, 0.0, 1)
    assert report.error_message is None
    positional = (ir, model.state_dict(), model, (X,), 1e-5, 1e-5, None)
    assert verify_ir_with_state_dict(*positional)[0] is True
    assert verify_ir(ir, tmp_path / "w.pt", model, (X,), rtol=1e-4, atol=1e-4)[0] is True

    other = {key: value + 1 for key, value in model.state_dict().items()}
    is_valid, report = verify_ir_with_state_dict(
        ir=ir, state_dict=other, original_model=model, test_inputs=(X,)
    )
    assert is_valid is False
    assert report.max_diff > 0
    detail = report.output_details[0]
    assert {"index", "shape", "is_close", "max_diff", "mean_diff"} <= set(detail)
    assert detail["is_close"] is False


def test_what_stops_a_comparison_is_in_the_report(ir, model, tmp_path):
    for path in (tmp_path / "nothing.pt", tmp_path):
        is_valid, report = verify_ir(ir, path, model, (X,))
        assert (is_valid, report.is_valid) == (False, False)
        assert report.error_message
    for inputs in ((), (X.double(),), (X, X), (torch.ones(2, 3),), (torch.ones(2, 10),)):
        is_valid, report = verify_ir_with_state_dict(ir, model.state_dict(), model, inputs)
        assert is_valid is False
        assert report.error_message
        assert report.error_message in " ".join(str(report).split())  # long lines are folded


def test_registering():
    @register_op("mylib.nothing.default")
    def convert_nothing(node_info):
        return OpNode(
            name=node_info.name,
            op_type=node_info.op_type,
            inputs=node_info.input_metas,
            outputs=node_info.output_metas,
            attrs=node_info.attrs,
        )

    @register_executor("mylib.nothing.default")
    def run_nothing(inputs, attrs):
        return [inputs[0]]

    x = TensorMeta(name="x", shape=(10,), dtype="float32")
    y = TensorMeta(
        name="y", shape=(10,), dtype="float32", producer_node="y", producer_output_idx=0
    )
    node = OpNode(
        name="y", op_type="mylib.nothing.default", inputs=[x], outputs=[y], operands={"self": 0}
    )
    ir = IR(nodes=[node], graph_inputs=[x], graph_outputs=[y], weights=[])
    try:
        assert execute_ir(ir, (X[0],), weights={})[0] is not None
    finally:
        torch_ir.executor.unregister_executor("mylib.nothing.default")
        torch_ir.frontend.unregister_op("mylib.nothing.default")


def test_showing(ir):
    assert ir_to_mermaid(ir, max_nodes=30, include_weights=True).startswith("flowchart TD")
    assert "linear" in ir_to_mermaid(ir, 10, False)
    assert generate_op_distribution_pie(ir, top_n=5).startswith("pie")
    assert repr(ir).startswith("IR(model_name='MyModel', nodes=2, inputs=1, outputs=1, weights=2")


def test_errors_are_exceptions_of_their_names():
    for error in (ConversionError, ExecutionError, ExportError, SerializationError):
        assert issubclass(error, Exception)
        assert str(error("what happened")) == "what happened"
