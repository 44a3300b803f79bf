"""Against the live model: what is equal, what differs and where, and the model left as it was."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch._higher_order_ops.scan import scan

import torch_ir
from small_models import CASES
from torch_ir import debug
from torch_ir.debug import NodeComparison, VerificationReport, verify
from torch_ir.errors import ExecutionError, InputError

pytestmark = pytest.mark.filterwarnings("ignore:the model is in training mode")


def extracted(case, model):
    args, kwargs = case.inputs()
    return torch_ir.extract_ir(model, args, kwargs=kwargs)


@pytest.mark.parametrize("name", [n for n in CASES if n != "in place"])
def test_an_extracted_model_is_equal_node_by_node(name):
    case = CASES[name]
    model = case.model()
    ir = extracted(case, model)
    args, kwargs = case.inputs()
    report = verify(ir, model, args, kwargs=kwargs, every_node=True)
    assert report.is_valid, str(report)
    assert report.first_difference is None
    assert report.max_diff == 0.0
    assert str(report).startswith("equal to eager: ")
    assert report.to_dict()["is_valid"] is True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.fc = nn.Linear(4, 4)

    def forward(self, x, y):
        h = torch.add(self.norm(x), y, alpha=2)
        s = torch.softmax(self.fc(h), dim=0)
        return torch.sub(s, y) * 3


FAULTS = {
    "eps": ("aten.layer_norm.default", lambda n: {"attrs": {**n.attrs, "eps": 0.5}}),
    "alpha": ("aten.add.Tensor", lambda n: {"attrs": {**n.attrs, "alpha": 3}}),
    "dim": ("aten.softmax.int", lambda n: {"attrs": {**n.attrs, "dim": 1}}),
    "swapped operands": ("aten.sub.Tensor", lambda n: {"operands": {"self": 1, "other": 0}}),
    "another operator": ("aten.sub.Tensor", lambda n: {"op_type": "aten.mul.Tensor"}),
    "a number": ("aten.mul.Tensor", lambda n: {"attrs": {"other": 4}}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_planted_fault_is_named_with_its_line(fault):
    op_type, change = FAULTS[fault]
    torch.manual_seed(0)
    model, inputs = Net().eval(), (torch.randn(3, 4), torch.randn(3, 4))
    ir = torch_ir.extract_ir(model, inputs)
    (guilty,) = [node for node in ir.nodes if node.op_type == op_type]
    nodes = [n.replace(**change(n)) if n is guilty else n for n in ir.nodes]
    report = verify(ir.replace(nodes=nodes), model, inputs, every_node=True)
    assert report.is_valid is False
    assert report.first_difference.node == guilty.name
    assert "test_verify.py:" in str(report.first_difference)
    assert str(report).startswith("NOT equal to eager: 1 output, largest difference ")
    assert verify(ir, model, inputs, every_node=True).first_difference is None


def test_the_report_of_a_difference():
    model = nn.Linear(2, 2).eval()
    x = torch.ones(1, 2)
    ir = torch_ir.extract_ir(model, (x,))
    moved = {"weight": model.weight, "bias": model.bias + 1}
    report = verify(ir, model, (x,), weights=moved)
    assert report.error_message == "1 of 1 outputs differ: 2 of 2 values differ by up to 1"
    assert str(report) == (
        "NOT equal to eager: 1 output, largest difference 1\n"
        "  output 0: 2 of 2 values differ by up to 1"
    )
    assert report.output_details[0]["shape"] == (1, 2)
    assert verify(ir, model, (x,), weights=moved, atol=1.5).is_valid


class Branches(nn.Module):
    """Returns another structure, or another value, where it is told so after extraction."""

    def __init__(self):
        super().__init__()
        self.kind = "plain"

    def forward(self, x):
        made = {"plain": (x, 2), "list": [x, 2], "more": (x, 2, x), "number": (x, 3)}
        return made[self.kind]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("list", "the structure is "),
        ("more", "the structure is "),
        ("number", "the value is 2, expected 3"),
    ],
)
def test_a_difference_in_structure_is_a_difference(kind, reason):
    model, x = Branches().eval(), torch.ones(2)
    ir = torch_ir.extract_ir(model, (x,))
    assert verify(ir, model, (x,)).is_valid
    model.kind = kind
    report = verify(ir, model, (x,))
    assert report.is_valid is False
    assert any(detail["reason"].startswith(reason) for detail in report.output_details)


def test_random_numbers_are_the_same_on_both_sides_and_the_generator_goes_on():
    class Noisy(nn.Module):
        def forward(self, x):
            return F.dropout(x, training=True) + torch.randn_like(x)

    model, x = Noisy().eval(), torch.ones(50)
    ir = torch_ir.extract_ir(model, (x,))
    state = torch.get_rng_state()
    assert verify(ir, model, (x,), every_node=True).is_valid
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("call", ["cond", "scan", "map", "while_loop"])
def test_control_flow_of_eager_is_recorded_and_runs_afterwards(call):
    higher = torch._higher_order_ops

    class Flow(nn.Module):
        def forward(self, x):
            if call == "cond":
                return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + 1
            if call == "scan":
                return higher.scan(lambda c, row: (c + row, c * 2), x[0] * 1, x)[1] + 1
            if call == "map":
                return higher.map(lambda row: row.sin(), x) + 1
            first = (torch.tensor(0), x)
            return higher.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), first)[1] + 1

    torch._dynamo.reset()
    model, x = Flow().eval(), torch.randn(3, 2)
    ir, expected = torch_ir.extract_ir(model, (x,)), model(x)
    torch._dynamo.reset()
    report = verify(ir, model, (x,), every_node=True)
    assert report.verdict == "agree", str(report)
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("fastpath", [True, False])
def test_the_model_is_left_as_it_was(fastpath):
    case = CASES["counting"]
    model = case.model()
    ir = extracted(case, model)
    x = case.inputs()[0][0]
    model.eval()
    model.norm.train()  # a part in another mode than the whole
    model.norm.weight.requires_grad_(False)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    parameters = [id(p) for p in model.parameters()]
    given = x.clone()
    setting = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fastpath)
    try:
        report = verify(ir, model, (x,), every_node=True)
        assert torch.backends.mha.get_fastpath_enabled() is fastpath
    finally:
        torch.backends.mha.set_fastpath_enabled(setting)
    assert report.is_valid, str(report)
    assert [module.training for module in model.modules()] == [False, True]
    assert [id(p) for p in model.parameters()] == parameters
    assert not model.norm.weight.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(model.state_dict()[key], before[key]) for key in before)
    assert torch.equal(x, given)


def test_the_fused_path_of_attention_is_not_compared_with():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    ir = torch_ir.extract_ir(layer, (x,))
    report = verify(ir, layer, (x,), every_node=True)
    assert report.is_valid
    assert report.disabled == ("nn.MultiheadAttention's fast path",)
    assert 0 < report.max_diff_as_run < 1e-5
    assert " ".join(str(report).split()).startswith(
        "equal to eager with nn.MultiheadAttention's fast path off: 1 output, largest difference "
        f"0; with it eager differs by {report.max_diff_as_run:.3g}"
    )


@pytest.mark.parametrize("causal", [False, None])
def test_programs_have_the_fused_path_of_attention_where_torch_traces_nothing_else(causal):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model.eval().requires_grad_(False)
    inputs, mask = (torch.randn(2, 3, 8),), {"mask": torch.ones(3, 3).triu(1).bool()}
    options = {**mask, "is_causal": causal}
    ir = torch_ir.extract_ir(model, inputs, kwargs=options)
    is_fused = "aten._transformer_encoder_layer_fwd.default" in {node.op_type for node in ir.nodes}
    assert is_fused == (causal is None)  # whether the mask is causal depends on its values
    report = verify(ir, model, inputs, kwargs=options, every_node=True)
    assert report.verdict == "agree"
    assert bool(report.disabled) != is_fused


def test_nodes_whose_values_eager_does_without_are_not_compared():
    nodes = NodeComparison(5, ("b", "c"), None)
    report = VerificationReport(True, num_outputs=1, nodes=nodes)
    assert report.verdict == "not compared"
    assert str(report).endswith(
        "\n  3 of 5 nodes compared; eager does without the values of 2 (the first is 'b')"
    )
    assert VerificationReport(True).verdict == "agree"
    assert VerificationReport(False, nodes=nodes).verdict == "disagree"


def test_a_model_that_fails_is_told_apart_from_a_program_that_fails():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.refuse = False

        def forward(self, x):
            if self.refuse:
                raise KeyError("not today")
            return x + 1

    model, x = Picky().eval(), torch.ones(2)
    ir = torch_ir.extract_ir(model, (x,))
    with pytest.raises(InputError):
        verify(ir, model, (torch.ones(3),))
    model.refuse = True
    with pytest.raises(ExecutionError) as caught:
        verify(ir, model, (x,))
    assert str(caught.value) == ("the model itself fails on these inputs: KeyError: 'not today'")
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_old_name_of_a_comparison_still_works_and_warns():
    with pytest.warns(DeprecationWarning, match="NodeReport is called NodeComparison now"):
        assert debug.NodeReport is debug.NodeComparison


def test_a_lone_tensor_is_no_list_of_inputs():
    model, x = torch.nn.ReLU(), torch.ones(1, 3)
    ir = torch_ir.extract_ir(model, (x,))
    for call in (
        lambda: verify(ir, model, x),
        lambda: torch_ir.validate(ir, {}, x),
        lambda: torch_ir.bisect(ir, [], {}, x),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == (
            "inputs are a tuple of tensors, got Tensor\nWrite (x,) for one input."
        )


def test_a_model_that_fails_where_it_is_recorded_is_not_blamed():
    class Sums(torch.nn.Module):
        def forward(self, x):
            def add(carry, row):
                return {"sum": carry["sum"] + row}, row * carry["sum"]

            carry, rows = scan(add, {"sum": torch.zeros(3)}, x)
            return carry["sum"], rows

    model, x = Sums(), torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    ir = torch_ir.extract_ir(model, (x,))
    assert verify(ir, model, (x,)).is_valid
    with pytest.raises(
        ExecutionError, match="the model fails where its operators are recorded: "
    ) as caught:
        verify(ir, model, (x,), every_node=True)
    assert caught.value.remedy == "validate(ir, weights, inputs) compares each node, too."


class WritesWeights(nn.Module):
    """Writes a parameter that it holds twice, as weights that are normalized in each call."""

    def __init__(self):
        super().__init__()
        self.rows = nn.ParameterList([nn.Parameter(torch.ones(3))])
        self.scale, self.shift = self.rows[0], nn.Parameter(torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(2)
        return self.rows[0] * x + self.shift


class Remembers(nn.Module):
    """Writes tensors in containers, counts its calls, and returns what it holds."""

    def __init__(self):
        super().__init__()
        self.rows, self.sums = [torch.zeros(3), torch.ones(3)], {"a": (torch.zeros(3),)}
        self.calls, self.seen, self.last = 0, [], torch.zeros(3)

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        self.rows[0].add_(x)
        self.sums["a"][0].mul_(2).add_(self.rows[1])
        self.last.copy_(x)
        return self.rows[0], self.sums["a"][0] + self.last, self.last

    def state(self):
        tensors = [*self.rows, *self.sums["a"], self.last]
        return self.calls, [*self.seen], [(id(x), x.tolist()) for x in tensors]


def test_what_a_model_remembers_stays_as_it_was():
    model, x = Remembers(), torch.randn(3)
    before = model.state()
    ir = torch_ir.extract_ir(model, (x,))
    for every_node in (False, True):
        assert verify(ir, model, (x,), every_node=every_node).is_valid
        assert model.state() == before


def test_weights_that_a_model_writes_stay_as_they_were():
    model, x = WritesWeights(), torch.randn(3)
    ir = torch_ir.extract_ir(model, (x,))
    for _ in range(2):
        assert verify(ir, model, (x,), every_node=True).is_valid
        assert model.scale.tolist() == [1.0, 1.0, 1.0]
