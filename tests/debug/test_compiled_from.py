"""A compiled program is judged as the program that it was compiled from, and as no other."""

import pytest
import torch

import torch_ir
from torch_ir import compare, parse, validate
from torch_ir.backends import SUPPORTED, DelegateBackend
from torch_ir.errors import InvalidIRError

PROGRAM = """ir {
  input %x: f32[4]
  %a: f32[4] = aten.mul.Tensor(%x, 2.0)
  %b: f32[4] = aten.add.Tensor(%a, %x)
  return %b
}"""
OTHERS = {
    "attribute": PROGRAM.replace("2.0", "3.0"),
    "operand": PROGRAM.replace("(%a, %x)", "(%x, %x)"),
    "operator": PROGRAM.replace("add", "sub"),
    "fewer nodes": "\n".join(PROGRAM.replace("return %b", "return %a").split("\n")[:3])
    + "\n  return %a\n}",
    "other names and another number": PROGRAM.replace("%a", "%c").replace("2.0", "5.0"),
}
X = (torch.ones(4),)


class Torch(DelegateBackend):
    """Runs what it takes with torch."""

    name = "torch_again"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        graph = torch_ir.compile_graph(ir.replace(signature=None))
        return lambda *given: graph.eval(given)


MADE = {
    "graph": torch_ir.compile_graph,
    "executor": lambda ir: torch_ir.IRExecutor(ir, {}),
    "runner": lambda ir: torch_ir.compile(ir, {}, backend=Torch()),
}
JUDGED = {
    "compare run": lambda ir, made: compare(ir, {}, X, run=made),
    "compare against": lambda ir, made: compare(ir, {}, X, against=made),
    "validate graph": lambda ir, made: validate(ir, {}, X, graph=made),
}


@pytest.mark.parametrize("judge", JUDGED)
@pytest.mark.parametrize("make", MADE)
def test_what_was_compiled_from_another_program_is_refused(make, judge):
    ir = parse(PROGRAM)
    for same in (ir, parse(PROGRAM), parse(PROGRAM).replace(model_name="again")):
        assert JUDGED[judge](ir, MADE[make](same)).verdict == "agree"
    for other in OTHERS.values():
        with pytest.raises(InvalidIRError, match="was compiled from another program"):
            JUDGED[judge](ir, MADE[make](parse(other)))


def test_the_first_change_is_told():
    with pytest.raises(InvalidIRError) as error:
        validate(parse(PROGRAM), {}, X, backend=MADE["runner"](parse(OTHERS["attribute"])))
    assert str(error.value) == (
        "what is judged was compiled from another program; the first change is\n"
        "    ~ %a: f32[4] = aten.mul.Tensor(%x, other=3.0)\n"
        "        other 2.0 -> 3.0\n"
        "Compile the program that you give, or give the one that was compiled."
    )
