"""Tests of the one record of something wrong, and of the errors that hold it."""

import pytest
import torch

from torch_ir import IRExecutor
from torch_ir.dialects import Violation, dialect, verify
from torch_ir.errors import CompileError, DialectError, ExecutionError, InvalidIRError, PassError
from torch_ir.executor import compile_graph, register_executor, unregister_executor
from torch_ir.ir import IR, Location, OpNode, TensorMeta
from torch_ir.ir.check import Finding
from torch_ir.ir.diagnostics import Diagnostic, Diagnostics, error_at
from torch_ir.passes import decompose


def graph(op_type: str, shape: tuple[int, ...] = (2,), name: str = "a") -> IR:
    x, y = TensorMeta("x", (2,), "float32"), TensorMeta(name, shape, "float32", name)
    node = OpNode(name, op_type, [x], [y], {}, {"self": 0}, Location("model.py", 7))
    return IR([node], [x], [y], [])


def test_every_finder_of_faults_gives_the_same_record():
    ir = graph("aten.relu.default", (3,))
    (found,) = verify(ir, "aten")
    with pytest.raises(CompileError) as compiling:
        compile_graph(ir, {})
    with pytest.raises(DialectError) as requiring:
        dialect("aten").require(ir)
    for diagnostic in (found, *compiling.value.findings, *requiring.value.violations):
        assert isinstance(diagnostic, Diagnostic)
        assert (
            diagnostic.code,
            diagnostic.node,
            diagnostic.op_type,
            str(diagnostic.location),
        ) == (
            "wrong-type",
            "a",
            "aten.relu.default",
            "model.py:7",
        )
    assert compiling.value.node == "a"
    assert Finding is Violation is Diagnostic


def test_strict_checks_raise_the_record_too():
    ir = graph("aten.relu.default").replace(graph_inputs=())
    with pytest.raises(InvalidIRError) as caught:
        ir.check(strict=True)
    assert caught.value.node == "a"
    assert caught.value.diagnostics == (ir.check()[0],)


def test_former_names_of_fields_warn_each_time():
    found = Diagnostic("code", "message", found="3")
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match="'code'"):
            assert found.rule == "code"
        with pytest.warns(DeprecationWarning, match="'found'"):
            assert found.got == "3"


def test_many_diagnostics_are_shown_up_to_a_limit_and_held_all():
    place = Location("model.py", 3)
    found = Diagnostics(
        [Diagnostic("c", "no", f"n{i}", "my.op", location=place) for i in range(5)]
    )
    found.extend([Diagnostic("c", "neither")])
    found.add(Diagnostic("c", "nor"))
    with pytest.raises(PassError) as caught:
        found.raise_if_any(PassError, "7 nodes fail", limit=2, remedy="Mend them.")
    assert caught.value.diagnostics == tuple(found)
    assert str(caught.value) == (
        "7 nodes fail\n"
        "    - node 'n0': my.op: no (at model.py:3)\n"
        "    - node 'n1': my.op: no (at model.py:3)\n"
        "    and 5 more\n"
        "Mend them."
    )
    Diagnostics().raise_if_any(PassError, "nothing fails")


def test_refusals_of_passes_hold_the_nodes():
    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError(f"not for {x.dim()}-d tensors")

    with pytest.raises(PassError, match="cannot be decomposed") as caught:
        decompose(graph("aten.relu.default"), table={"aten.relu.default": refuse})
    (found,) = caught.value.diagnostics
    assert (found.node, str(found.location)) == ("a", "model.py:7")
    assert (found.code, found.op_type) == ("not-decomposable", "aten.relu.default")


def test_an_error_that_says_its_node_is_not_wrapped_again():
    """It carries the node: whatever its message looks like, the outer node is told or not."""
    inner = graph("aten.relu.default", name="b").nodes[0]
    for error, said in (
        (error_at(inner, "it is torn"), "node 'b': it is torn"),
        (
            ExecutionError("node 7 of the cluster is down"),
            "node 'a': node 7 of the cluster is down",
        ),
    ):

        @register_executor("test_diagnostics.fail.default")
        def fail(*_: object, error: Exception = error) -> torch.Tensor:
            raise error

        try:
            executor = IRExecutor(graph("test_diagnostics.fail.default"), {})
            with pytest.raises(ExecutionError) as caught:
                executor(torch.ones(2))
        finally:
            unregister_executor("test_diagnostics.fail.default")
        assert caught.value.message == said
