"""A value that an option does not take is told, and never taken for a refusal of the program."""

import pytest
import torch
from torch import nn

import torch_ir
from backends.torch_again import TorchAgain
from torch_ir.errors import ExecutionError

NET = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
IR = torch_ir.extract_ir(NET, (torch.randn(2, 3),))


class Chosen(TorchAgain):
    name = "chosen"

    def known_options(self):
        return {
            "threads": int,
            "is_fast": bool,
            "level": ("none", "all"),
            "places": frozenset(("here", "there")),
            "own": None,
        }


def compiled(backend, **options):
    return torch_ir.compile(IR, NET.state_dict(), backend=backend, options=options)


WRONG = {
    "takes no threads='4'\nIt takes a value of type int.": {"threads": "4"},
    "takes no threads=True\nIt takes a value of type int.": {"threads": True},
    "takes no is_fast=1\nIt takes a value of type bool.": {"is_fast": 1},
    "takes no level='al'\nDid you mean all?": {"level": "al"},
    "takes no level=7\nIt takes none, all.": {"level": 7},
    "takes no places='here'\nIt takes a list of here, there.": {"places": "here"},
    "takes no places=['here', 'x']\nIt takes here, there.": {"places": ["here", "x"]},
}


@pytest.mark.parametrize("text", WRONG)
def test_a_value_that_is_not_taken(text):
    with pytest.raises(ExecutionError) as error:
        compiled(Chosen(), **WRONG[text])
    assert str(error.value) == f"the backend 'chosen' {text}"


def test_values_that_are_taken():
    given = {"threads": 2, "is_fast": False, "level": "all", "places": ("there",), "own": "x"}
    run = compiled(Chosen(), **given)
    assert {*run.assignment.takers.values()} == {"chosen"}


def test_an_object_of_the_runtime_is_its_matter():
    assert compiled(Chosen(), level=object()).assignment.takers


def test_each_of_several_backends_has_its_options():
    run = compiled([Chosen(), TorchAgain()], level="none")
    assert run.assignment.takers
    with pytest.raises(ExecutionError, match="the backend 'chosen' takes no level='no'"):
        compiled([Chosen(), TorchAgain()], level="no")


RUNTIMES = {
    "onnxruntime": {"graph_optimization_level": "ALL", "threads": "4", "providers": ["CPU"]},
    "openvino": {"INFERENCE_PRECISION_HINT": "f99", "PERFORMANCE_HINT": "QUICK"},
    "executorch": {"xnnpack": "no"},
    "inductor": {"freezing": 7, "max_autotune": "yes", "fallback": "no"},
}


@pytest.mark.parametrize("backend", RUNTIMES)
def test_values_that_runtimes_do_not_take(backend):
    if backend != "inductor":
        pytest.importorskip(backend)
    for option, value in RUNTIMES[backend].items():
        with pytest.raises(ExecutionError, match=f"the backend '{backend}' takes no {option}="):
            compiled(backend, **{option: value})
