"""The inputs, weights and constants of an exported program."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, CustomObjArgument, InputKind, InputSpec
from torch.fx import Node as FxNode

from torch_ir.errors import InvalidIRError
from torch_ir.frontend.attributes import tensor_meta
from torch_ir.frontend.graphs import Context
from torch_ir.frontend.meta import require_unwrapped
from torch_ir.frontend.regions.literals import is_literal
from torch_ir.frontend.trees import tree_from_member
from torch_ir.ir import Constant, TensorLeaf, TensorMeta, Tree, ValueLeaf
from torch_ir.ir.builder import Names
from torch_ir.ir.values import layout_name
from torch_ir.torch_api import FakeTensor


def _untranslated(held: object) -> str:
    """Say why a program cannot have an object that is no tensor."""
    if isinstance(held, torch.Generator):
        return (
            "the model draws from a torch.Generator that it holds, whose state no program has; "
            "draw from the default generator, without generator="
        )
    kind = type(held)
    return f"the model holds a {kind.__module__}.{kind.__qualname__}, which no program can hold"


class ProgramInputs:
    """Sorts the placeholders of a program into inputs, weights and constants.

    Args:
        exported: The program.
        context: Translates values that are no tensors.

    Attributes:
        weights: Weights and constants, by key.
        mapping: The key of each name that nodes use.
        known: The values of constants, by key.
        graph_inputs: The tensors that a call gives.
        arguments: Each argument of a call as a tree.
        given: What torch traced each argument with.
    """

    def __init__(self, exported: ExportedProgram, context: Context):
        self._exported = exported
        self._context = context
        self._first_key: dict[int, str] = {}
        self.weights: dict[str, TensorMeta] = {}
        self.layouts: dict[str, str] = {}
        self.input_layouts: dict[str, str] = {}
        self.mapping: dict[str, str] = {}
        self.known: dict[str, torch.Tensor] = {}
        self.graph_inputs: list[TensorMeta] = []
        self.arguments: list[Tree] = []
        self.given: list[object] = []

    def value(self, node: FxNode, spec: InputSpec) -> Any:
        """Return what stands for a placeholder: a tensor, a number or nothing.

        Raises:
            InvalidIRError: No IR can have it.
        """
        match spec.kind:
            case InputKind.USER_INPUT:
                return self._user_input(node, spec)
            case InputKind.PARAMETER:
                return self._external(node, spec, None)
            case InputKind.BUFFER:
                known = None if spec.persistent else self._exported.constants.get(str(spec.target))
                return self._external(node, spec, known)
            case InputKind.CONSTANT_TENSOR:
                return self._external(node, spec, self._exported.constants.get(str(spec.target)))
            case InputKind.CUSTOM_OBJ:
                raise InvalidIRError(_untranslated(self._exported.constants.get(str(spec.target))))
            case kind:
                raise InvalidIRError(f"an input of kind {kind.name} is not translated yet")

    def _user_input(self, node: FxNode, spec: InputSpec) -> Any:
        if isinstance(spec.arg, ConstantArgument):
            self.given.append(spec.arg.value)
            leaf = ValueLeaf(self._context.attribute(spec.arg.value))
            self.arguments.append(leaf)
            return leaf.value
        value = node.meta["val"]
        if isinstance(spec.arg, CustomObjArgument) and isinstance(spec.arg.fake_val, enum.Enum):
            self.given.append(spec.arg.fake_val)
            self.arguments.append(tree_from_member(spec.arg.fake_val))
            return None  # torch has traced the program for this member
        self.given.append(value)
        if isinstance(value, torch.Tensor):
            meta = tensor_meta(node.name, value)
            self.graph_inputs.append(meta)
            if value.layout is not torch.strided:
                self.input_layouts[node.name] = layout_name(value.layout)
            self.arguments.append(TensorLeaf(node.name))
            return meta
        leaf = ValueLeaf(self._context.attribute(value))
        self.arguments.append(leaf)
        return leaf.value

    def _external(self, node: FxNode, spec: InputSpec, known: object) -> TensorMeta:
        """A parameter, buffer or constant.

        It is a weight, unless its value is known and no state dict has it.
        """
        key = str(spec.target)
        require_unwrapped(node.meta["val"], repr(key))
        meta = tensor_meta(node.name, node.meta["val"])
        is_stored = spec.kind is InputKind.PARAMETER or bool(spec.persistent)
        if not is_stored and not node.users:
            return meta  # nobody should have to supply what nothing uses
        self.mapping[node.name] = key
        if (
            isinstance(known, torch.Tensor)
            and not known.is_meta
            and not isinstance(known, FakeTensor)
        ):
            if known.is_sparse:
                raise InvalidIRError(
                    f"{key!r} is a {known.layout} tensor, which has no plain values to keep as a "
                    "constant; a buffer may be sparse: register it as one"
                )
            if known.layout is not torch.strided or known.is_quantized:
                Constant.from_torch(known)  # says why it cannot be one
            self.known[key] = known
            self.weights[key] = meta.replace(name=key)
        elif isinstance(known, FakeTensor) and is_literal(key):
            raise InvalidIRError(
                "it reads a tensor that no node makes and that is no weight, as .data of a value "
                "gives while a model is traced; write .detach()"
            )
        else:
            stored = self._exported.state_dict.get(key)
            if stored is not None:  # a tied weight is one weight, under the key that comes first
                key = self.mapping[node.name] = self._first_key.setdefault(id(stored), key)
            self.weights.setdefault(key, meta.replace(name=key))
            if node.meta["val"].layout is not torch.strided:
                self.layouts[key] = layout_name(node.meta["val"].layout)
        return meta

    def add_constants(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Add constants that bodies hold themselves."""
        taken = (*self.mapping.values(), *self._exported.state_dict, *self._exported.constants)
        keys = Names(taken)
        for name, tensor in constants.items():
            key = self.mapping[name] = keys.fresh(name)
            self.known[key] = tensor
            self.weights[key] = tensor_meta(key, tensor)
