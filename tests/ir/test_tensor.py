"""Tensor metadata, and constants whose bits survive every way in and out."""

from __future__ import annotations

import hashlib
import math
import re
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from strategies import constants
from torch_ir import Constant, TensorMeta
from torch_ir.errors import InvalidIRError
from torch_ir.ir import SymExpr
from torch_ir.ir.dtypes import ALIASES, DTYPES
from torch_ir.ir.tensor import as_constant
from torch_ir.torch_api import constant_tensor

exactly = settings(max_examples=60, derandomize=True, deadline=None)

DENSE = [
    name
    for name in DTYPES
    if not name.startswith(("q", "complex32")) and isinstance(getattr(torch, name), torch.dtype)
] + ["complex32"]


def bits(tensor):
    """The values of a tensor as integers; made without the code under test."""
    dense = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    storage = dense.untyped_storage()
    return bytes(storage[i] for i in range(dense.numel() * dense.element_size()))


def random_tensor(dtype, *shape):
    """A tensor of any bits that its dtype can hold."""
    made = torch.empty(shape, dtype=dtype)
    raw = torch.randint(0, 256, (made.numel() * made.element_size(),), dtype=torch.uint8)
    if dtype is torch.bool:
        raw %= 2
    return raw.view(dtype).reshape(shape)


# -- the table of element types ---------------------------------------------------------------


def test_the_table_of_element_types_says_what_torch_says():
    for name, info in DTYPES.items():
        assert str(getattr(torch, name)) == f"torch.{name}"
        assert getattr(torch, name).itemsize == info.itemsize
        if info.numpy is not None:
            kind = np.dtype(getattr(np, info.numpy, None) or getattr(ml_dtypes, info.numpy))
            assert kind.itemsize == info.itemsize
    for alias, name in ALIASES.items():
        assert getattr(torch, alias) is getattr(torch, name)


# -- constants --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", DENSE)
def test_any_bits_of_any_dtype_survive(name):
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    for shape in ((64,), (), (3, 4), (0,), (2, 0, 3), (1, 1, 1)):
        tensor = random_tensor(dtype, *shape)
        constant = Constant.from_torch(tensor)
        back = constant_tensor(constant)
        assert (constant.dtype, constant.shape) == (name, shape)
        assert (back.dtype, tuple(back.shape)) == (dtype, shape)
        assert bits(back) == bits(tensor) == constant.tobytes()


VIEWS = {
    "transposed": lambda t: t.t(),
    "strided": lambda t: t[:, ::2],
    "offset": lambda t: t[1:, 1],
    "expanded": lambda t: t[:1].expand(5, 4),
    "zero-dimensional": lambda t: t[1, 2],
    "one element": lambda t: t.as_strided((1, 1), (0, 3)),
    "parameter": torch.nn.Parameter,
    "channels last": lambda t: t.reshape(1, 3, 2, 2).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_view_is_kept_by_its_values(view, dtype):
    tensor = view(torch.randn(3, 4).to(dtype))
    constant = Constant.from_torch(tensor)
    assert torch.equal(constant_tensor(constant), tensor)
    assert constant == Constant.from_torch(tensor.detach().clone().contiguous())


def test_lazy_conjugation_and_negation_are_resolved():
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert tensor.conj().is_conj()
    assert Constant.from_torch(tensor.conj()).tolist() == [1 - 2j, 3 + 4j]
    assert tensor.conj().imag.is_neg()
    assert Constant.from_torch(tensor.conj().imag).tolist() == [-2.0, 4.0]


def test_the_payload_of_a_nan_survives():
    tensor = torch.tensor([0x7FC0BEEF, 0xFF800001 - 2**32, 0x80000000 - 2**32]).to(torch.int32)
    constant = Constant.from_torch(tensor.view(torch.float32))
    assert torch.equal(constant_tensor(constant).view(torch.int32), tensor)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: torch.ones(2, device="meta"), "meta"),
        (lambda: torch.ones(2).to_sparse(), "torch.sparse_coo"),
        (lambda: torch.ones(2, 2).to_sparse_csr(), "torch.sparse_csr"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "quantized"),
        (lambda: torch._to_functional_tensor(torch.ones(2)), "functional"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_without_plain_values_is_no_constant(make, kind):
    with pytest.raises(InvalidIRError) as caught:
        Constant.from_torch(make())
    assert str(caught.value) == f"a {kind} tensor has no plain values to keep as a constant"


def test_a_tensor_of_one_value_is_read_where_it_lies():
    tensor = torch.full((2**20,), 7, dtype=torch.int64)
    tracemalloc.start()
    try:
        constant = Constant.from_torch(tensor)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert constant.is_filled
    assert constant.shape == (2**20,)
    assert peak < tensor.nbytes / 8


@pytest.mark.parametrize("shape", [(), (0,), (3,), (40, 40)])
def test_a_constant_keeps_its_values_where_its_tensor_is_written(shape):
    tensor = torch.arange(math.prod(shape)).reshape(shape)
    constant, before = Constant.from_torch(tensor), tensor.tolist()
    tensor.add_(1)
    assert constant.tolist() == before
    assert isinstance(constant.data, bytes)


@exactly
@given(constants())
def test_constants_are_values(constant):
    same = Constant(constant.dtype, constant.shape, bytearray(constant.tobytes()))
    by_hash = Constant(constant.dtype, constant.shape, None, constant.digest())
    assert constant.digest() == hashlib.sha256(constant.tobytes()).hexdigest()
    assert constant == same == by_hash
    assert hash(constant) == hash(same) == hash(by_hash)
    if constant.tobytes():
        flipped = bytes([constant.tobytes()[0] ^ 1]) + constant.tobytes()[1:]
        assert Constant(constant.dtype, constant.shape, flipped) != constant


def test_a_list_that_holds_itself_is_refused():
    values = [1]
    values.append(values)
    with pytest.raises(InvalidIRError, match="at most 64 dimensions"):
        Constant.from_list(values, "int64")


def test_numpy_reads_the_values_and_cannot_change_them():
    constant = Constant.from_numpy(np.array([[1, -2], [3, 4]], dtype=">i4"))
    assert repr(constant) == "Constant(i32[2, 2])"
    assert np.asarray(constant).tolist() == constant.tolist() == [[1, -2], [3, 4]]
    assert np.array(constant, dtype="float64").dtype == "float64"
    with pytest.raises(ValueError, match="read-only"):
        constant.numpy()[0] = 5
    eighth = Constant.from_list([0.5, float("inf")], "bfloat16")
    assert eighth.numpy().dtype == ml_dtypes.bfloat16
    assert eighth.tobytes() == b"\x00\x3f\x80\x7f"


def test_what_numpy_cannot_hold_says_so():
    half = Constant("complex32", (1,), bytes(4))
    with pytest.raises(InvalidIRError) as caught:
        half.numpy()
    assert str(caught.value) == "NumPy has no complex32\nRead the bytes with tobytes()."


def test_a_constant_known_by_its_hash_has_no_values():
    with pytest.raises(InvalidIRError) as caught:
        Constant("float32", (2,), None, "0" * 64).tolist()
    assert str(caught.value) == (
        "the values of this constant f32[2] are not in the text that it was parsed from\n"
        "Give them to parse(text, constants=...), or load the IR from JSON or an archive."
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant("float32", (2,), b"123"), "a constant f32[2] has 8 bytes, got 3"),
        (
            lambda: Constant("float32", (2**62, 4), b""),
            "a constant f32[4611686018427387904, 4] has 73786976294838206464 bytes, got 0",
        ),
        (lambda: Constant("float32", (-1,), b""), "a constant cannot have the shape [-1]"),
        (lambda: Constant("float32", ("s0",), b""), "a constant cannot have the shape ['s0']"),
        (lambda: Constant("float32", (True,), b"1234"), "a constant cannot have the shape [True]"),
        (
            lambda: Constant("float32", (2,), None),
            "a constant f32[2] needs its data or the SHA-256 of it",
        ),
        (
            lambda: Constant("float32", (2,), None, "not a hash"),
            "a constant f32[2] needs its data or the SHA-256 of it",
        ),
        (lambda: Constant.from_list([1.5], "int64"), "a constant of int64 cannot hold 1.5"),
        (
            lambda: Constant.from_list([[0], [float("nan")]], "uint8"),
            "a constant of uint8 cannot hold nan",
        ),
        (lambda: Constant.from_list([2], "bool"), "a constant of bool cannot hold 2"),
        (lambda: Constant.from_list([None], "float32"), "a constant of float32 cannot hold None"),
        (lambda: Constant.from_list(["12"], "int64"), "a constant of int64 cannot hold '12'"),
        (
            lambda: Constant.from_list([1], "complex32"),
            "a constant of complex32 cannot be given as a list of numbers",
        ),
        (
            lambda: as_constant([1, 2]),
            "a constant cannot be a list\nGive a tensor, an array, or a torch_ir.ir.Constant.",
        ),
    ],
)
def test_what_is_no_constant(make, message):
    with pytest.raises(InvalidIRError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "dtype"), [([[1], [2, 3]], "int64"), ([300], "uint8"), ([1j], "float32")]
)
def test_lists_that_numpy_refuses(values, dtype):
    message = f"^the values of a constant are not a rectangle of {dtype} numbers: "
    with pytest.raises(InvalidIRError, match=message):
        Constant.from_list(values, dtype)


# -- metadata ---------------------------------------------------------------------------------


def test_metadata_knows_its_size():
    meta = TensorMeta("x", [2, 3], torch.float16)
    assert (meta.shape, meta.dtype, meta.nbytes, meta.is_static) == ((2, 3), "float16", 12, True)
    assert str(meta) == "%x: f16[2, 3]"
    varying = TensorMeta("x", ["s0", 3, "4 - 1"], "float32")
    assert varying.shape == (SymExpr("s0"), 3, 3)
    assert (varying.nbytes, varying.is_static) == (None, False)
    assert meta.replace(name="y") == TensorMeta("y", (2, 3), "half")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((-1,), "a dimension cannot be negative, got -1"),
        (("-3",), "a dimension cannot be negative, got -3"),
        ((True,), "a dimension cannot be True\nDimensions are integers or expressions."),
        ((2.0,), "a dimension cannot be 2.0\nDimensions are integers or expressions."),
        ((None,), "a dimension cannot be None\nDimensions are integers or expressions."),
        (3, "a shape is a list of dimensions, got 3"),
        ("23", "a shape is a list of dimensions, got '23'"),
        (None, "a shape is a list of dimensions, got None"),
    ],
)
def test_what_is_no_shape(shape, message):
    with pytest.raises(InvalidIRError) as caught:
        TensorMeta("x", shape, "float32")
    assert str(caught.value) == message


@pytest.mark.parametrize("dtype", ["float", "torch.float32", torch.float32])
def test_every_spelling_of_a_dtype_is_taken(dtype):
    assert TensorMeta("x", (), dtype).dtype == "float32"


def test_an_unknown_dtype_is_named_with_the_closest():
    with pytest.raises(
        InvalidIRError, match=re.escape("'flot16' is not an element type\nDid you")
    ):
        TensorMeta("x", (), "flot16")
