"""Extraction that traces each distinct layer once.

Every member is run once on tensors without data and its calls are recorded. One of each kind is
exported alone; the model is exported with one operator in place of each, which becomes a call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.export import ExportedProgram

from torch_ir.errors import ConversionError, ExportError, Raised, attempt, did_you_mean, first_line
from torch_ir.frontend.kept_attributes import assigned_buffers, kept_attributes
from torch_ir.frontend.locations import own_line
from torch_ir.frontend.programs import convert_exported_program
from torch_ir.frontend.regions.fingerprint import MemberCall, Watch, own_tensors
from torch_ir.frontend.regions.literals import Literals, is_literal
from torch_ir.frontend.regions.opaque import (
    NAMESPACE,
    Alone,
    ChangedCallError,
    Site,
    opaque,
    without_hooks,
)
from torch_ir.frontend.regions.own_weights import with_own_weights, with_unseen
from torch_ir.ir import IR, Location
from torch_ir.ir.builder import Builder
from torch_ir.ir.functions import LayerRun, add_layer, call_layer, function_of, map_locations
from torch_ir.steps import uncollected
from torch_ir.torch_api import FakeTensorMode, has_hooks_of_all_modules, storage_of
from torch_ir.torch_modes import tracing_for_export

OPAQUE = f"{NAMESPACE}.call.default"
MIN_CALLS = 4
"""A member with fewer calls of torch stays as it is."""


class _MemberBody(NamedTuple):
    """The function of a member.

    Attributes:
        program: The member as a program.
        function: The function that is made of it.
        operands: The label of each operand; the key of a literal.
        literals: How many literals the member has.
    """

    program: IR
    function: IR
    operands: list[str]
    literals: int

    def called_from(self, place: Location) -> IR:
        """The function for calls that have a line of the user's code, or none."""
        return map_locations(self.function, own_line) if place.file else self.function


class Regions:
    """The members of a model that become calls of functions.

    Args:
        model: The model.
        wanted: Paths of members, or ``"auto"`` for those of its lists and sequences.
        export: Exports a model for arguments.
        mode: The mode of the tensors without data that stand for its parameters.

    Attributes:
        found: What became of each member: the name of its function, or why it has none.
    """

    def __init__(
        self,
        model: nn.Module,
        wanted: str | Sequence[str],
        export: Callable[..., ExportedProgram],
        mode: FakeTensorMode,
    ):
        self._model = model
        self._export = export
        self._mode = mode
        self._paths = [*_members(model)] if wanted == "auto" else _named(model, wanted)
        self._bodies: dict[tuple[str, tuple[int, ...]], _MemberBody | str] = {}
        self.found: dict[str, dict[str, str]] = {path: {} for path in self._paths}

    def extract(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> IR | None:
        """Extract the model; None where it has to be extracted whole.

        Args:
            args: Positional arguments, without data.
            kwargs: Keyword arguments, without data.
            name: The name of the model.
        """
        with uncollected():
            made = attempt(self._extract, args, kwargs, name)
        if not isinstance(made, Raised):
            return made
        if isinstance(made.error, ChangedCallError):
            why = f"{made.error} is called with other arguments where layers are not run"
        else:  # the user's code, which flat extraction judges
            why = f"it was not traced alone: {first_line(made.error)}"
        self._all_flat(why)
        return None

    def _extract(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> IR | None:
        modules = {"": self._model} | {p: self._model.get_submodule(p) for p in self._paths}
        watch, setting = _watched(modules, self._mode, args, kwargs)
        sites: dict[str, Site] = {}
        kinds: dict[str, str] = {}
        for group in self._kinds(watch, setting):
            if isinstance(self._body(group[0]), str):
                self._flat(group, cast(str, self._body(group[0])))
                continue
            sites |= {site.record.path: site for site in group}
            kinds |= {site.record.path: group[0].record.path for site in group}
        if not sites:
            return None
        root = watch.records[""][0]

        def outer_program(sites: Mapping[str, Site]) -> ExportedProgram | None:
            again = Watch()
            with opaque(self._model, sites, again), again.over(modules):
                outer = self._export(self._model, args, kwargs)
            one, other = (r.digest(frozenset(sites)) for r in (root, again.records[""][0]))
            return outer if one == other else None

        slim = with_unseen(sites, self._model, root)
        outer = attempt(outer_program, slim)
        if isinstance(outer, Raised) or outer is None:  # it may ask for its first parameter
            slim, outer = sites, outer_program(sites)
        if outer is None:
            self._all_flat("the model does something else where its layers are not run")
            return None
        firsts = {path: sites[first] for path, first in kinds.items()}
        ir = convert_exported_program(
            outer, name, place=lambda ir, known: self._placed(ir, known, slim, firsts)
        )
        for node in ir.nodes:  # equal functions are one now
            if node.location and node.location.module in sites and node.functions:
                self.found[node.location.module] = {"function": node.functions[0]}
        for path in [path for path in self.found if _is_in_any(path, sites)]:
            del self.found[path]  # its layer is a call
        return ir

    # -- kinds ------------------------------------------------------------------------------------

    def _flat(self, sites: Sequence[Site], reason: str) -> None:
        for site in sites:
            self.found[site.record.path] = {"flat": reason}

    def _all_flat(self, reason: str) -> None:
        for path in self._paths:
            self.found[path] = {"flat": reason, **self.found.get(path, {})}

    def _kinds(self, watch: Watch, setting: Collection[str]) -> Iterator[list[Site]]:
        """The members that do the same, the outermost first."""
        names = own_tensors(self._model)
        inside: set[str] = set()
        groups: dict[str, list[Site]] = {}
        for path in self._paths:
            found = _site(watch.records.get(path, []), names)
            found = "it sets a buffer to another tensor" if path in setting else found
            if isinstance(found, str):
                self.found[path] = {"flat": found}
            else:
                groups.setdefault(found.record.digest(), []).append(found)
        for group in sorted(groups.values(), key=lambda g: g[0].record.path.count(".")):
            left = [site for site in group if not _is_in_any(site.record.path, inside)]
            if len(left) == 1:
                self._flat(left, "no other member does the same")
            elif left:
                inside |= {site.record.path for site in left}
                yield left

    # -- functions --------------------------------------------------------------------------------

    def _body(self, site: Site, made: tuple[int, ...] | None = None) -> _MemberBody | str:
        """The function of a member and the labels of its operands, or why it has none."""
        made = site.made if made is None else made
        key = site.record.path, made
        if key not in self._bodies:
            self._bodies[key] = self._traced(site, made)
        return self._bodies[key]

    def _traced(self, site: Site, made: tuple[int, ...]) -> _MemberBody | str:
        path = site.record.path
        member = self._model.get_submodule(path)
        alone = Alone(member, site, made)
        watch = Watch(alone.stand_ins)
        inside = {p: self._model.get_submodule(p) for p in self._paths if p.startswith(f"{path}.")}
        with without_hooks(member), watch.over({"": alone, path: member, **inside}):
            exported = self._export(alone, alone.example_inputs, {})
        if watch.records[path][0].digest() != site.record.digest():
            changed = site.record.difference(watch.records[path][0])
            return f"traced alone, it does something else: {changed}"
        ir = convert_exported_program(exported, "")
        labels = dict(zip(ir.input_names, alone.arguments, strict=True))
        run = LayerRun(0, ir.nodes, path)
        for meta in run.operands:
            if meta.name not in labels:
                key = ir.external_values()[meta.name][0]
                label = alone.label_of(key)
                constant = ir.constants.get(key)
                is_shown = constant is not None and constant.view is None and is_literal(key)
                if label is None and (site.record.objects or not is_shown):
                    return f"it holds a constant of its own, {key!r}"
                labels[meta.name] = label or key
        values = {meta.name for node in ir.nodes for meta in node.outputs}
        if not values.issuperset(ir.output_names) or len(set(ir.output_names)) < len(made):
            return "it gives a value that it does not make"
        return _MemberBody(
            ir,
            function_of(ir, run, ir.graph_outputs),
            [labels[meta.name] for meta in run.operands],
            sum(map(is_literal, exported.constants)),
        )

    def _placed(
        self,
        ir: IR,
        known: Mapping[str, torch.Tensor],
        sites: Mapping[str, Site],
        firsts: Mapping[str, Site],
    ) -> tuple[IR, dict[str, torch.Tensor]]:
        """The program with calls of functions in place of the operators of members."""
        ir, own = with_own_weights(_outside_regions(ir), sites.values(), self._model)
        builder, literals = Builder(ir), Literals(ir)
        needed = {meta.name for node in ir.nodes for meta in node.inputs}.union(ir.output_names)
        functions: dict[tuple[str, tuple[int, ...], bool], str] = {}
        for node in ir.nodes:
            if node.op_type != OPAQUE:
                literals.meet(node)
                builder.keep(node)
                continue
            path = json.loads(node.attrs["results"])[0]
            site, first = sites[path], firsts[path]
            results = [meta for meta in node.outputs if meta.name in needed]
            made = tuple([site.made[meta.producer_output_idx] for meta in results])
            body = self._body(first, made)
            if isinstance(body, str):
                raise ConversionError(body)
            place = replace(own_line(node.location or Location()), module=path)
            key = first.record.path, made, bool(place.file)
            if key not in functions:
                functions[key] = add_layer(builder, body.called_from(place))
            given = dict(zip(site.operands, node.tensors("operands"), strict=True))
            given |= {label: own[name] for name, label in site.unseen_paths.items()}
            literals.enter(body.literals)
            operands = [
                given[label]
                if label in given
                else literals.add(body.program, label, first.record.path, path)
                for label in body.operands
            ]
            call_layer(builder, functions[key], operands, results, place)
        return literals.placed(builder.finish(), known)


def _watched(
    modules: Mapping[str, nn.Module], mode: FakeTensorMode, args: Any, kwargs: Any
) -> tuple[Watch, set[str]]:
    """Run a model, whose path is empty; also return the paths of what sets a buffer."""
    model, watch = modules[""], Watch(mode=mode)
    with (
        kept_attributes(model, but_objects=True),
        assigned_buffers(model) as assigned,
        watch.over(modules),
        tracing_for_export(),
        mode,
    ):
        model(*args, **kwargs)
    for (module, name), before in assigned.items():
        vars(module)["_buffers"][name] = before
    setting = {module for module, _ in assigned}
    return watch, {p for p, m in modules.items() if not setting.isdisjoint(m.modules())}


def _outside_regions(ir: IR) -> IR:
    """Refuse calls of members in functions, which only a region under autocast has."""
    for path, _, node in ir.walk():
        if path and node.op_type == OPAQUE:
            member = json.loads(str(node.attrs["results"]))[0]
            raise ConversionError(f"{member} is called in a region under autocast")
    return ir


def _members(model: nn.Module) -> Iterator[str]:
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            yield from [f"{path}.{name}" if path else name for name, _ in module.named_children()]


def _named(model: nn.Module, paths: Sequence[str]) -> list[str]:
    known = dict(model.named_modules())
    for path in paths:
        if path not in known or not path:
            raise ExportError(
                f"the model has no module {path!r}", remedy=did_you_mean(path, known)
            )
    return [*dict.fromkeys(paths)]


def _is_in_any(path: str, others: Collection[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:end]) in others for end in range(1, len(parts)))


def _site(records: Sequence[MemberCall], names: Mapping[int, str]) -> Site | str:
    """How a member can be one operator, or why it cannot."""
    if has_hooks_of_all_modules():
        return "hooks are registered for all modules"
    if len(records) != 1:
        return f"it is called {len(records)} times" if records else "it is never called"
    (record,) = records
    if record.calls < MIN_CALLS:
        return "it is small"
    if record.leaks:
        return "a value that it makes is used after it without being its result"
    sources: dict[str, str] = {}
    for label, (tensor, _) in record.taken.items():
        source = label.partition(" ")[2]
        if label.startswith("foreign "):
            if id(tensor) not in names:
                return "it uses a tensor that it is not given"
            source = names[id(tensor)]
        sources[label] = source
    made: list[int] = []
    taken = {storage_of(tensor) for tensor, _ in record.taken.values()}
    for position, leaf in enumerate(record.results[1]):
        if not isinstance(leaf, torch.Tensor):
            if type(leaf) not in _PLAIN and not any(leaf is given for given in record.given[1]):
                return f"it gives a {type(leaf).__name__}"
        elif id(leaf) not in record.origins:
            if storage_of(leaf) in taken:
                return "it gives a view of what it takes, or of another result"
            taken.add(storage_of(leaf))
            made.append(position)
    return Site(record, sources, tuple(made)) if made else "it makes nothing"


_PLAIN = (bool, int, float, complex, str, type(None))
