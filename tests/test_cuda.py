"""The essentials of the suite on a GPU: `make test-cuda`."""

import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import torch_ir
from torch_ir.passes import decompose, fold_constants, functionalize, outline

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use"),
]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps.add_(1)
        places = torch.arange(8, device=x.device) * x
        return x + self.down(self.up(self.norm(places)).relu()) + self.steps


def a_model():
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(4)]).eval()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    return model, weights, torch.randn(2, 8)


def without_locations(ir):
    """The text of a program, without this file's name."""
    return "\n".join(line.split("  # ")[0] for line in str(ir).splitlines())


@pytest.fixture(params=["cpu", "cuda"])
def extracted(request):
    """A program of either device, its weights on the CPU, an input, and what eager CUDA gives."""
    model, weights, x = a_model()
    model.to(request.param)
    ir = torch_ir.extract_ir(model, (x.to(request.param),), regions="auto")
    model.load_state_dict(weights)
    model.cuda()
    return ir, weights, x, [model(x.cuda()) for _ in range(2)]


def test_a_program_has_the_bits_of_eager_wherever_it_was_extracted(extracted):
    ir, weights, x, expected = extracted
    assert "cuda" not in without_locations(ir)
    run = torch_ir.compile(ir, weights, placement="cuda")
    assert all(torch.equal(run(x), value) for value in expected)
    executor = torch_ir.IRExecutor(ir, weights)  # weights follow the inputs
    assert all(torch.equal(executor(x.cuda()), value) for value in expected)


def test_a_program_on_two_devices_agrees_with_one(extracted):
    ir, weights, x, expected = extracted
    run = torch_ir.compile(ir, weights, placement={"": "cuda", "1": "cpu", "2.up": "cpu"})
    for value in expected:
        torch.testing.assert_close(run(x), value)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs")
def test_a_model_over_two_gpus_is_extracted_and_runs():
    model, weights, x = a_model()
    model[:2].to("cuda:0")
    model[2:].to("cuda:1")

    class Over(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model

        def forward(self, x):
            return self.layers[2:](self.layers[:2](x).to("cuda:1"))

    whole = Over()
    ir = torch_ir.extract_ir(whole, (x.to("cuda:0"),))
    assert "cuda" not in without_locations(ir)
    kept = {f"layers.{key}": value for key, value in weights.items()}
    device_map = {f"layers.{i}": i // 2 for i in range(4)}
    whole.load_state_dict(kept)
    run = torch_ir.compile(ir, kept, placement=device_map)
    assert torch.equal(run(x), whole(x.to("cuda:0")))


def test_lowered_programs_agree_on_a_gpu(extracted):
    ir, weights, x, expected = extracted
    for lowered in (functionalize(ir), decompose(ir), outline(functionalize(ir))):
        run = torch_ir.compile(lowered, weights, placement="cuda")
        for value in expected:
            torch.testing.assert_close(run(x), value, rtol=1e-4, atol=1e-5)


def test_results_that_take_the_place_of_dead_values_keep_their_bits():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Sigmoid(), nn.Tanh(), nn.Hardswish())
    x = torch.randn(4, 8)
    run = torch_ir.compile(torch_ir.extract_ir(model, (x,)), model.state_dict(), placement="cuda")
    assert run.graph.run_stats.in_place
    assert torch.equal(run(x), model.cuda()(x.cuda()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "name", ["add", "sub", "rsub", "mul", "div", "fmod", "remainder", "floor_divide", "pow"]
)
def test_numbers_have_the_bits_of_eager(name, dtype):
    class Numbers(nn.Module):
        def forward(self, x):
            return [getattr(torch, name)(x, number) for number in (0.1, 1 / 3, 2.302585092994046)]

    x = torch.randn(999, device="cuda").to(dtype)
    run = torch_ir.compile(torch_ir.extract_ir(Numbers(), (x,)), placement="cuda")
    for made, expected in zip(run(x), Numbers()(x), strict=True):
        torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)


def test_constants_are_folded_with_the_bits_of_a_gpu():
    class Table(nn.Module):
        def forward(self, x):
            return x * torch.arange(64, device=x.device).float().exp().reciprocal().sin()

    x = torch.randn(64, device="cuda")
    ir = fold_constants(torch_ir.extract_ir(Table(), (x,)), device="cuda")
    assert len(ir.nodes) == 1
    assert torch.equal(torch_ir.compile(ir, placement="cuda")(x), Table()(x))


def test_gradients_are_those_of_eager():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)).cuda(), torch.randn(3, 8)
    ir = torch_ir.extract_ir(model, (x.cuda(),))
    run = torch_ir.compile(ir, dict(model.named_parameters()), grad=True)
    given = [x.cuda().requires_grad_() for _ in range(2)]
    for call, value in zip((run, model), given, strict=True):
        call(value).sum().backward()
    assert torch.equal(given[0].grad, given[1].grad)


def test_autocast_around_a_run_changes_nothing(extracted):
    ir, weights, x, expected = extracted
    run = torch_ir.compile(ir, weights, placement="cuda")
    with torch.autocast("cuda", torch.float16):
        assert torch.equal(run(x), expected[0])


def test_weights_stream_to_a_gpu():
    model, x = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]), torch.randn(2, 64)
    path = Path(tempfile.mkdtemp()) / "model.safetensors"
    save_file(model.state_dict(), path)
    run = torch_ir.compile(torch_ir.extract_ir(model, (x,)), path, memory="64KB", placement="cuda")
    assert torch.equal(run(x), model.cuda()(x.cuda()))


def test_shortened_products_are_judged_at_full_precision():
    model, x = nn.Conv2d(3, 4, 3).cuda(), torch.randn(2, 3, 8, 8, device="cuda")
    assert torch.backends.cudnn.conv.fp32_precision != "ieee"
    report = torch_ir.validate(torch_ir.extract_ir(model, (x,)), model.state_dict(), (x,))
    assert report.verdict == "agree"
    assert torch.backends.cudnn.conv.fp32_precision != "ieee"


def test_a_program_without_weights_is_judged_where_its_inputs_lie():
    x = torch.randn(4, device="cuda")
    ir = torch_ir.extract_ir(nn.GELU(), (x,))
    assert torch_ir.validate(ir, {}, (x,)).verdict == "agree"


def test_a_tensor_that_a_model_holds_on_the_cpu_lies_where_the_program_runs():
    class Scaled(nn.Module):
        def forward(self, x):
            return x / torch.sqrt(torch.tensor(8.0).to(torch.float64))

    x = torch.randn(4, device="cuda")
    run = torch_ir.compile(torch_ir.extract_ir(Scaled(), (x,)), placement="cuda")
    torch.testing.assert_close(run(x), Scaled()(x))


def test_a_program_agrees_with_its_denotation_on_a_gpu(extracted):
    ir, weights, x, _ = extracted
    on_gpu = {key: value.cuda() for key, value in weights.items()}
    assert torch_ir.validate(ir, on_gpu, (x.cuda(),)).verdict == "agree"
