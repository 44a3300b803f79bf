"""Archives, and files of weights."""

from __future__ import annotations

import hashlib
import io
import json
import pickle  # noqa: TID251  # is written here, never read
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from hostile.json_files import Files, attributes, document, filled, mapping, nested, tensor


def safetensors(header: Any, data: bytes = b"") -> bytes:
    """Make a safetensors file."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def zipped(members: dict[str, bytes]) -> bytes:
    """Make a zip of stored members."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


def archive(members: dict[str, bytes]) -> bytes:
    """Make an archive with a true manifest."""
    stated = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in members.items()
    }
    manifest = {"format": "torch-ir archive", "version": 1, "members": stated}
    return zipped({**members, "manifest.json": json.dumps(manifest).encode()})


def header_of(size: int, entry: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """Make a safetensors header of that many bytes."""
    return mapping(size, entry)


EMPTY = hashlib.sha256(b"").hexdigest()
NOTHING = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}


def _many_tensors(size: int) -> bytes:
    count = size // 250
    records = {
        f"k{i}": {"dtype": "uint8", "shape": [0], "sha256": EMPTY, "tensor": f"k{i}"}
        for i in range(count)
    }
    header = {f"k{i}": NOTHING for i in range(count)}
    return archive(
        {"ir.json": document(constants=records), "constants.safetensors": safetensors(header)}
    )


def _one_tensor_often(size: int) -> bytes:
    data = bytes(size // 2)
    digest = hashlib.sha256(data).hexdigest()
    record = {"dtype": "uint8", "shape": [len(data)], "sha256": digest, "tensor": "t"}
    records = mapping(size // 2, lambda i: record)
    header = {"t": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    return archive(
        {
            "ir.json": document(constants=records),
            "constants.safetensors": safetensors(header, data),
        }
    )


def _same_tensors(size: int) -> bytes:
    data = bytes(size // 2)
    same = json.dumps({f"k{i}": "t" for i in range(size // 70)})
    header = {
        "__metadata__": {"torch-ir-same": same},
        "t": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]},
    }
    records = {
        f"k{i}": {
            "dtype": "uint8",
            "shape": [len(data)],
            "sha256": hashlib.sha256(data).hexdigest(),
            "tensor": f"k{i}",
        }
        for i in range(size // 400)
    }
    return archive(
        {
            "ir.json": document(constants=records),
            "constants.safetensors": safetensors(header, data),
        }
    )


ARCHIVES: Files = {
    "archive: tensors": _many_tensors,
    "archive: one tensor often": _one_tensor_often,
    "archive: names of one tensor": _same_tensors,
    "archive: expressions": lambda size: archive(
        {"ir.json": document(graph_inputs=filled(size, lambda i: tensor(f"x{i}", f"s{i}//2")))}
    ),
    "archive: attributes nested 55 deep": lambda size: archive(
        {"ir.json": attributes(lambda i: nested(55, i))(size)}
    ),
    "archive: members": lambda size: zipped({f"{i}": b"" for i in range(size // 90)}),
    "archive: a manifest of members": lambda size: zipped(
        {
            "manifest.json": json.dumps(
                {
                    "format": "torch-ir archive",
                    "version": 1,
                    "members": mapping(size, lambda i: {"sha256": "", "size": 0}),
                }
            ).encode()
        }
    ),
    "archive: a wrong tensor at the end": lambda size: archive(
        {
            "ir.json": document(),
            "constants.safetensors": safetensors(
                {**header_of(size, lambda i: NOTHING), "z": {**NOTHING, "data_offsets": [0, 1]}}
            ),
        }
    ),
    "archive: metadata of tensors": lambda size: archive(
        {
            "ir.json": document(),
            "constants.safetensors": safetensors(
                {"__metadata__": {"torch-ir": json.dumps(mapping(size, lambda i: NOTHING))}}
            ),
        }
    ),
}


def checkpoint(data: bytes) -> bytes:
    """Make a checkpoint of torch from a pickle."""
    return zipped({"a/data.pkl": data, "a/version": b"3\n", "a/byteorder": b"little"})


def _doubled(size: int) -> bytes:
    value: Any = {"a": {}}
    for _ in range(26):
        value = {"a": value, "b": value}
    return checkpoint(pickle.dumps(value, 2))


WEIGHTS: Files = {
    "weights: tensors": lambda size: safetensors(header_of(size, lambda i: NOTHING)),
    "weights: tensors of 128 sizes": lambda size: safetensors(
        header_of(size, lambda i: {**NOTHING, "shape": [0] * 128})
    ),
    "weights: a header of brackets": lambda size: struct.pack("<Q", size) + b"[" * size,
    "weights: an index of shards": lambda size: json.dumps(
        {"weight_map": mapping(size, lambda i: f"{i}.safetensors")}
    ).encode(),
    "weights: an index of one shard": lambda size: json.dumps(
        {"weight_map": mapping(size, lambda i: "a.safetensors")}
    ).encode(),
    "weights: an index of long paths": lambda size: json.dumps(
        {"weight_map": mapping(size, lambda i: f"{'a/' * 400}{i}.safetensors")}
    ).encode(),
    "weights: a checkpoint of dicts": lambda size: checkpoint(
        pickle.dumps({f"k{i}": {} for i in range(size // 12)}, 2)
    ),
    "weights: a checkpoint of shared dicts": _doubled,
    "weights: a checkpoint, deep": lambda size: checkpoint(
        b"\x80\x02" + b"}" * (size // 3) + b"U\x01as" * (size // 8) + b"."
    ),
    "weights: a checkpoint of numbers": lambda size: checkpoint(
        pickle.dumps({str(i): i for i in range(size // 12)}, 2)
    ),
    "weights: a checkpoint of a long number": lambda size: checkpoint(
        b"\x80\x02\x8b" + struct.pack("<I", size) + b"\x01" * size + b"."
    ),
    "weights: a checkpoint of members": lambda size: zipped(
        {"a/data.pkl": pickle.dumps({}, 2), **{f"a/data/{i}": b"" for i in range(size // 90)}}
    ),
}
