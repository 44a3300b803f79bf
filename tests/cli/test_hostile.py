"""Every command, given every kind of wrong file: a message and exit status 1 or 2, no more."""

import json
import os
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from torch_ir import serde


class Touch:
    def __reduce__(self):
        return os.mkdir, ("touched",)


@pytest.fixture
def wrong(ir, place):
    """Files that are no IR, by name."""
    data = (place / "m.json").read_bytes()
    archive = (place / "m.tir").read_bytes()
    torch.save({"x": Touch()}, place / "code.pt")
    with zipfile.ZipFile(place / "other.tir", "w") as file:
        file.writestr("readme.txt", "no IR")
    huge = json.loads(data)
    huge["graph_inputs"][0]["shape"] = [10**9, 10**9, 10**9]
    contents = {
        "empty.json": b"",
        "empty.tir": b"",
        "empty": b"",
        "junk.json": b"junk",
        "junk": b"junk",
        "binary": bytes(range(256)),
        "latin": "é".encode("latin-1") * 9,
        "list.json": b"[]",
        "null.json": b"null",
        "object.json": b"{}",
        "cut.json": data[: len(data) // 2],
        "cut.tir": archive[: len(archive) // 2],
        "changed.tir": archive.replace(b'"nodes"', b'"Nodes"'),
        "deep.json": b'{"a":' * 100_000,
        "deep": b"[" * 100_000,
        "pickle.json": (place / "code.pt").read_bytes(),
        "huge.json": json.dumps(huge).encode(),
        "half.ir": b'ir "Net" {\n  input %x: f32[2',
    }
    for name, content in contents.items():
        (place / name).write_bytes(content)
    (place / "directory.json").mkdir()
    return [*contents, "other.tir", "code.pt", "directory.json", "missing.json", "a/b/missing.ir"]


def assert_clean(result, what):
    text = result.out + result.err
    assert result.code in (1, 2), f"{what}: exit status {result.code}: {text}"
    assert result.err.strip(), what
    assert "Traceback" not in text, f"{what}: {text}"
    assert "fault of torch-ir" not in text, f"{what}: {text}"
    assert not Path("touched").exists(), what


@pytest.mark.parametrize(
    "command",
    [
        ["show", "FILE"],
        ["info", "FILE"],
        ["check", "FILE"],
        ["diff", "FILE", "m.json"],
        ["diff", "m.json", "FILE"],
        ["convert", "FILE", "out.json"],
        ["convert", "FILE", "out.tir"],
        ["run", "FILE", "--random", "--random-weights"],
        ["verify", "FILE", "net_source.py:build"],
    ],
    ids=" ".join,
)
def test_files_that_are_no_ir(run, wrong, place, command):
    only_runs_out_of_memory = {"huge.json"} if command[0] not in ("run", "verify") else set()
    for name in sorted({*wrong} - only_runs_out_of_memory):
        result = run(*[name if part == "FILE" else part for part in command])
        assert_clean(result, f"{command} {name}")
    assert not (place / "out.json").exists()
    assert not (place / "out.tir").exists()


@pytest.mark.parametrize(
    "name", ["empty", "junk", "binary", "latin", "deep", "cut.tir", "cut.json"]
)
def test_wrong_content_on_stdin(run, wrong, place, name):
    assert_clean(run("show", "-", stdin=(place / name).read_bytes()), name)


def test_weights_inputs_and_constants_that_are_none(run, wrong, place):
    save_file({"a": torch.ones(3)}, place / "good.safetensors")
    (place / "cut.safetensors").write_bytes((place / "good.safetensors").read_bytes()[:-3])
    (place / "code.safetensors").write_bytes((place / "code.pt").read_bytes())
    (place / "code.npz").write_bytes((place / "code.pt").read_bytes())
    (place / "junk.npz").write_bytes(b"junk")
    (place / "empty.npz").write_bytes(b"")
    (place / "empty.pt2").write_bytes(b"")
    named = [
        "cut.safetensors",
        "code.safetensors",
        "code.pt",
        "code.npz",
        "junk.npz",
        "empty.npz",
        "empty.pt2",
        "missing.npz",
        "missing.pt",
    ]
    for name in [*named, *wrong]:
        for option in ("--weights", "--inputs", "--constants"):
            rest = {
                "--weights": ["--random"],
                "--inputs": ["--random-weights"],
                "--constants": ["--random", "--random-weights"],
            }[option]
            assert_clean(run("run", "m.json", option, name, *rest), f"{option} {name}")


def test_programs_and_sources_that_are_none(run, wrong, place):
    for name in wrong:
        (place / "program.pt2").unlink(missing_ok=True)
        if (place / name).is_file():
            (place / "program.pt2").write_bytes((place / name).read_bytes())
        assert_clean(run("extract", "program.pt2", "--trust"), name)
        assert_clean(run("extract", f"{name}:build"), name)


def test_a_program_with_a_dangling_name_cannot_be_run(run, broken_ir):
    result = run("run", "broken.json", "--random", "--random-weights")
    assert_clean(result, "dangling")
    assert "ghost" in result.err


def test_output_that_cannot_be_written(run, ir, place):
    (place / "file").write_text("old")
    for args in (
        ("convert", "m.json", "file/below.json"),
        ("convert", "m.json", "no/such/directory.tir"),
        ("show", "m.json", "-o", "no/such/directory.txt"),
        ("run", "m.json", "--random", "--random-weights", "-o", "no/such/y.npz"),
    ):
        assert_clean(run(*args), args)
    assert (place / "file").read_text() == "old"
    assert serde.load(place / "m.json") == ir
