"""Programs on their way to other tools: names, example inputs, bodies of delegates, files."""

import io

import pytest
import torch
from torch import nn
from torch.export import Dim

from dynamic_models import DYNAMIC
from small_models import CASES
from torch_ir import IR, OpNode, TensorMeta, extract_ir, to_exported_program
from torch_ir.backends import SUPPORTED, DelegateBackend, body_program
from torch_ir.backends.delegating import DelegatingExecutor
from torch_ir.errors import SerializationError
from torch_ir.ir import FunctionRef

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ("cache.k", "class", "None", "n\n", "0x", "self", "torch", "é ü", "getattr", "a.b", "1")


def saved_and_loaded(exported):
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    return torch.export.load(file)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("made", ["y", "self", "lambda", "a_b"])
def test_any_name_gives_a_program_that_runs_saves_and_loads(name, made):
    if name == made:
        pytest.skip("one value has one name")
    metas = [TensorMeta(n, (2,), "float32") for n in (name, "a-b", "held.x")]
    y = TensorMeta(made, (2,), "float32", made)
    z = TensorMeta("z", (2,), "float32", "z")
    nodes = [
        OpNode(made, "aten.sub.Tensor", [metas[0], metas[2]], [y]),
        OpNode("z", "aten.sub.Tensor", [y, metas[1]], [z]),
    ]
    weight = TensorMeta("m.0-self", (2,), "float32")
    ir = IR(nodes, metas[:2], [z], [weight], {"held.x": "m.0-self"})
    ir.check(strict=True)
    exported = to_exported_program(ir, {"m.0-self": torch.ones(2)})
    names = [node.name for node in exported.graph.nodes]
    assert len(set(names)) == len(names)
    given = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0])
    for program in (exported, saved_and_loaded(exported)):
        assert torch.equal(program.module()(*given)[0], given[0] - 1 - given[1])


def test_names_of_functions_are_made_attributes():
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    ir = extract_ir(Branches(), (torch.ones(2),))
    names = dict(zip(ir.functions, ("forward", "a-b"), strict=True))
    nodes = [
        node.replace(
            attrs={
                key: FunctionRef(names[value.name]) if isinstance(value, FunctionRef) else value
                for key, value in node.attrs.items()
            }
        )
        for node in ir.nodes
    ]
    ir = ir.replace(nodes=nodes, functions={names[k]: body for k, body in ir.functions.items()})
    exported = to_exported_program(ir)
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(saved_and_loaded(exported).module()(x), Branches()(x))


@pytest.mark.parametrize("name", CASES)
def test_the_module_runs_on_the_example_inputs(name):
    case = CASES[name]
    args, kwargs = case.inputs()
    exported = to_exported_program(
        extract_ir(case.model(), args, kwargs=kwargs), case.model().state_dict()
    )
    given, named = exported.example_inputs
    exported.module()(*given, **named)


@pytest.mark.parametrize("name", DYNAMIC)
def test_example_sizes_are_inside_their_ranges(name):
    make, args, shapes = DYNAMIC[name]
    exported = to_exported_program(
        extract_ir(torch.export.export(make(), args, dynamic_shapes=shapes))
    )
    given, named = exported.example_inputs
    exported.module()(*given, **named)


def test_example_inputs_are_the_same_each_time_and_integers_are_zero():
    class Table(nn.Embedding):
        def forward(self, ids, x):
            return super().forward(ids["ids"]) + x

    model = Table(3, 4)
    ir = extract_ir(model, ({"ids": torch.ones(2, dtype=torch.int64)}, torch.ones(2, 4)))
    made = [to_exported_program(ir, model.state_dict()).example_inputs for _ in range(2)]
    assert torch.equal(made[0][0][0]["ids"], torch.zeros(2, dtype=torch.int64))
    assert torch.equal(made[0][0][1], made[1][0][1])


class Exported(DelegateBackend):
    """Runs its bodies as exported programs."""

    name = "exported"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        return saved_and_loaded(body_program(ir, payload)).module()


class Sized(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen += x.sum(0)
        full = torch.full((x.shape[0] * 2,), 2.0)
        return {"y": self.fc(x) / x.shape[0] + self.seen, "n": full}


def test_a_body_runs_as_its_exported_program():
    model, x = Sized(), torch.randn(3, 4)
    ir = extract_ir(model, (x,), dynamic_shapes=({0: Dim("b", min=2, max=64)},))
    run = DelegatingExecutor(ir, model.state_dict(), Exported())
    eager = Sized()
    eager.load_state_dict(model.state_dict())
    for rows in (3, 3, 5):
        x = torch.randn(rows, 4)
        expected, got = eager(x), run(x)
        assert torch.equal(expected["y"], got["y"])
        assert torch.equal(expected["n"], got["n"])


def test_load_says_what_an_archive_of_torch_is(tmp_path):
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(12)])
    for program in (nn.Linear(3, 2), model):
        path = tmp_path / "model.pt2"
        torch.export.save(torch.export.export(program, (torch.ones(1, 3),)), path)
        with pytest.raises(SerializationError) as raised:
            IR.load(path)
        assert str(raised.value) == (
            f"{path}: cannot be read as an archive: this is an archive of torch.export\n"
            f"Extract the program in it: torch-ir extract {path} --trust"
        )


def test_load_says_what_a_package_of_aotinductor_is(tmp_path):
    import zipfile

    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data/aotinductor/model/a.wrapper.cpp", "")
        archive.writestr("model/archive_format", "pt2")
    with pytest.raises(SerializationError) as raised:
        IR.load(path)
    assert str(raised.value) == (
        f"{path}: cannot be read as an archive: this is an archive of AOTInductor\n"
        "It has compiled code and no graph: give the program that it was made of."
    )
