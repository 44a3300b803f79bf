"""The archive: deterministic, readable by other tools, and nothing but exactly it is read."""

# ruff: noqa: E501, PT017  # a case of a table is one line; faults are looked at where they occur

import hashlib
import io
import json
import struct
import sys
import zipfile

import numpy as np
import pytest
import safetensors.numpy

from torch_ir.errors import SerializationError
from torch_ir.ir import IR, Constant, TensorMeta
from torch_ir.serde import load, read_archive_weights, save

W = TensorMeta("fc.weight", (2, 3), "float32")
CONSTANTS = {
    "mask": Constant.from_list([[True, False]], "bool"),
    "odd": Constant("complex32", (1, 2), b"abcdefgh"),
    "__metadata__": Constant.from_list([1, 2, 3], "int64"),
    "empty": Constant("float32", (0, 3), b""),
}
FULL = IR(
    [],
    [],
    [],
    [W],
    constants=CONSTANTS,
    functions={"f": IR([], [], [], [], constants={"mask": Constant.from_list(7, "int8")})},
    model_name="Net",
)
VALUE = np.arange(6, dtype=np.float32).reshape(2, 3)


def refusal(path):
    with pytest.raises(SerializationError) as caught:
        load(path)
    return str(caught.value)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "net.tir"
    save(FULL, path, weights={"fc.weight": VALUE})
    return path


def members(path):
    with zipfile.ZipFile(path) as file:
        return {info.filename: file.read(info) for info in file.infolist()}


def write(path, contents, *, compression=zipfile.ZIP_STORED, manifest=True):
    """An archive of the given members, with a manifest that fits unless told otherwise."""
    contents = dict(contents)
    if manifest:
        listed = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for name, data in contents.items()
            if name != "manifest.json"
        }
        document = {"format": "torch-ir archive", "version": 1, "members": listed}
        contents["manifest.json"] = json.dumps(document).encode()
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in contents.items():
            file.writestr(name, data)


# -- what is written -----------------------------------------------------------------------------


def test_an_archive_gives_back_the_ir_and_the_weights(archive):
    assert load(archive) == FULL
    (weight,) = read_archive_weights(archive).values()
    assert (weight.numpy() == VALUE).all()
    assert isinstance(load(archive).constants["mask"].data, memoryview)


def test_the_members_are_stored_in_order_and_aligned(archive):
    with zipfile.ZipFile(archive) as file:
        infos = file.infolist()
        assert file.testzip() is None
    assert [info.filename for info in infos] == [
        "ir.json",
        "constants.safetensors",
        "weights.safetensors",
        "manifest.json",
    ]
    assert {info.compress_type for info in infos} == {zipfile.ZIP_STORED}
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    data = archive.read_bytes()
    contents = members(archive)
    assert [data.index(contents[info.filename]) % 64 for info in infos] == [0, 0, 0, 0]
    manifest = json.loads(contents.pop("manifest.json"))
    assert (manifest["format"], manifest["version"]) == ("torch-ir archive", 1)
    assert manifest["members"] == {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in contents.items()
    }


def test_other_tools_read_the_tensors(archive):
    contents = members(archive)
    weights = safetensors.numpy.load(contents["weights.safetensors"])
    assert (weights["fc.weight"] == VALUE).all()
    constants = safetensors.numpy.load(contents["constants.safetensors"])
    assert constants["mask"].tolist() == [[True, False]]
    assert constants["__metadata__#2"].tolist() == [1, 2, 3]
    assert constants["mask#2"].tolist() == 7
    assert constants["odd"].tobytes() == b"abcdefgh"
    assert constants["empty"].shape == (0, 3)


def test_an_archive_without_constants_has_two_members(tmp_path):
    save(FULL.replace(constants={}, functions={}), tmp_path / "bare.tir")
    assert list(members(tmp_path / "bare.tir")) == ["ir.json", "manifest.json"]
    with pytest.raises(SerializationError) as caught:
        read_archive_weights(tmp_path / "bare.tir")
    assert str(caught.value) == (
        f"{tmp_path / 'bare.tir'}: cannot be read as an archive: it holds no weights\n"
        "Save it with ir and weights: save(ir, path, weights=...)."
    )


def test_weights_may_come_from_torch(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "net.tir"
    weight = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.bfloat16).t().contiguous().t()
    ir = FULL.replace(weights=[TensorMeta("fc.weight", (2, 3), "bfloat16")])
    save(ir, path, weights={"fc.weight": weight})
    assert read_archive_weights(path)["fc.weight"] == Constant.from_torch(weight)


def test_weights_of_another_model_are_refused(tmp_path):
    ir = FULL.replace(
        weights=[W, TensorMeta("a", (1,), "int8"), TensorMeta("b", (1,), "int8"), TensorMeta("c", (1,), "int8")],
        weight_aliases={"tied": "c"},
    )  # fmt: skip
    weights = {"fc.weight": VALUE.T, "b": [1], "tied": np.zeros(1, np.int8)}
    with pytest.raises(SerializationError) as caught:
        save(ir, tmp_path / "net.tir", weights=weights)
    assert str(caught.value).splitlines() == [
        "the weights are not those of the IR",
        "    fc.weight: expected float32 [2, 3], got float32 [3, 2]",
        "    a: missing",
        "    b: expected a tensor, got a list",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_without_values_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "net.tir"
    with pytest.raises(SerializationError) as caught:
        save(FULL, path, weights={"fc.weight": torch.empty(2, 3, device="meta")})
    assert str(caught.value) == (
        "the weights are not those of the IR\n"
        "    fc.weight: a meta tensor has no plain values to store"
    )
    assert list(tmp_path.iterdir()) == []


# -- what is refused -----------------------------------------------------------------------------


def test_every_truncation_is_refused(archive):
    data = archive.read_bytes()
    for size in range(4, len(data), 7):
        archive.write_bytes(data[:size])
        assert "cannot be read as an archive: it is cut off" in refusal(archive)


def test_a_flipped_bit_is_found_or_harmless(archive):
    """Whatever bit of the file flips, no other IR comes out."""
    data = archive.read_bytes()
    for position in range(0, len(data), 5):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        archive.write_bytes(changed)
        try:
            assert load(archive) == FULL
        except SerializationError as error:
            assert str(error).startswith(str(archive))


def refused_members(archive, contents, **options):
    write(archive, contents, **options)
    reason = refusal(archive)
    prefix = f"{archive}: cannot be read as an archive: "
    assert reason.startswith(prefix)
    return reason.removeprefix(prefix).splitlines()[0]


def test_members_are_exactly_those_of_the_manifest(archive):
    contents = members(archive)
    del contents["manifest.json"]
    unknown = "which no archive of torch-ir has"
    for name in (
        "../ir.json",
        "/ir.json",
        "extra.txt",
        "IR.JSON",
        "data.pkl",
        "ir.json\0",
        "dir/",
    ):
        stored = name.partition("\0")[0]
        if stored != "ir.json":
            reason = refused_members(archive, {**contents, name: b"x"})
            assert reason == f"it has a member {stored!a}, {unknown}"
    assert refused_members(archive, contents, manifest=False) == "it has no manifest.json"
    document = contents.pop("ir.json")
    assert refused_members(archive, contents) == "it has no ir.json"
    contents["ir.json"] = document
    listed = {
        **contents,
        "manifest.json": b'{"format":"torch-ir archive","version":1,"members":{}}',
    }
    reason = refused_members(archive, listed, manifest=False)
    assert reason == "'constants.safetensors' is in its archive only"
    absent = listed["manifest.json"].replace(b"{}", b'{"ir.json":{"sha256":"","size":0}}')
    reason = refused_members(archive, {"manifest.json": absent}, manifest=False)
    assert reason == "'ir.json' is in its manifest only"


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"", "its manifest.json is malformed: Input data was truncated"),
        (b"{}", "its manifest.json is malformed: Object missing required field `format`"),
        (b"[" * 100_000, "its manifest.json is malformed: Expected `object`, got `array`"),
        (b'{"format":"zip","version":1,"members":{}}', "its format is 'zip'"),
        (
            b'{"format":"torch-ir archive","version":2,"members":{}}',
            "its version is 2; this torch-ir reads 1",
        ),
    ],
)
def test_bad_manifests(archive, manifest, reason):
    contents = {"ir.json": b"{}", "manifest.json": manifest}
    assert refused_members(archive, contents, manifest=False) == reason


def test_compressed_and_encrypted_members_are_refused(archive):
    contents = members(archive)
    bomb = {**contents, "ir.json": b" " * 10_000_000}
    reason = refused_members(archive, bomb, compression=zipfile.ZIP_DEFLATED)
    assert reason == "its member ir.json is compressed"
    write(archive, contents)
    data = archive.read_bytes()
    directory = data.rindex(b"PK\x01\x02")
    start = data.index(b"PK\x01\x02")
    encrypted = bytearray(data)
    encrypted[start + 8] |= 1
    archive.write_bytes(encrypted)
    assert refusal(archive).endswith("its member ir.json is encrypted or streamed")
    assert start < directory


def test_two_members_of_one_name_are_refused(archive):
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(archive, "a") as file:
        file.writestr("ir.json", b"{}")
    assert refusal(archive).endswith("it has two members ir.json")


def test_gaps_and_overlaps_are_refused(archive):
    data = archive.read_bytes()
    # zipfile reads this; so would a reader of something else
    archive.write_bytes(b"PK\x03\x04" + data)
    assert "overlaps another or leaves a gap" in refusal(archive)
    start = data.index(b"PK\x01\x02")
    overlapping = bytearray(data)
    second = data.index(b"PK\x01\x02", start + 4)
    overlapping[second + 42 : second + 46] = struct.pack("<I", 0)
    archive.write_bytes(overlapping)
    assert refusal(archive).startswith(f"{archive}: cannot be read as an archive: its member")
    other_name = bytearray(data)
    other_name[30:37] = b"no.json"
    archive.write_bytes(other_name)
    assert refusal(archive).endswith("its member ir.json has two different headers")


def test_an_endless_directory_is_never_read(archive):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for index in range(17):
            file.writestr(str(index), b"")
    archive.write_bytes(buffer.getvalue())
    assert "it has more members than an archive of torch-ir" in refusal(archive)
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    archive.write_bytes(b"PK\x03\x04" + bytes(100) + end)
    assert "it has more members than an archive of torch-ir" in refusal(archive)
    archive.write_bytes(b"PK\x05\x06" + bytes(18))
    assert refusal(archive).endswith("it has no manifest.json")


def test_other_zip_files_are_refused(archive):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.ones(2)}, archive)
    assert "cannot be read as an archive: " in refusal(archive)
    write(archive, {"model.json": b"{}"})
    assert refusal(archive).endswith(
        "it has a member 'model.json', which no archive of torch-ir has\n"
        "Archives are written by ir.save('name.tir'); weights are read by load_weights."
    )


@pytest.mark.parametrize("name", ["ir.json", "constants.safetensors", "weights.safetensors"])
def test_what_does_not_match_its_hash_is_refused(archive, name):
    contents = members(archive)
    contents[name] = contents[name][:-1] + bytes([contents[name][-1] ^ 1])
    write(archive, contents, manifest=False)
    read = read_archive_weights if name.startswith("weights") else load
    with pytest.raises(SerializationError) as caught:
        read(archive)
    damaged = f"its member {name} is not what the manifest says: it was changed or damaged"
    assert damaged in str(caught.value)


def tampered(archive, change):
    """The refusal of an archive whose document was changed, hashes and all."""
    contents = members(archive)
    del contents["manifest.json"]
    document = json.loads(contents["ir.json"])
    change(document["constants"])
    write(archive, {**contents, "ir.json": json.dumps(document).encode()})
    return refusal(archive).removeprefix(f"{archive}/ir.json: at $.constants")


def test_constants_have_to_be_what_the_document_says(archive):
    original = archive.read_bytes()

    def refused(change):
        archive.write_bytes(original)
        return tampered(archive, change)

    assert refused(lambda c: c["mask"].update(tensor="other")) == (
        ".mask.tensor: 'other' is not in constants.safetensors"
    )
    assert refused(lambda c: c["mask"].update(dtype="uint8")) == (
        ".mask: the record does not match the stored Constant(b8[1, 2])"
    )
    assert refused(lambda c: c["mask"].update(shape=[2])) == (
        ".mask: the record does not match the stored Constant(b8[1, 2])"
    )
    assert refused(lambda c: c["mask"].update(sha256="0" * 64)) == (
        ".mask.sha256: the stored values have another hash"
    )
    assert refused(lambda c: c["mask"].update(data=[[True, False]])) == (
        ".mask: a constant needs exactly one of data, base64, fill, tensor and view"
    )
    assert refused(lambda c: c.update(mask={"dtype": "bool", "shape": [], "data": True})) == (
        ".mask: a constant of an archive is given by reference"
    )


def tensor_file(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(**changes):
    return {"dtype": "U8", "shape": [2], "data_offsets": [0, 2], **changes}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the header of the tensors is cut off"),
        (struct.pack("<Q", 2**63) + b"{}", "the header of the tensors is cut off"),
        (tensor_file(b"{"), "the header of the tensors is malformed: Input data was truncated"),
        (tensor_file(b"[" * 100_000), "the header of the tensors is malformed: Expected `object`"),
        (tensor_file({}, b"x"), "the tensors fill 0 bytes of 1"),
        (tensor_file({"a": entry()}, b"x"), "the tensors fill 2 bytes of 1"),
        (tensor_file({"a": entry(data_offsets=[1, 3])}, b"xyz"), "the tensors overlap or leave gaps"),
        (tensor_file({"a": entry(data_offsets=[0, -2])}), "the tensors overlap or leave gaps"),
        (tensor_file({"a": entry(shape=[3])}, b"xy"), "at .a: a constant u8[3] has 3 bytes, got 2"),
        (tensor_file({"a": entry(shape=[10**9] * 9)}, b"xy"), "at .a: a constant u8[1000000000,"),
        (tensor_file({"a": entry(shape=["s0"])}, b"xy"), "at .a.shape[0]: Expected `int`, got `str`"),
        (tensor_file({"a": entry(dtype="U9")}, b"xy"), "at .a.dtype: 'U9' is not an element type"),
        (tensor_file({"a": 3}), "at .a: Expected `object`, got `int`"),
        (tensor_file({"__metadata__": 3}), "Expected `object`, got `int`"),
        (tensor_file({"__metadata__": {"torch-ir": "["}}), "the header of the tensors is malformed"),
        (tensor_file({"__metadata__": {"torch-ir-same": '{"b": "a"}'}}), "'b' cannot stand for 'a'"),
        (tensor_file({"__metadata__": {"torch-ir-same": '{"a": 3}'}}), "the header of the tensors is malformed: Expected `str`, got `int`"),
    ],
)  # fmt: skip
def test_bad_tensor_files(archive, data, reason):
    contents = members(archive)
    del contents["manifest.json"]
    write(archive, {**contents, "weights.safetensors": data})
    with pytest.raises(SerializationError) as caught:
        read_archive_weights(archive)
    prefix = f"{archive}: cannot be read as an archive: in weights.safetensors"
    assert str(caught.value).startswith(prefix)
    assert reason in str(caught.value)


def test_loading_copies_no_tensor(tmp_path):
    import tracemalloc

    size = 64 * 2**20
    path = tmp_path / "large.tir"
    ir = IR([], [], [], [TensorMeta("w", (size,), "uint8")])
    save(ir, path, weights={"w": np.zeros(size, np.uint8)})
    tracemalloc.start()
    weights = read_archive_weights(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weights["w"].numpy().sum() == 0
    assert peak < 2**20
    assert sys.getsizeof(weights["w"].data) < 1000


def bits(*patterns):
    return struct.pack(f"<{len(patterns)}I", *patterns)


def test_equal_constants_are_stored_once_and_come_back_exactly(tmp_path):
    nan, other_nan = bits(0x7FC00001, 0x80000000), bits(0x7FC00002, 0x80000000)
    constants = {
        "a": Constant("float32", (2,), nan),
        "b": Constant("float32", (2,), bytes(bytearray(nan))),
        "other payload": Constant("float32", (2,), other_nan),
        "other shape": Constant("float32", (1, 2), nan),
        "other type": Constant("uint32", (2,), nan),
    }
    inner = IR([], [], [], [], constants={"inside": constants["a"]})
    ir = IR([], [], [], [], constants=constants, functions={"f": inner})
    save(ir, tmp_path / "net.tir")
    stored = safetensors.numpy.load(members(tmp_path / "net.tir")["constants.safetensors"])
    assert sorted(stored) == ["a", "other payload", "other shape", "other type"]
    loaded = load(tmp_path / "net.tir")
    assert loaded == ir
    assert loaded.functions["f"].constants["inside"].tobytes() == nan
    assert {name: c.tobytes() for name, c in loaded.constants.items()} == {
        name: c.tobytes() for name, c in constants.items()
    }


def test_a_tensor_under_two_keys_is_stored_once(tmp_path):
    import torch

    storage = torch.frombuffer(
        bytearray(bits(*range(0x7FC00000, 0x7FC00000 + 64))), dtype=torch.float32
    )
    matrix = storage.view(8, 8)
    weights = {
        "head": torch.nn.Parameter(matrix),
        "embedding": matrix.detach(),
        "transposed": matrix.T,
        "half": matrix[:4],
        "copy": matrix.clone(),
        "bytes": matrix.view(torch.int32),
    }
    ir = IR(
        [],
        [],
        [],
        [TensorMeta("embedding", (8, 8), "float32")],
        weight_aliases={"head": "embedding"},
    )
    save(ir, tmp_path / "net.tir", weights=weights)
    stored = safetensors.numpy.load(members(tmp_path / "net.tir")["weights.safetensors"])
    assert sorted(stored) == ["bytes", "copy", "embedding", "half", "transposed"]
    loaded = read_archive_weights(tmp_path / "net.tir")
    assert {name: c.tobytes() for name, c in loaded.items()} == {
        name: Constant.from_torch(tensor).tobytes() for name, tensor in weights.items()
    }
    assert loaded["head"] == loaded["embedding"]
    assert loaded["transposed"] != loaded["head"]
