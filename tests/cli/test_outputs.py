"""Outputs in the place of what they are made of, and under the names of other kinds of file."""

import hashlib
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from torch_ir import parse, serde
from torch_ir.cli import main
from torch_ir.ir import Constant

PROGRAM = """ir {
  weight @w: f32[2]
  input %x: f32[2]
  %y: f32[2] = aten.mul.Tensor(%x, @w)
  %z: f32[2] = aten.relu.default(%y)
  return %z
}"""
LOSING = (
    "lower m.tir -o m.tir",
    "lower m.tir --to edge -o folder/../m.tir",
    "opt m.tir -o m.tir",
    "cut m.tir --nodes z -o link.tir",
    "partition m.tir --backend inductor -o m.tir",
    "convert m.tir m.tir --to json",
    "convert m.tir m.tir --to html",
)
MISNAMED = {
    "show m.tir -o m.tir": "show writes text, and a file named 'm.tir' is read as tir; "
    "torch-ir convert writes that",
    "show m.tir -o x.html": "show writes text, and a file named 'x.html' is read as html; "
    "torch-ir convert writes that",
    "profile m.tir --random --repeat 1 --chrome m.tir": "the name 'm.tir' does not end in .json",
    "conform --backend aten -o m.tir": "the name 'm.tir' does not end in .json or .md",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    weights = {"w": Constant.from_numpy(np.float32([1, 2]))}
    serde.save(parse(PROGRAM), tmp_path / "m.tir", weights=weights)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.tir").symlink_to("m.tir")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(folder, arguments):
    """The last line of stderr and the status of a call, after which the program is as before."""
    before = hashlib.sha256((folder / "m.tir").read_bytes()).digest()
    done = CliRunner().invoke(main, arguments.split())
    assert hashlib.sha256((folder / "m.tir").read_bytes()).digest() == before
    return done.stderr.splitlines()[-1], done.exit_code


@pytest.mark.parametrize("arguments", LOSING)
def test_what_has_no_weights_does_not_take_the_place_of_weights(folder, arguments):
    message = (
        "Error: m.tir holds weights, which the result does not: they would be lost. "
        "Give another name as -o"
    )
    assert told(folder, arguments) == (message, 2)


@pytest.mark.parametrize("arguments", MISNAMED)
def test_a_result_has_no_name_of_another_kind(folder, arguments):
    assert told(folder, arguments) == (f"Error: {MISNAMED[arguments]}", 2)


def test_programs_without_weights_and_archives_that_keep_them_are_replaced(folder):
    (folder / "bare.ir").write_text(PROGRAM)
    for arguments in ("opt bare.ir -o bare.ir", "convert m.tir m.tir", "show m.tir -o m.ir"):
        assert CliRunner().invoke(main, arguments.split()).exit_code == 0
    assert serde.read_archive_weights("m.tir").keys() == {"w"}


@pytest.mark.parametrize(
    "arguments", ["cut m.tir --nodes z -o part.tir", "cut m.tir --stages 2 -o stages"]
)
def test_that_weights_are_left_out_is_said(folder, arguments):
    said = ("note: the weights in m.tir are left out; they fit the result", 0)
    assert told(folder, arguments) == said


def test_a_file_in_the_place_of_a_folder(folder):
    message = "error: m.tir: cannot be written: Not a directory"
    assert told(folder, "cut m.tir --stages 2 -o m.tir") == (message, 1)


@pytest.mark.parametrize(
    "arguments", ["show m.tir -o", "cases m.tir -o", "opt m.tir -o", "fuzz --backend aten -o"]
)
def test_an_empty_name_is_no_output(folder, arguments):
    before = sorted(folder.iterdir())
    result = CliRunner().invoke(main, [*arguments.split(), ""])
    told = "Error: Invalid value for '-o' / '--output': it is empty"
    assert (result.stderr.splitlines()[-1], result.exit_code) == (told, 2)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    ["info", "plot", "diff m.tir", "run m.tir --weights", "run m.tir --random --constants"],
)
def test_an_empty_name_is_no_input(folder, arguments):
    result = CliRunner().invoke(main, [*arguments.split(), ""])
    told = "error: the path of a file or folder is empty\nGive the name of one.\n"
    assert (result.stderr, result.exit_code) == (told, 1)


def test_an_empty_name_is_no_module(folder):
    result = CliRunner().invoke(main, ["info", "m.tir", "--import", ""])
    told = "error: the name of a module is empty\nGive the name of a module, or path/to/file.py.\n"
    assert (result.stderr, result.exit_code) == (told, 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("suffix", ["tir", "json", "ir"])
def test_a_program_comes_from_a_pipe(folder, suffix):
    assert CliRunner().invoke(main, ["convert", "m.tir", f"copy.{suffix}"]).exit_code == 0
    data = Path(f"copy.{suffix}").read_bytes()
    os.mkfifo("pipe")
    for arguments in ("info pipe", "opt pipe -p dce -o short.ir", "convert pipe other.tir"):
        writer = threading.Thread(target=Path("pipe").write_bytes, args=(data,), daemon=True)
        writer.start()
        result = CliRunner().invoke(main, arguments.split())
        assert result.exit_code == 0, result.stderr
        writer.join()
    assert serde.load("other.tir").nodes == parse(PROGRAM).nodes


def test_without_a_folder_for_temporary_files(run, ir, place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", list)
    archive = (place / "m.tir").read_bytes()
    assert run("show", "-", stdin=archive).out == run("show", "m.tir").out
    result = run("convert", "m.tir", "--to", "tir", "-o", "-")
    assert result.code == 1
    assert result.err.startswith("error: no folder for temporary files can be made: ")
    assert result.err.endswith("as the variable TMPDIR.\n")
