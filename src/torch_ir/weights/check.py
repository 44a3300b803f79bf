"""The check that tensors are those that an IR names: every fault, in one error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from torch_ir.arguments import public
from torch_ir.errors import WeightLoadError, did_you_mean
from torch_ir.ir.graph import IR
from torch_ir.ir.queries import names_by_key
from torch_ir.ir.symbols import Dim
from torch_ir.ir.tensor import Constant, TensorMeta, type_text
from torch_ir.ir.values import dtype_name
from torch_ir.torch_api import have_equal_bytes

SHOWN_PER_KIND = 10
KINDS = (
    "missing",
    "unexpected",
    "wrong shape",
    "wrong dtype",
    "without values",
    "not a tensor",
    "tied but different",
)


@public
def check_weights(
    ir: IR,
    weights: Mapping[str, torch.Tensor],
    *,
    strict: bool = True,
    constants: Mapping[str, torch.Tensor] | None = None,
    source: str = "",
) -> dict[str, torch.Tensor]:
    """Return the tensor for each weight of an IR, checked for shape, dtype and having values.

    A tied weight may be given under any of its keys, or under several with the same values. A key
    of ``ir.constants`` may be given too and then stands in for the value in the IR. No data is
    read but that of tied weights given twice.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key.
        strict: Also refuse a tensor that the IR does not name.
        constants: Tensors for keys that ``weights`` lacks: non-persistent buffers and plain
            tensor attributes.
        source: Where the weights are from, for the message.

    Returns:
        A tensor for each key of ``ir.weights``, and for each key of ``ir.constants`` that was
        given.

    Raises:
        WeightLoadError: A tensor is missing, unexpected, of a wrong shape or dtype, or without
            values; all such faults are listed.

    Example:
        >>> ir = IR([], [], [], [TensorMeta("fc.weight", (2, 3), "float32")], model_name="Net")
        >>> list(check_weights(ir, {"fc.weight": torch.ones(2, 3)}))
        ['fc.weight']
        >>> check_weights(ir, {"fc.weigth": torch.ones(2, 3)})
        Traceback (most recent call last):
        ...
        torch_ir.errors.WeightLoadError: the weights do not fit 'Net': 1 missing, 1 unexpected
            missing: 'fc.weight' f32[2, 3]. Did you mean fc.weigth?
            unexpected: 'fc.weigth' f32[2, 3]
        Give the state_dict of the model that the IR was extracted from.
    """
    for given in (weights, {} if constants is None else constants):
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            kind = type(given).__name__
            raise WeightLoadError(f"weights are a mapping of names to tensors, got {kind}")
    check = _Check(ir, weights, constants or {})
    check.find_weights()
    check.find_constants()
    if strict:
        check.find_unexpected()
    if check.faults:
        raise check.error(source)
    return check.resolved


@dataclass
class _Check:
    """One comparison of tensors with an IR, and what it has found so far."""

    ir: IR
    weights: Mapping[str, torch.Tensor]
    constants: Mapping[str, torch.Tensor]
    resolved: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    faults: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    missing: list[TensorMeta] = field(default_factory=list[TensorMeta])

    def find_weights(self) -> None:
        aliases = names_by_key(self.ir.weight_aliases)
        for meta in self.ir.weights:
            given = list(self._given(meta.name, *aliases.get(meta.name, ())))
            if given:
                self._take(meta.name, meta, given)
            else:
                self.missing.append(meta)
                self.faults.append(("missing", f"{meta.name!r} {type_text(meta)}"))

    def find_constants(self) -> None:
        for key, constant in self.ir.constants.items():
            if given := list(self._given(key)):
                self._take(key, constant, given)

    def find_unexpected(self) -> None:
        for key in sorted(set(self.weights) - self._known_keys(), key=str):
            self.faults.append(("unexpected", f"{key!r} {_found(self.weights[key])}"))

    def _known_keys(self) -> set[str]:
        weights = {meta.name for meta in self.ir.weights}
        return weights | set(self.ir.weight_aliases) | set(self.ir.constants)

    def _given(self, *keys: str) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors given for any of the keys; ``weights`` goes before ``constants``."""
        for source in (self.weights, self.constants):
            found = [(key, source[key]) for key in keys if key in source]
            if found:
                yield from found
                return

    def _take(
        self, key: str, meta: TensorMeta | Constant, given: list[tuple[str, torch.Tensor]]
    ) -> None:
        for given_key, tensor in given:
            fault = _tensor_fault(meta, tensor)
            if fault:
                kind, text = fault
                self.faults.append((kind, f"{given_key!r}: {text}"))
                return
        (first, self.resolved[key]), *others = given
        for other, tensor in others:
            if not _same_values(self.resolved[key], tensor):
                text = f"{first!r} and {other!r} are one weight, but their values differ"
                self.faults.append(("tied but different", text))

    # -- the error -------------------------------------------------------------------------------

    def error(self, source: str) -> WeightLoadError:
        counts = Counter(kind for kind, _ in self.faults)
        summary = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if kind in counts)
        where = f" in {source}" if source else ""
        return WeightLoadError(
            f"the weights{where} do not fit {self.ir.model_name!r}: {summary}",
            picture="\n".join(line for kind in KINDS for line in self._lines(kind)),
            remedy=" ".join(self._remedies()),
        )

    def _lines(self, kind: str) -> Iterator[str]:
        texts = [text for of_kind, text in self.faults if of_kind == kind]
        for index, text in enumerate(texts[:SHOWN_PER_KIND]):
            hint = self._closest(self.missing[index].name) if kind == "missing" else ""
            yield f"{kind}: {text}{hint}"
        if len(texts) > SHOWN_PER_KIND:
            yield f"{kind}: and {len(texts) - SHOWN_PER_KIND} more"

    def _closest(self, key: str) -> str:
        hint = did_you_mean(key, set(map(str, self.weights)) - self._known_keys())
        return f". {hint}" if hint else ""

    def _remedies(self) -> Iterator[str]:
        yield "Give the state_dict of the model that the IR was extracted from."
        if prefix := _common_prefix([meta.name for meta in self.missing], self.weights):
            yield f"Its keys are all there behind {prefix!r}: remove that prefix."
        outside = [
            meta.name for meta in self.missing if self._may_be_outside_state_dict(meta.name)
        ]
        if outside:
            shown = ", ".join(map(repr, outside[:SHOWN_PER_KIND]))
            more = ", ..." if len(outside) > SHOWN_PER_KIND else ""
            yield (
                "A state_dict has no non-persistent buffers and no plain tensor attributes: "
                f"give such values with constants= (--constants) for {shown}{more}."
            )

    def _may_be_outside_state_dict(self, key: str) -> bool:
        """Whether torch.export's name says buffer or constant, which may be non-persistent."""
        names = [name for name, mapped in self.ir.weight_name_mapping.items() if mapped == key]
        return any(name.startswith(("b_", "c_")) for name in names)


def _tensor_fault(meta: TensorMeta | Constant, tensor: object) -> tuple[str, str] | None:
    kind, where = "", ""
    if not isinstance(tensor, torch.Tensor):
        kind = "not a tensor"
    elif tensor.shape != meta.shape and not _is_sized(tensor, meta.shape):
        kind = "wrong shape"
    elif dtype_name(tensor.dtype, strict=False) != meta.dtype:
        kind = "wrong dtype"
    elif tensor.is_meta:
        kind, where = "without values", " on the meta device"
    return (kind, f"expected {type_text(meta)}, found {_found(tensor)}{where}") if kind else None


def _is_sized(tensor: torch.Tensor, shape: Sequence[Dim]) -> bool:
    """Whether a tensor has the sizes of a shape that are known."""
    return len(shape) == tensor.ndim and all(
        want == got for want, got in zip(shape, tensor.shape, strict=True) if isinstance(want, int)
    )


def _found(tensor: object) -> str:
    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__}"
    return type_text(tensor)


def _same_values(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype have the same bits; so NaN equals NaN."""
    if left is right or (
        left.data_ptr() == right.data_ptr() and left.stride() == right.stride() and left.numel()
    ):
        return True
    return have_equal_bytes(left, right)


def _common_prefix(missing: list[str], given: Iterable[str]) -> str:
    """What stands before every missing key among the keys given: ``"module."``; or nothing."""
    keys = set(map(str, given))
    if not missing:
        return ""
    prefixes = {key.removesuffix(missing[0]) for key in keys if key.endswith("." + missing[0])}
    for prefix in sorted(prefixes):
        if all(prefix + key in keys for key in missing):
            return prefix
    return ""
