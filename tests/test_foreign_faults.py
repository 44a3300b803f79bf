"""What the code of another package raises names that code, and is no fault of torch-ir."""

import pytest
import torch

import torch_ir
from torch_ir.backends import SUPPORTED, Partitioner, support
from torch_ir.cli.files import write_ir
from torch_ir.dialects import dialect, verify, with_rules
from torch_ir.ir.analysis.costs import cost
from torch_ir.ops.flops import counts_operations
from torch_ir.passes import Pass, PassResult, run_passes
from torch_ir.viz import register_viewer
from torch_ir.viz.viewers import VIEWERS

IR = torch_ir.parse("""ir {
  dialect "aten"
  input %x: f32[2]
  %y: f32[2] = aten.relu.default(%x)
  return %y
}""")
X = torch.ones(2)
CODE = "The fault is in its code; --traceback shows all of it."
SUPPORT = "Return torch_ir.backends.SUPPORTED, or Support.refused(reason)."


def fails(*args, **kwargs):
    raise LookupError("no power")


class Device(torch_ir.DelegateBackend):
    """A backend that says of every node what its class says."""

    name = "dev"
    said = SUPPORTED

    def supports(self, node, ir):
        return self.said(node) if callable(self.said) else self.said

    def compile(self, ir, payload):
        return lambda x: (x.relu(),)


class Raises(Device):
    said = fails


class Agrees(Device):
    said = True


class Still(Pass):
    name = "still"

    def call(self, ir):
        return ir


def rule(scope, node):
    fails()
    yield


def asked(backend, kind, *rest):
    """What every door says of a backend that does not answer."""
    told = "asked for node 'y' (aten.relu.default), the backend 'dev' "
    for door in (
        lambda: support(IR, backend()),
        lambda: Partitioner(backend())(IR),
        lambda: torch_ir.compile(IR, {}, backend=backend),
        lambda: torch_ir.validate(IR, {}, (X,), backend=backend),
    ):
        with pytest.raises(torch_ir.BackendError) as caught:
            door()
        assert str(caught.value) == "\n".join([told + kind, *rest])


def test_a_backend_that_does_not_say_what_it_supports_is_named():
    asked(Raises, "failed: LookupError: no power", CODE)
    asked(Agrees, "gave a value of type bool, not a Support", SUPPORT)


class GivesNothing(Device):
    def compile(self, ir, payload):
        return None


class Nameless(torch_ir.DelegateBackend):
    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        return lambda x: (x.relu(),)


@pytest.mark.parametrize(
    "door",
    [
        lambda: torch_ir.compile(IR, {}, backend=GivesNothing()),
        lambda: torch_ir.validate(IR, {}, (X,), backend=GivesNothing()),
        lambda: torch_ir.compare(IR, {}, (X,), against=GivesNothing()),
    ],
    ids=["compile", "validate", "compare"],
)
def test_a_backend_that_compiles_to_no_function_is_told_when_it_compiles(door):
    with pytest.raises(torch_ir.BackendError) as caught:
        door()
    assert str(caught.value) == (
        "asked to compile 'dev_0', the backend 'dev' gave a value of type NoneType, not a "
        "function\n"
        "Return a function that takes the inputs in order and gives the outputs."
    )


@pytest.mark.parametrize("backend", [Nameless, Nameless()], ids=["class", "instance"])
def test_a_backend_without_a_name_is_refused(backend):
    for door in (
        lambda: torch_ir.compile(IR, {}, backend=backend),
        lambda: torch_ir.validate(IR, {}, (X,), backend=backend),
    ):
        with pytest.raises(torch_ir.ExecutionError) as caught:
            door()
        assert str(caught.value) == (
            "backend=: the backend Nameless has no name\n"
            "Give the class Nameless an attribute name, a text."
        )


def counted():
    counts_operations("torch_ir_test_faults.op.default")(fails)
    cost(IR.replace(nodes=[IR.nodes[0].replace(op_type="torch_ir_test_faults.op.default")]))


def viewed():
    register_viewer("faults")(fails)
    try:
        write_ir(IR, None, "faults")
    finally:
        VIEWERS.unregister("faults")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: torch_ir.compile(IR, {}, backend=fails), "the backend "),
        (
            lambda: verify(IR, with_rules(dialect("aten"), rule, name="mine")),
            "the rule rule of the dialect 'mine' ",
        ),
        (counted, "the operation count of torch_ir_test_faults.op.default "),
        (viewed, "the viewer 'faults' "),
    ],
    ids=["backend", "rule", "count", "viewer"],
)
def test_code_that_fails_is_named(call, told):
    with pytest.raises(torch_ir.TorchIRError) as caught:
        call()
    assert str(caught.value).startswith(told)
    assert str(caught.value).endswith(f"failed: LookupError: no power\n{CODE}")


def yields_text(scope, node):
    yield "too many"


def test_what_rules_and_counts_give_is_looked_at():
    with pytest.raises(torch_ir.TorchIRError) as caught:
        verify(IR, with_rules(dialect("aten"), yields_text, name="mine"))
    assert str(caught.value) == (
        "the rule yields_text of the dialect 'mine' failed: TypeError: it yields 'too many', "
        f"which is no violation; see scope.violation\n{CODE}"
    )
    op_type = "torch_ir_test_faults.text.default"
    counts_operations(op_type)(lambda arguments, results: "many")
    with pytest.raises(torch_ir.TorchIRError) as caught:
        cost(IR.replace(nodes=[IR.nodes[0].replace(op_type=op_type)]))
    assert str(caught.value) == (
        f"the operation count of {op_type} failed: TypeError: it gave 'many', which "
        f"counts nothing\n{CODE}"
    )


class Zeroes(torch_ir.DelegateBackend):
    """Gives the right results, and writes to what it is given."""

    name = "zeroes"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        run = torch_ir.IRExecutor(ir, {})

        def call(x):
            made = run(x)
            x.zero_()
            return made

        return call


def test_a_backend_that_writes_to_its_inputs_disagrees():
    report = torch_ir.validate(IR, {}, (X,), backend=Zeroes)
    assert report.verdict == "disagree"
    assert "the backend writes to its input %x" in str(report)


class Overwrites(torch_ir.DelegateBackend):
    """Gives the right results, and adds to the weights that it holds, then or when."""

    name = "overwrites"

    def __init__(self, compiling: bool):
        self.compiling = compiling

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        def write():
            for tensor in payload.values():
                tensor.add_(1)

        def call(*given):
            held = dict(payload)
            left = iter(given)
            inputs = [held[n] if n in held else next(left) for n in ir.input_names]
            made = [result.clone() for result in run(*inputs)]
            if not self.compiling:
                write()
            return made

        run = torch_ir.IRExecutor(ir, {})
        if self.compiling:
            write()
        return call


COPIES = "It has to write to copies: what it is given is the caller's."


@pytest.mark.parametrize("compiling", [True, False])
def test_a_backend_that_writes_to_weights_is_told_of(compiling):
    model = torch.nn.Linear(2, 3).eval()
    ir = torch_ir.extract_ir(model, (X,))

    def weights():
        return {key: value.clone() for key, value in model.state_dict().items()}

    backend = Overwrites(compiling)
    if compiling:
        for inputs in ((), ((X,),)):
            use = torch_ir.validate if inputs else torch_ir.compile
            with pytest.raises(torch_ir.BackendError) as caught:
                use(ir, weights(), *inputs, backend=backend)
            told = "the backend 'overwrites' writes to the weight %p_weight while it compiles"
            assert str(caught.value) == f"{told}\n{COPIES}"
        return
    told = "the backend 'overwrites' writes to the weight %p_weight"
    with pytest.raises(torch_ir.ExecutionError, match=told):
        torch_ir.compile(ir, weights(), backend=backend)(X)
    report = torch_ir.validate(ir, weights(), (X,), backend=backend)
    assert report.verdict == "disagree"
    assert told in str(report).replace("\n      ", " ")
    comparison = torch_ir.compare(ir, weights(), (X,), run=backend)
    assert told in str(comparison).replace("\n      ", " ")


def test_a_compiled_program_refuses_a_backend_that_writes_to_an_argument():
    x = torch.ones(2)
    told = "the backend 'zeroes' writes to its input %x"
    with pytest.raises(torch_ir.ExecutionError, match=told):
        torch_ir.compile(IR, {}, backend=Zeroes())(x)


def test_a_pass_gives_a_result_of_a_pass():
    with pytest.raises(torch_ir.PassError) as caught:
        run_passes(IR, [Still()])
    assert str(caught.value) == (
        "the pass still gave a value of type IR, not a PassResult\n"
        "Return PassResult(ir, modified)."
    )


class Gives(Pass):
    name = "gives"
    result = None

    def call(self, ir):
        return self.result


def test_a_pass_gives_a_program_and_says_that_it_changed_it():
    wrong, right = Gives(), Gives()
    object.__setattr__(wrong, "result", PassResult("no program", True))
    with pytest.raises(torch_ir.PassError) as caught:
        run_passes(IR, [wrong])
    assert str(caught.value) == (
        "the pass gives gave a str in place of a program\nReturn PassResult(ir, modified)."
    )
    changed = IR.replace(nodes=[node.replace(op_type="aten.neg.default") for node in IR.nodes])
    object.__setattr__(right, "result", PassResult(changed, False))
    assert run_passes(IR, [right]).modified
    with pytest.raises(torch_ir.PassError, match="made a program that computes something else"):
        run_passes(IR, [right], validate="each", inputs=(X,))


def test_a_backend_that_gives_nothing_is_told_when_it_is_asked():
    with pytest.raises(torch_ir.BackendError) as caught:
        torch_ir.compile(IR, {}, backend=lambda ir, weights, options: None)
    assert caught.value.message.endswith("gave a value of type NoneType, not a function")
    assert caught.value.remedy == "Return a function that takes the model's own arguments."


def test_a_function_of_a_file_is_verified_as_a_backend(tmp_path):
    file = tmp_path / "whole.py"
    file.write_text(
        "from torch_ir import IRExecutor\n\n\ndef whole(ir, weights, options):\n"
        "    return IRExecutor(ir, weights)\n"
    )
    report = torch_ir.validate(IR, {}, (X,), backend=f"{file}:whole")
    assert report.verdict == "agree"
