"""Functions that are traced at their first call and run from a cache after that."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from torch_ir.errors import InputError
from torch_ir.ir import IR
from torch_ir.traced.arguments import Flat, flatten, is_foreign
from torch_ir.traced.capture import trace
from torch_ir.traced.describe import Description, Given, describe, differences, leaves_of
from torch_ir.traced.entry import Entry
from torch_ir.traced.environment import Environment
from torch_ir.traced.modes import is_observed, modes
from torch_ir.traced.program import Program, program_of
from torch_ir.traced.runners import (
    executors_of,
    in_dialect,
    require_dialect,
    require_parameters,
    runner,
)

_MANY = 8
"""After so many traces a function says why."""


class TraceWarning(UserWarning):
    """A function is traced again and again."""


class CacheInfo(NamedTuple):
    """How often a traced function found a program for a call.

    Attributes:
        hits: Calls that ran a program which was there.
        misses: Calls that were traced.
        maxsize: How many programs are kept.
        currsize: How many there are.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int


class Traced:
    """A function that runs as a program; :func:`make_traced` makes one."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        executor: str | Sequence[str] | None,
        dialect: str,
        dynamic: bool,
        cache: int,
    ):
        if not callable(function):
            raise InputError(f"what is traced is a function, got {type(function).__name__}")
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self._function = function
        self._executors = executors_of(executor)
        self._dialect = dialect
        self._dynamic = dynamic
        self._maxsize = cache
        self._title = getattr(function, "__name__", type(function).__name__)
        self._takes_executor = _takes(function, "executor")
        self._entries: OrderedDict[Any, list[Entry]] = OrderedDict()
        self._turn = threading.RLock()
        self._hits = 0
        self._misses = 0

    def __repr__(self) -> str:
        return f"Traced({self._title}, executor={', '.join(self._executors)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result, by the program that stands for this call.

        Args:
            args: The function's own.
            kwargs: Likewise; ``executor`` and ``executor_parameters`` say what runs this call,
                unless the function has parameters of these names.

        Raises:
            InputError: There is no such executor.
            TraceError: The function cannot be traced; the message says what it does, and where.
        """
        executors = self._executors
        if not self._takes_executor and ("executor" in kwargs or "executor_parameters" in kwargs):
            if (chosen := kwargs.pop("executor", None)) is not None:
                executors = executors_of(chosen)
            require_parameters(executors, kwargs.pop("executor_parameters", None))
        if torch.compiler.is_compiling() or is_observed():
            return self._function(*args, **kwargs)
        flat = flatten(args, kwargs, dynamic=self._dynamic)
        key = (executors, modes(), *flat.tokens)
        entry = self._hit(key, flat)
        if entry is None:
            if any(map(is_foreign, flat.tensors)):
                return self._function(*args, **kwargs)
            entry = self._missed(key, flat, (args, kwargs))
        return entry.run(flat.tensors)

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # -- tracing ----------------------------------------------------------------------------------

    def _hit(self, key: Any, flat: Flat) -> Entry | None:
        """The entry that fits a call as it is."""
        for entry in self._entries.get(key, ()):
            if entry.environment.is_unchanged() and entry.fits(flat.tensors):
                self._hits += 1
                with contextlib.suppress(KeyError):  # another thread may have forgotten it
                    self._entries.move_to_end(key)
                return entry
        return None

    def _missed(self, key: Any, flat: Flat, given: Given) -> Entry:
        """The entry for a call that no entry fits as it is."""
        with self._turn:
            environment = self._environment(flat)
            entry = self._moved(key, flat, environment)
            if entry is not None:
                return entry
            self._misses += 1
            call = describe(self._function, given, key[1], key[0], environment)
            self._warn(call)
            program = self._program(flat, environment, given)
            entry = Entry(program, environment, flat, runner(key[0], self._dialect), call)
            self._keep(key, entry)
            return entry

    def _moved(self, key: Any, flat: Flat, environment: Environment) -> Entry | None:
        """An entry that fits but for which objects hold what it depends on."""
        entries = self._entries.get(key, [])
        for position, entry in enumerate(entries):
            if entry.environment.is_alike(environment):
                moved = entry.moved(environment, flat)
                if moved.fits(flat.tensors):
                    entries[position] = moved
                    self._hits += 1
                    return moved
        return None

    def _warn(self, call: Description) -> None:
        """Say once that a function is traced again and again, and why."""
        if self._misses == _MANY:
            warnings.warn(
                f"{self._title} has been traced {_MANY} times; the last time because "
                f"{self._difference(call)[0]}. Values that differ at each call are cheaper as "
                "tensors.",
                TraceWarning,
                stacklevel=4,
            )

    def _difference(self, call: Description) -> list[str]:
        """What tells a call from the program that comes closest to it."""
        known = [entry.description for entries in self._entries.values() for entry in entries]
        if not known:
            return ["no call has been traced"]
        found = [differences(description, call) for description in reversed(known)]
        return min(found, key=len) or ["an object is another one"]

    def _keep(self, key: Any, entry: Entry) -> None:
        """Put an entry first, and forget those that have not been used for longest."""
        self._entries[key] = [entry, *self._entries.get(key, ())][: max(self._maxsize, 1)]
        self._entries.move_to_end(key)
        while len(self._entries) > 1 and self._size() > self._maxsize:
            self._entries.popitem(last=False)
        if self._maxsize == 0:
            self._entries.clear()

    def _environment(self, flat: Flat) -> Environment:
        objects = [(f"argument {i}", o) for i, o in enumerate(flat.objects)]
        return Environment([(self._title, self._function), *objects])

    def _program(self, flat: Flat, environment: Environment, given: Given) -> Program:
        traced = trace(self._function, *given, flat, environment, dynamic=self._dynamic)
        names = names_of(self._function, given, flat.positions)
        return program_of(traced, names, environment.paths, given, flat.positions, self._title)

    # -- asking -----------------------------------------------------------------------------------

    def ir(self, *args: Any, **kwargs: Any) -> IR:
        """The program of a call; nothing runs.

        Closed-over tensors and parameters are its weights.

        Raises:
            TraceError: The function cannot be traced.
            PassError: The program cannot be said in the dialect.
        """
        flat = flatten(args, kwargs, dynamic=self._dynamic)
        program = self._program(flat, self._environment(flat), (args, kwargs))
        return in_dialect(program.ir, self._dialect)

    def explain_miss(self, *args: Any, **kwargs: Any) -> str:
        """Why a call would be traced anew: what tells it from the closest call that was traced.

        Nothing is traced, and nothing runs.

        Example:
            >>> traced = make_traced(lambda x, n: x * n)
            >>> _ = traced(torch.ones(2), 3)
            >>> print(traced.explain_miss(torch.ones(4), 3))
            x was f32[2], and is f32[4]
        """
        flat = flatten(args, kwargs, dynamic=self._dynamic)
        state = modes()
        key = (self._executors, state, *flat.tokens)
        with self._turn:
            environment = self._environment(flat)
            for entry in self._entries.get(key, ()):
                if entry.environment.is_alike(environment) and entry.fits(flat.tensors):
                    return "there is a program for this call"
            given = (args, kwargs)
            call = describe(self._function, given, state, self._executors, environment)
            return "\n".join(self._difference(call))

    def report(self) -> str:
        """What runs each program in the cache, and why no executor that was preferred does.

        Example:
            >>> traced = make_traced(lambda x: x.sum().item(), executor=("reference", "aten"))
            >>> _ = traced(torch.ones(2))
            >>> print(traced.report().splitlines()[0][:44])
            <lambda>(x: f32[2]): runs on aten; reference
        """
        with self._turn:
            entries = [entry for entries in self._entries.values() for entry in entries]
        return "\n".join([f"{entry.title}: {entry.choice}" for entry in entries])

    def _size(self) -> int:
        return sum(map(len, self._entries.values()))

    def cache_info(self) -> CacheInfo:
        """How often a program was found."""
        with self._turn:
            return CacheInfo(self._hits, self._misses, self._maxsize, self._size())

    def cache_clear(self) -> None:
        """Forget every program."""
        with self._turn:
            self._entries.clear()
            self._hits = self._misses = 0


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin does not say what it takes
        return False


def names_of(
    function: Callable[..., Any], given: Given, positions: Mapping[int, int]
) -> list[str]:
    """A name for each tensor of a call: that of its parameter, and where it is in it."""
    names = [f"x{position}" for position in range(len(positions))]
    for path, leaf in reversed(leaves_of(function, given)):
        if isinstance(leaf, torch.Tensor) and id(leaf) in positions:
            names[positions[id(leaf)]] = path
    return names


def make_traced(
    function: Callable[..., Any],
    *,
    executor: str | Sequence[str] | None = None,
    dialect: str = "prims",
    dynamic: bool = False,
    cache: int = 64,
) -> Traced:
    """A function that is traced when it is first called, and run as a program.

    What it returns takes and gives what the function does, with the same values, mutations,
    random numbers, aliases and gradients. A call is traced anew where anything differs that the
    program may depend on: structure, Python values, types and strides of tensors, which of them
    are the same, torch's modes, and everything that the function closes over. Values of tensors
    are no part of that; a branch on them is refused.

    Args:
        function: A function, a module, or anything else that can be called.
        executor: What runs the program: ``"aten"`` (the default; torch's kernels), ``"prims"``
            (torch's references), ``"reference"`` (the denotation), or a backend of
            :func:`torch_ir.compile`. Of several, the first that takes the whole program.
        dialect: The dialect of :meth:`Traced.ir`, and of what other packages' backends are
            given: ``"prims"``, ``"core_aten"``, ``"aten"`` or ``"export"``.
        dynamic: Keep sizes symbolic, so that one program serves many.
        cache: How many programs are kept.

    Raises:
        InputError: There is no such executor or dialect.

    Example:
        >>> traced = make_traced(lambda x, n: x * n)
        >>> traced(torch.ones(2), 3), traced(torch.ones(2), 3), traced(torch.ones(2), 4)
        (tensor([3., 3.]), tensor([3., 3.]), tensor([4., 4.]))
        >>> traced.cache_info()
        CacheInfo(hits=1, misses=2, maxsize=64, currsize=2)
    """
    require_dialect(dialect)
    return Traced(function, executor=executor, dialect=dialect, dynamic=dynamic, cache=cache)


def make_ir(function: Callable[..., Any], *, dialect: str = "prims") -> Callable[..., IR]:
    """A function that gives the program of a call instead of its result; nothing runs.

    Example:
        >>> make_ir(lambda x: x.relu(), dialect="aten")(torch.ones(2)).nodes[0].op_type
        'aten.relu.default'
    """
    return make_traced(function, dialect=dialect).ir
