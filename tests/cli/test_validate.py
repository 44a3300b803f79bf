"""validate: every node, from the command line."""

import json

import pytest

from torch_ir import register_executor
from torch_ir.executor import unregister_executor

GIVEN = ("m.json", "--random", "--random-weights")


@pytest.fixture
def wrong_relu():
    register_executor("aten.relu.default")(lambda inputs, attrs: [inputs[0].relu() + 1])
    yield
    unregister_executor("aten.relu.default")


def test_readers_that_agree(run, ir):
    result = run("validate", *GIVEN)
    assert result.code == 0, result.err
    assert result.out.startswith(
        "all readers agree on Net: 2 nodes\n"
        "  denotation: 2 compared, 0 by decomposition\n"
        "  eager: 2 compared\n\n"
    )


def test_one_reader_only(run, ir):
    result = run("validate", *GIVEN, "--against", "eager")
    assert result.out.splitlines()[1:2] == ["  eager: 2 compared"]


def test_a_divergence_is_status_1_and_can_be_run_again(run, ir, wrong_relu, tmp_path):
    result = run("validate", *GIVEN, "--json", "--repro", tmp_path / "out")
    assert result.code == 1
    assert json.loads(result.out)["divergences"][0]["text"].startswith("%relu: f32[2, 4] = ")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "inputs.safetensors",
        "repro.py",
    ]


def test_an_unknown_reader(run, ir):
    result = run("validate", *GIVEN, "--against", "denotation,torch")
    assert result.code == 1
    assert result.err.endswith(
        "error: there is no reader 'torch'\nThere are denotation and eager.\n"
    )


def test_what_was_not_compared_is_status_3(run, tmp_path):
    file = tmp_path / "random.ir"
    file.write_text(
        "ir {\n  input %x: f32[2]\n  %y: f32[2] = aten.rand_like.default(%x)\n  return %y\n}"
    )
    given = ("validate", file, "--random", "--against", "denotation")
    result = run(*given)
    assert result.code == 3
    assert result.out.startswith(
        "no reader disagrees on the program: denotation 0 of 1; 1 NOT compared (y)\n"
    )
    assert run(*given, "--allow-not-compared").code == 0
    assert run("validate", file, "--random").code == 0
