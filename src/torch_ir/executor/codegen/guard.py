"""The check of a call's inputs as one function of generated Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from torch_ir.executor.codegen.lines import GeneratedModule, spelled
from torch_ir.ir import IR, SymExpr, TensorMeta
from torch_ir.ir.queries import shown_symbols


def guard_lines(
    module: GeneratedModule,
    ir: IR,
    device: torch.device,
    places: Mapping[str, torch.device],
    default_dtype: torch.dtype | None,
) -> list[str]:
    """Write a function ``accepts`` that solves for the symbols of inputs that fit.

    It gives None for inputs that do not fit, or that take more than a glance to tell (a symbol
    that stands in no dimension alone): then :func:`torch_ir.executor.inputs.check_inputs` looks.

    Args:
        module: Where it stands.
        ir: The graph.
        device: Where the inputs must be.
        places: Where those must be that have a place of their own, by name.
        default_dtype: What torch's default dtype must be; None where it decides nothing.
    """
    names = module.names
    inputs = [names.of("checked input", meta.name) for meta in ir.graph_inputs]
    head = f"def accepts({', '.join(inputs)}):"
    if not _is_simple(ir):
        return ["", head, "    return None", ""]
    symbols = {name: names.of("checked symbol", name) for name in sorted(ir.given_symbols)}
    tests: list[str] = []
    if default_dtype is not None:
        default = module.literal(default_dtype, frozen=True)
        tests.append(f"{module.imported('torch', 'get_default_dtype')}() is {default}")
    late: list[str] = []
    bound: list[str] = []
    for name, meta in zip(inputs, ir.graph_inputs, strict=True):
        tests.extend(_plain_tests(module, name, meta, places.get(meta.name, device)))
        for axis, dim in enumerate(meta.shape):
            size = f"{name}.shape[{axis}]"
            if isinstance(dim, int):
                late.extend([] if meta.is_static else [f"{size} == {dim}"])
            elif dim.is_symbol and symbols[dim.text] not in bound:
                bound.append(symbols[dim.text])
                late.append(f"(({bound[-1]} := {size}) is not None)")
                late.extend(_range(ir, dim.text, bound[-1]))
            else:
                late.append(f"{size} == {spelled(module, dim, symbols)}")
    late.extend(f"({spelled(module, guard, symbols)})" for guard in ir.guards)
    order = ", ".join(symbols.values())
    lines = ["", head]
    for test in [*tests, *late]:
        lines.append(f"    if not {test}: return None")
    result = f"({order},)" if symbols else "()"
    return [*lines, f"    return {result}", ""]


def _is_simple(ir: IR) -> bool:
    """Whether each symbol is a whole dimension of an input, at its first place."""
    alone = shown_symbols(ir.graph_inputs)
    if ir.signature is not None and ir.signature.sizes:
        return False  # a number among the arguments
    if any("**" in guard.text for guard in ir.guards):
        return False
    seen: set[str] = set()
    for meta in ir.graph_inputs:
        for dim in meta.shape:
            if isinstance(dim, SymExpr):
                if dim.is_symbol:
                    seen.add(dim.text)
                elif not seen.issuperset(dim.symbols) or "**" in dim.text:
                    return False
    return alone.issuperset(ir.given_symbols) and all(
        alone.issuperset(guard.symbols) for guard in ir.guards
    )


def _plain_tests(
    module: GeneratedModule, name: str, meta: TensorMeta, device: torch.device
) -> Iterator[str]:
    yield f"{name}.__class__ is torch.Tensor"
    yield f"{name}.dtype is {module.literal(getattr(torch, meta.dtype), frozen=True)}"
    yield f"{name}.layout is torch.strided"
    if device.type == "cpu":
        yield f"{name}.is_cpu"
    else:
        yield f"{name}.device == {module.literal(device, frozen=True)}"
    if meta.is_static:
        yield f"{name}.shape == {module.literal(meta.shape, frozen=True)}"
    else:
        yield f"{name}.dim() == {len(meta.shape)}"


def _range(ir: IR, symbol: str, given: str) -> Iterator[str]:
    allowed = ir.symbols.get(symbol)
    if allowed is not None and allowed.lower is not None:
        yield f"{given} >= {allowed.lower}"
    if allowed is not None and allowed.upper is not None:
        yield f"{given} <= {allowed.upper}"
