"""Sharing, writes and draws of operators that torch makes of others, by torch's own samples.

Such operators do not reach a usual mode: before dispatch they are still whole.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import _set_mode_pre_dispatch, unset_mode_pre_dispatch
from torch._subclasses.schema_check_mode import SchemaCheckMode

from ops.samples import DTYPES, OPERATORS, REFUSALS, Watch
from torch_ir.ops.schema import lookup
from torch_samples import first_samples

SAMPLES = 5


class Early(SchemaCheckMode):
    """Shows a watch the calls before torch splits them up; torch takes no other kind of mode."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.watch.__torch_dispatch__(func, types, args, kwargs)


@contextlib.contextmanager
def watched_early(watch):
    with enable_python_dispatcher():
        _set_mode_pre_dispatch(Early(watch))
        try:
            yield
        finally:
            unset_mode_pre_dispatch(None, schema_check=True)


def test_the_tables_say_what_composites_do():
    watch = Watch()
    for entry in OPERATORS:
        dtypes = [dtype for dtype in DTYPES if dtype in entry.dtypes]
        for sample in first_samples(entry, dtypes[0], SAMPLES) if dtypes else ():
            for call in (entry, entry.inplace_variant):
                torch.manual_seed(0)
                with contextlib.suppress(*REFUSALS):
                    args = (sample.input, *sample.args)
                    with watched_early(watch):
                        _ = None if call is None else call(*args, **sample.kwargs)
    composite = [name for name in watch.calls if _is_composite(name)]
    assert len(composite) > 150
    assert not watch.faults, "\n".join(watch.faults[:50])


def _is_composite(op_type: str) -> bool:
    schema = lookup(op_type)
    assert schema is not None
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        "::".join(op_type.split(".")[:2]) + _overload(op_type), "CompositeImplicitAutograd"
    )


def _overload(op_type: str) -> str:
    overload = op_type.split(".")[2]
    return "" if overload == "default" else f".{overload}"
