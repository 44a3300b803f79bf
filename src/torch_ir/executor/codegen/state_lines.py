"""The lines about state: what stands for a buffer in a run, and what is written when it ends."""

from __future__ import annotations

from collections.abc import Iterator

from torch_ir.executor.codegen.lines import CodeLine, sequence
from torch_ir.executor.codegen.local_names import LocalNames
from torch_ir.executor.codegen.nodes import RUN_TIME
from torch_ir.executor.plan import Plan, StateWrite
from torch_ir.executor.state import changes_shapes, written_buffers


class StateWriter:
    """Writes what a function does with the buffers and inputs that a program writes.

    Args:
        names: The identifiers of the function.
        plan: The plan of its graph.
        observed: Whether it tells of every node.

    Attributes:
        buffers: The first name of each buffer for which another tensor stands, by all its names.
    """

    def __init__(self, names: LocalNames, plan: Plan, *, observed: bool):
        self._names = names
        self._plan = plan
        self._observed = observed
        self.buffers = _first_names(plan) if names.is_main and names.module.recorded else {}

    def external(self, name: str) -> str:
        """Return the identifier of a weight, constant or buffer, whatever stands for it."""
        return self._names.buffer(name) if name in self.buffers else self._names.value(name)

    def before(self) -> Iterator[CodeLine]:
        """Yield what checks the inputs, and tensors of the buffers' memory for gradients.

        Of memory that is written later gradients are told; that of a buffer which gets other
        memory stays as it is.
        """
        yield from self._apart()
        renewed = {write.target for write in self._plan.writes if self._is_handed_over(write)}
        renewed = {self.buffers.get(target) for target in renewed}
        for name, first in self.buffers.items():
            source = self._names.value(first)
            if name == first:
                source = f"{self._names.buffer(name)}.{'data' if name in renewed else 'detach()'}"
            yield CodeLine(f"{self._names.value(name)} = {source}")

    def _apart(self) -> Iterator[CodeLine]:
        inputs = self._plan.ir.input_names if self._names.is_main else ()
        targets = {write.target for write in self._plan.writes}
        written = [i for i, name in enumerate(inputs) if name in targets]
        if written and len(inputs) > 1:
            require = self._names.module.imported("torch_ir.executor.inputs", "require_apart")
            values = sequence([self._names.value(name) for name in inputs], is_tuple=True)
            yield CodeLine(f"{require}({(*inputs,)!a}, {values}, {(*written,)})")

    def after(self) -> Iterator[CodeLine]:
        """Yield what is written when the program ends."""
        copied: dict[str, str] = {}
        for write in self._plan.writes:
            if write.is_copied_first:
                copied[write.value] = self._names.copy(write.value)
                value = self._names.value(write.value)
                yield CodeLine(f"{copied[write.value]} = {value}.clone()")
        for write in self._plan.writes:
            value = copied.get(write.value) or self._names.value(write.value)
            if self._is_handed_over(write):
                name = "renew" if write.target in self.buffers else "hand_over"
                hand_over = self._names.module.imported(RUN_TIME, name)
                text = f"{hand_over}({self.external(write.target)}, {value})"
            else:
                text = f"{self._names.value(write.target)}.copy_({value})"
            yield CodeLine(text, writes=True)

    def _is_handed_over(self, write: StateWrite) -> bool:
        return write.is_handed_over and not self._observed  # who watches keeps values


def _first_names(plan: Plan) -> dict[str, str]:
    """The first name of each buffer that is written, by all its names; none if shapes change."""
    first: dict[str, str] = {}
    keys = {} if changes_shapes(plan.ir) else written_buffers(plan.ir)
    named = [(name, keys[name]) for name in plan.external if name in keys]
    return {name: first.setdefault(key, name) for name, key in named}
