"""Costs from the program alone: the counts of a profile, and the roofline."""

import json
import subprocess
import sys

import pytest
import torch
from tests.small_models import CASES

from torch_ir import IRExecutor, cost, extract_ir, parse, profile
from torch_ir.debug.conformance.calibrating import calibrate, calibration_path, processor_name
from torch_ir.errors import InputError, InvalidIRError, SerializationError
from torch_ir.ir.analysis.calibrations import Calibration, Measured
from torch_ir.ir.analysis.workloads import workload

PROGRAM = parse("""ir "Small" {
  weight @w: f32[64, 32]
  input %x: f32[s0, 32]
  %h: f32[s0, 64] = aten.linear.default(%x, @w)  # m.py:3 in fc (m.Linear)
  %t: f32[64, s0] = aten.t.default(%h)
  %y: f32[64, s0] = aten.relu.default(%t)
  return %y
}""")


@pytest.mark.parametrize("name", sorted(CASES))
def test_counts_are_those_of_a_profile(name):
    case = CASES[name]
    arguments, keywords = case.inputs()
    model = case.model()
    ir = extract_ir(model, arguments, kwargs=keywords)
    executor = IRExecutor(ir, model.state_dict())
    tensors = [
        t
        for t in torch.utils._pytree.tree_leaves((arguments, keywords))
        if isinstance(t, torch.Tensor)
    ]
    if len(tensors) != len(ir.graph_inputs):
        pytest.skip("numbers among the arguments")
    if any(not meta.is_static for node in ir.nodes for meta in node.outputs):
        pytest.skip("sizes that data decides")
    measured = profile(executor.graph, tensors, repeat=1)
    found = {n.node: (n.flops, n.bytes_read, n.bytes_written) for n in cost(ir).nodes}
    wanted = {n.node: (n.flops, n.bytes_read, n.bytes_written) for n in measured.nodes}
    assert {k: (found[k], wanted[k]) for k in wanted if found[k] != wanted[k]} == {}


def test_the_roofline_takes_the_slower_of_the_two():
    found = cost(PROGRAM, symbols={"s0": 8}, peak_flops=1e9, bandwidth=1e9)
    linear, view, relu = found.nodes
    assert (linear.flops, linear.bytes_read, linear.bytes_written) == (32768, 9216, 2048)
    assert (linear.bound, linear.seconds) == ("compute", 32768e-9)
    assert (view.bytes_read, view.bytes_written, view.seconds) == (0, 0, 0.0)
    assert (relu.bound, relu.seconds, relu.intensity) == ("memory", 4096e-9, 0.125)
    assert found.seconds == sum(node.seconds for node in found.nodes)
    assert [group.name for group in found.by_module()] == ["", "fc"]
    assert json.loads(json.dumps(found.to_dict()))["flops"] == found.flops == 33280
    assert "<table>" in found._repr_html_()
    assert str(found).splitlines()[0] == (
        "Small: 3 nodes, 33.28 k FLOPs, 15.0 KiB moved, 0.037 ms"
    )


@pytest.mark.parametrize(
    "call",
    [
        *["sum.dim_IntList(%x, [0])", "prod.dim_int(%x, 0)", "var.correction(%x, [0])"],
        *["all.dim(%x, 0)", "any.dim(%x, 0)", "linalg_vector_norm.default(%x, 2, [0])"],
        "einsum.default(`ij->j`, [%x])",
    ],
)
def test_a_call_that_reads_nothing_costs_what_it_writes(call):
    call = call.replace("`", '"')
    dtype = "b8" if call.startswith("a") else "f32"
    made = f"%y: {dtype}[4] = aten.{call}"
    found = cost(parse(f"ir {{\n  input %x: f32[0, 4]\n  {made}\n  return %y\n}}"))
    (node,) = found.nodes
    assert (node.bytes_read, node.flops or 0) == (0, 0)


def test_a_symbol_without_a_value_is_named():
    unread = parse("ir {\n  symbol s0: 2..9\n  input %x: f32[s0, 2]\n  return\n}")
    for program in (PROGRAM, unread):
        with pytest.raises(InvalidIRError) as caught:
            cost(program)
        assert str(caught.value) == (
            "the sizes depend on 1 symbol without a value: s0\n"
            "Give each one, as in symbols={'s0': 8} or --symbol s0=8."
        )
    with pytest.raises(InputError) as refused:
        cost(PROGRAM, symbols={"s0": 1, "s1": 2})
    assert str(refused.value) == "there is no symbol 's1'\nThe symbols are s0."
    with pytest.raises(InvalidIRError, match="peak_flops is a positive number, got 0"):
        cost(PROGRAM, symbols={"s0": 1}, peak_flops=0)


def test_a_call_costs_what_its_function_does():
    """A dimension has another name inside, and two calls of one function other sizes."""
    called = parse(
        """ir {
      func &block {
        input %a: f32[s1, 4]
        input %w: f32[4, 4]
        %m: f32[s1, 4] = aten.mm.default(%a, %w)
        %r: f32[s1, 4] = aten.relu.default(%m)
        return %r
      }
      input %x: f32[2, 4]
      input %y: f32[3, 4]
      input %w: f32[4, 4]
      %p.0: f32[2, 4] = p: CALL(operands=[%x, %w], subgraph=&block)
      %q.0: f32[3, 4] = q: CALL(operands=[%y, %w], subgraph=&block)
      return %p.0, %q.0
    }""".replace("CALL(", 'higher_order.invoke_subgraph(identifier="b", ')
    )
    found = cost(called)
    assert [node.node for node in found.nodes] == ["p.m", "p.r", "q.m", "q.r"]
    assert [node.flops for node in found.nodes] == [2 * 2 * 16, 8, 2 * 3 * 16, 12]
    assert found.nodes[0].bytes_read == (8 + 16) * 4
    assert [group.nodes for group in found.by_operator()] == [2, 2]


def test_an_unknown_count_stays_unknown():
    ir = parse("ir {\ninput %x: f32[2]\n%y: f32[2] = aten.cholesky.default(%x)\nreturn %y\n}")
    found = cost(ir, peak_flops=1.0, bandwidth=1.0)
    assert found.nodes[0].flops is None
    assert found.unknown == 1
    assert "unknown" in str(found)
    assert ">=" in str(found)


def test_a_look_up_reads_its_rows_and_no_torch_is_needed():
    script = """
import sys
from torch_ir import cost, parse
ir = parse('''ir {
  weight @w: f32[1000, 4]
  input %i: i64[3]
  %y: f32[3, 4] = aten.embedding.default(@w, %i)
  return %y
}''')
print(cost(ir).nodes[0].bytes_read, "torch" in sys.modules)
"""
    made = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.split() == [str(3 * 8 + 48), "False"]


MACHINE = Calibration(
    "cpu",
    "2.13.0",
    1,
    {
        "view": Measured((), (1e-6,)),
        "pointwise": Measured(((100.0, 10_000.0),), (1e-6, 1e-4)),
        "product": Measured(((1.0, 4.0), (8.0,), (8.0,)), (2e-6, 8e-6)),
        "weights": Measured(((64.0, 256.0),), (1e-4, 1e-3)),
    },
)


def test_a_calibration_says_what_each_kind_of_node_takes(tmp_path):
    ir = parse("""ir {
      weight @w: f32[8, 8]
      input %x: f32[8, 8]
      %y: f32[8, 8] = aten.mm.default(%x, %x)
      %z: f32[8, 8] = aten.mm.default(%y, @w)
      %v: f32[8, 8] = aten.t.default(%z)
      %r: f32[8, 8] = aten.relu.default(%v)
      return %r
    }""")
    MACHINE.save(tmp_path / "machine.json")
    found = cost(ir, calibration=Calibration.load(tmp_path / "machine.json"))
    by_name = {node.node: node for node in found.nodes}
    assert by_name["y"].seconds == pytest.approx(16e-6)  # twice the most rows
    assert by_name["y"].bound == "compute"
    assert by_name["z"].seconds == pytest.approx(1e-3)  # all weights, which are read once
    assert by_name["z"].bound == "memory"
    assert by_name["v"].seconds == pytest.approx(1e-6)
    assert by_name["r"].seconds == pytest.approx(1e-6 * 512 / 100)
    assert found.seconds == pytest.approx(sum(node.seconds or 0 for node in found.nodes))
    assert "ms" in str(found).splitlines()[0]


X, IMAGE = (6, 5, 4), (2, 8, 10, 10)
CONVOLUTION = {"input": IMAGE, "bias": None, "stride": [1, 1]}
RECURRENT = {"params": [(24, 4), (24, 6)], "batch_first": True}


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3), (0, 1, 3, 2)])
def test_attention_keeps_the_order_of_its_query(order):
    shape = [(2, 4, 5, 8)[axis] for axis in order]
    back = [order.index(axis) for axis in range(4)]
    ir = parse(f"""ir {{
      input %x: f32{shape}
      input %k: f32[2, 4, 5, 8]
      %q: f32[2, 4, 5, 8] = aten.permute.default(%x, dims={back})
      %a: f32[2, 4, 5, 8] = aten.scaled_dot_product_attention.default(%q, %k, %k)
      %p: f32[2, 5, 4, 8] = aten.permute.default(%a, dims=[0, 2, 1, 3])
      %r: f32[10, 32] = aten.reshape.default(%p, shape=[10, 32])
      %s: f32[5, 2, 4, 8] = aten.permute.default(%a, dims=[2, 0, 1, 3])
      %t: f32[10, 32] = aten.reshape.default(%s, shape=[10, 32])
      return %r, %t
    }}""")
    ran = profile(IRExecutor(ir, {}).graph, (torch.ones(shape), torch.ones(2, 4, 5, 8)), repeat=1)
    told = [(node.bytes_read, node.bytes_written) for node in cost(ir).nodes]
    assert told == [(node.bytes_read, node.bytes_written) for node in ran.nodes]


@pytest.mark.parametrize(
    ("operator", "arguments", "result", "flops", "work"),
    [
        ("bmm.default", {"self": X, "mat2": (6, 4, 3)}, (6, 5, 3), 720, ("product", (5, 4, 3), 6)),
        ("mv.default", {"self": (7, 3), "vec": (3,)}, (7,), 42, ("product", (1, 3, 7), 1)),
        (
            "conv2d.default",
            {**CONVOLUTION, "weight": (16, 8, 3, 3), "groups": 1},
            (2, 16, 8, 8),
            2 * 2048 * 72,
            ("convolution", (128, 72, 16), 1),
        ),
        (
            "conv2d.default",
            {**CONVOLUTION, "weight": (16, 4, 1, 1), "groups": 2},
            (2, 16, 10, 10),
            2 * 3200 * 4,
            ("convolution of points", (200, 4, 8), 2),
        ),
        (
            "conv2d.default",
            {**CONVOLUTION, "weight": (8, 1, 3, 3), "groups": 8, "stride": [2, 2]},
            (2, 8, 5, 5),
            2 * 400 * 9,
            ("depthwise", (200, 8, 9), 1),
        ),
        (
            "conv_transpose2d.input",
            {**CONVOLUTION, "weight": (8, 4, 2, 2), "groups": 1},
            (2, 4, 20, 20),
            2 * 1600 * 16,
            ("transposed convolution", (200, 8, 16), 1),
        ),
        (
            "scaled_dot_product_attention.default",
            {"query": (2, 3, 5, 4), "key": (2, 3, 7, 4), "value": (2, 3, 7, 4), "attn_mask": None},
            (2, 3, 5, 4),
            2 * 30 * 7 * 8,
            ("attention", (5, 7, 4), 6),
        ),
        ("lstm.input", {"input": X, **RECURRENT}, (6, 5, 6), 14400, ("lstm", (5, 6, 6), 5 / 6)),
        (
            "lstm.data",
            {"data": (30, 4), "batch_sizes": (6,), **RECURRENT},
            (30, 6),
            14400,
            ("lstm", (6, 5, 6), 5 / 6),
        ),
        (
            "layer_norm.default",
            {"input": X, "normalized_shape": [5, 4]},
            X,
            840,
            ("layer norm", (6, 20), 1),
        ),
        ("mean.dim", {"self": X, "dim": [1]}, (6, 4), 120, ("reduction", (24, 5), 1)),
        ("batch_norm.default", {"input": IMAGE}, IMAGE, 6400, ("normalization", (16, 100), 1)),
        (
            "group_norm.default",
            {"input": IMAGE, "num_groups": 2},
            IMAGE,
            9,
            ("normalization", (4, 400), 1),
        ),
        ("max_pool2d.default", {"self": IMAGE}, (2, 8, 5, 5), 1600, ("pooling", (400, 4), 1)),
        ("index_copy_.default", {"self": X, "source": (1, 5, 4)}, X, 0, ("indexing", (240,), 1)),
        ("add.Tensor", {"self": X, "other": X}, X, 120, ("pointwise", (999,), 1)),
    ],
)
def test_the_time_of_a_call_depends_on_the_sizes_of_its_work(
    operator, arguments, result, flops, work
):
    found = workload(f"aten.{operator}", arguments, [result], flops, 999)
    assert (found.kind, found.sizes, found.times) == work


def test_steps_of_packed_sequences_are_counted():
    ir = parse(
        """ir {
      input %x: f32[8, 4]
      input %s: i64[5]
      input %h: f32[1, 2, 6]
      input %w: f32[24, 4]
      input %v: f32[24, 6]
      %r.0: f32[8, 6], %r.1: f32[1, 2, 6], %r.2: f32[1, 2, 6] = CALL
      return %r.0
    }""".replace(
            "CALL",
            "aten.lstm.data(%x, %s, [%h, %h], [%w, %v], has_biases=False, num_layers=1, "
            "dropout=0.0, train=False, bidirectional=False)",
        )
    )
    assert cost(ir).flops == 2 * 8 * 24 * (4 + 6)


def test_a_calibration_excludes_numbers_and_has_to_be_whole(tmp_path):
    ir = parse("ir {\n  input %x: f32[2]\n  return %x\n}")
    with pytest.raises(InvalidIRError, match=r"^calibration= excludes peak_flops="):
        cost(ir, calibration=MACHINE, peak_flops=1e9)
    (tmp_path / "machine.json").write_text('{"kinds": {}}')
    with pytest.raises(SerializationError, match=r"cannot be read as a calibration"):
        Calibration.load(tmp_path / "machine.json")


def test_what_was_measured_of_this_machine_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine = processor_name(), torch.__version__, torch.get_num_threads()
    path = calibration_path(*machine)
    assert path.is_relative_to(tmp_path / "torch-ir")
    assert path != calibration_path(machine[0], machine[1], 99)
    MACHINE.save(path)
    assert calibrate() == MACHINE


def test_a_table_of_modules_keeps_the_most_costly():
    lines = [
        f"%a{i}: f32[2] = aten.relu.default(%x)  # m.py:1 in small{i} (m.S)" for i in range(3)
    ]
    lines += ["%b: f32[8, 8] = aten.mm.default(%w, %w)  # m.py:2 in large (m.L)"]
    body = "\n  ".join(["input %x: f32[2]", "input %w: f32[8, 8]", *lines, "return %a0, %b"])
    found = cost(parse(f"ir {{\n  {body}\n}}"))
    rows = found.table("module", top=2).splitlines()[3:]
    assert [row.split()[0] for row in rows] == ["(root)", "large", "and"]
