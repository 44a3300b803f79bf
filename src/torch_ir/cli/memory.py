"""The memory that a run needs and the machine has, said before any is taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch_ir.cli.values import symbol_values
from torch_ir.errors import ExecutionError, TorchIRError
from torch_ir.ir import IR, TensorMeta
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.symbols import shape_at

if TYPE_CHECKING:
    from torch_ir.semantics.dtypes import Array


class TooLittleMemoryError(ExecutionError):
    """A run needs more memory than the machine has free."""

    code = "too-little-memory"


def require_memory(
    ir: IR, given: Mapping[str, int], *, weights: bool, inputs: bool, free: int | None = None
) -> None:
    """Refuse a run for which the machine lacks the memory.

    Args:
        ir: The program.
        given: Sizes of symbolic dimensions.
        weights: Whether the weights are made; those of a file are mapped.
        inputs: Whether the inputs are made.
        free: How many bytes there are; None to ask the machine.

    Raises:
        TooLittleMemoryError: It needs more than is free; the message has both.
        InputError: A symbol is given that the program does not have.
    """
    free = free_bytes() if free is None else free
    if free is None:
        return
    symbols = symbol_values(ir, given)
    parts = {
        "weights": _bytes(ir.weights, {}) if weights else 0,
        "inputs": _bytes(ir.graph_inputs, symbols) if inputs else 0,
        "values on the way": _bytes([o for node in ir.nodes for o in node.outputs], symbols),
    }
    if sum(parts.values()) > free:  # they do not live at once: a plan knows which do
        parts["values on the way"] = _arena(ir, parts["values on the way"])
    if sum(parts.values()) > free:
        raise TooLittleMemoryError(
            f"the program needs {_text(sum(parts.values()))}, {_text(free)} are free",
            picture="\n".join([f"{name}: {_text(n)}" for name, n in parts.items() if n]),
            remedy="--force goes on all the same.",
        )


def read_npz(file: Path) -> dict[str, Array]:
    """Read the arrays of a ``.npz`` file, which may be compressed, if the machine can hold them.

    Raises:
        TooLittleMemoryError: They are larger than what is free.
    """
    import numpy as np

    with np.load(file, allow_pickle=False) as archive:
        needed, free = sum(entry.file_size for entry in archive.zip.infolist()), free_bytes()
        if free is not None and needed > free:
            raise TooLittleMemoryError(
                f"the arrays of {file} are {_text(needed)}, {_text(free)} are free",
                remedy="Give a file with the tensors of this call alone.",
            )
        return {name: archive[name] for name in archive.files}


def _arena(ir: IR, sum_of_all: int) -> int:
    """The bytes of a proven arena; where there is no proof, the least that all can need."""
    from torch_ir.passes.memory_plan import plan_memory

    try:
        return min(plan_memory(ir).lower_bound, sum_of_all)
    except TorchIRError:  # sizes without a bound, or writes: what is told by the inputs counts
        return 0


def _bytes(metas: Iterable[TensorMeta], symbols: Mapping[str, int]) -> int:
    return sum(_size(meta, symbols) for meta in metas)


def _size(meta: TensorMeta, symbols: Mapping[str, int]) -> int:
    try:
        return math.prod(shape_at(meta.shape, symbols)) * DTYPES[meta.dtype].itemsize
    except TorchIRError:  # a size that data decides
        return 0


def _text(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**27 else f"{count / 2**20:.2f} MiB"


def free_bytes() -> int | None:
    """Return what this process may still take; None where the system does not say.

    It is the least of what the machine has available, what control groups leave, and what the
    limit of address space does.
    """
    known = [_available(), *_left_by_groups(), _left_of_addresses()]
    return min([count for count in known if count is not None], default=None)


def _available() -> int | None:
    found = _fields("/proc/meminfo").get("MemAvailable:")
    return None if found is None else found * 1024


def _left_by_groups() -> Iterable[int]:
    for limit, used, cached in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        root = "/sys/fs/cgroup/"
        most, now = _number(root + limit), _number(root + used)
        if most is not None and now is not None:
            yield max(0, most - now + _fields(root + cached).get("inactive_file", 0))


def _left_of_addresses() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _fields("/proc/self/status").get("VmSize:", 0) * 1024
    return None if most == resource.RLIM_INFINITY else max(0, most - used)


def _fields(path: str) -> dict[str, int]:
    try:
        rows = [line.split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max" is no limit
