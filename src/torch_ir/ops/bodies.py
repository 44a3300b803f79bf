"""The table of operators that call functions: what each hands over, and what it takes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Gives(Enum):
    """What becomes of the results of a function.

    Attributes:
        RESULTS: They are the results of the call.
        BRANCH: Likewise, but a size in which branches differ is a symbol of the call.
        CARRIED: The next iteration takes them; the last ones are results of the call.
        STACKED: Those that are not carried are rows of the call's results.
        TRUTH: One truth value, which the operator keeps.
        NUMBER: One floating-point number, which the operator keeps.
    """

    RESULTS = "results"
    BRANCH = "branch"
    CARRIED = "carried"
    STACKED = "stacked"
    TRUTH = "truth"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class BodyCall:
    """How an operator calls one of its functions.

    Attributes:
        takes: The list arguments whose items it is handed, in order.
        gives: What becomes of its results.
        carried: The list argument whose items its first results have the types of.
        rows: The list argument of which it is handed one row at a time, along dimension 0.
        scalar_of: The argument of which it is handed one element, before all else.
        indices: How many positions it is handed next, as tensors of type int32.
        writes: The list arguments whose items it may write, as torch's operator allows it.
        writes_listed_in: The argument that must list the positions of what it writes, if any.
    """

    takes: tuple[str, ...]
    gives: Gives = Gives.RESULTS
    carried: str = ""
    rows: str = ""
    scalar_of: str = ""
    indices: int = 0
    writes: tuple[str, ...] = ()
    writes_listed_in: str = ""


def _scope(argument: str) -> BodyCall:
    """A function that is called once, whose results are those of the operator."""
    return BodyCall((argument,), writes=(argument,))


AUTOCAST_REGION: Final = "higher_order.wrap_with_autocast"

_LOOP = ("carried_inputs", "additional_inputs")
_WRITTEN = "mutated_arg_indices"
_SCORE, _MASK = "score_mod_other_buffers", "mask_mod_other_buffers"

BODY_CALLS: Final[Mapping[str, Mapping[str, BodyCall]]] = {
    "higher_order.cond": {
        "true_fn": BodyCall(("operands",), Gives.BRANCH, writes=("operands",)),
        "false_fn": BodyCall(("operands",), Gives.BRANCH, writes=("operands",)),
    },
    "higher_order.while_loop": {
        "cond_fn": BodyCall(_LOOP, Gives.TRUTH, writes=_LOOP[1:], writes_listed_in=_WRITTEN),
        "body_fn": BodyCall(
            _LOOP,
            Gives.CARRIED,
            carried="carried_inputs",
            writes=_LOOP[1:],
            writes_listed_in=_WRITTEN,
        ),
    },
    "higher_order.scan": {
        "combine_fn": BodyCall(
            ("init", "xs", "additional_inputs"),
            Gives.STACKED,
            carried="init",
            rows="xs",
            writes=("additional_inputs",),
        )
    },
    "higher_order.associative_scan": {
        "combine_fn": BodyCall(
            ("xs", "xs", "additional_inputs"), Gives.STACKED, carried="xs", rows="xs"
        )
    },
    "higher_order.map_impl": {
        "f": BodyCall(("xs", "pos_args"), Gives.STACKED, rows="xs", writes=("xs",))
    },
    "higher_order.invoke_subgraph": {"subgraph": _scope("operands")},
    "higher_order.strict_mode": {"callable": _scope("operands")},
    "higher_order.tag_activation_checkpoint": {"gmod": _scope("args")},
    "higher_order.hints_wrapper": {"body_fn": _scope("args")},
    "higher_order.wrap": {"func": _scope("args")},
    "higher_order.wrap_with_set_grad_enabled": {"wrapped_func": _scope("args")},
    AUTOCAST_REGION: {"wrapped_func": _scope("args")},
    "higher_order.autograd_function": {"fwd": _scope("args")},
    "higher_order.flex_attention": {
        "score_mod": BodyCall((_SCORE,), Gives.NUMBER, scalar_of="query", indices=4),
        "block_mask": BodyCall((_MASK,), Gives.TRUTH, indices=4),
    },
}
"""By operator and argument that refers to a function."""


def last_argument(op_type: str) -> str | None:
    """Return the list argument whose items every function of an operator is handed last.

    Example:
        >>> last_argument("higher_order.scan"), last_argument("aten.relu.default")
        ('additional_inputs', None)
    """
    last = {call.takes[-1] for call in BODY_CALLS.get(op_type, {}).values()}
    return last.pop() if len(last) == 1 else None


def operands_of_one_call(op_type: str) -> str | None:
    """Return the list argument that an operator hands to the one function that it calls, once.

    Its results are those of the function; None for other operators.

    Example:
        >>> operands_of_one_call("higher_order.invoke_subgraph")
        'operands'
        >>> operands_of_one_call("higher_order.cond") is None
        True
    """
    calls = [*BODY_CALLS.get(op_type, {}).values()]
    return calls[0].takes[0] if len(calls) == 1 and calls[0].gives is Gives.RESULTS else None
