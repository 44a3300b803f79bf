"""The dialects of ATen: as exported, functional, the core set, and primitives."""

from __future__ import annotations

from torch_ir.dialects.registry import Dialect
from torch_ir.dialects.rules import (
    contiguous,
    core,
    known_operator,
    namespaces,
    own_results,
    results,
)

EXPORT = Dialect(
    "export",
    "what torch.export gives: program order is part of the meaning",
    (namespaces("aten", "prims", "higher_order", custom=True), known_operator, results),
)

ATEN = Dialect(
    "aten",
    "functional ATen: no call writes what it is given, no result is a view of it",
    (
        namespaces("aten", "higher_order", custom=True),
        known_operator,
        own_results,
        contiguous,
        results,
    ),
)

CORE_ATEN = Dialect(
    "core_aten",
    "functional ATen of the core operator set",
    (*ATEN.node_rules, core),
)

PRIMS = Dialect(
    "prims",
    "torch's primitive operators, without type promotion or broadcasting",
    (
        namespaces("prims", "higher_order", custom=False),
        known_operator,
        own_results,
        contiguous,
        results,
    ),
)
