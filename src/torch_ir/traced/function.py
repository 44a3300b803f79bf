"""Functions that are traced at their first call and run from a cache after that."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from torch_ir.arguments import public
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.errors import InputError, TraceError
from torch_ir.ir import IR
from torch_ir.traced.cache import CacheInfo, ProgramCache
from torch_ir.traced.call_key import Flat, flatten, is_foreign
from torch_ir.traced.capture import trace
from torch_ir.traced.dialects import in_dialect, require_dialect
from torch_ir.traced.entry import CacheEntry, is_apart
from torch_ir.traced.guards.closure import Closure
from torch_ir.traced.guards.explain import Description, Given, explain_call, leaves_of
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


class _Executors:
    """The executors of a function, and those that one call asks for instead."""

    def __init__(self, asked: Chosen, parameters: frozenset[str]):
        self.executors = executors_of(asked)
        self._asked = asked
        self._given = [n for n in ("executor", "executor_parameters") if n not in parameters]
        self._known: dict[str, tuple[Executor, ...]] = {}

    def of(self, kwargs: dict[str, Any]) -> tuple[Executor, ...]:
        """Return what a call asks for, whose arguments then are the function's own alone."""
        asked = {name: kwargs.pop(name) for name in self._given if name in kwargs}
        chosen, parameters = asked.get("executor"), asked.get("executor_parameters")
        if chosen is None and not parameters:
            return self.executors
        if type(chosen) is str and not parameters:  # looked up once: installed packages are slow
            if chosen not in self._known:
                self._known[chosen] = executors_of(chosen)
            return self._known[chosen]
        return executors_of(self._asked if chosen is None else chosen, parameters)


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
        self._choice = _Executors(executor, _parameters(function))
        self._executors = self._choice.executors
        self._strict = strict
        self._dialect = dialect
        self._dynamic = dynamic
        self._ordered = _takes_any_keywords(function)
        self._title = getattr(function, "__name__", type(function).__name__)
        self._cache = ProgramCache(cache)
        self._find = self._cache.find

    def __repr__(self) -> str:
        return f"Traced({self._title}, executor={', '.join([e.name for e in self._executors])})"

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
            executors = self._choice.of(kwargs)
        if torch.compiler.is_compiling() or is_observed():
            return self._function(*args, **kwargs)
        flat = self._flat(args, kwargs)
        key = (executors, modes(), *flat.tokens)
        entry = self._find(key, flat)
        if entry is None:
            if any(map(is_foreign, flat.tensors)):
                _require_torch(self._title, executors, flat)
                return self._function(*args, **kwargs)
            entry = self._missed(key, flat, (args, kwargs))
        return entry.run(flat)

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flat:
        return flatten(args, kwargs, dynamic=self._dynamic, ordered=self._ordered)

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # -- tracing ----------------------------------------------------------------------------------

    def _missed(self, key: Any, flat: Flat, given: Given) -> CacheEntry:
        """Return the entry that matches a call by value, or trace the function anew."""
        with self._cache.turn:
            closure = self._closure_of(flat)
            entry = self._cache.move(key, flat, closure)
            if entry is not None:
                return entry
            self._cache.misses += 1
            call = self._described(key, given, closure)
            self._warn(call)
            entry = self._traced(key[0], flat, closure, given, call)
            self._cache.keep(key, entry)
            return entry

    def _traced(
        self,
        executors: tuple[Executor, ...],
        flat: Flat,
        closure: Closure,
        given: Given,
        call: Description,
    ) -> CacheEntry:
        """The program of a call, ready to run."""
        if not is_apart(flat, closure):
            raise TraceError(
                f"{self._title} is given a generator of random numbers that it closes over too",
                remedy="Give it as an argument alone.",
            )
        make = Preference(executors, self._dialect, self._strict)
        for dynamic in (True, False) if self._dynamic else (False,):
            program = self._program(flat, closure, given, dynamic=dynamic)
            entry = CacheEntry(program, closure, flat, make, call, dynamic=self._dynamic)
            if entry.fits(flat):
                return entry
        raise TraceError(f"the program of {self._title} does not fit the call it was traced for")

    def _warn(self, call: Description) -> None:
        """Say once that a function is traced again and again, and why."""
        if self._cache.misses == _MANY:
            reason = self._cache.difference(call)[0]
            warnings.warn(
                f"{self._title} has been traced {_MANY} times; the last time because {reason}. "
                "Values that differ at each call are cheaper as tensors.",
                TraceWarning,
                stacklevel=4,
            )

    def _closure_of(self, flat: Flat) -> Closure:
        objects = [(f"argument {i}", o) for i, o in enumerate(flat.objects)]
        return Closure([(self._title, self._function), *objects])

    def _described(self, key: Any, given: Given, closure: Closure) -> Description:
        names = [executor.name for executor in key[0]]
        return explain_call(self._function, given, key[1], names, closure)

    def _program(self, flat: Flat, closure: Closure, given: Given, *, dynamic: bool) -> Program:
        traced = trace(self._function, *given, flat, closure, dynamic=dynamic)
        names = names_of(self._function, given, flat.positions)
        return program_of(traced, names, closure.paths, given, flat.positions, self._title)

    # -- asking -----------------------------------------------------------------------------------

    def ir(self, *args: Any, **kwargs: Any) -> IR:
        """Return the program of a call; nothing runs.

        Closed-over tensors and parameters are its weights.

        Raises:
            TraceError: The function cannot be traced.
            PassError: The program cannot be said in the dialect.
        """
        flat = self._flat(args, kwargs)
        given = (args, kwargs)
        program = self._program(flat, self._closure_of(flat), given, dynamic=self._dynamic)
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
        executors = self._choice.of(kwargs)
        flat = self._flat(args, kwargs)
        key = (executors, modes(), *flat.tokens)
        with self._cache.turn:
            closure = self._closure_of(flat)
            if self._cache.peek(key, flat, closure) is not None:
                return "there is a program for this call"
            given = (args, kwargs)
            call = self._described(key, given, closure)
            return "\n".join(self._cache.difference(call))

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
        executors = self._choice.of(kwargs)
        flat = self._flat(args, kwargs)
        key = (executors, modes(), *flat.tokens)
        given = (args, kwargs)
        with self._cache.turn:
            closure = self._closure_of(flat)
            if (entry := self._cache.peek(key, flat, closure)) is not None:
                return entry.report
            call = self._described(key, given, closure)
            return self._traced(executors, flat, closure, given, call).report

    def cache_info(self) -> CacheInfo:
        """Return how often a program was found."""
        return self._cache.info()

    def cache_clear(self) -> None:
        """Forget every program."""
        self._cache.clear()


def _require_torch(title: str, executors: Sequence[Executor], flat: Flat) -> None:
    """Refuse to call the function itself where something else was asked to run it."""
    if not any(executor.is_torch for executor in executors):
        kinds = [type(t).__name__ for t in flat.tensors if is_foreign(t)]
        raise TraceError(
            f"{title} is given a tensor that no program describes ({kinds[0]}: sparse, "
            "quantized, without data, or of a class of its own), and the executor "
            f"{executors[0].name!r} runs programs alone",
            remedy="Add 'aten' to the executors: the function itself is called then.",
        )


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The names of a function's own parameters."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin does not say what it takes
        return frozenset()


def _takes_any_keywords(function: Callable[..., Any]) -> bool:
    """Whether a function sees the order of its keyword arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin does not say what it takes
        return True
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def names_of(
    function: Callable[..., Any], given: Given, positions: Mapping[int, int]
) -> list[str]:
    """Name each tensor of a call by its parameter, and by its place in it."""
    names = [f"x{position}" for position in range(len(positions))]
    for path, leaf in reversed(leaves_of(function, given)):
        if isinstance(leaf, torch.Tensor) and id(leaf) in positions:
            names[positions[id(leaf)]] = path
    return names


@public
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


@public
def make_ir(function: Callable[..., Any], *, dialect: str = "prims") -> Callable[..., IR]:
    """Make a function that returns the program of a call instead of its result; nothing runs.

    Example:
        >>> make_ir(lambda x: x.relu(), dialect="aten")(torch.ones(2)).nodes[0].op_type
        'aten.relu.default'
    """
    return make_traced(function, dialect=dialect).ir
