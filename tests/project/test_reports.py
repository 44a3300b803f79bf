"""Every report is frozen, fits a page, is plain data, and shows in a notebook."""

import dataclasses
import importlib
import json
import pkgutil
import re
import sys
from typing import Any

import pytest
import torch

from torch_ir import cases, parse
from torch_ir.tables import WIDTH, Shown

LONG = "a/very.long_name\u202e" * 20
PROGRAM = parse("""ir {
  input %x: f32[2]
  %y: f32[2] = aten.exp.default(%x)
  return %y
}""").replace(model_name=LONG)
CODE = {"Diff", "Change", "Reduced"}
"""Their text ends in that of programs, which parses back."""
GIVEN: dict[str, dict[str, Any]] = {
    "Captured": {"outputs": (), "values": {LONG: torch.ones(2)}},
    "CaseSet": {"cases": tuple(cases({LONG: PROGRAM}, strides=False))},
    "Reduced": {"weights": {}, "inputs": ()},
    "ValidationReport": {
        "against": ("eager",),
        "compared": {"eager": 3},
        "divergences": (),
        "taken": {LONG: (2, 3)},
    },
    "VerificationReport": {"output_details": ()},
}
"""Fields that must fit each other."""


def reports() -> list[type]:
    for package in ("debug", "ir", "passes", "backends", "traced"):
        root = importlib.import_module(f"torch_ir.{package}")
        for found in pkgutil.walk_packages(root.__path__, f"torch_ir.{package}."):
            importlib.import_module(found.name)
    kinds = [Shown]
    for kind in kinds:
        kinds += kind.__subclasses__()
    kinds = {each.__qualname__: each for each in kinds if hasattr(each, "to_dict")}
    del kinds["OpNode"]  # a part of a program
    return [kind for kind in kinds.values() if kind.__module__.startswith("torch_ir.")]


def filled(kind: type) -> Any:
    """A report in which each text is long, and each list has one entry."""
    known, given = vars(sys.modules[kind.__module__]), GIVEN.get(kind.__name__, {})
    fields = [f for f in dataclasses.fields(kind) if f.init and f.name not in given]
    return kind(**{f.name: value(str(f.type), known) for f in fields}, **given)


def value(hint: str, known: dict[str, Any]) -> Any:
    plain = {"str": LONG, "int": 3, "float": 1.5, "bool": False, "IR": PROGRAM, "Any": LONG}
    if hint in plain:
        return plain[hint]
    if hint.endswith("| None"):
        return None
    if items := re.fullmatch(r"(?:tuple|list|Sequence)\[(\w+)(?:, \.\.\.)?\]", hint):
        return (value(items[1], known),)
    if pair := re.fullmatch(r"(?:Mapping|dict)\[str, (.+)\]", hint):
        return {LONG: value(pair[1], known)}
    found = known.get(hint)
    return filled(found) if dataclasses.is_dataclass(found) else LONG


@pytest.mark.parametrize("kind", reports(), ids=lambda kind: kind.__name__)
def test_a_report_is_frozen_and_fits_and_is_plain_data(kind):
    assert kind.__dataclass_params__.frozen
    report = filled(kind)
    if kind.__name__ not in CODE:
        assert max(map(len, str(report).split("\n"))) <= WIDTH
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert report._repr_html_().startswith("<")
    assert "\u202e" not in str(report)
