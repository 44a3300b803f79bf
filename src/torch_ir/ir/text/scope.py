"""Names inside one graph: the definitions that references are short for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch_ir.ir.queries import names_by_key
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.text.lexer import sigil, spell_int, word
from torch_ir.ir.text.value_text import spell_type


class NameScope:
    """The definitions of one graph; where a name is defined twice, the first one counts.

    Attributes:
        values: Graph inputs and results of nodes, by name.
        external: Weights and constants by each name under which nodes use them.
        keys: Weights and constants by key, under the first of their names.
    """

    def __init__(
        self,
        values: Iterable[TensorMeta],
        weights: Iterable[TensorMeta],
        constants: Mapping[str, Constant],
        names: Mapping[str, str],
    ):
        self.values: dict[str, TensorMeta] = {}
        for meta in values:
            self.values.setdefault(meta.name, meta)
        self.external: dict[str, TensorMeta] = {}
        self.keys: dict[str, TensorMeta] = {}
        self._key_of: dict[str, str] = {}
        uses = names_by_key(dict(sorted(names.items())))
        for meta in weights:
            self._define(meta.name, meta, uses)
        for key, constant in constants.items():
            self._define(key, constant, uses)

    def _define(
        self, key: str, value: TensorMeta | Constant, uses: Mapping[str, list[str]]
    ) -> None:
        if key in self.keys:
            return
        names = uses.get(key, [key])
        for name in names:
            self.external.setdefault(name, TensorMeta(name, value.shape, value.dtype))
        self.keys[key] = TensorMeta(names[0], value.shape, value.dtype)
        self._key_of.setdefault(names[0], key)

    def name(self, name: str) -> str:
        """Spell a reference to a value by its name alone."""
        key = self._key_of.get(name)
        return sigil("%", name) if key is None or name in self.values else sigil("@", key)

    def reference(self, meta: TensorMeta) -> str:
        """Spell a reference to a value: its name if that suffices, else all that it claims."""
        own = self.values.get(meta.name)
        if own is not None:
            if own is meta or own == meta:
                return sigil("%", meta.name)
        else:
            key = self._key_of.get(meta.name)
            if key is not None and self.keys[key] == meta:
                return sigil("@", key)
            if self.external.get(meta.name) == meta:
                return sigil("%", meta.name)
        text = f"{sigil('%', meta.name)}: {spell_type(meta.dtype, meta.shape)}"
        return text + spell_producer(meta, None, 0)

    def find(self, mark: str, name: str) -> TensorMeta | None:
        """Find the definition that a short reference means."""
        if mark == "@":
            return self.keys.get(name)
        return self.values.get(name) or self.external.get(name)


def spell_producer(meta: TensorMeta, node: str | None, index: int) -> str:
    """Spell ``from split#1``, less what is implied: result ``index`` of ``node``."""
    number = "" if meta.producer_output_idx == index else f"#{spell_int(meta.producer_output_idx)}"
    if meta.producer_node == node:
        return f" {number}" if number else ""
    producer = "none" if meta.producer_node is None else word(meta.producer_node)
    return f" from {producer}{number}"
