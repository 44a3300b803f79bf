"""Programs as torch's ExportedProgram: the same bits, state, sizes and names."""

import io

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.utils._pytree import tree_map

import torch_ir
from dynamic_models import DYNAMIC
from small_models import CASES
from torch_ir import IR, IRExecutor, decompose, extract_ir, to_edge, to_exported_program
from torch_ir.errors import InvalidIRError, MissingWeightsError, PassError, WeightLoadError
from torch_ir.executor import register_executor, unregister_executor
from whole_way import same

pytestmark = pytest.mark.filterwarnings("ignore")
LEVELS = ("export", "edge")


def at(level, ir):
    return ir if level == "export" else to_edge(ir, verify=False).ir()


def plain(value):
    """Copies without gradients: torch's kernels may round otherwise where one is wanted."""
    return tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, value)


def state_of(model):
    """A state dict in which parameters are told from buffers."""
    known = dict(model.named_parameters())
    return {
        key: nn.Parameter(value.detach().clone(), requires_grad=False)
        if key in known
        else value.clone()
        for key, value in model.state_dict().items()
    }


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", LEVELS)
def test_models_give_the_same_bits_and_leave_the_same_state(name, level):
    case = CASES[name]
    args, kwargs = case.inputs()
    ir = at(level, extract_ir(case.model(), args, kwargs=kwargs))
    weights = state_of(case.model())
    executor = IRExecutor(ir, plain(weights))
    exported = to_exported_program(ir, weights)
    module = exported.module()
    for _ in range(2):
        given, expected = case.inputs(), case.inputs()
        torch.manual_seed(0)
        with torch.no_grad():  # recurrent kernels are others where gradients are recorded
            got = module(*given[0], **given[1])
        torch.manual_seed(0)
        assert same(plain(got), executor(*expected[0], **expected[1]))
        assert same(given, expected)
    state = {**plain(module.state_dict()), **plain(dict(module.named_buffers()))}
    assert same({key: state[key] for key in executor.buffers}, dict(executor.buffers))
    assert extract_ir(exported).check() == ()


MORE = {
    "from data": (torch.arange(9.0), torch.arange(19.0), torch.tensor(4)),
    "branches": (torch.ones(3), torch.ones(9)),
    "guard": (torch.ones(8, 3), 5),
}


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("level", LEVELS)
def test_sizes_vary_and_data_decides_some(name, level):
    make, args, shapes = DYNAMIC[name]
    ir = at(level, extract_ir(export(make(), args, dynamic_shapes=shapes)))
    exported = to_exported_program(ir)
    for given in (args, MORE[name]):
        assert same(exported.module()(*given), make()(*given))
    assert extract_ir(exported).symbols == ir.symbols
    assert same(exported.run_decompositions().module()(*MORE[name]), make()(*MORE[name]))


@pytest.mark.parametrize("lower", [lambda ir: ir, decompose, lambda ir: to_edge(ir).ir()])
def test_what_branches_give_is_viewed_whatever_strides_they_take(lower):
    class Turned(nn.Module):
        def forward(self, x):
            def sine(y):
                return y.sin().contiguous()

            made = torch.cond(x.sum() > 0, sine, lambda y: (y * 2).contiguous(), (x.t(),))
            return made.cos().view(-1)

    x = torch.arange(6.0).view(2, 3)
    exported = to_exported_program(lower(extract_ir(Turned(), (x,))))
    for given in (x, -x):
        assert same(exported.module()(given), Turned()(given))


def test_a_condition_on_sizes_is_asserted():
    make, args, shapes = DYNAMIC["guard"]
    exported = to_exported_program(extract_ir(export(make(), args, dynamic_shapes=shapes)))
    with pytest.raises(
        RuntimeError, match=r"the program was extracted for \(\(3\*s0\) % 2\) == 0"
    ):
        exported.module()(torch.ones(5, 3), 4)


def test_torch_stores_and_loads_it_and_lowers_it_as_it_lowers_its_own():
    case = CASES["bert"]
    _, kwargs = case.inputs()
    model = case.model()
    original = export(model, (), kwargs, strict=False)
    exported = to_exported_program(extract_ir(original), state_of(model))
    memory = io.BytesIO()
    torch.export.save(exported, memory)
    memory.seek(0)
    with torch.no_grad():
        expected = original.run_decompositions().module().requires_grad_(False)(**kwargs)
        for program in (exported, torch.export.load(memory)):
            assert same(plain(program.run_decompositions().module()(**kwargs)), plain(expected))


def test_parameters_buffers_and_constants_are_what_they_were():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 2, bias=False)
            self.again = nn.Linear(2, 2, bias=False)
            self.again.weight = self.first.weight
            self.register_buffer("total", torch.ones(2))
            self.register_buffer("scratch", torch.zeros(2), persistent=False)
            self.table = torch.tensor([1.0, 2.0])

        def forward(self, x, name):
            self.total.add_(x.sum(0))
            self.scratch.add_(self.total)
            return self.again(self.first(x)) * self.table + self.scratch, name

    torch.manual_seed(0)
    model = Model()
    original = export(model, (torch.ones(3, 2), "plain"))
    state = {**original.state_dict, "total": original.state_dict["total"].clone()}
    exported = to_exported_program(extract_ir(original), state)
    signature = exported.graph_signature
    assert signature.parameters == original.graph_signature.parameters
    assert signature.user_inputs == original.graph_signature.user_inputs
    assert sorted(signature.buffers) == ["scratch", "total"]
    assert signature.non_persistent_buffers == ("scratch",)
    assert signature.lifted_tensor_constants == ("table",)
    assert sorted(signature.buffers_to_mutate.values()) == ["scratch", "total"]
    assert exported.state_dict.keys() == original.state_dict.keys()
    assert exported.state_dict["first.weight"] is original.state_dict["first.weight"]
    module = exported.module()
    assert module.state_dict().keys() == original.module().state_dict().keys()
    for _ in range(3):
        assert same(
            plain(module(torch.ones(3, 2), "plain")), plain(model(torch.ones(3, 2), "plain"))
        )


SWAPS = """
ir {
  dialect "aten"
  weight @a: f32[2]
  weight @b: f32[2]
  weight @c: f32[2]
  mutate @a = @b
  mutate @b = @a
  mutate @c = %view
  mutate %x = %sum
  input %x: f32[2]
  %view: f32[2] = aten.alias.default(@a)
  %sum: f32[2] = aten.add.Tensor(%x, @c)
  return @a, %sum, %sum
}
"""


def test_what_is_written_may_be_old_values_of_what_is_written_too():
    ir = torch_ir.parse(SWAPS)
    weights = {key: torch.full((2,), float(i)) for i, key in enumerate("abc")}
    executor = IRExecutor(ir, plain(weights))
    module = to_exported_program(ir, weights).module()
    for _ in range(3):
        mine, theirs = torch.ones(2), torch.ones(2)
        assert same(plain(module(mine)), plain(executor(theirs)))
        assert same(mine, theirs)
        assert same(plain(dict(module.named_buffers())), plain(dict(executor.buffers)))


def test_nodes_keep_their_names_and_places():
    ir = extract_ir(nn.Sequential(nn.Linear(2, 3), nn.SiLU()), (torch.ones(1, 2),))
    weights = {"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)}
    exported = to_exported_program(ir, weights)
    calls = [node for node in exported.graph.nodes if node.op == "call_function"]
    assert [(node.name, str(node.target)) for node in calls] == [
        (node.name, node.op_type) for node in ir.nodes
    ]
    assert [n.location for n in extract_ir(exported).nodes] == [n.location for n in ir.nodes]


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 1, 0, 2), (0, 1, 2, 3)])
def test_an_order_of_dimensions_is_one_of_memory(order):
    text = f"""
    ir {{
      dialect "edge"
      operator "dim_order_ops::_clone_dim_order(Tensor self, *, bool non_blocking=False, \
int[]? dim_order=None) -> Tensor"
      operator "dim_order_ops::_empty_dim_order(SymInt[] size, *, ScalarType? dtype=None, \
Layout? layout=None, Device? device=None, bool? pin_memory=None, int[]? dim_order=None) -> Tensor"
      input %x: f32[2, 3, 4, 5]
      %y: f32[2, 3, 4, 5] = dim_order_ops._clone_dim_order.default(self=%x, \
dim_order={list(order)})
      %z: f32[2, 3, 4, 5] = dim_order_ops._empty_dim_order.default(size=[2, 3, 4, 5], \
dim_order={list(order)})
      return %y, %z
    }}
    """
    exported = to_exported_program(torch_ir.parse(text))
    assert {str(n.target) for n in exported.graph.nodes if "dim_order" in str(n.target)} == set()
    x = torch.randn(2, 3, 4, 5)
    y, z = exported.module()(x)
    assert torch.equal(x, y)
    for result in (y, z):
        assert result.permute(order).is_contiguous()


def test_a_program_in_edge_has_the_tensors_of_the_one_that_it_was_lowered_from():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ema", torch.ones(3))

        def forward(self, x):
            self.ema.mul_(0.9).add_(0.1 * x)
            return x / self.ema

    rows = {"x": {0: Dim("rows", min=2, max=9)}}
    linear = export(nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes={"input": rows["x"]})
    program = to_edge({"forward": export(Average(), (torch.ones(3),)), "head": linear})
    exported = program.exported_program()
    assert isinstance(exported, ExportedProgram)
    model = Average()
    for step in range(3):
        x = torch.full((3,), 2.0 + step)
        assert torch.equal(exported.module()(x), model(x)) or step  # each module starts anew
    head = program.exported_program("head").module()
    for count in (2, 9):
        x = torch.randn(count, 3)
        assert torch.equal(head(x), linear.run_decompositions().module()(x))
    with pytest.raises(InvalidIRError, match="there is no method 'heed'"):
        program.exported_program("heed")


def test_weights_that_are_missing_or_wrong_are_named():
    ir = extract_ir(nn.Linear(3, 2), (torch.ones(1, 3),))
    with pytest.raises(MissingWeightsError) as missing:
        to_edge(ir).exported_program()
    assert missing.value.message == "the program has 2 weights and none were given"
    with pytest.raises(WeightLoadError):
        to_exported_program(ir, {"weight": torch.ones(2, 3), "bias": torch.ones(3)})


UNKNOWN = """
ir {
  dialect "aten"
  operator "nowhere::op(Tensor x) -> Tensor"
  input %x: f32[2]
  %y: f32[2] = nowhere.op.default(x=%x)
  return %y
}
"""


def test_what_has_no_counterpart_is_named():
    with pytest.raises(PassError) as caught:
        to_exported_program(torch_ir.parse(UNKNOWN))
    assert str(caught.value) == (
        "node 'y': torch has no operator 'nowhere.op.default'\n"
        "    %y: f32[2] = nowhere.op.default(x=%x)\n"
        "Import the library that registers the operators of 'nowhere' before running: --import "
        "MODULE on the command line, or an entry point 'nowhere' of the group torch_ir.operators "
        "in its package."
    )
    register_executor("nowhere.op.default")(lambda inputs, attrs: [inputs[0]])
    try:
        with pytest.raises(PassError) as caught:
            to_exported_program(torch_ir.parse(UNKNOWN))
    finally:
        unregister_executor("nowhere.op.default")
    assert caught.value.message == (
        "node 'y': nowhere.op.default runs with a registered kernel, which torch does not know"
    )


def test_a_list_beside_other_results_is_refused():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("weight", "mean", "square"):
                self.register_buffer(name, torch.ones(2))
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, gradient):
            state = [self.weight], [gradient], [self.mean], [self.square], [], [self.steps]
            options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.1, "eps": 0.1}
            torch._fused_adamw_(*state, **options, amsgrad=False, maximize=False)
            return self.weight * 1

    ir = torch_ir.extract_ir(Step(), (torch.ones(2),))
    with pytest.raises(PassError) as caught:
        to_exported_program(ir, Step().state_dict())
    assert caught.value.message == (
        "node '_fused_adamw_': aten._fused_adamw.default gives a list beside other results, and "
        "the program does not say how many tensors are in it"
    )


def test_a_symbol_that_nothing_tells_is_named():
    text = """
    ir {
      dialect "aten"
      symbol s0: 2..9
      %y: f32[s0] = aten.full.default(size=[`s0`], fill_value=1.0)
      return %y
    }
    """
    with pytest.raises(PassError) as caught:
        to_exported_program(torch_ir.parse(text))
    assert caught.value.message == (
        "node 'y': no argument and no earlier result tells what 's0' is"
    )


def test_an_ir_without_a_signature_takes_and_gives_tensors():
    ir: IR = torch_ir.parse(
        "ir {\ninput %x: f32[2]\n%y: f32[2] = aten.relu.default(%x)\nreturn %y\n}"
    )
    assert torch.equal(to_exported_program(ir).module()(torch.ones(2))[0], torch.ones(2))


class Named(nn.Module):
    def forward(self, ids, pair, n, *, scale):
        return ids * n + pair[0] * scale


def test_arguments_keep_their_names():
    x = torch.ones(2)
    ir = extract_ir(Named(), (x, (x, x), 3), kwargs={"scale": x})
    program = to_exported_program(ir)
    assert torch.equal(program.module()(x, (x, x), 3, scale=x), Named()(x, (x, x), 3, scale=x))
    inputs = program.run_decompositions().graph_signature.user_inputs
    assert inputs[:3] == ("ids", "arg_1_0", "arg_1_1")
    assert inputs[-1] == "scale"


def test_arguments_whose_names_python_does_not_take():
    ir = torch_ir.parse("""ir {
      input %self: f32[2]
      input %a.b: f32[2]
      %y: f32[2] = aten.sub.Tensor(%self, %a.b)
      return %y
    }""")
    given = torch.ones(2), torch.zeros(2)
    program = to_exported_program(ir).run_decompositions()
    assert torch.equal(program.module()(*given)[0], given[0])
