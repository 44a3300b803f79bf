"""Random programs: calls of every operator that has a denotation, on values that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from random import Random
from typing import Any

import torch

from torch_ir.arguments import require_integer, require_list
from torch_ir.debug.fuzzing.call_recipes import OperandPattern, recipe_of, written_recipe
from torch_ir.debug.fuzzing.call_values import OMITTED, SKIPPED, AttributeDraws, Shape
from torch_ir.debug.fuzzing.dynamic_sizes import with_dynamic_size
from torch_ir.debug.fuzzing.value_pool import MAIN_DTYPES, PoolValue, ValuePool
from torch_ir.debug.reference.eager_call import call_plainly
from torch_ir.errors import InvalidIRError, Raised, attempt, did_you_mean
from torch_ir.infer.meta import evaluate_meta
from torch_ir.infer.resolve import registered_rule, resolve_operator
from torch_ir.infer.storage import elements_are_apart
from torch_ir.infer.types import CallSignature, TensorType, name_of
from torch_ir.ir import IR, FunctionRef, OpNode, Signature, TensorLeaf, TensorMeta
from torch_ir.ir.builder import Names, mutations_in_place, split_arguments
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ops.choices import NEARLY_OPEN, VALUES_OPEN, leaves_ties_open
from torch_ir.ops.schema import Schema, lookup
from torch_ir.semantics import denotation
from torch_ir.semantics.registry import denoted_operators
from torch_ir.semantics.tolerance import states_tolerance
from torch_ir.torch_api import OpOverload, storage_of

CONTROL = ("higher_order.cond", "higher_order.while_loop")
_UNARY = ("sin", "cos", "tanh", "neg", "relu", "sigmoid", "abs", "exp", "erf", "floor", "square")
_LIMITS = {"float16": 1e3, "bfloat16": 1e4, "int8": 100, "uint8": 200}
_TRIES = 12
MAX_SIZE = 4096
"""Of a dimension."""
MAX_NODES = 1_000_000
"""Of a program."""


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """A program with what it runs on.

    Attributes:
        ir: The program.
        weights: Its weights, by key.
        inputs: A tensor for each graph input.
        seed: What it was made from.
    """

    ir: IR
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    inputs: tuple[torch.Tensor, ...] = field(repr=False)
    seed: int


def random_program(
    seed: int,
    *,
    nodes: int = 10,
    operators: Sequence[str] | None = None,
    dtypes: Sequence[str] | None = None,
    dynamic: bool = True,
    writes: bool = True,
    control_flow: bool = True,
    sizes: Sequence[int] | None = None,
) -> RandomProgram:
    """Make a program of random calls; the same for the same seed.

    The calls are valid by construction (:mod:`torch_ir.debug.fuzzing.call_recipes`), and tried
    with torch; one that torch refuses, or whose results overflow, is drawn anew.

    Args:
        seed: What it is made from.
        nodes: How many nodes; fewer where nothing fits.
        operators: Overloads to call, with ``*`` as in file names; all denoted ones if None.
        dtypes: Dtypes of its tensors; most of those that torch has if None.
        dynamic: Whether sizes may be symbols.
        writes: Whether calls may write in place.
        control_flow: Whether there may be conditions and loops.
        sizes: Where sizes of dimensions are drawn from, but for images; small ones if None.

    Raises:
        InvalidIRError: No operator matches, there is no such dtype, or a number is out of range.

    Example:
        >>> program = random_program(1, nodes=3)
        >>> len(program.ir.nodes), program.ir.check()
        (3, ())
    """
    require_integer(seed, "seed")
    require_integer(nodes, "nodes", 0, MAX_NODES)
    require_list(sizes, "sizes", int)
    for size in sizes or ():
        require_integer(size, "a size", 0, MAX_SIZE)
    require_list(operators, "operators", str)
    require_list(dtypes, "dtypes", str)
    random = Random(f"{seed}/{nodes}")  # noqa: S311  # no secret
    patterns = None if operators is None else tuple(operators)
    found = operators_matching(patterns, callable_operators())
    if control_flow and operators is None:
        found = (*found, *CONTROL * (len(found) // 64))
    unknown = next((name for name in dtypes or () if name not in DTYPES), None)
    if unknown is not None:
        hint = did_you_mean(str(unknown), DTYPES)
        raise InvalidIRError(f"there is no dtype {unknown!r}", remedy=hint or None)
    grower = _Grower(seed, random, dtypes or MAIN_DTYPES, sizes, writes=writes)
    for _ in range(nodes * 8):
        if len(grower.nodes) == nodes:
            break
        grower.grow(random.choice(found))
    ir, inputs = grower.program(), tuple(grower.inputs.values())
    ir = ir.replace(mutations=mutations_in_place(ir))  # of what may show one of them, too
    if dynamic and random.random() < 0.4:
        ir = with_dynamic_size(ir) or ir
    return RandomProgram(ir, grower.weights, inputs, seed)


@cache
def operators_matching(
    patterns: tuple[str, ...] | None, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the overloads that one of the patterns matches, with ``*`` as in file names.

    Raises:
        InvalidIRError: A pattern matches none, or there is none.
    """
    if patterns is None:
        return names
    if not patterns:
        raise InvalidIRError("operators= is empty", remedy="Leave it out for all operators.")
    fits = {pattern: {n for n in names if fnmatchcase(n, pattern)} for pattern in patterns}
    for pattern in [pattern for pattern, found in fits.items() if not found]:
        raise InvalidIRError(
            f"no operator matches {pattern}",
            remedy=did_you_mean(pattern, names)
            or "Give whole names such as aten.relu.default, or patterns such as '*relu*'.",
        )
    wanted = set[str]().union(*fits.values())
    return tuple([name for name in names if name in wanted])


@cache
def callable_operators() -> tuple[str, ...]:
    """Return the overloads that random programs call: denoted, and decided by what they take."""
    return tuple([name for name in denoted_operators() if _is_callable(name)])


def _is_callable(op_type: str) -> bool:
    schema, rule = lookup(op_type), registered_rule(op_type)
    if schema is None or rule is None or not rule.allowed:
        return False  # a denotation alone, or what no program may call
    operator = resolve_operator(op_type)
    if op_type.endswith(".tensor2"):  # the range of codes is in tensors
        return False
    if op_type == "aten._efficientzerotensor.default":  # it has no memory, and its views have some
        return False
    if not isinstance(operator, OpOverload) or op_type in VALUES_OPEN:
        return False
    if not op_type.startswith("aten.") and written_recipe(op_type) is None:
        return False
    data = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    is_known = states_tolerance(op_type) and not denotation(op_type).draws
    gives = all(r.type.startswith("Tensor") for r in schema.returns) and schema.returns
    writes = any(argument.is_written for argument in schema.arguments)
    return bool(is_known and gives and not writes and not data & {*operator.tags})


class _Grower(ValuePool):
    """A program that grows by a call at a time, with the value of everything."""

    def __init__(
        self,
        seed: int,
        random: Random,
        dtypes: Sequence[str],
        sizes: Sequence[int] | None,
        *,
        writes: bool,
    ):
        super().__init__(seed, random, tuple(dtypes), sizes)
        self.writes = writes
        self.nodes: list[OpNode] = []
        self.functions: dict[str, IR] = {}

    def grow(self, op_type: str) -> None:
        """Add a call of an operator, if one is found that torch takes."""
        if op_type in CONTROL:
            self._grow_control(op_type)
            return
        schema = lookup(op_type)
        for _ in range(_TRIES if schema else 0):
            assert schema is not None  # noqa: S101  # who calls has looked
            before = self.names
            self.names = Names([*self.metas, *self._taken()])
            self.fresh = []
            arguments = self._arguments(schema)
            if arguments is not None and self._added(op_type, schema, arguments):
                self.values += self.fresh
                return
            self.names = before
            for value in self.fresh:
                for kept in (self.inputs, self.weights, self.metas):
                    kept.pop(value.meta.name, None)

    def _taken(self) -> Iterator[str]:
        for node in self.nodes:
            yield node.name
            yield from [meta.name for meta in node.outputs]

    def _arguments(self, schema: Schema) -> dict[str, Any] | None:
        random, recipe, sizes = self.random, recipe_of(schema), dict[str, Any]()
        found: dict[str, Any] = {}
        first: PoolValue | None = None
        for argument in schema.arguments:
            name = argument.name
            pattern = recipe.operands.get(name)
            if pattern is None or not (argument.takes_tensor or argument.takes_tensor_list):
                continue
            if pattern.kind == "i" and sizes.get(pattern.limit) == 0:
                return None  # there is no place to name
            if argument.is_optional and random.random() < 0.4:
                continue
            many = random.choice((1, 2, 2, 3)) if argument.takes_tensor_list else 1
            count = 1 if pattern.kind else many
            dtype = "" if first is None else first.meta.dtype
            if pattern.kind in ("", "p", "s") and first is not None and dtype == "bool":
                dtype = self.main if recipe.operands[next(iter(found))].kind == "b" else dtype
            values = [
                self.operand(name, pattern, sizes, dtype, schema.op_type) for _ in range(count)
            ]
            first = first or values[0]
            found[name] = values if argument.takes_tensor_list else values[0]
        shape, dtype = ((2, 3), self.main) if first is None else _type_of(first)
        drawn = AttributeDraws(random, schema, shape, dtype)
        for argument in schema.arguments:
            name = argument.name
            if name in found:
                continue
            if name in recipe.attrs:
                found[name] = _resolved(random.choice(recipe.attrs[name]), sizes)
            elif argument.takes_tensor or argument.takes_tensor_list:
                if argument.default is None:
                    found[name] = None
            elif argument.type.removesuffix("?") in OMITTED or name in SKIPPED:
                continue
            elif argument.default is None or random.random() < 0.5:
                found[name] = drawn.value(argument)
        return found

    def _added(self, op_type: str, schema: Schema, arguments: Mapping[str, Any]) -> bool:
        results = self._tried(self._node(op_type, arguments))
        if results is None or not all(map(_is_tame, results)) or _has_ties(op_type, arguments):
            return False
        written = self._in_place(op_type, arguments, results)
        if written is not None:
            op_type, schema, arguments = written
            made = self._tried(self._node(op_type, arguments))
            if made is None:
                return False
            results = made
        is_one = len(schema.returns) == 1 and schema.returns[0].type == "Tensor"
        return self._keep(self._node(op_type, arguments), results, is_one=is_one)

    def _keep(self, node: OpNode, results: Sequence[torch.Tensor], *, is_one: bool) -> bool:
        """Append a node, if what torch says of it without data is what its kernels do."""
        own = self.names.fresh(node.op_type.split(".")[1].strip("_"))
        outputs = [
            TensorMeta(own if is_one else f"{own}.{i}", tuple(t.shape), name_of(t.dtype), own, i)
            for i, t in enumerate(results)
        ]
        node = node.replace(name=own, outputs=outputs)
        if node.op_type not in CONTROL:
            known = {v.meta.name: v.tensor for v in (*self.values, *self.fresh)}
            given = tuple([TensorType.of(known[meta.name]) for meta in node.inputs])
            told = evaluate_meta(CallSignature.of(node, given, {}))  # as a compilation asks
            types = [(m.shape, m.dtype) for m in outputs]
            if told.kind != "ok" or [r and r[:2] for r in told.results] != types:
                return False
        self.nodes.append(node)
        pairs = zip(outputs, results, strict=True)
        self.values += [PoolValue(m, t) for m, t in pairs if t.numel() <= 4096]
        return True

    def _in_place(
        self, op_type: str, arguments: Mapping[str, Any], results: Sequence[torch.Tensor]
    ) -> tuple[str, Schema, dict[str, Any]] | None:
        """The call that writes to its operand, where there is one and the memory is our own."""
        target = arguments.get("self")
        namespace, base, overload = op_type.split(".", 2)
        schema = lookup(f"{namespace}.{base}_.{overload}")
        if not self.writes or schema is None or not isinstance(target, PoolValue):
            return None
        given = {storage_of(t) for t in (*self.inputs.values(), *self.weights.values())}
        same = _type_of(target) == (tuple(results[0].shape), name_of(results[0].dtype))
        read = [v for name, value in arguments.items() if name != "self" for v in _values(value)]
        given |= {storage_of(value.tensor) for value in read}  # kernels may read what they wrote
        is_own = storage_of(target.tensor) not in {*given, storage_of(results[0])}
        same = same and elements_are_apart(target.tensor.shape, target.tensor.stride())
        if not same or not is_own or len(results) > 1 or self.random.random() < 0.3:
            return None
        known = {argument.name for argument in schema.arguments}
        if not known >= arguments.keys() or not schema.arguments[0].is_written:
            return None
        return schema.op_type, schema, dict(arguments)

    def _node(self, op_type: str, arguments: Mapping[str, Any]) -> OpNode:
        inputs, attrs, operands = split_arguments(
            {name: _metas(value) for name, value in arguments.items()}
        )
        return OpNode("call", op_type, inputs, [], attrs, operands)

    def _tried(self, node: OpNode) -> list[torch.Tensor] | None:
        """What torch makes of a call; None where it refuses."""
        known = {v.meta.name: v.tensor for v in (*self.values, *self.fresh)}
        given = [known[meta.name] for meta in node.inputs]
        with torch.no_grad():
            made = attempt(call_plainly, node, given, {}, self.functions, torch.device("cpu"))
        if isinstance(made, Raised):
            return None
        return made if made and all(map(_is_sized, made)) else None

    # -- control flow -----------------------------------------------------------------------------

    def _grow_control(self, op_type: str) -> None:
        random = self.random
        floats = [v for v in self.values if v.meta.dtype == self.main and _is_real(v.meta.dtype)]
        if not floats:
            return
        self.fresh = []
        value = random.choice(floats)
        is_cond = op_type == CONTROL[0]
        dtype, sizes = ("bool" if is_cond else "int64"), dict[str, Any]()
        pattern = OperandPattern((), "b" if is_cond else "n")
        control = self.operand("pred", pattern, sizes, dtype, op_type)
        self.values += self.fresh
        self.fresh = []
        names = [f"body_{len(self.functions)}", f"body_{len(self.functions) + 1}"]
        arguments: dict[str, Any]
        if is_cond:
            for name in names:
                self.functions[name] = _unary_body(random, value.meta)
            true, false = map(FunctionRef, names)
            arguments = {"pred": control, "true_fn": true, "false_fn": false, "operands": [value]}
        else:
            self.functions[names[0]] = _loop_condition(value.meta)
            self.functions[names[1]] = _loop_body(random, value.meta)
            condition, body = map(FunctionRef, names)
            carried = {"carried_inputs": [control, value], "additional_inputs": ()}
            arguments = {"cond_fn": condition, "body_fn": body, **carried}
        node = self._node(op_type, arguments)
        results = self._tried(node)
        if results is None or not all(map(_is_tame, results)):
            for name in names:
                del self.functions[name]
            return
        self._keep(node, results, is_one=False)

    # -- the whole --------------------------------------------------------------------------------

    def program(self) -> IR:
        """The program so far; its outputs are what nothing uses."""
        used = {meta.name for node in self.nodes for meta in node.inputs}
        made = [meta for node in self.nodes for meta in node.outputs]
        outputs = [m for m in made if m.name not in used or self.random.random() < 0.1]
        given = [self.metas[name] for name in self.inputs]
        weights = [self.metas[name] for name in self.weights]
        return IR(self.nodes, given, outputs, weights, functions=self.functions)


def _metas(value: Any) -> Any:
    if isinstance(value, list):
        return [_metas(item) for item in value]  # pyright: ignore[reportUnknownVariableType]  # tensors
    return value.meta if isinstance(value, PoolValue) else value


def _values(value: Any) -> list[PoolValue]:
    items = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]  # operands
    return [item for item in items if isinstance(item, PoolValue)]  # pyright: ignore[reportUnknownVariableType]  # as above


def _type_of(value: PoolValue) -> tuple[Shape, str]:
    return tuple(value.tensor.shape), value.meta.dtype


def _is_sized(item: Any) -> bool:
    """Return whether it is a tensor, of sizes that there are: ``resize`` keeps a -1."""
    return isinstance(item, torch.Tensor) and all(size >= 0 for size in item.shape)


def _is_real(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _is_tame(tensor: torch.Tensor) -> bool:
    """Whether a difference from these numbers means something."""
    info = DTYPES.get(name_of(tensor.dtype))
    if info is None or info.numpy is None:  # as bcomplex32, which no program holds, and complex32
        return False
    if not tensor.numel() or tensor.dtype is torch.bool:
        return not tensor.is_neg()  # of booleans, which torch then does not materialize
    limit = _LIMITS.get(name_of(tensor.dtype), 1e6)
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).abs()
    return bool(wide.isfinite().all()) and float(wide.max()) <= limit


def _resolved(value: Any, sizes: Mapping[str, Any]) -> Any:
    """A value of a recipe, with sizes for letters."""
    if isinstance(value, tuple):
        return tuple([_resolved(item, sizes) for item in value])  # pyright: ignore[reportUnknownVariableType]  # plain
    return sizes.get(value, value) if isinstance(value, str) else value


def _has_ties(op_type: str, arguments: Mapping[str, Any]) -> bool:
    """Whether an operator may name any of several equal elements, and there are such."""
    given = arguments.get("self")
    has_choice = op_type in NEARLY_OPEN or leaves_ties_open(op_type, arguments)
    if not has_choice or not isinstance(given, PoolValue):
        return False
    return len(set(given.tensor.reshape(-1).tolist())) < given.tensor.numel()


# -- bodies ---------------------------------------------------------------------------------------


def _unary_body(random: Random, meta: TensorMeta) -> IR:
    x = TensorMeta("x", meta.shape, meta.dtype)
    y = TensorMeta("y", meta.shape, meta.dtype, "y")
    node = OpNode("y", f"aten.{random.choice(_UNARY)}.default", [x], [y], {}, {"self": 0})
    return IR([node], [x], [y], [])


def _loop_condition(meta: TensorMeta) -> IR:
    i, x = TensorMeta("i", (), "int64"), TensorMeta("x", meta.shape, meta.dtype)
    more = TensorMeta("more", (), "bool", "more")
    node = OpNode("more", "aten.lt.Scalar", [i], [more], {"other": 3}, {"self": 0})
    given = Signature.of(["i", "x"], ()).inputs
    signature = Signature(given, TensorLeaf("more"))  # a tensor, in no tuple
    return IR([node], [i, x], [more], [], signature=signature)


def _loop_body(random: Random, meta: TensorMeta) -> IR:
    i = TensorMeta("i", (), "int64")
    j = TensorMeta("j", (), "int64", "j")
    step = OpNode("j", "aten.add.Tensor", [i], [j], {"other": 1}, {"self": 0})
    body = _unary_body(random, meta)
    return body.replace(
        nodes=[step, *body.nodes],
        graph_inputs=[i, *body.graph_inputs],
        graph_outputs=[j, *body.graph_outputs],
    )
