"""Calls of functions: what is handed to each, and what it gives, is what its signature says."""

from __future__ import annotations

import pytest

from torch_ir import IR, compile_graph, parse
from torch_ir.errors import CompileError
from torch_ir.ir import FunctionRef, OpNode, Signature, SymExpr, TensorLeaf, TensorMeta
from torch_ir.ir.tree import Container

ADD = """
  func &{name} "{name}" {{
    {symbol}
    signature ((%a, %b), {{}}) -> (%y,)
    input %a: f32[{n}, 4]
    input %b: f32[{n}, 4]
    %y: f32[{n}, 4] = aten.{op}.Tensor(%a, %b)
    return %y
  }}"""
CALL = """ir "call" {{
  {symbol}
  {functions}
  signature ((%x, %v), {{}}) -> (%c.0,)
  input %x: f32[{n}, 4]
  input %v: f32[{n}, 4]
  %c.0: f32[{n}, 4] = c: {call}
  return %c.0
}}"""
COND = """ir "cond" {{
  {symbol}
  {functions}
  signature ((%x, %v, %p), {{}}) -> (%c.0,)
  input %x: f32[{n}, 4]
  input %v: f32[{n}, 4]
  input %p: b8[]
  %c.0: f32[{n}, 4] = c: higher_order.cond(pred=%p, operands=[%x, %v], true_fn=&f, false_fn=&g)
  return %c.0
}}"""
WHILE = """ir "while" {{
  {symbol}
  func &test "test" {{
    {inner}
    signature ((%i, %a, %b), {{}}) -> %t
    input %i: i64[]
    input %a: f32[{k}, 4]
    input %b: f32[{k}, 4]
    %t: b8[] = aten.lt.Scalar(%i, other=3)
    return %t
  }}
  func &step "step" {{
    {inner}
    signature ((%i, %a, %b), {{}}) -> (%j, %y)
    input %i: i64[]
    input %a: f32[{k}, 4]
    input %b: f32[{k}, 4]
    %j: i64[] = aten.add.Scalar(%i, other=1)
    %y: f32[{k}, 4] = aten.add.Tensor(%a, %b)
    return %j, %y
  }}
  signature ((%n, %x, %v), {{}}) -> (%c.0, %c.1)
  input %n: i64[]
  input %x: f32[{n}, 4]
  input %v: f32[{n}, 4]
  %c.0: i64[], %c.1: f32[{n}, 4] = c: higher_order.while_loop(carried_inputs=[%n, %x], \
additional_inputs=[%v], cond_fn=&test, body_fn=&step)
  return %c.0, %c.1
}}"""
SCAN = """ir "scan" {{
  {symbol}
  func &step "step" {{
    {inner}
    signature ((%a, %r, %b), {{}}) -> [%y, %z]
    input %a: f32[{k}, 4]
    input %r: f32[{k}, 4]
    input %b: f32[4]
    %y: f32[{k}, 4] = aten.add.Tensor(%a, %r)
    %z: f32[{k}, 4] = aten.mul.Tensor(%y, %b)
    return %y, %z
  }}
  signature ((%x, %rows, %v), {{}}) -> (%c.0, %c.1)
  input %x: f32[{n}, 4]
  input %rows: f32[5, {n}, 4]
  input %v: f32[4]
  %c.0: f32[{n}, 4], %c.1: f32[5, {n}, 4] = c: higher_order.scan(init=[%x], xs=[%rows], \
additional_inputs=[%v], combine_fn=&step)
  return %c.0, %c.1
}}"""
ASSOCIATIVE = """ir "associative" {{
  {symbol}
  {functions}
  signature ((%x,), {{}}) -> (%c.0,)
  input %x: f32[5, {n}, 4]
  %c.0: f32[5, {n}, 4] = c: higher_order.associative_scan(xs=[%x], additional_inputs=[], \
combine_fn=&f)
  return %c.0
}}"""
MAP = """ir "map" {{
  {symbol}
  {functions}
  signature ((%x, %v), {{}}) -> (%c.0,)
  input %x: f32[5, {n}, 4]
  input %v: f32[{n}, 4]
  %c.0: f32[5, {n}, 4] = c: higher_order.map_impl(xs=[%x], pos_args=[%v], f=&f)
  return %c.0
}}"""
CALLS = {
    "invoke_subgraph": 'invoke_subgraph(operands=[%x, %v], identifier="f", subgraph=&f)',
    "strict_mode": "strict_mode(operands=[%x, %v], callable=&f)",
    "tag_activation_checkpoint": "tag_activation_checkpoint(args=[%x, %v], gmod=&f)",
    "wrap_with_set_grad_enabled": (
        "wrap_with_set_grad_enabled(args=[%x, %v], enable_grad=False, wrapped_func=&f)"
    ),
    "wrap_with_autocast": (
        'wrap_with_autocast(args=[%x, %v], device_type="cpu", dtype=None, enabled=False, '
        "cache_enabled=None, wrapped_func=&f)"
    ),
}


def written(operator, size, inner):
    """A program that calls functions by an operator: a size of the caller, and of the function."""
    symbols = {size, inner} - {"2"}
    outer = "\n  ".join(f"symbol {name}: 2.." for name in symbols if name == size)
    own = "\n    ".join(f"symbol {name}: 2.." for name in symbols if name == inner)
    names = ("f", "g") if operator == "cond" else ("f",)
    functions = "".join(
        ADD.format(name=name, n=inner, symbol=own, op=op)
        for name, op in zip(names, ("add", "mul"), strict=False)
    )
    form = {
        "cond": COND,
        "while_loop": WHILE,
        "scan": SCAN,
        "associative_scan": ASSOCIATIVE,
        "map_impl": MAP,
    }.get(operator, CALL)
    call = f"higher_order.{CALLS.get(operator, '')}"
    text = form.format(n=size, k=inner, symbol=outer, inner=own, functions=functions, call=call)
    return parse("\n".join(line for line in text.splitlines() if line.strip()))


def in_a_function(ir):
    """The program as a function of another one, which calls it."""
    outputs = [
        meta.replace(name=f"o.{index}", producer_node="o", producer_output_idx=index)
        for index, meta in enumerate(ir.graph_outputs)
    ]
    attrs = {"subgraph": FunctionRef("outer"), "identifier": "outer"}
    slots = {"operands": tuple(range(len(ir.graph_inputs)))}
    operator = "higher_order.invoke_subgraph"
    call = OpNode("o", operator, ir.graph_inputs, outputs, attrs, slots)
    return IR([call], ir.graph_inputs, outputs, [], functions={"outer": ir}, symbols=ir.symbols)


def retyped(ir, name, new):
    """The graph with another type for one value, wherever it is used."""

    def changed(metas):
        return [
            meta.replace(shape=new.shape, dtype=new.dtype) if meta.name == name else meta
            for meta in metas
        ]

    nodes = [
        node.replace(inputs=changed(node.inputs), outputs=changed(node.outputs))
        for node in ir.nodes
    ]
    outputs = changed(ir.graph_outputs)
    return ir.replace(nodes=nodes, graph_inputs=changed(ir.graph_inputs), graph_outputs=outputs)


def wrong_types(meta):
    """Other types: of each kind of fault."""
    yield meta.replace(dtype="float64" if meta.dtype != "float64" else "float32")
    yield meta.replace(dtype="int32")
    yield meta.replace(shape=(*meta.shape, 1))
    yield meta.replace(shape=(1, *meta.shape))
    if meta.shape:
        yield meta.replace(shape=meta.shape[:-1])
    for axis, dim in enumerate(meta.shape):
        for other in (1, 3, 0):
            if dim != other:
                shape = [*meta.shape]
                shape[axis] = other
                yield meta.replace(shape=shape)


def without_input(body, index):
    """A function that takes one argument less, and one that takes one more."""
    metas = [*body.graph_inputs]
    gone = metas.pop(index)
    other = next((meta for meta in metas if meta.shape == gone.shape), metas[0])
    nodes = [
        node.replace(inputs=[other if meta.name == gone.name else meta for meta in node.inputs])
        for node in body.nodes
    ]
    return with_inputs(body.replace(nodes=nodes), metas)


def with_inputs(body, metas):
    """A function with other inputs."""
    leaves = Container("tuple", tuple(TensorLeaf(meta.name) for meta in metas))
    inputs = Container("tuple", (leaves, Container("dict")))
    signature = Signature(inputs, body.signature.outputs)
    return body.replace(graph_inputs=metas, signature=signature)


def with_outputs(body, metas):
    """A function with other results."""
    outputs = Container("tuple", tuple(TensorLeaf(meta.name) for meta in metas))
    return body.replace(graph_outputs=metas, signature=Signature(body.signature.inputs, outputs))


def changed_bodies(body):
    """Functions that take or give something else."""
    for meta in (*body.graph_inputs, *body.graph_outputs):
        for other in wrong_types(meta):
            is_truth = (meta.dtype, other.dtype) == ("bool", "bool") and set(other.shape) <= {1}
            if not is_truth:
                yield retyped(body, meta.name, other)
    for index in range(len(body.graph_inputs)):
        if len(body.graph_inputs) > 1:
            yield without_input(body, index)
    yield with_inputs(body, [*body.graph_inputs, TensorMeta("more", (2,), "float32")])
    yield with_outputs(body, [*body.graph_outputs, body.graph_outputs[0]])
    yield with_outputs(body, [*body.graph_outputs, body.graph_inputs[-1]])
    yield with_outputs(body, body.graph_outputs[:-1])


def changed_calls(node):
    """Calls that hand over something else, or record other results."""
    for argument, slots in node.operands.items():
        if isinstance(slots, tuple) and slots:
            for other in (slots[:-1], (*slots, slots[0]), (*slots[:-1], None)):
                kept = sorted(
                    {
                        s
                        for k, v in {**node.operands, argument: other}.items()
                        for s in (v if isinstance(v, tuple) else (v,))
                        if s is not None
                    }
                )
                yield renumbered(node, {**node.operands, argument: other}, kept)
    yield node.replace(outputs=node.outputs[:-1])
    more = node.outputs[-1].replace(name="c.9", producer_output_idx=len(node.outputs))
    yield node.replace(outputs=[*node.outputs, more])


def renumbered(node, operands, kept):
    """The node with only the inputs that arguments take."""
    place = {old: new for new, old in enumerate(kept)}

    def moved(slots):
        if isinstance(slots, tuple):
            return tuple(None if slot is None else place[slot] for slot in slots)
        return place[slots]

    inputs = [node.inputs[index] for index in kept]
    return node.replace(inputs=inputs, operands={k: moved(v) for k, v in operands.items()})


def wrong_programs(ir):
    """Every program that differs from a right one in one type or count at a call."""
    (node,) = ir.nodes
    for name, body in ir.functions.items():
        for other in changed_bodies(body):
            yield ir.replace(functions={**ir.functions, name: other})
    for call in changed_calls(node):
        known = {meta.name for meta in call.outputs}
        if known.issuperset(meta.name for meta in ir.graph_outputs):
            yield ir.replace(nodes=[call])
        else:
            yield with_outputs(ir, call.outputs).replace(nodes=[call])
    for meta in node.outputs:
        for other in wrong_types(meta):
            yield retyped(ir, meta.name, other)
    handed = {
        slot for slots in node.operands.values() if isinstance(slots, tuple) for slot in slots
    }
    for index in handed:
        meta = node.inputs[index]
        for other in wrong_types(meta):
            yield retyped(ir, meta.name, other)


OPERATORS = ("cond", "while_loop", "scan", "associative_scan", "map_impl", *CALLS)
SIZES = (("2", "2"), ("s0", "s0"), ("s0", "k"), ("2", "k"))
PLACES = {"program": lambda ir: ir, "function": in_a_function}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_call_that_fits_is_accepted(operator, sizes):
    ir = written(operator, *sizes)
    for placed in map(in_a_function, (ir, in_a_function(ir))):
        assert placed.check() == ()
    assert ir.check() == ()
    assert compile_graph(ir) is not None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_call_that_does_not_fit_is_refused(operator, sizes, place):
    ir = written(operator, *sizes)
    wrong = [*wrong_programs(ir)]
    assert len(wrong) > 30
    for position, program in enumerate(wrong):
        placed = PLACES[place](program)
        codes = {finding.code for finding in placed.check()}
        assert "bad-call" in codes, str(placed)
        if position % 8 == 0:
            with pytest.raises(CompileError):
                compile_graph(placed)


def test_the_number_of_wrong_calls_that_are_tried():
    tried = sum(len([*wrong_programs(written(op, *size))]) for op in OPERATORS for size in SIZES)
    assert tried * len(PLACES) > 3_000


def block(inputs, results="f32[2, 4]", record="f32[2, 4]"):
    """A function of ``f32[s0, 4]`` and ``f32[2*s0, 4]``, called with two types."""
    return parse(f"""ir "b" {{
      symbol s1: 2..
      symbol s2: 2..
      func &f "f" {{
        symbol s0: 2..8
        signature ((%a, %b), {{}}) -> (%y,)
        input %a: f32[2*s0, 4]
        input %b: f32[s0 + 1]
        %y: {results} = my.op.default(a=%a, b=%b)
        return %y
      }}
      signature ((%x, %v), {{}}) -> (%c.0,)
      input %x: f32[{inputs[0]}, 4]
      input %v: f32[{inputs[1]}]
      %c.0: {record} = c: higher_order.invoke_subgraph(operands=[%x, %v], subgraph=&f)
      return %c.0
    }}""")


@pytest.mark.parametrize(
    ("inputs", "fits"),
    [
        (("6", "4"), True),
        (("2*s1", "s1 + 1"), True),
        (("2*s1 + 4", "s1 + 3"), True),
        (("2*s1*s2", "s1*s2 + 1"), True),
        (("7", "4"), False),
        (("6", "5"), False),
        (("20", "11"), False),
        (("s1", "s1"), False),
        (("2*s1", "s2 + 1"), False),
    ],
)
def test_symbols_of_a_function_stand_for_what_it_is_given(inputs, fits):
    results = "f32[4*s0, 3]"
    for record in ("12", "4*s1", "4*s1 + 8", "4*s1*s2"):
        ir = block(inputs, results, f"f32[{record}, 3]")
        expected = fits and SymExpr(f"2*({inputs[0]})") == SymExpr(record)
        assert (ir.check() == ()) is expected


@pytest.mark.parametrize("value", ["4", "4.0", "True", "`s0`", "None"])
def test_only_none_passes_for_none(value):
    text = f"""ir {{
      symbol s0: 2..
      func &f {{
        signature ((%a, None), {{}}) -> %r
        input %a: f32[2]
        %r: f32[2] = aten.neg.default(%a)
        return %r
      }}
      input %x: f32[2]
      input %y: f32[s0]
      %c: f32[2] = c: higher_order.invoke_subgraph(operands=[%x, {value}], subgraph=&f)
      return %c
    }}"""
    found = parse(text).check()
    assert [finding.code for finding in found] == ([] if value == "None" else ["bad-call"])


def test_a_finding_names_the_function_the_position_and_both_types():
    ir = retyped(written("invoke_subgraph", "2", "2"), "v", TensorMeta("v", (1, 4), "float32"))
    (finding,) = ir.check()
    assert str(finding) == (
        "[bad-call] node 'c': argument 1 of &f is given something else "
        "(expected f32[2, 4], got f32[1, 4])"
    )
    with pytest.raises(CompileError) as caught:
        compile_graph(ir)
    assert str(caught.value).startswith(
        "node 'c': argument 1 of &f is given something else (expected f32[2, 4], got f32[1, 4])"
    )


SELECT = """ir "select" {{
  symbol {size}: 0..
  symbol s0: 2..
  func &f "f" {{
    symbol u0: 0..
    signature ((%a,), {{}}) -> (%i,)
    input %a: f32[4]
    %i: i64[u0, 1] = aten.nonzero.default(%a)
    return %i
  }}
  signature ((%x, %v), {{}}) -> (%c.0,)
  input %x: f32[4]
  input %v: f32[s0]
  %c.0: i64[{size}, 1] = c: higher_order.invoke_subgraph(operands=[%x], subgraph=&f)
  return %c.0
}}"""


@pytest.mark.parametrize("size", ["u0", "u7", "s0", "3", "2*u0"])
def test_a_size_that_a_function_finds_out_is_a_new_symbol(size):
    text = SELECT.format(size=size)
    if not size.isidentifier():
        text = text.replace(f"symbol {size}: 0..\n", "symbol u0: 0..\n")
    elif size == "s0":
        text = text.replace("symbol s0: 0..\n", "")
    found = [finding.code for finding in parse(text).check()]
    assert found == ([] if size in ("u0", "u7") else ["bad-call"])
