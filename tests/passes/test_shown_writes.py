"""Results show what a program writes as it ends, as in torch, whatever reads the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torch_ir
from torch_ir import decompose, denote, functionalize, parse
from torch_ir.backends import NativeBackend
from torch_ir.debug import random_program
from torch_ir.debug.reference.tolerance_check import same_bits
from torch_ir.errors import InvalidIRError, PassError
from torch_ir.ir import Mutation

SHOWN = {
    "itself": "return %x, %y",
    "a view": "%v: f32[6] = aten.view.default(%x, size=[6])\n  return %v, %y",
    "a part": "%v: f32[3] = aten.select.int(%x, dim=0, index=1)\n  return %y, %v, %x",
    "turned": "%v: f32[3, 2] = aten.permute.default(%x, dims=[1, 0])\n  return %v",
    "a buffer": "%v: f32[3] = aten.select.int(@b, dim=0, index=0)\n  return %v, @b",
}


class AsTorch(NativeBackend):
    """Runs all on torch, as a runtime would."""

    name, version = "astorch", "1.0"

    def operators(self):
        return {f"aten.{name}" for name in ("neg.default", "add.Tensor", "view.default")}

    def build(self, program, options):
        return program.module()


@pytest.mark.parametrize("shown", SHOWN)
def test_results_show_what_is_written_as_the_program_ends(shown):
    """As torch does, which writes before it returns."""
    lines, _, returned = SHOWN[shown].rpartition("return ")
    ir = parse(f"""ir {{
  weight @b: f32[2, 3]
  mutate %x = %y
  mutate @b = %z
  input %x: f32[2, 3]
  {lines}%y: f32[2, 3] = aten.neg.default(@b)
  %z: f32[2, 3] = aten.add.Tensor(%x, @b)
  return {returned}
}}""")
    weights, x = {"b": torch.arange(6.0).reshape(2, 3)}, torch.ones(2, 3)
    functional = functionalize(ir)
    programs = (ir, functional, decompose(ir))
    results: list[Any] = []
    for program in programs:
        for backend in ("aten", "reference", AsTorch()):
            runner, given = torch_ir.compile(program, weights, backend=backend), x.clone()
            for _ in range(2):
                made = runner(given)
            results.append([*(t.clone() for t in made), given, runner.buffers["b"]])
        assert torch_ir.validate(program, weights, (x,)).verdict == "agree"
    module, given = torch_ir.to_exported_program(ir, weights).module(), x.clone()
    for _ in range(2):
        made = module(given)
    results.append([*made, given, dict(module.named_buffers())["b"]])
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))
    arrays = denote(functional, weights, [x])
    assert len(arrays) == len(made)


@pytest.mark.parametrize("seed", range(25))
def test_random_programs_that_show_their_last_writes_stay_the_same(seed):
    program = random_program(seed, nodes=6, writes=False, control_flow=False, dynamic=False)
    ir = program.ir
    mutations = []
    for meta in ir.graph_inputs:
        found = [m for n in ir.nodes for m in n.outputs]
        like = [m for m in found if (m.shape, m.dtype) == (meta.shape, meta.dtype)]
        mutations += [Mutation(meta.name, like[-1])] if like else []
    made = [m for n in ir.nodes for m in n.outputs]
    ir = ir.replace(mutations=mutations, graph_outputs=[*ir.graph_inputs, *made], signature=None)
    assert not ir.check()
    try:
        functional = functionalize(ir)
    except PassError as error:  # of a view that may be another tensor
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "its memory may be that of a result of node" in refusal
        return
    runs = []
    for shown in (ir, functional):
        given = [t.clone() for t in program.inputs]
        outputs = torch_ir.IRExecutor(shown, program.weights).execute(given)
        runs.append([*outputs, *given])
    for first, second in zip(*runs, strict=True):
        assert not same_bits(first, second).reason


def test_a_view_of_what_is_written_has_no_meaning_before_the_program_is_functional():
    ir = parse("""ir {
  mutate %x = %y
  input %x: f32[2]
  %y: f32[2] = aten.neg.default(%x)
  %v: f32[2, 1] = aten.unsqueeze.default(%x, dim=1)
  return %v
}""")
    x = torch.ones(2)
    with pytest.raises(InvalidIRError) as caught:
        denote(ir, {}, [x])
    assert str(caught.value) == (
        "the result %v shows what the program writes as it ends\n"
        "Make the program functional first: torch_ir.functionalize(ir)."
    )
    assert denote(functionalize(ir), {}, [x])[0].tolist() == [[-1.0], [-1.0]]
