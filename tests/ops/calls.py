"""Calls of operators with made-up arguments, compared with what the tables of ops say of them.

``python -m ops.calls ATTEMPTS PART PARTS FILE`` calls in children, as some kernels abort on
arguments that they do not expect.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torch_ir.infer.resolve import resolve_operator
from torch_ir.ops.aliases import ITSELF, Sharing, sharing
from torch_ir.ops.effects import effects
from torch_ir.ops.schema import Argument, Schema, known_operators, lookup
from torch_ir.torch_api import overload

SHAPES = (
    *((), (1,), (3,), (0,)),
    *((3, 3), (3, 3), (1, 3), (3, 1), (2, 3), (0, 3)),
    *((2, 3, 3), (3, 3, 3), (1, 1, 1), (2, 1, 3)),
    *((1, 2, 4, 4), (2, 2, 3, 3), (3, 3, 3, 3), (1, 1, 1, 1), (2, 0, 3, 3)),
    (1, 2, 3, 3, 3),
)
DTYPES = (
    *(torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16),
    *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64),
)
LAYOUTS = ("contiguous", "contiguous", "transposed", "expanded", "sliced", "channels_last", "lazy")
TEXTS = {
    "equation": ("ij->ij", "ij->ji", "ii->i", "i->i", "ij,jk->ik", "ij", "...->...", "->"),
    "indexing": ("ij", "xy"),
    "mode": ("constant", "reflect", "replicate", "circular", "reduced", "complete", "max"),
    "reduce": ("sum", "mean", "amax", "prod", "add"),
    "rounding_mode": ("trunc", "floor"),
    "UPLO": ("L", "U"),
    "norm": ("forward", "backward", "ortho"),
    "ord": ("fro", "nuc"),
    "approximate": ("none", "tanh"),
    "side": ("left", "right"),
    "driver": ("gelsy", "gelsd"),
    "reduction": ("sum", "mean"),
    "padding": ("valid", "same"),
}
MEMORY_FORMATS = (
    torch.contiguous_format,
    torch.preserve_format,
    torch.channels_last,
    torch.channels_last_3d,
)


class Maker:
    """Arguments for one overload, other ones at each call but the same in every process."""

    def __init__(self, schema: Schema, attempt: int):
        self.random = random.Random(f"{schema.op_type} {attempt}")
        self.schema = schema
        pick = self.random.choice
        self.shape, self.dtype, self.layout = pick(SHAPES), pick(DTYPES), pick(LAYOUTS)
        self.uniform = self.random.random() < 0.6

    def arguments(self) -> dict[str, Any]:
        """Every argument that is given, by name."""
        made: dict[str, Any] = {}
        for argument in self.schema.arguments:
            if argument.default is not None and self.random.random() < 0.4:
                continue
            made[argument.name] = self._argument(argument)
        return made

    def _argument(self, argument: Argument) -> Any:
        if argument.is_optional and self.random.random() < 0.3:
            return None
        if argument.takes_tensor_list:
            count = self.random.choice((1, 2, 2, 3))
            optional = argument.type.startswith("Tensor?[")
            return [
                None if optional and self.random.random() < 0.2 else self._tensor(argument.name)
                for _ in range(count)
            ]
        if argument.takes_tensor:
            return self._tensor(argument.name)
        return self._plain(argument)

    def _tensor(self, name: str) -> torch.Tensor:
        pick = self.random.choice
        shape, dtype, layout = self.shape, self.dtype, self.layout
        if not self.uniform and name != "self":
            rows, columns = (*shape[:1], 3)[0], (*shape[-1:], 3)[0]
            channels = shape[1] if len(shape) > 1 else 3
            shape = pick((shape, shape, (rows,), (columns,), (channels,), (), pick(SHAPES)))
            dtype = pick((dtype, dtype, dtype, torch.int64, torch.bool, torch.float32))
            layout = pick((layout, "contiguous"))
        if name.startswith("ind") or name == "target":
            dtype = torch.int64
        return tensor(shape, dtype, layout, self.random.randrange(1 << 30))

    def _plain(self, argument: Argument) -> Any:
        pick = self.random.choice
        kind = argument.type.removesuffix("?")
        rank = len(self.shape)
        match kind:
            case "int" | "SymInt":
                return pick((0, 1, 1, -1, 2, 3, rank - 1))
            case "float":
                return pick((0.0, 0.5, 1.0, 2.0))
            case "Scalar":
                return pick((0, 1, 2, 0.5, 1.0))
            case "bool":
                return pick((True, False))
            case "ScalarType":
                return pick((self.dtype, self.dtype, torch.float32, torch.int64))
            case "Layout":
                return torch.strided
            case "Device":
                return torch.device("cpu")
            case "MemoryFormat":
                return pick(MEMORY_FORMATS)
            case "str":
                return pick(TEXTS.get(argument.name, ("none", "sum", "mean")))
            case _:
                return self._list(kind)

    def _list(self, kind: str) -> Any:
        item, _, size = kind.partition("[")
        size = size.removesuffix("]")
        pick = self.random.choice
        if item in ("int", "SymInt"):
            if size:
                return [pick((0, 1, 1, 2))] * int(size) if pick((0, 1)) else pick((1, 1, 0, 2, 3))
            shape = list(self.shape)
            order = list(range(len(shape)))
            return pick(
                (shape, shape, order, order[::-1], [1] * len(shape), [-1], [0], [1], [3, 3], [])
            )
        if item == "float":
            return [pick((0.5, 1.0, 2.0))] * pick((1, 2, 3))
        if item == "Scalar":
            return [pick((0, 1, 0.5))] * pick((1, 2))
        if item == "bool":
            return [pick((True, False)) for _ in range(int(size or 2))]
        return None


def tensor(shape: Sequence[int], dtype: torch.dtype, layout: str, seed: int) -> torch.Tensor:
    """A tensor with memory of its own that lies in it as the layout says, where it can."""
    generator = torch.Generator().manual_seed(seed)
    rank = len(shape)
    stored = list(shape)
    if layout == "transposed":
        stored.reverse()
    elif layout == "expanded" and rank:
        stored[0] = 1 if stored[0] else 0
    elif layout == "sliced" and rank:
        stored[-1] = 2 * stored[-1] + 1
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.rand(stored, generator=generator, dtype=torch.float64).add(0.01).to(dtype)
    else:
        made = torch.randint(0, 2, stored, generator=generator).to(dtype)
    match layout:
        case "transposed":
            return made.permute(*reversed(range(rank))) if rank else made
        case "expanded":
            return made.expand(*shape) if rank else made
        case "sliced":
            return made[..., 1::2] if rank else made
        case "channels_last" if rank in (4, 5):
            order = torch.channels_last if rank == 4 else torch.channels_last_3d
            return made.contiguous(memory_format=order)
        case "lazy" if dtype.is_complex:
            return made.conj()
        case "lazy" if dtype.is_floating_point:
            return torch._neg_view(made)
        case _:
            return made


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of one argument or result."""
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [t for item in value for t in tensors_of(item)] if isinstance(value, list | tuple) else []
    )


def storage_of(value: torch.Tensor) -> int:
    """The identity of a tensor's storage."""
    return value.untyped_storage()._cdata


def faults(operator: Any, schema: Schema, made: Mapping[str, Any]) -> list[str]:
    """Call an operator, and say where the tables are wrong; raises whatever torch raises."""
    torch.manual_seed(0)
    return watched(operator, schema, made)[1]


def watched(operator: Any, schema: Schema, made: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Call an operator, and return what it gives and where the tables are wrong."""
    given = {name: tensors_of(value) for name, value in made.items()}
    given = {name: tensors for name, tensors in given.items() if tensors}
    text = ", ".join(f"{name}={_text(value)}" for name, value in made.items())
    noted = [
        (name, t, t.untyped_storage(), t._version, _bytes(t.untyped_storage()).clone())
        for name, tensors in given.items()
        for t in tensors
    ]
    state = torch.get_rng_state()
    result = _called(operator, schema, made)
    draws = not torch.equal(state, torch.get_rng_state())
    results = list(result) if len(schema.returns) > 1 else [result]
    storages: dict[int, set[str]] = {}
    for name, t, storage, _, _ in noted:
        for key in (storage._cdata, storage_of(t)):
            storages.setdefault(key, set()).add(name)
    stated = effects(schema, {k: v for k, v in made.items() if k not in given})
    allowed = {storage._cdata for name, _, storage, _, _ in noted if name in stated.writes}
    found = [
        f"writes {name}"
        for name, t, storage, version, content in noted
        if storage._cdata not in allowed  # an argument given twice is written as the other
        and (t._version != version or not torch.equal(content, _bytes(storage)))
    ]
    if draws and not stated.draws:
        found.append("draws")
    if schema.op_type not in ITSELF and not stated.writes:
        own = {id(t): name for name, t, *_ in noted}
        found += [f"gives {own[id(t)]} itself" for t in tensors_of(results) if id(t) in own]
    is_lazy = any(t.is_neg() or t.is_conj() for _, t, _, _, _ in noted)
    for position, (item, shared) in enumerate(zip(results, sharing(schema), strict=True)):
        made_tensors = tensors_of(item)
        seen = {n: t for t in made_tensors for n in storages.get(storage_of(t), ())}
        stated_too = {id(t) for name in seen.keys() & shared.keys() for t in [seen[name]]}
        found += [
            f"result {position} shares {name}"
            for name in seen.keys() - shared.keys()
            if id(seen[name]) not in stated_too
        ]
        if len(made_tensors) > 1 or not made_tensors:
            continue
        for name, kind in shared.items():
            if name not in given:
                continue
            if kind is Sharing.ALWAYS and not (is_lazy or name in seen or len(given[name]) > 1):
                found.append(f"result {position} does not share {name}")
            if kind in (Sharing.BY_DTYPE, Sharing.BY_VALUE) and name in seen:
                source = next(t for t in given[name] if storage_of(t) == storage_of(seen[name]))
                undecided = source.numel() and not (
                    source.dtype == seen[name].dtype
                    and (kind is Sharing.BY_DTYPE or not stated.draws)
                    and (kind is Sharing.BY_DTYPE or len(given[name]) == 1)
                    and not (kind is Sharing.BY_DTYPE and made.get("copy") is True)
                )
                if undecided:
                    found.append(f"result {position} shares {name}, against what decides it")
    return result, [f"{fault}: {schema.op_type}({text})" for fault in found]


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),))


def _called(operator: Any, schema: Schema, made: Mapping[str, Any]) -> Any:
    args: list[Any] = []
    rest = dict(made)
    for argument in schema.arguments:
        if argument.keyword_only or argument.name not in made:
            break
        args.append(rest.pop(argument.name))
    return operator(*args, **rest)


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}/{list(value.stride())}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return repr(value)


# -- processes ------------------------------------------------------------------------------------

ENOUGH = 12
"""So many calls that torch took are tried at least, where so many can be found."""


def tried(op_type: str, attempts: range, note: Callable[[int], None]) -> tuple[int, list[str]]:
    """Return how many calls torch took, and the faults; ``note`` is told each attempt before."""
    schema = lookup(op_type)
    operator = overload(*op_type.split(".", 2))
    if schema is None or operator is None:
        return 0, []
    taken, found = 0, list[str]()
    for attempt in attempts:
        note(attempt)
        if taken >= max(ENOUGH, len(attempts) // 4):
            break
        try:
            found += faults(operator, schema, Maker(schema, attempt).arguments())
        except Exception:  # noqa: BLE001  # kernels refuse arguments with any error
            continue
        taken += 1
    return taken, found


def _run(op_types: Sequence[str], attempts: int, out: Any, place: Any) -> None:
    """Try the operators in children: what a kernel aborts goes on after the call that did."""
    position, first, aborts = 0, 0, 0
    while position < len(op_types):
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for index in range(position, len(op_types)):
                signal.alarm(20)
                place.seek(0)
                start = first if index == position else 0

                def note(attempt: int, index: int = index) -> None:
                    os.pwrite(place.fileno(), f"{index:9} {attempt:9}".encode(), 0)

                note(start)
                taken, found = tried(op_types[index], range(start, attempts), note)
                out.write(json.dumps([op_types[index], taken, found]) + "\n")
                out.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return
        index, attempt = map(int, os.pread(place.fileno(), 19, 0).split())
        aborts = aborts + 1 if index == position else 1
        position, first = (index, attempt + 1) if aborts < 4 else (index + 1, 0)


def main(attempts: int, part: int, parts: int, path: str) -> None:
    """Try a part of all operators, and write a line of JSON for each."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for descriptor in (1, 2):  # kernels warn, and one prints
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    resolve_operator("quantized_decomposed.add.default")
    op_types = [name for name in known_operators() if name not in SKIPPED][part::parts]
    with Path(path).open("w") as out, tempfile.TemporaryFile() as place:
        _run(op_types, attempts, out, place)


SKIPPED = {"aten.from_file.default"}
"""Operators that leave something behind: files."""


def sweep(attempts: int, folder: Path, parts: int = 2) -> dict[str, tuple[int, list[str]]]:
    """Try all operators in as many processes: how many calls torch took, and the faults."""
    paths = [folder / f"calls{part}.jsonl" for part in range(parts)]
    commands = [
        [sys.executable, "-m", "ops.calls", str(attempts), str(part), str(parts), str(path)]
        for part, path in enumerate(paths)
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    running = [subprocess.Popen(c, cwd=folder, env=environment) for c in commands]  # this file
    for process in running:
        process.wait()
    found = {name: (0, list[str]()) for name in known_operators() if name not in SKIPPED}
    for line in (line for path in paths for line in path.read_text().splitlines()):
        op_type, taken, messages = json.loads(line)
        found[op_type] = (taken, messages)
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4])
