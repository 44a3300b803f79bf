"""Memory that several values show, as functionalization follows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_ir.ir import OpNode, TensorMeta


@dataclass(slots=True, eq=False)
class Storage:
    """One piece of memory.

    Attributes:
        target: Name of the graph input or weight that it is, or the empty string.
        version: How often it was written.
        blocked: Why it cannot be written: what may show it without our knowing how.
    """

    target: str = ""
    version: int = 0
    blocked: str = ""


@dataclass(slots=True, eq=False)
class View:
    """A value that shows memory, or a part of it.

    Attributes:
        meta: The value as the original program has it.
        storage: The memory.
        current: The functional value, as of ``version``.
        version: The version of the storage that ``current`` shows.
        parent: The view that this one is a part of; None for the whole.
        made: The functional node that derives it from ``parent``, with that parent's value.
        source: The parent's value that ``made`` takes.
        output: Which result of that node it is.
        siblings: All views that the node makes, by the position of the result.
    """

    meta: TensorMeta
    storage: Storage
    current: TensorMeta
    version: int = 0
    parent: View | None = None
    made: OpNode | None = None
    source: str = ""
    output: int = 0
    siblings: dict[int, View] = field(default_factory=dict[int, "View"])

    @property
    def is_current(self) -> bool:
        """Whether nothing was written since the value was derived."""
        return self.version == self.storage.version

    def set(self, value: TensorMeta) -> None:
        """Set the current value of the view."""
        self.current, self.version = value, self.storage.version

    def up(self) -> list[View]:
        """Return this view, its parent, and so on to the whole."""
        chain: list[View] = []
        view: View | None = self
        while view is not None:
            chain.append(view)
            view = view.parent
        return chain
