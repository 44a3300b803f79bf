"""show, info, check, diff, convert, completion, and the group itself."""

import json

import pytest

from torch_ir import IR, parse, serde

FILES = ["m.json", "m.tir", "m.ir"]


class TestGroup:
    def test_help_lists_the_commands(self, run):
        result = run("--help")
        assert result.code == 0
        assert "  convert      Write an IR in another format.\n" in result.out

    @pytest.mark.parametrize(
        "command",
        ["extract", "show", "info", "check", "diff", "run", "verify", "convert", "completion"],
    )
    def test_every_command_has_help(self, run, command):
        result = run(command, "--help")
        assert result.code == 0
        assert result.out.startswith(f"Usage: torch-ir {command} [OPTIONS]")

    def test_an_unknown_command_names_the_closest(self, run):
        result = run("sho", "m.json")
        assert result.code == 2
        assert result.err.endswith("Error: there is no command 'sho'. Did you mean show?\n")

    def test_an_error_is_told_without_traceback_unless_asked(self, run):
        assert run("show", "no.json").err == "error: there is no file no.json\n"
        assert run("show", "no.json").code == 1
        for args in (("show", "no.json", "--traceback"), ("--traceback", "show", "no.json")):
            result = run(*args)
            assert result.err.startswith("Traceback (most recent call last):\n")
            assert result.err.endswith("error: there is no file no.json\n")

    def test_completion(self, run):
        assert (
            run("completion", "bash").out == 'eval "$(_TORCH_IR_COMPLETE=bash_source torch-ir)"\n'
        )
        assert run("completion", "tcsh").code == 2


class TestShow:
    @pytest.mark.parametrize("file", FILES)
    def test_every_format_prints_the_same_text(self, run, ir, file):
        result = run("show", file)
        assert (result.code, result.err) == (0, "")
        assert parse(result.out) == ir

    @pytest.mark.parametrize("file", FILES)
    def test_stdin(self, run, ir, place, file):
        assert parse(run("show", "-", stdin=(place / file).read_bytes()).out) == ir

    @pytest.mark.parametrize("option", [["--module"], ["--module", "1"], ["--module=1"]])
    def test_folded_by_module(self, run, ir, option):
        lines = run("show", "m.json", *option).out.splitlines()
        assert "  # fc (Linear): 1 node, %x: f32[2, 3] -> %linear: f32[2, 4]" in lines
        assert not any("aten.linear.default" in line for line in lines)

    def test_module_before_the_file_is_explained(self, run, ir):
        result = run("show", "--module", "m.json")
        assert result.code == 2
        assert result.err.endswith(
            "Error: Invalid value for '--module': 'm.json' is not a depth; put --module after "
            "the file, or write --module=1\n"
        )
        assert run("show", "m.json", "--module=0").err.endswith(
            "'--module': 0 is less than 1, the model's own children\n"
        )

    def test_output_file(self, run, ir, place):
        assert run("show", "m.json", "-o", "out.txt").out == ""
        assert parse((place / "out.txt").read_text()) == ir

    def test_a_fault_in_text_is_shown_with_its_file(self, run, ir, place):
        (place / "bad.ir").write_text(str(ir).replace("aten.relu", "!!"))
        result = run("show", "bad.ir")
        assert result.code == 1
        assert result.err.startswith("error: bad.ir: ")
        assert "^" in result.err


class TestInfo:
    def test_for_people(self, run, ir):
        assert run("info", "m.json").out == (
            "Net: 2 nodes, dialect export\n"
            "parameters  12  in 1 tensors  48 B\n"
            "inputs:\n"
            "  x: f32[2, 3]\n"
            "outputs:\n"
            "  relu: f32[2, 4]\n"
            "operators:\n"
            "  1  aten.linear.default\n"
            "  1  aten.relu.default\n"
        )

    def test_for_scripts(self, run, ir):
        facts = run("info", "m.tir", "--json").json
        assert facts["nodes"] == 2
        assert facts["parameters"] == {"tensors": 1, "elements": 12, "bytes": 48}
        assert facts["buffers"] == {"tensors": 0, "elements": 0, "bytes": 0}
        assert facts["inputs"] == [
            {"name": "x", "shape": [2, 3], "dtype": "float32", "type": "f32[2, 3]"}
        ]
        assert facts["operators"] == {"aten.linear.default": 1, "aten.relu.default": 1}

    def test_buffers_are_counted_apart(self, run, ir, place):
        serde.save(
            ir.replace(weight_name_mapping={"b_fc_weight": "fc.weight"}), place / "buffer.json"
        )
        facts = run("info", "buffer.json", "--json").json
        assert facts["buffers"]["elements"] == 12
        assert facts["parameters"]["elements"] == 0

    def test_an_empty_program(self, run, place):
        serde.save(IR([], [], [], []), place / "empty.json")
        assert run("info", "empty.json").out == (
            "(no name): 0 nodes, dialect export\ninputs: none\noutputs: none\noperators: none\n"
        )


class TestCheck:
    def test_a_sound_program(self, run, ir):
        result = run("check", "m.json")
        assert (result.code, result.out, result.err) == (0, "m.json: no findings\n", "")
        assert run("check", "m.json", "--json").json == []

    def test_findings_and_exit_status(self, run, broken_ir):
        result = run("check", "broken.json", "--no-types")
        assert result.code == 1
        assert "[undefined-value] node 'relu': %ghost is used but never defined\n" in result.out
        assert result.err == "broken.json: 1 finding\n"

    def test_findings_for_scripts(self, run, broken_ir):
        result = run("check", "broken.json", "--json")
        assert result.code == 1
        assert [(found["code"], found["node"]) for found in result.json] == [
            ("undefined-value", "relu")
        ]
        assert result.err == ("note: types were not checked, because the structure is not sound\n")

    def test_types_are_derived_again(self, run, ir, place):
        wrong = ir.graph_outputs[0].replace(shape=(2, 5))
        relu = ir.nodes[1].replace(outputs=(wrong,))
        serde.save(ir.replace(nodes=(ir.nodes[0], relu), graph_outputs=(wrong,)), place / "w.json")
        result = run("check", "w.json")
        assert result.code == 1
        assert "node 'relu'" in result.out
        assert "f32[2, 5]" in result.out
        assert run("check", "w.json", "--no-types").code == 0


class TestDiff:
    def test_the_same_in_two_formats(self, run, ir):
        result = run("diff", "m.json", "m.ir")
        assert (result.code, result.out, result.err) == (0, "", "")

    def test_different(self, run, ir, place):
        sine = ir.nodes[1].replace(op_type="aten.sin.default")
        serde.save(ir.replace(nodes=(ir.nodes[0], sine)), place / "sine.json")
        result = run("diff", "m.json", "sine.json")
        assert result.code == 1
        assert "aten.relu.default" in result.out
        assert "aten.sin.default" in result.out
        found = run("diff", "m.json", "sine.json", "--json")
        assert found.code == 1
        assert found.json["different"] is True
        assert found.json["report"] == result.out.splitlines()

    def test_one_may_be_stdin(self, run, ir, place):
        assert run("diff", "-", "m.json", stdin=(place / "m.tir").read_bytes()).code == 0
        result = run("diff", "-", "-")
        assert result.code == 2
        assert result.err.endswith("Error: only one of the two can be standard input\n")


class TestConvert:
    @pytest.mark.parametrize("source", FILES)
    @pytest.mark.parametrize("name", ["out.json", "out.tir", "out.ir", "out.txt"])
    def test_between_all_formats(self, run, ir, source, name):
        result = run("convert", source, name)
        assert (result.code, result.out, result.err) == (0, "", "")
        read_back = run("convert", name, "--to", "json").out
        assert serde.loads(read_back) == ir

    def test_the_output_may_be_an_option(self, run, ir, place):
        assert run("convert", "m.json", "-o", "out.tir").code == 0
        assert serde.load(place / "out.tir") == ir

    def test_a_chain_through_pipes(self, run, ir, place):
        archive = run("convert", "m.ir", "--to", "json").out
        text = run("convert", "-", "-", "--to", "text", stdin=archive).out
        assert parse(text) == ir

    def test_diagrams(self, run, ir, place):
        assert run("convert", "m.json", "--to", "mermaid").out.startswith("flowchart TD\n")
        assert run("convert", "m.json", "out.html").code == 0
        assert "Content-Security-Policy" in (place / "out.html").read_text()

    def test_other_viewers(self, run, ir, place):
        assert run("convert", "m.json", "out.dot").code == 0
        assert (place / "out.dot").read_text().startswith("digraph {")
        assert run("convert", "m.json", "out.me.json").code == 0
        assert json.loads((place / "out.me.json").read_text())["label"] == "Net"

    def test_a_page_to_look_at(self, run, ir, place):
        assert run("view", "m.json").err == "wrote m.html\n"
        assert run("convert", "m.json", "--to", "html").out == (place / "m.html").read_text()
        assert run("view", "m.json").code == 0  # over its own page
        (place / "m.html").write_text("<p>mine")
        refused = run("view", "m.json")
        assert refused.code == 2
        assert "m.html is there and was not written by torch-ir; give -o PATH" in refused.err
        assert run("view", "m.json", "-o", "m.html").code == 0

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (
                ["out.xyz"],
                "the name 'out.xyz' does not say which format to write; give --to, or a "
                "name that ends in one of .json, .tir, .ir, .txt, .mmd, .html, "
                ".me.json, .dot, .pt2, .onnx",
            ),
            ([], "give a file to write, or --to and it goes to stdout"),
            (["a.json", "-o", "b.json"], "the output is given twice"),
        ],
    )
    def test_usage(self, run, ir, args, message):
        result = run("convert", "m.json", *args)
        assert result.code == 2
        assert result.err.endswith(f"Error: {message}\n")

    def test_weights_stay_in_archives(self, run, ir, place):
        import torch

        from torch_ir.weights import load_weights

        weights = {"fc.weight": torch.arange(12.0).reshape(4, 3)}
        serde.save(ir, place / "w.tir", weights=weights)
        assert run("convert", "w.tir", "copy.tir").err == ""
        assert torch.equal(load_weights("copy.tir")["fc.weight"], weights["fc.weight"])
        assert run("convert", "w.tir", "out.json").err == (
            "note: the weights in w.tir are left out; only an archive holds weights\n"
        )

    def test_a_failed_write_leaves_the_old_file(self, run, ir, place):
        (place / "dir.json").mkdir()
        result = run("convert", "m.json", "dir.json")
        assert result.code == 1
        assert result.err.startswith("error: dir.json: ")
        assert not list((place / "dir.json").iterdir())
