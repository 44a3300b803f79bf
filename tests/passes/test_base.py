"""What a pass may do, and what running several of them checks."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from torch_ir import parse
from torch_ir.errors import PassError
from torch_ir.ir import IR, OpNode, SymbolRange, TensorMeta
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.passes import EliminateDeadCode, Pass, PassResult, run_passes

PROGRAM = parse("""
ir "Two" {
  input %x: f32[2]
  %unused: f32[2] = aten.neg.default(%x)
  %y: f32[2] = aten.relu.default(%x)
  return %y
}
""")


@dataclass(frozen=True)
class Forget(Pass):
    """Removes a node that is needed."""

    name: ClassVar[str] = "forget"
    node: str = "y"

    def call(self, ir):
        return PassResult(ir.replace(nodes=[n for n in ir.nodes if n.name != self.node]), True)


@dataclass(frozen=True)
class Insist(Pass):
    name: ClassVar[str] = "insist"

    def requires(self, ir):
        raise PassError("there is nothing to do")

    def call(self, ir):
        raise AssertionError


def test_a_pass_that_breaks_a_program_is_named_with_the_fault_and_the_program_stays():
    before = str(PROGRAM)
    with pytest.raises(PassError) as caught:
        run_passes(PROGRAM, [EliminateDeadCode(), Forget()])
    assert str(caught.value) == (
        "forget made a program that is not well-formed: 1 fault\n"
        "    [undefined-value] the graph output %y is never defined\n"
        "The program before it is unchanged."
    )
    assert str(PROGRAM) == before


def test_faults_are_found_after_all_passes_or_not_at_all_if_asked():
    with pytest.raises(PassError, match="the passes made a program that is not well-formed"):
        run_passes(PROGRAM, [Forget()], verify="stage")
    assert len(run_passes(PROGRAM, [Forget()], verify="off").ir.nodes) == 1


def test_a_verifier_sees_each_result():
    seen = []

    def verifier(ir):
        seen.append(len(ir.nodes))
        return [Diagnostic("odd", "an odd number of nodes")] if len(ir.nodes) % 2 else []

    with pytest.raises(PassError, match=r"\[odd\] an odd number of nodes"):
        run_passes(PROGRAM, [EliminateDeadCode()], verifier=verifier)
    assert seen == [1]


def test_what_a_pass_requires_is_asked_before_it_runs():
    with pytest.raises(PassError, match="there is nothing to do"):
        run_passes(PROGRAM, [Insist()])


def test_a_level_of_verification_that_does_not_exist_is_refused():
    with pytest.raises(PassError) as caught:
        run_passes(PROGRAM, [], verify="always")
    assert str(caught.value) == 'verify cannot be \'always\'\nIt is "off", "stage" or "each".'


def test_options_stand_in_the_name_of_a_pass():
    assert str(Forget("x")) == "forget{node=x}"
    assert str(Forget()) == "forget"


def test_dead_nodes_go_and_a_program_without_them_is_the_same_object():
    once = run_passes(PROGRAM, [EliminateDeadCode()])
    assert [node.name for node in once.ir.nodes] == ["y"]
    assert once.modified
    again = run_passes(once.ir, [EliminateDeadCode()])
    assert again.ir is once.ir
    assert not again.modified


@pytest.mark.parametrize(
    "line", ["%n: f32[2] = aten.add_.Tensor(%x, 1)", "%n: f32[2] = aten.bernoulli.p(%x, 0.5)"]
)
def test_nodes_that_write_or_draw_random_numbers_stay(line):
    ir = parse(f'ir "E" {{\n  input %x: f32[2]\n  {line}\n  return %x\n}}')
    assert EliminateDeadCode().call(ir).ir is ir


def test_checks_stay():
    x = TensorMeta("x", (), "bool")
    check = OpNode("n", "aten._assert_async.msg", [x], [], {"assert_msg": "no"})
    ir = IR([check], [x], [x], [])
    assert EliminateDeadCode().call(ir).ir is ir


def test_a_node_that_gives_a_symbol_its_value_stays_where_the_symbol_is_used():
    x = TensorMeta("x", (3,), "bool")
    found = OpNode("n", "aten.nonzero.default", [x], [TensorMeta("n", ("u0", 1), "int64", "n")])
    made = TensorMeta("y", ("u0",), "float32", "y")
    zeros = OpNode("y", "aten.zeros.default", [], [made], {"size": made.shape})
    ir = IR([found, zeros], [x], [made], [], symbols={"u0": SymbolRange(0)})
    assert EliminateDeadCode().call(ir).ir is ir


def test_what_a_pass_of_the_user_raises_is_an_error_that_names_the_pass():
    class Careless(Pass):
        name: ClassVar[str] = "careless"

        def call(self, ir: IR) -> PassResult:
            return PassResult(ir, {}["nothing"])

    told = r"^the pass careless failed: KeyError: 'nothing'"
    with pytest.raises(PassError, match=told) as caught:
        run_passes(PROGRAM, [Careless()])
    assert isinstance(caught.value.__cause__, KeyError)
