"""What a caller gives to a public function, however bad, ends in an error of this package."""

import resource

import pytest
import torch

import torch_ir
from torch_ir import serde
from torch_ir.errors import TorchIRError

IR = torch_ir.parse(
    """ir {
  input %x: f32[2]
  weight @w: f32[2]
  %y: f32[2] = aten.add.Tensor(%x, @w)
  return %y
}"""
)
WEIGHTS = {"w": torch.ones(2)}
RAGGED = [torch.ones(2), torch.ones(3)]
TEXTS = ["", "x", "\x1b]0;\u202e", "\ud800", "\0", "no/such.tir", "a" * 5000, "."]
NO_TEXTS = [None, 0, 10**30, 1.5, object(), [], {}, [None], torch.ones(2), IR]
TENSORS = [
    (torch.ones(2, device="meta"),),
    (torch.nested.nested_tensor(RAGGED, layout=torch.jagged),),
    (torch.nested.nested_tensor(RAGGED),),
    (torch.ones(2).to_sparse(),),
    (torch.ones(3),),
    (None,),
    ({},),
    (),
    [1],
]

BY_PATH = {
    "load_ir": torch_ir.load_ir,
    "load_weights": torch_ir.load_weights,
    "load_weights_pt": torch_ir.load_weights_pt,
    "load_weights_safetensors": torch_ir.load_weights_safetensors,
    "load_exported_program": torch_ir.load_exported_program,
    "compile": torch_ir.compile,
}
BY_TEXT = {
    "deserialize_ir": torch_ir.deserialize_ir,
    "loads": serde.loads,
    "parse": torch_ir.parse,
    "operator_rule": torch_ir.operator_rule,
    "device": lambda name: torch_ir.compile_graph(IR, WEIGHTS, device=name),
    "part": lambda name: torch_ir.cut(IR, inputs=[name], outputs=["y"]),
}
NESTED = torch.nested.nested_tensor(RAGGED, layout=torch.jagged)
NODE = IR.nodes[0]
MATMUL = torch_ir.parse(
    """ir {
  input %x: f32[2, 4]
  weight @w: f32[4, 4]
  %y: f32[2, 4] = aten.mm.default(%x, @w)
  return %y
}"""
)
BY_ANYTHING = {
    "nodes": lambda value: IR.replace(nodes=value),
    "graph_inputs": lambda value: IR.replace(graph_inputs=value),
    "graph_outputs": lambda value: IR.replace(graph_outputs=value),
    "weights": lambda value: IR.replace(weights=value),
    "mutations": lambda value: IR.replace(mutations=value),
    "guards": lambda value: IR.replace(guards=value),
    "names": lambda value: IR.replace(weight_name_mapping=value),
    "constants": lambda value: IR.replace(constants=value),
    "functions": lambda value: IR.replace(functions=value),
    "metadata": lambda value: IR.replace(metadata=value),
    "model_name": lambda value: IR.replace(model_name=value),
    "node": lambda value: NODE.replace(name=value),
    "op_type": lambda value: NODE.replace(op_type=value),
    "inputs": lambda value: NODE.replace(inputs=value),
    "outputs": lambda value: NODE.replace(outputs=value),
    "attrs": lambda value: NODE.replace(attrs=value),
    "operands": lambda value: NODE.replace(operands=value),
    "binds": lambda value: NODE.replace(binds=value),
    "origins": lambda value: NODE.replace(origins=value),
    "meta": lambda value: torch_ir.TensorMeta(value, (2,), "float32"),
    "shape": lambda value: torch_ir.TensorMeta("x", value, "float32"),
    "dtype": lambda value: torch_ir.TensorMeta("x", (2,), value),
    "producer": lambda value: torch_ir.TensorMeta("x", (2,), "float32", value),
    "expression": torch_ir.SymExpr,
    "constant's data": lambda value: torch_ir.Constant("float32", (1,), value),
    "constant's shape": lambda value: torch_ir.Constant("float32", value, bytes(4)),
    "seed": lambda value: torch_ir.random_program(value, nodes=1),
    "operators": lambda value: torch_ir.random_program(0, nodes=1, operators=value),
    "dtypes": lambda value: torch_ir.random_program(0, nodes=1, dtypes=value),
    "sizes": lambda value: torch_ir.random_program(0, nodes=1, sizes=value),
    "number of nodes": lambda value: torch_ir.random_program(0, nodes=value),
    "first seed": lambda value: torch_ir.fuzz("aten", seed=value, programs=1, nodes=1),
    "seconds": lambda value: torch_ir.fuzz("aten", seconds=value, programs=1, nodes=1),
    "style": lambda value: torch_ir.shard(MATMUL, {"w": value}, ranks=2),
    "part of a rank": lambda value: torch_ir.shard_weights(IR, {"w": value}, 0),
    "saved weight": lambda value: serde.save(IR, "saved.tir", weights={"w": value}),
    "weight": lambda value: torch_ir.compile_graph(IR, {"w": value}),
    "constant": lambda value: torch_ir.validate(
        IR, WEIGHTS, (torch.ones(2),), constants={"w": value}
    ),
    "reduced weight": lambda value: torch_ir.reduce(
        IR, {"w": value}, (torch.ones(2),), lambda *_: True, seconds=0.1
    ),
    "reduced input": lambda value: torch_ir.reduce(
        IR, WEIGHTS, (value,), lambda *_: True, seconds=0.1
    ),
    "group": lambda value: torch_ir.extract_ir(NET, (torch.ones(2),), groups={"tp": value}),
}
NET = torch.nn.Identity()
BY_NUMBER = {
    "plan_memory": lambda number: torch_ir.plan_memory(IR, alignment=number),
    "random_program": lambda number: torch_ir.random_program(1, nodes=2, sizes=[number]),
    "shard": lambda number: torch_ir.shard(MATMUL, {"w": "column"}, ranks=number),
    "compile_graph": lambda number: torch_ir.compile_graph(IR, WEIGHTS, grad=bool(number)),
    "verify": lambda number: torch_ir.verify(
        IR, NET, (torch.ones(2),), weights=WEIGHTS, rtol=number, atol=number
    ),
}
NUMBERS = [0, -1, 1.5, 10**30, float("nan"), float("inf")]
BY_TENSORS = {
    "execute_ir": lambda inputs: torch_ir.execute_ir(IR, inputs, WEIGHTS),
    "IRExecutor": lambda inputs: torch_ir.IRExecutor(IR, WEIGHTS).execute(inputs),
    "ExecGraph": lambda inputs: torch_ir.compile_graph(IR, WEIGHTS).eval(inputs),
    "denote": lambda inputs: torch_ir.denote(IR, {"w": torch.ones(2).numpy()}, inputs),
    "compare": lambda inputs: torch_ir.compare(IR, WEIGHTS, inputs),
    "validate": lambda inputs: torch_ir.validate(IR, WEIGHTS, inputs),
}


def require_our_errors(call, values):
    """Call with each value; whatever else than a result comes has to be ours."""
    strange = {}
    for value in values:
        try:
            call(value)
        except TorchIRError:
            continue
        except Exception as error:  # noqa: BLE001  # whatever it is, it is not ours
            strange[ascii(value)[:60]] = repr(error)
    assert strange == {}


@pytest.mark.parametrize("name", BY_PATH)
def test_paths(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ending in ("json", "tir", "pt", "pt2", "safetensors"):
        (tmp_path / f"empty.{ending}").touch()
        (tmp_path / f"cut.{ending}").write_bytes(b"PK\3\4{")
        (tmp_path / f"folder.{ending}").mkdir()
    values = [*TEXTS, *NO_TEXTS[:-2], *sorted(tmp_path.iterdir())]
    require_our_errors(BY_PATH[name], values)


@pytest.mark.parametrize("name", BY_TEXT)
def test_texts(name):
    is_lenient = name in ("device", "part")  # other kinds are for the type checker
    require_our_errors(BY_TEXT[name], TEXTS if is_lenient else [*TEXTS, *NO_TEXTS])


@pytest.mark.parametrize("name", BY_TENSORS)
def test_tensors(name):
    require_our_errors(BY_TENSORS[name], TENSORS)


@pytest.mark.parametrize("name", BY_ANYTHING)
def test_anything(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tensors = [
        NESTED,
        torch.ones(2, device="meta"),
        torch.ones(3),
        torch.ones(2).numpy(),
        [NESTED],
    ]
    lists = [["x"], [0], [-1], [[]], {"x": None}, {"x": "x"}, {"x": -1}, {"w": IR}, [IR], {0: 0}]
    require_our_errors(BY_ANYTHING[name], [*TEXTS, *NO_TEXTS, *NUMBERS, *tensors, *lists])


@pytest.mark.parametrize("values", [[], [torch.ones(2)]])
def test_fewer_values_than_a_call_takes(values):
    with pytest.raises(TorchIRError, match="the operands of node 'y' are of 2 inputs, "):
        NODE.arguments(values)


@pytest.mark.parametrize("programs", [[], ()])
def test_no_program_of_a_rank(programs):
    with pytest.raises(TorchIRError, match="there is no program of a rank"):
        torch_ir.validate_ranks(IR, programs, WEIGHTS, [torch.ones(2)])


@pytest.mark.parametrize("name", BY_NUMBER)
def test_numbers(name):
    require_our_errors(BY_NUMBER[name], NUMBERS)


def test_a_misspelled_dtype_names_the_closest():
    with pytest.raises(TorchIRError, match=r"there is no dtype 'float23'\n.*float32"):
        torch_ir.random_program(0, dtypes=["float23"])


@pytest.mark.parametrize("programs", [-1, 0.5, "2", float("inf")])
def test_numbers_of_programs(programs):
    with pytest.raises(TorchIRError, match=r"^programs is "):
        torch_ir.fuzz("aten", programs=programs)


@pytest.mark.parametrize("capacity", [-1, {"bank": -5}, 0])
def test_capacities(capacity):
    with pytest.raises(TorchIRError):
        torch_ir.plan_memory(IR, capacity=capacity, outputs=True)


WRITERS = {
    "m.json": lambda path: serde.save(IR, path),
    "m.tir": lambda path: serde.save(IR, path, weights=WEIGHTS),
    "folder/m.json": lambda path: torch_ir.save_ir(IR, path),
    "page.html": lambda path: torch_ir.view(IR).save(path),
    "plot.html": lambda path: torch_ir.plot({"values": {"x": [1.0, 2.0]}}).page().save(path),
    "cases": lambda path: torch_ir.cases([IR]).save(path),
    "captured.npz": lambda path: torch_ir.capture(
        torch_ir.compile_graph(IR, WEIGHTS), (torch.ones(2),)
    ).save(path),
    "reduced": lambda path: torch_ir.reduce(
        IR, WEIGHTS, (torch.ones(2),), lambda *_: "x", seconds=0.01
    ).save(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(name, tmp_path):
    path = tmp_path / name
    if "." in name:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"as it was")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file may have a byte
    try:
        with pytest.raises(TorchIRError, match="cannot be written: File too large"):
            WRITERS[name](path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert left == ([b"as it was"] if "." in name else [])
