"""profile, and run --capture: what the options say, and what goes wrong."""

import json

import pytest
import torch
from safetensors.torch import load_file

from torch_ir import serde


def usage(command, message):
    return (
        f"Usage: torch-ir {command} [OPTIONS] FILE\n"
        f"Try 'torch-ir {command} --help' for help.\n\nError: {message}\n"
    )


class TestProfile:
    def test_the_table(self, run, ir):
        result = run("profile", "m.json", "--random", "--random-weights", "--repeat", 2)
        assert result.code == 0, result.err
        lines = result.out.splitlines()
        threads = torch.get_num_threads()
        assert lines[0].startswith("Net: 2 nodes in ")
        assert lines[0].endswith(f"thread{'s' * (threads > 1)}; medians of 2 runs")
        assert lines[1].startswith("a whole run takes ")
        assert " ".join(lines[3].split()) == "time share nodes read written FLOPs operator"
        assert {line.split()[-1] for line in lines[4:]} == {
            "aten.linear.default",
            "aten.relu.default",
        }

    def test_rows_by_module_and_by_node(self, run, ir):
        options = ("m.json", "--random", "--random-weights", "--repeat", 1)
        by_module = run("profile", *options, "--by", "module").out.splitlines()
        assert [line.split()[-1] for line in by_module[4:]] == ["(root)", "fc"]
        by_node = run("profile", *options, "--by", "node", "--top", 1).out.splitlines()
        assert len(by_node) == 6
        assert by_node[5] == "and 1 more"

    def test_json_has_everything(self, run, ir):
        result = run("profile", "m.json", "--random", "--random-weights", "--repeat", 1, "--json")
        assert [node["node"] for node in result.json["nodes"]] == ["linear", "relu"]
        assert result.json["nodes"][0]["flops"] == 48
        assert result.json["nodes"][0]["location"] == "net.py:7"
        assert {group["name"] for group in result.json["modules"]} == {"", "fc"}

    def test_a_trace_for_the_browser(self, run, ir, place):
        options = ("m.json", "--random", "--random-weights", "--repeat", 1)
        result = run("profile", *options, "--chrome", "trace.json")
        assert result.code == 0, result.err
        events = json.loads((place / "trace.json").read_text())["traceEvents"]
        slices = [event["name"] for event in events if event["ph"] == "X"]
        assert slices == ["fc", "aten.linear.default", "aten.relu.default"]

    def test_an_archive_brings_its_weights(self, run, ir):
        serde.save(ir, "with.tir", weights={"fc.weight": torch.ones(4, 3)})
        result = run("profile", "with.tir", "--random", "--repeat", 1)
        assert (result.code, result.err) == (0, "")

    def test_missing_inputs_and_weights(self, run, ir):
        result = run("profile", "m.json", "--random-weights")
        assert (result.code, result.err) == (
            2,
            usage("profile", "give --inputs or --random; the inputs are %x: f32[2, 3]"),
        )
        result = run("profile", "m.json", "--random")
        assert (result.code, result.err) == (
            1,
            "error: the program has 1 weight and none were given\n"
            "Give --weights PATH, or --random-weights for a quick try.\n",
        )

    def test_a_file_that_cannot_be_written(self, run, ir):
        options = ("m.json", "--random", "--random-weights", "--repeat", 1)
        result = run("profile", *options, "--chrome", "nowhere/trace.json")
        assert (result.code, result.out, result.err) == (
            1,
            "",
            "error: nowhere/trace.json: cannot be written: No such file or directory\n",
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--repeat", "0"], "Invalid value for '--repeat': 0 is not in the range x>=1."),
            (["--top", "0"], "Invalid value for '--top': 0 is not in the range x>=1."),
            (
                ["--by", "layer"],
                "Invalid value for '--by': 'layer' is not one of 'node', 'operator', 'module'.",
            ),
            (["--inputs", "x.npz", "--random"], "--inputs and --random exclude each other"),
        ],
    )
    def test_wrong_usage(self, run, ir, options, message):
        result = run("profile", "m.json", *options)
        assert (result.code, result.err) == (2, usage("profile", message))


class TestCapture:
    def test_everything_on_the_way(self, run, ir, place):
        options = ("m.json", "--random", "--random-weights")
        plain = run("run", *options, "-o", "y.safetensors")
        captured = run("run", *options, "--capture", "golden.safetensors")
        assert captured.out == plain.out
        values = load_file(place / "golden.safetensors")
        assert set(values) == {"x", "linear", "relu"}
        assert torch.equal(values["relu"], values["linear"].relu())
        assert torch.equal(values["relu"], load_file(place / "y.safetensors")["relu"])

    def test_what_is_chosen(self, run, ir, place):
        options = ("m.json", "--random", "--random-weights", "--capture", "g.safetensors")
        assert run("run", *options, "--capture-only", "aten.linear.*").code == 0
        assert set(load_file(place / "g.safetensors")) == {"x", "linear"}

    def test_a_pattern_without_a_match(self, run, ir, place):
        options = ("m.json", "--random", "--random-weights", "--capture", "g.safetensors")
        result = run("run", *options, "--capture-only", "liner")
        assert (result.code, result.out, result.err) == (
            1,
            "",
            "error: no value, node or operator matches 'liner'\nDid you mean linear?\n",
        )
        assert not (place / "g.safetensors").exists()

    def test_a_file_that_cannot_be_written(self, run, ir):
        options = ("m.json", "--random", "--random-weights")
        result = run("run", *options, "--capture", "nowhere/g.safetensors")
        assert (result.code, result.err) == (
            1,
            "error: nowhere/g.safetensors: cannot be written: No such file or directory\n",
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                ["--capture-only", "relu"],
                "--capture-only is for --capture, which says where to",
            ),
            (["--capture", "g.npz"], "the name 'g.npz' does not end in .safetensors"),
            (
                ["--capture", "g.safetensors", "--reference"],
                "--capture and --reference exclude each other",
            ),
        ],
    )
    def test_wrong_usage(self, run, ir, options, message):
        result = run("run", "m.json", "--random", "--random-weights", *options)
        assert (result.code, result.err) == (2, usage("run", message))
