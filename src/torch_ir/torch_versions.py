"""The versions of torch that torch-ir is tested with, and which one is installed."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import metadata

TORCH_VERSIONS = ("2.11", "2.13", "2.14", "2.15")
"""The minor versions of torch on which the whole test suite passes."""

RECORDED = "2.13"
"""The minor version whose operators the generated tables describe."""


def warn_if_untested(version: str) -> None:
    """Warn of a version of torch that the tests were not run on.

    Args:
        version: What torch says of itself, such as ``"2.13.0+cpu"``.

    Example:
        >>> warn_if_untested("2.13.0+cpu")
    """
    if minor_version(version) not in TORCH_VERSIONS:
        tested = ", ".join(TORCH_VERSIONS)
        warnings.warn(
            f"torch-ir is tested with torch {tested}, and this is torch {version}: operators may "
            f"have other schemas. Install torch {TORCH_VERSIONS[-1]}, or look at results with "
            "torch_ir.verify and torch_ir.validate.",
            stacklevel=2,
        )


def minor_version(version: str) -> str:
    """Return the minor version of a release.

    Example:
        >>> minor_version("2.13.0+cpu")
        '2.13'
    """
    return ".".join(version.split(".")[:2])


@cache
def torch_is(minor: str) -> bool:
    """Return whether the installed torch is of a minor version, or a newer one.

    Without torch it is that of the generated tables. torch itself is not imported.

    Example:
        >>> torch_is("2.0"), torch_is("99.0")
        (True, False)
    """
    try:
        installed = minor_version(metadata.version("torch"))
    except metadata.PackageNotFoundError:
        installed = RECORDED
    return _numbers(installed) >= _numbers(minor)


def _numbers(minor: str) -> tuple[int, ...]:
    return tuple(int(number) for number in minor.split("."))
