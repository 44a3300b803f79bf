"""IRs as files: JSON documents and archives. No torch, no pickle.

Files are versioned, checked against types on the way in, and written whole or not at all.
"""

from torch_ir.serde.compatible import deserialize_ir, load_ir, save_ir, serialize_ir, validate_ir
from torch_ir.serde.files import MAX_JSON_BYTES, MissingFileError, write_atomically
from torch_ir.serde.json.document import (
    dumps,
    ir_from_dict,
    ir_to_dict,
    loads,
    node_from_dict,
    node_to_dict,
    tensor_from_dict,
    tensor_to_dict,
)
from torch_ir.serde.json.wire import FORMAT_VERSION
from torch_ir.serde.storage import load, read_archive_weights, save

__all__ = [
    "FORMAT_VERSION",
    "MAX_JSON_BYTES",
    "MissingFileError",
    "deserialize_ir",
    "dumps",
    "ir_from_dict",
    "ir_to_dict",
    "load",
    "load_ir",
    "loads",
    "node_from_dict",
    "node_to_dict",
    "read_archive_weights",
    "save",
    "save_ir",
    "serialize_ir",
    "tensor_from_dict",
    "tensor_to_dict",
    "validate_ir",
    "write_atomically",
]
