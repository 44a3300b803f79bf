"""The user's source line and module path of a traced node."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import torch

from torch_ir.ir import Location
from torch_ir.torch_api import HigherOrderOperator

_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in .*\n\s+(?P<code>.*)')
_GENERATED = "<eval_with_key>"
"""Code that torch writes as it traces; its number is another one in each extraction."""
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_THIS = f"{Path(__file__).parents[1]}{os.sep}"
"""Our own modules stand between the user's where a part of a model is traced alone."""


def node_location(node: torch.fx.Node) -> Location | None:
    """Locate a traced call: the innermost frame outside torch, and the calling module."""
    file, line, code = _innermost_frame(_stack_trace(node))
    module, module_type = _innermost_module(node.meta.get("nn_module_stack"))
    if not (file or module or module_type):
        return None
    return Location(file, line, code, module, module_type)


def _stack_trace(node: torch.fx.Node) -> str:
    """The frames of a call; of a region that torch makes of calls, those of the first of them."""
    found = node.meta.get("stack_trace") or ""
    owner = node.graph.owning_module
    if found or owner is None or not isinstance(node.target, HigherOrderOperator):
        return found
    held = [arg for arg in node.args if isinstance(arg, torch.fx.Node) and arg.op == "get_attr"]
    bodies: list[object] = [attrgetter(str(arg.target))(owner) for arg in held]
    inner = [n for b in bodies if isinstance(b, torch.fx.GraphModule) for n in b.graph.nodes]
    return next(filter(None, map(_stack_trace, inner)), "")


@lru_cache(maxsize=1024)
def _innermost_frame(trace: str) -> tuple[str, int, str]:
    frames = [
        (f["file"], int(f["line"]), f["code"].strip())
        for f in _FRAME.finditer(trace)
        if not f["file"].startswith(_GENERATED)
    ]
    others = [frame for frame in frames if not frame[0].startswith(_THIS)]
    own = [frame for frame in others if not frame[0].startswith(_TORCH)]
    file, line, code = (own or others or [("", 0, "")])[-1]
    return _portable(file), line, code


def own_line(location: Location) -> Location:
    """Drop a source line that is torch's, which stands where no frame is the user's.

    A layer that is traced alone has the frames inside of it; its call may have one of the user's.
    """
    is_of_torch = location.file.startswith(_portable(_TORCH))
    return replace(location, file="", line=0, code="") if is_of_torch else location


def _portable(file: str) -> str:
    """The path below site-packages or the current folder: one model, the same IR anywhere."""
    _, found, below = file.rpartition(f"{os.sep}site-packages{os.sep}")
    if found:
        return below
    return file.removeprefix(f"{Path.cwd()}{os.sep}")


def _innermost_module(stack: object) -> tuple[str, str]:
    if not isinstance(stack, dict) or not stack:
        return "", ""
    path, kind = list(cast(dict[str, Any], stack).values())[-1]
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return _module_path(str(path)), name


@lru_cache(maxsize=4096)
def _module_path(path: str) -> str:
    """The path of a module, such as ``layers.0.fc``, from what tracing records.

    Strict tracing records it as ``L['self'].layers[0].fc`` or ``L['self']._modules['fc']``, and
    calls the model ``_export_root`` inside of functions.
    """
    path = re.sub(r"^(L\['self'\]\.?)?(_export_root\b\.?)?", "", path)
    path = re.sub(
        r"_modules\['([^']*)'\]|\['([^']*)'\]|\[(\d+)\]",
        lambda m: "." + next(filter(None, m.groups())),
        path,
    )
    return re.sub(r"\.{2,}", ".", path).strip(".")
