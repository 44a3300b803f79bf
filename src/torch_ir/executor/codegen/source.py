"""A plan as Python: one line a node, values as local variables that are deleted after their use.

The module that is written has two functions for its user. ``bind(payload, kernels)`` takes the
weights and constants by name, and returns the function that runs the graph. ``accepts(*inputs)``
gives the values of the symbols for inputs that fit, and None for all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from torch_ir.executor.codegen.function import FunctionWriter
from torch_ir.executor.codegen.guard import guard_lines
from torch_ir.executor.codegen.lines import CodeLine, GeneratedModule
from torch_ir.executor.codegen.names import printable
from torch_ir.executor.plan import Plan
from torch_ir.infer.binder import BoundCall


@dataclass(frozen=True, slots=True)
class Source:
    """Generated Python.

    Attributes:
        lines: Its lines.
        kernels: The calls of kernels that a user registered, by the key that the module uses.
        symbols: The symbols whose values ``accepts`` gives and the graph's function takes.
        returned_symbols: The symbols whose values it returns after the outputs.
    """

    lines: Sequence[CodeLine]
    kernels: Mapping[str, BoundCall]
    symbols: tuple[str, ...]
    returned_symbols: tuple[str, ...]

    @property
    def text(self) -> str:
        """The module as its reader sees it."""
        return "\n".join([line.explained() for line in self.lines])

    @property
    def code(self) -> str:
        """The same without comments, which Python would read for nothing."""
        return "\n".join([line.text for line in self.lines])

    def line_at(self, number: int) -> CodeLine:
        """Return a line by its number from 1; an empty one where there is none."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else CodeLine("")


def write_source(
    plan: Plan,
    device: torch.device,
    *,
    observed: bool = False,
    recorded: bool = False,
    reuse: bool = True,
) -> Source:
    """Write the Python source of a plan.

    Args:
        plan: The plan.
        device: Where the inputs of a call must be.
        observed: Tell ``will_run(position, inputs)`` and ``did_run(position, outputs)``, which the
            function then takes as its last arguments, of every node.
        recorded: Write what gradients can be taken of: calls that have one, and tensors that stand
            for the buffers which are written.
        reuse: Let results take the place of dead values where the plan says so.
    """
    module = GeneratedModule(recorded=recorded)
    main = FunctionWriter(module, plan, "run", "    ", observed=observed, reuse=reuse)
    body = main.lines()
    names = [(main.state.external(name), name) for name in plan.external]
    payload = [CodeLine(f"    {given} = payload[{name!a}]") for given, name in names]
    accepts = guard_lines(module, plan.ir, device, plan.input_devices, plan.default_dtype)
    functions = [
        line for path, inner in _functions(plan) for line in _function(module, path, inner)
    ]
    title = f"{printable(plan.ir.model_name) or 'graph'}: {len(plan.steps)} nodes"
    lines = [
        CodeLine(f"{title!a}"),
        *_plain("", "import torch", *module.header(), ""),
        *_plain(*accepts),
        *functions,
        *_plain("", "def bind(payload, kernels):", *_SHORT_START),
        *payload,
        *body,
        *_plain(f"    return {main.name}", ""),
    ]
    symbols = tuple(sorted(plan.ir.given_symbols))
    returned = tuple(sorted(plan.ir.returned_symbols))
    return Source(lines, module.kernels, symbols, returned)


_SHORT_START = ("    if payload is None:", "        return None")
"""Python shifts the lines up to the first branch once for each name that inner functions read."""


def _plain(*texts: str) -> list[CodeLine]:
    return [CodeLine(text) for text in texts]


def _functions(plan: Plan, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Plan]]:
    """Every function that a plan refers to, innermost first, by its path."""
    for name, inner in plan.functions.items():
        here = (*path, name)
        yield from _functions(inner, here)
        yield "/".join(here), inner


def _function(module: GeneratedModule, path: str, plan: Plan) -> list[CodeLine]:
    return [CodeLine(""), *FunctionWriter(module, plan, path, "").lines()]
