"""Faults of a compiled graph that are about places: views, storages and state.

Each is a program and one that is compiled in its place: it differs in one node, or in what is left
in a buffer or an input at the end. Most change no value that a node makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fault_memory import MemoryFault
from torch_ir import IR, parse


@dataclass(frozen=True)
class Base:
    """Memory that a program writes.

    Attributes:
        name: The value that has it.
        head: The lines that declare or make it.
        tail: What tells that it is written, and what returns it.
    """

    name: str
    head: str
    tail: str


BASES = (
    Base("@b", "weight @b: f32[4, 4]", "mutate @b = @b\n return %x"),
    Base("%y", "input %y: f32[4, 4]", "mutate %y = %y\n return %x"),
    Base("%m", "%m: f32[4, 4] = aten.zeros_like.default(%x)", "return %m"),
)
"""A buffer, an input and a fresh value: all are zeros, so that views of them look alike."""

WRITES = {
    "copy_": ("aten.copy_.default", "(%v, %s)"),
    "add_": ("aten.add_.Tensor", "(%v, %s)"),
    "fill_": ("aten.fill_.Scalar", "(%v, 2.5)"),
    "sub_": ("aten.sub_.Tensor", "(%v, 1.5)"),
}

VIEWS: dict[str, tuple[str, ...]] = {
    "f32[4]": (
        "aten.select.int({}, 0, 0)",
        "aten.select.int({}, 0, 2)",
        "aten.select.int({}, 1, 0)",
        "aten.diagonal.default({})",
    ),
    "f32[2, 4]": (
        "aten.slice.Tensor({}, 0, 0, 2)",
        "aten.slice.Tensor({}, 0, 1, 3)",
        "aten.slice.Tensor({}, 0, 0, 4, 2)",
    ),
    "f32[4, 2]": ("aten.slice.Tensor({}, 1, 0, 2)", "aten.slice.Tensor({}, 1, 2, 4)"),
    "f32[4, 4]": ("aten.alias.default({})", "aten.t.default({})"),
}
"""Views of a base by their type; the first of each is meant, the others are wrong."""

COPIES = {
    "f32[4]": ("aten.select_copy.int({}, 0, 0)", "aten.select.int({}, 0, 0)"),
    "f32[2, 4]": ("aten.slice_copy.Tensor({}, 0, 0, 2)", "aten.slice.Tensor({}, 0, 0, 2)"),
    "f32[4, 2]": ("aten.slice_copy.Tensor({}, 1, 0, 2)", "aten.slice.Tensor({}, 1, 0, 2)"),
    "f32[4, 4]": ("aten.t_copy.default({})", "aten.t.default({})"),
    "f32[16]": ("aten.view_copy.default({}, [16])", "aten.view.default({}, [16])"),
}
"""Copies by their type, each with the view of which it is a copy."""


def program(base: Base, *lines: str) -> str:
    """The text of a program that writes to a base; ``%s`` has the sizes of the view ``%v``."""
    declared, made = (base.head, "") if " = " not in base.head else ("", base.head)
    return "\n".join(
        ['ir "Places" {', declared, "input %x: f32[4, 4]", made, *lines, base.tail, "}"]
    )


def fault(op: str, what: str, right: str, wrong: str, *kernels: Any) -> MemoryFault:
    """The fault that one text is compiled for another."""

    def read(text: str) -> IR:
        return parse(text)

    return MemoryFault(op, what, lambda: read(right), lambda: read(wrong), kernels)


def _source(kind: str) -> str:
    """A value of the type of a view, out of ``%x``."""
    sizes = kind.removeprefix("f32")
    count = torch.Size(map(int, sizes.strip("[]").split(","))).numel()
    return (
        f"%f: f32[16] = aten.reshape.default(%x, [16])\n"
        f"%g: f32[{count}] = aten.slice.Tensor(%f, 0, 0, {count})\n"
        f"%s: {kind} = aten.reshape.default(%g, {sizes})"
    )


def _written(base: Base, kind: str, view: str, write: str) -> str:
    op, arguments = WRITES[write]
    lines = _source(kind), f"%v: {kind} = {view.format(base.name)}"
    return program(base, *lines, f"%w: {kind} = {op}{arguments}")


def wrong_views() -> Iterator[MemoryFault]:
    """A write through a view of the wrong place."""
    for base in BASES:
        for kind, (right, *others) in VIEWS.items():
            for wrong in others:
                for write in ("copy_", "add_") if kind == "f32[4, 4]" else WRITES:
                    texts = [_written(base, kind, view, write) for view in (right, wrong)]
                    what = (
                        f"{write} through {wrong.format(base.name)} for {right.format(base.name)}"
                    )
                    yield fault(right.partition("(")[0], what, *texts)


def copies_for_views() -> Iterator[MemoryFault]:
    """A write to a copy, which is lost."""
    for base in BASES:
        for kind, (copy, view) in COPIES.items():
            for write in WRITES:
                texts = [_written(base, kind, call, write) for call in (view, copy)]
                what = f"{write} to {copy.format(base.name)}, a copy for a view"
                yield fault(view.partition("(")[0], what, *texts)


def shared_results() -> Iterator[MemoryFault]:
    """A result that shares the memory of an input, and should not; and the other way."""
    for kind, (copy, view) in COPIES.items():
        text = f'ir "Places" {{\ninput %x: f32[4, 4]\n%r: {kind} = CALL\nreturn %r\n}}'
        calls = [text.replace("CALL", call.format("%x")) for call in (copy, view)]
        yield fault(copy.partition("(")[0], "gives a view of an input away", *calls)
        yield fault(view.partition("(")[0], "gives a copy away for a view", *calls[::-1])


_READS = (
    ("aten.mul.Tensor", "(%WHICH, 2.0)"),
    ("aten.neg.default", "(%WHICH)"),
    ("aten.exp.default", "(%WHICH)"),
    ("aten.add.Tensor", "(%WHICH, %x)"),
    ("aten.cumsum.default", "(%WHICH, 0)"),
    ("aten.relu.default", "(%WHICH)"),
)
_OTHERS = ("add_.Tensor(%b, %x)", "copy_.default(%b, %x)", "mul_.Tensor(%b, 3.0)")


def other_storages() -> Iterator[MemoryFault]:
    """An operand from another storage, to which some node wrote."""
    for op, arguments in _READS:
        for write in _OTHERS:
            for other in ("b", "c"):
                text = f"""ir "Places" {{
                  input %x: f32[4, 4]
                  %a: f32[4, 4] = aten.sin.default(%x)
                  %b: f32[4, 4] = aten.cos.default(%x)
                  %c: f32[4, 4] = aten.{write}
                  %d: f32[4, 4] = {op}{arguments}
                  return %d, %a, %c
                }}"""
                what = f"reads what {write} wrote to, as %{other}"
                yield fault(op, what, text.replace("WHICH", "a"), text.replace("WHICH", other))


def equal_inputs() -> Iterator[MemoryFault]:
    """A write into another input or buffer of equal value."""
    for first, second in (("weight @b", "weight @c"), ("input %y", "input %z")):
        one, two = first.split()[1], second.split()[1]
        for op in ("add_.Tensor(OWN, %x)", "fill_.Scalar(OWN, 1.5)", "copy_.default(OWN, %x)"):
            text = f"""ir "Places" {{
              {first}: f32[4, 4]
              {second}: f32[4, 4]
              input %x: f32[4, 4]
              %w: f32[4, 4] = aten.{op}
              mutate OWN = OWN
              return %x
            }}"""
            texts = [text.replace("OWN", name) for name in (one, two)]
            yield fault(f"aten.{op.partition('(')[0]}", f"writes {two}, equal to {one}", *texts)


def final_states() -> Iterator[MemoryFault]:
    """Another value left in a buffer or an input, or none."""
    for head, name in (("weight @n", "@n"), ("input %y", "%y")):
        for op in ("sin", "exp", "neg", "sigmoid"):
            text = f"""ir "Places" {{
              {head}: f32[4, 4]
              input %x: f32[4, 4]
              %p: f32[4, 4] = aten.{op}.default(%x)
              %q: f32[4, 4] = aten.cos.default(%x)
              END
              return %p, %q
            }}"""
            right = text.replace("END", f"mutate {name} = %p")
            others = {
                f"leaves %q in {name}": f"mutate {name} = %q",
                f"leaves %x in {name}": f"mutate {name} = %x",
                f"leaves {name} as it was": "",
            }
            for what, end in others.items():
                yield fault(f"aten.{op}.default", what, right, text.replace("END", end))
    text = """ir "Places" {{
      weight @m: f32[4, 4]
      weight @n: f32[4, 4]
      input %x: f32[4, 4]
      %p: f32[4, 4] = aten.sin.default(%x)
      %q: f32[4, 4] = aten.cos.default(%x)
      mutate @m = {}
      mutate @n = {}
      return %x
    }}"""
    right = text.format("%p", "%q")
    for values in (("%q", "%p"), ("%p", "%p"), ("%q", "%q"), ("%p", "@n"), ("@m", "%q")):
        yield fault("mutate", f"leaves {', '.join(values)}", right, text.format(*values))


def _spilling(op: str, position: int) -> Any:
    """A kernel that writes what it must, and one element beside it."""
    _, name, overload = op.split(".")
    operator = getattr(getattr(torch.ops.aten, name), overload)

    def kernel(inputs: Sequence[torch.Tensor], attributes: Any) -> list[torch.Tensor]:
        made = operator(*inputs, **dict(attributes))
        inputs[0].as_strided((16,), (1,), 0)[position] = 7.0
        return [made]

    return op, kernel


def spills() -> Iterator[MemoryFault]:
    """A kernel that writes beside its view."""
    places = {"f32[4]": (4, 15), "f32[2, 4]": (8, 13), "f32[4, 2]": (2, 7)}
    for base in BASES:
        for kind, positions in places.items():
            for write in ("copy_", "add_"):
                for position in positions:
                    text = _written(base, kind, VIEWS[kind][0], write)
                    what = f"writes element {position} beside a {kind} of {base.name}"
                    op = WRITES[write][0]
                    yield fault(op, what, text, text, _spilling(op, position))


PLACES: list[MemoryFault] = [
    *wrong_views(),
    *copies_for_views(),
    *shared_results(),
    *other_storages(),
    *equal_inputs(),
    *final_states(),
    *spills(),
]
