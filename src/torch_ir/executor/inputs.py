"""The arguments of a call, checked against what the graph was extracted for, and its results in their structure."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from torch_ir.errors import ExecutionError, InputError, InvalidIRError, did_you_mean
from torch_ir.ir import IR, Container, SymExpr, TensorLeaf, TensorMeta, Tree, ValueLeaf
from torch_ir.ir.tensor import type_text
from torch_ir.ir.tree import unflatten
from torch_ir.ir.values import identical
from torch_ir.torch_api import pytree

_BUILTIN: dict[str, type[Any]] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "OrderedDict": OrderedDict,
}


def flatten_arguments(
    ir: IR, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    """The tensors among the arguments of a call, in the order of ``ir.graph_inputs``.

    Raises:
        InputError: The structure is not the one that the program was extracted with, or a value that the
            program was specialised on differs.
    """
    if ir.signature is None:
        if kwargs:
            raise InputError(
                f"this graph takes tensors only, got the keyword {next(iter(kwargs))!r}"
            )
        return args
    inputs = cast(Container, ir.signature.inputs)
    positional, named = inputs.children
    tensors: dict[str, Any] = {}
    for leaf, value, path in _match(positional, args, "args"):
        _take(leaf, value, path, tensors)
    for leaf, value, path in _match(named, dict(kwargs), "kwargs"):
        _take(leaf, value, path, tensors)
    return tuple([tensors[meta.name] for meta in ir.graph_inputs])


def _take(leaf: TensorLeaf | ValueLeaf, value: object, path: str, tensors: dict[str, Any]) -> None:
    if isinstance(leaf, TensorLeaf):
        tensors[leaf.name] = value
    elif not isinstance(leaf.value, SymExpr) and not identical(leaf.value, value):
        raise InputError(
            f"{path} is {value!r:.80}, the program was extracted for {leaf.value!r:.80}",
            remedy="Extract the model again with the value that you want.",
        )


def _match(tree: Tree, value: Any, path: str) -> Iterator[tuple[TensorLeaf | ValueLeaf, Any, str]]:
    """Each leaf with the value that stands in its place."""
    if not isinstance(tree, Container):
        yield tree, value, path
        return
    children, keys = _children(tree, value, path)
    for child, item, key in zip(tree.children, children, keys, strict=True):
        yield from _match(child, item, f"{path}[{key!r}]")


def _children(tree: Container, value: Any, path: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """The children of a Python container, in the tree's order, with what names them."""
    kind = _BUILTIN.get(tree.type)
    if kind is None:
        children = _registered_children(tree, value, path)
        return children, range(len(children))
    if type(value) is not kind:
        raise InputError(f"{path} must be a {tree.type}, got {type(value).__name__}")
    if issubclass(kind, dict):
        _require_keys(tree, value, path)
        return [value[key] for key in tree.keys], tree.keys
    if len(value) != len(tree.children):
        raise InputError(
            f"{path} has {len(value)} {_items(path, len(value))}, expected {len(tree.children)}"
        )
    return value, range(len(value))


def _items(path: str, count: int) -> str:
    noun = "argument" if path == "args" else "item"
    return noun if count == 1 else noun + "s"


def _require_keys(tree: Container, value: Mapping[Any, Any], path: str) -> None:
    names = [str(key) for key in tree.keys]
    for key in value:
        if key not in tree.keys:
            raise InputError(
                f"{path} has the unexpected key {key!r}", remedy=did_you_mean(str(key), names)
            )
    for key in tree.keys:
        if key not in value:
            raise InputError(f"{path} lacks the key {key!r}")


def _registered_children(tree: Container, value: Any, path: str) -> Sequence[Any]:
    kind = registered_class(tree)
    if type(value) is not kind:
        raise InputError(f"{path} must be a {kind.__name__}, got {type(value).__name__}")
    children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    if len(children) != len(tree.children) or context != registered_context(tree):
        raise InputError(
            f"{path} is a {kind.__name__} of another structure than the program was extracted with"
        )
    return children


def registered_class(tree: Container) -> type[Any]:
    """The Python class of a container of a registered class.

    Raises:
        ExecutionError: No class is registered under that name in this process.
    """
    found = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(tree.type)
    if found is None:
        raise ExecutionError(
            f"no class is registered with torch's pytree under the name {tree.type!r}",
            remedy="Import the module that registers it, or use execute(), which takes and returns plain tensors.",
        )
    return found


def registered_context(tree: Container) -> Any:
    """What the registration of the class needs besides the children."""
    # torch's own reader of the format; it runs the class's registered decoder and nothing from the file
    document = json.dumps([1, {"type": tree.type, "context": tree.context, "children_spec": []}])
    return pytree.treespec_loads(document).context


def rebuild(tree: Container, children: Sequence[Any]) -> Any:
    """The object of a registered class from its children."""
    kind = registered_class(tree)
    return pytree.SUPPORTED_NODES[kind].unflatten_fn(children, registered_context(tree))


def structured(tree: Tree, values: Mapping[str, Any], symbols: Mapping[str, int]) -> Any:
    """The results of a call in the model's own structure."""

    def leaf(item: TensorLeaf | ValueLeaf) -> Any:
        if isinstance(item, TensorLeaf):
            return values[item.name]
        return item.value.evaluate(symbols) if isinstance(item.value, SymExpr) else item.value

    return unflatten(tree, leaf, rebuild)


# -- tensors -------------------------------------------------------------------------------------------


def check_inputs(ir: IR, inputs: Sequence[Any], device: torch.device | None) -> None:
    """Check count, kind, dtype, device and shape of the tensors of a call.

    Args:
        ir: The graph.
        inputs: The tensors, in the order of ``ir.graph_inputs``.
        device: Where the weights are; None if there are none.

    Raises:
        InputError: The first input that does not fit; the message names it.
    """
    if len(inputs) != len(ir.graph_inputs):
        names = ", ".join(map(str, ir.graph_inputs)) or "none"
        raise InputError(f"expected {len(ir.graph_inputs)} inputs ({names}), got {len(inputs)}")
    for position, (meta, tensor) in enumerate(zip(ir.graph_inputs, inputs, strict=True)):
        where = f"input {position} ({meta})"
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{where} must be a tensor, got {type(tensor).__name__}")
        found = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        if str(tensor.dtype) != f"torch.{meta.dtype}":
            raise InputError(
                f"{where} has the wrong dtype: expected {meta.dtype}, got {found}",
                remedy=f"Convert it with .to(torch.{meta.dtype}).",
            )
        if not _fits(meta, tensor):
            raise InputError(
                f"{where} has the wrong shape: expected {type_text(meta)}, got {found}"
            )
        if tensor.is_meta or (device is not None and tensor.device != device):
            expected = (
                device
                if device is not None and device.type != "meta"
                else "a device that holds values"
            )
            raise InputError(f"{where} is on {tensor.device}, expected {expected}")
    _check_symbols(ir, inputs)


def _fits(meta: TensorMeta, tensor: torch.Tensor) -> bool:
    return len(meta.shape) == tensor.dim() and all(
        not isinstance(dim, int) or dim == size
        for dim, size in zip(meta.shape, tensor.shape, strict=True)
    )


def _check_symbols(ir: IR, inputs: Sequence[torch.Tensor]) -> None:
    """Each symbolic dimension has the value that the other inputs give it, within its range."""
    from torch_ir.executor.program import bind_symbols

    if not ir.symbols:
        return
    symbols = bind_symbols(ir.graph_inputs, inputs)
    for position, (meta, tensor) in enumerate(zip(ir.graph_inputs, inputs, strict=True)):
        for axis, (dim, size) in enumerate(zip(meta.shape, tensor.shape, strict=True)):
            if isinstance(dim, int):
                continue
            where = f"dimension {axis} of input {position} ({meta})"
            allowed = ir.symbols.get(dim.text)
            if allowed is not None and size not in allowed:
                upper = "" if allowed.upper is None else allowed.upper
                raise InputError(
                    f"{where} is {size}, which is outside the range {allowed.lower}..{upper} of {dim}"
                )
            try:
                expected = dim.evaluate(symbols)
            except InvalidIRError as error:
                raise InputError(f"{where}: {error.message}") from None
            if size != expected:
                raise InputError(f"{where} is {size}, expected {dim} = {expected}")
