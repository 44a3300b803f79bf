"""Every operator has a verdict, and the verdict has a rule."""

import importlib
import pkgutil
from collections import Counter

import pytest
import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import _higher_order_ops

import torch_ir
from torch_ir import allow_operators, operator_rule
from torch_ir.errors import ExecutionError, InvalidIRError
from torch_ir.infer.resolve import registered_rule
from torch_ir.ops.rules import WRITTEN_IN_PYTHON, names_place
from torch_ir.ops.schema import known_operators, lookup
from torch_ir.ops.spec import tagged_traits
from torch_ir.torch_versions import torch_is

FILES = ["aten.from_file.default", "aten.from_file.out", "debugprims.load_tensor.default"]
MEMORY = [
    "inductor._reinterpret_tensor.default",
    "inductor._alloc_from_pool.default",
    *[
        f"aten._sparse_{kind}_tensor_unsafe.default"
        for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed")
    ],
    "aten.set_.source_Storage",
    "aten.set_.source_Tensor_storage_offset",
]
PROCESS = ["aten._print.default", "profiler._record_function_enter.default"]
HIGHER_ORDER = [
    f"higher_order.{name}"
    for name in (
        "print",
        "call_torchbind",
        "inductor_compiled_code",
        "aoti_call_delegate",
        "inline_asm_elementwise",
        "run_const_graph",
        "invoke_leaf_function",
    )
]

PYTHON_OPERATORS = {
    "torch_nn": "torch_nn._linear_cross_entropy_batch_chunked.default",
    "flex_lib": "flex_lib.zeros_and_scatter.default",
}


def registered() -> list[str]:
    for module in ("edge.dim_order_kernels", "backend.kernels"):
        importlib.import_module(f"torch_ir.dialects.{module}")
    found = []
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.replace("::", ".", 1)
        found.append(f"{name}.{schema.overload_name or 'default'}")
    return found


def is_torchs(op_type: str) -> bool:
    """Whether the test process did not define it itself."""
    from torch_ir.ops.rules import namespaces

    return op_type.partition(".")[0] in {*namespaces(), "dim_order_ops", "executorch_prims"}


@pytest.mark.recorded
def test_every_operator_that_torch_registers_has_a_verdict_with_a_rule():
    op_types = [op_type for op_type in registered() if is_torchs(op_type)]
    rules = Counter(operator_rule(op_type).rule.partition(":")[0] for op_type in op_types)
    undecided = [o for o in op_types if operator_rule(o).rule.startswith("rule 11")]
    assert not undecided, f"no rule decides {undecided}: run `make generate`, and look at them"
    assert set(rules) == {f"rule {number}" for number in (1, 2, 3, 5, 6, 7)}
    assert rules["rule 5"] > 3000


def test_what_torch_writes_in_python_is_allowed_where_it_writes_no_argument():
    for name in sorted({*WRITTEN_IN_PYTHON} - (set() if torch_is("2.13") else {"torch_nn"})):
        rules = [operator_rule(op_type) for op_type in python_operators(name)]
        assert rules, f"torch has no operators of {name} any more"
        assert {rule.rule.partition(":")[0] for rule in rules if rule.allowed} == {"rule 5"}
    library = torch.library.Library("torch_nn", "FRAGMENT")
    library.define("writes_of_a_test(Tensor(a!) x) -> ()")
    assert operator_rule("torch_nn.writes_of_a_test.default").rule.startswith("rule 7")
    importlib.import_module("torch.nn.attention.varlen")  # its kernels trust their offsets
    assert not operator_rule("torch_attn._varlen_attn.default").allowed


def python_operators(namespace):
    operator_rule(PYTHON_OPERATORS[namespace])  # imports what registers them
    found = [name for name in OPDEFS if name.startswith(f"{namespace}::")]
    return [name.replace("::", ".") + ".default" for name in found]


@pytest.mark.recorded
def test_every_higher_order_operator_has_a_verdict_with_a_rule():
    # some are registered as their module is imported
    for module in pkgutil.iter_modules(torch._higher_order_ops.__path__):
        importlib.import_module(f"torch._higher_order_ops.{module.name}")
    for name in _higher_order_ops:
        assert operator_rule(f"higher_order.{name}").rule.startswith(("rule 9", "rule 10")), name


def test_core_operators_are_allowed():
    core = [op_type for op_type in known_operators() if "core" in tagged_traits(op_type)]
    assert len(core) > 150
    assert all(operator_rule(op_type).allowed for op_type in core)


@pytest.mark.parametrize("op_type", [*FILES, *MEMORY, *PROCESS, *HIGHER_ORDER])
def test_what_reaches_beyond_tensors_is_refused(op_type):
    rule = operator_rule(op_type)
    assert not rule.allowed
    assert rule.op_type == op_type
    assert rule.rule.startswith(("rule 1:", "rule 2:", "rule 3:", "rule 7:", "rule 10:"))


@pytest.mark.recorded
def test_the_record_decides_as_the_registry_does():
    for op_type in known_operators():
        assert registered_rule(op_type) == operator_rule(op_type), op_type


@pytest.mark.parametrize(
    ("name", "is_place"),
    [
        ("filename", True),
        ("file_name", True),
        ("outPath", True),
        ("weights_url", True),
        ("URL", True),
        ("library", True),
        ("rounding_mode", False),
        ("equation", False),
        ("profile", False),
        ("direction", False),
        ("pathological", False),
    ],
)
def test_a_place_is_told_by_the_words_of_a_name(name, is_place):
    assert names_place(name) == is_place


def test_libraries_are_judged_by_what_they_registered():
    library = torch.library.Library("rules_test", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.define("read(str filename) -> Tensor")
    library.define("anything(Any x) -> Tensor")
    assert operator_rule("rules_test.double.default").rule.startswith("rule 8")
    assert operator_rule("rules_test.double.default").allowed
    assert operator_rule("rules_test.read.default").rule.startswith("rule 2")
    assert not operator_rule("rules_test.anything.default").allowed
    with pytest.raises(ExecutionError, match="no operator"):
        operator_rule("rules_test.missing.default")


def test_what_the_caller_registers_is_allowed():
    library = torch.library.Library("rules_test2", "FRAGMENT")
    library.define("read(str filename) -> Tensor")
    op_type = "rules_test2.read.default"
    assert not operator_rule(op_type).allowed
    torch_ir.register_executor(op_type)(lambda inputs, attrs: [torch.ones(1)])
    try:
        assert operator_rule(op_type).allowed
    finally:
        from torch_ir.weights.tensor_registry import unregister_executor

        unregister_executor(op_type)
    assert not operator_rule(op_type).allowed


def test_what_the_caller_allows_ends_with_the_block():
    op_type = "aten.from_file.default"
    with allow_operators("inductor.*"), allow_operators(op_type):
        assert operator_rule(op_type).allowed
        assert operator_rule("inductor._alloc_from_pool.default").allowed
        assert not operator_rule("aten.from_file.out").allowed
    assert not operator_rule(op_type).allowed
    with pytest.raises(RuntimeError), allow_operators(op_type):
        raise RuntimeError
    assert not operator_rule(op_type).allowed


@pytest.mark.parametrize(
    "pattern", ["", "*", "aten", "aten.relu", "aten.from_*", "a b.c.d", "*.*"]
)
def test_a_pattern_is_an_overload_or_a_namespace(pattern):
    with pytest.raises(InvalidIRError, match="names no operator"), allow_operators(pattern):
        pass


def test_a_misspelt_operator_of_torch_is_not_allowed_silently():
    with (
        pytest.raises(InvalidIRError, match="from_file"),
        allow_operators("aten.from_fil.default"),
    ):
        pass


def test_schemas_of_the_list_are_those_of_tensor_operators():
    for op_type in known_operators():
        if operator_rule(op_type).allowed:
            schema = lookup(op_type)
            assert schema is not None
            assert not any(names_place(a.name) for a in schema.arguments if a.type == "str")
