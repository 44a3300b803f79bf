"""Which executor runs which part of a program, and what says so."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, EntryPoints

import pytest
import torch
from torch._inductor import config as inductor_config
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch.fx.experimental.proxy_tensor import make_fx

from backends.graphs import Interpreter
from torch_ir import execute, make_ir, make_traced
from torch_ir.backends import backend_registry, register_backend, unregister_backend
from torch_ir.errors import CompileError, ExecutionError, InputError, OptionalDependencyError
from torch_ir.ir import ValueLeaf
from torch_ir.ir.tree import leaves
from torch_ir.ops import extensions
from traced.comparing import agree

X = torch.arange(1.0, 7.0).view(2, 3)
LEFT = ("prims.neg.default", "prims.add.default", "prims.div.default", "prims.transpose.default")


def gate(x, y):
    return torch.sigmoid(x) * y.t()


def device(*operators: str, name: str = "device") -> Interpreter:
    made = Interpreter(*operators)
    made.name = name
    return made


def some() -> Interpreter:
    """A backend for two of the six nodes of ``gate``."""
    return device("prims.exp.default", "prims.mul.default")


def line() -> str:
    """Where ``gate`` computes."""
    return f"(at {make_ir(gate, dialect='export')(X, X.t()).nodes[0].location})"


# -- lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["aten", "prims"])
def test_a_backend_takes_what_it_supports_and_torch_the_rest(rest: str):
    backend = some()
    traced = make_traced(gate, executor=(backend, rest))
    agree(gate, traced, X, X.t())
    assert [[n.op_type for n in body.nodes] for body in backend.bodies] == [
        ["prims.exp.default"],
        ["prims.mul.default"],
    ]
    assert traced.cache_info()[:2] == (2, 1)


def test_the_report_says_what_runs_each_node_and_why():
    traced = make_traced(gate, executor=(some(), "aten"))
    report = traced.report(X, X.t())
    assert traced.cache_info().misses == 0, "nothing is kept"
    assert report.nodes_of("device") == ("sigmoid_exp", "mul")
    assert str(report) == (
        "gate(x: f32[2, 3], y: f32[3, 2]): aten 4 of 6 nodes, device 2 of 6 nodes in 2 subgraphs\n"
        "  aten    %sigmoid_neg: prims.neg.default  "
        "(device: prims.neg.default is not for it)\n"
        "  device  %sigmoid_exp: prims.exp.default\n"
        "  aten    %sigmoid_add: prims.add.default  "
        "(device: prims.add.default is not for it)\n"
        "  aten    %sigmoid: prims.div.default  (device: prims.div.default is not for it)\n"
        "  aten    %t: prims.transpose.default  (device: prims.transpose.default is not for it)\n"
        "  device  %mul: prims.mul.default"
    )
    row = report.to_dict()["nodes"][0]
    assert row == {
        "name": "sigmoid_neg",
        "operator": "prims.neg.default",
        "executor": "aten",
        "refused": {"device": "prims.neg.default is not for it"},
        "location": line()[4:-1],
    }
    traced(X, X.t())
    assert traced.report(X, X.t()) == report, "of the program in the cache"


def test_two_backends_share_a_program():
    traced = make_traced(gate, executor=(some(), device(*LEFT, name="other")))
    agree(gate, traced, X, X.t())
    assert traced.report(X, X.t()).executors == ("other", "device")


def test_a_backend_that_takes_nothing_leaves_the_program_as_it_is():
    traced = make_traced(gate, executor=(device(), "aten"))
    report = traced.report(X, X.t())
    assert [node.operator for node in report.nodes] == [
        "aten.sigmoid.default",
        "aten.t.default",
        "aten.mul.Tensor",
    ]
    assert " ".join(str(report).split()).endswith(  # long lines are folded
        "device does not run it: 'device' does not take 6 of 6 nodes; first %sigmoid_neg: "
        f"prims.neg.default: prims.neg.default is not for it {line()}"
    )


def test_whole_programs_or_nothing():
    traced = make_traced(gate, executor=(some(), "aten"), strict=True)
    with pytest.raises(CompileError) as caught:
        traced(X, X.t())
    assert str(caught.value) == (
        "'device' does not take 4 of 6 nodes\n"
        "    - %sigmoid_neg: prims.neg.default: prims.neg.default is not for it "
        f"{line()}\n"
        "    - %sigmoid_add: prims.add.default: prims.add.default is not for it "
        f"{line()}\n"
        f"    - %sigmoid: prims.div.default: prims.div.default is not for it {line()}\n"
        "    - %t: prims.transpose.default: prims.transpose.default is not for it "
        f"{line()}\n"
        "Leave out strict=True: others run the rest."
    )
    whole = device("prims.exp.default", "prims.mul.default", *LEFT)
    agree(gate, make_traced(gate, executor=(whole, "aten"), strict=True), X, X.t())


def test_what_is_not_named_runs_nothing():
    with pytest.raises(CompileError) as caught:
        make_traced(gate, executor=some())(X, X.t())
    assert caught.value.message == "'device' does not take 4 of 6 nodes"
    assert caught.value.remedy == "Let torch run the rest: add 'aten' to the executors."
    both = make_traced(gate, executor=(some(), device(*LEFT[:3], name="other")))
    with pytest.raises(CompileError) as caught:
        both(X, X.t())
    assert str(caught.value).splitlines()[:2] == [
        "'device' and 'other' do not take 1 of 6 nodes",
        "    - %t: prims.transpose.default: device: prims.transpose.default is not for it; "
        f"other: prims.transpose.default is not for it {line()}",
    ]


def test_primitives_or_nothing():
    def pool(x):
        return torch.nn.functional.max_pool1d(x, 2)

    agree(pool, make_traced(pool, executor="prims"), X)
    with pytest.raises(CompileError) as caught:
        make_traced(pool, executor="prims", strict=True)(X)
    assert re.fullmatch(r"'prims' does not take \d of \d+ nodes", caught.value.message)
    told = r"- %max_pool1d_\w+: aten\.[\w.]+: torch has no reference for it"
    assert re.fullmatch(told, caught.value.picture.split(" (at")[0])  # which one is torch's matter


def test_the_denotation_takes_part():
    def function(x):
        added = torch.ops.aten._foobar(x)  # which nothing denotes
        return added * x + torch.nn.functional.dropout(x.sin(), 0.5, True)

    traced = make_traced(function, executor=("reference", "aten"))
    report = traced.report(X)
    if report.executors == ("reference",):
        pytest.fail("it is to be shared")
    torch.manual_seed(0)
    expected = function(X)
    torch.manual_seed(0)
    torch.testing.assert_close(traced(X), expected)


def test_sizes_and_weights_pass_between_executors():
    net = torch.nn.Linear(3, 4)

    def function(x):
        return (net(x).exp() * x.shape[0]).view(-1), x.sum().item()

    parts = device("aten.exp.default", "aten.mul.Tensor", "aten.view.default")
    traced = make_traced(function, executor=(parts, "aten"), dialect="core_aten", dynamic=True)
    with torch.no_grad():
        for rows in (2, 3, 5):
            agree(function, traced, torch.ones(rows, 3), times=1)
        net.weight.mul_(2)
        agree(function, traced, X, times=1)
    assert traced.cache_info()[:2] == (3, 1)
    assert parts.bodies


def test_writes_are_made_once_after_all_parts_ran():
    def function(x, y):
        x.mul_(y).add_(1)
        return x.exp()

    for executor in ((device("prims.mul.default"), "aten"), "prims"):
        agree(function, make_traced(function, executor=executor), X, X + 1)


@pytest.mark.parametrize("executor", ["prims", "reference"])
def test_arguments_may_lie_in_memory_as_they_like(executor: str):
    for function in (
        lambda x: x.reshape(-1),
        lambda x: x[::2],
        lambda x: x.view(3, 2, 1) + 1,
        lambda x: x.flatten() * 2,
        lambda x: x.expand(4, 3, 2).reshape(-1),
        lambda x: x.unfold(0, 2, 1),
    ):
        traced = make_traced(function, executor=executor)
        assert torch.equal(traced(X.t()), function(X.t()))


@pytest.mark.parametrize("executor", ["prims", "reference"])
def test_arguments_may_be_conjugated_lazily(executor: str):
    x = torch.complex(X, X + 1).conj()
    assert x.is_conj()
    for function, given in ((lambda x: x * 2, x), (lambda x: x + 1, x.imag)):
        traced = make_traced(function, executor=executor)
        assert torch.equal(traced(given), function(given))


def test_another_executor_is_a_reason_to_trace():
    traced = make_traced(gate)
    traced(X, X.t())
    expected = "executor was aten, and is reference, prims"
    assert traced.explain_miss(X, X.t(), executor=("reference", "prims")) == expected


@pytest.mark.parametrize("executor", ["prims", "reference"])
def test_reading_memory_by_strides_is_left_to_torch(executor: str):
    def function(x):
        return x.t().as_strided((2,), (2,))

    with pytest.raises(Exception, match=r"as_strided\.default reads memory by strides"):
        make_traced(function, executor=executor)(X)
    agree(function, make_traced(function, executor=(executor, "aten")), X)


def test_reading_memory_by_strides_in_a_branch_of_a_branch_is_left_to_torch():
    def function(x):
        def strided(x):
            return x.t().as_strided((2,), (2,)) + 0

        def outer(x):
            return torch.cond(x.min() > -9, strided, lambda x: x.sum(1)[:2] + 0, (x,))

        return torch.cond(x.max() > -9, outer, lambda x: x.sum(1)[:2] + 0, (x,))

    with pytest.raises(Exception, match=r"as_strided\.default reads memory by strides"):
        make_traced(function, executor="prims")(X)


def test_a_result_is_no_argument_unless_it_is_in_eager():
    def function(x):
        return x.detach(), x, x.contiguous()

    x = X.clone().requires_grad_()
    detached, same, contiguous = make_traced(function, executor="prims")(x)
    assert not detached.requires_grad
    assert same is x
    assert torch.equal(contiguous, x)


# -- numbers, control flow, sizes -----------------------------------------------------------------


@pytest.mark.parametrize("executor", ["prims", "reference"])
def test_numbers_go_in_and_out(executor: str):
    def function(x, s):
        return x * x.sum().item() + s, (x.shape[0], x.max().item()), s

    traced = make_traced(function, executor=executor)
    agree(function, traced, X, 2.5)
    agree(function, traced, X * 2, 2.5)
    assert traced.cache_info().misses == 1


@pytest.mark.parametrize("executor", ["prims", ("aten", "reference")])
def test_numbers_under_autocast(executor: str):
    def function(x):
        return x * x.sum().item(), x.max().item()

    traced = make_traced(function, executor=executor)
    with torch.autocast("cpu"):
        agree(function, traced, X)
        agree(function, traced, X * 2)
    assert traced.cache_info().misses == 1


def test_numbers_that_leave_a_region_are_refused():
    def function(x):
        with torch.no_grad():
            largest = x.max().item()
        return x * largest

    traced = make_traced(function)
    agree(function, traced, X)
    with pytest.raises(ExecutionError) as caught:
        traced(X.clone().requires_grad_())
    assert str(caught.value) == (
        "the function reads a number from a tensor in a region of autocast or without gradients, "
        "and uses it outside of the region\n"
        "Read it outside of the region, or keep it in a tensor."
    )


@pytest.mark.parametrize("executor", ["prims", "reference"])
def test_control_flow(executor: str):
    while_loop, mapped = torch._higher_order_ops.while_loop, torch._higher_order_ops.map

    def branch(x):
        return torch.cond(x.sum() > 0, lambda x: torch.softmax(x, -1), lambda x: x - 1, (x,))

    def loop(x):
        first = (torch.tensor(0), x)
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.softmax(x, -1)), first)

    def rows(x):
        return mapped(lambda row: torch.softmax(row, -1), x)

    for function in (branch, loop, rows):
        traced = make_traced(function, executor=executor)
        agree(function, traced, X, times=1)
        agree(function, traced, -X, times=1)
    body = make_ir(branch)(X).functions["true_graph_0"]
    assert {node.op_type.partition(".")[0] for node in body.nodes} == {"prims"}


@pytest.mark.parametrize("executor", ["aten", "prims", "reference"])
@pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
def test_views_that_only_turned_inputs_have(executor: str, is_written: bool):
    def function(x):
        whole = x * 1
        line = whole.t().view(-1)
        if is_written:
            line[::2].mul_(2)
        return whole + 1, line.sin().view(4, 3)

    traced = make_traced(function, executor=executor)
    x = torch.arange(12.0).view(4, 3).t()
    torch.testing.assert_close(traced(x), function(x))
    given = x.detach().requires_grad_()
    for cotangent in (torch.rand(4, 3), torch.tensor(2.0).expand(4, 3)):
        found, expected = (
            torch.autograd.grad(run(given)[1], given, cotangent) for run in (traced, function)
        )
        torch.testing.assert_close(found, expected)


def test_random_numbers_that_are_drawn_in_the_order_of_turned_inputs():
    def function(x):
        return torch.dropout(x * 2, 0.3, train=True) + torch.rand_like(x)

    wide = torch.randn(6, 16)
    for x in (wide, wide[:, ::2], wide[1:3], wide[:1].t()):
        agree(function, make_traced(function, executor="prims"), x.contiguous())
        torch.manual_seed(0)
        expected = function(x)
        torch.manual_seed(0)
        assert torch.allclose(make_traced(function, executor="prims")(x), expected)
    agree(function, make_traced(function, executor=["prims", "aten"]), wide.t())
    with pytest.raises(ExecutionError) as caught:
        make_traced(function, executor="prims")(wide.t())
    assert caught.value.message.startswith(
        "%dropout: aten.dropout.default draws random numbers in the order of memory, and here "
        "tensors may lie in another way"
    )


@pytest.mark.parametrize("call", ["cond", "while_loop", "scan", "map"])
def test_a_body_is_handed_the_numbers_that_torch_baked_into_it(call: str):
    # from the second size on torch hands a size to each body, and records no value for it there
    higher = torch._higher_order_ops

    def function(x):
        size = x.shape[0]
        if call == "cond":
            return torch.cond(x.sum() > 0, lambda x: x.relu() * size, lambda x: x - size, (x,))
        if call == "while_loop":
            first = (torch.tensor(0), x)
            return higher.while_loop(
                lambda i, x: i < 3, lambda i, x: (i + 1, x.relu() * size), first
            )
        if call == "scan":
            start = torch.zeros(3)
            return higher.scan(lambda c, row: (c + row * size, c * 2), start, x)
        return higher.map(lambda row: row.relu() * size, x)

    torch._dynamo.reset()
    traced = make_traced(function, executor="prims")
    for size in (3, 4, 5):
        x = torch.randn(size, 3, generator=torch.Generator().manual_seed(size))
        agree(function, traced, x, times=1)
        ir = make_ir(function)(x)
        assert ir.check() == ()
        numbers = [
            leaf.value
            for body in ir.functions.values()
            for leaf in leaves(body.signature.inputs)
            if isinstance(leaf, ValueLeaf)
        ]
        assert set(numbers) <= {size}


def test_primitives_of_symbolic_sizes():
    def function(x):
        return torch.softmax(x.view(-1), 0) * x.shape[0]

    traced = make_traced(function, executor="prims", dynamic=True)
    for rows in (2, 4, 7):
        agree(function, traced, torch.randn(rows, 3), times=1)
    assert traced.cache_info()[:2] == (2, 1)
    assert "prims.exp.default" in {n.op_type for n in traced.ir(X).nodes}


# -- names ----------------------------------------------------------------------------------------


def test_names_are_checked_before_anything_is_traced():
    def function(x):
        raise AssertionError

    for given in ("inductr", ("aten", "inductr")):
        with pytest.raises(InputError) as caught:
            make_traced(function, executor=given)
        assert str(caught.value) == (
            f"there is no executor 'inductr'\nThere are {LISTED}. Did you mean inductor?"
        )
        with pytest.raises(InputError, match="there is no executor 'inductr'"):
            make_traced(function)(X, executor=given)
        with pytest.raises(InputError, match="there is no executor 'inductr'"):
            execute(make_fx(torch.neg)(X), X, executor=given)


LISTED = "aten, prims, auto, executorch, inductor, onnxruntime, openvino, reference, tuned"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "an executor is a name or a DelegateBackend, got int"),
        ((), f"no executor is given\nThere are {LISTED}."),
        (("aten", "aten"), "the executor 'aten' is given twice"),
    ],
)
def test_what_names_no_executor_is_refused(given: object, message: str):
    with pytest.raises(InputError) as caught:
        make_traced(gate, executor=given)
    assert str(caught.value) == message


def test_parameters_are_those_of_the_executor():
    with pytest.raises(InputError) as caught:
        execute(make_fx(torch.neg)(X), X, executor_parameters={"fast": True})
    assert str(caught.value) == (
        "the executor 'aten' takes no parameters, got fast\n"
        "The executor 'inductor' takes its own options."
    )
    for parameters, said in [
        (
            {"max_autotun": True},
            "the backend 'inductor' has no option 'max_autotun'\nDid you mean",
        ),
        ({"qqq": 1}, "the backend 'inductor' has no option 'qqq'\nIt has a"),
        ({"max-autotune": "yes"}, "the backend 'inductor' takes no max_autotune='yes'\nIt takes"),
    ]:
        with pytest.raises(ExecutionError) as caught:
            make_traced(gate)(X, X, executor="inductor", executor_parameters=parameters)
        assert str(caught.value).startswith(said)


def test_backends_of_other_packages_are_executors(monkeypatch: pytest.MonkeyPatch):
    points = [EntryPoint("theirs", "backends.graphs:Interpreter", backend_registry.GROUP)]
    monkeypatch.setattr(extensions, "entry_points", lambda group: EntryPoints(points))
    traced = make_traced(gate, executor=("theirs", "aten"))
    assert traced(X, X.t()).equal(gate(X, X.t()))


def test_a_registered_backend_is_an_executor():
    register_backend("device")(some())
    try:
        traced = make_traced(gate)
        result = traced(X, X.t(), executor=("device", "aten"))
        report = traced.report(X, X.t(), executor=("device", "aten"))
    finally:
        unregister_backend("device")
    torch.testing.assert_close(result, gate(X, X.t()))
    assert report.executors == ("aten", "device")


# -- execute --------------------------------------------------------------------------------------


def test_graphs_of_others_are_shared_too():
    graph = make_fx(gate)(X, X.t())
    program = make_ir(gate)(X, X.t())
    for given in (graph, program):
        backend = some()
        result = execute(given, X, X.t(), executor=(backend, "aten"))
        torch.testing.assert_close(result, gate(X, X.t()))
        assert len(backend.bodies) == 2
        with pytest.raises(CompileError, match="'device' does not take 4 of 6 nodes"):
            execute(given, X, X.t(), executor=(some(), "aten"), strict=True)
        with pytest.raises(CompileError, match="'device' does not take 4 of 6 nodes"):
            execute(given, X, X.t(), executor=some())


# -- inductor -------------------------------------------------------------------------------------


def has_compiler() -> bool:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


@pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_inductor_compiles_a_program_and_its_gradient():
    def function(x):
        return torch.softmax(x @ x.t(), -1).cumsum(0), x.t()

    traced = make_traced(function, executor="inductor")
    x, y = (X / 8).requires_grad_(), (X / 8).requires_grad_()
    for _ in range(2):
        ours, theirs = traced(x), function(y)
        torch.testing.assert_close(ours, theirs)
        (mine,) = torch.autograd.grad(ours[0].square().sum(), x)
        (other,) = torch.autograd.grad(theirs[0].square().sum(), y)
        torch.testing.assert_close(mine, other)
    assert traced.report(x).executors == ("inductor",)


def test_inductor_leaves_random_numbers_to_torch():
    def function(x):
        return torch.nn.functional.dropout(x, 0.5, True).exp()

    report = make_traced(function, executor=("inductor", "aten")).report(X)
    assert [(node.operator, node.executor) for node in report.nodes] == [
        ("aten.dropout.default", "aten"),
        ("aten.exp.default", "inductor"),
    ]
    with pytest.raises(CompileError, match="'inductor' does not take 1 of 2 nodes"):
        make_traced(function, executor="inductor")(X)


def test_a_missing_compiler_is_an_error_and_nothing_else_runs():
    traced = make_traced(torch.exp, executor=("inductor", "aten"))
    with (
        inductor_config.patch({"cpp.cxx": ("no_such_compiler",)}),
        pytest.raises(OptionalDependencyError) as caught,
    ):
        traced(X)
    assert str(caught.value) == (
        "inductor needs a C++ compiler, and there is none\n"
        "Install one (such as g++), name it in the variable CXX, or use another executor."
    )
