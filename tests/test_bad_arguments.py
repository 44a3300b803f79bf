"""What a caller gives to a public function, however bad, ends in an error of this package."""

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
NET = torch.nn.Identity()
BY_NUMBER = {
    "plan_memory": lambda number: torch_ir.plan_memory(IR, alignment=number),
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


@pytest.mark.parametrize("name", BY_NUMBER)
def test_numbers(name):
    require_our_errors(BY_NUMBER[name], NUMBERS)


def test_a_misspelled_dtype_names_the_closest():
    with pytest.raises(TorchIRError, match=r"there is no dtype 'float23'\n.*float32"):
        torch_ir.random_program(0, dtypes=["float23"])


@pytest.mark.parametrize("capacity", [-1, {"bank": -5}, 0])
def test_capacities(capacity):
    with pytest.raises(TorchIRError):
        torch_ir.plan_memory(IR, capacity=capacity, outputs=True)
