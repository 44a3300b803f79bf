"""The adapter by which Model Explorer opens .tir files: ``--extensions=torch_ir.viz.explorer``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch_ir.serde import load
from torch_ir.viz.bridges import model_explorer

_API: Any = import_module("model_explorer")


class TorchIRAdapter(_API.Adapter):  # pyright: ignore[reportUntypedBaseClass]  # Model Explorer has no types
    """Gives Model Explorer the graphs of a program; nothing in the file is run."""

    metadata = _API.AdapterMetadata(
        id="torch_ir",
        name="torch-ir",
        description="Programs that torch-ir stores",
        source_repo="https://github.com/torch-ir/torch-ir",
        fileExts=["tir"],
    )

    def convert(self, model_path: str, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return the graphs of the program in a file, one for each function.

        Raises:
            SerializationError: It is no program.
        """
        shown = model_explorer(load(model_path))["graphs"]
        return {"graphs": [_API.graph_builder.Graph(**graph) for graph in shown]}
