"""The names that torch_ir offers: all there, documented, lazy, clear about what is not."""

import importlib
import importlib.metadata
import inspect
import subprocess
import sys

import pytest

import torch_ir
from torch_ir.errors import TorchIRError

PYTORCH_IR_NAMES = [
    "extract_ir",
    "verify_ir",
    "verify_ir_with_state_dict",
    "IR",
    "OpNode",
    "TensorMeta",
    "export_model",
    "ExportError",
    "convert_exported_program",
    "ConversionError",
    "serialize_ir",
    "deserialize_ir",
    "save_ir",
    "load_ir",
    "validate_ir",
    "SerializationError",
    "IRExecutor",
    "execute_ir",
    "ExecutionError",
    "load_weights",
    "load_weights_pt",
    "load_weights_safetensors",
    "WeightLoadError",
    "VerificationReport",
    "register_op",
    "register_executor",
    "ir_to_mermaid",
    "generate_op_distribution_pie",
    "plot",
    "view",
    "view_html",
]


@pytest.mark.parametrize("name", torch_ir.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(torch_ir, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__, name
        assert value.__name__ == name


def test_the_names_of_pytorch_ir_are_all_public():
    assert set(PYTORCH_IR_NAMES) <= set(torch_ir.__all__)


def test_a_star_import_gives_them_all():
    names = {}
    exec("from torch_ir import *", names)
    assert set(torch_ir.__all__) <= set(names)


def test_they_are_listed_before_they_are_loaded():
    code = "import torch_ir; assert set(torch_ir.__all__) <= set(dir(torch_ir))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_error_class_is_public():
    errors = importlib.import_module("torch_ir.errors")
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, TorchIRError)
    }
    assert classes <= set(torch_ir.__all__)


def test_error_codes_are_distinct():
    errors = [
        value
        for name in torch_ir.__all__
        if inspect.isclass(value := getattr(torch_ir, name)) and issubclass(value, TorchIRError)
    ]
    assert len({error.code for error in errors}) == len(errors)


def test_subpackages_are_attributes_and_stay_packages():
    code = """
import torch_ir
for name in "cli debug errors executor frontend ir serde viz weights".split():
    assert getattr(torch_ir, name).__name__ == f"torch_ir.{name}"
assert callable(torch_ir.verify)
from torch_ir.executor import IRExecutor
assert IRExecutor is torch_ir.IRExecutor
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == ""


def test_an_unknown_name_has_a_hint():
    with pytest.raises(AttributeError) as caught:
        _ = torch_ir.load_wieghts
    assert str(caught.value) == (
        "module 'torch_ir' has no attribute 'load_wieghts'. "
        "Did you mean load_weights or load_weights_pt?"
    )
    with pytest.raises(AttributeError) as caught:
        _ = torch_ir.zzz
    assert str(caught.value) == "module 'torch_ir' has no attribute 'zzz'"


def test_without_torch_the_extra_is_named():
    code = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import torch_ir
for name in ("extract_ir", "load_weights", "IRExecutor", "verify", "compile", "decompose"):
    try:
        getattr(torch_ir, name)
    except torch_ir.OptionalDependencyError as error:
        print(error)
        assert isinstance(error, ImportError)
print(torch_ir.IR([], [], [], []).check(), torch_ir.ir_to_mermaid is not None)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == ""
    assert (
        result.stdout
        == "".join(
            f"torch_ir.{name} needs PyTorch, which is not installed\n"
            "Install it with: pip install 'torch-ir[torch]'\n"
            for name in (
                "extract_ir",
                "load_weights",
                "IRExecutor",
                "verify",
                "compile",
                "decompose",
            )
        )
        + "() True\n"
    )


def test_the_version_is_that_of_the_package():
    assert torch_ir.__version__ == importlib.metadata.version("torch-ir")
