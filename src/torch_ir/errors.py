"""Every error that torch_ir raises, and how its message is built.

A message is a sentence that says what is wrong and where, a picture of the place when there is
one, and the remedy. All errors share the base :class:`TorchIRError`, carry a stable kebab-case
``code``, and keep the Python kind that a caller would expect (a missing file is also a
``FileNotFoundError`` where the standard library would have raised one).
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TorchIRError(Exception):
    """Base of all errors of this package.

    Args:
        message: One sentence: what is wrong, and where.
        picture: The guilty line of IR text, JSON path or source, with a caret where it helps.
        remedy: What the reader can do about it.
        node: The node that the error is about; its name, behind the path of its function.
        diagnostics: A record of each thing that is wrong; see
            :class:`torch_ir.ir.diagnostics.Diagnostic`.

    Example:
        >>> print(TorchIRError("%q is never defined", picture="add(%q)", remedy="Define %q."))
        %q is never defined
            add(%q)
        Define %q.
    """

    code: ClassVar[str] = "torch-ir-error"

    def __init__(
        self,
        message: str,
        *,
        picture: str | None = None,
        remedy: str | None = None,
        node: str = "",
        diagnostics: tuple[Any, ...] = (),
    ):
        self.message = message
        self.picture = picture
        self.remedy = remedy
        self.node = node
        self.diagnostics = diagnostics
        super().__init__(message)

    def __str__(self) -> str:
        parts = [_indented(self.message)]
        if self.picture:
            parts.append("    " + _indented(self.picture))
        if self.remedy:
            parts.append(_indented(self.remedy))
        return printable_lines("\n".join(parts))


class InvalidIRError(TorchIRError, ValueError):
    """A value, node or graph that cannot be part of an IR was constructed or checked.

    Raised by the constructors of the data model (an attribute that no format can hold, a negative
    dimension) and by ``ir.check(strict=True)``.
    """

    code = "invalid-ir"


class ArgumentError(TorchIRError, TypeError):
    """An argument of a public function is of another kind than the function takes.

    The message names the function, the argument with its annotation, and what was given; the cause
    is the error that the call ended in. Calls whose arguments are of the right kinds are refused
    with an error of their subject.
    """

    code = "bad-argument"


class ParseError(TorchIRError, ValueError):
    """Text is not IR text; the message shows the line with a caret under the offending token."""

    code = "parse-error"


class SerializationError(TorchIRError, ValueError):
    """A file or document is not an IR, or an IR could not be written.

    The message names the file and, for JSON, the path of the offending value
    (``$.nodes[3].inputs[0].shape[1]``). Nothing is half-loaded and nothing is half-written.
    """

    code = "serialization-error"


class CacheError(SerializationError):
    """The folder of compiled blobs cannot be written, so that nothing would be kept.

    What is in it already is read all the same: a folder that is only read serves programs that
    were compiled before.
    """

    code = "cache-error"


class ExportError(TorchIRError):
    """``torch.export`` refused the model; the message has its reason, the cause is its error."""

    code = "export-error"


class TraceError(TorchIRError, RuntimeError):
    """A function does what cannot be traced; the message says what, and at which line.

    A branch that depends on the values of a tensor is such a thing, or a result that is no tensor.
    """

    code = "trace-error"


class ConversionError(TorchIRError):
    """An exported program holds something that the IR cannot express yet.

    Every such thing is listed.
    """

    code = "conversion-error"


class WeightLoadError(TorchIRError, ValueError):
    """A weight file cannot be read, or its tensors are not those that the IR names."""

    code = "weight-load-error"


class ExecutionError(TorchIRError):
    """An IR cannot be run: bad input, an unknown operator, a missing weight, a failing kernel."""

    code = "execution-error"


class CompileError(ExecutionError):
    """A graph cannot be compiled: a node is malformed, lies about its types, or is unsupported.

    The message is about the first such node. ``findings`` holds a record for it, and for all
    others where the compiler was asked to collect them.
    """

    code = "compile-error"

    @property
    def findings(self) -> tuple[Any, ...]:
        """What was found: ``diagnostics``."""
        return self.diagnostics


class InputError(ExecutionError, ValueError):
    """The inputs of a call do not match what the graph was extracted for."""

    code = "input-error"


class MissingWeightsError(ExecutionError, ValueError):
    """An executor was run before its weights were given."""

    code = "missing-weights"


class DialectError(TorchIRError, ValueError):
    """A program breaks rules of a dialect that it has to keep; all of them are listed.

    ``violations`` holds them as records: node, rule, what is expected, what is found, and what to
    do about it.
    """

    code = "dialect-error"

    @property
    def violations(self) -> tuple[Any, ...]:
        """What breaks a rule: ``diagnostics``."""
        return self.diagnostics


class PassError(TorchIRError, ValueError):
    """A pass refuses a program, or what it made is not well-formed; the program stays as it was.

    The message names the pass, and every node that it is about, with its source line.
    """

    code = "pass-error"


class BackendError(TorchIRError, RuntimeError):
    """A backend failed at what it said that it does; its own error is the cause.

    Nothing takes its place: a run on something else is asked for by name.
    """

    code = "backend-error"


class OptionalDependencyError(TorchIRError, ImportError):
    """A feature needs a package that is not installed; the message names the extra to install."""

    code = "optional-dependency"


UNPRINTABLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})
"""Categories of characters that a terminal may obey, or that change how others are read."""


def printable(text: str) -> str:
    r"""Return a text of a file as it can be shown anywhere, in one line.

    Control and format characters (which change the direction of a text, or are not seen), line
    separators, surrogates, private and unassigned characters become ``\xNN``, ``\uNNNN`` or
    ``\UNNNNNNNN``. All others stay.

    Example:
        >>> print(printable("a\x1b[2Jb\u202e"), printable("é 漢"))
        a\x1b[2Jb\u202e é 漢
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else _escaped(c) for c in text])


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in UNPRINTABLE:
        return character  # a space of another kind
    return by_code(character)


def by_code(character: str) -> str:
    r"""Return a character as an escape of Python: ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN``."""
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable_lines(text: str) -> str:
    r"""Return a text whose lines are layout, with each of them :func:`printable`.

    Example:
        >>> print(printable_lines("a\n\tb"))
        a
        \x09b
    """
    if text.isprintable():
        return text
    return "\n".join([printable(line) for line in text.split("\n")])


def _indented(text: str) -> str:
    """A text in which no line but the first begins as one of the program's own."""
    return text.rstrip("\n").replace("\n", "\n    ")


CLOSE = 0.6
"""The least ratio of what two close names have in common."""
MAX_COMPARED = 200
"""Characters of the longest name to which others are compared."""
MAX_COMPARISONS = 2**18
"""Characters that are compared for one name, and quarters of the pairs of them."""


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a sentence that names the candidates closest to ``name``, or the empty string.

    Example:
        >>> did_you_mean("aten.relu.defualt", ["aten.relu.default", "aten.add.Tensor"])
        'Did you mean aten.relu.default?'
        >>> did_you_mean("zzz", ["aten.relu.default"])
        ''

    Names of more than 200 characters are not compared, and of a great many not all: they may come
    from a hostile file.
    """
    import difflib  # every import of the package would load it

    name = str(name)  # of a caller without types it may be anything
    matcher = difflib.SequenceMatcher(b=name[:MAX_COMPARED])
    left = MAX_COMPARISONS
    bounds: list[tuple[float, str]] = []
    for candidate in candidates if len(name) <= MAX_COMPARED else ():
        if 2 * min(len(name), len(candidate)) < CLOSE * (len(name) + len(candidate)):
            continue  # too long or too short
        left -= len(candidate)
        if left < 0:
            break
        matcher.set_seq1(candidate)
        if (bound := matcher.quick_ratio()) >= CLOSE:
            bounds.append((bound, candidate))
    close: list[tuple[float, str]] = []
    for bound, candidate in sorted(bounds, reverse=True):
        left -= len(candidate) * len(name) // 4
        if left < 0 or (len(close) == 2 and bound < close[1][0]):
            break  # no later one is closer
        matcher.set_seq1(candidate)
        if (ratio := matcher.ratio()) >= CLOSE:
            close = sorted([*close, (ratio, candidate)], reverse=True)[:2]
    return f"Did you mean {' or '.join(name for _, name in close)}?" if close else ""


def closest_file(path: str | PathLike[str]) -> str:
    """Return a sentence that names the files beside a path whose names are closest, or "".

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "net.tir").write_bytes(b"")
        ...     closest_file(f"{folder}/nte.tir")
        'Did you mean net.tir?'
    """
    place = Path(os.fsdecode(path))
    try:
        names = [item.name for item in place.parent.iterdir()]
    except (OSError, ValueError):  # there is no such folder, or nobody may look
        return ""
    return did_you_mean(place.name, names)


def first_line(error: BaseException) -> str:
    """Return the first line with text of an error's message, or the name of its class.

    Example:
        >>> first_line(ValueError(" no such size ")), first_line(AssertionError())
        ('no such size', 'AssertionError')
    """
    try:
        lines = str(error).splitlines()
    except Exception:  # noqa: BLE001  # an error of the user's may not have a text at all
        lines = []
    return next((line.strip() for line in lines if line.strip()), type(error).__name__)


def error_text(error: BaseException) -> str:
    """Return an error in one line, after the name of its class if it is none of ours.

    Example:
        >>> error_text(ValueError("no such size")), error_text(TorchIRError("no such value"))
        ('ValueError: no such size', 'no such value')
    """
    kind = "" if isinstance(error, TorchIRError) else f"{type(error).__name__}: "
    return f"{kind}{first_line(error)}"


@contextmanager
def raised_as(
    error: Callable[[Exception], TorchIRError], *, passing: tuple[type[Exception], ...] = ()
) -> Generator[None, None, None]:
    """Raise what foreign code raises in the block as an error of this package, as its cause.

    Code of users, readers of damaged files and torch's tracers and compilers raise anything.

    Args:
        error: Makes the error from what was raised.
        passing: Kinds that pass as they are.

    Raises:
        TorchIRError: The code failed.

    Example:
        >>> with raised_as(lambda error: ExecutionError(f"it fails: {first_line(error)}")):
        ...     [][0]
        Traceback (most recent call last):
            ...
        torch_ir.errors.ExecutionError: it fails: list index out of range
    """
    try:
        yield
    except passing:
        raise
    except (Exception, SystemExit) as raised:  # foreign code raises anything; it is the cause
        raise error(as_error(raised)) from raised


def as_error(raised: Exception | SystemExit) -> Exception:
    """Return what foreign code raised; where it would end the process, an error that says so.

    Example:
        >>> as_error(SystemExit(3))
        RuntimeError('it ends the process, with 3')
    """
    if isinstance(raised, Exception):
        return raised
    return RuntimeError(f"it ends the process, with {raised.code!r}")


@contextmanager
def code_of(extension: Any, what: str, kind: type[TorchIRError]) -> Generator[None, None, None]:
    """Raise what the code of another package raises in the block as an error that names it.

    A fault of this package stays one, and errors of this package pass.

    Args:
        extension: The function, class or instance that is called.
        what: What it is, in words.
        kind: The class of the error.

    Raises:
        TorchIRError: The code failed.

    Example:
        >>> with code_of(print, "the pass mine", PassError):
        ...     [][0]
        Traceback (most recent call last):
            ...
        torch_ir.errors.PassError: the pass mine failed: IndexError: list index out of range
        The fault is in its code; --traceback shows all of it.
    """
    try:
        yield
    except TorchIRError:
        raise
    except (Exception, SystemExit) as error:
        if str(getattr(extension, "__module__", "")).partition(".")[0] == "torch_ir":
            raise
        raise kind(
            f"{what} failed: {error_text(as_error(error))}",
            remedy="The fault is in its code; --traceback shows all of it.",
        ) from error


class Raised:
    """What foreign code raised in place of a result.

    Args:
        error: The exception.
    """

    # no dataclass: every import of the package would load what makes them
    __slots__ = ("error",)

    def __init__(self, error: Exception):
        self.error = error


def attempt(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Raised:
    """Call foreign code and return its result, or what it raised.

    Kernels, backends, runtimes and functions of users raise anything; that is a finding about
    them, not the end of what asks.

    Example:
        >>> attempt(int, "12"), attempt(int, "twelve").error.__class__.__name__
        (12, 'ValueError')
    """
    try:
        return call(*args, **kwargs)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code raises anything
        return Raised(as_error(error))


def short(values: object) -> str:
    """Return the beginning of what represents values, on one line.

    Example:
        >>> short(["a"])
        "['a']"
    """
    return f"{values!r:.300}".replace("\n", " ")


def counted(count: int, noun: str) -> str:
    """Format a number with its noun, in the plural where the number asks for it.

    Args:
        count: How many there are.
        noun: What they are, in the singular; one whose plural is regular.

    Example:
        >>> counted(1, "finding"), counted(2, "box"), counted(0, "weight")
        ('1 finding', '2 boxes', '0 weights')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
