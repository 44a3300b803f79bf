"""Programs whose parts run on devices of their own.

There may be no GPU: a device of another kind stands for one, which refuses what is elsewhere.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir.errors import ExecutionError


@pytest.fixture(scope="module")
def found():
    script = Path(__file__).parent / "far_programs.py"
    made = subprocess.run(
        [sys.executable, "-W", "ignore", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1])


def test_layers_run_where_they_are_placed_and_values_are_copied_once(found):
    # 36 nodes; a value that crosses is copied once for all its readers on the other side
    assert found["blocks None two"] == [True, 39, 3]
    assert found["blocks None far"] == [True, 36, 0]
    # calls of one function are placed whole, and written out where a part of one is elsewhere
    assert found["blocks auto two"] == [True, 7, 3]
    assert found["blocks auto far"] == [True, 4, 0]
    assert found["blocks auto inner"] == found["blocks None inner"] == [True, 40, 4]
    assert found["by function"] == [True, ["cpu", "far:0"]]
    assert found["branch"] == [True]


def test_memory_that_is_written_stays_in_one_place_with_its_views(found):
    assert found["state"] == [True, True]
    assert found["written input"] == [[-2.0, -2.0], [2.0, 2.0]]
    assert found["written elsewhere"].startswith(
        "input 0 (%x: f32[2]) is on cpu, expected far:0\n"
    )


def test_weights_move_once_to_every_device_that_reads_them(found):
    assert found["tied"] == [
        True,
        ["cpu", "far:0", "far:0"],
        3,
    ]  # the third is a name of the first
    assert found["stream"] == [True, "far:0"]
    assert found["weights follow inputs"] == "far:0"
    assert found["input elsewhere"] == (
        "input 0 (%x: f32[1, 4]) is on far:0, expected cpu\n"
        "Move it with .to('cpu'), or compile the program with placement='far:0'."
    )


def test_constants_are_folded_on_the_device_that_is_asked_for(found):
    assert found["folded"] == 1


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({}, 'placement= has no entry\nWrite {"": "cpu"} for all.'),
        (
            {"0": "cpu"},
            "placement= says no device for the weight '1.weight'\n"
            'Add an entry for it, or "" for all others.',
        ),
        (
            {"": "cpu", "11": "cpu"},
            "placement= names '11', which is no module path, function or weight\nDid you mean 1?",
        ),
        (
            {"0": "cpu", "1": "disk"},
            "no part of a program runs on 'disk'\n"
            'Give memory="2GB" to read weights from their files while the program runs.',
        ),
    ],
)
def test_a_placement_that_does_not_fit_the_program_is_refused(placement, message):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    ir = torch_ir.extract_ir(model, (torch.ones(1, 2),))
    with pytest.raises(ExecutionError) as error:
        torch_ir.compile(ir, model.state_dict(), placement=placement)
    assert str(error.value) == message


def test_a_device_map_that_names_modules_without_calls_is_taken():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2)).eval()
    x = torch.ones(1, 2)
    ir = torch_ir.extract_ir(model, (x,))
    placement = {"0": "cpu", "1": torch.device("cpu"), "2": "cpu:0"}
    run = torch_ir.compile(ir, model.state_dict(), placement=placement)
    assert torch.equal(run(x), model(x))


def test_a_placement_is_for_torch_and_with_memory_for_one_device(tmp_path):
    ir = torch_ir.extract_ir(nn.ReLU(), (torch.ones(1),))
    with pytest.raises(ExecutionError, match="placement= is for the backend 'aten'"):
        torch_ir.compile(ir, backend="reference", placement="cpu")
    with pytest.raises(ExecutionError, match="with memory= a program runs on one device"):
        torch_ir.compile(ir, tmp_path, memory="1GB", placement={"": "cpu", "a": "cuda"})
