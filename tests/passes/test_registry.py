"""Passes by name, and the errors that a wrong name gives."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from torch_ir.errors import PassError
from torch_ir.ops import extensions
from torch_ir.passes import (
    EliminateDeadCode,
    Pass,
    PassResult,
    pass_named,
    pass_names,
    passes_named,
    register_pass,
    unregister_pass,
)
from torch_ir.passes.pass_registry import GROUP, described_passes


def test_every_pass_has_its_name():
    for name in pass_names():
        assert pass_named(name).name == name


def test_a_list_of_names_gives_the_passes_in_order():
    assert [str(step) for step in passes_named("fold-constants, cse,dce")] == [
        "fold-constants",
        "common-subexpressions",
        "eliminate-dead-code",
    ]


def test_an_unknown_pass_or_option_is_an_error_that_names_the_closest():
    with pytest.raises(PassError) as caught:
        passes_named("fold-constant,cse")
    assert str(caught.value) == "there is no pass 'fold-constant'\nDid you mean fold-constants?"
    with pytest.raises(PassError) as caught:
        pass_named("fold-constants", max_byte=1)
    assert str(caught.value) == (
        "the pass 'fold-constants' has no option 'max_byte'\nDid you mean max_bytes?"
    )


def test_folding_batch_norm_is_asked_for_with_weights():
    with pytest.raises(PassError) as caught:
        pass_named("fold-batch-norm")
    assert str(caught.value) == (
        "fold-batch-norm changes weights and rounds in another place, so no list has it\n"
        "Call torch_ir.passes.fold_batch_norm(ir, weights)."
    )


def test_installed_packages_name_their_passes(monkeypatch):
    points = [
        EntryPoint("their-pass", "torch_ir.passes.dead_code:EliminateDeadCode", GROUP),
        EntryPoint("no-pass", "torch_ir.passes.base:PassResult", GROUP),
    ]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points if group == GROUP else [])
    assert "their-pass" in pass_names()
    assert isinstance(pass_named("their-pass"), EliminateDeadCode)
    with pytest.raises(PassError) as caught:
        pass_named("no-pass")
    assert str(caught.value) == (
        "the entry point 'no-pass' of torch_ir.passes is no pass: "
        "<class 'torch_ir.passes.base.PassResult'>\n"
        "It names a subclass of torch_ir.passes.Pass."
    )


def test_a_pass_of_a_user_has_a_name_of_its_own():
    @dataclass(frozen=True)
    class Nothing(Pass):
        name: ClassVar[str] = "nothing-at-all"

        def call(self, ir):
            return PassResult(ir, False)

    register_pass(Nothing)
    try:
        assert pass_named("nothing-at-all") == Nothing()
        assert "nothing-at-all" in pass_names()
    finally:
        unregister_pass("nothing-at-all")
    with pytest.raises(PassError, match="there is no pass 'nothing-at-all'"):
        pass_named("nothing-at-all")

    class Taken(Pass):
        name: ClassVar[str] = "decompose"

    with pytest.raises(PassError) as caught:
        register_pass(Taken)
    assert str(caught.value) == (
        "there is already a pass 'decompose'\nGive the class another name."
    )


def test_passes_that_cannot_be_read_are_listed(monkeypatch, tmp_path):
    (tmp_path / "unreadable.py").write_text("class Broken(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    values = {
        "broken": "unreadable:Broken",
        "module": "torch_ir.passes",
        "no-place": "not a place!",
    }
    points = [EntryPoint(name, value, GROUP) for name, value in values.items()]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points)
    described = described_passes()
    assert {name: described[name] for name in values} == {
        "broken": "Of unreadable:Broken.",
        "module": "Of torch_ir.passes.",
        "no-place": "Of not a place!.",
    }
