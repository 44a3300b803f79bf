"""The graph of a PyTorch model as one checked, weight-free, readable value.

Names are loaded when they are first used: importing this package imports neither torch nor NumPy.

Example:
    >>> from torch_ir import parse
    >>> ir = parse('''
    ... ir "Relu" {
    ...   input %x: f32[2, 3]
    ...   %y: f32[2, 3] = aten.relu.default(%x)
    ...   return %y
    ... }
    ... ''')
    >>> ir.nodes[0].op_type
    'aten.relu.default'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_ir.lazy import lazy_names

# Type checkers read this list, __getattr__ reads _NAMES_OF: ruff and pyright see no use of a name.
# ruff: noqa: F401
# pyright: reportUnusedImport=false, reportUnsupportedDunderAll=false
if TYPE_CHECKING:
    from torch_ir.backends import (
        DelegateBackend,
        Partitioner,
        compile,
        register_backend,
        to_backend,
    )
    from torch_ir.backends.pipeline import to_pipeline_stages
    from torch_ir.backends.torch.exported_program import to_exported_program
    from torch_ir.debug import (
        Comparison,
        ValidationReport,
        VerificationReport,
        attribute,
        bisect,
        calibrate,
        capture,
        compare,
        conform,
        fuzz,
        profile,
        random_program,
        reduce,
        validate,
        validate_ranks,
        verify,
        verify_ir,
        verify_ir_with_state_dict,
    )
    from torch_ir.dialects.backend.binding import bind_pattern_to_op
    from torch_ir.edge import EdgeProgram, to_edge
    from torch_ir.errors import (
        ArgumentError,
        BackendError,
        CacheError,
        CompileError,
        ConversionError,
        DialectError,
        ExecutionError,
        ExportError,
        InputError,
        InvalidIRError,
        MissingWeightsError,
        OptionalDependencyError,
        ParseError,
        PassError,
        SerializationError,
        TorchIRError,
        TraceError,
        WeightLoadError,
    )
    from torch_ir.executor import (
        ExecGraph,
        IRExecutor,
        TensorRegistry,
        check_types,
        compile_graph,
        execute_ir,
        register_executor,
    )
    from torch_ir.frontend import (
        constants_of,
        convert_exported_program,
        export_model,
        extract_ir,
        load_exported_program,
        register_op,
        without_weights,
    )
    from torch_ir.frontend.parallel import extract_parallel
    from torch_ir.ir import IR, Constant, OpNode, SymExpr, TensorMeta
    from torch_ir.ir.analysis.costs import Cost, cost
    from torch_ir.ir.analysis.fingerprints import fingerprint
    from torch_ir.ir.check.expectations import expect
    from torch_ir.ir.text import parse
    from torch_ir.ops.rules import OperatorRule, allow_operators, operator_rule
    from torch_ir.passes import decompose, functionalize
    from torch_ir.passes.cutting import cut
    from torch_ir.passes.decomposition import register_decomposition, unregister_decomposition
    from torch_ir.passes.memory_plan import plan_memory
    from torch_ir.passes.operator_calls.case_set import CaseSet
    from torch_ir.passes.operator_calls.collection import cases
    from torch_ir.passes.sharding import shard
    from torch_ir.semantics import denote, denote_all, denote_ranks, denotes
    from torch_ir.serde import deserialize_ir, load_ir, save_ir, serialize_ir, validate_ir
    from torch_ir.torch_versions import TORCH_VERSIONS
    from torch_ir.traced import execute, make_ir, make_traced
    from torch_ir.viz import generate_op_distribution_pie, ir_to_mermaid, plot, view, view_html
    from torch_ir.weights import (
        check_weights,
        load_weights,
        load_weights_pt,
        load_weights_safetensors,
        shard_weights,
    )

__version__ = "0.1.0"

_NAMES_OF = {
    "torch_ir.ir": ("IR", "OpNode", "TensorMeta", "SymExpr", "Constant"),
    "torch_ir.ir.text": ("parse",),
    "torch_ir.ir.check.expectations": ("expect",),
    "torch_ir.ir.analysis.costs": ("cost", "Cost"),
    "torch_ir.ir.analysis.fingerprints": ("fingerprint",),
    "torch_ir.serde": ("save_ir", "load_ir", "serialize_ir", "deserialize_ir", "validate_ir"),
    "torch_ir.ops.rules": ("OperatorRule", "allow_operators", "operator_rule"),
    "torch_ir.passes": ("functionalize",),
    "torch_ir.passes.cutting": ("cut",),
    "torch_ir.passes.sharding": ("shard",),
    "torch_ir.passes.operator_calls.case_set": ("CaseSet",),
    "torch_ir.passes.operator_calls.collection": ("cases",),
    "torch_ir.passes.decomposition": (
        "decompose",
        "register_decomposition",
        "unregister_decomposition",
    ),
    "torch_ir.semantics": ("denote", "denote_all", "denote_ranks", "denotes"),
    "torch_ir.traced": ("make_traced", "make_ir", "execute"),
    "torch_ir.viz": ("ir_to_mermaid", "generate_op_distribution_pie", "plot", "view", "view_html"),
    "torch_ir.errors": (
        "TorchIRError",
        "InvalidIRError",
        "ArgumentError",
        "ParseError",
        "SerializationError",
        "CacheError",
        "ExportError",
        "ConversionError",
        "TraceError",
        "DialectError",
        "WeightLoadError",
        "ExecutionError",
        "CompileError",
        "PassError",
        "InputError",
        "MissingWeightsError",
        "OptionalDependencyError",
        "BackendError",
    ),
    "torch_ir.frontend.parallel": ("extract_parallel",),
    "torch_ir.frontend": (
        "extract_ir",
        "constants_of",
        "export_model",
        "convert_exported_program",
        "load_exported_program",
        "register_op",
        "without_weights",
    ),
    "torch_ir.torch_versions": ("TORCH_VERSIONS",),
    "torch_ir.weights.load": ("load_weights", "load_weights_pt", "load_weights_safetensors"),
    "torch_ir.weights.check": ("check_weights",),
    "torch_ir.weights.shards": ("shard_weights",),
    "torch_ir.executor": (
        "IRExecutor",
        "TensorRegistry",
        "execute_ir",
        "register_executor",
        "check_types",
        "compile_graph",
        "ExecGraph",
    ),
    "torch_ir.backends.compilation": ("compile",),
    "torch_ir.backends.pipeline": ("to_pipeline_stages",),
    "torch_ir.backends": (
        "register_backend",
        "DelegateBackend",
        "Partitioner",
        "to_backend",
    ),
    "torch_ir.passes.memory_plan": ("plan_memory",),
    "torch_ir.dialects.backend.binding": ("bind_pattern_to_op",),
    "torch_ir.backends.torch.exported_program": ("to_exported_program",),
    "torch_ir.edge": ("EdgeProgram", "to_edge"),
    "torch_ir.debug": (
        "attribute",
        "bisect",
        "calibrate",
        "capture",
        "compare",
        "Comparison",
        "conform",
        "fuzz",
        "profile",
        "random_program",
        "reduce",
        "verify",
        "verify_ir",
        "verify_ir_with_state_dict",
        "VerificationReport",
        "validate",
        "validate_ranks",
        "ValidationReport",
    ),
}
_SUBMODULES = (
    "backends",
    "cli",
    "debug",
    "dialects",
    "edge",
    "errors",
    "executor",
    "frontend",
    "infer",
    "ir",
    "ops",
    "passes",
    "semantics",
    "serde",
    "traced",
    "viz",
    "weights",
)
__all__ = [*[name for names in _NAMES_OF.values() for name in names], "__version__"]

__getattr__ = lazy_names(__name__, _NAMES_OF, modules=_SUBMODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
