"""What a file says is printed safely by every command: nothing that a terminal would obey."""

import unicodedata

import pytest
from click.testing import CliRunner

from cli.conftest import MODEL, Result, linear_relu
from torch_ir import serde
from torch_ir.cli import main
from torch_ir.errors import UNPRINTABLE, TorchIRError, printable
from torch_ir.ir import (
    IR,
    Constant,
    Container,
    Location,
    Mutation,
    OpNode,
    Signature,
    SymbolRange,
    TensorLeaf,
    TensorMeta,
    ValueLeaf,
)
from torch_ir.ir.values import Device
from torch_ir.viz import generate_op_distribution_pie, ir_html, ir_to_mermaid, view_html

# C0, C1, DEL, bidirectional, invisible and tag characters, separators, private, unassigned
HOSTILE = (
    "\x1b]0;pwned\x07\x00\x08\r\x9b2J\x85\x7f\u202e\u2066\u200b\ufeff\u2028\u2029\ue000\u0378"
    "\U000e0041\U000f0000\nPWNED"
)

COMMANDS = (
    "show FILE",
    "show FILE --module",
    "info FILE",
    "info FILE --json",
    "check FILE",
    "check FILE --no-types",
    "check FILE --json",
    "diff FILE m.json",
    "diff m.json FILE",
    "diff m.json FILE --json",
    "convert FILE --to json",
    "convert FILE --to text",
    "convert FILE --to mermaid",
    "convert FILE --to html",
    "convert FILE --to graphviz",
    "convert FILE --to model-explorer",
    "view FILE -o -",
    "lower FILE --to aten",
    "lower FILE",
    "lower FILE --to edge",
    "opt FILE",
    "opt FILE --print-after-each --verify off",
    "run FILE --random --random-weights",
    "run FILE --random --random-weights --json",
    "run FILE --random --random-weights --reference",
    "run FILE --random",
    "run FILE",
    "run FILE --inputs names.npz --random-weights",
    "run FILE --inputs missing-NAME.npz --random-weights",
    "run FILE --random --weights names.npz",
    "profile FILE --random --random-weights --repeat 1 --by node",
    "profile FILE --random --random-weights --repeat 1 --by module",
    "profile FILE --random --random-weights --repeat 1 --json",
    "plan FILE",
    "plan FILE --nodes",
    "plan FILE --json",
    "validate FILE --random --random-weights",
    "validate FILE --random --random-weights --json",
    "support FILE --backend inductor",
    "support FILE --backend NAME",
    "verify FILE net_source.py:build",
    "verify FILE net_source.py:build --json",
    "extract net_source.py:build --name NAME",
    "extract net_source.py:NAME",
    "show no-such-NAME.json",
    "convert FILE out.NAME",
    "NAME",
)


def raw(text):
    """The characters that a terminal may obey or that cannot be seen, and lines of a name."""
    found = {c for c in text if c != "\n" and unicodedata.category(c) in UNPRINTABLE}
    return found | {line for line in text.split("\n") if line.startswith("PWNED")}


def first_node(**changes):
    def change(ir):
        return ir.replace(nodes=(ir.nodes[0].replace(**changes), *ir.nodes[1:]))

    return change


def renamed(old):
    """The value of that name by a hostile one, wherever it stands."""

    def meta(item):
        name = HOSTILE if item.name == old else item.name
        producer = HOSTILE if item.producer_node == old else item.producer_node
        return item.replace(name=name, producer_node=producer)

    def change(ir):
        nodes = [
            OpNode(
                HOSTILE if node.name == old else node.name,
                node.op_type,
                [*map(meta, node.inputs)],
                [*map(meta, node.outputs)],
                node.attrs,
                node.operands,
                node.location,
            )
            for node in ir.nodes
        ]
        return ir.replace(
            nodes=nodes,
            graph_inputs=[*map(meta, ir.graph_inputs)],
            graph_outputs=[*map(meta, ir.graph_outputs)],
            weights=[*map(meta, ir.weights)],
            weight_name_mapping={
                HOSTILE if name == old else name: HOSTILE if key == old else key
                for name, key in ir.weight_name_mapping.items()
            },
        )

    return change


def signed(inputs=None, outputs=None):
    plain = Container("tuple", (TensorLeaf("x"),))
    args = Container("tuple", (inputs or plain, Container("dict", (), ())))
    return lambda ir: ir.replace(signature=Signature(args, outputs or TensorLeaf("relu")))


def field(name, value):
    return lambda ir: ir.replace(**{name: value})


CONSTANT = Constant.from_list([1.0, 2.0], "float32")
FIELDS = {
    "nothing": lambda ir: ir,
    "node and its value": renamed("linear"),
    "graph input": renamed("x"),
    "graph output": renamed("relu"),
    "weight name": renamed("p_fc_weight"),
    "weight key": renamed("fc.weight"),
    "node name": first_node(name=HOSTILE),
    "operator": first_node(op_type=HOSTILE),
    "operator of a namespace": first_node(op_type=f"aten.{HOSTILE}.default"),
    "attribute name": first_node(attrs={HOSTILE: 1}),
    "attribute value": first_node(attrs={"alpha": HOSTILE}),
    "attribute in a list": first_node(attrs={"alpha": [HOSTILE, {HOSTILE: HOSTILE}]}),
    "device": first_node(attrs={"device": Device(HOSTILE)}),
    "operand": first_node(operands={HOSTILE: 0, "weight": 1}),
    "symbol bound": first_node(binds={HOSTILE: 0}),
    "source file": first_node(location=Location(HOSTILE, 3, "y = x", "fc", "Linear")),
    "source line": first_node(location=Location("a.py", 3, HOSTILE, "fc", "Linear")),
    "module": first_node(location=Location("a.py", 3, "y = x", HOSTILE, "Linear")),
    "module type": first_node(location=Location("a.py", 3, "y = x", "fc", HOSTILE)),
    "model name": field("model_name", HOSTILE),
    "torch version": field("pytorch_version", HOSTILE),
    "dialect": field("dialect", HOSTILE),
    "symbol": field("symbols", {HOSTILE: SymbolRange(1, 2)}),
    "function": lambda ir: ir.replace(functions={HOSTILE: ir}),
    "called function": lambda ir: ir.replace(functions={HOSTILE: renamed("linear")(ir)}),
    "mutation": lambda ir: ir.replace(mutations=[Mutation(HOSTILE, ir.graph_outputs[0])]),
    "written value": lambda ir: ir.replace(
        mutations=[Mutation("x", ir.graph_outputs[0].replace(name=HOSTILE))]
    ),
    "weight alias": field("weight_aliases", {HOSTILE: "fc.weight"}),
    "aliased weight": field("weight_aliases", {"tied": HOSTILE}),
    "constant": field("constants", {HOSTILE: CONSTANT}),
    "metadata key": field("metadata", {HOSTILE: 1}),
    "metadata value": field("metadata", {"note": HOSTILE}),
    "leaf": signed(Container("tuple", (TensorLeaf(HOSTILE),))),
    "argument value": signed(Container("tuple", (TensorLeaf("x"), ValueLeaf(HOSTILE)))),
    "container": signed(outputs=Container(HOSTILE, (TensorLeaf("relu"),))),
    "container key": signed(outputs=Container("dict", (TensorLeaf("relu"),), (HOSTILE,))),
    "container context": signed(
        outputs=Container("namedtuple", (TensorLeaf("relu"),), (), HOSTILE)
    ),
    "missing weight": lambda ir: ir.replace(weights=[]),
    "dangling name": first_node(inputs=[TensorMeta(HOSTILE, (2, 3), "float32")]),
}


@pytest.fixture
def run(place):
    def call(*args):
        # color: click would strip some escapes, as it does where stdout is no terminal
        result = CliRunner().invoke(main, args, prog_name="torch-ir", color=True)
        return Result(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_reaches_the_terminal_raw(run, place, name):
    serde.save(linear_relu(), place / "m.json")
    (place / "net_source.py").write_text(MODEL)
    made = FIELDS[name](linear_relu())
    serde.save(made, place / "x.json")
    assert serde.load(place / "x.json") == made
    for command in COMMANDS:
        parts = [{"FILE": "x.json"}.get(p, p.replace("NAME", HOSTILE)) for p in command.split()]
        if name != "nothing" and HOSTILE in "".join(parts):
            continue  # the command line is the same for all
        result = run(*(part.replace("\x00", "") for part in parts))
        shown = result.out + result.err
        assert not raw(shown), f"{command}: {raw(shown)} in {shown!r:.2000}"
        assert "fault of torch-ir" not in shown, f"{command}: {shown}"


def test_a_file_of_a_hostile_name(run, place):
    name = HOSTILE.replace("\x00", "")
    serde.save(linear_relu(), place / f"{name}.json")
    (place / f"{name}.ir").write_text("ir")
    (place / f"{name}.npz").write_text("no archive")
    for command in (
        f"check {name}.json",
        f"run {name}.json --random --random-weights",
        f"show {name}.ir",
        f"show {name}.none",
        f"lower {name}.json -o {name}.none",
        f"run {name}.json --inputs {name}.npz --random-weights",
        f"run {name}.json --random --weights {name}.npz",
        f"convert {name}.json no/{name}.json",
    ):
        result = run(*command.split(" "))
        assert not raw(result.out + result.err), f"{command!r}: {result!r}"


def test_documents_on_stdout_say_the_same(run, place):
    ir = first_node(attrs={"note": HOSTILE})(linear_relu()).replace(model_name="漢 é" + HOSTILE)
    serde.save(ir, place / "x.json")
    assert serde.loads(run("convert", "x.json", "--to", "json").out.encode()) == ir
    assert run("info", "x.json", "--json").json["model_name"] == ir.model_name
    assert "漢 é" in run("info", "x.json").out


def test_errors_and_pictures():
    error = TorchIRError(HOSTILE[:5], picture=f"a{HOSTILE}\nb", remedy=HOSTILE)
    assert not raw(str(error)) - {"PWNED"}
    assert error.message == HOSTILE[:5]
    assert printable("a\tb\n") == r"a\x09b\x0a"
    assert printable("\ud800\U000e0041") == r"\ud800\U000e0041"
    assert printable("plain é 漢 \u00a0") == "plain é 漢 \u00a0"


@pytest.mark.parametrize("name", FIELDS)
def test_diagrams(name):
    ir: IR = FIELDS[name](linear_relu())
    for drawn in (
        ir_to_mermaid(ir),
        ir_to_mermaid(ir, max_nodes=1),
        generate_op_distribution_pie(ir),
        ir_html(ir),
        view_html(ir),
        str(ir),
    ):
        assert not raw(drawn), drawn
