"""What a notebook shows of the values that a user holds."""

import html
import importlib
import pkgutil
from collections import Counter

import pytest
import torch

import torch_ir
from torch_ir.debug.attribution import Attribution, PairNoise
from torch_ir.debug.capture import Captured
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.passes import run_passes
from torch_ir.passes.memory_plan import plan_memory
from torch_ir.tables import MAX_LINES, text_html
from torch_ir.viz import plot, view
from viz.programs import HOSTILE, branches, hostile, layers

PACKAGES = [each.name for each in pkgutil.iter_modules(torch_ir.__path__) if each.ispkg]
VALUES = {
    "program": branches,
    "long program": lambda: layers(80),
    "node": lambda: branches().nodes[0],
    "hostile node": lambda: hostile().nodes[0],
    "diff": lambda: layers(2).diff(layers(3)),
    "change": lambda: layers(2).diff(layers(3)).changes[0],
    "finding": lambda: Diagnostic("code", HOSTILE, HOSTILE),
    "plan": lambda: plan_memory(layers(2)),
    "passes": lambda: run_passes(layers(2), []),
    "captured": lambda: Captured(
        HOSTILE, (), {HOSTILE: torch.ones(3), "b": torch.zeros(0)}, {HOSTILE: HOSTILE}
    ),
    "attribution": lambda: Attribution(
        HOSTILE, (PairNoise(HOSTILE, HOSTILE, HOSTILE, 30.0, 20.0, False),), 19.0
    ),
    "plot": lambda: plot(plan_memory(layers(2))),
    "page": lambda: view(hostile()),
}


@pytest.mark.parametrize("name", VALUES)
def test_it_is_shown_and_its_texts_stay_texts(name):
    shown = VALUES[name]()._repr_html_()
    assert shown.startswith("<")
    assert "<script" not in shown
    assert "<img" not in shown
    assert "\u202e" not in shown


def test_a_value_is_shown_as_it_prints():
    node = branches().nodes[0]
    assert html.escape(str(node)) in node._repr_html_()
    assert plan_memory(layers(2))._repr_html_().startswith("<svg")


def test_a_long_program_is_an_outline():
    assert len(layers(400)._repr_html_()) < 3000


def test_a_long_text_ends():
    text = text_html("\n".join(map(str, range(MAX_LINES + 5))))
    assert text.endswith(f"{MAX_LINES - 1}\nand 5 more lines</pre>")


def test_every_report_of_every_package_is_shown():
    packages = [importlib.import_module(f"torch_ir.{name}") for name in PACKAGES]
    known = {
        getattr(package, name) for package in packages for name in getattr(package, "__all__", ())
    }
    reports = {each for each in known if isinstance(each, type) and hasattr(each, "to_dict")}
    assert len(reports) >= 15
    missing = {each.__name__ for each in reports if not hasattr(each, "_repr_html_")}
    assert missing - {"TensorMeta"} == set()


def test_all_that_a_user_holds_is_shown_by_one_way():
    missing = []
    for name in torch_ir.__all__:
        found = getattr(torch_ir, name)
        if isinstance(found, type) and {"__str__", "to_dict"} & vars(found).keys():
            missing += [name] if not hasattr(found, "_repr_html_") else []
    assert missing == ["TensorMeta", "SymExpr", "TorchIRError"], "parts of a line, and errors"
    ways = Counter(
        getattr(torch_ir, name)._repr_html_
        for name in torch_ir.__all__
        if hasattr(getattr(torch_ir, name), "_repr_html_")
    )
    assert len(ways) <= 4, "Shown, programs, pages and plots"
