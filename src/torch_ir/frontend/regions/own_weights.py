"""Parameters that only one layer uses: its operator in the model's trace is not given them.

Most parameters of a large model are such, and torch's trace costs a millisecond for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from torch_ir.frontend.attributes import tensor_meta
from torch_ir.ir import IR, TensorMeta
from torch_ir.ir.builder import Names

if TYPE_CHECKING:
    from torch_ir.frontend.regions.fingerprint import MemberCall
    from torch_ir.frontend.regions.opaque import Site


def with_unseen(sites: Mapping[str, Site], model: nn.Module, root: MemberCall) -> dict[str, Site]:
    """Return the sites with the labels of the parameters that nothing but each of them uses.

    Args:
        sites: The sites by path.
        model: The model.
        root: The record of the model's call.
    """
    given = {leaf.device for leaf in root.given[1] if isinstance(leaf, torch.Tensor)}
    if {parameter.device for parameter in model.parameters()} != given or len(given) > 1:
        return dict(sites)  # those that are left would show another device
    names = Counter(map(id, dict(model.named_parameters(remove_duplicate=False)).values()))

    def unseen(site: Site) -> frozenset[str]:
        record = site.record
        shown = {*root.origins, *map(id, record.results[1])}
        return frozenset(
            [
                label
                for label, (tensor, is_written) in record.taken.items()
                if label.startswith("own ") and record.parent is root and not is_written
                if names[id(tensor)] == 1 and id(tensor) not in shown
            ]
        )

    return {path: replace(site, unseen=unseen(site)) for path, site in sites.items()}


@contextmanager
def set_aside(model: nn.Module, sites: Iterable[Site]) -> Generator[None]:
    """Let unseen parameters be plain attributes within a ``with`` block."""
    before: dict[nn.Module, dict[str, nn.Parameter | None]] = {}
    try:
        for site in sites:
            for path in site.unseen_paths:
                place, _, name = path.rpartition(".")
                owner = model.get_submodule(place)
                held = vars(owner)["_parameters"]
                before.setdefault(owner, dict(held))
                vars(owner)[name] = held.pop(name)
        yield
    finally:
        for owner, parameters in before.items():
            held = vars(owner)["_parameters"]
            for name in parameters.keys() - held:
                del vars(owner)[name]
            held.clear()
            held.update(parameters)


def with_own_weights(
    ir: IR, sites: Iterable[Site], model: nn.Module
) -> tuple[IR, dict[str, TensorMeta]]:
    """Return the program with the unseen parameters as weights, in the model's order.

    The second value has each of them by its path.
    """
    names, places = Names.of(ir), dict(model.named_parameters())
    unseen = {path for site in sites for path in site.unseen_paths}
    added = {
        path: tensor_meta(names.fresh(f"p_{path.replace('.', '_')}"), tensor)
        for path, tensor in places.items()
        if path in unseen
    }
    rank = {path: number for number, path in enumerate(places)}
    weights = [*ir.weights, *(meta.replace(name=path) for path, meta in added.items())]
    mapping = {**ir.weight_name_mapping, **{meta.name: path for path, meta in added.items()}}
    return ir.replace(
        weights=sorted(weights, key=lambda meta: rank.get(meta.name, len(rank))),
        weight_name_mapping=dict(
            sorted(mapping.items(), key=lambda pair: rank.get(pair[1], len(rank)))
        ),
    ), added
