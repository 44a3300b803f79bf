"""Packages that extend this one: the modules that their entry points name, imported when needed.

A program that names an operator of a library says a namespace, never a module: only an installed
package says which module belongs to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import Any, Generic, TypeVar

from torch_ir.errors import (
    InvalidIRError,
    TorchIRError,
    as_error,
    did_you_mean,
    first_line,
    raised_as,
)

OPERATORS = "torch_ir.operators"
"""The group whose entry points name, for a namespace, the module that registers its operators."""
DENOTATIONS = "torch_ir.denotations"
"""The group of modules that say what the operators of a namespace mean, without torch."""
KINDS = ("passes", "backends", "dialects", "weight_readers", "viewers")
GROUPS = (OPERATORS, DENOTATIONS, *[f"torch_ir.{kind}" for kind in KINDS])
"""All groups of entry points that this package reads."""

_HELD: dict[str, tuple[Callable[[Any], bool], str]] = {
    "passes": (
        lambda held: isinstance(held, type) and hasattr(held, "call"),
        "a subclass of Pass",
    ),
    "backends": (
        lambda held: callable(held) and (not isinstance(held, type) or hasattr(held, "compile")),
        "an instance or a class of DelegateBackend, or a function",
    ),
    "dialects": (lambda held: hasattr(held, "verify"), "a Dialect"),
    "weight_readers": (callable, "a function of a path"),
    "viewers": (callable, "a function of a program"),
}
"""Whether something can be what an entry point of a kind names, and what that is."""

_UNREAD = re.compile(r"(?i)torch[-_. ]?ir([-_.].*)?")
"""Groups of entry points that are meant for this package, whether it reads them or not."""

_NAMESPACE = (re.compile(r"\w+"), "a namespace of operators is letters, digits and _")
_LISTED = (
    re.compile(r"(?!\s)[^,:]+(?<!\s)"),
    "it stands in lists, so it has no comma and no colon",
)
_NAMES: dict[str, tuple[re.Pattern[str], str]] = {
    "operators": _NAMESPACE,
    "denotations": _NAMESPACE,
    "passes": _LISTED,
    "backends": _LISTED,
    "weight_readers": (
        re.compile(r"\.[^./\s]+"),
        "it is a suffix in small letters with its dot, such as .npz",
    ),
    "viewers": (
        re.compile(r"[^./\s]+"),
        "it is a suffix in small letters without its dot, such as csv",
    ),
}
"""The names that something of a kind can be asked for by, and why no others."""
_CASELESS = ("weight_readers", "viewers")

OWN_NAMESPACES = frozenset(
    {"aten", "prims", "higher_order", "dim_order_ops", "executorch_prims", "quantized_decomposed"}
)
"""Namespaces whose operators this package and torch have."""

_OURS: dict[str, frozenset[str]] = {OPERATORS: OWN_NAMESPACES, DENOTATIONS: OWN_NAMESPACES}
"""The names of each group that this package has itself: an entry point of one is never used."""


@dataclass(frozen=True, slots=True)
class Extension:
    """An entry point of an installed package, or what a module registered.

    Attributes:
        group: What it extends.
        name: The name of the pass or backend, the namespace of the operators, or the operator.
        value: The module, or the object in it.
        package: The distribution, or an empty string.
        fault: Why it cannot be loaded; empty if it can, or if nobody tried.
        remedy: What to do about the fault.
    """

    group: str
    name: str
    value: str
    package: str
    fault: str = ""
    remedy: str = ""


_NOTED: dict[tuple[str, str], str] = {}
"""What modules outside of this package registered, by group and name."""


def note_extension(group: str, name: str, added: Any) -> None:
    """Note that something was registered, for :func:`extensions`; what is ours is no extension.

    Args:
        group: What it extends.
        name: Its name.
        added: The object, or a text that describes it.
    """
    if isinstance(added, str):
        _NOTED[group, name] = added
        return
    if not hasattr(added, "__qualname__"):
        _NOTED[group, name] = type(added).__qualname__
    elif added.__module__.partition(".")[0] != "torch_ir":
        _NOTED[group, name] = f"{added.__module__}:{added.__qualname__}"


def forget_extension(group: str, name: str) -> None:
    """Forget what was noted."""
    _NOTED.pop((group, name), None)


def require_name(group: str, noun: str, name: object, kind: type[TorchIRError]) -> str:
    """Return a name under which something is registered, if it can be asked for by it.

    Raises:
        TorchIRError: It cannot: nothing would ever find it.

    Example:
        >>> require_name("torch_ir.weight_readers", "reader", "npz", InvalidIRError)
        Traceback (most recent call last):
            ...
        torch_ir.errors.InvalidIRError: nothing can ask for a reader 'npz'
        Choose another name: it is a suffix in small letters with its dot, such as .npz.
    """
    if not isinstance(name, str) or not name:
        raise kind(f"the name of a {noun} is a text, got {name!r:.60}")
    if rule := _broken_rule(group, name):
        raise kind(f"nothing can ask for a {noun} {name!r:.60}", remedy=_another_name(rule))
    return name


def _broken_rule(group: str, name: str) -> str:
    """The rule that a name of a group breaks; empty if it keeps it."""
    kind = group.partition(".")[2]
    pattern, rule = _NAMES.get(kind, (None, ""))
    is_cased = kind in _CASELESS and name != name.lower()
    return rule if pattern is not None and (is_cased or not pattern.fullmatch(name)) else ""


def _another_name(rule: str) -> str:
    return f"Choose another name: {rule}."


def points_of(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name.

    Raises:
        InvalidIRError: Two packages name different modules for one name.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            both = " and ".join(sorted(_described(p) for p in (other, point)))
            raise InvalidIRError(
                f"two packages have an entry point {point.name!r} of the group {group}: {both}",
                remedy="Uninstall one of them.",
            )
    return found


def import_for(group: str, namespace: str) -> bool:
    """Import the module that a package names for a namespace, once; return whether there is one.

    Raises:
        InvalidIRError: It cannot be imported, or two packages name one.
    """
    if namespace in OWN_NAMESPACES:
        return False
    return _imported(group, namespace, tuple(sys.path))


def import_hint(namespace: str) -> str:
    """Return how the operators of a namespace become known where none imports them.

    Example:
        >>> print(import_hint("acme"))
        Import the library that registers the operators of 'acme' before running: --import MODULE \
on the command line, or an entry point 'acme' of the group torch_ir.operators in its package.
    """
    point = points_of(OPERATORS).get(namespace)
    if point is not None:
        module = point.value.partition(":")[0]
        return f"Import {module}, which registers them: --import {module} on the command line."
    return (
        f"Import the library that registers the operators of {namespace!r} before running: "
        f"--import MODULE on the command line, or an entry point {namespace!r} of the group "
        f"{OPERATORS} in its package."
    )


def meaning_hint(op_type: str) -> str:
    """Return how a program runs by its meaning where an operator has no denotation.

    Example:
        >>> print(meaning_hint("acme.softclip.default"))
        Decompose it to core ATen first, or import what says what the operators of 'acme' mean: \
--import MODULE on the command line, or an entry point 'acme' of the group torch_ir.denotations \
in its package.
    """
    namespace = op_type.partition(".")[0]
    decompose = "Decompose it to core ATen first"
    if namespace in OWN_NAMESPACES:
        return f"{decompose}."
    return (
        f"{decompose}, or import what says what the operators of {namespace!r} mean: --import "
        f"MODULE on the command line, or an entry point {namespace!r} of the group {DENOTATIONS} "
        "in its package."
    )


def load_with_operators(point: EntryPoint) -> Any:
    """Load an entry point after the operators of its package, which it may call.

    Raises:
        InvalidIRError: The operators cannot be imported.
    """
    for namespace, operators in points_of(OPERATORS).items():
        own, other = point.dist, operators.dist
        if own is not None and other is not None and own.name == other.name:
            import_for(OPERATORS, namespace)
    return point.load()


T = TypeVar("T")
E = TypeVar("E", bound=TorchIRError)


def not_loaded(point: EntryPoint, noun: str, error: Exception, kind: type[E]) -> E:
    """Return the error about an entry point that cannot be loaded; it names the package.

    Args:
        point: The entry point.
        noun: What it should name.
        error: What loading it raised.
        kind: The class of the error.
    """
    reason, remedy = _reason(point, error)
    message = f"the {noun} {point.name!r} of {_described(point)} cannot be loaded: {reason}"
    return kind(message, remedy=remedy)


def _reason(point: EntryPoint, error: Exception) -> tuple[str, str]:
    """Return why an entry point cannot be loaded, and what to do."""
    if isinstance(error, TorchIRError):
        return error.message, error.remedy or ""
    reason = f"{type(error).__name__}: {first_line(error)}"
    module, attribute = _place(point)
    again = _refit(point)
    if not module:
        return f"{point.value!r} is no place, as package.module:NAME is", again
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{module}.".startswith(f"{missing}."):
        return reason, again
    if missing is not None:
        return reason, f"Install {missing}, which {module} imports."
    loaded = sys.modules.get(module)
    if isinstance(error, AttributeError) and loaded is not None:  # it lacks what is named
        hint = did_you_mean(attribute, [n for n in dir(loaded) if not n.startswith("_")])
        return reason, f"{hint} {again}".strip()
    return reason, f"The fault is in {_package(point)}: python -c 'import {module}' shows it."


def _place(point: EntryPoint) -> tuple[str, str]:
    """The module and the name in it that an entry point names; empty where it names none."""
    found = EntryPoint.pattern.match(point.value)
    return ("", "") if found is None else (found["module"], found["attr"] or "")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


@lru_cache(maxsize=1024)
def _imported(group: str, namespace: str, _path: tuple[str, ...]) -> bool:
    point = points_of(group).get(namespace)
    if point is None:
        return False
    with raised_as(lambda error: not_loaded(point, "operators", error, InvalidIRError)):
        import_module(point.value.partition(":")[0])
    return True


class Registry(Generic[T]):
    """What programs register under names and packages add by entry points of one group.

    Args:
        group: The group of entry points.
        noun: What it holds, for messages.
        own: Names that this package has.
        load: Loads an entry point.
        error: The class of the error where that fails.

    Attributes:
        added: What programs registered, by name.

    Example:
        >>> readers = Registry[Callable[[str], str]]("torch_ir.example", "reader")
        >>> @readers.register(".txt")
        ... def text(path):
        ...     return path
        >>> readers.names(), readers.find(".txt")("a.txt")
        (('.txt',), 'a.txt')
    """

    def __init__(
        self,
        group: str,
        noun: str,
        own: Iterable[str] = (),
        load: Callable[[EntryPoint], Any] = EntryPoint.load,
        error: type[TorchIRError] = InvalidIRError,
    ):
        self.group, self.noun, self.own = group, noun, frozenset(own)
        self._load, self._error = load, error
        _OURS[group] = self.own
        self.added: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Register the decorated object under a name.

        Raises:
            InvalidIRError: The name is taken, or nothing can ask for it.
        """
        require_name(self.group, self.noun, name, InvalidIRError)

        def decorate(added: T) -> T:
            if name in self.own or self.added.get(name, added) is not added:
                raise InvalidIRError(
                    f"there is a {self.noun} {name!r} already", remedy="Choose another name."
                )
            self.add(name, added)
            return added

        return decorate

    def add(self, name: str, added: T) -> None:
        """Have an object under a name, whatever else has it."""
        self.added[name] = added
        note_extension(self.group, name, added)

    def unregister(self, name: str) -> None:
        """Forget what was registered under a name; nothing happens if there is none."""
        self.added.pop(name, None)
        forget_extension(self.group, name)

    def names(self) -> tuple[str, ...]:
        """Return the names that were registered or that packages have, sorted."""
        return tuple(sorted({*self.added, *points_of(self.group)}))

    def find(self, name: str) -> T:
        """Return what has a name.

        Raises:
            InvalidIRError: Nothing has it, or it cannot be loaded.
        """
        if name in self.added:
            return self.added[name]
        point = points_of(self.group).get(name)
        if point is None:
            known = sorted({*self.own, *self.names()})
            hint = did_you_mean(name, known) or f"There is {', '.join(known)}."
            raise InvalidIRError(f"there is no {self.noun} {name!r}", remedy=hint)
        loaded = self.loaded(name)
        fault = _unfit(point, loaded)
        if fault:
            message = f"the {self.noun} {name!r} of {_described(point)}: {fault}"
            raise InvalidIRError(message, remedy=_refit(point))
        return loaded

    def loaded(self, name: str) -> Any:
        """Load what an installed package has under a name."""
        point = points_of(self.group)[name]
        with raised_as(lambda error: not_loaded(point, self.noun, error, self._error)):
            return self._load(point)


def extensions(*, load: bool = True) -> Iterator[Extension]:
    """Yield what installed packages add, and what modules have registered, by group and name.

    Args:
        load: Whether to load each, so that faults are known; groups that nobody reads are listed
            then too.
    """
    installed, named = entry_points(), set[tuple[str, str]]()
    unread = [group for group in sorted(installed.groups) if _UNREAD.fullmatch(group)]
    for group in dict.fromkeys([*GROUPS, *(unread if load else ())]):
        points = sorted(installed.select(group=group), key=lambda point: point.name)
        for point in points:
            package = point.dist.name if point.dist is not None else ""
            fault, remedy = _state(point, points) if load else ("", "")
            named.add((group, point.name))
            yield Extension(group, point.name, point.value, package, fault, remedy)
    for group, name in sorted(_NOTED.keys() - named):
        yield Extension(group, name, _NOTED[group, name], "")


def _state(point: EntryPoint, points: list[EntryPoint]) -> tuple[str, str]:
    """Return why an entry point is of no use, and what to do; empty texts if it is."""
    if point.group not in GROUPS:
        listed = f"The groups are {', '.join(GROUPS)}."
        return "torch-ir reads no group of this name", did_you_mean(point.group, GROUPS) or listed
    if rule := _broken_rule(point.group, point.name):
        return "nothing can ask for it by this name", _another_name(rule)
    if point.name in _OURS.get(point.group, ()):
        return "torch-ir has its own of this name, which is used", "Choose another name."
    others = [p for p in points if p.name == point.name and p.value != point.value]
    if others:
        return f"{_described(others[0])} has the same name", "Uninstall one of them."
    try:
        fault = _unfit(point, point.load())
    except (Exception, SystemExit) as raised:  # noqa: BLE001  # foreign code raises anything
        return _reason(point, as_error(raised))
    return fault, _refit(point) if fault else ""


def _unfit(point: EntryPoint, loaded: Any) -> str:
    """Return why what an entry point names is not what its group holds; empty if it is."""
    if isabstract(loaded):
        return f"the class {loaded.__name__} lacks {', '.join(sorted(loaded.__abstractmethods__))}"
    fits, wanted = _HELD.get(point.group.partition(".")[2], (None, ""))
    if fits is None or fits(loaded):
        return ""
    return f"its entry point names {loaded!r:.60}, not {wanted}"


def _refit(point: EntryPoint) -> str:
    return f"Correct the entry point in {_package(point)}, and install that again."


def _described(point: EntryPoint) -> str:
    return f"{point.value} ({point.dist.name})" if point.dist is not None else point.value
