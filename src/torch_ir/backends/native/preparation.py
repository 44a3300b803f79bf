"""Programs made ready for runtimes: what they lack is split up where that helps."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress

from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.native.samples import TURNS, unlike, with_nonfinite
from torch_ir.backends.native.withheld import withheld
from torch_ir.backends.native.written_apart import WRITTEN_APART
from torch_ir.backends.partition import Partitioner
from torch_ir.backends.protocol import DelegateBackend, support_of
from torch_ir.backends.state_writes import is_state_update, with_writes_apart
from torch_ir.errors import PassError, Raised, attempt
from torch_ir.executor import IRExecutor
from torch_ir.executor.samples import sample_tensors
from torch_ir.infer.hints import samplings
from torch_ir.ir import IR, MemoryFormat, OpNode
from torch_ir.ir.builder import subgraph
from torch_ir.ir.functions import written_out
from torch_ir.ir.queries import op_types
from torch_ir.ops.bodies import AUTOCAST_REGION
from torch_ir.ops.choices import ZEROED
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.edge.memory_formats import without_memory_formats
from torch_ir.passes.functionalization import functional_form, with_shown_results
from torch_ir.passes.no_ops import checks_recorded_type, remove_no_ops
from torch_ir.passes.view_copies import with_views

_DROPOUTS = frozenset(f"aten.{n}dropout.default" for n in ("", "feature_", "alpha_"))
"""Operators that a judge takes for random ones, although they may do nothing."""

_LOOKING = frozenset(("aten.one_hot.default",))
"""Operators that refuse what their parts take: places that there are not."""


def prepared(ir: IR, backends: Sequence[DelegateBackend], *, nonfinite: bool = False) -> IR:
    """Return a functional program in which a node stays whole unless its parts are taken instead.

    Args:
        ir: The program.
        backends: Those that take nodes, the preferred first.
        nonfinite: Whether parts have to treat NaN and infinities as the whole does.
    """
    ir = written_out(ir)
    program = remove_no_ops(functional_form(ir), _DROPOUTS)
    program = program.replace(
        nodes=[_zeroed(node) for node in program.nodes if not checks_recorded_type(node)]
    )
    program = _without_autocast(program)
    for backend in backends:
        kinds = {node.op_type: node for node in program.nodes}
        whole = Partitioner(backend)(program).reasons
        lacking = {
            node.op_type
            for node in program.nodes
            if node.name in whole
            and _is_plain(node)
            and not withheld(node, program)
            and node.op_type not in _LOOKING
            and not support_of(backend, node, program)
        }
        split = {
            kind for kind in lacking if _helps(program, kinds[kind], backend, nonfinite=nonfinite)
        }
        if split:
            with suppress(PassError):  # another call of a kind may have parts that one has not
                program = _split(program, backend, split, _operators(program) - split)
    return program


def prepared_to_run(ir: IR, backends: Sequence[DelegateBackend], *, nonfinite: bool = False) -> IR:
    """Return a program as :func:`prepared` does, in which torch writes parts of large buffers.

    Those stay whole that the first backend to take them writes in place. Results show what is
    written, as those of the program do.
    """
    program = with_shown_results(ir, prepared(ir, backends, nonfinite=nonfinite))
    updates = [node for node in program.nodes if is_state_update(node, program)]
    whole = {node.name for node in updates if _is_in_place(node, program, backends)}
    return with_writes_apart(program, whole)


def _without_autocast(ir: IR) -> IR:
    """A program with the conversions of autocast written out, that on the CPU; else as it is."""
    if not any(node.op_type == AUTOCAST_REGION for _, _, node in ir.walk()):
        return ir
    try:
        return decomposed(_with_that_of_cpu(ir), preserve=_operators(ir))
    except PassError:
        return ir


def _with_that_of_cpu(ir: IR) -> IR:
    """A program without autocast for other devices, which changes nothing on the CPU."""
    return ir.replace(
        nodes=[
            node.replace(attrs={**node.attrs, "enabled": False})
            if node.op_type == AUTOCAST_REGION and node.attrs.get("device_type") != "cpu"
            else node
            for node in ir.nodes
        ],
        functions={name: _with_that_of_cpu(body) for name, body in ir.functions.items()},
    )


def _is_in_place(node: OpNode, ir: IR, backends: Sequence[DelegateBackend]) -> bool:
    taker = next((backend for backend in backends if support_of(backend, node, ir)), None)
    return isinstance(taker, NativeBackend) and node.op_type in taker.in_place


def _zeroed(node: OpNode) -> OpNode:
    """A node with zeros where it leaves memory as it is: with that, nothing can be compared.

    Not where zeros would lie in another order. A lazy clone takes memory of torch's own alone.
    """
    if node.op_type == "aten._lazy_clone.default":
        return node.replace(op_type="aten.clone.default")
    zeroed = ZEROED.get(node.op_type)
    if zeroed is None:
        return node
    attrs = dict(node.attrs)
    if node.op_type == "aten.empty.memory_format" and attrs.pop("memory_format", None) not in (
        None,
        MemoryFormat("contiguous_format"),
    ):
        return node
    return node.replace(op_type=zeroed, attrs=attrs)


def _operators(ir: IR) -> set[str]:
    return {kind for kind in op_types(ir) if ir.schema_of(kind) is not None}


def _is_plain(node: OpNode) -> bool:
    """Whether a node is a call from tensors to tensors, of which backends are asked."""
    calls = node.op_type.startswith("higher_order.") or node.functions
    return bool(node.outputs) and not calls and not node.binds


def _helps(ir: IR, node: OpNode, backend: DelegateBackend, *, nonfinite: bool) -> bool:
    """Whether a backend takes all that an operator is made of, which may have to be alike."""
    alone = subgraph(ir, [node], node.outputs)
    try:
        parts = _split(alone, backend, {node.op_type})
    except PassError:
        return False
    if [part.op_type for part in parts.nodes] == [node.op_type]:
        return False
    computing = [part for part in parts.nodes if not parts.effects(part).checks]
    if not all(_is_plain(part) and support_of(backend, part, parts) for part in computing):
        return False
    return not nonfinite or _are_alike(alone, parts)


def _are_alike(whole: IR, parts: IR) -> bool:
    """Whether two programs treat NaN and infinities alike on torch."""
    runs = [IRExecutor(ir, {}).graph for ir in (whole, parts)]
    for symbols in samplings(whole)[:1]:
        tensors = sample_tensors(whole, symbols, 1, integers=True)
        for turn in range(TURNS):
            given = [with_nonfinite(tensor, turn, i) for i, tensor in enumerate(tensors)]
            first, second = [attempt(run.run, [t.clone() for t in given], symbols) for run in runs]
            if isinstance(first, Raised) or isinstance(second, Raised):
                return False
            if unlike(second[0], first[0]):
                return False
        return True
    return False


def _split(ir: IR, backend: DelegateBackend, kinds: Set[str], kept: Set[str] = frozenset()) -> IR:
    """A program with some operators split up, and views where the backend lacks their copies.

    Results share memory as they did.
    """
    table = {kind: made for kind, made in WRITTEN_APART.items() if kind in kinds}
    made = without_memory_formats(decomposed(ir, table=table, preserve=kept))
    nodes = [
        new if new is not old and _is_plain(old) and not support_of(backend, old, made) else old
        for old, new in zip(made.nodes, with_views(made).nodes, strict=True)
    ]
    return made.replace(nodes=nodes)
