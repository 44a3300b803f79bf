"""The versions of torch that torch-ir is tested with."""

from __future__ import annotations

import warnings

TORCH_VERSIONS = ("2.13", "2.14")
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
