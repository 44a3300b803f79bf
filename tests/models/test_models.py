"""Every small model through the whole pipe: extract, check, store, load, run; bitwise as eager."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.utils import _pytree as pytree

import torch_ir
from small_models import CASES
from torch_ir.executor import IRExecutor, check_types

pytestmark = pytest.mark.filterwarnings("ignore:the model is in training mode")

every_model = pytest.mark.parametrize("name", CASES)
either_device = pytest.mark.parametrize("meta", [False, True], ids=["real", "meta"])


@functools.cache
def extracted(name, meta):
    case = CASES[name]
    args, kwargs = case.meta_inputs() if meta else case.inputs()
    model = case.meta() if meta else case.model()
    return torch_ir.extract_ir(model, args, kwargs=kwargs, model_name=name)


def not_in_state_dict(model):
    """Non-persistent buffers and plain tensor attributes: what a meta model cannot tell."""
    kept = model.state_dict()
    known = {key: b for key, b in model.named_buffers() if key not in kept}
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                known[f"{path}.{key}" if path else key] = value
    return known


def same(left, right):
    """Whether two results have the same structure, types, dtypes, shapes and bits."""
    left_leaves, left_spec = pytree.tree_flatten(left)
    right_leaves, right_spec = pytree.tree_flatten(right)
    return left_spec == right_spec and all(map(same_leaf, left_leaves, right_leaves))


def same_leaf(left, right):
    if not isinstance(left, torch.Tensor):
        return type(left) is type(right) and left == right
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.resolve_conj().contiguous().view(-1).view(torch.uint8).tolist()
        == right.resolve_conj().contiguous().view(-1).view(torch.uint8).tolist()
    )


@every_model
@either_device
def test_a_stored_program_computes_the_bits_of_eager(name, meta, tmp_path):
    case = CASES[name]
    ir = extracted(name, meta)
    path = tmp_path / ("model.tir" if meta else "model.json")
    ir.save(path)
    model = case.model().requires_grad_(False)  # as its weights: matmul folds by it, and rounds
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    executor = IRExecutor(torch_ir.load_ir(path), weights, not_in_state_dict(model))
    before = {key: value.clone() for key, value in weights.items()}
    for _ in range(2):  # twice: what a program writes is there at the next call
        args, kwargs = case.inputs()
        mine = executor(*args, **kwargs)
        eager_args, eager_kwargs = case.inputs()
        with torch.no_grad():
            expected = model(*eager_args, **eager_kwargs)
        assert same(mine, expected)
        assert same((args, kwargs), (eager_args, eager_kwargs))  # an input may be written too
    assert same(weights, before)
    state = model.state_dict()
    assert same(executor.buffers, {key: state[key] for key in executor.buffers})


@every_model
@either_device
def test_a_program_has_no_findings(name, meta):
    ir = extracted(name, meta)
    assert ir.check() == ()
    assert check_types(ir) == ()


@every_model
def test_text_and_document_hold_the_whole_program(name):
    ir = extracted(name, True)
    assert torch_ir.parse(str(ir), constants=ir.constants) == ir
    assert torch_ir.deserialize_ir(torch_ir.serialize_ir(ir)) == ir


@pytest.mark.parametrize("name", ["conv", "scopes", "nested", "bert"])
@either_device
def test_extraction_is_deterministic(name, meta):
    again = extracted.__wrapped__(name, meta)
    assert again == extracted(name, meta)
    assert torch_ir.serialize_ir(again) == torch_ir.serialize_ir(extracted(name, meta))


@every_model
def test_the_device_of_the_model_does_not_change_what_it_computes(name):
    """From meta and from the CPU come the same calls; constants are known only from the CPU."""
    real, meta = extracted(name, False), extracted(name, True)
    assert [node.op_type for node in real.nodes] == [node.op_type for node in meta.nodes]
    assert [node.attrs for node in real.nodes] == [node.attrs for node in meta.nodes]
    assert real.graph_inputs == meta.graph_inputs
    assert real.signature == meta.signature
    keys = {w.name for w in real.weights} | real.constants.keys()
    assert keys == {w.name for w in meta.weights} | meta.constants.keys()


@every_model
def test_every_weight_is_stored_by_its_key_alone(name):
    ir = extracted(name, False)
    state = CASES[name].model().state_dict()
    for meta in ir.weights:
        assert tuple(state[meta.name].shape) == meta.shape
        assert str(state[meta.name].dtype) == f"torch.{meta.dtype}"
    assert not ir.constants.keys() & state.keys()
