"""Writes that no functional operator computes by itself."""

from __future__ import annotations

from torch_ir.ir import TensorMeta
from torch_ir.ir.symbols import as_dim
from torch_ir.passes.functionalization.alias_state import CannotFollowError
from torch_ir.passes.functionalization.writes import WritingNode


def fill_diagonal(write: WritingNode) -> None:
    """Fill the diagonal of a matrix, as a scatter into the whole.

    Raises:
        CannotFollowError: It is no matrix, or the length of the diagonal is not known.
    """
    view = write.state.view_of(write.node.inputs[0])
    shape = view.meta.shape
    rows, columns = shape if len(shape) == 2 else (1, 0)
    square = rows == columns
    if not square and not (isinstance(rows, int) and isinstance(columns, int)):
        raise CannotFollowError("the length of the diagonal is not known")
    if len(shape) != 2 or (rows > columns and write.node.attrs.get("wrap") is True):  # type: ignore[operator]  # ints, or equal
        raise CannotFollowError("only diagonals of matrices are followed")
    emit, whole = write.emit, write.state.value(view.meta.name, view.meta)
    length = rows if square else min(rows, columns)  # type: ignore[type-var]  # ints, as above
    line = whole.replace(shape=(length,))
    part = emit("aten.diagonal.default", line, self=whole)
    filled = emit("aten.fill.Scalar", line, self=part, value=write.node.attrs["fill_value"])
    new = emit("aten.diagonal_scatter.default", whole, self=whole, src=filled)
    write.assign(view, new)
    for output in write.node.outputs:
        write.state.views[output.name] = view


def instance_norm(write: WritingNode) -> None:
    """Normalize each instance as a channel of one batch, as torch does, with its statistics.

    Raises:
        CannotFollowError: The call has one of both statistics, or a view cannot be followed.
    """
    views = write.written_views(write.ir.effects(write.node).writes)
    call = write.state.mapped(write.node)
    given = {name: call.tensors(name) for name in call.slots}
    if len(views) != 2:
        raise CannotFollowError("it has one statistic without the other")
    shape = given["input"][0].shape
    batch, rows = shape[0], (shape[0], shape[1])
    wide = as_dim(f"({shape[0]}) * ({shape[1]})")
    emit, dtype = write.emit, given["input"][0].dtype
    operands: dict[str, TensorMeta] = {}
    for name, tensors in given.items():
        for meta in tensors:
            if name == "input":
                ordered = emit("aten.contiguous.default", meta, self=meta)
                like = meta.replace(shape=(1, wide, *shape[2:]))
                made = emit("aten.reshape.default", like, self=ordered, shape=like.shape)
            else:
                row = write.cast(meta, dtype) if name.startswith("running") else meta
                like = row.replace(shape=(wide,))
                made = emit("aten.repeat.default", like, self=row, repeats=(batch,))
            operands[name] = made
    numbers = {name: call.attrs[name] for name in ("momentum", "eps")}
    kinds = [operands["input"], *[operands["running_mean"]] * 2]
    # what torch infers for statistics is the type in which it computes
    kinds += [operands["running_mean"].replace(dtype=_WIDER.get(dtype, dtype))] * 2
    made = write.state.builder.emit(
        "aten._native_batch_norm_legit_functional.default",
        {"weight": None, "bias": None, **operands, "training": True, **numbers},
        like=write.node,
        results=[(meta.shape, meta.dtype) for meta in kinds],
        name=f"{write.node.name}_batch_norm",
    )
    for view, value in zip(views.values(), made[3:], strict=True):
        value = write.cast(value, dtype)
        like = value.replace(shape=rows)
        table = emit("aten.reshape.default", like, self=value, shape=rows)
        new = emit("aten.mean.dim", table.replace(shape=view.meta.shape), self=table, dim=(0,))
        write.assign(view, write.cast(new, view.meta.dtype))
    (result,) = write.state.builder.emit(
        "aten.reshape.default", {"self": made[0], "shape": shape}, like=write.node
    )
    write.state.values[result.name] = result


_WIDER = {"float16": "float32", "bfloat16": "float32"}
"""In which types torch computes batch norm, if not in that of its input."""


WRITTEN_OUT = {
    "aten.fill_diagonal_.default": fill_diagonal,
    "aten.instance_norm.default": instance_norm,
}
"""How they are written with several operators."""
