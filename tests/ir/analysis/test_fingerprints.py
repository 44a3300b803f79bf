"""Fingerprints: equal for names and order, different for all that computes something else."""

import hashlib
import json
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from tests.strategies import rename_values, well_formed_irs

from torch_ir import cut, fingerprint, parse
from torch_ir.ir.builder import renamed
from torch_ir.ir.edit import with_defaults
from torch_ir.ir.values import DType, MemoryFormat, default_attribute
from torch_ir.ops.schema import Argument
from torch_ir.passes.cutting import module_fingerprints
from torch_ir.passes.operator_calls.collection import cases

LAYERS = """ir {
  weight @a.w: f32[4, 4]
  weight @b.w: f32[4, 4]
  input %x: f32[2, 4]
  %h: f32[2, 4] = aten.linear.default(%x, @a.w)  # in a (m.L)
  %r: f32[2, 4] = aten.relu.default(%h)  # in a (m.L)
  %g: f32[2, 4] = aten.linear.default(%r, @b.w)  # in b (m.L)
  %s: f32[2, 4] = aten.relu.default(%g)  # in b (m.L)
  return %s
}"""


def reordered(ir, rng):
    """The nodes in another topological order; those with effects stay among each other."""
    left, done, order = list(ir.nodes), {m.name for m in ir.graph_inputs}, []
    done |= set(ir.external_values())
    bound = set(ir.given_symbols)
    while left:
        first = next((n for n in left if not ir.effects(n).is_pure), None)
        ready = [
            n
            for n in left
            if all(m.name in done for m in n.inputs)
            and (ir.effects(n).is_pure or n is first)
            and n.symbols
            - {s for m in n.outputs for d in m.shape for s in getattr(d, "symbols", ())}
            <= bound | set(n.symbols) - set().union(*[set(o.binds) for o in left if o is not n])
        ]
        node = rng.choice(ready)
        left.remove(node)
        order.append(node)
        done |= {m.name for m in node.outputs}
    return ir.replace(nodes=order)


@settings(max_examples=60, deadline=None)
@given(well_formed_irs())
def test_names_and_order_do_not_count(ir):
    wanted = fingerprint(ir)
    rng = random.Random(0)
    for _ in range(3):
        other = rename_values(ir, "w")
        if not any(ir.effects(n).writes for n in ir.nodes):
            other = reordered(other, rng)
        assert fingerprint(other) == wanted


def mutants(ir):
    """Programs that compute something else."""
    for position, node in enumerate(ir.nodes):

        def with_node(new, position=position):
            nodes = [*ir.nodes[:position], new, *ir.nodes[position + 1 :]]
            return ir.replace(nodes=nodes)

        for name, value in node.attrs.items():
            if type(value) is int:
                yield with_node(node.replace(attrs={**node.attrs, name: value + 1}))
            elif type(value) is float:
                yield with_node(node.replace(attrs={**node.attrs, name: value + 0.5}))
        yield with_node(node.replace(op_type="aten.nonsense.default"))
        if len({fingerprint(cut(ir, outputs=[m.name])) for m in node.inputs}) > 1:
            yield with_node(node.replace(inputs=node.inputs[::-1]))
        if node.outputs:
            other = node.outputs[0].replace(dtype="float16")
            yield with_node(node.replace(outputs=[other, *node.outputs[1:]]))
        yield ir.replace(nodes=(*ir.nodes, renamed(node, "another")))


@settings(max_examples=40, deadline=None)
@given(well_formed_irs())
def test_every_mutant_has_a_fingerprint_of_its_own(ir):
    wanted = fingerprint(ir)
    for mutant in mutants(ir):
        assert fingerprint(mutant) != wanted


def test_defaults_are_filled_in_and_sizes_dtypes_and_keys_can_be_left_out():
    def add(alpha, size=2, dtype="f32", key="w"):
        return parse(f"""ir {{
          weight @{key}: {dtype}[{size}]
          input %x: {dtype}[{size}]
          %y: {dtype}[{size}] = aten.add.Tensor(%x, @{key}{alpha})
          return %y
        }}""")

    plain = fingerprint(add(""))
    assert fingerprint(add(", alpha=1")) == plain
    assert fingerprint(add(", alpha=2")) != plain
    for change, option in (
        ({"size": 3}, "shapes"),
        ({"dtype": "f16"}, "dtypes"),
        ({"key": "v"}, "keys"),
    ):
        assert fingerprint(add("", **change)) != plain
        assert fingerprint(add("", **change), **{option: False}) == fingerprint(
            add(""), **{option: False}
        )


@pytest.mark.parametrize(
    ("call", "default"),
    [
        ("aten.contiguous.default(%x{})", "memory_format=torch.contiguous_format"),
        ("aten.randint.default(high=4, size=[2]{})", "dtype=torch.int64"),
    ],
)
def test_defaults_that_schemas_write_as_numbers_are_filled_in(call, default):
    def program(given):
        dtype = "f32" if "%x" in call else "i64"
        return parse(f"""ir {{
          input %x: f32[2]
          %y: {dtype}[2] = {call.format(given)}
          return %y
        }}""")

    written = program(f", {default}")
    assert fingerprint(program("")) == fingerprint(written)
    assert with_defaults(program("")).nodes[0].attrs.items() >= written.nodes[0].attrs.items()
    assert len(cases({"a": program(""), "b": written}).cases) == 1


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("ScalarType", "15", DType("bfloat16")),
        ("ScalarType?", "5", DType("float16")),
        ("MemoryFormat?", "1", MemoryFormat("preserve_format")),
        ("MemoryFormat", "0", MemoryFormat("contiguous_format")),
        ("ScalarType?", "None", None),
    ],
)
def test_the_default_of_an_argument_is_an_attribute(kind, default, expected):
    assert default_attribute(Argument("given", kind, default)) == expected


def test_symbols_count_by_their_place():
    def program(first, second, size):
        return parse(f"""ir {{
          symbol {first}: 2..9
          symbol {second}: 2..9
          input %x: f32[{first}, {second}]
          %y: f32[{size}] = aten.view.default(%x, [`{size}`])
          return %y
        }}""")

    assert fingerprint(program("s0", "s1", "s0*s1")) == fingerprint(program("b", "a", "b*a"))
    assert fingerprint(program("s0", "s1", "s0*s0")) != fingerprint(program("s0", "s1", "s0*s1"))


def test_a_read_before_a_write_is_not_one_after_it():
    read, write = (
        "%a: f32[2] = aten.neg.default(%x)",
        "%b: f32[2] = aten.add_.Tensor(%x, 1)",
    )

    def program(*lines):
        return parse("ir {\ninput %x: f32[2]\n" + "\n".join(lines) + "\nreturn %a\n}")

    assert fingerprint(program(read, write)) != fingerprint(program(write, read))


def test_checks_of_types_are_in_no_order_and_checks_of_data_are():
    def program(check, other):
        lines = "%a: f32[2] = aten.neg.default(%x)", check, other, "return %a"
        return parse("ir {\ninput %x: f32[2]\ninput %c: b8[]\n" + "\n".join(lines) + "\n}")

    types = [
        f"t{n}: aten._assert_tensor_metadata.default(%{n}, dtype=torch.float32)" for n in "xa"
    ]
    assert fingerprint(program(*types)) == fingerprint(program(*types[::-1]))
    data = [f'd{n}: aten._assert_async.msg(%c, assert_msg="{n}")' for n in "xa"]
    assert fingerprint(program(*data)) != fingerprint(program(*data[::-1]))


def test_equal_layers_are_found_by_module():
    found = module_fingerprints(parse(LAYERS), keys=False)
    assert found["a"] == found["b"]
    assert len(set(module_fingerprints(parse(LAYERS)).values())) == 2


def test_a_fingerprint_is_the_same_in_every_process(tmp_path):
    parse(LAYERS).save(tmp_path / "m.tir")
    script = "import sys, torch_ir; print(torch_ir.fingerprint(torch_ir.IR.load(sys.argv[1])))"
    script += "; assert 'torch' not in sys.modules"
    for seed in ("1", "2"):
        made = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "m.tir")],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert made.stdout.strip() == fingerprint(parse(LAYERS))


def hashed(part):
    return hashlib.sha256(json.dumps(part, separators=(",", ":")).encode()).hexdigest()


def test_the_documented_lists_give_the_hash():
    ir = parse("ir {\ninput %x: f32[2]\n%y: f32[2] = aten.neg.default(%x)\nreturn %y\n}")
    kind = ["float32", [2]]
    called = hashed(["node", "aten.neg.default", [["self", "None", hashed(["input", 0])]], []])
    node = hashed(["results", called, [[0, kind]], []])
    returned = [[hashed(["result", node, 0])]]
    whole = ["torch-ir fingerprint", 1, [kind], returned, [], [], [], [], [node]]
    assert fingerprint(ir) == hashed(whole)
