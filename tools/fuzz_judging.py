"""What is asked of a file that is read, and of the program that it holds.

A load ends in a value or an error of this package, in a second and 200 MB for each MB of the file.
What is read checks without an error, and comes back from text and JSON as it was. A program that
compiles and runs gives what its operators give when they are called one by one.
"""

from __future__ import annotations

import math
import re
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import torch_ir
from torch_ir import IR, IRExecutor, serde
from torch_ir.cli.tensors import random_inputs, random_weights
from torch_ir.cli.values import symbol_values
from torch_ir.debug.reference.eager_call import bind, call_plainly
from torch_ir.debug.reference.tolerance_check import same_bits
from torch_ir.errors import SerializationError, TorchIRError
from torch_ir.ir import Constant, SymExpr, ValueLeaf
from torch_ir.ir.symbols import shape_at
from torch_ir.ir.tree import leaves
from torch_ir.torch_api import constant_tensors
from torch_ir.torch_memory import copied

SECONDS = 1.0
"""Of the CPU, that a file of up to a MB may take; and so for each reading of what it holds."""
MEGABYTES = 200
"""Of memory that a file of up to a MB may take."""
MAX_ELEMENTS = 2**20
"""Of all inputs and weights together, where a program is run."""


class FaultError(Exception):
    """Something that must not be: what it is, in a few words, and the details."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a file.

    Attributes:
        outcome: Whether it was accepted, or the class of the error.
        signature: What it is kept by in a corpus: files alike in this show the same.
        ir: The program, if it holds one that was accepted.
    """

    outcome: str
    signature: str
    ir: IR | None = None


def judge(kind: str, data: bytes, folder: Path) -> Judgement:
    """Read a file, and what it holds in every other way.

    Raises:
        FaultError: Something is not as it has to be.
    """
    scale = max(1.0, len(data) / 1e6)
    try:
        with Bounded("load", scale):
            value = read(kind, data, folder)
    except TorchIRError as error:
        return Judgement(type(error).__name__, f"{type(error).__name__} {_gist(error.message)}")
    except FaultError:
        raise
    except Exception as error:
        raise FaultError(f"{type(error).__name__} while it is loaded", repr(error)) from error
    if not isinstance(value, IR):
        return Judgement("accepted", f"accepted {kind}")
    with Bounded("check", scale):
        codes = {finding.code for finding in _checked(value)}
    with Bounded("laws", scale):
        _require_laws(value, kind)
    return Judgement("accepted", f"accepted {sorted(codes)}", value)


def _gist(message: str) -> str:
    """A message without what it quotes."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[%@$&]\S*|\S*\d\S*|\S+\.\S+", "", message)[:50]


def read(kind: str, data: bytes, folder: Path) -> IR | None:
    """Read a file of a kind, as its public reader does; of weights every tensor is touched."""
    if kind == "text":
        return torch_ir.parse(data.decode("utf8", "surrogateescape"))
    if kind != "weights" and kind != "archive":
        return serde.loads(data)
    path = folder / _name(kind, data)
    path.write_bytes(data)
    try:
        if kind == "weights":
            for tensor in torch_ir.load_weights(path).values():
                if tensor.numel() <= MAX_ELEMENTS:
                    tensor.clone()
            return None
        ir = serde.load(path)
        for constant in ir.constants.values():
            if constant.view is None:
                constant.tobytes()
        return ir
    finally:
        path.unlink()


def _name(kind: str, data: bytes) -> str:
    if kind == "archive" or (data[:2] == b"PK" and b"manifest.json" in data[-4096:]):
        return "file.tir"
    if data[:1] == b"{":
        return "file.safetensors.index.json"
    return "file.pt" if data[:1] in (b"P", b"\x80") else "file.safetensors"


class Bounded:
    """A ``with`` block whose time and memory are bounded.

    Raises:
        FaultError: It took more.
    """

    def __init__(self, what: str, scale: float):
        self._what, self._scale = what, scale

    def __enter__(self) -> None:
        self._peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._begin = time.process_time()

    def __exit__(self, *_: object) -> None:
        seconds = time.process_time() - self._begin
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._peak) / 1024
        if seconds > SECONDS * self._scale:
            raise FaultError(f"slow {self._what}", f"{seconds:.1f} s")
        if grown > MEGABYTES * self._scale:
            raise FaultError(f"large {self._what}", f"{grown:.0f} MB")


def _checked(ir: IR) -> Sequence[Any]:
    try:
        return ir.check()
    except Exception as error:
        raise FaultError(f"check raises {type(error).__name__}", repr(error)) from error


def _require_laws(ir: IR, kind: str) -> None:
    try:
        made = {"text": torch_ir.parse(str(ir), constants=ir.constants)}
        try:
            made["JSON"] = serde.loads(serde.dumps(ir))
        except SerializationError:
            if kind != "text":  # which alone may hold half characters
                raise
    except Exception as error:
        raise FaultError(f"{type(error).__name__} on the way back", repr(error)) from error
    for name, value in made.items():
        if value != ir:
            raise FaultError(f"another program comes back from {name}", str(ir)[:2000])


# -- running --------------------------------------------------------------------------------------


def program_key(ir: IR) -> int:
    """Return a number by which programs are told apart; lines and names of models are left out."""
    plain = ir.replace(
        nodes=tuple([node.replace(location=None) for node in ir.nodes]),
        model_name="",
        pytorch_version="",
        metadata={},
        weight_aliases={},
    )
    return hash(plain)


def run_and_compare(ir: IR) -> tuple[str, str]:
    """Compile a program and run it; return what became of it, and what it is kept by.

    Raises:
        FaultError: It gives other values than its operators, or an error of another family.
    """
    try:
        made = _arguments(ir)
    except TorchIRError as error:
        return "not run: no inputs", _gist(error.message)
    except (RuntimeError, ArithmeticError, AttributeError, TypeError, MemoryError) as error:
        return "not run: no inputs", type(error).__name__  # torch cannot make such random tensors
    if made is None:
        return "not run: too large", ""
    weights, inputs, symbols = made
    mine, theirs = copied(inputs), copied(inputs)
    try:
        executor = IRExecutor(ir, weights)
        graph = executor.graph
    except TorchIRError as error:
        return f"refused when compiled: {type(error).__name__}", _gist(str(error))
    except Exception as error:
        raise FaultError(f"{type(error).__name__} when it is compiled", repr(error)) from error
    torch.manual_seed(0)
    try:
        results, _ = graph.run(mine, _numbers(ir, symbols))
    except TorchIRError as error:
        return f"refused when run: {type(error).__name__}", _gist(str(error))
    except Exception as error:
        raise FaultError(f"{type(error).__name__} when it is run", repr(error)) from error
    torch.manual_seed(0)
    values = read_plainly(ir, copied_weights(weights), theirs, symbols)
    pairs = [
        *zip([meta.name for meta in ir.graph_outputs], results, strict=True),
        *_state(ir, executor.buffers, mine),
    ]
    for name, got in pairs:
        reason = same_bits(values[name].detach(), got).reason
        if reason and not _is_open(ir):
            raise FaultError("a wrong value", f"%{name}: {reason}")
    return "equal" if not _is_open(ir) else "not compared: values that are open", ""


def copied_weights(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy weights, which a plain run may write."""
    return {key: tensor.clone() for key, tensor in weights.items()}


def _arguments(
    ir: IR,
) -> tuple[dict[str, torch.Tensor], list[torch.Tensor], dict[str, Any]] | None:
    """Random weights and inputs, and the values of the symbols; None if they are too large."""
    symbols = symbol_values(ir, {})
    metas = [*ir.weights, *ir.graph_inputs]
    if sum(math.prod(shape_at(meta.shape, symbols)) for meta in metas) > MAX_ELEMENTS:
        return None
    given = {name: symbols[name] for name in ir.given_symbols if name in symbols}
    return random_weights(ir, 0), random_inputs(ir, 0, {}), given


def _numbers(ir: IR, symbols: Mapping[str, Any]) -> dict[str, Any]:
    """The symbols that are numbers among the arguments."""
    if ir.signature is None:
        return {}
    found = [leaf.value for leaf in leaves(ir.signature.inputs) if isinstance(leaf, ValueLeaf)]
    names = [value.text for value in found if isinstance(value, SymExpr)]
    return {name: symbols[name] for name in names if name in symbols}


def _state(
    ir: IR, buffers: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
) -> list[tuple[str, torch.Tensor]]:
    """What the program left in the buffers and inputs that it writes, by the value's name."""
    left = dict(zip(ir.input_names, inputs, strict=True))
    keys = {name: key for name, (key, _) in ir.external_values().items()}
    return [
        (mutation.value.name, left[name] if name in left else buffers[keys.get(name, name)])
        for mutation in ir.mutations
        for name in (mutation.target,)
    ]


def _is_open(ir: IR) -> bool:
    """Whether some operator gives what is in memory."""
    functions = (ir, *ir.functions.values())
    names = [node.op_type for function in functions for node in function.nodes]
    return any(word in name for name in names for word in ("empty", "resize", "_make_dep_token"))


def read_plainly(
    ir: IR,
    weights: Mapping[str, torch.Tensor],
    inputs: Sequence[torch.Tensor],
    symbols: Mapping[str, Any],
) -> dict[str, torch.Tensor]:
    """Call the operators of a program one by one; return every value by name.

    Raises:
        FaultError: An operator refuses what the compiled program took.
    """
    known = dict(symbols)
    values = dict(zip(ir.input_names, inputs, strict=True))
    external = ir.external_values()
    keys = {key for key, value in external.values() if isinstance(value, Constant)}
    tensors = {**weights, **constant_tensors(ir.constants, sorted(keys))}
    values |= {name: tensors[key] for name, (key, _) in external.items()}
    cpu = torch.device("cpu")
    for node in ir.nodes:
        given = [values[meta.name] for meta in node.inputs]
        if (
            node.op_type == "aten.detach_.default"
        ):  # torch refuses it of views, for gradients alone
            values.update({meta.name: given[0] for meta in node.outputs})
            continue
        try:
            with torch.no_grad():
                made = call_plainly(node, given, known, ir.functions, cpu)
        except Exception as error:
            raise FaultError(
                "only the compiled program runs", f"{node.name}: {error!r}"
            ) from error
        for meta in node.outputs:
            values[meta.name] = made[meta.producer_output_idx]
        bind(node, made, known)
    moved = [m for m in ir.mutations if m.value.name != m.target]
    written = {m.target: values[m.value.name].clone() for m in moved}
    for target, value in written.items():  # results may show it
        values[target].detach().copy_(value)
    return values
