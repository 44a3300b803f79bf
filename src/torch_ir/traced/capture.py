"""One call of a function as an IR; nothing is computed, drawn or written while it is traced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch._dynamo.source import ConstantSource
from torch.fx import GraphModule
from torch.fx._lazy_graph_module import _use_lazy_graph_module as lazy_code  # pyright: ignore[reportPrivateUsage]  # torch has no public name
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    StatelessSymbolicContext,
)
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_ir.errors import TorchIRError, TraceError, first_line, raised_as
from torch_ir.executor.autograd.derivatives import backward_nodes
from torch_ir.frontend.gradients.autograd_function import CallWithGradient
from torch_ir.frontend.gradients.watching import BACKWARD_OF_A_BODY, HOOKS, recorded_functions
from torch_ir.frontend.meta import fake_tensor_mode
from torch_ir.infer.engine import quiet
from torch_ir.torch_api import (
    SYMBOLIC_TYPES,
    FakeTensor,
    FakeTensorMode,
    has_hooks,
    is_operator_formula,
    pytree,
    requires_grad,
    version_of,
)
from torch_ir.traced.call_key import Flat
from torch_ir.traced.closure_lifting import (
    REFUSALS,
    BelowAutogradNeeded,
    ClosureLifter,
    without_saving,
)
from torch_ir.traced.guards.closure import Closure
from torch_ir.traced.guards.guard import ClosureGuard
from torch_ir.traced.guards.random_numbers import RandomNumbers, is_same
from torch_ir.traced.refusals import (
    EffectWatch,
    Results,
    WatchedSizes,
    failed,
    same_modes,
    user_line,
)
from torch_ir.traced.transforms import transforming

_TURN = threading.RLock()
"""Tracing changes state that threads share."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of a result that is no tensor and no symbolic number."""

    value: Any


@dataclass
class Trace:
    """What torch traced of one call.

    Attributes:
        module: The graph. Its placeholders are the tensors of the call, then the closed-over ones.
        lifted: The positions among the closure's tensors of the closed-over ones.
        spec: The structure of the result.
        leaves: Each leaf of the result: a :class:`Leaf`, or None for the next output of the graph.
        shape_env: torch's symbols.
        needs_grad: Whether gradients pass through the call to a result or to what it writes.
        requires_grad: Whether each tensor among the leaves requires gradients.
        given_grad: Whether the tensor of each placeholder does, when the function has returned.
        generators: The generators that it draws from, by the attribute of the graph that has them.
        own_leaves: The positions among tensors returned of those that the function itself lets
            require gradients.
        inference: Whether the function itself enters inference mode, in which it makes all.
        foreign: The attributes of the graph that are tensors in the memory of an array or buffer
            that the function's caller may see.
    """

    module: GraphModule
    lifted: tuple[int, ...]
    spec: Any
    leaves: tuple[Leaf | None, ...]
    shape_env: Any
    needs_grad: bool
    requires_grad: tuple[bool, ...]
    given_grad: tuple[bool, ...]
    generators: dict[str, torch.Generator]
    own_leaves: tuple[int, ...] = ()
    inference: bool = False
    foreign: frozenset[str] = frozenset()


def trace(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    flat: Flat,
    closure: Closure,
    *,
    dynamic: bool,
) -> Trace:
    """Trace a call.

    Raises:
        TraceError: It does what cannot be traced; the message says what and where.
    """
    with _TURN, lazy_code(True):  # the code of a graph is never run
        attempt = _Attempt(function, args, kwargs, flat, closure, dynamic)
        try:
            return attempt.run(below_autograd=False)
        except BelowAutogradNeeded:
            return attempt.run(below_autograd=True)


@dataclass
class _Attempt:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    flat: Flat
    closure: Closure
    dynamic: bool
    spec: Any = None
    leaves: list[Leaf | None] = field(default_factory=list[Leaf | None])
    results: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    own_error: Exception | None = None

    def __post_init__(self) -> None:
        known = (*self.flat.generators, *self.closure.generators, torch.default_generator)
        self.known_generators: tuple[torch.Generator, ...] = known
        self.random = RandomNumbers(known, self.closure.foreign)

    def run(self, *, below_autograd: bool) -> Trace:
        shape_env = WatchedSizes()
        mode = fake_tensor_mode(shape_env, allow_non_fake_inputs=True)
        lifted = self._lifted()
        closed = [self.closure.tensors[position] for position in lifted]
        _require_unwrapped(closed)
        fakes = [self._fake(mode, i, tensor) for i, tensor in enumerate(self.flat.tensors)]
        others = [mode.from_tensor(t, static_shapes=True) for t in closed]
        real = (*self.flat.tensors, *closed)
        roots = [t.grad_fn for t in (*fakes, *others)]  # of those that are no leaves
        known = (*fakes, *others, *map(_variable, backward_nodes(roots)))
        caches_casts = torch.is_autocast_cache_enabled()  # which torch turns off in traces

        def call(tensors: list[Any], closures: list[Any]) -> list[Any]:
            table = dict(zip(map(id, real), (*tensors, *closures), strict=True))
            lifter = ClosureLifter(table, self.random, below_autograd=below_autograd)
            lifter.hooked = _watching(self.closure.guard, real, closed)
            shape_env.note = lifter.note
            given = pytree.tree_map_only(torch.Tensor, lifter.replaced, (self.args, self.kwargs))
            torch.set_autocast_cache_enabled(caches_casts)
            with same_modes(), lifter, transforming(lifter.replaced), _autocast():
                result = self._called(lifter, given)
            if lifter.switched:
                _require_no_gradients(result)
            return self._outputs(lifter, result)

        with self.random, self._closures_kept(), ExitStack() as stack:
            lost = stack.enter_context(recorded_functions(everywhere=False))
            stack.enter_context(quiet())
            stack.enter_context(mode)
            stack.enter_context(fx_traceback.preserve_node_meta())
            traced = make_fx(call, pre_dispatch=not below_autograd, _allow_non_fake_inputs=True)
            module = self._made(traced, fakes, others)
            self.random.require_forward(module)
        _refuse_hooks(lost, module)
        if not below_autograd and _has_fake_constants(module):
            return self.run(below_autograd=True)
        if below_autograd:
            without_saving(module)
        _require_read(module, real, self.closure.guard)
        self._require_same_flags((*fakes, *others), real)
        own = _own_leaves(self.results, known)
        needs_grad = self._needs_grad((*fakes, *others), own)
        made = Results([*fakes, *others])
        return Trace(
            module,
            lifted,
            self.spec,
            tuple(self.leaves),
            shape_env,
            needs_grad=needs_grad,
            requires_grad=tuple(
                [t.requires_grad and i not in own for i, t in enumerate(self.results)]
            ),
            given_grad=tuple([tensor.requires_grad for tensor in (*fakes, *others)]),
            generators=dict(self._generators(module)),
            own_leaves=own,
            inference=made.inference(self.results, needs_grad=needs_grad),
            foreign=frozenset(_foreign(module, self.closure.guard)),
        )

    def _made(self, traced: Callable[..., GraphModule], *given: list[Any]) -> GraphModule:
        """The graph; an error is refused unless the function itself raises it."""
        try:
            return traced(*given)
        except (TorchIRError, BelowAutogradNeeded):
            raise
        except Exception as error:
            if error is self.own_error:
                raise
            raise failed(error) from error

    def _fake(self, mode: FakeTensorMode, position: int, tensor: torch.Tensor) -> torch.Tensor:
        if not (self.dynamic and tensor.dim() and tensor.is_contiguous()):
            return mode.from_tensor(tensor, static_shapes=True)  # torch takes a number for a size
        sizes = [DimDynamic.DYNAMIC if size > 1 else DimDynamic.STATIC for size in tensor.shape]
        context = StatelessSymbolicContext(dynamic_sizes=sizes)
        source = ConstantSource(f"x{position}")
        return mode.from_tensor(tensor, symbolic_context=context, source=source)

    def _lifted(self) -> tuple[int, ...]:
        return tuple(
            [
                position
                for position, tensor in enumerate(self.closure.tensors)
                if id(tensor) not in self.flat.positions
                and tensor.layout is torch.strided
                and not (tensor.is_nested or tensor.is_quantized)
            ]
        )

    def _called(self, lifter: ClosureLifter, given: Any) -> Any:
        args, kwargs = given
        before = pytree.tree_flatten(given)
        watch = EffectWatch([*lifter.table.values()])
        result = None
        try:
            result = self.function(*args, **kwargs)
        except REFUSALS as error:
            lifter.note(error)
        except Exception as error:
            _require_none(lifter.refused)
            watch.require_own(error)
            _require_same_containers(before, pytree.tree_flatten(given))
            self.own_error = error
            raise
        _require_none(lifter.refused)
        _require_same_containers(before, pytree.tree_flatten(given))
        return result

    def _outputs(self, lifter: ClosureLifter, result: Any) -> list[Any]:
        leaves, self.spec = pytree.tree_flatten(_with_sizes(result))
        self.leaves.clear()
        self.results.clear()
        outputs, made = list[Any](), Results([*lifter.table.values()])
        made.require_no_attributes()
        for leaf in map(lifter.replaced, leaves):
            if isinstance(leaf, SYMBOLIC_TYPES):
                outputs.append(leaf)
                self.leaves.append(None)
                continue
            made.require_sayable(leaf)
            if isinstance(leaf, torch.Tensor):
                self.results.append(leaf)
                outputs.append(leaf)
                self.leaves.append(None)
            else:
                self.leaves.append(Leaf(leaf))
        return outputs

    def _generators(self, module: GraphModule) -> Iterator[tuple[str, torch.Generator]]:
        """The generators that the graph holds, as the caller knows them."""
        for node in module.graph.find_nodes(op="get_attr"):
            held = getattr(module, str(node.target), None)
            if isinstance(held, torch.Generator):
                found = [known for known in self.known_generators if is_same(held, known)]
                if not found:
                    raise TraceError(
                        "the function draws from a generator that is found neither in its "
                        "arguments nor in what it closes over",
                        remedy="Give it as an argument, or let a variable hold it.",
                    )
                yield str(node.target), found[0]

    @contextmanager
    def _closures_kept(self) -> Generator[None]:
        """Refuse to leave traced tensors in what the function closes over."""
        copy = self.closure.guard.contents()
        own: Exception | None = None
        try:
            yield
        except Exception as error:
            own = error if error is self.own_error else None
            raise
        finally:
            paths = self.closure.traced_tensors()
            if paths:
                copy.restore()
                if own is not None:
                    raise _kept(paths[0]) from own
        if paths:
            raise _kept(paths[0])

    def _require_same_flags(
        self, fakes: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
    ) -> None:
        for fake, tensor in zip(fakes, tensors, strict=True):
            if fake.requires_grad != tensor.requires_grad and fake.is_leaf:
                raise TraceError(
                    "the function changes whether a tensor that it is given requires a gradient",
                    remedy="Do it outside the traced function.",
                )

    def _needs_grad(self, fakes: Sequence[Any], own: Sequence[int]) -> bool:
        changed = [
            f for f in fakes if requires_grad(f) and f.grad_fn is not None and version_of(f)
        ]
        results = [t for i, t in enumerate(self.results) if i not in own]
        ends = [t for t in (*results, *changed) if requires_grad(t)]
        roots = [t.grad_fn for t in ends if t.grad_fn is not None]
        _refuse_custom_gradients(roots)
        unchanged = {*map(id, fakes)} - {*map(id, changed)}
        return any(id(t) not in unchanged for t in ends)


def _require_no_gradients(result: Any) -> None:
    if any(map(requires_grad, pytree.tree_leaves(result))):
        raise TraceError(
            "the function switches gradients off and takes derivatives with torch.func, and "
            "gradients pass through its result",
            remedy="Call it under torch.no_grad(), or use torch.autograd.grad inside.",
        )


def _watching(
    guard: ClosureGuard, given: Sequence[torch.Tensor], closed: Sequence[torch.Tensor]
) -> Callable[[], bool]:
    """Return what tells whether tensors have hooks on gradients, and watches those closed over."""
    watched = partial(_hooked, closed)
    return lambda: guard.add_probe(watched) or _hooked(given)


def _hooked(tensors: Sequence[torch.Tensor]) -> bool:
    return any(map(has_hooks, tensors))


def _kept(path: str) -> TraceError:
    return TraceError(
        f"the function keeps a tensor that it computes, in {path}: the next call would not find "
        "it there",
        remedy="Write to a tensor in place (as with copy_), or return it. What is made once and "
        "kept (a mask, a grid) is closed over where the function was called before tracing it.",
    )


def _own_leaves(results: Sequence[torch.Tensor], fakes: Sequence[Any]) -> tuple[int, ...]:
    """The results that the function lets require gradients; others must not depend on them."""
    given = set(map(id, fakes))
    wanted = [t for t in results if t.requires_grad]
    with raised_as(lambda error: TraceError(f"gradients are not known: {first_line(error)}")):
        made_by = [t.grad_fn for t in wanted]
    for node in backward_nodes([node for node in made_by if node is not None]):
        leaf = _variable(node)
        if leaf is not None and id(leaf) not in given:
            raise TraceError(
                "gradients pass through a tensor that the function itself lets require them",
                remedy="Let it require gradients outside, and give it as an argument.",
            )
    return tuple(
        [
            i
            for i, t in enumerate(results)
            if t.requires_grad and t.grad_fn is None and id(t) not in given
        ]
    )


@contextmanager
def _autocast() -> Generator[None]:
    """The autocast of the call, as part of what is traced."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                dtype, cache = torch.get_autocast_dtype(device), torch.is_autocast_cache_enabled()
                stack.enter_context(torch.autocast(device, dtype, cache_enabled=cache))
        yield


def _refuse_custom_gradients(roots: Sequence[Any]) -> None:
    """Refuse gradients that a Python class defines: operators alone would have others."""
    known = CallWithGradient._backward_cls  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch makes it
    for node in backward_nodes(roots):
        is_class = isinstance(node, torch.autograd.function.BackwardCFunction)
        if is_class and not isinstance(node, known) and not is_operator_formula(node):
            name = type(node).__name__.removesuffix("Backward")
            raise TraceError(
                f"gradients pass through the autograd function {name}, whose own formula is "
                "not traced",
                remedy="Call the traced function under torch.no_grad(), or make the formula an "
                "operator with torch.library.",
            )


def _refuse_hooks(lost: Iterable[str], module: GraphModule) -> None:
    if BACKWARD_OF_A_BODY in lost and any(map(_has_scan, module.modules())):
        raise TraceError(
            "gradients pass through a scan, and torch traces results of it that have none",
            remedy="Call the traced function under torch.no_grad(), or run a module with "
            "torch_ir.compile(torch_ir.extract_ir(module, args), weights, grad=True).",
        )
    if not HOOKS.isdisjoint(lost):
        raise TraceError(
            "the function registers a hook on gradients that cannot be traced",
            remedy="Make it a function of the gradient, of numbers and tensors, on a value that "
            "nothing has used yet; or do it outside the traced function.",
        )


def _has_scan(module: torch.nn.Module) -> bool:
    scan = torch.ops.higher_order.scan
    return isinstance(module, GraphModule) and any(n.target is scan for n in module.graph.nodes)


def _variable(node: Any) -> torch.Tensor | None:
    """The leaf at which gradients of a node of autograd's graph end, or None."""
    return getattr(node, "variable", None)


def _require_same_containers(before: tuple[list[Any], Any], after: tuple[list[Any], Any]) -> None:
    """Refuse changes of lists and dictionaries among the arguments: a run has other ones."""
    is_same = before[1] == after[1] and len(before[0]) == len(after[0])
    if not is_same or any(a is not b for a, b in zip(before[0], after[0], strict=True)):
        raise TraceError(
            "the function changes a list or dictionary among its arguments",
            remedy="Return what is to be kept, or change a copy.",
        )


class Sizes(tuple[Any, ...]):
    """The elements of a ``torch.Size`` among results; torch's pytree takes it for a tuple."""


def _sizes_of(items: Iterable[Any], context: Any) -> torch.Size:
    return torch.Size(items)


def _items_of(sizes: Sizes) -> tuple[list[Any], None]:
    return list(sizes), None


pytree.register_pytree_node(
    Sizes, _items_of, _sizes_of, serialized_type_name="torch_ir.traced.capture.Sizes"
)


def _with_sizes(result: Any) -> Any:
    """The result with each ``torch.Size`` in it as :class:`Sizes`."""

    def is_size(item: Any) -> bool:
        return type(item) is torch.Size

    def marked(item: Any) -> Any:
        return Sizes(item) if is_size(item) else item

    return pytree.tree_map(marked, result, is_leaf=is_size)


def _require_none(refused: Sequence[tuple[Exception, str]]) -> None:
    """Raise the first of what was refused, whether the function caught it or not."""
    for error, last in refused:
        if isinstance(error, TorchIRError | BelowAutogradNeeded):
            raise error
        raise _data_dependent(error, last) from error


def _data_dependent(error: Exception, tensor: str) -> TraceError:
    found = user_line(error.__traceback__)
    where = "" if found is None else f" at {found[0]}:{found[1]}"
    what = f" of a tensor {tensor}" if tensor else ""
    return TraceError(
        f"the program depends on the values{what}{where}: which way it goes is not known while "
        "it is traced",
        picture=None if found is None else found[2],
        remedy="Choose values with torch.where, or branches with torch.cond; or take the number "
        "with .item() outside, and give it as an argument.",
    )


def _has_fake_constants(module: GraphModule) -> bool:
    """Whether the graph holds traced tensors as if they were constants: a transform hid them."""
    return any(isinstance(value, FakeTensor) for value in _held_by(module))


def _require_unwrapped(tensors: Sequence[torch.Tensor]) -> None:
    """Refuse tensors of classes that hold others: it is these that a trace reads."""
    for tensor in filter(is_traceable_wrapper_subclass, tensors):
        raise TraceError(
            f"the function reads a tensor of the class {type(tensor).__name__}, which holds "
            "tensors",
            remedy="Call it untraced; of a model, extract_ir takes what "
            "torchao.utils.unwrap_tensor_subclass(model) makes of it.",
        )


def _require_read(
    module: GraphModule, tensors: Sequence[torch.Tensor], guard: ClosureGuard
) -> None:
    """Refuse values that are written down and are those of tensors which runs have to read.

    Arrays of NumPy's are watched.
    """
    read = {*map(_memory, tensors)} - {0}
    for value in _held_by(module):
        if isinstance(value, FakeTensor) or guard.shows(value):
            continue
        if _memory(value) in read:
            raise TraceError(
                f"torch traces the values of a tensor {list(value.shape)} that the function is "
                "given or closes over, and they may change",
                remedy="Take a view of it first, as with x.view_as(x).",
            )


def _memory(tensor: torch.Tensor) -> int:
    """Where the memory of a tensor begins; 0 if it has none."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _foreign(module: GraphModule, guard: ClosureGuard) -> Iterator[str]:
    for node, value in constants_of(module):
        if not isinstance(value, FakeTensor) and guard.shows(value):
            yield str(node.target)


def _held_by(module: GraphModule) -> Iterator[torch.Tensor]:
    """Yield the tensors that a graph and the bodies which it calls hold."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from (value for _, value in constants_of(part))


def constants_of(module: GraphModule) -> Iterator[tuple[torch.fx.Node, torch.Tensor]]:
    """Yield the nodes that stand for tensors which the graph holds."""
    for node in module.graph.find_nodes(op="get_attr"):
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            yield node, value
