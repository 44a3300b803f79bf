"""What is said of versions of torch that the tests do not run on."""

import subprocess
import sys
import warnings

import pytest
import torch

import torch_ir
from torch_ir.ops.clamps import clamp_cuts_bounds
from torch_ir.torch_versions import warn_if_untested


def test_the_version_that_runs_here_is_a_tested_one():
    assert torch.__version__.rpartition(".")[0] in torch_ir.TORCH_VERSIONS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untested(torch.__version__)


def test_another_version_is_told_once_with_a_remedy():
    with pytest.warns(UserWarning, match="tested with") as caught:
        warn_if_untested("2.99.1+cu140")
    (warning,) = caught
    assert str(warning.message) == (
        "torch-ir is tested with torch 2.11, 2.13, 2.14, 2.15, and this is torch 2.99.1+cu140: "
        "operators may have other schemas. Install torch 2.15, or look at results with "
        "torch_ir.verify and torch_ir.validate."
    )


def test_the_command_says_the_version_of_torch_without_importing_it():
    code = (
        "import sys; from torch_ir.cli import main; main(['--version'], standalone_mode=False); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch-ir 0.1.0 (torch 2.")


def test_what_versions_do_otherwise_is_what_the_installed_one_does():
    bounded = torch.tensor([1, 255], dtype=torch.uint8).clamp(min=-1)
    assert bounded.tolist() == ([1, 255] if clamp_cuts_bounds() else [255, 255])
