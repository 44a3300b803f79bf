"""The base of objects that hold compiled programs."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from torch_ir.errors import ExecutionError


class Uncopied:
    """A compiled program: it holds generated code, locks and runtimes, which nothing can copy.

    Example:
        >>> import copy
        >>> copy.deepcopy(Uncopied())
        Traceback (most recent call last):
            ...
        torch_ir.errors.ExecutionError: objects of type Uncopied are neither copied nor pickled
        Keep the program and its weights, and compile them again where the copy is to run.
    """

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled, or copied with all that it holds.

        Raises:
            ExecutionError: Always.
        """
        raise ExecutionError(
            f"objects of type {type(self).__name__} are neither copied nor pickled",
            remedy="Keep the program and its weights, and compile them again where the copy is "
            "to run.",
        )

    def __copy__(self) -> Self:
        """Return another object that holds the same things, state among them."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made
