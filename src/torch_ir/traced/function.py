"""Functions that are traced at their first call and run from a cache after that."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from torch_ir.backends.protocol import DelegateBackend
from torch_ir.errors import InputError, TraceError
from torch_ir.ir import IR
from torch_ir.traced.arguments import Flat, flatten, is_foreign
from torch_ir.traced.capture import trace
from torch_ir.traced.dialects import in_dialect, require_dialect
from torch_ir.traced.entry import Entry, is_apart
from torch_ir.traced.guards.closure import Environment
from torch_ir.traced.guards.explain import Description, Given, describe, differences, leaves_of
from torch_ir.traced.modes import is_observed, modes
from torch_ir.traced.program import Program, program_of
from torch_ir.traced.report import ExecutorReport
from torch_ir.traced.run.executors import Executor, executors_of
from torch_ir.traced.run.runners import Preference

Chosen: TypeAlias = str | DelegateBackend | Sequence[str | DelegateBackend] | None
"""What names executors: one, or several in order of preference; None is torch's kernels."""

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
        executor: Chosen,
        strict: bool,
        dialect: str,
        dynamic: bool,
        cache: int,
    ):
        if not callable(function):
            raise InputError(f"what is traced is a function, got {type(function).__name__}")
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self._function = function
        self._asked = executor
        self._executors = executors_of(executor)
        self._strict = strict
        self._chosen: dict[Any, tuple[Executor, ...]] = {}
        self._dialect = dialect
        self._dynamic = dynamic
        self._maxsize = cache
        self._title = getattr(function, "__name__", type(function).__name__)
        self._takes = _parameters(function)
        self._entries: OrderedDict[Any, list[Entry]] = OrderedDict()
        self._turn = threading.RLock()
        self._hits = 0
        self._misses = 0

    def __repr__(self) -> str:
        return f"Traced({self._title}, executor={', '.join(map(_name, self._executors))})"

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
        if "executor" in kwargs or "executor_parameters" in kwargs:
            executors = self._executors_for(kwargs)
        if torch.compiler.is_compiling() or is_observed():
            return self._function(*args, **kwargs)
        flat = flatten(args, kwargs, dynamic=self._dynamic)
        key = (executors, modes(), *flat.tokens)
        entry = self._hit(key, flat)
        if entry is None:
            if any(map(is_foreign, flat.tensors)):
                self._require_torch(executors, flat)
                return self._function(*args, **kwargs)
            entry = self._missed(key, flat, (args, kwargs))
        return entry.run(flat)

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _executors_for(self, kwargs: dict[str, Any]) -> tuple[Executor, ...]:
        """What a call asks for, whose arguments then are the function's own alone."""
        given = [n for n in ("executor", "executor_parameters") if n not in self._takes]
        asked = {name: kwargs.pop(name) for name in given if name in kwargs}
        chosen, parameters = asked.get("executor"), asked.get("executor_parameters")
        if chosen is None and not parameters:
            return self._executors
        if type(chosen) is str and not parameters:  # looked up once: installed packages are slow
            if chosen not in self._chosen:
                self._chosen[chosen] = executors_of(chosen)
            return self._chosen[chosen]
        return executors_of(self._asked if chosen is None else chosen, parameters)

    def _require_torch(self, executors: Sequence[Executor], flat: Flat) -> None:
        """Refuse to call the function itself where something else was asked to run it."""
        if not any(executor.is_torch for executor in executors):
            kinds = [type(t).__name__ for t in flat.tensors if is_foreign(t)]
            raise TraceError(
                f"{self._title} is given a tensor that no program describes ({kinds[0]}: sparse, "
                "quantized, without data, or of a class of its own), and the executor "
                f"{executors[0].name!r} runs programs alone",
                remedy="Add 'aten' to the executors: the function itself is called then.",
            )

    # -- tracing ----------------------------------------------------------------------------------

    def _hit(self, key: Any, flat: Flat) -> Entry | None:
        """Return the entry whose guards all hold for a call."""
        for entry in self._entries.get(key, ()):
            if entry.environment.is_unchanged() and entry.fits(flat):
                self._hits += 1
                with contextlib.suppress(KeyError):  # another thread may have forgotten it
                    self._entries.move_to_end(key)
                return entry
        return None

    def _missed(self, key: Any, flat: Flat, given: Given) -> Entry:
        """Return the entry that matches a call by value, or trace the function anew."""
        with self._turn:
            environment = self._environment(flat)
            entry = self._moved(key, flat, environment)
            if entry is not None:
                return entry
            self._misses += 1
            call = self._described(key, given, environment)
            self._warn(call)
            entry = self._traced(key[0], flat, environment, given, call)
            self._keep(key, entry)
            return entry

    def _traced(
        self,
        executors: tuple[Executor, ...],
        flat: Flat,
        environment: Environment,
        given: Given,
        call: Description,
    ) -> Entry:
        """The program of a call, ready to run."""
        if not is_apart(flat, environment):
            raise TraceError(
                f"{self._title} is given a generator of random numbers that it closes over too",
                remedy="Give it as an argument alone.",
            )
        make = Preference(executors, self._dialect, self._strict)
        for dynamic in (True, False) if self._dynamic else (False,):
            program = self._program(flat, environment, given, dynamic=dynamic)
            entry = Entry(program, environment, flat, make, call, dynamic=self._dynamic)
            if entry.fits(flat):
                return entry
        raise TraceError(f"the program of {self._title} does not fit the call it was traced for")

    def _moved(self, key: Any, flat: Flat, environment: Environment) -> Entry | None:
        """Return a cache entry whose guards match by value though the guarded objects changed."""
        entries = self._entries.get(key, [])
        for position, entry in enumerate(entries):
            if entry.environment.is_alike(environment):
                moved = entry.moved(environment, flat)
                if moved.fits(flat):
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

    def _described(self, key: Any, given: Given, environment: Environment) -> Description:
        names = [executor.name for executor in key[0]]
        return describe(self._function, given, key[1], names, environment)

    def _program(
        self, flat: Flat, environment: Environment, given: Given, *, dynamic: bool
    ) -> Program:
        traced = trace(self._function, *given, flat, environment, dynamic=dynamic)
        names = names_of(self._function, given, flat.positions)
        return program_of(traced, names, environment.paths, given, flat.positions, self._title)

    # -- asking -----------------------------------------------------------------------------------

    def ir(self, *args: Any, **kwargs: Any) -> IR:
        """Return the program of a call; nothing runs.

        Closed-over tensors and parameters are its weights.

        Raises:
            TraceError: The function cannot be traced.
            PassError: The program cannot be said in the dialect.
        """
        flat = flatten(args, kwargs, dynamic=self._dynamic)
        given = (args, kwargs)
        program = self._program(flat, self._environment(flat), given, dynamic=self._dynamic)
        return in_dialect(program.ir, self._dialect)

    def explain_miss(self, *args: Any, **kwargs: Any) -> str:
        """Explain why a call would be traced anew, by the closest call that was traced.

        Nothing is traced, and nothing runs.

        Example:
            >>> traced = make_traced(lambda x, n: x * n)
            >>> _ = traced(torch.ones(2), 3)
            >>> print(traced.explain_miss(torch.ones(4), 3))
            x was f32[2], and is f32[4]
        """
        executors = self._executors_for(kwargs)
        flat = flatten(args, kwargs, dynamic=self._dynamic)
        key = (executors, modes(), *flat.tokens)
        with self._turn:
            environment = self._environment(flat)
            for entry in self._entries.get(key, ()):
                if entry.environment.is_alike(environment) and entry.fits(flat):
                    return "there is a program for this call"
            given = (args, kwargs)
            call = self._described(key, given, environment)
            return "\n".join(self._difference(call))

    def report(self, *args: Any, **kwargs: Any) -> ExecutorReport:
        """Report which executor runs which node of a call, and why the preferred ones do not.

        A program of the cache is looked at if there is one for the call; if not, one is traced
        and not kept. Nothing runs.

        Raises:
            TraceError: The function cannot be traced.
            CompileError: Nodes are left that no executor takes; all are listed.

        Example:
            >>> traced = make_traced(lambda x: x.exp(), executor=("reference", "aten"))
            >>> print(traced.report(torch.ones(2)))
            <lambda>(x: f32[2]): reference 1 of 1 node
              reference  %exp: aten.exp.default
        """
        executors = self._executors_for(kwargs)
        flat = flatten(args, kwargs, dynamic=self._dynamic)
        key = (executors, modes(), *flat.tokens)
        given = (args, kwargs)
        with self._turn:
            environment = self._environment(flat)
            for entry in self._entries.get(key, ()):
                if entry.environment.is_alike(environment) and entry.fits(flat):
                    return entry.report
            call = self._described(key, given, environment)
            return self._traced(executors, flat, environment, given, call).report

    def _size(self) -> int:
        return sum(map(len, self._entries.values()))

    def cache_info(self) -> CacheInfo:
        """Return how often a program was found."""
        with self._turn:
            return CacheInfo(self._hits, self._misses, self._maxsize, self._size())

    def cache_clear(self) -> None:
        """Forget every program."""
        with self._turn:
            self._entries.clear()
            self._hits = self._misses = 0


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The names of a function's own parameters."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin does not say what it takes
        return frozenset()


def _name(executor: Executor) -> str:
    return executor.name


def names_of(
    function: Callable[..., Any], given: Given, positions: Mapping[int, int]
) -> list[str]:
    """Name each tensor of a call by its parameter, and by its place in it."""
    names = [f"x{position}" for position in range(len(positions))]
    for path, leaf in reversed(leaves_of(function, given)):
        if isinstance(leaf, torch.Tensor) and id(leaf) in positions:
            names[positions[id(leaf)]] = path
    return names


def make_traced(
    function: Callable[..., Any],
    *,
    executor: Chosen = None,
    strict: bool = False,
    dialect: str = "prims",
    dynamic: bool = False,
    cache: int = 64,
) -> Traced:
    """Make a function that is traced at its first call, and run as a program.

    What it returns takes and gives what the function does, with the same values, mutations,
    random numbers, aliases and gradients. A call is traced anew where anything differs that the
    program may depend on: structure, Python values, types and strides of tensors, which of them
    are the same, torch's modes, and everything that the function closes over. Values of tensors
    are no part of that; a branch on them is refused.

    Args:
        function: A function, a module, or anything else that can be called.
        executor: What runs the program: ``"aten"`` (the default; torch's kernels), ``"prims"``
            (torch's references), ``"reference"`` (the denotation), ``"inductor"``, any other
            backend of :func:`torch_ir.compile`, or a :class:`~torch_ir.DelegateBackend` itself.
            Of several, the first that takes the whole program; if none does, those that take
            parts share it. What is not named runs nothing. :meth:`Traced.report` says what runs
            where.
        strict: That the first executor takes the whole program, or it is an error.
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
    return Traced(
        function, executor=executor, strict=strict, dialect=dialect, dynamic=dynamic, cache=cache
    )


def make_ir(function: Callable[..., Any], *, dialect: str = "prims") -> Callable[..., IR]:
    """Make a function that returns the program of a call instead of its result; nothing runs.

    Example:
        >>> make_ir(lambda x: x.relu(), dialect="aten")(torch.ones(2)).nodes[0].op_type
        'aten.relu.default'
    """
    return make_traced(function, dialect=dialect).ir
