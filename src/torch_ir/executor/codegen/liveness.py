"""The identifiers that the parts of a long function hand on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_ir.executor.codegen.local_names import LocalNames
from torch_ir.executor.plan import Plan, Step
from torch_ir.infer.binder import Expression, Listed, Named, Operand


def live_identifiers(
    names: LocalNames, plan: Plan, parts: Sequence[range], *, observed: bool
) -> list[list[str]]:
    """Return for each part the identifiers that it or a later one reads and does not make.

    Args:
        names: The identifiers of the function.
        plan: The plan of its graph.
        parts: The positions of the nodes of each part.
        observed: Whether every part tells of its nodes.
    """
    found: list[list[str]] = []
    external = frozenset(plan.external)
    known = dict.fromkeys(_end_reads(names, plan, external))
    for part in reversed(parts):
        for position in reversed(part):
            step = plan.steps[position]
            for made in _makes(names, step):
                known.pop(made, None)
            known.update(dict.fromkeys(_takes(names, step, external)))
        if observed:
            known.update(dict.fromkeys(("will_run", "did_run")))
        found.append(list(known))
    return found[::-1]


def _end_reads(names: LocalNames, plan: Plan, external: frozenset[str]) -> Iterator[str]:
    read = [*(meta.name for meta in plan.ir.graph_outputs)]
    read += [name for write in plan.writes for name in (write.target, write.value)]
    yield from (names.value(name) for name in read if name not in external)
    yield from (names.symbol(name) for name in sorted(plan.ir.returned_symbols))


def _makes(names: LocalNames, step: Step) -> Iterator[str]:
    yield from (names.value(meta.name) for meta in step.call.node.outputs)
    yield from (names.symbol(binding.symbol) for binding in step.symbols)


def _takes(names: LocalNames, step: Step, external: frozenset[str]) -> Iterator[str]:
    for read in step.call.reads:
        if read.name not in external:
            yield names.value(read.name)
    for operand in step.call.operands:
        yield from (names.symbol(name) for name in _symbols_of(operand))


def _symbols_of(operand: Operand) -> Iterator[str]:
    """Yield the symbols that an argument is computed from."""
    match operand:
        case Expression(value=value):
            yield from value.symbols
        case Listed(parts=parts):
            for part in parts:
                yield from _symbols_of(part)
        case Named(parts=parts):
            for _, part in parts:
                yield from _symbols_of(part)
        case _:
            pass
