"""Every command with every kind of wrong file, place and value: one error, and nothing written."""

import json
import os
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from click import FloatRange, IntRange
from click.testing import CliRunner
from safetensors.torch import save_file

from torch_ir import parse, serde
from torch_ir.cli import COMMANDS, main
from torch_ir.cli.options import FOLDER
from torch_ir.serde import files

PROGRAM = """ir {
  weight @w: f32[2]
  input %x: f32[2]
  %a: f32[2] = aten.add.Tensor(%x, @w)
  %y: f32[2] = aten.relu.default(%a)
  return %y
}
"""
NET = """
import torch

def build():
    return torch.nn.ReLU(), (torch.ones(2),)
"""
RANDOM = ["--random", "--random-weights"]
CALLS = {
    "extract": ["net.py:build"],
    "view": ["m.ir", "-o", "-"],
    "plot": ["report.json"],
    "diff": ["m.ir", "m.ir"],
    "cut": ["m.ir", "--nodes", "y", "--record", "made.npz", *RANDOM],
    "opt": ["m.ir", "--validate", "each", *RANDOM],
    "shard": ["m.ir", "--ranks", "2", "--split", "w=0", "-o", "made", "--validate", *RANDOM],
    "run": ["m.ir", *RANDOM],
    "profile": ["m.ir", *RANDOM, "--repeat", "1"],
    "bench": ["m.ir", *RANDOM, "--backends", "aten", "--seconds", "1"],
    "support": ["m.ir", "--backend", "inductor"],
    "partition": ["m.ir", "--backend", "inductor"],
    "verify": ["m.ir", "net.py:build"],
    "validate": ["m.ir", *RANDOM],
    "compare": ["m.ir", *RANDOM],
    "attribute": ["m.ir", *RANDOM],
    "bisect": ["m.ir", "-p", "dce", *RANDOM],
    "reduce": ["m.ir", *RANDOM, "--run", "aten", "-o", "made", "--seconds", "1"],
    "convert": ["m.ir", "made.json"],
    "conform": ["--backend", "aten", "--operators", "aten.relu.default", "--seconds", "1"],
    "fuzz": ["--backend", "aten", "--programs", "1", "--nodes", "2"],
    "completion": ["bash"],
}
NO_FILES = {"browse", "conform", "fuzz", "operators", "extensions", "completion", "extract"}
READ = {
    "--transformers": "json",
    "--overlay": "json",
    "--expect": "txt",
    "--plan": "json",
    "--weights": "safetensors",
    "--constants": "npz",
    "--inputs": "npz",
    "--cases": "json",
    "--baseline": "json",
}
WRITTEN = ("--output", "--record", "--capture", "--chrome", "--repro")
INSTEAD = {"--inputs": "--random", "--weights": "--random-weights"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a program, and with files that are none, by kind and ending."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "m.ir").write_text(PROGRAM)
    serde.save(parse(PROGRAM), folder / "whole.tir")
    serde.save(parse(PROGRAM), folder / "whole.json")
    (folder / "net.py").write_text(NET)
    (folder / "report.json").write_text(json.dumps({"values": {"x": [1.0, 2.0]}}))
    save_file({"w": torch.ones(2)}, folder / "whole.safetensors")
    torch.save({"w": torch.nn.Linear}, folder / "whole.pt")
    np.savez(folder / "whole.npz", x=np.array([None], dtype=object))
    os.mkfifo(folder / "pipe")
    for ending in ("tir", "json", "ir", "npz", "safetensors", "txt"):
        whole = folder / f"whole.{ending}"
        contents = {
            "empty": b"",
            "cut": (whole.read_bytes() if whole.exists() else PROGRAM.encode())[:-20],
            "junk": b"junk\xff",
            "deep": b'{"a":' * 50_000,
            "null": b"null",
            "lists": b"[[1, 2], [3]]",
            "escapes": b"\x1b]0;p\x07",
            "code": (folder / "whole.pt").read_bytes(),
        }
        for name, content in contents.items():
            (folder / f"{name}.{ending}").write_bytes(content)
        (folder / f"folder.{ending}").mkdir()
        with zipfile.ZipFile(folder / f"other.{ending}", "w") as file:
            file.writestr("readme.txt", "no program")
    (folder / "whole.npz").rename(folder / "objects.npz")
    return folder


def wrong_files(ending):
    kinds = ("empty", "cut", "junk", "deep", "null", "lists", "escapes", "code", "folder", "other")
    long, bytes_of_none = f"{'x' * 300}.{ending}", f"caf\udce9.{ending}"
    return [*(f"{kind}.{ending}" for kind in kinds), f"absent.{ending}", long, bytes_of_none, ""]


def options_of(name):
    command = import_module(f"torch_ir.cli.commands.{name}").command
    return {parameter.opts[-1]: parameter for parameter in command.params}


def without(args, *options):
    """A call without the values of options."""
    args = list(args)
    for option in options:
        while option in args:
            at = args.index(option)
            del args[at : at + 2]
    return args


def complaints(args, codes=(1, 2)):
    """What is wrong with how a wrong call ends."""
    result = CliRunner().invoke(main, args, prog_name="torch-ir")
    shown = result.stderr
    what = []
    if result.exit_code not in codes:
        what.append(f"exit status {result.exit_code}")
    if not isinstance(result.exception, SystemExit | None):
        what.append(repr(result.exception))
    if result.exit_code and "rror: " not in shown and result.exit_code != 3:
        what.append("no error")
    if "Traceback" in shown or "fault of torch-ir" in shown:
        what.append("a fault")
    return [f"{ascii(args)[:150]}: {', '.join(what)}: {shown[-200:]!a}"] if what else []


def require_unchanged(place, calls, monkeypatch, codes=(1, 2)):
    """Make calls; each has to end in an error, and to leave the folder as it was."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # else the first import of net.py does
    before = sorted(place.rglob("*"))
    found = [fault for args in calls for fault in complaints(args, codes)]
    assert found == []
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NO_FILES])
def test_files_that_are_none(name, place, monkeypatch):
    args = CALLS.get(name, ["m.ir"])
    endings = ("json",) if name == "plot" else ("tir", "json", "ir")
    calls = [[name, file, *args[1:]] for ending in endings for file in wrong_files(ending)]
    require_unchanged(place, calls, monkeypatch)


@pytest.mark.parametrize("name", [name for name in COMMANDS if {*READ} & {*options_of(name)}])
def test_other_files_that_are_none(name, place, monkeypatch):
    calls = [
        [name, *without(args, option), option, file]
        for option in {*READ} & {*options_of(name)}
        for args in [[a for a in CALLS.get(name, ["m.ir"]) if a != INSTEAD.get(option)]]
        for file in wrong_files(READ[option])
    ]
    require_unchanged(place, calls, monkeypatch)


@pytest.mark.parametrize("name", [name for name in COMMANDS if {*WRITTEN} & {*options_of(name)}])
def test_places_that_nothing_can_be_written_to(name, place, monkeypatch):
    found = options_of(name)
    calls = [
        [name, *without(CALLS.get(name, ["m.ir"]), "-o", option), option, there]
        for option in {*WRITTEN} & {*found}
        for there in ("m.ir/below.json", "folder.json", f"{'x' * 300}.json")
        if there != "folder.json" or found[option].type is not FOLDER
    ]
    may_end_well = name in ("validate", "compare", "fuzz")  # where nothing is found to write
    require_unchanged(place, calls, monkeypatch, codes=(0, 1, 2) if may_end_well else (1, 2))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "browse"])
def test_numbers_that_are_none(name, place, monkeypatch):
    numbers = ["", "x", "-1", "9" * 30 + "x", "é", "nan"]
    calls = [
        [name, *without(CALLS.get(name, ["m.ir"]), *parameter.opts), option, number]
        for option, parameter in options_of(name).items()
        if isinstance(parameter.type, IntRange | FloatRange)
        for number in [*numbers, *(["1e999"] if isinstance(parameter.type, IntRange) else [])]
    ]
    require_unchanged(place, calls, monkeypatch)


@pytest.mark.parametrize("name", ["conform", "fuzz", "reduce", "bench"])
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "1e999", "9" * 30, "x"])
def test_limits_of_time_that_are_none(name, seconds, place, monkeypatch):
    calls = [[name, *without(CALLS[name], "--seconds"), "--seconds", seconds]]
    require_unchanged(place, calls, monkeypatch, codes=(2,))


TEXTS = [
    ("reduce m.ir -o made --test true --match (", "'(' is no pattern: missing )"),
    ("reduce m.ir -o made --test ", "--test names no command"),
    ("show m.ir --grep (", "'(' is no pattern: missing )"),
    ("bench m.ir --backends ,", "give one backend or more"),
    ("bisect m.ir --passes ,", "give one pass or more"),
    ("cut m.ir --nodes y --record y.txt", "'y.txt' does not end in .safetensors or .npz"),
    ("view m.ir -o m.png", "a page is .html, and node data .me-data.json, not .png"),
    ("lower m.ir -o m.png", "not say which format to write; it ends in one of .json, .tir"),
    ("convert m.ir m.png", "or a name that ends in one of .json, .tir, .ir, .txt"),
]


@pytest.mark.parametrize(("call", "message"), TEXTS)
def test_texts_that_say_nothing(call, message, place, monkeypatch):
    require_unchanged(place, [call.split(" ")], monkeypatch, codes=(2,))
    assert message in CliRunner().invoke(main, call.split(" ")).stderr


def test_a_plan_that_is_none(place, monkeypatch):
    monkeypatch.chdir(place)
    call = ["shard", "m.ir", "--ranks", "2", "--plan", "junk.json", "-o", "made"]
    assert 'It is JSON such as {"*.up": "column"}.' in CliRunner().invoke(main, call).stderr


@pytest.mark.parametrize("name", ["run", "verify", "fuzz", "cases", "compare"])
def test_seeds_that_no_generator_takes(name, place, monkeypatch):
    calls = [[name, *CALLS.get(name, ["m.ir"]), "--seed", seed] for seed in ("-1", "9" * 30)]
    require_unchanged(place, calls, monkeypatch)


def test_a_result_may_take_the_place_of_its_file(place, monkeypatch):
    monkeypatch.chdir(place)
    Path("own.json").write_bytes(Path("whole.json").read_bytes())
    assert complaints(["convert", "own.json", "own.json"], codes=(0,)) == []
    assert complaints(["opt", "own.json", "-o", "own.json"], codes=(0,)) == []
    assert serde.load("own.json") == parse(PROGRAM)
    Path("own.json").unlink()


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no such device")
def test_a_report_that_never_ends(monkeypatch):
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 2**20)
    result = CliRunner().invoke(main, ["plot", "/dev/zero"])
    assert result.exit_code == 1
    assert "larger than the 1 MiB that a JSON document may have" in result.output
