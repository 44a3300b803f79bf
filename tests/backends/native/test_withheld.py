"""What no runtime is given, whatever it says of itself."""

import pytest
import torch

import torch_ir
from torch_ir import parse
from torch_ir.backends import SUPPORTED, NativeBackend
from torch_ir.errors import ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore")


class Again(NativeBackend):
    """A runtime that takes all, and gives what torch does."""

    name = "again"
    version = "1"

    def supports(self, node, ir):
        assert not node.op_type.startswith("higher_order.")
        return SUPPORTED

    def build(self, program, options):
        return program.module()


class Forgiving(Again):
    """One that gives 0 where an integer is divided by 0."""

    def build(self, program, options):
        run = program.module()

        def call(x, y):
            return [result.masked_fill(y == 0, 0) for result in run(x, y.masked_fill(y == 0, 1))]

        return call


@pytest.mark.parametrize("operator", ["floor_divide.default", "remainder.Tensor", "fmod.Tensor"])
def test_integers_divided_by_zero_are_refused_as_torch_does(operator):
    ir = parse(f"""ir {{
      input %x: i64[3]
      input %y: i64[3]
      %a: i64[3] = aten.{operator}(%x, %y)
      return %a
    }}""")
    x, y = torch.tensor([7, -7, 5]), torch.tensor([2, 3, -2])
    run = torch_ir.compile(ir, {}, backend=Forgiving())
    for _ in range(3):
        assert torch.equal(run(x, y)[0], torch_ir.compile(ir, {})(x, y)[0])
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        run(x, y * 0)
    assert run.assignment.reasons["a"] == {
        "again": "runtimes do not raise where an integer is divided by zero"
    }


def test_a_program_that_divides_by_its_arguments_is_tried_without_zeros():
    ir = parse("""ir {
      input %x: i64[3]
      input %y: i64[3]
      input %z: f32[3]
      %a: i64[3] = aten.remainder.Tensor(%x, %y)
      %b: f32[3] = aten.tanh.default(%z)
      return %a, %b
    }""")
    (verdict,) = torch_ir.compile(ir, {}, backend=Again()).verdicts
    assert (verdict.nodes, verdict.used, verdict.reason) == (("b",), True, "")


@pytest.mark.parametrize(
    "call",
    [
        "aten.as_strided.default(%a, size=[3, 4], stride=[4, 1])",
        "aten._reshape_alias.default(%a, size=[3, 4], stride=[4, 1])",
        "aten.resize.default(%a, size=[3, 4])",
    ],
)
def test_memory_that_is_read_by_strides_lies_as_torch_puts_it(call):
    ir = parse(f"""ir {{
      input %x: f32[4, 3]
      %a: f32[4, 3] = aten.relu.default(%x)
      %b: f32[3, 4] = {call}
      %c: f32[3, 4] = aten.tanh.default(%b)
      return %c
    }}""")
    run = torch_ir.compile(ir, {}, backend=Again())
    x = torch.randn(3, 4).t()
    torch.testing.assert_close(run(x), torch_ir.compile(ir, {})(x))
    assert [verdict.nodes for verdict in run.verdicts if verdict.used] == [("c",)]


def test_calls_of_functions_in_a_program_that_is_split_up_are_not_asked_about():
    ir = parse("""ir {
      weight @w: f32[4]
      func &up {
        input %x: f32[4]
        %y: f32[4] = aten.exp.default(%x)
        return %y
      }
      func &down {
        input %x: f32[4]
        %y: f32[4] = aten.neg.default(%x)
        return %y
      }
      input %x: f32[4]
      input %p: b8[]
      %b: f32[4] = aten.selu.default(%x)
      %a: f32[4] = aten.mul.Tensor(%b, @w)
      %c.0: f32[4] = c: higher_order.cond(pred=%p, operands=[%a], false_fn=&down, true_fn=&up)
      return %c.0
    }""")

    class Part(Again):
        def supports(self, node, ir):
            super().supports(node, ir)
            denied = "selu" in node.op_type
            return torch_ir.backends.Support.refused("no") if denied else SUPPORTED

    weights = {"w": torch.randn(4)}
    run = torch_ir.compile(ir, weights, backend=Part())
    for choice in (True, False):
        given = (torch.randn(4), torch.tensor(choice))
        torch.testing.assert_close(run(*given), torch_ir.compile(ir, weights)(*given))


class Planted(Again):
    """One that is wrong about one operator."""

    def __init__(self, target, wrong):
        self._target, self._wrong = target, wrong

    def build(self, program, options):
        for node in program.graph.find_nodes(op="call_function", target=self._target):
            node.target = self._wrong
        return program.module()


def saturated(x, **_):
    info = torch.iinfo(torch.int32)
    return x.double().sum().clamp(info.min, info.max).to(torch.int32)


def narrow_cast(x, **_):
    return x.clamp(-65504, 65504).to(torch.float16)


FAULTS = {
    "sum": (
        "%a: i32[] = aten.sum.default(%x, dtype=torch.int32)",
        ["i32[6]"],
        torch.ops.aten.sum.default,
        saturated,
    ),
    "cast": (
        "%a: f16[6] = aten._to_copy.default(%x, dtype=torch.float16)",
        ["i64[6]"],
        torch.ops.aten._to_copy.default,
        narrow_cast,
    ),
    "erfcx": (
        "%a: f32[2] = aten.special_erfcx.default(%x)",
        ["f32[2]"],
        torch.ops.aten.special_erfcx.default,
        lambda x: (x * x).exp() * x.erfc(),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_at_large_numbers_are_found(name):
    call, types, target, wrong = FAULTS[name]
    inputs = "\n".join(f"input %{n}: {t}" for n, t in zip("xyz", types, strict=False))
    ir = parse(f"ir {{\n{inputs}\n{call}\nreturn %a\n}}")
    run = torch_ir.compile(ir, {}, backend=Planted(target, wrong))
    assert [verdict.used for verdict in run.verdicts] == [False]


def test_empty_results_lie_as_those_of_torch():
    ir = parse("""ir {
      input %x: f32[2, 0]
      %a: f32[2, 0] = aten.tanh.default(%x)
      return %a
    }""")

    class Flat(Again):
        def build(self, program, options):
            return lambda x: [x.new_empty(0).as_strided((2, 0), (0, 0))]

    run = torch_ir.compile(ir, {}, backend=Flat(), verify=[(torch.ones(2, 0),)] * 2)
    for _ in range(3):
        assert run(torch.ones(2, 0))[0].stride() == (1, 1)


def test_dropout_of_turned_values_has_the_mask_of_eager():
    torch.manual_seed(0)

    class Turned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            dropped = torch.dropout(self.first(x).relu().transpose(0, 1), 0.3, train=True)
            return self.second(dropped.exp())

    class Ordering(Again):
        """One that gives results in order, as runtimes do."""

        def build(self, program, options):
            run = program.module()
            return lambda *inputs: [made.contiguous() for made in run(*inputs)]

    model, x = Turned().requires_grad_(False), torch.randn(5, 3, 8)
    run = torch_ir.compile(
        torch_ir.extract_ir(model, (x,)), model.state_dict(), backend=Ordering()
    )
    assert any(verdict.used for verdict in run.verdicts)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = model(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(run(x), expected)
