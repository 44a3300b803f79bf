import json
import os
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from torch_ir.errors import WeightLoadError
from torch_ir.ir import IR, TensorMeta
from torch_ir.weights import load_weights, load_weights_pt, load_weights_safetensors

WEIGHTS = {
    "fc.weight": torch.arange(6.0).reshape(2, 3),
    "fc.bias": torch.tensor([float("nan"), 1.0], dtype=torch.bfloat16),
    "count": torch.tensor(3),
    "empty": torch.zeros(0, 4),
}


class RunsWhenUnpickled:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def assert_same(got, want=WEIGHTS):
    assert set(got) == set(want)
    for key, tensor in want.items():
        assert got[key].dtype == tensor.dtype
        torch.testing.assert_close(got[key], tensor, rtol=0, atol=0, equal_nan=True)


def refused(path, loader=load_weights, **kwargs):
    with pytest.raises(WeightLoadError) as caught:
        loader(path, **kwargs)
    return str(caught.value).replace(str(path), path.name).replace(str(path.parent), "DIR")


def write_index(path, weight_map):
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return path


@pytest.fixture
def sharded(tmp_path):
    for name, keys in {"1": ["fc.weight", "count"], "2": ["fc.bias", "empty"]}.items():
        save_file({key: WEIGHTS[key] for key in keys}, tmp_path / f"{name}.safetensors")
    return write_index(
        tmp_path / "model.safetensors.index.json",
        {
            "fc.weight": "1.safetensors",
            "fc.bias": "2.safetensors",
            "count": "1.safetensors",
            "empty": "2.safetensors",
        },
    )


# -- what can be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["w.safetensors", "w.SAFETENSORS", "w", "w.weights"])
def test_safetensors_is_known_by_its_content(tmp_path, name):
    save_file(WEIGHTS, tmp_path / name)
    assert_same(load_weights(tmp_path / name))


@pytest.mark.parametrize("start", [b"\x80\x02", b"PK"])
def test_safetensors_whose_header_length_looks_like_another_format(tmp_path, start):
    length = int.from_bytes(start, "little")
    header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(length)
    content = length.to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "w.safetensors").write_bytes(content)
    assert_same(load_weights(tmp_path / "w.safetensors"), {"a": torch.zeros(1)})


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.bin", "w", "w.ckpt"])
@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoints_of_both_formats(tmp_path, name, zipped):
    torch.save(WEIGHTS, tmp_path / name, _use_new_zipfile_serialization=zipped)
    assert_same(load_weights(tmp_path / name))
    assert_same(load_weights_pt(tmp_path / name))


def test_a_path_may_be_a_string(tmp_path):
    save_file(WEIGHTS, tmp_path / "w.safetensors")
    assert_same(load_weights(str(tmp_path / "w.safetensors")))


def test_sharded_index_and_the_directory_that_holds_it(sharded):
    assert_same(load_weights(sharded))
    assert_same(load_weights(sharded.parent))
    assert repr(load_weights(sharded)) == "SafetensorsWeights(4 tensors in 2 files)"
    loaded = load_weights_safetensors(sharded)
    assert type(loaded) is dict
    assert_same(loaded)


@pytest.mark.parametrize("name", ["w.safetensors", "pytorch_model.bin"])
def test_a_directory_with_one_weights_file(tmp_path, name):
    save = save_file if name.endswith("safetensors") else torch.save
    save(WEIGHTS, tmp_path / name)
    (tmp_path / "config.json").write_text("{}")
    assert_same(load_weights(tmp_path))


def test_one_state_dict_inside_a_training_checkpoint(tmp_path):
    optimizer = {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]}
    torch.save({"model": WEIGHTS, "optimizer": optimizer, "epoch": 3}, tmp_path / "c.pt")
    assert_same(load_weights(tmp_path / "c.pt"))


def test_extra_state_that_is_no_tensor_is_left_out(tmp_path):
    torch.save({**WEIGHTS, "fc._extra_state": None}, tmp_path / "w.pt")
    assert_same(load_weights(tmp_path / "w.pt"))


def test_an_exported_program_that_is_trusted(tmp_path):
    model = torch.nn.Linear(3, 2)
    torch.export.save(torch.export.export(model, (torch.ones(1, 3),)), tmp_path / "m.pt2")
    assert_same(load_weights(tmp_path / "m.pt2", trust=True), model.state_dict())


def test_an_archive_with_weights(tmp_path):
    from torch_ir import serde

    ir = IR([], [], [], [TensorMeta("w", (2,), "bfloat16"), TensorMeta("e", (0,), "int8")])
    weights = {"w": WEIGHTS["fc.bias"], "e": torch.zeros(0, dtype=torch.int8)}
    serde.save(ir, tmp_path / "m.tir", weights=weights)
    assert_same(load_weights(tmp_path / "m.tir", ir), weights)


# -- lazy ----------------------------------------------------------------------------------------


def test_a_tensor_is_a_view_of_the_mapped_file(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(4), "b": torch.ones(4)}, file)
    weights = load_weights(file)
    a, b = weights["a"], weights["b"]
    assert b.data_ptr() - a.data_ptr() == a.nbytes  # side by side, as in the file
    a += 5  # a private page: the file and later readers do not see it
    assert load_weights(file)["a"].tolist() == [0, 0, 0, 0]


def test_nothing_is_read_before_a_tensor_is_touched(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(4)}, file)
    weights = load_weights(file)
    content = bytearray(file.read_bytes())
    content[-16:] = torch.full((4,), 7.0).numpy().tobytes()
    with file.open("r+b") as stream:
        stream.write(content)
    assert weights["a"].tolist() == [7, 7, 7, 7]


def test_it_is_a_mapping(tmp_path):
    save_file(WEIGHTS, tmp_path / "w.safetensors")
    weights = load_weights(tmp_path / "w.safetensors")
    assert len(weights) == 4
    assert "count" in weights
    assert "nothing" not in weights
    assert weights.get("nothing") is None


# -- checked against an IR -----------------------------------------------------------------------


def test_the_error_names_the_file(tmp_path):
    save_file({"fc.weight": torch.ones(2, 3)}, tmp_path / "w.safetensors")
    ir = IR([], [], [], [TensorMeta("fc.weight", (4, 3), "float32")], model_name="Net")
    assert refused(tmp_path / "w.safetensors", ir=ir) == (
        "the weights in w.safetensors do not fit 'Net': 1 wrong shape\n"
        "    wrong shape: 'fc.weight': expected f32[4, 3], found f32[2, 3]\n"
        "Give the state_dict of the model that the IR was extracted from."
    )


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_checkpoint_is_not_run(tmp_path, zipped):
    file = tmp_path / "w.pt"
    content = {"fc.weight": torch.ones(2), "x": RunsWhenUnpickled(tmp_path / "touched")}
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    for loader in (load_weights, load_weights_pt):
        assert refused(file, loader) == (
            f"w.pt holds more than tensors: loading it would call {os.name}.mkdir\n"
            "Nothing was executed. Save the weights alone, torch.save(model.state_dict(), path), "
            "or better as safetensors."
        )
    assert refused(file, trust=True).startswith("w.pt holds more than tensors")
    assert not (tmp_path / "touched").exists()


def test_an_exported_program_needs_trust(tmp_path):
    program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
    torch.export.save(program, tmp_path / "m.pt2")
    assert refused(tmp_path / "m.pt2") == (
        "m.pt2 was not opened: torch.export.load may unpickle its contents, which can run any "
        "code\n"
        "If you trust the file, pass trust=True (--trust on the command line)."
    )


def test_a_name_that_contradicts_the_content(tmp_path):
    torch.save(WEIGHTS, tmp_path / "w.safetensors")
    assert refused(tmp_path / "w.safetensors") == (
        "w.safetensors is named .safetensors but is a checkpoint of torch.save\n"
        "Rename it to end in .pt, or give the file that was meant."
    )
    save_file(WEIGHTS, tmp_path / "w.pt")
    assert refused(tmp_path / "w.pt").startswith(
        "w.pt is named .pt but is a safetensors file\nRename it to end in .safetensors,"
    )
    assert refused(tmp_path / "w.pt", load_weights_pt) == (
        "w.pt is a safetensors file, not a checkpoint of torch.save\n"
        "Read it with load_weights(), which finds out what a file is."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "w.pt is empty\nWrite or download the weights again."),
        (
            b"some text that is no weights",
            "w.pt is not a weights file\n"
            "Weights are read from .safetensors, .pt, .pth, .bin, .pt2 and .tir files.",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00",
            "w.pt is not a weights file: it is a Git LFS pointer; fetch the file with "
            "`git lfs pull`\n"
            "Weights are read from .safetensors, .pt, .pth, .bin, .pt2 and .tir files.",
        ),
        (
            b"<!DOCTYPE html><title>404</title>",
            "w.pt is not a weights file: it is a web page\n"
            "Weights are read from .safetensors, .pt, .pth, .bin, .pt2 and .tir files.",
        ),
        (
            b"\x80\x02nonsense",
            "w.pt is cut off, damaged, or no checkpoint\n"
            "    UnpicklingError: Unsupported operand 110\n"
            "Write or download the weights again.",
        ),
        (
            b"PK\x03\x04nonsense",
            "w.pt is cut off or damaged: File is not a zip file\n"
            "Write or download the weights again.",
        ),
    ],
)
def test_other_content(tmp_path, content, message):
    file = tmp_path / "w.pt"
    file.write_bytes(content)
    assert refused(file) == message


@pytest.mark.parametrize("percent", [1, 10, 50, 90, 99])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_a_file_that_was_cut_off(tmp_path, name, percent):
    file = tmp_path / name
    (save_file if name.endswith("safetensors") else torch.save)({"a": torch.ones(500)}, file)
    file.write_bytes(file.read_bytes()[: file.stat().st_size * percent // 100])
    assert file.name in refused(file)


def test_a_file_for_which_there_is_no_address_space(tmp_path, monkeypatch):
    def refused(path, framework):
        raise RuntimeError(f"unable to mmap 9 bytes from file <{path}>: Cannot allocate memory")

    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    monkeypatch.setattr("torch_ir.weights.sharded.safe_open", refused)
    with pytest.raises(WeightLoadError, match="cannot be mapped: unable to mmap 9 bytes"):
        load_weights(tmp_path / "model.safetensors")


def test_a_missing_file_and_what_is_no_file(tmp_path):
    assert refused(tmp_path / "no.pt") == (
        "weights file not found: no.pt\nCheck the path; it is relative to the current directory."
    )
    os.mkfifo(tmp_path / "pipe.pt")
    assert refused(tmp_path / "pipe.pt") == "pipe.pt is not a regular file\nGive a weights file."


def test_directories_that_do_not_say_which_file(tmp_path):
    (tmp_path / "d").mkdir()
    assert refused(tmp_path / "d") == (
        "the directory d has no weights file\nGive a directory with one "
        "*.safetensors.index.json, *.safetensors, *.pt, *.pth or *.bin."
    )
    for name in ("a", "b"):
        save_file(WEIGHTS, tmp_path / "d" / f"{name}.safetensors")
    assert refused(tmp_path / "d") == (
        "the directory d has 2 weights files\n    a.safetensors\n    b.safetensors\n"
        "Give one of them, or the index that names them all."
    )


def test_checkpoints_that_are_no_state_dict(tmp_path):
    def message(content):
        torch.save(content, tmp_path / "c.pt")
        return refused(tmp_path / "c.pt")

    assert message(torch.ones(2)) == (
        "c.pt holds a Tensor, not a state_dict\n"
        "Save the weights: torch.save(model.state_dict(), path)."
    )
    assert message({**WEIGHTS, "epoch": 3}) == (
        "c.pt is not a state_dict: 1 of its 5 entries are no tensors\n    'epoch': int\n"
        "Save the weights alone: torch.save(model.state_dict(), path)."
    )
    assert message({"model": WEIGHTS, "model_ema": WEIGHTS}) == (
        "c.pt holds more than one state_dict: 'model', 'model_ema'\n"
        "Save the one that is meant: torch.save(torch.load(path)['model'], 'weights.pt')."
    )


def test_a_torchscript_program_is_not_weights(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "s.pt")
    assert refused(tmp_path / "s.pt") == (
        "s.pt is a TorchScript program, not weights\n"
        "Save its weights alone: torch.save(torch.jit.load(path).state_dict(), 'weights.pt')."
    )


class TestIndex:
    @pytest.mark.parametrize("name", ["../1.safetensors", "/1.safetensors", "a\\b", "C:x", ""])
    def test_shards_stay_inside_the_directory(self, tmp_path, name):
        file = write_index(tmp_path / "m.safetensors.index.json", {"a": name})
        assert refused(file) == (
            f"m.safetensors.index.json names a shard outside its directory: {name!r}\n"
            "Shards lie beside their index, without '..' or absolute paths: do not use it."
        )

    def test_missing_shards_are_listed(self, sharded):
        (sharded.parent / "2.safetensors").unlink()
        assert refused(sharded) == (
            "1 of the 2 shards that model.safetensors.index.json names are not there\n"
            "    2.safetensors\n"
            "Put every shard beside the index, in DIR."
        )

    def test_a_shard_with_a_name_that_no_file_has(self, sharded):
        text = sharded.read_text().replace("2.safetensors", "a" * 300)
        sharded.write_text(text)
        assert refused(sharded).startswith("1 of the 2 shards that ")

    def test_a_shard_without_its_tensor(self, sharded):
        save_file({"other": torch.ones(1)}, sharded.parent / "2.safetensors")
        assert refused(sharded) == (
            "model.safetensors.index.json says that 2.safetensors has the tensor 'fc.bias', "
            "but it has not\n"
            "Index and shard are of different versions; download them together."
        )

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"[]", "Expected `object`, got `array`"),
            (b"{}", "Object missing required field `weight_map`"),
            (b'{"weight_map": {"a": 1}}', "Expected `str`, got `int` - at `$.weight_map[...]`"),
            (b'{"x":' * 200_000, "maximum recursion depth exceeded"),
            (b"junk", "JSON is malformed: invalid character (byte 0)"),
        ],
    )
    def test_what_is_no_index(self, tmp_path, content, reason):
        file = tmp_path / "m.safetensors.index.json"
        file.write_bytes(content)
        message = refused(file)
        assert message.startswith(
            "m.safetensors.index.json is not the index of a sharded safetensors file: " + reason
        )
        assert message.endswith(
            '\nIt is JSON with "weight_map": {"key of a tensor": "name of its file"}.'
        )


def test_a_checkpoint_whose_records_are_compressed_is_refused(tmp_path):
    torch.save({"w": torch.zeros(4)}, tmp_path / "as_torch_writes.pt")
    with (
        zipfile.ZipFile(tmp_path / "as_torch_writes.pt") as written,
        zipfile.ZipFile(tmp_path / "m.pt", "w", zipfile.ZIP_DEFLATED) as compressed,
    ):
        for entry in written.infolist():
            compressed.writestr(entry.filename, written.read(entry))
    with pytest.raises(WeightLoadError) as raised:
        load_weights(tmp_path / "m.pt")
    assert str(raised.value) == (
        f"{tmp_path}/m.pt: its record as_torch_writes/data.pkl is compressed, which torch never "
        "writes\nWrite it anew from the weights: torch.save(model.state_dict(), path)."
    )
