"""The arguments of a call, checked, and its results in the model's own structure.

They are checked against what the graph was extracted for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import torch

from torch_ir.arguments import public
from torch_ir.errors import (
    ExecutionError,
    InputError,
    Raised,
    attempt,
    counted,
    did_you_mean,
)
from torch_ir.executor.classes import children_of, rebuild
from torch_ir.frozen import identical
from torch_ir.infer.bindings import Symbols, bind_inputs
from torch_ir.infer.storage import share_elements
from torch_ir.ir import IR, Container, FrozenDict, SymExpr, TensorLeaf, TensorMeta, Tree, ValueLeaf
from torch_ir.ir.expressions import Number, kind_of
from torch_ir.ir.symbols import value_at
from torch_ir.ir.tensor import type_text
from torch_ir.ir.tree import BUILTIN_CONTAINERS, unflatten
from torch_ir.ir.values import dtype_name
from torch_ir.torch_api import FakeTensor, FunctionalTensor, storage_of
from torch_ir.torch_modes import is_functionalizing, is_tracing_fakes, is_watched


def flatten_arguments(
    ir: IR, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[torch.Tensor, ...], Symbols]:
    """Flatten a call's arguments to its tensors, and the numbers that are symbols.

    Args:
        ir: The graph.
        args: Positional arguments, in the model's own structure.
        kwargs: Keyword arguments, in the same structure.

    Returns:
        The tensors in the order of ``ir.graph_inputs``, and each number that the program keeps
        symbolic: ``{"s1": 7}``, or ``{"2*s0": 8}`` where it follows from others.

    Raises:
        InputError: The structure is not the one that the program was extracted with, or a value
            that the program was specialized on differs.
        ExecutionError: The signature is not that of the graph.
    """
    if ir.signature is None:
        if kwargs:
            keyword = next(iter(kwargs))
            raise InputError(f"this graph takes tensors only, got the keyword {keyword!r}")
        return args, {}
    if ir.signature.arguments is None:
        raise ExecutionError(
            "the inputs of the signature are no tuple of positional and keyword arguments",
            remedy="check() says more; use execute(), which takes and returns plain tensors.",
        )
    positional, named = ir.signature.arguments
    tensors: dict[str, Any] = {}
    symbols: Symbols = {}
    found = (*_match(positional, args, "args"), *_match(named, dict(kwargs), "kwargs"))
    for leaf, value, path in found:
        if isinstance(leaf, TensorLeaf):
            tensors[leaf.name] = value
        elif isinstance(leaf.value, SymExpr):
            _bind_number(ir, leaf.value, value, path, symbols)
        elif not identical(leaf.value, value):
            raise InputError(
                f"{path} is {value!r:.80}, the program was extracted for {leaf.value!r:.80}",
                remedy="Extract the model again with the value that you want.",
            )
    return tuple([_named(tensors, meta.name) for meta in ir.graph_inputs]), symbols


def _named(values: Mapping[str, Any], name: str) -> Any:
    """The value of a name that both the graph and its signature have to have."""
    if name not in values:
        raise ExecutionError(
            f"%{name} is in only one of the graph and its signature",
            remedy="check() says more; use execute(), which takes and returns plain tensors.",
        )
    return values[name]


def _bind_number(ir: IR, expected: SymExpr, value: Any, path: str, symbols: Symbols) -> None:
    """A number among the arguments that the program keeps symbolic."""
    if not isinstance(value, int | float):
        raise InputError(f"{path} must be a number, got {type(value).__name__}")
    if kind_of(expected.text) is int and type(value) is not int:
        raise InputError(f"{path} must be an integer, got {value!r}")
    allowed = ir.symbols.get(expected.text)
    if allowed is not None and value not in allowed:
        raise InputError(f"{path} is {value}, which is outside the range {allowed} of {expected}")
    if symbols.setdefault(expected.text, value) != value:
        raise InputError(f"{path} is {value}, expected {expected} = {symbols[expected.text]}")


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
    kind = BUILTIN_CONTAINERS.get(tree.type)
    if kind is None:
        children = children_of(tree, value, path)
        if len(children) != len(tree.children):
            items = f"{len(children)} in it, the program's has {len(tree.children)}"
            raise InputError(f"{path} is a {type(value).__name__} with {items}")
        return children, range(len(children))
    if kind is tuple and type(value) is torch.Size:  # which torch.export takes for one too
        value = cast(Any, tuple(value))
    if type(value) is not kind:
        raise InputError(f"{path} must be a {tree.type}, got {type(value).__name__}")
    if issubclass(kind, dict):
        _require_keys(tree, value, path)
        return [value[key] for key in tree.keys], tree.keys
    if len(value) != len(tree.children):
        items = counted(len(value), "argument" if path == "args" else "item")
        raise InputError(
            f"{path} has {items}, expected {len(tree.children)}",
            remedy=_by_position(tree) if path == "args" else None,
        )
    return value, range(len(value))


def _by_position(positional: Container) -> str:
    """What a program takes by position, which a call may give as keywords by mistake."""
    kinds = [
        f"%{child.name}" if isinstance(child, TensorLeaf) else f"a {_kind_of(child)}"
        for child in positional.children
    ]
    return f"It was extracted with {', '.join(kinds) or 'nothing'} by position."


def _kind_of(child: Container | ValueLeaf) -> str:
    if isinstance(child, Container):
        return child.type
    return "number" if isinstance(child.value, SymExpr) else type(child.value).__name__


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


def takes_tensors_alone(ir: IR) -> bool:
    """Return whether a call's arguments are the graph's inputs, in order, and nothing else."""
    if ir.signature is None:
        return True
    if ir.signature.arguments is None:
        return False
    positional, named = ir.signature.arguments
    names = [leaf.name for leaf in positional.children if isinstance(leaf, TensorLeaf)]
    is_alone = len(names) == len(positional.children) and not named.children
    return is_alone and tuple(names) == ir.input_names


Results: TypeAlias = Callable[[tuple[torch.Tensor, ...], Symbols], Any]
"""Gives a program's outputs the model's own structure."""


def results_reader(ir: IR) -> Results:
    """Return what gives results the model's own structure; a tuple where it has none."""
    tree = None if ir.signature is None else ir.signature.outputs
    names = ir.output_names
    if tree is None or _is_tuple_of(tree, names):
        return lambda outputs, symbols: outputs
    if isinstance(tree, TensorLeaf) and len(names) == 1:
        return first_result
    return lambda outputs, symbols: structured(
        tree, dict(zip(names, outputs, strict=True)), symbols
    )


def first_result(outputs: tuple[torch.Tensor, ...], symbols: Symbols) -> torch.Tensor:
    """Return the one result of a model that gives a lone tensor."""
    return outputs[0]


def _is_tuple_of(tree: Tree, names: Sequence[str]) -> bool:
    """Whether the model's result is the tuple of the graph's outputs, in order."""
    if not isinstance(tree, Container) or tree.type != "tuple":
        return False
    found = [leaf.name for leaf in tree.children if isinstance(leaf, TensorLeaf)]
    return len(found) == len(tree.children) and found == [*names]


def results_of(ir: IR, outputs: tuple[torch.Tensor, ...], symbols: Symbols) -> Any:
    """Give results the model's own structure, once; see :func:`results_reader`."""
    return results_reader(ir)(outputs, symbols)


def structured(tree: Tree, values: Mapping[str, Any], symbols: Symbols) -> Any:
    """Give results the structure of a tree."""

    def leaf(item: TensorLeaf | ValueLeaf) -> Any:
        if isinstance(item, TensorLeaf):
            return _named(values, item.name)
        return value_at(item.value, symbols)

    return unflatten(tree, leaf, rebuild)


def several(inputs: object) -> tuple[Any, ...]:
    """Return inputs as a tuple: no lone tensor, of which the rows would be taken for them.

    Raises:
        InputError: They are one, or nothing to iterate over.
    """
    if isinstance(inputs, torch.Tensor) or not isinstance(inputs, Iterable):
        raise InputError(
            f"inputs are a tuple of tensors, got {type(inputs).__name__}",
            remedy="Write (x,) for one input.",
        )
    return tuple(cast("Iterable[Any]", inputs))


# -- tensors --------------------------------------------------------------------------------------


@public
def require_values(ir: IR, inputs: Sequence[Any], device: torch.device | None = None) -> None:
    """Require one tensor with values of its own for each graph input: the door of every run.

    Sparse tensors pass, as layouts are not in types. A tensor on the meta device, a fake or
    functional tensor, one of nested tensors and one in a kernel library's own layout have no
    values to compute with.

    Raises:
        InputError: The count is another, or an input is none; the message names it.
    """
    inputs = several(inputs)
    if len(inputs) != len(ir.graph_inputs):
        names = ", ".join(map(str, ir.graph_inputs)) or "none"
        expected = counted(len(ir.graph_inputs), "input")
        raise InputError(f"expected {expected} ({names}), got {len(inputs)}")
    for position, (meta, tensor) in enumerate(zip(ir.graph_inputs, inputs, strict=True)):
        where = f"input {position} ({meta})"
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{where} must be a tensor, got {type(tensor).__name__}")
        if tensor.is_nested or tensor.layout not in _LAYOUTS:
            kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch._")
            raise InputError(
                f"{where} is a {kind} tensor, expected {type_text(meta)}",
                remedy="Make it dense: to_padded_tensor(), to_dense().",
            )
        if isinstance(tensor, FakeTensor) and not is_tracing_fakes():
            raise InputError(f"{where} is a fake tensor, expected one that holds values")
        if isinstance(tensor, FunctionalTensor) and not is_functionalizing():
            raise InputError(f"{where} is a functional tensor, expected one that holds values")
        if tensor.is_meta:
            expected = device or "a device that holds values"
            raise InputError(f"{where} is on meta, expected {expected}")


def require_apart(
    names: Sequence[str], tensors: Sequence[torch.Tensor], written: Iterable[int]
) -> None:
    """Require that no input which a program writes shares elements with another one.

    The model itself reads from the other what it has written to the one. A program that writes
    when it ends, as a functional one, does not, nor does what computes on copies.

    Args:
        names: The names of inputs.
        tensors: Their values.
        written: The positions of those that are written.

    Raises:
        InputError: Two do; the message names them.

    Example:
        >>> x = torch.zeros(4)
        >>> require_apart(("x", "y"), (x[:2], x[2:]), (0,))
        >>> require_apart(("x", "y"), (x, x), (0,))
        Traceback (most recent call last):
        ...
        torch_ir.errors.InputError: inputs %x and %y share memory, and the program writes %x
        Give it %y.clone(), or run the program as it was extracted, on the backend 'aten'.
    """
    storages = attempt(lambda: [*map(storage_of, tensors)])
    if not isinstance(storages, Raised) and len({*storages}) == len(storages):
        return  # as nearly always; under vmap, and of sparse tensors, there are none
    for position in written:
        for other, tensor in enumerate(tensors):
            if other != position and share_elements(tensors[position], tensor):
                raise InputError(
                    f"inputs %{names[position]} and %{names[other]} share memory, and the program "
                    f"writes %{names[position]}",
                    remedy=f"Give it %{names[other]}.clone(), or run the program as it was "
                    "extracted, on the backend 'aten'.",
                )


def require_default_dtype(expected: torch.dtype | None) -> None:
    """Require that torch's default dtype is as it was when a program was compiled.

    Args:
        expected: What it was; None where it decides no result.

    Raises:
        ExecutionError: It is another.
    """
    now = torch.get_default_dtype()
    if expected not in (None, now):
        raise ExecutionError(
            f"torch's default dtype is {now}, and the program was compiled for {expected}: some "
            "of its results would have another type",
            remedy=f"Call torch.set_default_dtype({expected}) before.",
        )


def require_unwatched(subject: str) -> None:
    """Refuse a call that is transformed or traced, of what does not compute by torch's operators.

    Raises:
        ExecutionError: It is.
    """
    if is_watched():
        raise ExecutionError(
            f"{subject} cannot be transformed or traced",
            remedy="Compile it for the backend 'aten', which can.",
        )


_LAYOUTS = frozenset(
    {
        torch.strided,
        torch.sparse_coo,
        torch.sparse_csr,
        torch.sparse_csc,
        torch.sparse_bsr,
        torch.sparse_bsc,
    }
)


def check_inputs(
    ir: IR,
    inputs: Sequence[Any],
    device: torch.device | None,
    symbols: Symbols,
    places: Mapping[str, torch.device] = FrozenDict(),
) -> Symbols:
    """Check count, kind, dtype, device and shape of the tensors of a call.

    Args:
        ir: The graph.
        inputs: The tensors, in the order of ``ir.graph_inputs``.
        device: Where the weights are; None if there are none.
        symbols: The symbols, or expressions of them, that other arguments gave.
        places: The devices of inputs that have one of their own, by name.

    Returns:
        The value of every symbol: those given, and those that the shapes determine.

    Raises:
        InputError: The first input that does not fit; the message names it.
    """
    require_values(ir, inputs, device)
    for position, (meta, tensor) in enumerate(zip(ir.graph_inputs, inputs, strict=True)):
        where = f"input {position} ({meta})"
        if dtype_name(tensor.dtype, strict=False) != meta.dtype:
            raise InputError(
                f"{where} has the wrong dtype: expected {type_text(meta)}, "
                f"got {type_text(tensor)}",
                remedy=f"Convert it with .to(torch.{meta.dtype}).",
            )
        if not _fits(meta, tensor):
            raise InputError(
                f"{where} has the wrong shape: expected {type_text(meta)}, got {type_text(tensor)}"
            )
        expected = places.get(meta.name, device)
        if expected is not None and tensor.device != expected:
            raise InputError(
                f"{where} is on {tensor.device}, expected {expected}",
                remedy=f"Move it with .to({str(expected)!r}), or compile the program with "
                f"placement={str(tensor.device)!r}.",
            )
    return _check_symbols(ir, inputs, symbols)


def _fits(meta: TensorMeta, tensor: torch.Tensor) -> bool:
    return len(meta.shape) == tensor.dim() and all(
        not isinstance(dim, int) or dim == size
        for dim, size in zip(meta.shape, tensor.shape, strict=True)
    )


def _check_symbols(ir: IR, inputs: Sequence[torch.Tensor], given: Symbols) -> Symbols:
    """The value of each symbol, after every symbolic size and number was checked against them."""
    symbols = bind_inputs(ir.graph_inputs, inputs, given)
    for expression, value in ((SymExpr(text), value) for text, value in given.items()):
        if not expression.is_symbol:  # one that is was checked with the argument that gives it
            _check_size(ir, expression, value, "a number of the call", symbols)
    for position, (meta, tensor) in enumerate(zip(ir.graph_inputs, inputs, strict=True)):
        for axis, (dim, size) in enumerate(zip(meta.shape, tensor.shape, strict=True)):
            if isinstance(dim, SymExpr):
                _check_size(
                    ir, dim, size, f"dimension {axis} of input {position} ({meta})", symbols
                )
    missing = sorted(ir.given_symbols - symbols.keys())
    if missing:
        raise InputError(
            f"the program takes numbers, and nothing gives {', '.join(missing)}",
            remedy="Call it with the model's own arguments.",
        )
    for guard in ir.guards:
        if not guard.evaluate(symbols):
            got = _origins(ir, guard, symbols)
            raise InputError(
                f"the program was traced for sizes where {guard}, got {got}",
                remedy="Extract the model again with such sizes: there it is another program.",
            )
    return symbols


def _origins(ir: IR, guard: SymExpr, symbols: Symbols) -> str:
    """The value of each symbol of a guard, with the dimension that gives it."""
    given = [f"{symbol} = {symbols[symbol]}{_origin(ir, symbol)}" for symbol in guard.symbols]
    return ", ".join(given)


def _origin(ir: IR, symbol: str) -> str:
    for position, meta in enumerate(ir.graph_inputs):
        for axis, dim in enumerate(meta.shape):
            if isinstance(dim, SymExpr) and symbol in dim.symbols:
                return f" (dimension {axis} of input {position} ({meta}))"
    return ""


def _check_size(ir: IR, dim: SymExpr, size: Number, where: str, symbols: Symbols) -> None:
    for symbol in dim.symbols:
        if symbol not in symbols:
            raise InputError(f"{where} is {size}, and {dim} = {size} is not solved for {symbol}")
        allowed = ir.symbols.get(symbol)
        if allowed is not None and symbols[symbol] not in allowed:
            value = "" if dim.is_symbol else f" makes {symbol} {symbols[symbol]}, which"
            raise InputError(
                f"{where} is {size}, which{value} is outside the range {allowed} of {symbol}"
            )
    expected = dim.evaluate(symbols)
    if size != expected:
        raise InputError(f"{where} is {size}, expected {dim} = {expected}")
