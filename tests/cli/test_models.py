"""extract, run and verify: the commands that need torch, and the user's own model."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from torch_ir import serde
from torch_ir.ir import IR, OpNode, SymbolRange, TensorMeta

SOURCE = "net_source.py"
RETURNS = (
    "It is a torch.nn.Module class, or a function without arguments that returns a module, "
    "(module, inputs) or (module, inputs, kwargs).\n"
)


@pytest.fixture
def extracted(run):
    result = run("extract", f"{SOURCE}:build", "-o", "net.json")
    assert result.code == 0, result.err
    return serde.load("net.json")


class TestExtract:
    def test_what_the_callable_gives(self, extracted):
        assert extracted.model_name == "Net"
        assert [node.op_type for node in extracted.nodes] == [
            "aten.linear.default",
            "aten.dropout.default",
            "aten.relu.default",
        ]
        assert extracted.nodes[1].attrs["train"] is False

    def test_it_says_what_was_written(self, run):
        result = run("extract", f"{SOURCE}:build", "-o", "net.tir")
        assert (result.code, result.out, result.err) == (
            0,
            "",
            "note: net.tir: 3 nodes, 2 weights by name\n",
        )

    def test_text_goes_to_stdout_and_json_where_it_is_asked(self, run):
        assert run("extract", f"{SOURCE}:build").out.startswith('ir "Net" {\n')
        piped = run("extract", f"{SOURCE}:build", "-o", "-").out
        assert json.loads(piped)["model_name"] == "Net"
        assert run("info", "-", stdin=piped).code == 0

    def test_a_class_with_shapes_from_the_command_line(self, run):
        result = run(
            "extract",
            f"{SOURCE}:Net",
            "--input",
            "5x3",
            "--input",
            "scale=4:float32",
            "--meta",
            "--name",
            "Mine",
            "-o",
            "-",
        )
        ir = serde.loads(result.out)
        assert ir.model_name == "Mine"
        assert [str(meta) for meta in ir.graph_inputs] == ["%x: f32[5, 3]", "%scale: f32[4]"]

    def test_keyword_inputs_from_the_callable(self, run):
        ir = serde.loads(run("extract", f"{SOURCE}:with_keywords", "-o", "-").out)
        assert [meta.name for meta in ir.graph_inputs] == ["x", "scale"]

    def test_training_mode_when_asked(self, run):
        ir = serde.loads(run("extract", f"{SOURCE}:build", "--train", "-o", "-").out)
        assert ir.nodes[1].attrs["train"] is True

    def test_an_importable_name(self, run, place):
        (place / "importable_net.py").write_text((place / SOURCE).read_text())
        assert run("extract", "importable_net:build").code == 0

    def test_an_exported_program_needs_trust(self, run, place):
        program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
        torch.export.save(program, place / "p.pt2")
        refused = run("extract", "p.pt2")
        assert refused.code == 1
        assert "--trust" in refused.err
        assert run("extract", "p.pt2", "--trust").code == 0

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            (
                "broken",
                "error: calling net_source.py:broken failed: ValueError: no such checkpoint\n"
                '    DIR/net_source.py:26: raise ValueError("no such checkpoint")\n'
                "The fault is in the code that is called; --traceback shows all of it.\n",
            ),
            (
                "leaves",
                "error: calling net_source.py:leaves failed: SystemExit: 3\n"
                "    DIR/net_source.py:34: raise SystemExit(3)\n"
                "The fault is in the code that is called; --traceback shows all of it.\n",
            ),
            ("nothing", "error: net_source.py:nothing gave nothing, not a module\n" + RETURNS),
            (
                "number",
                "error: net_source.py:number is no model but of type int\nName a callable. "
                + RETURNS,
            ),
            ("bulid", "error: net_source.py:bulid: there is no 'bulid'\nDid you mean build?\n"),
            (
                "Net",
                "error: nothing says which inputs net_source.py:Net takes\n"
                "Give each as --input 2x3x224x224:float32, or let the callable return "
                "(module, inputs).\n",
            ),
        ],
    )
    def test_a_target_that_is_no_model(self, run, place, target, message):
        result = run("extract", f"{SOURCE}:{target}", "-o", "out.json")
        assert result.code == 1
        assert result.err.replace(str(place), "DIR") == message
        assert not (place / "out.json").exists()

    def test_targets_that_are_not_there(self, run, place):
        forms = "Give package.module:callable, path/to/file.py:callable, or a .pt2 file."
        assert run("extract", "no.py:f").err == f"error: there is no file no.py\n{forms}\n"
        assert run("extract", "no_such_module:f").err == (
            "error: there is no module 'no_such_module'\n"
            f"It is looked for in {place} and among what is installed. {forms}\n"
        )
        result = run("extract", "net")
        assert result.code == 2
        assert result.err.endswith(f"Error: 'net' does not say what to call. {forms}\n")

    def test_a_fault_while_importing(self, run, place):
        (place / "faulty.py").write_text("import torch\n\n1 / 0\n")
        result = run("extract", "faulty.py:f")
        assert result.code == 1
        assert result.err.replace(str(place), "DIR") == (
            "error: importing faulty.py failed: ZeroDivisionError: division by zero\n"
            "    DIR/faulty.py:3: 1 / 0\n"
            "The fault is in the code that is called; --traceback shows all of it.\n"
        )

    def test_what_torch_refuses_is_one_message(self, run):
        result = run("extract", f"{SOURCE}:Branches", "--input", "3")
        assert result.code == 1
        assert result.err.startswith("error: torch.export refused Branches: ")

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("3y8", "'3y8' is not [NAME=]SIZExSIZE[:DTYPE], such as 2x3x224x224:float32"),
            ("", "'' is not [NAME=]SIZExSIZE[:DTYPE], such as 2x3x224x224:float32"),
            (
                "3:float33",
                "'3:float33': 'float33' is not an element type. Did you mean float32 or float64?",
            ),
            (
                "1000000x1000000x1000",
                "'1000000x1000000x1000' has 1,000,000,000,000,000 elements",
            ),
        ],
    )
    def test_wrong_shapes_are_usage_errors(self, run, value, message):
        result = run("extract", f"{SOURCE}:Net", "--input", value)
        assert result.code == 2
        assert result.err.endswith(f"Error: Invalid value for '--input': {message}\n")


class TestDynamic:
    def test_one_name_is_one_size(self, run):
        args = ("--input", "2x3", "--input", "scale=2x1", "--meta", "-o", "-")
        named = ("--dynamic", "x:0=batch:2..64", "--dynamic", "scale:0=batch:2..64")
        result = run("extract", f"{SOURCE}:Net", *args, *named)
        assert result.code == 0, result.err
        ir = serde.loads(result.out)
        ((symbol, span),) = ir.symbols.items()
        assert span == SymbolRange(2, 64)
        assert [[str(size) for size in meta.shape] for meta in ir.graph_inputs] == [
            [symbol, "3"],
            [symbol, "1"],
        ]

    def test_the_range_may_be_left_out_and_the_callable_may_give_the_inputs(self, run):
        ir = serde.loads(run("extract", f"{SOURCE}:build", "--dynamic", "x:0=n", "-o", "-").out)
        assert [str(span) for span in ir.symbols.values()] == ["0.."]

    def test_what_extracts_runs_at_another_size(self, run):
        run("extract", f"{SOURCE}:build", "--dynamic", "x:0=n:1..9", "-o", "d.json")
        symbol = next(iter(serde.load("d.json").symbols))
        args = ("run", "d.json", "--random", "--random-weights", "--json", "--symbol")
        assert run(*args, f"{symbol}=7").json[0]["shape"] == [7, 4]
        assert run(*args, f"{symbol}=10").err == (
            f"error: dimension 0 of input 0 (%x: f32[{symbol}, 3]) is 10, which is outside the "
            f"range 1..9 of {symbol}\n"
        )

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (["y:0=n"], "--dynamic: 'y' is not a tensor input. The inputs are x."),
            (["x:2=n"], "--dynamic: 'x' has 2 dimensions, none has the number 2"),
            (["x:0=n:2..4", "x:1=n:2..5"], "--dynamic: the name 'n' has two ranges"),
            (
                ["x:0=n:4..4"],
                "Invalid value for '--dynamic': 'x:0=n:4..4': 4..4 leaves nothing to vary",
            ),
            (
                ["x=n"],
                "Invalid value for '--dynamic': 'x=n' is not INPUT:DIMENSION=NAME[:LOW..HIGH], "
                "such as x:0=batch:2..64",
            ),
        ],
    )
    def test_usage(self, run, values, message):
        dynamic = [word for value in values for word in ("--dynamic", value)]
        result = run("extract", f"{SOURCE}:build", *dynamic)
        assert result.code == 2
        assert result.err.endswith(f"Error: {message}\n")

    def test_an_exported_program_has_its_dimensions(self, run):
        result = run("extract", "p.pt2", "--trust", "--dynamic", "x:0=n")
        assert result.code == 2
        assert result.err.endswith(
            "Error: --dynamic is for a model; a .pt2 file has its dimensions\n"
        )


class TestRun:
    @pytest.fixture(autouse=True)
    def files(self, extracted, place):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 4)
        weights = {"fc." + key: value for key, value in self.model.state_dict().items()}
        save_file(weights, place / "w.safetensors")
        self.x = torch.arange(6.0).reshape(2, 3)
        self.expected = self.model(self.x).relu().detach()

    def test_from_files_to_a_file(self, run, place):
        save_file({"x": self.x}, place / "x.safetensors")
        result = run(
            "run",
            "net.json",
            "--weights",
            "w.safetensors",
            "--inputs",
            "x.safetensors",
            "-o",
            "y.safetensors",
        )
        assert result.code == 0, result.err
        assert torch.equal(load_file(place / "y.safetensors")["relu"], self.expected)
        assert result.out.splitlines()[0].split() == ["name", "type", "min", "max", "mean"]

    @pytest.mark.parametrize("keyword", [True, False])
    def test_npz(self, run, place, keyword):
        x = self.x.numpy()
        np.savez(place / "x.npz", x=x) if keyword else np.savez(place / "x.npz", x)
        result = run(
            "run", "net.json", "--weights", "w.safetensors", "--inputs", "x.npz", "-o", "y.npz"
        )
        assert result.code == 0, result.err
        with np.load(place / "y.npz") as outputs:
            assert np.array_equal(outputs["relu"], self.expected.numpy())

    def test_random_inputs_are_those_of_the_seed(self, run):
        def summary(seed):
            args = ("run", "net.json", "--weights", "w.safetensors", "--random", "--json")
            return run(*args, "--seed", seed).json

        assert summary(1) == summary(1) != summary(2)
        assert summary(1)[0]["type"] == "f32[2, 4]"

    def test_a_quick_try(self, run):
        assert run("run", "net.json", "--random", "--random-weights").code == 0

    def test_weights_in_the_archive_itself(self, run, extracted, place):
        serde.save(extracted, place / "net.tir", weights=load_file(place / "w.safetensors"))
        assert run("run", "net.tir", "--random").code == 0

    def test_infinite_values_are_counted(self, run, place):
        save_file({"x": torch.full((2, 3), float("inf"))}, place / "x.safetensors")
        result = run("run", "net.json", "--random-weights", "--inputs", "x.safetensors", "--json")
        assert result.json[0]["not_finite"] == 8

    def test_weights_of_another_model(self, run, place):
        save_file({"fc.weight": torch.ones(5, 3), "x": torch.ones(1)}, place / "o.safetensors")
        result = run("run", "net.json", "--random", "--weights", "o.safetensors")
        assert result.code == 1
        assert result.err == (
            "error: the weights do not fit 'Net': 1 missing, 1 wrong shape\n"
            "    missing: 'fc.bias' f32[4]\n"
            "    wrong shape: 'fc.weight': expected f32[4, 3], found f32[5, 3]\n"
            "Give the state_dict of the model that the IR was extracted from.\n"
        )

    def test_no_weights(self, run):
        assert run("run", "net.json", "--random").err == (
            "error: the program has 2 weights and none were given\n"
            "Give --weights PATH, or --random-weights for a quick try.\n"
        )

    def test_wrong_inputs(self, run, place):
        save_file({"X": self.x}, place / "x.safetensors")
        result = run("run", "net.json", "--random-weights", "--inputs", "x.safetensors")
        assert result.code == 1
        assert result.err == (
            "error: x.safetensors does not have the inputs of 'Net'\n"
            "    missing: x f32[2, 3]\n"
            "    unexpected: X\n"
            "Name the tensors x.\n"
        )

    @pytest.mark.parametrize("shape", [(3, 3), (2, 3, 1)])
    def test_an_input_of_a_wrong_shape_is_named(self, run, place, shape):
        save_file({"x": torch.ones(shape)}, place / "x.safetensors")
        result = run("run", "net.json", "--random-weights", "--inputs", "x.safetensors")
        assert result.code == 1
        assert "x" in result.err.splitlines()[0]
        assert str(shape[0]) in result.err

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ([], "give --inputs or --random; the inputs are %x: f32[2, 3]"),
            (["--random", "--inputs", "x.npz"], "--inputs and --random exclude each other"),
            (
                ["--random-weights", "--weights", "w.pt"],
                "--weights and --random-weights exclude each other",
            ),
            (["-o", "y.csv"], "the name 'y.csv' does not end in .safetensors or .npz"),
            (
                ["--symbol", "s0"],
                "Invalid value for '--symbol': 's0' is not NAME=VALUE, such as s0=16",
            ),
        ],
    )
    def test_usage(self, run, args, message):
        result = run("run", "net.json", *args)
        assert result.code == 2
        assert result.err.endswith(f"Error: {message}\n")


class TestSymbols:
    @pytest.fixture(autouse=True)
    def symbolic(self, place):
        x = TensorMeta("x", ("s0", "s1"), "float32")
        y = TensorMeta("y", ("s0", "s1"), "float32", "y")
        ranges = {"s0": SymbolRange(4, 16), "s1": SymbolRange(0, None)}
        relu = OpNode("y", "aten.relu.default", [x], [y])
        serde.save(IR([relu], [x], [y], [], symbols=ranges), place / "s.json")

    def test_random_sizes_are_within_the_ranges(self, run):
        result = run("run", "s.json", "--random", "--json")
        assert result.json[0]["shape"] == [4, 2]

    def test_sizes_may_be_given(self, run):
        result = run("run", "s.json", "--random", "--symbol", "s0=7", "--symbol=s1=3", "--json")
        assert result.json[0]["shape"] == [7, 3]

    def test_an_unknown_symbol(self, run):
        result = run("run", "s.json", "--random", "--symbol", "s2=7")
        assert (result.code, result.err) == (
            1,
            "error: there is no symbol 's2'\nThe symbols are s0, s1.\n",
        )

    def test_info_shows_the_ranges(self, run):
        assert "symbols:\n  s0: 4..16\n  s1: 0..\n" in run("info", "s.json").out


class TestVerify:
    def test_the_same_program(self, run, extracted):
        result = run("verify", "net.json", f"{SOURCE}:build", "--every-node")
        assert result.code == 0, result.err
        assert result.out.startswith("equal to eager: 1 output")
        report = run("verify", "net.json", f"{SOURCE}:build", "--json").json
        assert report["is_valid"] is True

    def test_another_program(self, run, extracted, place):
        sine = extracted.nodes[2].replace(op_type="aten.sin.default")
        serde.save(extracted.replace(nodes=(*extracted.nodes[:2], sine)), place / "wrong.json")
        result = run("verify", "wrong.json", f"{SOURCE}:build", "--every-node")
        assert result.code == 1
        assert result.out.startswith("NOT equal to eager")
        assert "relu" in result.out

    def test_with_a_weights_file(self, run, extracted, place):
        save_file(
            {"fc.weight": torch.ones(4, 3), "fc.bias": torch.ones(4)}, place / "w.safetensors"
        )
        args = ("verify", "net.json", f"{SOURCE}:Net", "--input", "2x3", "--weights")
        assert run(*args, "w.safetensors").code == 0
        save_file({"fc.weight": torch.ones(4, 3)}, place / "w.safetensors")
        result = run(*args, "w.safetensors")
        assert result.code == 1
        assert result.err == (
            "error: the weights are not those of net_source.py:Net\n"
            '    Missing key(s) in state_dict: "fc.bias".\n'
            "Give the weights of this model.\n"
        )
