"""Faults of a compiled graph that are about memory, and wrong constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ir import IR, Constant, parse
from torch_ir.ir import Mutation


@dataclass(frozen=True)
class MemoryFault:
    """A program, and one that overwrites what it must not.

    Attributes:
        op: The operator at fault.
        what: What is wrong.
        right: The program.
        wrong: What is compiled in its place.
        kernels: Operators, each with a wrong kernel.
    """

    op: str
    what: str
    right: Callable[[], IR]
    wrong: Callable[[], IR]
    kernels: Sequence[tuple[str, Any]] = ()

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors that both take: numbers for ``x``, zeros for what they write."""
        generator = torch.Generator().manual_seed(1)
        x = torch.rand((4, 4), generator=generator) * 2 - 0.7
        names = [meta.name for meta in self.right().graph_inputs]
        return tuple([x if name == "x" else torch.zeros(4, 4) for name in names])

    def weights(self) -> dict[str, torch.Tensor]:
        """Their buffers, which are zeros."""
        return {weight.name: torch.zeros(4, 4) for weight in self.right().weights}


_SHAPES = {
    "read later": """
      input %x: f32[4, 4]
      %a: f32[4, 4] = aten.sin.default(%x)
      %b: f32[4, 4] = {call}
      %c: f32[4, 4] = aten.mul.Tensor(%a, %b)
      return %c
    """,
    "returned": """
      input %x: f32[4, 4]
      %a: f32[4, 4] = aten.sin.default(%x)
      %b: f32[4, 4] = {call}
      return %a, %b
    """,
    "seen through a view that is read later": """
      input %x: f32[4, 4]
      %a: f32[4, 4] = aten.sin.default(%x)
      %v: f32[16] = aten.view.default(%a, [16])
      %b: f32[4, 4] = {call}
      %c: f32[] = aten.sum.default(%v)
      return %b, %c
    """,
}
_CALLS = (
    ("aten.cos", "default", "(%a)"),
    ("aten.exp", "default", "(%a)"),
    ("aten.add", "Tensor", "(%a, %x)"),
    ("aten.mul", "Tensor", "(%a, 2.5)"),
    ("aten.neg", "default", "(%a)"),
    ("aten.clamp", "default", "(%a, -0.2, 0.2)"),
)


def _text(shape: str, call: str) -> str:
    return f'ir "Memory" {{{_SHAPES[shape].replace("{call}", call)}}}'


def _reuse(shape: str, name: str, overload: str, arguments: str) -> MemoryFault:
    return MemoryFault(
        f"{name}.{overload}",
        f"takes the place of a value that is {shape}",
        lambda: parse(_text(shape, f"{name}.{overload}{arguments}")),
        lambda: parse(_text(shape, f"{name}_.{overload}{arguments}")),
    )


_INPUT = """ir "Memory" {{
  input %x: f32[4, 4]
  %a: f32[4, 4] = {call}(%x)
  return %a
}}"""


def _written_input(name: str) -> MemoryFault:
    def wrong() -> IR:
        ir = parse(_INPUT.format(call=f"aten.{name}_.default"))
        return ir.replace(mutations=[Mutation("x", ir.graph_inputs[0])])

    return MemoryFault(
        f"aten.{name}.default",
        "writes to an input",
        lambda: parse(_INPUT.format(call=f"aten.{name}.default")),
        wrong,
    )


_CONSTANT = """ir "Memory" {
  constant @k: f32[4] as %k = [1.0, 2.0, 3.0, 4.0]
  input %x: f32[4, 4]
  %a: f32[4, 4] = aten.add.Tensor(%x, @k)
  return %a
}"""


def _with_constant(values: list[Any]) -> Callable[[], IR]:
    def made() -> IR:
        return parse(_CONSTANT).replace(constants={"k": Constant.from_list(values, "float32")})

    return made


MEMORY: list[MemoryFault] = [
    *[_reuse(shape, *call) for shape in _SHAPES for call in _CALLS],
    *[_written_input(name) for name in ("sin", "neg", "exp", "relu")],
    *[
        MemoryFault(
            "aten.add.Tensor", what, _with_constant([1.0, 2.0, 3.0, 4.0]), _with_constant(values)
        )
        for what, values in (
            ("wrong constant", [1.0, 2.0, 3.0, 4.5]),
            ("constant in another order", [4.0, 3.0, 2.0, 1.0]),
            ("constant off by one bit", [1.0000001, 2.0, 3.0, 4.0]),
        )
    ],
]
