"""What a user holds says what it is: no class of a package's public names prints an address."""

import importlib
import inspect
import pkgutil

import torch
from torch import nn

import torch_ir
from torch_ir.ir.builder import Builder

NET = nn.Sequential(nn.Linear(3, 4), nn.ReLU())


def public_classes():
    packages = [p.name for p in pkgutil.walk_packages(torch_ir.__path__, "torch_ir.") if p.ispkg]
    for name in ("torch_ir", *packages):
        module = importlib.import_module(name)
        yield from (
            found
            for found in (getattr(module, one) for one in getattr(module, "__all__", ()))
            if inspect.isclass(found) and not getattr(found, "_is_protocol", False)
        )


def test_no_public_class_prints_an_address():
    classes = set(public_classes())
    assert len(classes) > 100
    assert not [one.__name__ for one in classes if one.__repr__ is object.__repr__]


def test_what_is_made_of_a_program_names_it():
    ir = torch_ir.extract_ir(NET.eval(), (torch.randn(2, 3),))
    weights = NET.state_dict()
    held = [
        ir.aliases,
        Builder(ir),
        torch_ir.IRExecutor(ir, weights),
        torch_ir.compile(ir, weights, backend="aten"),
        torch_ir.semantics.Evaluation(ir, weights, [torch.randn(2, 3).numpy()]),
    ]
    for one in held:
        assert repr(ir) in repr(one), type(one)
