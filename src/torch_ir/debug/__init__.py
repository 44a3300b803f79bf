"""Tools to watch a run: comparison with eager and denotations, profiles, captured values."""

from torch_ir.debug.attribution import Attribution, attribute
from torch_ir.debug.capture import Captured, capture
from torch_ir.debug.comparing.compared import compare
from torch_ir.debug.comparing.comparison import Comparison, NodeDivergence
from torch_ir.debug.conformance.calibrating import calibrate
from torch_ir.debug.conformance.conforming import conform
from torch_ir.debug.conformance.scorecard import Conformance
from torch_ir.debug.fuzzing.fuzz_report import FuzzFinding, FuzzReport
from torch_ir.debug.fuzzing.fuzzing import fuzz
from torch_ir.debug.fuzzing.random_programs import RandomProgram, random_program
from torch_ir.debug.node_comparison import NodeComparison, NodeDifference
from torch_ir.debug.profile import profile
from torch_ir.debug.ranks import RanksReport, validate_ranks
from torch_ir.debug.report import Group, NodeProfile, Profile
from torch_ir.debug.shrinking.bisection import Bisection, bisect
from torch_ir.debug.shrinking.reduced import Oracle, Reduced
from torch_ir.debug.shrinking.reduction import reduce
from torch_ir.debug.tensor_comparison import Difference, compare_tensors
from torch_ir.debug.validate import validate
from torch_ir.debug.validation import Divergence, NodeError, ValidationReport
from torch_ir.debug.verify import VerificationReport, verify, verify_ir, verify_ir_with_state_dict
from torch_ir.lazy import lazy_names

__all__ = [
    "Bisection",
    "Captured",
    "Comparison",
    "Conformance",
    "Difference",
    "Divergence",
    "Attribution",
    "FuzzFinding",
    "FuzzReport",
    "Group",
    "NodeComparison",
    "NodeDifference",
    "NodeDivergence",
    "NodeError",
    "NodeProfile",
    "Oracle",
    "Profile",
    "RandomProgram",
    "RanksReport",
    "Reduced",
    "ValidationReport",
    "VerificationReport",
    "attribute",
    "bisect",
    "calibrate",
    "capture",
    "compare",
    "conform",
    "fuzz",
    "random_program",
    "compare_tensors",
    "profile",
    "reduce",
    "validate",
    "validate_ranks",
    "verify",
    "verify_ir",
    "verify_ir_with_state_dict",
]

__getattr__ = lazy_names(__name__, {}, renamed={"NodeReport": "NodeComparison"})
