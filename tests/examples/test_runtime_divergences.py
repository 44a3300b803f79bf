"""The calls that runtimes get wrong, as far as torch alone runs them."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples/runtime_divergences.py"
SPEC = importlib.util.spec_from_file_location("runtime_divergences", FILE)
divergences = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(divergences)


def test_every_call_runs_and_is_told_on_the_page():
    page = (FILE.parents[1] / "docs/divergences.md").read_text()
    for calls in divergences.CALLS.values():
        for call in calls:
            assert divergences.results(call.function(*call.arguments))
            assert f"`{call.name}" in page


@pytest.mark.recorded
def test_a_kernel_of_torch_takes_a_transposed_gradient_for_a_contiguous_one(capsys):
    assert divergences.main("torch") == 1
    assert "[11.0, 22.0] for [3.0, 30.0]" in capsys.readouterr().out
