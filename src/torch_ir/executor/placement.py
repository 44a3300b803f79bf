"""The placement of programs: modules, functions and weights on devices of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import torch

from torch_ir.errors import CompileError, ExecutionError, did_you_mean, first_line, raised_as
from torch_ir.executor.state import written_buffers
from torch_ir.ir import IR, Attribute, Constant, Device, FunctionRef, OpNode, TensorMeta
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.builder import Builder, with_attributes
from torch_ir.ir.diagnostics import Diagnostic, compile_error
from torch_ir.ir.node import module_of
from torch_ir.ir.values import RUN_DEVICE, map_attribute
from torch_ir.passes.inline import inline_functions

Place: TypeAlias = str | int | torch.device
Placement: TypeAlias = Place | Mapping[str, Place]
"""A device, or devices by module path, function or weight, as in a ``device_map``."""


def as_device(place: object) -> torch.device:
    """Return a device; a number is that of the accelerator, or CUDA's.

    Raises:
        CompileError: There is no such device.

    Example:
        >>> as_device("cuda:1"), as_device(torch.device("cpu"))
        (device(type='cuda', index=1), device(type='cpu'))
    """
    if place == "disk":
        raise CompileError(
            "no part of a program runs on 'disk'",
            remedy='Give memory="2GB" to read weights from their files while the program runs.',
        )
    if isinstance(place, int) and not isinstance(place, bool):
        found = torch.accelerator.current_accelerator()
        place = f"{found.type if found is not None else 'cuda'}:{place}"
    with raised_as(
        lambda error: CompileError(f"{place!r:.80} is no device here: {first_line(error)}")
    ):
        device = torch.device(cast(str, place))
    if device.type == "cpu":
        return torch.device("cpu")
    is_one_of_many = ":" not in str(device) and device.type != "meta"
    return torch.device(device.type, 0) if is_one_of_many else device


def one_device(placement: Placement | None) -> torch.device | None:
    """Return the device of a placement that names one, the CPU for none; None if there are more.

    Raises:
        ExecutionError: There is no such device.
    """
    places = placement.values() if isinstance(placement, Mapping) else [placement or "cpu"]
    found = {as_device(place) for place in places}
    return found.pop() if len(found) == 1 else None


def placed_or_on(
    ir: IR,
    placement: Placement | None,
    device: torch.device | str | None,
    weights: Mapping[str, object],
) -> PlacedProgram:
    """Return a program where it is asked to run, or else where its weights are.

    Raises:
        ExecutionError: As :func:`placed`.
        CompileError: As :func:`as_device`, or the weights are on several.
    """
    if placement is not None:
        return placed(ir, placement)
    if device is None:
        return PlacedProgram(ir, device_of_weights(weights) or torch.device("cpu"))
    return PlacedProgram(ir, as_device(device))


def device_of_weights(tensors: Mapping[str, object], what: str = "weights") -> torch.device | None:
    """Return the one device of some weights beside the CPU; the CPU if all are there.

    Args:
        tensors: The weights by name.
        what: What they are.

    Raises:
        CompileError: They are on several.
    """
    first: dict[torch.device, str] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            first.setdefault(tensor.device, name)
    others = [device for device in first if device.type not in ("cpu", "meta")]
    if len(others) > 1:
        one, other = [f"{first[device]!r} is on {device}" for device in others[:2]]
        raise compile_error(
            [
                Diagnostic(
                    "several-devices",
                    f"the {what} are on several devices: {one}, {other}",
                    remedy="Say with placement= what runs where: a device, or one for each module "
                    "path or weight.",
                )
            ],
            None,
        )
    first.pop(torch.device("meta"), None)
    return next(iter(others or first), None)


@dataclass(frozen=True)
class PlacedProgram:
    """A program whose nodes have their devices, and copy what lies on others.

    Attributes:
        ir: The program, with the copies.
        device: Where it runs where nothing is said.
        external: The device of each weight and constant, by the name that nodes use.
        inputs: The device of each input, by name.
    """

    ir: IR
    device: torch.device
    external: Mapping[str, torch.device] = field(default_factory=dict[str, torch.device])
    inputs: Mapping[str, torch.device] = field(default_factory=dict[str, torch.device])

    def moved(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the weights and constants where they are needed; each is moved once."""
        made: dict[tuple[int, torch.device], torch.Tensor] = {}
        found: dict[str, torch.Tensor] = {}
        for name, tensor in values.items():
            device = self.external.get(name, self.device)
            if tensor.device == device or tensor.is_meta or device.type == "meta":
                found[name] = tensor
                continue
            key = id(tensor), device
            if key not in made:
                made[key] = tensor.to(device)
            found[name] = made[key]
        return found


def placed(ir: IR, placement: Placement) -> PlacedProgram:
    r"""Give every node of a program a device, and copy values that cross.

    A node runs where the most specific entry says that names its module path, a function that it
    calls or a weight that it reads; else where its first operand is. What is written in place
    stays in one place, with its views.

    Args:
        ir: The program.
        placement: A device, or devices by the beginnings of module paths and weights, or by
            functions; that of ``""`` is for all others.

    Raises:
        ExecutionError: There is no such device, an entry names nothing in the program, or a weight
            has none.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   weight @up.weight: f32[2]
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.mul.Tensor(%x, @up.weight)
        ...   %y: f32[2] = aten.neg.default(%a)
        ...   return %y
        ... }''')
        >>> program = placed(ir, {"": "cpu", "up": "meta"})
        >>> print(*program.ir.nodes, sep="\n")
        %a: f32[2] = aten.mul.Tensor(%x, %up.weight)
        %to_copy: f32[2] = aten._to_copy.default(%a, device=device("cpu"))
        %y: f32[2] = aten.neg.default(%to_copy)
        >>> program.external, program.inputs
        ({'up.weight': device(type='meta')}, {'x': device(type='meta')})
    """
    if not isinstance(placement, Mapping):
        device = as_device(placement)
        return PlacedProgram(ir, device, inputs=dict.fromkeys(ir.input_names, device))
    devices = {name: as_device(place) for name, place in placement.items()}
    if not devices:
        raise ExecutionError("placement= has no entry", remedy='Write {"": "cpu"} for all.')
    main = devices.get("", next(iter(devices.values())))
    if len(set(devices.values())) == 1:
        _require_known(ir, devices)
        return placed(ir, main)
    key = ("placed", tuple(devices.items()))
    return ir.view(key, lambda: _Placer(_callable_alone(ir, devices), devices, main).program())


def _callable_alone(ir: IR, devices: Mapping[str, torch.device]) -> IR:
    """The program, with calls written out if an entry is for a part of one."""
    paths = {n.location.module for n in ir.nodes if n.functions and n.location is not None}
    inner = any(name.startswith(f"{path}.") for path in paths if path for name in devices)
    return inline_functions(ir) if inner else ir


def _prefixes(path: str) -> Iterable[str]:
    """The beginnings of a path, the longest first, up to that of everything."""
    parts = path.split(".") if path else []
    return (".".join(parts[:end]) for end in range(len(parts), -1, -1))


def _require_known(ir: IR, devices: Mapping[str, torch.device]) -> None:
    """Refuse weights without a device, and entries that name nothing where one is for all.

    A whole ``device_map`` also names modules that call nothing.
    """
    keys = {meta.name: meta.name for meta in ir.weights}
    names = {**keys, **{alias: key for alias, key in ir.weight_aliases.items() if key in keys}}
    covered = {key for name, key in names.items() if any(p in devices for p in _prefixes(name))}
    paths = {n.location.module for _, _, n in ir.walk() if n.location is not None}
    known = {prefix for path in {*paths, *names} for prefix in _prefixes(path)} | {*ir.functions}
    unknown = next((name for name in devices if name and name not in known), None)
    missing = next((key for key in keys if key not in covered), None)
    if unknown is not None and ("" in devices or missing is not None):
        raise ExecutionError(
            f"placement= names {unknown!r}, which is no module path, function or weight",
            remedy=did_you_mean(unknown, known) or "See the module paths in ir's text.",
        )
    if missing is not None and "" not in devices and keys:
        raise ExecutionError(
            f"placement= says no device for the weight {missing!r}",
            remedy='Add an entry for it, or "" for all others.',
        )


class _Placer:
    """One program on its way to several devices."""

    def __init__(self, ir: IR, devices: Mapping[str, torch.device], main: torch.device):
        _require_known(ir, devices)
        self._ir = ir
        self._devices = devices
        self._main = main
        self._builder = Builder(ir)
        self._of: dict[str, torch.device] = {}
        self._copies: dict[tuple[str, torch.device], TensorMeta] = {}
        self._names: dict[str, str] = {}
        self._bodies: dict[tuple[str, torch.device], str] = {}
        self._external = ir.external_values()
        views = [
            name
            for name, (_, value) in self._external.items()
            if isinstance(value, Constant) and value.view is not None
        ]
        self._fixed = {*written_buffers(ir), *views}

    def program(self) -> PlacedProgram:
        """Return the program with its copies."""
        for node in self._ir.nodes:
            self._place(node)
        made = self._builder.finish()
        if self._names:
            own = {key: key for key in self._names.values() if key in self._external}
            names = {**own, **made.weight_name_mapping, **self._names}
            made = made.replace(weight_name_mapping=names)
        external = {name: self._home(name) for name in made.external_values()}
        inputs = {name: self._of.get(name, self._main) for name in made.input_names}
        return PlacedProgram(made, self._main, external, inputs)

    def _place(self, node: OpNode) -> None:
        device = self._device(node)
        inputs = tuple([self._at(meta, device, node) for meta in node.inputs])
        for meta in node.outputs:
            self._of[meta.name] = device
        attrs = {name: self._attribute(value, device) for name, value in node.attrs.items()}
        self._builder.nodes.append(node.replace(inputs=inputs, attrs=attrs))

    # -- devices ----------------------------------------------------------------------------------

    def _device(self, node: OpNode) -> torch.device:
        """Where a node runs: where the memory is that it writes or shows, if it is written."""
        wanted, aliases = self._wanted(node), self._ir.aliases
        shown = (*aliases.sources(node), *(written_tensors(self._ir, node) or ()))
        for root in [root for meta in shown for root in aliases.roots(meta.name)]:
            if not aliases.is_written(root):
                continue
            if root not in self._of and root in self._external:
                self._of[root] = self._said(self._paths(root)) or wanted
            if root in self._of:
                return self._of[root]
        return wanted

    def _wanted(self, node: OpNode) -> torch.device:
        """Where a node would run if it wrote nothing."""
        for name in node.functions:
            if name in self._devices:
                return self._devices[name]
        path = module_of(node)
        weights = [m.name for m in node.inputs if m.name in self._external]
        said = self._said([path, *[key for name in weights for key in self._paths(name)[:1]]])
        if said is not None or "" in self._devices:
            return said or self._main
        return next((self._of[m.name] for m in node.inputs if m.name in self._of), self._main)

    def _paths(self, name: str) -> list[str]:
        """The keys of a weight; none of a constant, which has no place of its own."""
        key = self._key(name)
        aliases = [alias for alias, of in self._ir.weight_aliases.items() if of == key]
        return [] if key in self._ir.constants else [key, *aliases]

    def _key(self, name: str) -> str:
        return self._external[name][0]

    def _said(self, paths: Iterable[str]) -> torch.device | None:
        """The device of the most specific entry for any of some paths; not that for all others."""
        found = [next((p for p in _prefixes(path) if p in self._devices), "") for path in paths]
        best = max(found, key=lambda prefix: len(prefix.split(".")) if prefix else 0, default="")
        return self._devices[best] if best else None

    def _home(self, name: str) -> torch.device:
        """Where a weight or constant lies."""
        if name not in self._of:
            self._of[name] = self._said(self._paths(name)) or self._main
        return self._of[name]

    # -- what crosses -----------------------------------------------------------------------------

    def _at(self, meta: TensorMeta, device: torch.device, node: OpNode) -> TensorMeta:
        """A value on the device of a node that reads it."""
        name = meta.name
        if name not in self._external:
            if self._of.setdefault(name, device) == device:
                return meta
        elif self._home(name) == device:
            return meta
        known = self._copies.get((name, device))
        if known is not None:
            return known
        if name in self._external and name not in self._fixed:
            own = self._builder.names.fresh(f"{name}_{device.type}_{device.index or 0}")
            self._names[own] = self._key(name)
            self._external = {**self._external, own: self._external[name]}
            self._of[own] = device
            made = meta.replace(name=own)
        else:
            arguments = {"self": meta, "device": Device(str(device))}
            types = [(meta.shape, meta.dtype)]
            (made,) = self._builder.emit(
                "aten._to_copy.default", arguments, like=node, results=types
            )
            if self._ir.aliases.is_written(name):  # what it will be is another value
                return made
        self._copies[name, device] = made
        return made

    def _attribute(self, value: Attribute, device: torch.device) -> Attribute:
        """An attribute for a node on a device."""
        if device == self._main:
            return value

        def leaf(item: Attribute) -> Attribute:
            match item:
                case Device(name=name) if name == RUN_DEVICE:
                    return Device(str(device))
                case FunctionRef(name=name):
                    return FunctionRef(self._body(name, device))
                case _:
                    return item

        return map_attribute(value, leaf)

    def _body(self, name: str, device: torch.device) -> str:
        """A function for calls on a device."""
        if (name, device) not in self._bodies:
            body = _on_device(self._ir.functions[name], device)
            own = body is self._ir.functions[name]
            self._bodies[name, device] = name if own else self._builder.add_function(body, name)
        return self._bodies[name, device]


def _on_device(body: IR, device: torch.device) -> IR:
    """A function that makes its tensors on a device."""

    def leaf(item: Attribute) -> Attribute:
        is_run = isinstance(item, Device) and item.name == RUN_DEVICE
        return Device(str(device)) if is_run else item

    builder = Builder(body)
    builder.map_functions(lambda inner: _on_device(inner, device))
    for node in body.nodes:
        moved = with_attributes(node, leaf)
        builder.nodes.append(node if moved == node else moved)
    return builder.finish()
