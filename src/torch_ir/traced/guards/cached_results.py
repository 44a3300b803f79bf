"""Results in the caches of functions, which Python shows to its collector of garbage alone."""

from __future__ import annotations

import gc
from typing import Any


def cached_results(cached: Any) -> list[Any]:
    """Return the results that a function would give again; with a limit their keys, too.

    Args:
        cached: A function of ``functools.cache`` or ``functools.lru_cache``.

    Example:
        >>> from functools import cache
        >>> @cache
        ... def double(number):
        ...     return 2 * number
        >>> double(3), cached_results(double)
        (6, [6])
    """
    held = [part for part in gc.get_referents(cached) if part is not vars(cached)]
    results = next(part for part in held if type(part) is dict)
    if not any(type(item).__name__ == _LINK for item in results.values()):
        return [*results.values()]
    known = {id(results), id(cached.__wrapped__)}
    return [part for part in held if id(part) not in known and not isinstance(part, type)]


_LINK = "_lru_list_elem"
"""What a function with a limit keeps its results in; they are beside the dictionary, in order."""
