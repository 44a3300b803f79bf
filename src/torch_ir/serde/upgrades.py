"""One function per version: each takes a document of that version and gives one of the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_ir.serde.foreign import from_version_0
from torch_ir.serde.json.faults import Fault
from torch_ir.serde.json.wire import FORMAT_VERSION

UPGRADES: dict[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    0: from_version_0,
    1: lambda document: {**document, "format_version": 2},
}
"""The step from each version before :data:`FORMAT_VERSION` to the one after it."""


def upgrade(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Upgrade a document to the present version.

    Raises:
        Fault: The document is newer than this package, or its version is not a version.
    """
    version = document.get("format_version", 0)
    if type(version) is not int or version < 0:
        raise Fault(".format_version", f"expected a version number, got {version!r:.40}")
    if version > FORMAT_VERSION:
        raise Fault(
            ".format_version",
            f"format version {version} is newer than this torch-ir, which reads {FORMAT_VERSION}",
            "Upgrade torch-ir, or save the file again with this version.",
        )
    while version < FORMAT_VERSION:
        document = UPGRADES[version](document)
        version += 1
    return document
