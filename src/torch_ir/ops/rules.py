"""The operators that a program may call: one verdict for each, with the rule that decides it.

A program is a file, which may come from a stranger. What it may call is decided here, on the
schema that is registered, never on one that a file states. The rules, of which the first that
fits decides:

1. an argument or result is no tensor, number, text, dtype, layout, device, memory format or
   generator: refused;
2. an argument of text names a place, such as ``filename`` or ``url``: refused;
3. it is listed here: it reads files, hands out raw memory, makes nested tensors or changes the
   process: refused;
4. a call says ``unsafe=True``, which turns the operator's own checks off: that call is refused;
5. tensor operators of aten, prims, quantized_decomposed, executorch_prims, dim_order_ops, and
   the functional ones that torch writes in Python (torch_nn, flex_lib): allowed;
6. collectives, which reach other processes: refused, unless their groups are given;
7. everything else that is torch's own: refused;
8. libraries that this process registered: allowed;
9. higher-order operators that extraction makes: allowed;
10. the others that torch has: refused;
11. what no rule knows, as in a newer torch: refused.

``allow_operators`` widens this for a block; what the caller registered a kernel for is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType

from torch_ir.errors import ExecutionError, InvalidIRError, did_you_mean
from torch_ir.ops.collectives import COLLECTIVES, is_collective
from torch_ir.ops.schema import Schema, data_text, known_operators, lookup

FORBIDDEN = "forbidden-operator"
"""The code of the diagnostic about a call that the rules refuse."""


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """Whether a program may call an operator, and why.

    Attributes:
        op_type: The exact overload.
        allowed: Whether a program may call it.
        rule: Which rule decides, and why, in one line.
    """

    op_type: str
    allowed: bool
    rule: str


def operator_rule(op_type: str) -> OperatorRule:
    """Return whether programs may call an operator, and the rule that decides.

    It does not need torch for torch's own operators.

    Args:
        op_type: The exact overload.

    Raises:
        ExecutionError: No operator of that name is registered.

    Example:
        >>> operator_rule("aten.relu.default").allowed
        True
        >>> operator_rule("aten.from_file.default").rule
        "rule 2: its argument 'filename' names a place"
        >>> with allow_operators("aten.from_file.default"):
        ...     operator_rule("aten.from_file.default").allowed
        True
    """
    if not isinstance(op_type, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise ExecutionError(f"an operator is named by text, not by {type(op_type).__name__}")
    found = recorded_rule(op_type)
    if found is None:
        from torch_ir.infer.resolve import required_rule

        return required_rule(op_type)
    return found


@lru_cache(maxsize=4096)
def computes_tensors(op_type: str) -> bool:
    """Return whether rule 5 allows an operator, which then takes no other operator.

    Example:
        >>> computes_tensors("aten.relu.default"), computes_tensors("higher_order.cond")
        (True, False)
    """
    found = _recorded(op_type)
    return found is not None and found.allowed and op_type.partition(".")[0] in (*_RECORDED, *_OWN)


# -- what the caller allows -----------------------------------------------------------------------

_ALLOWED: ContextVar[frozenset[str]] = ContextVar("allowed operators", default=frozenset())
_REGISTERED: set[str] = set()


@contextmanager
def allow_operators(*patterns: str) -> Generator[None]:
    """Let programs call operators that the rules refuse, in a ``with`` block.

    It holds for this thread or task. A program that you do not trust may then use them for
    whatever they can do: read and write files, and memory.

    Args:
        patterns: Exact overloads, such as ``"image.read_file.default"``, or every operator of a
            namespace: ``"image.*"``.

    Raises:
        InvalidIRError: A pattern has another form, or torch has no such operator.

    Example:
        >>> with allow_operators("inductor.*"):
        ...     operator_rule("inductor._reinterpret_tensor.default").allowed
        True
    """
    for pattern in patterns:
        _require_pattern(pattern)
    token = _ALLOWED.set(_ALLOWED.get().union(patterns))
    try:
        yield
    finally:
        _ALLOWED.reset(token)


@contextmanager
def allow_collectives() -> Generator[None]:
    """Let programs call collectives where tensors have no data: these reach no process."""
    with allow_operators(*COLLECTIVES):
        yield


def allowances() -> frozenset[str]:
    """Return the patterns that the caller allows now: verdicts depend on them."""
    return _ALLOWED.get()


def note_registered(op_type: str) -> None:
    """Note that the caller registered what runs an operator, which allows programs to call it."""
    _REGISTERED.add(op_type)


def forget_registered(op_type: str) -> None:
    """Forget that the caller registered what runs an operator."""
    _REGISTERED.discard(op_type)


def _is_allowed(op_type: str) -> bool:
    allowed = _ALLOWED.get()
    return bool(allowed) and (op_type in allowed or f"{op_type.partition('.')[0]}.*" in allowed)


def _require_pattern(pattern: str) -> None:
    if not _PATTERN.fullmatch(pattern):
        raise InvalidIRError(
            f"{pattern!r:.120} names no operator",
            remedy="Name the exact overload, such as 'aten.from_file.default', or a namespace as "
            "'inductor.*'.",
        )
    namespace = pattern.partition(".")[0]
    if namespace in _RECORDED and pattern != f"{namespace}.*" and not _is_torchs(pattern):
        hint = did_you_mean(pattern, known_operators())
        raise InvalidIRError(f"torch has no operator {pattern!r}", remedy=hint or None)


def closest_overload(op_type: str) -> str:
    """Return the hint at the operators of torch that a name may mean, or an empty string.

    Example:
        >>> closest_overload("aten.square")
        'It is aten.square.default or aten.square.out.'
        >>> closest_overload("aten.squaer.default")
        'Did you mean aten.square.default or aten.square_.default?'
    """
    overloads = [name for name in known_operators() if name.startswith(f"{op_type}.")]
    if overloads:
        shown = overloads if len(overloads) <= SHOWN else [*overloads[: SHOWN - 1], "another"]
        return f"It is {' or '.join(shown)}."
    return did_you_mean(op_type, known_operators())


def require_overload(op_type: str) -> None:
    """Require a name that is one operator's: a namespace, a name and an overload.

    Whatever is registered for an operator is asked for by the exact overload alone.

    Raises:
        InvalidIRError: It is a packet, a pattern or no name.

    Example:
        >>> require_overload("mylib.double.default")
    """
    is_text = isinstance(op_type, str)  # pyright: ignore[reportUnnecessaryIsInstance]  # a decorator may be given the function itself
    if not is_text or not _OVERLOAD.fullmatch(op_type):
        packet = _PACKET.fullmatch(op_type) if is_text else None
        example = "mylib.double.default" if packet is None else f"{packet[1]}.{packet[2]}.default"
        raise InvalidIRError(
            f"{op_type!r:.120} names no operator",
            remedy=closest_overload(str(op_type))
            or f"Name the exact overload, such as {example!r}.",
        )


SHOWN = 4
"""Overloads of an operator that a message names."""

_OVERLOAD = re.compile(r"higher_order\.[^.]+|[^.]+(\.[^.]+){2}")  # backends have any name
_PACKET = re.compile(r"(\w+)(?:::|\.)(\w+)")
_PATTERN = re.compile(r"higher_order\.\w+|\w+\.(\*|\w+\.\w+)")


# -- the rules ------------------------------------------------------------------------------------


def recorded_rule(op_type: str) -> OperatorRule | None:
    """Return the verdict on an operator of torch itself, without torch; None for a library's."""
    found = _recorded(op_type)
    return found if found is None else as_the_caller_says(found)


@lru_cache(maxsize=4096)
def _recorded(op_type: str) -> OperatorRule | None:
    namespace = op_type.partition(".")[0]
    if namespace in WRITTEN_IN_PYTHON:
        return None  # their schemas are where they are registered
    if namespace in ("higher_order", *_OWN) or namespace in namespaces():
        return judged(op_type, lookup(op_type))
    return None


def as_the_caller_says(rule: OperatorRule) -> OperatorRule:
    """Return a verdict with what the caller allows, and registered, taken into account."""
    if rule.allowed:
        return rule
    if _is_allowed(rule.op_type):
        return OperatorRule(rule.op_type, True, f"the caller allows it, in spite of {rule.rule}")
    if rule.op_type in _REGISTERED and not _is_torchs(rule.op_type):
        return OperatorRule(rule.op_type, True, "the caller registered what runs it")
    return rule


def judged(op_type: str, schema: Schema | None) -> OperatorRule:
    """Return the verdict of the rules on an operator, whatever the caller allows.

    Args:
        op_type: The exact overload.
        schema: As it is registered; None for what has none, or one that cannot be read.
    """
    namespace = op_type.partition(".")[0]
    if is_collective(op_type):
        return OperatorRule(
            op_type, False, f"rule 6: it reaches other processes{_groups(op_type)}"
        )
    refusal = None if schema is None else _refusal(schema)
    if refusal is not None:
        return OperatorRule(op_type, False, refusal)
    listed = _verdicts().get(op_type)
    if listed is not None:
        return OperatorRule(op_type, listed == "extracted", _REASONS[listed])
    if namespace == "higher_order":
        return OperatorRule(op_type, False, "rule 11: no rule knows it")
    if namespace in _RECORDED and lookup(op_type) is None:
        if op_type in _others():
            return OperatorRule(op_type, False, "rule 7: it is TorchScript's or a compiler's own")
        return OperatorRule(op_type, False, "rule 11: no rule knows it")
    if namespace in (*_RECORDED, *_OWN):
        return OperatorRule(op_type, True, "rule 5: it computes tensors from its arguments")
    written = schema is None or any(argument.is_written for argument in schema.arguments)
    if namespace in WRITTEN_IN_PYTHON and not written:
        return OperatorRule(op_type, True, "rule 5: it computes tensors with torch's own")
    if namespace in namespaces():
        return OperatorRule(op_type, False, f"rule 7: torch keeps {namespace!r} for itself")
    if schema is None:
        return OperatorRule(op_type, False, "rule 11: its schema cannot be read")
    return OperatorRule(op_type, True, "rule 8: a library that this process registered has it")


def _groups(op_type: str) -> str:
    return ", and no groups= are given" if op_type in COLLECTIVES else ""


def turns_checks_off(op_type: str, value: object) -> OperatorRule | None:
    """Return the verdict on a call with a value of ``unsafe``; None if its checks stay on."""
    if value is False or op_type.partition(".")[0] not in _RECORDED or _is_allowed(op_type):
        return None
    return OperatorRule(op_type, False, "rule 4: unsafe= turns its own checks off")


def _refusal(schema: Schema) -> str | None:
    """Why rules 1 and 2 refuse an operator of a schema, if they do."""
    for argument in (*schema.arguments, *schema.returns):
        if _BRACKETS.sub("", argument.type) not in _PLAIN:
            what = f"its argument {argument.name!r}" if argument.name else "its result"
            return f"rule 1: {what} is of type {argument.type}"
    for argument in schema.arguments:
        if _BRACKETS.sub("", argument.type) == "str" and names_place(argument.name):
            return f"rule 2: its argument {argument.name!r} names a place"
    return None


def names_place(name: str) -> bool:
    """Return whether an argument of this name says where something is.

    Example:
        >>> names_place("filename"), names_place("outPath"), names_place("rounding_mode")
        (True, True, False)
    """
    return not _PLACES.isdisjoint(word.lower() for word in _WORD.findall(name))


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_BRACKETS = re.compile(r"\[\d*\]|\?")
_PLAIN = frozenset(
    """
    Tensor int SymInt float SymFloat bool SymBool complex Scalar number str ScalarType Layout
    Device MemoryFormat Generator
    """.split()  # noqa: SIM905  # one word a line would be a page
)
_PLACES = frozenset(
    """
    addr address archive bin binary checkpoint cmd command cwd dest destination dir directory
    dirname dirs dll endpoint exe executable file filename filenames filepath filepaths files
    fname folder fs host hostname infile lib library link location logfile module outfile path
    pathname paths pipe plugin program root script server shell so socket target uri uris url
    urls
    """.split()  # noqa: SIM905  # one word a line would be a page
)

_RECORDED = ("aten", "prims")
"""Namespaces of which every operator of torch is known."""

WRITTEN_IN_PYTHON = ("torch_nn", "flex_lib")
"""Namespaces of torch whose kernels are functions of Python, which call operators that check."""

_OWN = ("executorch_prims", "dim_order_ops", "quantized_decomposed")
"""Namespaces of which this package registers operators itself."""

_REASONS = MappingProxyType(
    {
        "files": "rule 3: it reads or writes a file",
        "memory": "rule 3: it hands out memory that nothing checks",
        "nested": "rule 3: it makes nested tensors, of which a program cannot tell the type",
        "trusting": "rule 3: its kernel reads and writes wherever its arguments say",
        "process": "rule 3: it changes the process, or writes to its terminal",
        "extracted": "rule 9: it calls functions of the program",
        "foreign": "rule 10: it runs code that is not in the program",
        "hidden": "rule 10: it calls operators where nobody sees it",
        "random": "rule 10: it sets the state of random numbers",
        "terminal": "rule 10: it writes to the terminal",
        "training": "rule 10: it calls functions of Python, as training does",
    }
)
"""What each word of ``data/verdicts.txt`` says; but for what extraction makes, it is refused."""


# -- torch's own ----------------------------------------------------------------------------------


def _is_torchs(op_type: str) -> bool:
    namespace = op_type.partition(".")[0]
    if namespace in _RECORDED:  # libraries may add to them
        return lookup(op_type) is not None or op_type in _others()
    return namespace == "higher_order" or namespace in namespaces()


def namespaces() -> frozenset[str]:
    """Return the namespaces that torch itself registers."""
    return _data()[0]


def _others() -> frozenset[str]:
    """The overloads of aten and prims that are no operators on tensors of the dispatcher."""
    return _data()[1]


@cache
def _verdicts() -> Mapping[str, str]:
    return {name: word for word, name in _pairs("verdicts")}


@cache
def _data() -> tuple[frozenset[str], frozenset[str]]:
    found: dict[str, list[str]] = {"namespace": [], "overload": []}
    for kind, name in _pairs("namespaces"):
        found[kind].append(name)
    return frozenset(found["namespace"]), frozenset(found["overload"])


def _pairs(name: str) -> Iterator[list[str]]:
    return map(str.split, data_text(f"{name}.txt").splitlines()[1:])
