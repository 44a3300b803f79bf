"""Passes by name: those of this package, and those that installed packages add."""

from __future__ import annotations

import ast
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch_ir.arguments import public
from torch_ir.errors import PassError, TorchIRError, attempt, did_you_mean, first_line, raised_as
from torch_ir.lazy import module_with_torch
from torch_ir.ops.extensions import Registry, load_with_operators, points_of, require_name
from torch_ir.passes.base import Pass

GROUP = "torch_ir.passes"
"""The group of entry points under which a package names its passes."""

_OURS: dict[str, tuple[str, str]] = {
    "clean-casts": ("torch_ir.passes.casts", "CleanCasts"),
    "common-subexpressions": (
        "torch_ir.passes.common_subexpressions",
        "EliminateCommonSubexpressions",
    ),
    "decompose": ("torch_ir.passes.decomposition.decompose", "Decompose"),
    "eliminate-dead-code": ("torch_ir.passes.dead_code", "EliminateDeadCode"),
    "fold-constants": ("torch_ir.passes.constant_folding", "FoldConstants"),
    "functionalize": ("torch_ir.passes.functionalization.walk", "Functionalize"),
    "fuse-quantized": ("torch_ir.passes.quantized.fusion", "FuseQuantized"),
    "inline-functions": ("torch_ir.passes.inline", "InlineFunctions"),
    "materialize-symbols": ("torch_ir.passes.materialize_symbols", "MaterializeSymbols"),
    "outline": ("torch_ir.passes.outline", "Outline"),
    "remove-no-ops": ("torch_ir.passes.no_ops", "RemoveNoOps"),
}
SHORT_NAMES = {
    "cse": "common-subexpressions",
    "dce": "eliminate-dead-code",
    "no-ops": "remove-no-ops",
}
"""Other names of passes."""
_RENAMED = {"fuse-quantised": "fuse-quantized", "materialise-symbols": "materialize-symbols"}

_PASSES = Registry[type[Pass]](
    GROUP, "pass", (*_OURS, *SHORT_NAMES, *_RENAMED), load_with_operators, PassError
)


@public
def register_pass(kind: type[Pass]) -> type[Pass]:
    """Register a pass under its ``name``, as a class decorator.

    Raises:
        PassError: Another pass has the name, or nothing can ask for it.

    Example:
        >>> from torch_ir.passes import PassResult
        >>> @register_pass
        ... class Nothing(Pass):
        ...     name = "nothing"
        ...     def call(self, ir):
        ...         return PassResult(ir, False)
        >>> str(pass_named("nothing"))
        'nothing'
        >>> unregister_pass("nothing")
    """
    if kind.name == Pass.name:
        remedy = f"Give the class {kind.__name__} an attribute name, a text."
        raise PassError(f"the pass {kind.__name__} has no name", remedy=remedy)
    require_name(GROUP, "pass", kind.name, PassError)
    taken = _PASSES.added.get(kind.name)
    if kind.name in _OURS or kind.name in SHORT_NAMES or (taken is not None and taken != kind):
        raise PassError(
            f"there is already a pass {kind.name!r}", remedy="Give the class another name."
        )
    _PASSES.add(kind.name, kind)
    return kind


@public
def unregister_pass(name: str) -> None:
    """Forget a pass that :func:`register_pass` made known; nothing happens if there is none."""
    _PASSES.unregister(name)


def pass_names() -> tuple[str, ...]:
    """Return the names of all passes, sorted.

    Example:
        >>> "fold-constants" in pass_names()
        True
    """
    return tuple(sorted({*_OURS, *_PASSES.names()}))


def described_passes() -> dict[str, str]:
    """Return the first line of each pass's docstring, by name; no pass is imported for it.

    Example:
        >>> described_passes()["eliminate-dead-code"]
        'Removes the nodes that nothing needs, and the functions that no node calls any more.'
    """
    places = {name: ":".join(place) for name, place in _OURS.items()}
    places |= {name: point.value for name, point in points_of(GROUP).items()}
    found = {name: _summary(kind.__doc__ or "") for name, kind in _PASSES.added.items()}
    for name, place in places.items():
        text = attempt(_docstring, *place.partition(":")[::2])  # a package may be broken
        known = text if isinstance(text, str) else ""
        found[name] = _summary(known or f"Of {place}")
    return dict(sorted(found.items()))


def _docstring(module: str, name: str) -> str:
    """The docstring of a class, read from the source of its module."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    places = [Path(folder, *rest) for folder in folders]
    files = [
        file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")
    ]
    source = next((file.read_text("utf-8") for file in files if file.is_file()), "")
    classes = [n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name]
    return (ast.get_docstring(classes[0]) if classes else None) or ""


def _summary(text: str) -> str:
    return text.strip().partition("\n")[0].partition("; see :")[0].rstrip(".") + "."


@public
def pass_named(name: str, **options: Any) -> Pass:
    """Return the pass of that name.

    Args:
        name: Its name, or a short one: ``cse``, ``dce``, ``no-ops``.
        options: Its fields.

    Raises:
        PassError: There is no such pass or option; the message names the closest.
        OptionalDependencyError: The pass needs PyTorch, which is not installed.

    Example:
        >>> str(pass_named("cse")), str(pass_named("fold-constants", max_bytes=16))
        ('common-subexpressions', 'fold-constants{max_bytes=16}')
    """
    if name in _RENAMED:
        message = f"the pass {name!r} is called {_RENAMED[name]!r} now"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
    kind = _class_of(_RENAMED.get(name) or SHORT_NAMES.get(name, name))
    fields = getattr(kind, "__dataclass_fields__", {})
    unknown = [option for option in options if option not in fields]
    if unknown:
        known = f"It has {', '.join(fields)}." if fields else "It has none."
        raise PassError(
            f"the pass {name!r} has no option {unknown[0]!r}",
            remedy=did_you_mean(unknown[0], fields) or known,
        )
    with raised_as(
        lambda error: PassError(
            f"the pass {name!r} cannot be made: {type(error).__name__}: {first_line(error)}",
            remedy="A pass is a class with call(ir), and a value for each of its fields.",
        ),
        passing=(TorchIRError,),
    ):
        return kind(**options)


@public
def passes_named(names: str) -> tuple[Pass, ...]:
    """Return the passes in a list of names, separated by commas.

    Raises:
        PassError: There is no such pass.
    """
    return tuple([pass_named(name.strip()) for name in names.split(",") if name.strip()])


def require_pass_name(name: str) -> None:
    """Require that there is a pass of a name, without an import of it.

    Raises:
        PassError: There is none; the message names the closest.

    Example:
        >>> require_pass_name("cse")
    """
    if name == "fold-batch-norm":
        raise PassError(
            "fold-batch-norm changes weights and rounds in another place, so no list has it",
            remedy="Call torch_ir.passes.fold_batch_norm(ir, weights).",
        )
    known = [*pass_names(), *SHORT_NAMES]
    if name not in known and name not in _RENAMED:
        raise PassError(
            f"there is no pass {name!r}",
            remedy=did_you_mean(name, known) or f"The passes are {', '.join(pass_names())}.",
        )


def _class_of(name: str) -> type[Pass]:
    if name in _PASSES.added:
        return _PASSES.added[name]
    if name in _OURS:
        module, attribute = _OURS[name]
        return getattr(module_with_torch(module, f"the pass {name!r}"), attribute)
    require_pass_name(name)
    return _require_pass(_PASSES.loaded(name), name)


def _require_pass(kind: object, name: str) -> type[Pass]:
    if not isinstance(kind, type) or not issubclass(kind, Pass):
        raise PassError(
            f"the entry point {name!r} of {GROUP} is no pass: {kind!r:.60}",
            remedy="It names a subclass of torch_ir.passes.Pass.",
        )
    return kind
