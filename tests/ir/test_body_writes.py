"""Functions that write what they are given: where the operator lets them, the call writes it."""

from contextlib import suppress

import pytest
import torch
from torch import nn

from older_torch import since_2_13
from torch_ir import (
    IRExecutor,
    compile_graph,
    cost,
    decompose,
    extract_ir,
    fingerprint,
    functionalize,
    parse,
    plan_memory,
    to_edge,
    to_exported_program,
    view_html,
)
from torch_ir.errors import CompileError, PassError, TorchIRError
from torch_ir.ops.bodies import BODY_CALLS
from torch_ir.passes import outline
from torch_ir.passes.cutting import cut

MATRIX, POSITION = "f32[2, 4]", "i32[]"
TYPES = {"s": "f32[]", "i": "i64[]"} | {f"h{index}": POSITION for index in range(1, 5)}
PAIR = "a b"
SCOPES = {
    "invoke_subgraph": 'operands=[%x, %v], identifier="f", subgraph=&f',
    "strict_mode": "operands=[%x, %v], callable=&f",
    "tag_activation_checkpoint": "args=[%x, %v], gmod=&f",
    "hints_wrapper": "args=[%x, %v], kwargs={}, hints={}, body_fn=&f",
    "wrap": "args=[%x, %v], func=&f",
    "autograd_function": "args=[%x, %v], fwd=&f, bwd=&g",
    "wrap_with_set_grad_enabled": "args=[%x, %v], enable_grad=False, wrapped_func=&f",
    "wrap_with_autocast": 'args=[%x, %v], device_type="cpu", dtype=None, enabled=False, '
    "cache_enabled=None, wrapped_func=&f",
}
CALLS = {
    "cond": ("pred=%p, operands=[%x, %v], true_fn=&f, false_fn=&g", {"f": PAIR, "g": PAIR}, "ab"),
    "while_loop": (
        "carried_inputs=[%n, %x], additional_inputs=[%v], cond_fn=&g, body_fn=&f, "
        'mutated_arg_indices="2"',
        {"f": "i a b", "g": "i a b"},
        "b",
    ),
    "scan": (
        "init=[%x], xs=[%rows], additional_inputs=[%v], combine_fn=&f",
        {"f": "a r b"},
        "b",
    ),
    "associative_scan": ("xs=[%rows], additional_inputs=[], combine_fn=&f", {"f": PAIR}, ""),
    "map_impl": ("xs=[%rows], pos_args=[%v], f=&f", {"f": PAIR}, "a"),
    "flex_attention": (
        "query=%q, key=%q, value=%q, score_mod=&f, block_mask=[1, 1, &g], scale=1.0, "
        "kernel_options={}, score_mod_other_buffers=[%x], mask_mod_other_buffers=[%v]",
        {"f": "s h1 h2 h3 h4 a", "g": "h1 h2 h3 h4 b"},
        "",
    ),
} | {name: (call, {"f": PAIR}, "ab") for name, call in SCOPES.items()}
WAYS = {
    "in place": "%w: {t} = aten.add_.Tensor(%{v}, other=1)",
    "out": "%w: {t} = aten.neg.out(%{v}, out=%{v})",
    "through a view": "%u: {t} = aten.detach.default(%{v})\n"
    "    %m: {t} = aten.neg.default(%u)\n    %w: {t} = aten.copy_.default(%u, %m)",
    "in a function": "%w.0: {t} = w: higher_order.invoke_subgraph(operands=[%{v}], "
    "subgraph=&inner)",
}


def function(name, taken, line=""):
    """A function in text, which gives its first matrix, or what the operator keeps."""
    inputs = "\n    ".join(f"input %{value}: {TYPES.get(value, MATRIX)}" for value in taken)
    value = line.partition("operands=[%")[2][:1]
    of_it = TYPES.get(value, MATRIX)
    inner = f"""func &inner "inner" {{
      signature ((%a,), {{}}) -> (%c,)
      input %a: {of_it}
      %b: {of_it} = aten.add_.Tensor(%a, other=1)
      %c: {of_it} = aten.neg.default(%b)
      return %c
    }}"""
    return f"""func &{name} "{name}" {{
    signature (({", ".join("%" + value for value in taken)},), {{}}) -> (%y,)
    {inner if value else ""}
    {inputs}
    {line}
    %y: {TYPES.get(taken[0], MATRIX)} = aten.neg.default(%{taken[0]})
    return %y
  }}"""


def program(operator, writer="", value="", way="in place"):
    """A program in which one function writes one of its inputs."""
    call, functions, _ = CALLS[operator]
    newline, texts = "\n  ", []
    for name, takes in functions.items():
        taken = takes.split()
        line = WAYS[way].format(v=value, t=TYPES.get(value, MATRIX)) if name == writer else ""
        texts.append(function(name, taken, line))
    if operator == "autograd_function":
        texts.append(function("g", ["a"]))
    return parse(
        f"""ir "call" {{
  {newline.join(texts)}
  input %x: {MATRIX}
  input %v: {MATRIX}
  input %rows: f32[5, 2, 4]
  input %q: f32[1, 2, 4, 4]
  input %n: i64[]
  input %p: b8[]
  %c.0: {MATRIX} = c: higher_order.{operator}({call})
  return %c.0
}}"""
    )


def writes(ir):
    """What findings say of functions that write."""
    return [found for found in ir.check() if "which the call does not let it" in found.message]


def test_every_operator_that_takes_functions_is_here():
    assert {f"higher_order.{name}" for name in CALLS} == {*BODY_CALLS}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("operator", CALLS)
def test_a_function_writes_what_the_operator_lets_it_alone(operator, way):
    assert writes(program(operator)) == []
    _, functions, allowed = CALLS[operator]
    for name, takes in functions.items():
        for value in takes.split():
            if not value.startswith("h"):
                ir = program(operator, name, value, way)
                found = writes(ir)
                assert [one.code for one in found] == ["bad-call"] * (value not in allowed), value
                if found:
                    assert found[0].node == "c"
                    assert f"&{name} writes %{value}" in found[0].message
                else:
                    written = {"a": {"x"}, "b": {"v"}}[value]
                    assert ir.aliases.written == ({"rows"} if operator == "map_impl" else written)


def test_what_check_refuses_does_not_compile():
    ir = parse("""ir {
      func &f {
        signature ((%a, %r), {}) -> (%y, %y)
        input %a: f32[2]
        input %r: f32[2]
        %w: f32[2] = aten.mul_.Tensor(%r, %a)
        %y: f32[2] = aten.neg.default(%w)
        return %y, %y
      }
      input %x: f32[2]
      input %rows: f32[5, 2]
      %c.0: f32[2], %c.1: f32[5, 2] = c: higher_order.scan(init=[%x], xs=[%rows], \
additional_inputs=[], combine_fn=&f)
      return %c.0, %c.1
    }""")
    assert len(ir.check()) == 1
    with pytest.raises(CompileError) as caught:
        compile_graph(ir)
    assert "&f writes %r, which the call does not let it" in caught.value.message
    assert "aten.copy_.default" in str(caught.value)


@pytest.mark.parametrize("listed", ["", "0", "1", "0,1"])
def test_a_loop_lists_what_its_functions_write(listed):
    text = str(program("while_loop", "f", "b"))
    ir = parse(text.replace('mutated_arg_indices="2"', f'mutated_arg_indices="{listed}"'))
    (finding,) = writes(ir)
    assert finding.expected == "position 2 in mutated_arg_indices"
    assert finding.found == repr(listed)


@pytest.mark.parametrize("listed", ["two", "2,", "3", "-1", "2,99", "2.0", " 2"])
def test_a_loop_lists_positions(listed):
    text = str(program("while_loop"))
    ir = parse(text.replace('mutated_arg_indices="2"', f'mutated_arg_indices="{listed}"'))
    found = [one for one in ir.check() if "lists no positions" in one.message]
    assert [(one.code, one.found) for one in found] == [("bad-call", repr(listed))]


UNKNOWN = """ir {
  func &f {
    signature ((%a,), {}) -> (%y,)
    input %a: f32[2]
    %y: f32[2] = aten.neg.default(%a)
    return %y
  }
  input %v: f32[1]
  %c.0: f32[2] = c: higher_order.foreach_map(operands=[%v], fn=&f)
  return %c.0
}"""


def test_an_operator_of_which_nothing_is_known_calls_no_function():
    (finding,) = parse(UNKNOWN).check()
    assert (finding.code, finding.found) == ("bad-call", "&f")
    with pytest.raises(CompileError, match="foreach_map hands to functions"):
        compile_graph(parse(UNKNOWN))


CALL = UNKNOWN.replace("foreach_map(operands=[%v], fn=&f)", "{call}").replace("f32[1]", "f32[2]")
READERS = {
    "decompose": decompose,
    "to_edge": to_edge,
    "plan": plan_memory,
    "exported program": to_exported_program,
    "cost": cost,
    "fingerprint": fingerprint,
    "outline": outline,
    "functionalize": functionalize,
    "view": view_html,
    "compile": compile_graph,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "call",
    [
        "invoke_subgraph(operands=[%v], subgraph=&gone)",
        "invoke_subgraph(operands=[%v], subgraph=[&f, &f])",
        "invoke_subgraph(operands=[%v], subgraph=3)",
        "cond(pred=%v, operands=[%v], true_fn=&f, false_fn=&gone)",
        "wrap_with_set_grad_enabled(args=[%v], enable_grad=True, wrapped_func=&gone)",
    ],
)
def test_who_reads_a_call_of_no_function_raises_an_error_of_ours(call, reader):
    ir = parse(CALL.replace("{call}", call))
    assert ir.check()
    with suppress(TorchIRError):  # some look at nothing that functions do
        READERS[reader](ir)


WRITING = since_2_13("exports no branch that writes")


class Counted(nn.Module):
    """A branch counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        def more(y):
            self.count.view(-1).add_(1)
            return y + self.count

        return torch.cond(x.sum() > 0, more, lambda y: y - self.count, (x,)) + self.count


@pytest.fixture
def counted():
    with torch.no_grad():  # otherwise torch traces no branch that writes
        return extract_ir(Counted(), (torch.ones(2, 3),))


@WRITING
def test_a_buffer_that_a_branch_writes_is_kept_from_call_to_call(counted):
    assert [mutation.target for mutation in counted.mutations] == ["b_count"]
    assert counted.check() == ()
    model = Counted()
    executor = IRExecutor(counted, dict(Counted().named_buffers()))
    for sign in (1, -1, 1):
        x = sign * torch.ones(2, 3)
        with torch.no_grad():
            torch.testing.assert_close(executor(x), model(x), rtol=0, atol=0)
    torch.testing.assert_close(executor.buffers["count"], model.count)


@WRITING
def test_a_buffer_that_a_branch_writes_is_declared(counted):
    (finding,) = counted.replace(mutations=()).check()
    assert (finding.code, "%b_count" in finding.message) == ("undeclared-mutation", True)


@WRITING
def test_a_cut_does_not_part_a_branch_from_what_reads_its_writes(counted):
    with pytest.raises(PassError, match="writes memory that node"):
        cut(counted, outputs=[counted.nodes[-2].outputs[0].name])
