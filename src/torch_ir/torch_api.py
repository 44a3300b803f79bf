"""The uses of torch beyond its public API: the places to look at when torch changes.

Other modules import what is here, also torch's own names: an import ``as`` its name is for them.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
import torch._higher_order_ops as _registers_control_flow  # pyright: ignore[reportUnusedImport]  # cond, while_loop, scan  # noqa: F401
import torch.utils._pytree as pytree
import torch.utils.checkpoint
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
from torch._functorch import predispatch
from torch._library import custom_ops
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.fx.experimental.symbolic_shapes import CallMethodKey
from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges
from torch.utils.dlpack import from_dlpack, to_dlpack  # pyright: ignore[reportPrivateImportUsage]  # a public name

from torch_ir.ir.constants import view_fault
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.tensor import Constant
from torch_ir.ir.values import dtype_name
from torch_ir.kernel_switches import kernel_switches
from torch_ir.ops.schema import Schema, lookup, parse_schema
from torch_ir.torch_mends import mend_torch
from torch_ir.torch_modes import is_watched
from torch_ir.torch_versions import warn_if_untested

NEEDS_DATA = (DataDependentOutputException, DynamicOutputShapeException)
"""Errors by which a fake kernel says that data decides a number or a size of its result."""
UNKNOWN_RESULT = (*NEEDS_DATA, UnsupportedOperatorException)
NO_FAKE_RESULT = (*UNKNOWN_RESULT, NotImplementedError)
"""Errors by which a fake tensor says that it cannot know a result, not that the call is wrong."""

warn_if_untested(torch.__version__)
mend_torch()

fake_tensor_log = logging.getLogger("torch._subclasses.fake_tensor")
"""Where torch writes what a fake tensor refuses, besides raising it."""

BelowAutograd = torch._C._AutoDispatchBelowAutograd  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
"""A context in which calls go past autograd: no graph is recorded, results are plain tensors."""

DelayedError: Any = torch._C._functions.DelayedError  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]  # what once_differentiable applies
SingleLevelFunction: Any = torch.autograd.function._SingleLevelFunction  # pyright: ignore[reportPrivateUsage]  # torch has no public name
"""The class above ``torch.autograd.Function``, whose ``apply`` that of every function calls."""

APPLIED_IN_C = not isinstance(vars(torch.autograd.Function)["apply"], classmethod)
"""Whether ``Function.apply`` itself is C++, as since torch 2.14."""

StopsRecomputation: Any = torch.utils.checkpoint._StopRecomputationError  # pyright: ignore[reportPrivateUsage]  # torch has no public name
"""What a checkpoint raises in a forward that it runs again, when it has what it wants."""

KEEPS_ARGUMENTS: Any = getattr(torch.utils.checkpoint, "_NoopSaveInputs", None)
"""By what checkpoints of torch 2.11 keep arguments: no gradient passes through it."""

LEAVE_VMAP: Any = predispatch._vmap_decrement_nesting  # pyright: ignore[reportPrivateUsage]  # torch has no public name
"""What ends a level of ``torch.vmap``: while torch 2.11 traces, it asks modes for that too."""

BelowViewTracking = torch._C._AutoDispatchBelowADInplaceOrView  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
"""As :data:`BelowAutograd`, and views do not know what they are views of, which costs less."""

symbolic_config: Any = torch.fx.experimental._config  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
"""How torch decides by sizes that vary."""

SYMBOLIC_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)


def constant_tensor(constant: Constant, base: torch.Tensor | None = None) -> torch.Tensor:
    """Make a tensor with exactly the constant's bits and strides.

    Args:
        constant: The constant.
        base: For a view, the tensor of its base, whose memory it then shares. Without it the
            tensor has fresh memory on the CPU.

    Example:
        >>> from torch_ir.ir import Constant
        >>> constant_tensor(Constant.from_list([1.5, -0.0], "bfloat16"))
        tensor([1.5000, -0.0000], dtype=torch.bfloat16)
    """
    if constant.view is not None:
        if base is None:
            is_filled, view = constant.is_filled, constant.view
            size = memoryview(constant.data or b"").nbytes // DTYPES[constant.dtype].itemsize
            size = view.end(constant.shape) if is_filled else size
            base = constant_tensor(
                Constant(constant.dtype, (size,), constant.data, is_filled=is_filled)
            )
        whole = base.contiguous()
        offset = whole.storage_offset() + constant.view.offset
        return whole.as_strided(constant.shape, constant.view.strides, offset)
    dtype = getattr(torch, constant.dtype)
    if constant.is_filled:
        one = torch.frombuffer(bytearray(constant.data or b""), dtype=torch.uint8).view(dtype)
        return one.expand(constant.shape).contiguous()
    made = torch.empty(constant.shape, dtype=dtype, device="cpu")
    if made.numel():  # memory of torch's own: that of others has no lazy clone
        made.view(-1).view(torch.uint8).numpy().data[:] = constant.tobytes()
    return made


def constant_tensors(
    constants: Mapping[str, Constant],
    keys: Iterable[str],
    given: Mapping[str, torch.Tensor] | None = None,
    device: torch.device | None = None,
) -> dict[str, torch.Tensor]:
    """Make the tensors of some constants; views share the memory of their base.

    Args:
        constants: Constants by key, as in ``ir.constants``.
        keys: Those that are wanted.
        given: Tensors that take the place of constants, by key: also below the views of these.
        device: Where they are made; the CPU if not said.

    Example:
        >>> from torch_ir.ir import Constant
        >>> table = Constant.from_list([[1, 2], [3, 4]], "int64")
        >>> constants = {"table": table, "column": table.view_of("table", (2,), strides=(2,))}
        >>> made = constant_tensors(constants, ["table", "column"])
        >>> made["table"][1, 0] = 7
        >>> made["column"]
        tensor([1, 7])
    """
    made = dict(given or {})

    def tensor(key: str) -> torch.Tensor:
        if key not in made:
            constant = constants[key]
            if constant.view is None:
                made[key] = constant_tensor(constant).to(device)
            else:
                made[key] = constant_tensor(constant, base(key, constant.view.base))
        return made[key]

    def base(view: str, key: str) -> torch.Tensor | None:
        """None where there is none, or one that is refused: that is told elsewhere."""
        if view_fault(constants, view) is not None:
            return None
        found, declared = tensor(key), constants[key]
        is_fitting = (*found.shape,) == declared.shape
        return (
            found
            if is_fitting and dtype_name(found.dtype, strict=False) == declared.dtype
            else None
        )

    return {key: tensor(key) for key in keys}


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a dense tensor in row-major order, as a flat uint8 tensor on the CPU.

    Example:
        >>> bytes_of(torch.tensor([1, -2], dtype=torch.int16))
        tensor([  1,   0, 254, 255], dtype=torch.uint8)
    """
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if dense._is_zerotensor():  # pyright: ignore[reportPrivateUsage]  # which has no memory; torch has no public name
        dense = torch.zeros(dense.shape, dtype=dense.dtype)
    # by a handle of its own: what NumPy sees of another is not resized any more
    return from_dlpack(to_dlpack(dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)))


def have_equal_bytes(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two dense tensors have the same bytes in row-major order."""
    first, second = (bytes_of(item).numpy() for item in (tensor, other))  # torch.equal is slow
    return len(first) == len(second) and bool((first == second).all())


@lru_cache(maxsize=4096)
def operator_schema(operator: OpOverload) -> Schema:
    """Return the schema of an operator in the torch that runs; arguments have recorded names."""
    own = parse_schema(str(operator._schema))  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
    known = lookup(own.op_type)
    return known if known is not None and known.nameless == own.nameless else own


@lru_cache(maxsize=4096)
def own_names(operator: OpOverload) -> Mapping[str, str]:
    """Return the name that torch has for each argument, by the one in programs."""
    names = [argument.name for argument in operator_schema(operator).arguments]
    return dict(zip(names, [a.name for a in operator._schema.arguments], strict=True))  # pyright: ignore[reportPrivateUsage]  # as above


def lacking_namespace(error: Exception) -> str:
    """Return the namespace that was asked for an operator that it lacks; empty if none was."""
    asked: Any = getattr(error, "obj", None)
    return asked.name if isinstance(asked, type(torch.ops.aten)) else ""


def overload(namespace: str, packet: str, name: str) -> OpOverload | None:
    """Look up the operator of exactly that namespace, packet and overload, or None."""
    if not (namespace.isidentifier() and packet.isidentifier()):
        return None
    try:
        found = getattr(getattr(torch.ops, namespace), packet)
        return getattr(found, name) if name in found.overloads() else None
    except AttributeError:
        return None


def runs_below_autograd(operator: OpOverload) -> bool:
    """Return whether an operator has a kernel of a device, and not at autograd's level alone."""
    has: Any = torch._C._dispatch_has_computed_kernel_for_dispatch_key  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]  # torch has no public name
    return any(has(operator.name(), key) for key in ("CPU", "CUDA"))


def higher_order_operator(name: str) -> HigherOrderOperator | None:
    """Look up the higher-order operator of that name, or None."""
    found: Any = getattr(torch.ops.higher_order, name, None) if name.isidentifier() else None
    return found if isinstance(found, HigherOrderOperator) else None


def symbol_of(value: Any) -> Any:
    """Return the sympy symbol of a symbolic number; None for one that was computed.

    Its expression is what torch writes for it since: something else where torch has concluded
    that both are equal.
    """
    made = value.node._expr
    return made if made.is_symbol else None


def guards_of(exported: ExportedProgram) -> list[str]:
    """Return the conditions on its arguments under which a program was traced, as text."""
    return list(exported._guards_code or ())  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor


def unbacked_key(result: int | None, axis: int | None) -> tuple[Any, ...]:
    """Return the path by which torch finds a data-dependent size or number in a call's results.

    Args:
        result: The position of the result; None if there is one alone.
        axis: The dimension; None if the result is the number.
    """
    path: tuple[Any, ...] = () if result is None else (pytree.SequenceKey(result),)
    return path if axis is None else (*path, CallMethodKey("size"), pytree.SequenceKey(axis))


def value_range(lower: int | None, upper: int | None) -> ValueRanges[Any]:
    """Make a range of integers; an end that is None is unbounded."""
    return ValueRanges(-int_oo if lower is None else lower, int_oo if upper is None else upper)


def range_ends(found: ValueRanges[Any]) -> tuple[int | None, int | None]:
    """Return the ends of a range of torch's; None where one is infinite, or as good as.

    Example:
        >>> range_ends(value_range(0, None))
        (0, None)
    """
    lower, upper = (
        int(end) if getattr(end, "is_finite", True) and abs(end) < 2**62 else None
        for end in (found.lower, found.upper)
    )
    return lower, upper


def module_call_graph(
    names: list[str] | None, in_spec: pytree.TreeSpec, out_spec: pytree.TreeSpec
) -> list[ModuleCallEntry]:
    """Describe how the arguments and results of an exported program are nested, and named."""
    return [ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec, names))]


def state_of_torch() -> tuple[object, ...]:
    """Return the global state that torch's decompositions may depend on."""
    return operator_count(), torch.get_default_dtype(), *kernel_switches()


def operator_count() -> int:
    """Count the operators that are registered: an import, a library or a definition adds them."""
    defined = torch.library._defs  # pyright: ignore[reportPrivateUsage]  # torch has no public list
    return _operator_count(len(sys.modules), len(torch.ops.loaded_libraries), len(defined))


@lru_cache(maxsize=1)
def _operator_count(modules: int, libraries: int, defined: int) -> int:
    """Count them anew where something may have registered more: the list takes milliseconds."""
    return len(torch._C._dispatch_get_all_op_names())  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name


def assume(condition: Any) -> None:
    """Let torch reason about symbolic sizes as if the condition held."""
    torch._check(condition)  # pyright: ignore[reportPrivateUsage]  # public but for its name


@contextmanager
def without_mkldnn() -> Generator[None]:
    """Switch off the libraries of kernels for CPUs that torch asks for in a ``with`` block.

    torch then decomposes recurrent layers into arithmetic, in place of single calls of a library;
    and it infers convolutions without asking whether their batch is below 16, which is a guard.
    """
    names = ("mkldnn", "nnpack")
    kept = [getattr(torch._C, f"_get_{name}_enabled")() for name in names]  # pyright: ignore[reportPrivateUsage]  # the public contexts set other flags too, and warn
    try:
        for name in names:
            getattr(torch._C, f"_set_{name}_enabled")(False)  # pyright: ignore[reportPrivateUsage]  # as above
        yield
    finally:
        for name, enabled in zip(names, kept, strict=True):
            getattr(torch._C, f"_set_{name}_enabled")(enabled)  # pyright: ignore[reportPrivateUsage]  # as above


def parameters_of(operator: HigherOrderOperator) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a higher-order operator, by its Python signature."""
    names = _VARIADIC.get(operator.name())
    if names is not None:
        kind = inspect.Parameter.POSITIONAL_ONLY
        return tuple([inspect.Parameter(name, kind) for name in names])
    return tuple(inspect.signature(type(operator).__call__).parameters.values())[1:]


# What operators take that are declared as taking anything.
_VARIADIC = {"map_impl": ("f", "xs", "pos_args")}


def dispatch_keys(tensor: torch.Tensor) -> int:
    """Return the dispatch keys of a tensor: backend, layout, conjugate and negative views."""
    return torch._C._dispatch_keys(tensor).raw_repr()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name


def is_operator_formula(node: Any) -> bool:
    """Return whether a node of autograd's graph is the formula of an operator, in Python."""
    module = type(node)._forward_cls.__module__
    return module == "torch._library.autograd" or module.startswith("torch._higher_order_ops.")


def has_hooks_of_all_modules() -> bool:
    """Return whether some hook runs at the call of every module."""
    return bool(torch.nn.modules.module._has_any_global_hook())  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def shape_of(tensor: torch.Tensor) -> Sequence[Any]:
    """Return the shape of a tensor; of one that is nested and strided, those of its parts."""
    if tensor.is_nested and tensor.layout is torch.strided:
        return tuple([part.shape for part in tensor.unbind()])
    return tensor.shape


def is_inexact(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor are floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_sparse(value: object) -> bool:
    """Return whether something is a tensor of a layout that is not strided."""
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def is_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape, element type and device."""
    return (tensor.shape, tensor.dtype, tensor.device) == (other.shape, other.dtype, other.device)


def requires_grad(value: object) -> bool:
    """Return whether something is a tensor that requires a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def draws(node: torch.fx.Node) -> bool:
    """Return whether a node of torch's graphs calls what draws from the default generator."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def tensor_guard(tensors: Sequence[torch.Tensor]) -> Callable[[], bool]:
    """Return a predicate: whether distinct tensors still have their classes, types and layouts.

    Example:
        >>> tensor = torch.ones(2)
        >>> unchanged = tensor_guard([tensor])
        >>> unchanged(), tensor.requires_grad_() is tensor, unchanged()
        (True, True, False)
    """
    dense = [t for t in tensors if t.layout is torch.strided and not t.is_nested]
    rest = [t for t in tensors if t.layout is not torch.strided or t.is_nested]
    others = [(t, (t.layout, shape_of(t))) for t in rest]
    sizes = [list(tensor.shape) for tensor in dense]
    strides = [list(tensor.stride()) for tensor in dense]
    guards = torch._C._dynamo.guards.TensorGuards(  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
        *dense, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
    )
    check = guards.check

    def unchanged() -> bool:
        return bool(check(*dense)) and all(
            (tensor.layout, shape_of(tensor)) == known for tensor, known in others
        )

    return unchanged if tensors else lambda: True


MAX_GUARDS = 16
"""Of one place: where each call has tensors of another kind, guards are a loss."""


def plain_guard(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """Return a predicate of tensors: whether they have the types and layouts of these.

    And whether dispatch is as it was for these: no transform or autocast came in between (but
    see :func:`~torch_ir.torch_modes.has_modes_beside_keys`). It raises a TypeError for another
    number of them, and ends the process for a nested tensor, which torch asks for strides.

    Args:
        tensors: Plain ones, in order, in memory of their own, that require no gradients: what
            fits records none, in whatever mode. None is returned for others.

    Example:
        >>> fits = plain_guard([torch.ones(2, 3)])
        >>> fits(torch.zeros(2, 3)), fits(torch.zeros(3, 2).t()), fits(torch.zeros(2, 3).double())
        (True, False, False)
    """
    if is_watched() or not all(lies_in_order(t) and not t.requires_grad for t in tensors):
        return None
    check: Callable[..., bool] = torch._C._dynamo.guards.TensorGuards(  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    ).check
    return check


def lies_in_order(tensor: Any) -> bool:
    """Return whether a tensor's values lie in order as they are, in memory of its own."""
    is_dense = tensor.__class__ is torch.Tensor and tensor.layout is torch.strided
    return is_dense and tensor.is_contiguous() and not tensor.is_neg() and bool(tensor.data_ptr())


def has_storage(value: Any) -> bool:
    """Return whether the values of something are in one storage, if it is a tensor.

    Those of a sparse tensor are in others, as those of a class that holds tensors.
    """
    if value.__class__ is torch.Tensor:  # as nearly always, in each call
        return value.layout is torch.strided
    return not is_sparse(value) and not is_traceable_wrapper_subclass(value)


def version_of(tensor: torch.Tensor) -> int:
    """Count the writes to a tensor."""
    return tensor._version  # pyright: ignore[reportPrivateUsage]  # public but for its name


def has_hooks(tensor: torch.Tensor) -> bool:
    """Return whether functions are called on the gradient of a tensor as it is computed."""
    return bool(tensor._backward_hooks)  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def extent_of(tensor: torch.Tensor) -> int:
    """Count the elements of memory from the first to the last element of a strided tensor.

    Example:
        >>> extent_of(torch.ones(2, 3)[:, 1]), extent_of(torch.ones(1).expand(5))
        (4, 1)
    """
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in pairs) if tensor.numel() else 0


def in_place_of(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the tensor that is in a storage what a strided one is in its own."""
    empty = torch.empty(0, dtype=tensor.dtype, device=storage.device)
    made = empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    made = made.conj() if tensor.is_conj() else made
    return torch._neg_view(made) if tensor.is_neg() else made  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]  # torch has no public name


def storage_of(tensor: torch.Tensor) -> int:
    """Return a key of a tensor's storage."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def global_module_hooks() -> list[dict[int, Any]]:
    """Return the hooks that torch runs in the call of every module."""
    from torch.nn.modules import module

    kinds = ("forward", "forward_pre", "backward", "backward_pre")
    return [getattr(module, f"_global_{kind}_hooks") for kind in kinds]


def dict_versions(mappings: Sequence[dict[Any, Any]]) -> list[int]:
    """Return for each dictionary a number that any change of it changes.

    Example:
        >>> mapping = {"a": 1}
        >>> before = dict_versions([mapping])
        >>> mapping["a"] = 2
        >>> dict_versions([mapping]) == before
        False
    """
    return list(map(_dict_version, mappings))


_dict_version: Callable[[dict[Any, Any]], int] = torch._C._dynamo.guards.dict_version  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name


def overload_name(name: str) -> str:
    """Return torch's full name of an operator as programs spell it.

    Example:
        >>> overload_name("aten::add.Tensor"), overload_name("aten::relu")
        ('aten.add.Tensor', 'aten.relu.default')
    """
    dotted = name.replace("::", ".", 1)
    return dotted if dotted.count(".") == 2 else f"{dotted}.default"


def library_operators(namespaces: Collection[str]) -> dict[str, str]:
    """Return the overloads of some namespaces and those of ``torch.library.custom_op``, sorted.

    Returns:
        For each, the module that made it a custom operator, or an empty string.
    """
    makers: dict[str, str] = {
        name: str(made._init_fn.__module__)
        for name, made in custom_ops.OPDEFS.items()
        if made._init_fn.__module__.partition(".")[0] not in ("torch", "torch_ir")
    }
    wanted = {*namespaces, *(name.partition("::")[0] for name in makers)}
    names = torch._C._dispatch_get_all_op_names()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # torch has no public name
    return {
        overload_name(name): makers.get(name.partition(".")[0], "")
        for name in sorted(names)
        if name.partition("::")[0] in wanted
    }


def has_fake_kernel(operator: OpOverload) -> bool:
    """Return whether the results of an operator are known without a run of it."""
    name = str(operator._schema.name)  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
    if name in custom_ops.OPDEFS:
        return custom_ops.OPDEFS[name]._abstract_fn is not None
    keys = (DispatchKey.Meta, DispatchKey.CompositeImplicitAutograd)
    return any(map(operator.has_kernel_for_dispatch_key, keys))


def number_functions() -> frozenset[Any]:
    """Return the functions of numbers that the graph of an ``ExportedProgram`` may call."""
    from torch._export.verifier import Verifier

    symbolic = [getattr(torch, name) for name in dir(torch) if name.startswith("sym_")]
    return frozenset([*Verifier().allowed_builtin_ops(), *symbolic])


def onnx_registry() -> Any:
    """Return what torch's ONNX exporter translates, and how; it needs onnxscript."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  # pyright: ignore[reportUnusedImport]  # it takes what torch knows by then
    from torch.onnx._constants import ONNX_DEFAULT_OPSET  # pyright: ignore[reportPrivateUsage]
    from torch.onnx._internal.exporter import _registration  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

    return _registration.ONNXRegistry.from_torchlib(opset_version=ONNX_DEFAULT_OPSET)


def onnx_model(exported: ExportedProgram, registry: Any) -> Any:
    """Convert a program as torch.onnx.export does, with a registry of :func:`onnx_registry`.

    Torch makes one anew each time, which takes 0.6 s.
    """
    from torch.onnx._internal.exporter import _core  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

    program: Any = _core.export(
        exported, registry=registry, verbose=False, opset_version=registry.opset_version
    )
    return program.model_proto


def fake_store() -> Any:
    """Return a store for process groups of the backend ``fake``, which send nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    return FakeStore()
