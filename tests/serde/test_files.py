"""Files: told apart by content, read within bounds, written whole or not at all."""

import os
import pickle  # noqa: TID251  # to write a file that must not be unpickled
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from torch_ir.errors import SerializationError
from torch_ir.ir import IR, Constant, OpNode, TensorMeta
from torch_ir.serde import (
    MissingFileError,
    deserialize_ir,
    dumps,
    load,
    load_ir,
    read_archive_weights,
    save,
    save_ir,
    serialize_ir,
    storage,
    validate_ir,
    write_atomically,
)
from torch_ir.serde import files as bounds

X = TensorMeta("x", (2,), "float32")
Y = TensorMeta("y", (2,), "float32", "y")
SMALL = IR([OpNode("y", "aten.relu.default", [X], [Y])], [X], [Y], [], model_name="Relu")
TEXT = """\
{
 "format_version": 1,
 "model_name": "Relu",
 "pytorch_version": "",
 "graph_inputs": [
  {"name":"x","shape":[2],"dtype":"float32"}
 ],
 "graph_outputs": [
  {"name":"y","shape":[2],"dtype":"float32","producer_node":"y","producer_output_idx":0}
 ],
 "weights": [],
 "weight_name_mapping": {},
 "nodes": [
  {"name":"y","op_type":"aten.relu.default","inputs":[{"name":"x","shape":[2],"dtype":"float32"}],\
"outputs":[{"name":"y","shape":[2],"dtype":"float32","producer_node":"y","producer_output_idx":0}],\
"attrs":{},"operands":{"self":0}}
 ]
}
"""


def message(call, *arguments):
    with pytest.raises(SerializationError) as caught:
        call(*arguments)
    return str(caught.value)


def test_a_document_has_one_node_a_line(tmp_path):
    path = tmp_path / "m.json"
    SMALL.save(path)
    assert path.read_text() == TEXT
    assert IR.load(path) == IR.load(str(path)) == SMALL


def test_the_calls_of_pytorch_ir(tmp_path):
    path = tmp_path / "new" / "folder" / "m.json"
    save_ir(SMALL, path)
    assert load_ir(path) == deserialize_ir(serialize_ir(SMALL)) == SMALL
    assert validate_ir(SMALL) is True
    with pytest.raises(FileNotFoundError):
        load_ir(tmp_path / "absent.json")
    dangling = SMALL.replace(graph_outputs=[TensorMeta("z", (2,), "float32", "z")])
    lines = message(validate_ir, dangling).splitlines()
    findings = dangling.check()
    assert lines[0] == f"the IR is not well-formed: {len(findings)} finding" + "s" * (
        len(findings) > 1
    )
    assert all(str(finding).splitlines()[0] in "\n".join(lines) for finding in findings)


# -- reading -------------------------------------------------------------------------------------


def test_what_cannot_be_read(tmp_path):
    missing = tmp_path / "absent.json"
    assert message(load, missing) == f"there is no file {missing}"
    with pytest.raises(MissingFileError):
        load(missing)
    assert message(load, tmp_path) == f"{tmp_path}: is a directory, not a file"
    file = tmp_path / "file.json"
    file.write_bytes(b"")
    assert message(load, file) == f"{file}: at $: the document is empty"
    below = file / "m.json"
    assert message(load, below) == f"{below}: cannot be read: Not a directory"
    assert message(load, "a\0b") == r"a\x00b: cannot be read: embedded null byte"
    file.write_bytes(pickle.dumps(dumps(SMALL)))
    assert "Nothing is ever unpickled here." in message(load, file)
    file.write_bytes(b"junk")
    junk = file.rename(tmp_path / "junk.tir")
    assert message(load, junk).startswith(f"{junk}: at $: JSON is malformed")


def test_the_content_tells_an_archive_from_a_document(tmp_path):
    save(SMALL, tmp_path / "m.tir")
    (tmp_path / "m.tir").rename(tmp_path / "archive.json")
    assert load(tmp_path / "archive.json") == SMALL
    (tmp_path / "document.tir").write_bytes(dumps(SMALL))
    assert load(tmp_path / "document.tir") == SMALL


def test_a_pipe_can_be_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(dumps(SMALL)))
    writer.start()
    assert load(pipe) == SMALL
    writer.join()


def test_an_archive_can_be_read_from_a_pipe(tmp_path):
    save(SMALL, tmp_path / "m.tir")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = (tmp_path / "m.tir").read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True)
    writer.start()
    assert load(pipe) == SMALL
    writer.join()


def test_a_document_has_a_size(tmp_path, monkeypatch):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(bounds.MAX_JSON_BYTES + 1)  # sparse: takes no room, and is never read
    remedy = "Save large constants in an archive: a name that ends in .tir."
    too_large = "larger than the 512 MiB that a JSON document may have"
    assert message(load, path) == f"{path}: {too_large}\n{remedy}"
    monkeypatch.setattr(storage, "MAX_JSON_BYTES", 100)
    assert message(save, SMALL, path) == f"{path}: larger than the 0 MiB that a JSON document may have\n{remedy}"  # fmt: skip  # noqa: E501


# -- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["json", "tir"])
def test_a_save_that_fails_leaves_the_old_file(tmp_path, suffix):
    path = tmp_path / f"m.{suffix}"
    save(SMALL, path)
    old = path.read_bytes()
    large = SMALL.replace(constants={"c": Constant("uint8", (100_000,), b"\0\1" * 50_000)})
    hollow = SMALL.replace(constants={"c": Constant("uint8", (2,), None, "0" * 64)})
    assert "at $.constants.c: the values of this constant" in message(save, hollow, path)
    assert "at $.model_name" in message(save, SMALL.replace(model_name="\ud800"), path)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        reason = message(save, large, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert reason == f"{path}: cannot be written: File too large"
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written(tmp_path):
    file = tmp_path / "m.json"
    save(SMALL, file)
    below = file / "m.json"
    assert message(save, SMALL, below) == f"{below}: cannot be written: Not a directory"
    absent = tmp_path / "absent" / "m.json"
    assert (
        message(save, SMALL, absent) == f"{absent}: cannot be written: No such file or directory"
    )
    assert message(save, SMALL, tmp_path) == f"{tmp_path}: is a directory, not a file"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert message(save, SMALL, tmp_path / "s") == f"{tmp_path / 's'}: is not a regular file"
    (tmp_path / "s").unlink()
    empty = "the path of a file or folder is empty\nGive the name of one."
    assert message(save, SMALL, "") == message(load, "") == empty
    assert message(save, SMALL, "a\0b").startswith(r"a\x00b: cannot be written: ")
    weighted = message(lambda: save(SMALL, file, weights={}))
    assert (
        weighted == f"{file}: a JSON document holds no weights\nChoose a name that ends in .tir."
    )
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("kind", ["json", "tir"])
def test_a_pipe_is_given_all(tmp_path, kind):
    path, file = tmp_path / f"pipe.{kind}", tmp_path / f"m.{kind}"
    os.mkfifo(path)
    save(SMALL, file)
    reader = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
    save(SMALL, path)
    assert reader.communicate()[0] == file.read_bytes()
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_pipe_of_the_shell_and_devices(tmp_path):
    read, write = os.pipe()
    write_atomically(f"/dev/fd/{write}", b"all")
    os.close(write)
    assert os.read(read, 10) == b"all"
    os.close(read)
    write_atomically(os.devnull, b"all")
    assert Path(os.devnull).is_char_device()
    terminal, other = os.openpty()
    name = os.ttyname(other)
    assert message(write_atomically, name, b"all") == f"{name}: is a terminal, not a file"
    for descriptor in (terminal, other):
        os.close(descriptor)


def test_an_interrupt_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.json"
    path.write_text("old")

    def interrupted():
        with bounds.replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_and_links_are_kept(tmp_path):
    target = tmp_path / "real.json"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    fresh = tmp_path / "fresh.json"
    write_atomically(fresh, b"new")
    plain = tmp_path / "plain"
    plain.touch()
    assert fresh.stat().st_mode == plain.stat().st_mode


def test_a_new_start_imports_neither_torch_nor_numpy(tmp_path):
    path = tmp_path / "m.json"
    save(SMALL.replace(constants={"c": Constant.from_list([1.5, 2], "float32")}), path)
    code = (
        "import sys; from torch_ir.serde import load; load(sys.argv[1]);"
        "print([m for m in ('torch', 'numpy', 'zipfile') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "[]\n"


@pytest.fixture(params=["without a name", "named"])
def temporaries(request, monkeypatch):
    """Both ways to write: into a file without a name, and where the system has no such files."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    return request.param


KILLED = """
import os, signal, sys
if sys.argv[2] == "named":
    del os.O_TMPFILE
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
from torch_ir.serde import write_atomically
write_atomically(sys.argv[1], b"new")
"""


def test_a_kill_leaves_the_old_file_and_no_other(tmp_path, temporaries):
    path = tmp_path / "m.json"
    path.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED, path, temporaries], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    left = {p for p in tmp_path.iterdir() if p != path}
    assert len(left) == (1 if temporaries == "named" else 0)
    assert all(p.stat().st_mode == path.stat().st_mode for p in left)
    write_atomically(tmp_path / "other", b"x")  # which removes what is left
    assert {*tmp_path.iterdir()} == {path, tmp_path / "other"}


def test_a_save_leaves_others_at_work_alone(tmp_path, temporaries):
    path = tmp_path / "m.json"
    with bounds.replacing(path) as first:
        first.write(b"first")
        write_atomically(path, b"second")
        write_atomically(tmp_path / "other", b"x")
    assert path.read_bytes() == b"first"
    assert {*tmp_path.iterdir()} == {path, tmp_path / "other"}


def test_a_file_is_never_more_readable_than_the_one_it_replaces(tmp_path, temporaries):
    path = tmp_path / "secret.json"
    path.touch()
    path.chmod(0o600)
    with bounds.replacing(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
        file.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("may", ["all", "group", "nothing"])
def test_owner_and_group_are_kept_as_far_as_allowed(tmp_path, monkeypatch, may):
    path = tmp_path / "m.json"
    path.touch()
    path.chmod(0o664)
    found = path.stat()
    given = []

    def fchown(descriptor, owner, group):
        if may == "nothing" or (may == "group" and owner != -1):
            raise PermissionError
        given.append((owner, group))

    def of_another(*args, **kwargs):
        fields = list(found)
        fields[4:6] = 4321, 4322  # owner and group
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fchown", fchown)
    monkeypatch.setattr(bounds, "_replaced", of_another)
    write_atomically(path, b"new")
    assert given == {"all": [(4321, 4322)], "group": [(-1, 4322)], "nothing": []}[may]
    # the file has another group than the old one, which may do what all others may
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def archive_with_a_constant(path):
    constant = Constant("uint8", (100_000,), bytes(99_999) + b"\1")
    save(SMALL.replace(constants={"c": constant}), path)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["other.tir", "other.json"])
def test_an_archive_changed_in_place_is_not_saved_again(tmp_path, name):
    path, other = tmp_path / "m.tir", tmp_path / name
    data = archive_with_a_constant(path)
    mapped, whole = load(path), load(path, mmap=False)
    with path.open("r+b") as file:
        file.seek(data.index(bytes(1000)) + 500)
        file.write(b"\x01")
    assert "was changed in place" in message(save, mapped, other)
    assert not other.exists()
    save(whole, other)
    assert name == "other.json" or other.read_bytes() == data
    assert load(other) == whole


def test_weights_without_a_map(tmp_path):
    path = tmp_path / "m.tir"
    ir = SMALL.replace(weights=[TensorMeta("w", (2,), "float32")])
    save(ir, path, weights={"w": Constant.from_list([1.0, 2.0], "float32")})
    assert read_archive_weights(path) == read_archive_weights(path, mmap=False)
