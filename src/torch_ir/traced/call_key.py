"""The arguments of a call as a key: structure, types of tensors, Python values."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias, cast

import torch

from torch_ir.frozen import Same
from torch_ir.torch_api import dispatch_keys, pytree, shape_of

Token: TypeAlias = Any
"""What a cache key says of one leaf; two leaves that may be traced alike have equal tokens."""

TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""The classes whose tensors are traced; what other classes hold is not known."""

_EXACT = frozenset({bool, int, str, bytes, type(None), type(Ellipsis)})
_CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice)


class Flat:
    """The leaves of a call.

    Attributes:
        tokens: What the key says of each leaf and container, in order.
        tensors: The distinct tensors, in order.
        objects: The leaves that are neither tensors nor values, such as modules and functions.
        generators: The distinct generators of random numbers, in order.
        positions: The position of each tensor, by its identity.
    """

    __slots__ = ("dynamic", "generators", "objects", "positions", "tensors", "tokens")

    def __init__(self, *, dynamic: bool = False) -> None:
        self.dynamic = dynamic
        self.tokens: list[Token] = []
        self.tensors: list[torch.Tensor] = []
        self.objects: list[Any] = []
        self.generators: list[torch.Generator] = []
        self.positions: dict[int, int] = {}

    def add(self, value: Any) -> None:
        """Note one argument, whatever it is."""
        kind = type(value)
        if kind in TENSORS:
            known = self.positions.setdefault(id(value), len(self.tensors))
            if known == len(self.tensors):
                self.tensors.append(value)
                token = tensor_token(value)
                self.tokens.append(_any_size(value, token) if self.dynamic else token)
            else:
                self.tokens.append(("same", known))
        elif kind in _EXACT:
            self.tokens += (kind, value)
        elif kind is float:
            self.tokens += (kind, value.hex())  # tells -0.0 from 0.0, and knows NaN
        elif kind is tuple or kind is list:
            self.tokens += (kind, len(value))
            for item in value:
                self.add(item)
        elif kind is dict:
            self.tokens += (kind, keys_of(value))
            for item in value.values():
                self.add(item)
        else:
            self._other(kind, value)

    def _other(self, kind: type[Any], value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self.tokens += (kind, Same(value))
            self.tensors.append(value)
            return
        if kind is torch.Generator and value is not torch.default_generator:
            if not any(value is known for known in self.generators):
                self.generators.append(value)
            position = next(i for i, g in enumerate(self.generators) if g is value)
            self.tokens += (kind, str(value.device), position)
            return
        if (constant := value_token(value)) is not None:
            self.tokens += constant
            if isinstance(value, (str, int, float)):
                self.objects.append(kind)
            return
        children = children_of(value)
        if children is None:
            self.tokens += (kind, Same(value))
            self.objects.append(value)
            return
        self.tokens += (kind, children[1])
        for item in children[0]:
            self.add(item)


def value_token(value: Any) -> tuple[Token, ...] | None:
    """Return the token of a Python value: its exact type and value; None for no plain value."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value)
    if isinstance(value, slice):
        parts = [value_token(part) for part in (value.start, value.stop, value.step)]
        return None if None in parts else (kind, *parts)
    if isinstance(value, _CONSTANTS):
        return kind, value
    if isinstance(value, (str, int, float)) and (isinstance(value, Enum) or not _state_of(value)):
        return kind, plain_repr(value)  # a subclass: an enumeration, a number of NumPy's
    return None


def plain_repr(value: Any) -> str:
    """Return the text of a string or number, whatever its class shows.

    Example:
        >>> class Meters(float):
        ...     def __repr__(self):
        ...         return "some way"
        >>> plain_repr(Meters(2.5))
        '2.5'
    """
    base: Any = next(base for base in (str, bool, int, float) if isinstance(value, base))
    return base.__repr__(value)


def key_token(key: Any) -> Token:
    """Return the token of a key of a dictionary: a value's, or the very object."""
    token = value_token(key)
    return Same(key) if token is None else token


def keys_of(mapping: Mapping[Any, Any]) -> tuple[Token, ...]:
    """Return what a cache key says of the keys of a dictionary, in order; 1 is not True."""
    keys = tuple(mapping)
    return keys if set(map(type, keys)) <= {str} else tuple(map(key_token, keys))


def _state_of(value: Any) -> Any:
    """The attributes that an object of a subclass has."""
    return getattr(value, "__dict__", None)


def children_of(value: Any) -> tuple[list[Any], Token] | None:
    """Return the children of a container known to torch's pytree, and its context; else None."""
    kind: Any = namedtuple if pytree.is_namedtuple_instance(value) else type(value)
    node = pytree.SUPPORTED_NODES.get(kind)
    if node is None or isinstance(value, torch.Tensor):
        return None
    children, context = node.flatten_fn(value)
    keys = keys_of(cast(Any, value)) if isinstance(value, Mapping) else ()
    return list(children), (repr(context), keys)


def tensor_token(tensor: torch.Tensor) -> Token:
    """Return all that tracing may depend on in a tensor, but for the values of its elements."""
    try:
        strides: Any = tensor.stride()
    except RuntimeError:  # a sparse tensor has none
        strides = None
    return (
        tensor.__class__,
        tensor.dtype,
        shape_of(tensor),
        strides,
        tensor.device,
        tensor.requires_grad,
        dispatch_keys(tensor),
        has_attributes(tensor),
    )


def has_attributes(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has attributes that its user gave it; a parameter's are torch's."""
    names = tensor.__dict__
    return bool(names) and type(tensor) is torch.Tensor and any(n[0] != "_" for n in names)


def is_foreign(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one that programs do not describe.

    It is sparse, quantized, without data, of a class that may do as it likes, or has attributes
    of its own.
    """
    return (
        type(tensor) not in TENSORS
        or has_attributes(tensor)
        or tensor.layout is not torch.strided
        or tensor.is_meta
        or tensor.is_quantized
    )


def _any_size(tensor: torch.Tensor, token: Token) -> Token:
    """The token of a tensor whose sizes are kept symbolic, but for 0 and 1."""
    if not tensor.is_contiguous():
        return token
    kind, dtype, shape, _, *rest = token
    return kind, dtype, tuple([size if size < 2 else None for size in shape]), None, *rest


def flatten(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    dynamic: bool = False,
    ordered: bool = False,
) -> Flat:
    """Flatten the arguments of a call; ``ordered`` says that the order of keywords matters."""
    flat = Flat(dynamic=dynamic)
    add = flat.add
    flat.tokens.append(len(args))
    for value in args:
        add(value)
    for name in kwargs if ordered else sorted(kwargs):
        flat.tokens.append(name)
        add(kwargs[name])
    return flat
