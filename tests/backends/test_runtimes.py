"""The runtimes as backends: right, verified, and most of a net on them; skipped where missing."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import torch_ir
from torch_ir import extract_ir, parse
from torch_ir.backends.backend_registry import find_backend
from torch_ir.errors import OptionalDependencyError

pytestmark = pytest.mark.filterwarnings("ignore")
RUNTIMES = ("onnxruntime", "openvino", "executorch")


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.register_buffer("seen", torch.full((3,), 0.5))

    def forward(self, x):
        y = self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))
        self.seen.mul_(0.5).add_(y.sum(0))
        return {"y": y.softmax(-1), "seen": self.seen + 0, "best": y.argmax(-1)}


def test_a_net_with_state_and_a_varying_batch(runtime, tmp_path):
    torch.manual_seed(0)
    model = Counting().eval()
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    shapes = ({0: Dim("b", min=2, max=16)},)
    ir = extract_ir(model, (torch.randn(3, 2, 6, 6),), dynamic_shapes=shapes)
    for _ in range(2):  # built, then read from the cache
        run = torch_ir.compile(ir, weights, backend=runtime, cache=tmp_path)
        eager = Counting().eval()
        eager.load_state_dict(weights)
        pairs = [(run(x), eager(x)) for x in (torch.randn(n, 2, 6, 6) for n in (3, 5, 3))]
        for got, expected in pairs:
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        used = [verdict for verdict in run.verdicts if verdict.used]
        assert all(verdict.part <= 1 for verdict in used)
        taken = sum(len(verdict.nodes) for verdict in used)
        assert taken >= 0.7 * len(run.assignment.nodes)
    (file, *_) = sorted(tmp_path.iterdir())
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    again = torch_ir.compile(ir, weights, backend=runtime, cache=tmp_path)
    x = torch.randn(4, 2, 6, 6)
    eager = Counting().eval()
    eager.load_state_dict(weights)
    torch.testing.assert_close(again(x), eager(x), rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_mode_is_right(runtime):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    run = torch_ir.compile(extract_ir(model, (torch.randn(5, 3),)), weights, backend=runtime)
    for _ in range(2):
        x = torch.randn(5, 3)
        torch.testing.assert_close(run(x), model(x).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(run.buffers["1.running_mean"], model[1].running_mean)


def test_lower_precision_needs_a_tolerance():
    pytest.importorskip("openvino", reason="openvino is not installed")
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    ir, hint = extract_ir(model, (torch.randn(4, 16),)), {"INFERENCE_PRECISION_HINT": "bf16"}
    exact = torch_ir.compile(ir, model.state_dict(), backend="openvino", options=hint)
    lower = torch_ir.compile(
        ir, model.state_dict(), backend="openvino", options=hint, tolerance=0.05
    )
    x = torch.randn(4, 16)
    torch.testing.assert_close(exact(x), model(x), rtol=1e-4, atol=1e-5)
    assert all(verdict.used for verdict in lower.verdicts)


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    import sys

    from torch_ir.backends.backend_registry import find_backend

    def compiled():
        fresh = type(find_backend(name))()
        for module in (name, "executorch.exir", "executorch.extension.pybindings.portable_lib"):
            monkeypatch.setitem(sys.modules, module, None)
        torch_ir.compile(extract_ir(nn.ReLU(), (torch.ones(2),)), {}, backend=fresh)

    with pytest.raises(OptionalDependencyError) as error:
        compiled()
    assert str(error.value).endswith(f'Install it with: pip install "torch-ir[{name}]"')


def test_a_fault_behind_an_opaque_delegate_is_named_with_its_line(runtime, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    from runtime_faults import is_found, planted

    alone = next(fault for fault in planted(runtime) if not fault.producer)
    together = next(fault for fault in planted(runtime) if fault.producer)
    assert is_found(runtime, alone)
    assert is_found(runtime, together)


class Awkward(nn.Module):
    """What runtimes get wrong although ones and zeros do not show it."""

    def forward(self, q, mask, wide, narrow):
        seen = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        return seen, wide // 3, wide * wide, narrow + 200, narrow * narrow


def test_numbers_and_masks_far_from_the_usual_ones(runtime):
    def arguments(mask):
        wide, narrow = torch.tensor([-7, 3, 1 << 31]), torch.tensor([7, 100], dtype=torch.uint8)
        return torch.randn(1, 1, 3, 2), mask, wide, narrow

    everything = torch.ones(3, 3, dtype=torch.bool)
    run = torch_ir.compile(extract_ir(Awkward(), arguments(everything)), {}, backend=runtime)
    for mask in (everything, everything.tril(-1)):  # a row of which is all False
        given = arguments(mask)
        for got, expected in zip(run(*given), Awkward()(*given), strict=True):
            torch.testing.assert_close(got, expected)


class Growing(nn.Module):
    """What is right for the numbers that a proof draws, and wrong for larger ones."""

    def forward(self, x, wide):
        for _ in range(12):
            wide = wide + wide
        return x.long(), x.remainder(3), wide


def test_numbers_that_grow_in_a_call(runtime):
    small = torch.tensor([1.5, -2.5]), torch.tensor([3, -4])
    large = torch.tensor([5e9, -1e10]), torch.tensor([1 << 22, -(1 << 63)])
    run = torch_ir.compile(extract_ir(Growing(), small), {}, backend=runtime)
    for given in (small, large):
        for got, expected in zip(run(*given), Growing()(*given), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_32_bit_integers_are_given_to_a_runtime(runtime):
    class Narrow(nn.Module):
        def forward(self, x, y):
            return x * 2.5, y + 1

    given = torch.randn(3), torch.tensor([1, 2**31 - 1, -5], dtype=torch.int32)
    run = torch_ir.compile(extract_ir(Narrow(), given), {}, backend=runtime)
    assert run.assignment.left == ()
    assert torch.equal(run(*given)[1], given[1] + 1)


class Attending(nn.Module):
    def forward(self, q, mask):
        seen = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        return seen * mask.to(torch.float32).sum(-1, keepdim=True)  # which asserts what mask is


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_attention_under_masks_is_not_cut_out(name):
    pytest.importorskip(name, reason=f"{name} is not installed")
    given = torch.randn(2, 2, 3, 4), torch.ones(2, 1, 3, 3, dtype=torch.bool)
    run = torch_ir.compile(extract_ir(Attending(), given), {}, backend=name)
    assert run.assignment.left == ()
    given[1][0, 0, 1] = False
    torch.testing.assert_close(run(*given), Attending()(*given))


class Integers(nn.Module):
    def forward(self, x, y):
        compared = (x == y, x > y, x <= y, x != 2**24 + 1)
        return *compared, x.amax(1), x.clamp(-3, 2**24 + 1), x.tril(), x.sum(1), (x - y).abs()


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_that_no_float_of_32_bits_is_are_as_in_torch(name, dtype):
    pytest.importorskip(name, reason=f"{name} is not installed")
    large = 2**24 + torch.tensor([[1, 3, -5], [0, 2, -4]], dtype=dtype)
    model, given = Integers(), (large, large.flip(0) * torch.tensor([1, 1, -1], dtype=dtype))
    small = tuple(x % 7 for x in given)
    run = torch_ir.compile(extract_ir(model, given), {}, backend=name)
    for operands in (small, given, small):
        assert all(map(torch.equal, run(*operands), model(*operands)))


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (4, 2, 3, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(4) / 100)
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))

    def forward(self, x):
        ops, rule = torch.ops.quantized_decomposed, (0.05, 3, -128, 127, torch.int8)
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *rule), *rule)
        held = (self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return nn.functional.conv2d(x, ops.dequantize_per_channel(*held)).relu()


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_quantized_convolution_runs_whole(name):
    for package in (name, "onnxscript"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    torch.manual_seed(0)
    plain, two = nn.Linear(3, 3), torch.randn(2, 3)
    torch_ir.compile(extract_ir(plain, (two,)), plain.state_dict(), backend=name)
    import_module("torch.ao.quantization.fx._decomposed")  # registers operators, late

    model, x = Quantized(), torch.randn(1, 2, 8, 8)
    ir = extract_ir(model, (x,))
    run = torch_ir.compile(ir, model.state_dict(), backend=name, tolerance=0.05)
    assert run.assignment.left == ()
    torch.testing.assert_close(run(x), model(x), rtol=0.05, atol=0.05)


class DynamicallyQuantized(Quantized):
    """A linear layer on codes whose scale each call has of its own, as PT2E writes it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.randint(-127, 128, (4, 16), dtype=torch.int8)
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        ops, rule = torch.ops.quantized_decomposed, (-128, 127, torch.int8)
        scale, zero = ops.choose_qparams.tensor(x, -128, 127, 1e-7, torch.int8)
        codes = ops.quantize_per_tensor.tensor(x, scale, zero, *rule)
        x = ops.dequantize_per_tensor.tensor(codes, scale, zero, *rule)
        held = (self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return self.last(nn.functional.linear(x, ops.dequantize_per_channel(*held)).relu())


@pytest.mark.parametrize("name", ["onnxruntime", "executorch"])
@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 16)])
def test_products_of_codes_of_each_call_run_whole(name, shape):
    for package in (name, *(["onnxscript"] if name == "onnxruntime" else [])):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import_module("torch.ao.quantization.fx._decomposed")  # registers operators, late
    torch.manual_seed(0)
    model, given = DynamicallyQuantized().eval(), torch.randn(shape)
    run = torch_ir.compile(
        extract_ir(model, (given,)), model.state_dict(), backend=name, tolerance=0.05
    )
    assert run.assignment.left == ()
    for x in (given, 100 * given.abs(), torch.zeros(shape)):
        torch.testing.assert_close(run(x), model(x), rtol=0.05, atol=0.05 * float(x.abs().max()))


def test_products_of_codes_are_products_of_integers_in_onnx():
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from torch_ir.backends.runtimes.onnx_model import onnx_bytes

    import_module("torch.ao.quantization.fx._decomposed")  # registers operators, late
    exported = torch.export.export(DynamicallyQuantized().eval(), (torch.randn(2, 3, 16),))
    model = onnx.load_from_string(onnx_bytes(exported))
    made = [node.op_type for node in model.graph.node]
    assert made.count("MatMulInteger") == 1
    assert made.count("MatMul") == 1  # the layer of numbers


def test_attention_of_shared_heads_is_one_node_of_openvino():
    pytest.importorskip("openvino", reason="openvino is not installed")
    attend = nn.functional.scaled_dot_product_attention

    class Shared(nn.Module):
        def forward(self, query, key, mask):
            seen = attend(query, key, key, attn_mask=mask, enable_gqa=True)
            return attend(seen, key, key, is_causal=True, enable_gqa=True)

    torch.manual_seed(0)
    given = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.ones(5, 5).tril().bool()
    run = torch_ir.compile(extract_ir(Shared(), given), backend="openvino")
    assert [len(verdict.nodes) for verdict in run.verdicts if verdict.used] == [2]
    hidden = *given[:2], torch.zeros(5, 5, dtype=torch.bool)
    for args in (given, hidden):
        torch.testing.assert_close(run(*args), Shared()(*args))


def test_openvino_is_told_the_sizes_that_are_known():
    openvino = pytest.importorskip("openvino", reason="openvino is not installed")
    from torch_ir.backends.runtimes.openvino_model import openvino_model

    class Shifted(nn.Module):
        def forward(self, x, y):
            return (x + y).tanh()

    given = torch.ones(3, 4), torch.ones(4)
    sizes = {"x": {0: torch.export.Dim("rows", min=2)}, "y": None}
    exported = torch.export.export(Shifted(), given, dynamic_shapes=sizes)
    model = openvino_model(openvino, exported)
    assert [str(port.partial_shape) for port in model.inputs] == ["[?,4]", "[4]"]
    assert [str(port.partial_shape) for port in model.outputs] == ["[?,4]"]


def test_numbers_that_data_decides_are_given_to_openvino():
    pytest.importorskip("openvino", reason="openvino is not installed")

    class Shifted(nn.Module):
        def forward(self, x, shift, count):
            y = x.tanh() * shift.item() + 1
            return y * count.item()

    given = [(torch.ones(3), torch.tensor(s), torch.tensor(n)) for s, n in SHIFTS]
    run = torch_ir.compile(extract_ir(Shifted(), given[0]), {}, backend="openvino")
    for arguments in given:  # the first calls are judged
        torch.testing.assert_close(run(*arguments), Shifted()(*arguments))
    assert [(len(verdict.nodes), verdict.used) for verdict in run.verdicts] == [(4, True)]


SHIFTS = ((1.7, 3), (2.3, 5), (-0.4, -7), (5.6, 2**20))


def test_xnnpack_is_not_given_the_approximation_of_gelu_that_it_ignores():
    pytest.importorskip("executorch", reason="executorch is not installed")
    module = nn.Sequential(nn.GELU(), nn.GELU("tanh"))
    ir = extract_ir(module, (torch.ones(3),))
    told = [find_backend("executorch").supports(node, ir) for node in ir.nodes]
    assert [bool(support) for support in told] == [True, False]


def test_openvino_names_the_first_of_equal_elements():
    pytest.importorskip("openvino", reason="openvino is not installed")

    class Routed(nn.Module):
        def forward(self, x):
            weights, experts = x.topk(2)
            order = experts.view(-1).sort().indices
            return weights.view(-1)[order], order

    x = torch.tensor([[1.0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]]).repeat(10, 1)
    run = torch_ir.compile(extract_ir(Routed(), (x,)), {}, backend="openvino", verify=False)
    first = x.sort(stable=True, descending=True).indices[:, :2].reshape(-1)
    order = first.sort(stable=True).indices
    assert [verdict.used for verdict in run.verdicts] == [True]
    assert torch.equal(run(x)[1], order)


def test_a_number_beside_its_copy_does_not_kill_openvino():
    pytest.importorskip("openvino", reason="openvino is not installed")

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.seen += 1
            return x * self.seen, self.seen

    run = torch_ir.compile(
        extract_ir(Steps(), (torch.ones(2),)), Steps().state_dict(), backend="openvino"
    )
    got = [run(torch.ones(2)) for _ in range(2)]
    torch.testing.assert_close(got[1][0], torch.full((2,), 2.0))
    assert int(got[1][1]) == 2


class Cache(nn.Module):
    """Rows written to caches: at one place, at places that vary, added, and by two indices."""

    def __init__(self):
        super().__init__()
        for name in ("keys", "values", "sums", "pairs"):
            self.register_buffer(name, torch.zeros(1, 3, 8, 16))

    def forward(self, x, places):
        self.keys.index_copy_(2, places[:2], x)
        self.values[:, :, places[:2]] = x * 2
        torch.ops.aten.index_put_(self.sums, [None, None, places[:2]], x, True)
        self.pairs[:, places[:2], places[2:]] = x[:, 0]
        return self.keys @ self.values.transpose(2, 3), self.sums + self.pairs


def test_caches_are_written_without_being_permuted():
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from torch_ir.backends.runtimes.onnx_model import onnx_bytes

    model, eager = Cache(), Cache()
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    calls = [
        (torch.randn(1, 3, 2, 16), torch.tensor(places)) for places in ([0, 2, 5, 1], [2, 1, 1, 7])
    ]
    ir = extract_ir(model, calls[0])
    run = torch_ir.compile(ir, weights, backend="onnxruntime")
    for call in calls:
        torch.testing.assert_close(run(*call), eager(*call))
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(run.buffers[name], buffer)
    functional = torch_ir.to_exported_program(torch_ir.functionalize(ir), weights)
    written = onnx.load_from_string(onnx_bytes(functional)).graph.node
    permuted = [node.input[0] for node in written if node.op_type == "Transpose"]
    assert len(permuted) <= 3, "an operand of the product, and what is added and its sum"


class Faint(nn.Module):
    """Numbers that are close to none: their absence shows where the others are zero."""

    def forward(self, x):
        unit = x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-9)
        scaled = (x * 1.000005, x - 5e-9, x.clamp(-2, 3.5))
        curved = (nn.functional.elu(x), nn.functional.selu(x), nn.functional.celu(x, 2.5))
        return (unit, torch.log(x.relu() + 1e-9), torch.isclose(x, x + 1e-9), *scaled, *curved)


@pytest.mark.parametrize("runtime", RUNTIMES[:2], indirect=True)
def test_small_numbers_are_not_taken_for_none(runtime):
    x = torch.linspace(-100, 90, 24).reshape(2, 12)
    run = torch_ir.compile(extract_ir(Faint(), (x,)), {}, backend=runtime)
    for args in (x, torch.zeros(2, 12), x * 1e-9):
        torch.testing.assert_close(run(args), Faint()(args), rtol=1e-5, atol=1e-15)
    if runtime == "onnxruntime":
        assert run.assignment.left == ()


@pytest.mark.parametrize("training", [False, True])
def test_executorch_takes_batch_norm_of_inference_whole(training):
    pytest.importorskip("executorch", reason="executorch is not installed")
    net = torch.nn.BatchNorm2d(3).train(training)
    ir = torch_ir.functionalize(torch_ir.extract_ir(net, (torch.rand(2, 3, 4, 4),)))
    norms = [node for node in ir.nodes if "batch_norm" in node.op_type]
    backend = find_backend("executorch")
    assert [backend.supports(node, ir).is_supported for node in norms] == [not training]


def test_dimensions_of_scalars_are_not_for_executorch():  # it would end the process
    pytest.importorskip("executorch", reason="executorch is not installed")
    ir = parse("""ir {
      input %x: f32[]
      %sum: f32[] = aten.sum.dim_IntList(%x, dim=[0])
      %all: f32[] = aten.sum.dim_IntList(%x, dim=[])
      %most: f32[] = aten.logsumexp.default(%x, dim=[0])
      %window: f32[1] = aten.unfold.default(%x, dimension=0, size=1, step=1)
      return %sum, %all, %most, %window
    }""")
    backend = find_backend("executorch")
    told = [bool(backend.supports(node, ir)) for node in ir.nodes]
    assert told == [False, True, False, False]
    x = torch.tensor(2.0)
    run = torch_ir.compile(ir, {}, backend="executorch")
    torch.testing.assert_close(run(x), (x, x, x, x.reshape(1)))


def test_arguments_in_memory_that_a_runtime_knows_have_their_new_values(runtime):
    class Net(torch.nn.Module):
        def forward(self, x, y, n):
            return torch.relu(x) * 2 + y, n + 1

    x, y, n = torch.randn(4, 8), torch.randn(4, 8), torch.arange(4)
    run = torch_ir.compile(torch_ir.extract_ir(Net(), (x, y, n)), {}, backend=runtime)
    kept = x.clone()
    views = torch.randn(6, 8)
    for given in (
        (x, y, n),
        (x.mul_(-3), y, n.add_(7)),  # other values where the last call's lay
        (y, x, n),
        (views[:4], views[2:], n),  # which lie over each other
        (views[1:5], views[:4], n.neg_()),
        (kept.t().contiguous().t(), y, n),
        (kept, y, n),
        (torch._neg_view(kept), y, n),  # the same memory, shown negated
    ):
        for made, expected in zip(run(*given), Net()(*given), strict=True):
            torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6)
