"""The rules of the device's programs, its file of weights, and a list of its calls."""

import json

import torch

from torch_ir.dialects import dialect, with_rules


def at_most_four_dimensions(scope, node):
    """Yield a violation for each result that the device's memory has no place for."""
    for meta in node.outputs:
        if len(meta.shape) > 4:
            yield scope.violation(
                "too-many-dimensions",
                node,
                f"%{meta.name} has {len(meta.shape)} dimensions",
                expected="at most 4",
                remedy="Flatten some.",
            )


ACME = with_rules(
    dialect("edge"),
    at_most_four_dimensions,
    name="acme",
    summary="Edge, with at most four dimensions.",
)


def read_weights(path):
    """Return the tensors of a file of JSON: lists of numbers by key."""
    return {key: torch.tensor(value) for key, value in json.loads(path.read_text()).items()}


def listing(ir):
    """Return the calls of a program, one a line."""
    return "".join(f"{node.name} {node.op_type}\n" for node in ir.nodes)
