"""Captured values as one side of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from torch_ir.debug.comparing.isolation import Feed, Found, node_faults, region_faults
from torch_ir.debug.comparing.sources import ReferenceSource, Symbols
from torch_ir.ir import IR, OpNode

Tensors = Mapping[str, torch.Tensor]


def replayed(state: Feed, values: Tensors) -> Iterator[Found]:
    """Judge captured values, each on those before it, with wrong ones put right."""
    unseen: set[str] = set()
    for node in state.program.nodes:
        known = state.known(node)
        missing = [meta.name for meta in node.outputs if meta.name not in values]
        if missing:
            if node.outputs:
                state.reasons[node.name] = f"there is no value %{missing[0]}"
                unseen.add(node.name)
                known |= {k: values[k] for k in known.keys() & values.keys()}
            else:
                state.covered.add(node.name)
            state.keep(node, known)
            continue
        got = [values[meta.name] for meta in node.outputs]
        nodes = _since_seen(state.program, node, unseen)
        if len(nodes) > 1:
            made = {meta.name: got[i] for i, meta in enumerate(node.outputs)}
            faults = region_faults(
                state, nodes, node.outputs, state.values, {**known}, list(made.values())
            )
        else:
            faults = node_faults(state, node, known, got)
        if isinstance(faults, str):
            state.reasons[node.name] = faults
        else:
            state.compared.add(node.name)
            yield from [Found((node,), fault) for fault in faults]
        wrong = not isinstance(faults, str) and bool(faults)
        if wrong:  # those behind it are judged from what is right before it
            unseen.add(node.name)
        taken = known if wrong else {m.name: values[m.name] for m in node.outputs}
        state.keep(node, taken)


def _since_seen(program: IR, node: OpNode, unseen: set[str]) -> list[OpNode]:
    """A node with those before it whose values are in no file."""
    found, wanted = {node.name}, list(node.inputs)
    while wanted:
        made = program.producers.get(wanted.pop().name)
        if made is not None and made.name in unseen and made.name not in found:
            found.add(made.name)
            wanted += made.inputs
    return [item for item in program.nodes if item.name in found]


class Replay:
    """Captured values, and the meaning of what was not captured."""

    name = "golden"

    def __init__(self, values: Tensors):
        self._values = values

    def call(self, body: IR, values: Tensors, symbols: Symbols) -> Sequence[torch.Tensor]:
        """Return the captured results of a part."""
        names = body.output_names
        if all(name in self._values for name in names):
            return [self._values[name] for name in names]
        return ReferenceSource().call(body, values, symbols)
