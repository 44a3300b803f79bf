"""Hypothesis strategies for IRs: well-formed ones, and anything that can be constructed."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hypothesis import strategies as st

from torch_ir.errors import InvalidIRError
from torch_ir.ir import (
    IR,
    Constant,
    Container,
    Device,
    Dim,
    DType,
    FrozenDict,
    FunctionRef,
    Layout,
    Location,
    MemoryFormat,
    Mutation,
    OperatorRef,
    OpNode,
    Signature,
    SymbolRange,
    SymExpr,
    TensorLeaf,
    TensorMeta,
    Tree,
    ValueLeaf,
)
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.symbols import as_dim
from torch_ir.ir.values import LAYOUTS, MEMORY_FORMATS

# -- leaves ---------------------------------------------------------------------------------------

any_text = st.text(st.characters(), max_size=6)  # surrogates, controls, unassigned code points
plain_names = st.from_regex(r"[a-z][a-z0-9_]{0,5}(\.[0-9])?", fullmatch=True)
tricky_names = st.sampled_from(
    # words of the grammar, things that look like other tokens, and what does not print
    [
        *[
            "none",
            "None",
            "True",
            "of",
            "from",
            "as",
            "value",
            "device",
            "dict",
            "return",
            "keys",
            "inf",
            "nan",
            "s0",
            "sha256",
        ],
        *["bytes", "torch.float32", "f32[2]", "%x", "@x", "#", "}", "0", "1x", ".", "a.", "a.00"],
        *["", "a b", 'a"b', "a\nb", "\\", "# a", "\u2028", "\ud800", "é"],
    ]
)
any_names = st.one_of(
    plain_names, st.sampled_from(["x", "y", "y.0", "y.1", "w"]), tricky_names, any_text
)
dtypes = st.sampled_from(sorted(DTYPES))
symbols = st.sampled_from(["s0", "s1", "u0", "s77"])


@cache
def sym_exprs() -> st.SearchStrategy[SymExpr]:
    """Expressions of a few symbols, integers and conditions."""
    atoms = st.one_of(symbols, st.integers(0, 20).map(str))

    def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            st.tuples(
                st.sampled_from(
                    ["({}) + ({})", "({}) - ({})", "({}) * ({})", "min({}, {})", "max({}, {})"]
                ),
                pair,
            ).map(lambda t: t[0].format(*t[1])),
            st.tuples(
                st.sampled_from(["({}) // {}", "({}) % {}"]), st.tuples(inner, st.integers(1, 9))
            ).map(lambda t: t[0].format(*t[1])),
        )

    numbers = st.recursive(atoms, combine, max_leaves=4)
    conditions = st.tuples(numbers, st.sampled_from(["<", "<=", "==", "!="]), numbers).map(
        " ".join
    )
    return st.one_of(numbers, numbers, conditions).map(SymExpr)


@cache
def dims() -> st.SearchStrategy[Dim]:
    """Dimensions: mostly small ints, some expressions that are not constants."""
    expressions = st.one_of(symbols.map(SymExpr), sym_exprs().filter(_is_dimension))
    return st.one_of(st.integers(0, 8), st.integers(0, 8), expressions, st.just(2**63))


def _is_dimension(expression: SymExpr) -> bool:
    try:
        return isinstance(as_dim(expression), SymExpr)
    except InvalidIRError:
        return False


@cache
def shapes(max_size: int = 3) -> st.SearchStrategy[tuple[Dim, ...]]:
    """Shapes with symbolic dimensions here and there."""
    return st.lists(dims(), max_size=max_size).map(tuple)


def floats() -> st.SearchStrategy[float]:
    """Every double, both zeros, infinities and NaN."""
    return st.floats()


@cache
def attributes(leaf_text: st.SearchStrategy[str] = any_text) -> st.SearchStrategy[Any]:
    """Every kind of attribute value, nested."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([2**64, -(2**63), 10**400]),
        floats(),
        st.sampled_from([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e16, 5e-324]),
        st.builds(complex, floats(), floats()),
        leaf_text,
        sym_exprs(),
        dtypes.map(DType),
        st.sampled_from(LAYOUTS).map(Layout),
        st.sampled_from(MEMORY_FORMATS).map(MemoryFormat),
        st.one_of(st.sampled_from(["run", "cpu", "cuda:1"]), leaf_text).map(Device),
        leaf_text.map(FunctionRef),
        leaf_text.map(OperatorRef),
    )

    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(lists, st.dictionaries(leaf_text, inner, max_size=2).map(FrozenDict))

    return st.recursive(leaves, containers, max_leaves=5)


@st.composite
def constants(draw: st.DrawFn, max_dim: int = 4) -> Constant:
    """Constants of every element type from arbitrary bytes: NaN payloads, empty, 0-d, large."""
    dtype = draw(dtypes)
    shape = tuple(draw(st.lists(st.integers(0, max_dim), max_size=3)))
    size = DTYPES[dtype].itemsize
    for dim in shape:
        size *= dim
    patterns = st.sampled_from(
        [b"\0", b"\xff", b"\x01", b"\0\0\x80\x3f", b"\0\0\xc0\x7f", b"\x01\0\x80\x7f"]
    )
    pattern = draw(st.one_of(patterns, st.binary(min_size=1, max_size=16)))
    return Constant(dtype, shape, (pattern * size)[:size])


@st.composite
def views(draw: st.DrawFn, base: Constant, key: str) -> Constant:
    """Views of a constant: any order, overlapping, expanded far beyond any memory, empty."""
    elements = math.prod(base.shape)
    offset = draw(st.integers(0, elements))
    room = elements - offset - 1
    shape: list[int] = [] if room >= 0 else [0]
    strides = [0] * len(shape)
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.integers(0, 4))
        widest = room // (size - 1) if size > 1 and room > 0 else 0
        step = draw(st.integers(0, 9 if size < 2 else widest))
        if step == 0 and draw(st.integers(0, 9)) == 0:
            size = 10**12 if 10**12 not in shape else 1
        room -= step * max(size - 1, 0)
        shape.append(size)
        strides.append(step)
    return base.view_of(key, shape, strides=strides, offset=offset)


@st.composite
def constant_tables(draw: st.DrawFn, keys: st.SearchStrategy[str]) -> dict[str, Constant]:
    """The constants of a program, some of them views of others."""
    plain = draw(st.dictionaries(keys, constants(), max_size=2))
    found = dict(plain)
    bases = [key for key, constant in plain.items() if not constant.dtype.startswith("q")]
    for key in draw(st.lists(keys, max_size=2)) if bases else ():
        base = draw(st.sampled_from(bases))
        if key not in found:
            found[key] = draw(views(plain[base], base))
    return found


@cache
def locations(text: st.SearchStrategy[str] = any_text) -> st.SearchStrategy[Location]:
    """Ordinary source locations and odd ones."""
    ordinary = st.builds(
        Location,
        st.sampled_from(["net.py", "/home/me/my net.py", "C:\\net.py", ""]),
        st.integers(0, 999),
        st.sampled_from(["", "x = self.fc1(x)", "return a  # b: c in d (E)", 'f"{x}"']),
        st.sampled_from(["", "fc1", "layers.3.self_attn"]),
        st.sampled_from(["", "torch.nn.modules.linear.Linear", "net.Net.<locals>.Inner"]),
    )
    odd = st.builds(Location, text, st.integers(), text, text, text)
    return st.one_of(ordinary, odd)


@cache
def trees(names: st.SearchStrategy[str] = any_names) -> st.SearchStrategy[Tree]:
    """Structures: builtin containers, registered classes, tensor and value leaves."""
    leaf_values = attributes()
    leaves = st.one_of(names.map(TensorLeaf), names.map(TensorLeaf), leaf_values.map(ValueLeaf))

    def containers(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        children = st.lists(inner, max_size=3)
        keyed = st.lists(
            st.tuples(st.one_of(st.text(max_size=3), st.integers(), attributes()), inner),
            max_size=3,
        )
        contexts = st.sampled_from(["", "", "[]", '{"a": 1}'])
        return st.one_of(
            st.builds(Container, st.sampled_from(["tuple", "list"]), children, context=contexts),
            st.builds(
                lambda kind, pairs, context: Container(
                    kind, [c for _, c in pairs], [k for k, _ in pairs], context
                ),
                st.sampled_from(["dict", "OrderedDict"]),
                keyed,
                contexts,
            ),
            st.builds(
                Container,
                st.one_of(
                    st.sampled_from(["my.Output", "value", "device", "torch.Size", "keys"]),
                    any_names,
                ).filter(lambda kind: kind not in ("dict", "OrderedDict")),
                children,
                context=st.one_of(contexts, any_text),
            ),
        )

    return st.recursive(leaves, containers, max_leaves=6)


# -- arbitrary IRs --------------------------------------------------------------------------------


@st.composite
def tensor_metas(draw: st.DrawFn, names: st.SearchStrategy[str] = any_names) -> TensorMeta:
    """Any metadata, lies about the producer included."""
    small = st.lists(st.integers(0, 3), max_size=2).map(tuple)
    return TensorMeta(
        draw(names),
        draw(st.one_of(small, small, shapes())),
        draw(st.one_of(st.just("float32"), dtypes)),
        draw(st.one_of(st.none(), names)),
        draw(st.one_of(st.just(0), st.integers(-2, 3), st.just(10**30))),
    )


OPERATORS = (
    "aten.add.Tensor",
    "aten.linear.default",
    "aten.cat.default",
    "aten.index.Tensor",
    "aten.split.Tensor",
    "aten.clamp.Tensor",
    "aten.where.self",
    "aten.convolution.default",
    "aten._assert_async.msg",
    "my.op.default",
    "higher_order.cond",
)
ARGUMENTS = (
    "self",
    "other",
    "input",
    "weight",
    "bias",
    "tensors",
    "indices",
    "alpha",
    "dim",
    "min",
    "max",
    "condition",
    "args",
)


@st.composite
def arbitrary_nodes(draw: st.DrawFn, metas: st.SearchStrategy[TensorMeta]) -> OpNode:
    """Any node: unknown operators, unbound or senseless operands, names of every kind."""
    name = draw(any_names)
    inputs = draw(st.lists(metas, max_size=4))
    arguments = st.one_of(st.sampled_from(ARGUMENTS), any_names)
    gaps = st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=3).map(tuple)
    values = st.one_of(attributes(), gaps)
    attrs = draw(st.dictionaries(arguments, values, max_size=3))
    slots = st.one_of(
        st.none(),
        st.integers(0, max(len(inputs) - 1, 0)),
        st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=3).map(tuple),
        st.integers(-2, 5),
    )
    operands = draw(
        st.one_of(
            st.none(),
            st.dictionaries(arguments, slots, max_size=3),
            st.just({"self": 0, "other": 1}),
            st.just({"args": tuple(range(len(inputs)))}),
        )
    )
    outputs = draw(
        st.one_of(
            st.lists(metas, max_size=3),
            st.just([TensorMeta(name, (2,), "float32", name)]),
            st.just([TensorMeta(f"{name}.{k}", (2,), "float32", name, k) for k in (0, 2)]),
        )
    )
    location = draw(st.one_of(st.none(), locations()))
    op = draw(st.one_of(st.sampled_from(OPERATORS), any_names))
    binds = draw(st.dictionaries(any_names, st.integers(0, 3), max_size=1))
    return OpNode(name, op, inputs, outputs, attrs, operands, location, binds)


LIBRARY_OPERATORS = {
    "mylib.gather_rows.default": "mylib::gather_rows(Tensor table, Tensor? rows=None) -> Tensor",
    "mylib.scale_.out": 'mylib::scale_.out(Tensor(a!) x, str mode="x, y") -> Tensor(a!)',
}


@st.composite
def arbitrary_irs(draw: st.DrawFn, depth: int = 1) -> IR:
    """Any IR, mostly ill-formed: dangling and lying references, names defined twice."""
    pool = draw(st.lists(tensor_metas(), min_size=1, max_size=4))
    metas = st.one_of(st.sampled_from(pool), st.sampled_from(pool), tensor_metas())
    keys = st.one_of(st.sampled_from([meta.name for meta in pool]), any_names)
    functions = (
        st.dictionaries(any_names, arbitrary_irs(depth - 1), max_size=2) if depth else st.just({})
    )
    ranges = st.builds(
        lambda lower, more: SymbolRange(lower, None if more is None else (lower or 0) + more),
        st.one_of(st.none(), st.integers(-3, 10)),
        st.one_of(st.none(), st.integers(0, 2**70)),
    )
    lists = st.lists(metas, max_size=3)
    return IR(
        nodes=draw(st.lists(arbitrary_nodes(metas), max_size=3)),
        graph_inputs=draw(lists),
        graph_outputs=draw(lists),
        weights=draw(lists),
        weight_name_mapping=draw(st.dictionaries(keys, keys, max_size=3)),
        constants=draw(constant_tables(keys)),
        model_name=draw(st.one_of(st.just(""), any_text)),
        pytorch_version=draw(st.one_of(st.just("2.13.0"), any_text)),
        symbols=draw(st.dictionaries(st.one_of(symbols, any_names), ranges, max_size=2)),
        functions=draw(functions),
        mutations=draw(st.lists(st.builds(Mutation, keys, metas), max_size=2)),
        signature=draw(st.one_of(st.none(), st.builds(Signature, trees(), trees()))),
        dialect=draw(st.one_of(st.just("export"), st.just("aten"), any_text)),
        weight_aliases=draw(st.dictionaries(keys, keys, max_size=2)),
        operators=draw(st.sampled_from([{}, LIBRARY_OPERATORS])),
        guards=draw(st.lists(sym_exprs(), max_size=2)),
        metadata=draw(st.dictionaries(any_text, attributes(), max_size=2)),
    )


# -- well-formed IRs ------------------------------------------------------------------------------


class _Builder:
    """A well-formed graph of float32 matrices [rows, 4], and what nodes may use so far."""

    def __init__(self, draw: st.DrawFn, rows: list[Dim]):
        self.draw = draw
        self.nodes: list[OpNode] = []
        self.weights: list[TensorMeta] = []
        self.constants: dict[str, Constant] = {}
        self.names: dict[str, str] = {}
        self.inputs = [TensorMeta(f"x{i}", (n, 4), "float32") for i, n in enumerate(rows)]
        self.values = list(self.inputs)

    def pick(self) -> TensorMeta:
        return self.draw(st.sampled_from(self.values))

    def weight(self, shape: tuple[int, ...]) -> TensorMeta:
        key = f"layer{len(self.weights)}.weight"
        name = "p_" + key.replace(".", "_")
        self.weights.append(TensorMeta(key, shape, "float32"))
        self.names[name] = key
        return TensorMeta(name, shape, "float32")

    def constant(self, value: Constant) -> TensorMeta:
        key = f"idx{len(self.constants)}"
        self.constants[key] = value
        self.names[f"c_{key}"] = key
        return TensorMeta(f"c_{key}", value.shape, value.dtype)

    def index(self) -> TensorMeta:
        """A constant with the numbers of four columns, by itself or every other one of eight."""
        order = Constant.from_list(self.draw(st.permutations(range(4))), "int64")
        if self.draw(st.booleans()):
            return self.constant(order)
        storage = f"idx{len(self.constants)}.storage"
        pairs = [number for pair in zip(order.tolist(), [9] * 4, strict=True) for number in pair]
        self.constants[storage] = Constant.from_list(pairs, "int64")
        return self.constant(self.constants[storage].view_of(storage, (4,), strides=(2,)))

    def add(
        self, op: str, inputs: list[TensorMeta], shapes: list[tuple[Dim, ...]], **fields: Any
    ) -> None:
        name = f"{op.split('.')[1]}_{len(self.nodes)}"
        names = [name] if len(shapes) == 1 else [f"{name}.{k}" for k in range(len(shapes))]
        outputs = [
            TensorMeta(n, s, "float32", name, k)
            for k, (n, s) in enumerate(zip(names, shapes, strict=True))
        ]
        line = len(self.nodes) + 1
        located = Location("net.py", line, "x = self.fc(x)", f"layers.{line % 3}", "net.Layer")
        location = self.draw(st.sampled_from([None, located]))
        self.nodes.append(OpNode(name, op, inputs, outputs, location=location, **fields))
        self.values.extend(outputs)

    def step(self) -> None:
        x = self.pick()
        same = [value for value in self.values if value.shape == x.shape]
        y = self.draw(st.sampled_from(same))
        match self.draw(
            st.sampled_from(["relu", "add", "linear", "cat", "index", "norm", "clamp"])
        ):
            case "relu":
                self.add("aten.relu.default", [x], [x.shape])
            case "add":
                alpha = self.draw(st.sampled_from([{}, {"alpha": 2}, {"alpha": -0.5}]))
                self.add("aten.add.Tensor", [x, y], [x.shape], attrs=alpha)
            case "linear":
                bias = [self.weight((4,))] if self.draw(st.booleans()) else []
                self.add("aten.linear.default", [x, self.weight((4, 4)), *bias], [x.shape])
            case "cat":
                shape = (x.shape[0] + y.shape[0], 4)
                self.add("aten.cat.default", [x, y], [shape], attrs={"dim": 0})
            case "index":
                index = self.index()
                operands = {"self": 0, "indices": (None, 1)}
                self.add("aten.index.Tensor", [x, index], [x.shape], operands=operands)
            case "norm":
                shapes = [x.shape, (x.shape[0], 1), (x.shape[0], 1)]
                operands = {"input": 0, "bias": 1}
                attrs = {"normalized_shape": [4], "weight": None, "eps": 1e-5}
                self.add(
                    "aten.native_layer_norm.default",
                    [x, self.weight((4,))],
                    shapes,
                    attrs=attrs,
                    operands=operands,
                )
            case _:
                self.add("aten.clamp.Tensor", [x, y], [x.shape], operands={"self": 0, "max": 1})


@st.composite
def well_formed_irs(draw: st.DrawFn, max_nodes: int = 8, *, symbolic: bool = True) -> IR:
    """IRs without a finding: single assignment, definition before use, true metadata."""
    sizes: st.SearchStrategy[Dim] = st.integers(1, 5)
    rows = draw(
        st.lists(
            st.one_of(sizes, st.just(SymExpr("s0"))) if symbolic else sizes, min_size=1, max_size=3
        )
    )
    builder = _Builder(draw, rows)
    for _ in range(draw(st.integers(0, max_nodes))):
        builder.step()
    outputs = draw(st.lists(st.sampled_from(builder.values), min_size=1, max_size=3))
    arguments = tuple([TensorLeaf(meta.name) for meta in builder.inputs])
    results = [TensorLeaf(meta.name) for meta in outputs]
    signature = Signature(
        Container("tuple", (Container("tuple", arguments), Container("dict"))),
        Container("dict", [*results, ValueLeaf(None)], [*map(str, range(len(results))), "none"]),
    )
    aliases = (
        {"head.weight": builder.weights[0].name} if builder.weights and draw(st.booleans()) else {}
    )
    is_symbolic = SymExpr("s0") in rows
    return IR(
        nodes=builder.nodes,
        graph_inputs=builder.inputs,
        graph_outputs=outputs,
        weights=builder.weights,
        weight_name_mapping=builder.names,
        constants=builder.constants,
        model_name=draw(st.sampled_from(["", "Net"])),
        pytorch_version="2.13.0",
        symbols={"s0": SymbolRange(1, draw(st.sampled_from([None, 64])))} if is_symbolic else {},
        signature=draw(st.sampled_from([None, signature])),
        weight_aliases=aliases,
        metadata=draw(st.sampled_from([{}, {"author": "me", "loss": 0.5}])),
    )


def rename_values(ir: IR, prefix: str = "v") -> IR:
    """The same program with every value and node named anew; keys, functions, symbols stay."""
    from torch_ir.ir.tree import map_names

    new: dict[str, str] = {}

    def name(old: str) -> str:
        return new.setdefault(old, f"{prefix}{len(new)}")

    def meta(old: TensorMeta) -> TensorMeta:
        producer = (
            None if old.producer_node is None else f"{prefix}_node_{name(old.producer_node)}"
        )
        return old.replace(name=name(old.name), producer_node=producer)

    nodes = [
        node.replace(
            name=f"{prefix}_node_{name(node.name)}",
            inputs=tuple(map(meta, node.inputs)),
            outputs=tuple(map(meta, node.outputs)),
        )
        for node in ir.nodes
    ]
    mapped = set(ir.weight_name_mapping.values())
    keys = [key for key in (*[w.name for w in ir.weights], *ir.constants) if key not in mapped]
    signature = ir.signature and Signature(
        map_names(ir.signature.inputs, name), map_names(ir.signature.outputs, name)
    )
    return ir.replace(
        nodes=tuple(nodes),
        graph_inputs=tuple(map(meta, ir.graph_inputs)),
        graph_outputs=tuple(map(meta, ir.graph_outputs)),
        weight_name_mapping=FrozenDict(
            {name(old): key for old, key in ir.weight_name_mapping.items()}
            | {name(key): key for key in keys}
        ),
        mutations=tuple([Mutation(name(m.target), meta(m.value)) for m in ir.mutations]),
        signature=signature,
    )
