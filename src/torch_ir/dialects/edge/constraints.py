"""The dtypes that operators of libraries take, in the language of Edge's table."""

from __future__ import annotations

from torch_ir.errors import InvalidIRError
from torch_ir.ops.dtype_constraints import DTypeTable, add_constraint, read_entry, split_entries


def register_constraint(text: str) -> DTypeTable:
    """Say which dtypes the operator of a library takes; ``verify`` and ``to_edge`` keep to it.

    Args:
        text: One entry in the language of the table; ``inherits`` names the operator, which is
            registered with torch.

    Raises:
        InvalidIRError: The text is no entry, there is no such operator, or it has rows already.

    Example:
        >>> register_constraint('''
        ... - func: relu
        ...   inherits: aten::relu
        ... ''')
        Traceback (most recent call last):
        ...
        torch_ir.errors.InvalidIRError: aten.relu.default has dtype rows already
    """
    from torch_ir.torch_api import operator_schema, overload

    entries = split_entries(text.lstrip())
    if len(entries) != 1:
        raise InvalidIRError(f"one entry is registered at a time, got {len(entries)}")
    ((op_type, entry),) = entries.items()
    operator = overload(*op_type.split(".", 2))
    if operator is None:
        raise InvalidIRError(
            f"torch has no operator {op_type!r}",
            remedy="Register the operator before its dtypes.",
        )
    table = read_entry(entry, operator_schema(operator))
    add_constraint(op_type, table)
    return table
