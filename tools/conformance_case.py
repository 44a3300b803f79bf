"""One sample of one operator, taken through the whole of torch_ir and compared with eager.

The sample's tensors are the arguments of a module, everything else is fixed in it. The module is
extracted, saved, loaded, printed, parsed, checked and run; each of these is a stage that may fail.
The result has to be the same bit by bit.
"""

from __future__ import annotations

import copy
import itertools
import random
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import GeneratorType
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ir import IR, IRExecutor, extract_ir, parse
from torch_ir.errors import ExportError
from torch_ir.executor import check_types
from torch_ir.frontend import export_model

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16)
VARIANTS = ("function", "in_place", "out")
# op_db's random operators set this seed themselves, by a call that torch.export cannot trace
SEED = 42

EQUAL = "equal"
FILLED = "equal, uninitialized memory filled"
UNSTABLE = "eager differs from eager"
EAGER = "eager fails"
REFUSED = "torch.export refuses"
EXPORT = "torch.export differs from eager"
FAIL = "FAIL"
OUTCOMES = (EQUAL, FILLED, UNSTABLE, EAGER, REFUSED, EXPORT, FAIL)


@dataclass(frozen=True, slots=True)
class Case:
    """One operator, in one dtype, called in one way."""

    operator: str
    dtype: str
    variant: str

    def __str__(self) -> str:
        variant = "" if self.variant == "function" else f", {self.variant.replace('_', '-')}"
        return f"{self.operator} ({self.dtype}{variant})"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one sample: the outcome, and where it failed and why."""

    outcome: str
    stage: str = ""
    reason: str = ""


OPERATORS = {info.formatted_name: info for info in op_db}


def all_cases() -> Iterator[Case]:
    """Every operator in each of its dtypes; in the first also in place and with ``out=``."""
    for name, info in OPERATORS.items():
        supported = info.supported_dtypes("cpu")
        dtypes = [d for d in DTYPES if d in supported] or sorted(supported, key=str)[:1]
        yield from (Case(name, dtype_name(dtype), "function") for dtype in dtypes)
        if dtypes and info.inplace_variant is not None:
            yield Case(name, dtype_name(dtypes[0]), "in_place")
        if dtypes and info.supports_out:
            yield Case(name, dtype_name(dtypes[0]), "out")


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_case(case: Case, count: int) -> Iterator[Result]:
    """The result of each of the first ``count`` samples of a case, one at a time."""
    try:
        samples = first_samples(case, count)
    except Exception as error:  # noqa: BLE001  # generators of samples call what a dtype may lack
        yield Result(EAGER, "samples", first_line(error))
        return
    if not samples:
        yield Result(EAGER, "samples", "there are none")
    for sample in samples:
        yield check_sample(case, sample)


def first_samples(case: Case, count: int) -> list[Any]:
    seed(zlib.crc32(str(case).encode()))
    info, dtype = OPERATORS[case.operator], getattr(torch, case.dtype)
    samples = iter(info.sample_inputs_func(info, "cpu", dtype, False))
    try:
        return list(itertools.islice(samples, count))
    finally:
        if isinstance(samples, GeneratorType):
            samples.close()  # left to the collector, it may run its end while torch traces


def check_sample(case: Case, sample: Any) -> Result:
    """Take one sample through every stage; the first that fails is the result."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            module, tensors = module_of(case, sample)
            with filled_memory():
                filled = outcome_of(module, tensors)
            with ClearedMemory():
                cleared = outcome_of(module, tensors)
            first, again = outcome_of(module, tensors), outcome_of(module, tensors)
        except Exception as error:  # noqa: BLE001  # a kernel raises anything
            return Result(EAGER, "eager", first_line(error))
        if not difference(first, filled) and not difference(cleared, filled):
            if difference(first, again):
                return Result(UNSTABLE)
            return compare_with_ir(module, tensors, first, EQUAL)
        with filled_memory():
            if difference(filled, outcome_of(module, tensors)):
                return Result(UNSTABLE)
        return compare_with_ir(module, tensors, filled, FILLED)


def compare_with_ir(
    module: nn.Module, tensors: list[torch.Tensor], expected: Any, equal: str
) -> Result:
    """Extract, save, load, print, check and run; ``equal`` is the outcome if all is well."""
    stage = Stage()
    memory = filled_memory if equal == FILLED else unfilled_memory
    try:
        with stage("extract"):
            ir = extract_ir(module, tuple(copied(tensors)))
        loaded = stored(ir, stage)
        with stage("text"):
            if parse(str(loaded), constants=loaded.constants) != loaded:
                raise AssertionError("parse(str(ir)) differs from ir")
        with stage("check"):
            require_no_findings(loaded.check())
        with stage("types"):
            require_no_findings(check_types(loaded))
        with stage("run"), memory():
            got = outcome_of(IRExecutor(loaded), tensors)
    except ExportError as error:
        return Result(REFUSED, "export", first_line(error).partition(": ")[2])
    except Exception as error:  # noqa: BLE001  # whatever is raised is what is reported
        if stage.name == "run" and (found := fault_of_export(module, tensors, expected, memory)):
            return found
        return Result(FAIL, stage.name, first_line(error))
    differs = difference(expected, got)
    if not differs:
        return Result(equal)
    return fault_of_export(module, tensors, expected, memory) or Result(FAIL, "compare", differs)


def fault_of_export(
    module: nn.Module, tensors: list[torch.Tensor], expected: Any, memory: Callable[[], Any]
) -> Result | None:
    """Whether torch's own exported program differs from eager, or does not run."""
    exported = export_model(module, tuple(copied(tensors)), strict=False).module()
    try:
        with memory():
            differs = difference(expected, outcome_of(exported, tensors))
    except Exception as error:  # noqa: BLE001  # a kernel raises anything
        return Result(EXPORT, "run", first_line(error))
    return Result(EXPORT, "compare", differs) if differs else None


class Stage:
    """Remembers which stage is under way."""

    name = ""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """The stage is under way inside."""
        self.name = name
        yield


def stored(ir: IR, stage: Stage) -> IR:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ir.json"
        with stage("save"):
            ir.save(path)
        with stage("load"):
            loaded = IR.load(path)
            if loaded != ir:
                raise AssertionError("what was loaded differs from what was saved")
    return loaded


def require_no_findings(findings: Sequence[Any]) -> None:
    if findings:
        raise AssertionError(str(findings[0]))


# -- the module of a sample ----------------------------------------------------------------------


class Sample(nn.Module):
    """A call of an operator as a function of the tensors among its arguments."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], spec: pytree.TreeSpec):
        super().__init__()
        self.function = function
        self.fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.slots = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The call with these tensors in place of the sample's."""
        leaves = list(self.fixed)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            leaves[slot] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def module_of(case: Case, sample: Any) -> tuple[nn.Module, list[torch.Tensor]]:
    """The module that a sample makes, in evaluation mode, and its arguments."""
    info = OPERATORS[case.operator]
    function = info.inplace_variant if case.variant == "in_place" else info.op
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    if case.variant == "out":
        result = function(*copied(args), **copied(kwargs))
        kwargs["out"] = pytree.tree_map_only(torch.Tensor, torch.zeros_like, result)
        if isinstance(result, tuple):
            kwargs["out"] = tuple(kwargs["out"])
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return Sample(function, leaves, spec).eval(), tensors


def copied(tree: Any) -> Any:
    """The same arguments over other memory; strides, and memory that tensors share, are kept."""
    known = {
        id(leaf): leaf.clone()
        for leaf in pytree.tree_leaves(tree)
        if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided
    }
    return copy.deepcopy(tree, known)


def outcome_of(function: Callable[..., Any], tensors: list[torch.Tensor]) -> Any:
    """The result of a call from a fixed seed, and what it left in its arguments."""
    arguments = copied(tensors)
    seed(SEED)
    return function(*arguments), arguments


def seed(value: int) -> None:
    torch.manual_seed(value)
    np.random.seed(value)  # some samples draw from the global state
    random.seed(value)


@contextmanager
def filled_memory() -> Iterator[None]:
    """Let torch fill the memory of ``empty`` and its like with a fixed value."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class ClearedMemory(TorchDispatchMode):
    """Clears uninitialized memory, which torch fills with anything else: who shows it differs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator; what one of the ``empty`` kind makes is cleared."""
        result = func(*args, **(kwargs or {}))
        if "empty" in str(func) and result.layout == torch.strided:
            result.untyped_storage().fill_(0)
        return result


@contextmanager
def unfilled_memory() -> Iterator[None]:
    yield


# -- comparing -----------------------------------------------------------------------------------


def difference(expected: Any, got: Any) -> str:
    """In what two results differ in structure, type, dtype, shape or bits; empty if they do not.

    Any NaN equals any other; zeros of different sign differ.
    """
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    got_leaves, got_spec = pytree.tree_flatten(got)
    if expected_spec != got_spec:
        return " ".join(f"the structure is {got_spec}, expected {expected_spec}".split())
    pairs = zip(expected_leaves, got_leaves, strict=True)
    return next(filter(None, (leaf_difference(a, b) for a, b in pairs)), "")


def leaf_difference(expected: Any, got: Any) -> str:
    if type(expected) is not type(got):
        return f"the type is {type(got).__name__}, expected {type(expected).__name__}"
    if not isinstance(expected, torch.Tensor):
        same = expected == got or (expected != expected and got != got)
        return "" if same else f"the value is {got!r}, expected {expected!r}"
    for aspect in ("dtype", "shape", "layout"):
        a, b = getattr(expected, aspect), getattr(got, aspect)
        if a != b:
            return f"the {aspect} is {b}, expected {a}"
    count = sum(map(unequal, dense_parts(expected), dense_parts(got)))
    return f"{count} of {expected.numel()} values differ" if count else ""


def dense_parts(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    match tensor.layout:
        case torch.strided:
            return [tensor]
        case torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        case torch.sparse_csr | torch.sparse_bsr:
            return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        case _:
            return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def unequal(expected: torch.Tensor, got: torch.Tensor) -> int:
    """How many numbers differ in their bits, and are not both NaN."""
    if expected.shape != got.shape:
        return max(expected.numel(), got.numel())
    left, right = plain(expected), plain(got)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[left.itemsize]
    differs = left.view(whole) != right.view(whole)
    if left.is_floating_point():
        differs &= ~(left.isnan() & right.isnan())
    return int((differs.any(-1) if expected.is_complex() else differs).sum())


def plain(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def first_line(error: BaseException) -> str:
    """The first line of an error that says something, short enough for a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    picture = getattr(error, "picture", None) is not None and len(lines) > 1
    text = " ".join(lines[: 2 if picture else 1]) or "no message"
    if not type(error).__module__.startswith("torch_ir") and not isinstance(error, AssertionError):
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" in {Path(last[0].filename).name}" if last else ""
        text = f"{type(error).__name__}{where}: {text}"
    return text if len(text) <= 220 else text[:217] + "..."
