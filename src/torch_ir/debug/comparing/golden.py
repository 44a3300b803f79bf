"""Captured values as what is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from torch_ir.debug.comparing.isolation import Feed, Found, faults_since, not_captured

Tensors = Mapping[str, torch.Tensor]


def replayed(state: Feed, values: Tensors) -> Iterator[Found]:
    """Judge captured values, each on those before it, with wrong ones put right."""
    for node in state.program.nodes:
        known = state.known(node)
        if lacking := not_captured(node, values) or state.lacking(node):
            state.reasons[node.name] = lacking
            state.unseen.add(node.name)
            state.values |= {name: values.get(name, known[name]) for name in known}
            continue
        if not node.outputs:
            state.covered.add(node.name)
            state.values |= known
            continue
        faults = faults_since(state, node, known, [values[meta.name] for meta in node.outputs])
        wrong = not isinstance(faults, str) and bool(faults)
        if isinstance(faults, str):
            state.reasons[node.name] = faults
        else:
            state.compared.add(node.name)
            yield from [Found((node,), fault) for fault in faults]
        if wrong:  # those behind it are judged from what is right before it
            state.unseen.add(node.name)
        state.values |= known if wrong else {m.name: values[m.name] for m in node.outputs}
