"""What functions do, called in many ways: is a traced function ever different from itself?

Each case is a function of `behavior_functions` that is called as usual, then in a way of
:data:`CALLS`, then both once more: as it is, and traced. What calls give and leave behind must be
alike in everything that Python sees: values, types, strides, offsets, which tensors share memory
or are the same, gradients, random numbers, torch's modes; or the call is refused.

Usage: ``PYTHONPATH=tests python -m traced.behaviors [EVERY] [PART OF A NAME]``
"""

from __future__ import annotations

import ast
import contextlib
import functools
import random
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from torch_ir import make_traced
from torch_ir.errors import ExecutionError, TorchIRError
from traced import behavior_world
from traced.behavior_functions import FUNCTIONS

IMPORTS = """
import collections, contextlib, copy, datetime, decimal, fractions, functools, math, numpy
import operator, pickle, random, time, torch, types, warnings
torch.manual_seed(3)
"""
LIBRARY = torch.library.Library("tir_behaviors", "FRAGMENT")


def tensor(*shape: int, seed: int = 5, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu").to(dtype)


def pair(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(*shape, dtype=dtype), tensor(*shape, seed=6, dtype=dtype)


def _complex(conjugate: bool) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.complex(*pair(2, 3)), torch.complex(*pair(2, 3)[::-1])
    return (x.conj() if conjugate else x), y


def _tagged() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = pair(2, 3)
    x.tag = 5
    return x, y


def _with_gradient() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = pair(2, 3)
    x.requires_grad_().grad = torch.ones(2, 3)
    return x, y


def _of_inference() -> tuple[torch.Tensor, torch.Tensor]:
    with torch.inference_mode():
        return tensor(2, 3), tensor(2, 3, seed=6)


def _alias(rows: int, second: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    x = tensor(rows, 3)
    return x[: max(rows - 1, 2)] if rows == 4 else x, second(x)


TENSORS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "other sizes": lambda: pair(4, 3),
    "square": lambda: pair(3, 3),
    "transposed": lambda: tuple([t.t() for t in pair(3, 2)]),
    "float64": lambda: pair(2, 3, dtype=torch.float64),
    "bfloat16": lambda: pair(2, 3, dtype=torch.bfloat16),
    "mixed types": lambda: (tensor(2, 3, dtype=torch.float64), tensor(2, 3)),
    "int64": lambda: tuple([t.mul(5).long() for t in pair(2, 3)]),
    "complex": lambda: _complex(False),
    "conjugated": lambda: _complex(True),
    "gradients": lambda: (tensor(2, 3).requires_grad_(), tensor(2, 3, seed=6)),
    "both gradients": lambda: tuple([t.requires_grad_() for t in pair(2, 3)]),
    "no leaf": lambda: (tensor(2, 3).requires_grad_() * 1, tensor(2, 3, seed=6)),
    "parameter": lambda: (torch.nn.Parameter(tensor(2, 3)), tensor(2, 3, seed=6)),
    "same": lambda: _alias(2, lambda x: x),
    "overlapping": lambda: _alias(4, lambda x: x[1:]),
    "transposed alias": lambda: _alias(3, lambda x: x.t()),
    "detached alias": lambda: _alias(2, lambda x: x.detach()),
    "view of a leaf": lambda: (tensor(3, 3).requires_grad_()[1:], tensor(2, 3)),
    "offset": lambda: (tensor(9)[1:7].view(2, 3), tensor(4, 6)[::2, ::2]),
    "expanded": lambda: (tensor(1, 3).expand(2, 3), tensor(2, 1).expand(2, 3)),
    "empty": lambda: pair(0, 3),
    "one element": lambda: pair(1, 1),
    "vectors": lambda: pair(3),
    "scalars": lambda: pair(),
    "meta": lambda: tuple([t.to("meta") for t in pair(2, 3)]),
    "sparse": lambda: (tensor(2, 3).to_sparse(), tensor(2, 3)),
    "attributes": _tagged,
    "made in inference mode": _of_inference,
    "NumPy's memory": lambda: (torch.from_numpy(np.ones((2, 3), np.float32)), tensor(2, 3)),
    "swapped": lambda: (tensor(2, 3, seed=2), tensor(2, 3, seed=1)),
    "with a gradient": _with_gradient,
    "NaN": lambda: (tensor(2, 3) / 0 * 0, tensor(2, 3)),
}
"""The tensors of a call."""

NUMBERS: dict[str, Any] = {
    "1.0": 1.0,
    "True": True,
    "3": 3,
    "0": 0,
    "string": "a",
    "number as tensor": torch.tensor(2.0),
    "number of NumPy": np.float32(2),
}
"""The third argument, where it is not 2."""

MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default type": lambda: torch.set_default_dtype(torch.float64),
    "device cpu": lambda: torch.device("cpu"),
    "device meta": lambda: torch.device("meta"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
}
"""Modes in which a call is made; those that are no context are put back after each call."""

USUAL = "as usual"
OF_INFERENCE = "inference mode, tensors made in it"
CALLS = (USUAL, *TENSORS, *NUMBERS, *MODES, "autocast, gradients", OF_INFERENCE)


def arguments(call: str) -> tuple[Any, ...]:
    x, y = tensor(2, 3, seed=1), tensor(2, 3, seed=2)
    if call in TENSORS:
        x, y = TENSORS[call]()
    if call == OF_INFERENCE:
        x, y = _of_inference()
    if call in ("no_grad", "autocast, gradients"):
        x.requires_grad_()
    return x, y, NUMBERS.get(call, 2)


# -- worlds ---------------------------------------------------------------------------------------


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    return {name.id for name in found if isinstance(name.ctx, context)}


@functools.cache
def _statements() -> list[ast.stmt]:
    return ast.parse(Path(str(behavior_world.__file__)).read_text()).body


@functools.cache
def _world(function: str) -> Any:
    """The source of a function with those parts of the world that it names."""
    wanted, kept = _names(ast.parse(function), ast.Load), list[ast.stmt]()
    for statement in reversed(_statements()):
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                bound = {statement.name}
            case ast.Expr():
                bound = _names(statement, ast.Load)
            case _:
                bound = _names(statement, ast.Store)
        if isinstance(statement, ast.Import | ast.ImportFrom) or bound & wanted:
            kept.append(statement)
            wanted |= _names(statement, ast.Load)
    return compile(ast.Module(kept[::-1], []), str(behavior_world.__file__), "exec")


class World:
    """A function with what it closes over."""

    def __init__(self, body: str, *, traced: bool):
        source = "def f(x, y, s):\n" + textwrap.indent(body.replace("\\n", "\n"), " ")
        sys.modules["tir_world"] = module = types.ModuleType("tir_world")
        self.names = vars(module)
        exec(IMPORTS, self.names)  # a case is source
        exec(_world(source), self.names)  # as above
        self.kept = [n for n in self.names if n.isupper()]
        exec(compile(source, "case.py", "exec"), self.names)  # as above
        f = self.names["f"]
        self.called = make_traced(f) if traced else f

    def call(self, call: str, seed: int) -> dict[str, Any]:
        """All that a call gives and leaves behind."""
        args = arguments(call)
        torch.manual_seed(seed)
        random.seed(seed)
        mode = MODES.get(call.partition(",")[0], contextlib.nullcontext)()
        try:
            with mode or contextlib.nullcontext():
                result, error = self.called(*args), None
        except Exception as raised:  # noqa: BLE001  # eager must raise the same
            result, error = None, raised
        found: dict[str, Any] = {"error": error, "modes": _modes_put_back()}
        found["random numbers"] = torch.get_rng_state().tolist()
        shown = Shown()
        state = [(n, self.names[n]) for n in self.kept]
        found["all"] = [shown.of(part) for part in (result, args, state)]
        found["gradients"] = _gradients((result, args), (args, _tensors(state)))
        found["unchanged"] = Shown().of(args) == Shown().of(arguments(call))
        return found


def _modes_put_back() -> tuple[Any, ...]:
    found = torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_inference_mode_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    return *found, deterministic


# -- comparing ------------------------------------------------------------------------------------


def _tensors(values: Any) -> list[torch.Tensor]:
    return [
        tensor
        for leaf in pytree.tree_leaves(values)
        for tensor in ([*leaf.parameters()] if isinstance(leaf, torch.nn.Module) else [leaf])
        if isinstance(tensor, torch.Tensor)
    ]


def _gradients(ends: Any, leaves: Any) -> Any:
    """The gradients of everything in everything."""
    wanted = [t for t in _tensors(leaves) if t.requires_grad]
    found = [t for t in _tensors(ends) if t.requires_grad and _is_leaf(t) is False]
    found = [t for t in found if not t.is_meta and t.layout is torch.strided]
    if not wanted or not found:
        return None
    try:
        weights = [torch.full_like(t, 1 + i) for i, t in enumerate(found)]
        return Shown().of(torch.autograd.grad(found, wanted, weights, allow_unused=True))
    except RuntimeError as error:
        return type(error)


class Shown:
    """Describes objects as far as Python sees them, each object and memory by its number."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._memory: dict[int, int] = {}

    def of(self, value: Any) -> Any:
        """A description that is equal for what nobody can tell apart."""
        if isinstance(value, (bool, int, float, complex, str, bytes, type(None), torch.dtype)):
            return type(value), repr(value)
        if isinstance(value, type):
            return value.__qualname__
        if id(value) in self._objects and not isinstance(value, tuple):
            return "same", self._numbers[id(value)]
        self._numbers[id(value)] = len(self._numbers)
        self._objects[id(value)] = value
        if torch.nn.parameter.is_lazy(value):
            return "lazy"
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            return type(value).__name__, value.training, self.of(_state(value))
        if isinstance(value, dict):
            return type(value), [(self.of(k), self.of(v)) for k, v in value.items()]
        if isinstance(value, (list, tuple)):
            return type(value).__name__, [self.of(item) for item in value]
        if isinstance(value, types.SimpleNamespace):
            return self.of(vars(value))
        return type(value).__name__

    def _tensor(self, value: torch.Tensor) -> Any:
        kind = _is_leaf(value), value.is_inference(), value.is_conj(), value.is_neg()
        found = [type(value), value.dtype, value.shape, value.device, value.layout]
        found += [value.requires_grad, kind, sorted(vars(value))]
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            return [*found, str(value)]
        storage = value.untyped_storage()
        if place := storage.data_ptr():
            found.append(self._memory.setdefault(place, len(self._memory)))
        made = torch.empty(value.shape, dtype=value.dtype).copy_(value.detach())
        bits = made.view(torch.uint8) if made.dtype == torch.bfloat16 and made.dim() else made
        return [*found, value.stride(), value.storage_offset(), storage.nbytes(), bits.tolist()]


def _is_leaf(value: torch.Tensor) -> bool | None:
    try:
        return value.is_leaf
    except RuntimeError:  # of a view that torch allows nobody to ask
        return None


def _state(module: torch.nn.Module) -> dict[str, Any]:
    names = ("_parameters", "_buffers", "_modules", "n", "at", "extra", "kept")
    return {name: value for name, value in vars(module).items() if name in names}


FINE = "same", "refused", "raised by the run"
"""The outcomes that are as documented."""


def outcome(body: str, call: str) -> str:
    """One of :data:`FINE`, or how a traced function differs from itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = [(USUAL, 0), (call, 1), (USUAL, 2), (call, 3)]
        eager, traced = World(body, traced=False), World(body, traced=True)
        for way, seed in steps:
            expected, got = eager.call(way, seed), traced.call(way, seed)
            error, raised = expected.pop("error"), got.pop("error")
            is_failure = error is not None and isinstance(raised, ExecutionError)
            if is_failure:
                return "raised by the run"  # what Python did and what was drawn may be otherwise
            if isinstance(raised, TorchIRError):
                return "refused" if got["unchanged"] else "it is refused half way"
            if type(raised) is not type(error):
                return f"call {seed} raises {raised!r}, eager {error!r}"
            for name, value in expected.items():
                if repr(got[name]) != repr(value):
                    return f"call {seed} has other {name}: {got[name]}, eager {value}"
    return "same"


def cases() -> Iterator[tuple[str, str]]:
    """Yield each function with each way to call it."""
    for bodies in FUNCTIONS.values():
        for body in bodies.replace("\\\n", " ").split("\n"):
            yield from (
                (body, call) for call in CALLS if body and not _shows_unwritten(body, call)
            )


def _shows_unwritten(body: str, call: str) -> bool:
    """Whether a call shows memory that nothing has written."""
    return body == "x.resize_(3, 2); return x" and arguments(call)[0].numel() < 6


def main() -> int:
    """Run cases; say which are wrong."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    chosen = [c for c in [*cases()][::every] if len(sys.argv) < 3 or sys.argv[2] in c[0]]
    found = {case: outcome(*case) for case in chosen}
    wrong = {case: text for case, text in found.items() if text not in FINE}
    for case, text in wrong.items():
        print(f"{' / '.join(case)}: {text[:500]}")  # noqa: T201  # a script
    refused, raised = ([*found.values()].count(kind) for kind in FINE[1:])
    told = f"{len(wrong)} wrong, {refused} refused, {raised} raised by the run"
    print(f"{len(found)} cases: {told}")  # noqa: T201  # a script
    return bool(wrong)


if not hasattr(torch.ops.tir_behaviors, "twice"):  # doctests import the file once more
    LIBRARY.define("twice(Tensor x) -> Tensor")
    LIBRARY.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")

if __name__ == "__main__":
    sys.exit(main())
