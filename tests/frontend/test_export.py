"""What may be extracted, what is refused and how, and that the live model stays as it was."""

from __future__ import annotations

import logging
import re

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import OpNode
from torch_ir.errors import ConversionError, ExportError
from torch_ir.executor import IRExecutor
from torch_ir.frontend import NodeInfo, plain_conversion, register_op, unregister_op

X = torch.ones(1, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x):
        return self.drop(self.fc(x)) + self.offset


class Refusing(Net):
    def forward(self, x):
        raise KeyError("no such thing")


def on_meta(make):
    with torch.device("meta"):
        return make().eval()


# -- where a program comes from ---------------------------------------------------------------


def test_a_module_an_exported_program_and_a_file_give_the_same_program(tmp_path):
    model = Net().eval()
    exported = torch.export.export(model, (X,))
    torch.export.save(exported, tmp_path / "Net.pt2")
    from_module = torch_ir.extract_ir(model, (X,))
    assert from_module.model_name == "Net"
    assert torch_ir.extract_ir(exported, model_name="Net") == from_module
    assert torch_ir.convert_exported_program(exported, "Net") == from_module
    from_file = torch_ir.extract_ir(tmp_path / "Net.pt2", trust=True)
    assert from_file.diff(from_module).__bool__() is False
    run = IRExecutor(from_file, model.state_dict())
    assert torch.equal(run(X), model(X))
    assert torch_ir.load_exported_program(tmp_path / "Net.pt2", trust=True) is not None


def test_a_file_is_opened_only_with_trust(tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(b"not a zip")
    for load in (torch_ir.extract_ir, torch_ir.load_exported_program):
        with pytest.raises(ExportError) as caught:
            load(path)
        assert str(caught.value) == (
            f"{path} was not opened: torch.export.load may unpickle its contents, "
            "which can run any code\n"
            "If you trust the file, pass trust=True (--trust on the command line)."
        )
        with pytest.raises(
            ExportError, match="^" + re.escape(f"{path} is not an exported program")
        ):
            load(path, trust=True)


def test_a_path_without_a_file_is_named(tmp_path):
    for path, reason in (
        (tmp_path / "none.pt2", f"there is no file {tmp_path / 'none.pt2'}"),
        (tmp_path, f"{tmp_path} is not a file"),
    ):
        with pytest.raises(ExportError) as caught:
            torch_ir.extract_ir(path, trust=True)
        assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (3, (X,), "a model is an nn.Module, got int"),
        (
            Net(),
            X,
            "example inputs are a tuple of arguments, got Tensor\nWrite (x,) for one argument.",
        ),
    ],
)
def test_what_is_no_model_and_no_inputs(model, inputs, message):
    with pytest.raises(ExportError) as caught:
        torch_ir.extract_ir(model, inputs)
    assert str(caught.value) == message


# -- strict -----------------------------------------------------------------------------------


def test_strict_insists_on_the_meta_device():
    with pytest.raises(ExportError) as caught:
        torch_ir.extract_ir(Net().eval(), (X,), strict=True)
    assert str(caught.value) == (
        "strict extraction needs everything on the meta device: fc.weight is on cpu, "
        "fc.bias is on cpu, offset is on cpu, and 1 more\n"
        'Build the model under torch.device("meta"), or pass strict=False.'
    )
    with pytest.raises(ExportError) as caught:
        torch_ir.export_model(on_meta(Net), (X,))  # strict unless told otherwise
    assert str(caught.value) == (
        "strict extraction needs everything on the meta device: input 0 is on cpu\n"
        'Build the model under torch.device("meta"), or pass strict=False.'
    )
    assert len(torch_ir.extract_ir(on_meta(Net), (X.to("meta"),), strict=True).nodes) > 0


# -- the live model ---------------------------------------------------------------------------


def fingerprint(model):
    """Everything of a model that extraction might touch."""
    return {
        "tensors": {n: id(t) for n, t in (*model.named_parameters(), *model.named_buffers())},
        "devices": {n: t.device for n, t in (*model.named_parameters(), *model.named_buffers())},
        "grad": {n: p.requires_grad for n, p in model.named_parameters()},
        "mode": [module.training for module in model.modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
    }


@pytest.mark.parametrize("make", [Net, Refusing])
@pytest.mark.parametrize("meta", [False, True], ids=["real", "meta"])
def test_the_model_is_left_as_it_was_also_when_extraction_fails(make, meta):
    model = on_meta(make) if meta else make().eval()
    model.drop.train()
    model.fc.weight.requires_grad_(False)
    before = fingerprint(model)
    values = None if meta else {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    x = X.to("meta") if meta else X
    if make is Refusing:
        with pytest.raises(ExportError) as caught:
            torch_ir.extract_ir(model, (x,))
        assert str(caught.value) == "torch.export refused Refusing: 'no such thing'"
        assert isinstance(caught.value.__cause__, KeyError)
    else:
        torch_ir.extract_ir(model, (x,))
    assert fingerprint(model) == before
    assert torch.equal(torch.get_rng_state(), state)
    if values is not None:
        assert all(torch.equal(model.state_dict()[k], v) for k, v in values.items())


def test_a_model_in_training_mode_is_extracted_with_a_warning():
    with pytest.warns(UserWarning, match="the model is in training mode") as caught:
        ir = torch_ir.extract_ir(Net().train(), (X,))
    assert [str(w.message) for w in caught.list if w.filename == __file__] == [
        "the model is in training mode: 1 node (the first is 'dropout', "
        "aten.dropout.default). Call model.eval() first for inference."
    ]
    assert ir.metadata == {"training": True}
    assert torch_ir.extract_ir(Net().eval(), (X,)).metadata == {}


# -- what cannot be translated ----------------------------------------------------------------


def test_everything_that_cannot_be_translated_is_listed_at_once():
    class Held(nn.Module):
        def forward(self, x):
            return x + 1

    exported = torch.export.export(Held(), (X,))
    graph = exported.graph_module.graph
    (add,) = graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    with graph.inserting_before(add):
        for function in (print, len):
            made = graph.call_function(function, (add.args[0],))
            made.meta["val"] = add.meta["val"]
    with pytest.raises(ConversionError) as caught:
        torch_ir.convert_exported_program(exported)
    assert str(caught.value) == (
        "the program holds 2 things that cannot be translated\n"
        "    - node 'print_1': a call of <built-in function print> has no counterpart\n"
        "    - node 'len_1': a call of <built-in function len> has no counterpart"
    )


# -- conversions of one's own -----------------------------------------------------------------


def test_a_registered_conversion_makes_the_nodes_of_one_overload():
    seen: list[NodeInfo] = []

    @register_op("aten.linear.default")
    def fused(info: NodeInfo) -> OpNode:
        seen.append(info)
        return plain_conversion(info).replace(op_type="mylib.linear.default")

    try:
        ir = torch_ir.extract_ir(Net().eval(), (X,))
        assert ir.nodes[0].op_type == "mylib.linear.default"
        (info,) = seen
        assert (info.name, info.op_type) == ("linear", "aten.linear.default")
        assert info.target is torch.ops.aten.linear.default
        assert [meta.name for meta in info.input_metas] == ["x", "p_fc_weight", "p_fc_bias"]
        assert info.operands == {"input": 0, "weight": 1, "bias": 2}
        assert info.output_metas[0].shape == (1, 2)
        with pytest.raises(ConversionError) as caught:
            register_op("aten.linear.default")(fused)
        assert str(caught.value) == (
            f"aten.linear.default already has the conversion {fused.__qualname__}\n"
            "Remove it with unregister_op('aten.linear.default') first."
        )
    finally:
        unregister_op("aten.linear.default")
    unregister_op("aten.linear.default")  # nothing happens
    assert torch_ir.extract_ir(Net().eval(), (X,)).nodes[0].op_type == "aten.linear.default"


class LogsAndFails(nn.Module):
    def forward(self, x):
        logging.getLogger("models.own").error("a sum of %s", "rows")
        return x @ torch.ones(5, 5)


class Listing(logging.Handler):
    def __init__(self):
        super().__init__()
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


def test_torch_logs_no_error_that_is_raised_and_models_log_theirs():
    handler = Listing()
    logged = handler.said
    loggers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "models.own")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with pytest.raises(ExportError, match="same reduction dim"):
            torch_ir.extract_ir(LogsAndFails(), (torch.ones(6, 2),))
        assert set(logged) == {"a sum of rows"}
        loggers[0].error("an error after it")
        assert logged[-1] == "an error after it"
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
