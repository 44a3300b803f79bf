"""Well-formed graphs, broken in every way that the checks name: refused by name, none is run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from small_models import CASES
from strategies import well_formed_irs
from torch_ir import IR, OpNode, TensorMeta, compile_graph, extract_ir
from torch_ir.errors import CompileError
from torch_ir.executor import check_types
from torch_ir.executor.check import compile as compiling
from torch_ir.ir import Mutation, SymbolRange, SymExpr

Broken = tuple[IR, str]
"""A graph, and the name of the node that is at fault; empty if none is."""


@dataclass(frozen=True)
class Break:
    """A way to break a graph.

    Attributes:
        break_node: Breaks one node of a graph, or raises what ``assume`` does.
        codes: What the refusal may be called: the first fault that is found depends on the graph.
    """

    break_node: Callable[[st.DataObject, IR, OpNode], Broken]
    codes: frozenset[str]


@dataclass
class Breaks:
    """All of them, by name."""

    by_name: dict[str, Break] = field(default_factory=dict)

    def __call__(self, *codes):
        def add(function):
            self.by_name[function.__name__] = Break(function, frozenset(codes))
            return function

        return add


breaks = Breaks()


def with_node(ir, node, **changes):
    """The graph with one node changed."""
    nodes = [n.replace(**changes) if n.name == node.name else n for n in ir.nodes]
    return ir.replace(nodes=tuple(nodes))


def with_value(ir, name, **changes):
    """The graph with one value changed everywhere, as if it had always been so."""

    def changed(metas):
        return tuple([m.replace(**changes) if m.name == name else m for m in metas])

    nodes = [n.replace(inputs=changed(n.inputs), outputs=changed(n.outputs)) for n in ir.nodes]
    return ir.replace(
        nodes=tuple(nodes),
        graph_inputs=changed(ir.graph_inputs),
        graph_outputs=changed(ir.graph_outputs),
    )


def any_output(data, node):
    assume(node.outputs)
    return data.draw(st.sampled_from(node.outputs))


def any_input(data, node):
    assume(node.inputs)
    return data.draw(st.sampled_from(range(len(node.inputs))))


# -- operators and arguments ----------------------------------------------------------------------


@breaks("unknown-operator")
def unknown_overload(data, ir, node):
    base, _, overload = node.op_type.rpartition(".")
    wrong = data.draw(st.sampled_from([f"{base}.{overload}x", f"{base}x.{overload}", "a.b.c"]))
    return with_node(ir, node, op_type=wrong), node.name


@breaks("unknown-argument")
def extra_argument(data, ir, node):
    return with_node(ir, node, attrs={**node.attrs, "no_such_argument": 1}), node.name


@breaks("missing-argument", "unused-input")
def missing_argument(data, ir, node):
    assume(node.operands)
    first = next(iter(node.operands))
    rest = {name: slots for name, slots in node.operands.items() if name != first}
    return with_node(ir, node, operands=rest), node.name


@breaks("bad-operand")
def slot_out_of_range(data, ir, node):
    assume(node.operands)
    name = data.draw(st.sampled_from(sorted(node.operands)))
    far = len(node.inputs) + data.draw(st.integers(0, 3))
    wrong = (far,) if isinstance(node.operands[name], tuple) else far
    return with_node(ir, node, operands={**node.operands, name: wrong}), node.name


@breaks("bad-operand")
def argument_given_twice(data, ir, node):
    single = [name for name, slots in (node.operands or {}).items() if isinstance(slots, int)]
    assume(single)
    name = data.draw(st.sampled_from(single))
    return with_node(ir, node, attrs={**node.attrs, name: 1}), node.name


@breaks("wrong-type", "refused-arguments")
def wrong_slot(data, ir, node):
    assume(node.op_type == "aten.linear.default")
    shapes = [meta.shape for meta in node.inputs]
    assume(shapes[0] != shapes[1])
    operands = {**node.operands, "input": 1, "weight": 0}
    return with_node(ir, node, operands=operands), node.name


@breaks("refused-arguments")
def argument_out_of_range(data, ir, node):
    assume("dim" in node.attrs and node.op_type != "aten.sort.default")  # torch: meta takes any
    return with_node(ir, node, attrs={**node.attrs, "dim": 99}), node.name


@breaks("refused-arguments", "bad-argument")
def argument_of_another_kind(data, ir, node):
    name = {"aten.cat.default": "dim", "aten.native_layer_norm.default": "eps"}.get(node.op_type)
    assume(name is not None)
    return with_node(ir, node, attrs={**node.attrs, name: "seven"}), node.name


@breaks("undefined-function")
def undefined_function(data, ir, node):
    scopes = extracted("scopes")
    name = data.draw(st.sampled_from(sorted(scopes.functions)))
    rest = {other: inner for other, inner in scopes.functions.items() if other != name}
    return scopes.replace(functions=rest), ""


# -- values ---------------------------------------------------------------------------------------


@breaks("undefined-value")
def undefined_value(data, ir, node):
    index = any_input(data, node)
    inputs = list(node.inputs)
    inputs[index] = inputs[index].replace(name="nowhere")
    return with_node(ir, node, inputs=tuple(inputs)), node.name


@breaks("undefined-value")
def wrong_order(data, ir, node):
    made = {meta.name for meta in node.outputs}
    users = [n for n in ir.nodes if made & {meta.name for meta in n.inputs}]
    assume(users)
    rest = [n for n in ir.nodes if n.name != node.name]
    position = rest.index(users[0])
    return ir.replace(nodes=(*rest[: position + 1], node, *rest[position + 1 :])), users[0].name


@breaks("duplicate-node", "duplicate-value")
def same_node_twice(data, ir, node):
    return ir.replace(nodes=(*ir.nodes, node)), node.name


@breaks("wrong-producer")
def wrong_producer(data, ir, node):
    output = any_output(data, node)
    outputs = [m.replace(producer_node="nobody") if m is output else m for m in node.outputs]
    return with_node(ir, node, outputs=tuple(outputs)), node.name


@breaks("undefined-value")
def undefined_output(data, ir, node):
    extra = TensorMeta("nowhere", (1,), "float32")
    return ir.replace(graph_outputs=(*ir.graph_outputs, extra), signature=None), ""


@breaks("bad-mutation")
def mutation_of_nothing(data, ir, node):
    return ir.replace(mutations=(Mutation("nowhere", any_output(data, node)),)), ""


# -- types ----------------------------------------------------------------------------------------


@breaks("wrong-type")
def wrong_shape(data, ir, node):
    output = any_output(data, node)
    wrong = data.draw(
        st.sampled_from([(*output.shape, 1), output.shape[:-1], (*output.shape[:-1], 5)])
    )
    return with_value(ir, output.name, shape=wrong), node.name


@breaks("wrong-type")
def wrong_dtype(data, ir, node):
    output = any_output(data, node)
    wrong = data.draw(st.sampled_from(["float64", "bfloat16", "int64", "bool"]))
    return with_value(ir, output.name, dtype=wrong), node.name


@breaks("wrong-metadata")
def used_with_another_type(data, ir, node):
    index = any_input(data, node)
    inputs = list(node.inputs)
    wrong = data.draw(st.sampled_from([{"shape": (9, 9)}, {"dtype": "int8"}]))
    inputs[index] = inputs[index].replace(**wrong)
    return with_node(ir, node, inputs=tuple(inputs)), node.name


@breaks("unbound-symbol")
def unbound_symbol(data, ir, node):
    assume(ir.symbols)
    return ir.replace(symbols={}), ""


@breaks("impossible-shape")
def impossible_shape(data, ir, node):
    meta = data.draw(st.sampled_from(ir.graph_inputs))
    assume(not any(meta.name in (o.name for o in n.outputs) for n in ir.nodes))
    return with_value(ir, meta.name, shape=(2**61, 4)), ""


@breaks("impossible-shape")
def negative_shape(data, ir, node):
    meta = data.draw(st.sampled_from(ir.graph_inputs))
    symbols = {**ir.symbols, "s9": SymbolRange(0, 3)}
    return with_value(ir.replace(symbols=symbols), meta.name, shape=(SymExpr("s9 - 9"), 4)), ""


# -- the test -------------------------------------------------------------------------------------


@cache
def extracted(name):
    args, kwargs = CASES[name].inputs()
    return extract_ir(CASES[name].model(), args, kwargs=kwargs)


@cache
def models():
    return [extracted(name) for name in ("attention", "scatter", "dropping")]


def payload_of(ir):
    return {m.name: torch.zeros(m.shape, dtype=getattr(torch, m.dtype)) for m in ir.weights}


def is_typed(ir):
    """Whether a graph is not only well-formed, but says the right types."""
    return bool(ir.nodes) and not check_types(ir)


def graphs():
    made = well_formed_irs().filter(is_typed)
    return st.one_of(made, made, st.sampled_from(models()))


def compile_error(ir, payload, **options):
    """Why a graph is refused; that it would be run is an error of this test."""

    def run(*args, **kwargs):
        raise AssertionError("a graph was made")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "ExecGraph", run)
        with pytest.raises(CompileError) as caught:
            compile_graph(ir, payload, **options)
    return caught.value


FUZZED = settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("name", breaks.by_name)
def test_a_broken_graph_is_refused_by_name(name):
    seen = []

    @FUZZED
    @given(st.data())
    def fuzz(data):
        way = breaks.by_name[name]
        ir = data.draw(graphs())
        broken, guilty = way.break_node(data, ir, data.draw(st.sampled_from(ir.nodes)))
        error = compile_error(broken, payload_of(broken))
        assert len(error.findings) == 1
        finding = error.findings[0]
        assert finding.code in way.codes, str(error)
        assert not guilty or finding.node == guilty, str(error)
        assert finding.message.split(" (")[0] in str(error)
        everything = compile_error(broken, payload_of(broken), collect=True).findings
        assert everything[0].code in way.codes
        assert finding in everything
        seen.append(finding)

    fuzz()
    assert len(seen) >= 5, "the test must have tried something"


@FUZZED
@given(st.data())
def test_a_payload_that_does_not_fit_is_refused_by_name(data):
    ir = data.draw(graphs())
    assume(ir.weights)
    payload = payload_of(ir)
    needed = [key for key, _ in ir.external_values().values() if key in payload]
    key = data.draw(st.sampled_from(needed))
    wrong = {
        "missing-payload": [None],
        "wrong-payload": [torch.zeros(9, 9), payload[key].double(), payload[key].tolist()],
    }
    code = data.draw(st.sampled_from(sorted(wrong)))
    value = data.draw(st.sampled_from(wrong[code]))
    without = {k: v for k, v in payload.items() if k != key}
    error = compile_error(ir, without if value is None else {**without, key: value})
    assert [finding.code for finding in error.findings] == [code]
    assert repr(key) in str(error)


def test_all_of_several_faults_are_found():
    ir = extracted("attention")
    first, last = ir.nodes[0], ir.nodes[-1]
    ir = with_node(ir, first, op_type=first.op_type + "x")
    ir = with_node(ir, last, attrs={**last.attrs, "no_such_argument": 1})
    error = compile_error(ir, {}, collect=True)
    found = [(finding.code, finding.node) for finding in error.findings]
    assert ("unknown-operator", first.name) in found
    assert ("unknown-argument", last.name) in found
    assert sum(code == "missing-payload" for code, _ in found) == len(ir.weights)
    assert re.search(r"The error has \d+ more findings\.$", str(error))


def test_what_is_not_broken_is_not_refused():
    for ir in models():
        compile_graph(ir, payload_of(ir), collect=True)
