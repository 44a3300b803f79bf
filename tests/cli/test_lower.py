"""lower: to functional, to core ATen and to Edge."""

from torch_ir import serde


def test_core_aten_is_written_and_counted(run, ir):
    result = run("lower", "m.json", "-o", "low.tir")
    assert (result.code, result.out) == (0, "")
    assert result.err == "note: 2 nodes of export became 3 nodes of core_aten\n"
    low = serde.load("low.tir")
    assert [node.op_type for node in low.nodes] == [
        "aten.permute.default",
        "aten.mm.default",
        "aten.relu.default",
    ]


def test_text_goes_to_stdout_and_operators_stay_on_request(run, ir):
    result = run("lower", "m.json", "--preserve", "aten.linear.default")
    assert result.code == 0
    assert "aten.linear.default(%x, @fc.weight)" in result.out


def test_functional_programs_keep_their_operators(run, ir):
    assert run("lower", "m.json", "--to", "aten", "-o", "low.json").code == 0
    low = serde.load("low.json")
    assert low.dialect == "aten"
    assert low.nodes == ir.nodes


def test_edge_is_verified_and_runs(run, ir):
    result = run("lower", "m.json", "--to", "edge", "-o", "low.tir")
    assert (result.code, result.err) == (0, "note: 2 nodes of export became 3 nodes of edge\n")
    assert serde.load("low.tir").dialect == "edge"
    assert run("lower", "m.json", "--to", "edge", "--preserve", "aten.linear.default").code == 0


def test_edge_without_numbers(run, ir):
    assert 'dialect "edge"' in run("lower", "m.json", "--to", "edge", "--strict").out
    scaled = ir.nodes[-1].replace(op_type="aten.add.Tensor", attrs={"other": 1, "alpha": 3})
    ir.replace(nodes=[*ir.nodes[:-1], scaled]).save("scaled.json")
    assert "alpha=3" in run("lower", "scaled.json", "--to", "edge").out
    result = run("lower", "scaled.json", "--to", "edge", "--strict")
    assert result.code == 1
    assert "breaks the rules of the dialect 'edge' in 1 place" in result.err
    assert "expected a tensor, got 3" in result.err


def test_wrong_usage_is_told(run, ir):
    result = run("lower", "m.json", "-o", "low.xyz")
    assert result.code == 2
    assert "the name 'low.xyz' does not say which format to write" in result.err
    assert run("lower", "m.json", "--to", "aten", "--preserve", "aten.mm.default").code == 2
    assert "--strict is for --to edge" in run("lower", "m.json", "--strict").err


def test_an_unknown_operator_is_an_error(run, ir):
    result = run("lower", "m.json", "--preserve", "aten.linear")
    assert (result.code, result.err) == (
        1,
        "error: there is no operator 'aten.linear'\n"
        "It is aten.linear.default or aten.linear.out.\n",
    )
