"""A library of custom operators, some lawful and some not, registered once."""

from functools import cache

import torch

NAMESPACE = "torch_ir_test_dialects"
SCHEMAS = (
    "id(Tensor x) -> Tensor",
    "no_meta(Tensor x) -> Tensor",
    "mut_(Tensor(a!) x) -> Tensor(a!)",
    "alias(Tensor(a) x) -> Tensor(a)",
    "sly_alias(Tensor x) -> Tensor",
    "number(Tensor x) -> int",
    "pieces(Tensor x) -> Tensor[]",
    "nothing(Tensor x) -> ()",
    "u(Tensor self, Tensor[] other_list, Tensor? other_optional) -> Tensor[]",
)
KERNELS = {
    "id": lambda x: x.clone(),
    "no_meta": lambda x: x.clone(),
    "sly_alias": lambda x: x.view(x.shape),
    "number": lambda x: 3,
    "pieces": lambda x: [x.clone(), x.clone()],
    "nothing": lambda x: None,
    "u": lambda self, other_list, other_optional: [self.clone()],
}

OPERATORS = {
    f"{NAMESPACE}.{schema.partition('(')[0]}.default": f"{NAMESPACE}::{schema}"
    for schema in SCHEMAS
}


def op(name):
    """The op_type of one of the library's operators."""
    return f"{NAMESPACE}.{name}.default"


@cache
def registered():
    """The library with all of its operators; keep a reference to it."""
    library = torch.library.Library(NAMESPACE, "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, "CPU")
        if name != "no_meta":
            library.impl(name, kernel, "Meta")
    return library
