"""The operators: schema, kernel, fake kernel, decomposition, dtypes.

torch-ir imports this module when a program that calls an operator of ``acme`` is compiled,
lowered, verified or validated.
"""

import torch
from torch.nn import functional

from torch_ir import bind_pattern_to_op, register_decomposition
from torch_ir.dialects.edge import register_constraint

# -- an operator with a kernel of its own ---------------------------------------------------------


@torch.library.custom_op("acme::softclip", mutates_args=())
def softclip(x: torch.Tensor, limit: float = 1.0) -> torch.Tensor:
    """Squash values into (-limit, limit)."""
    return x / (1 + x.abs() / limit)


@softclip.register_fake
def _(x: torch.Tensor, limit: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


@register_decomposition("acme.softclip.default")
def softclip_decomposed(x: torch.Tensor, limit: float = 1.0) -> torch.Tensor:
    """Compute a softclip with core operators."""
    return x / (1 + x.abs() / limit)


register_constraint("""
- func: softclip
  namespace: edge
  inherits: acme::softclip
  type_alias:
    T0: [Half, Float, Double]
  type_constraint:
  - x: T0
    __ret_0: T0
""")

# -- an operator that a pattern stands for --------------------------------------------------------

LIBRARY = torch.library.Library("acme", "FRAGMENT")
CONV_INPUTS = (
    torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
    torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(1)),
    *[torch.linspace(0.5, 1.5, 4) for _ in range(4)],
)
"""An image, a kernel, and the weight, bias, mean and variance of a batch norm."""


@bind_pattern_to_op(
    LIBRARY,
    "conv_bn_relu(Tensor x, Tensor w, Tensor g, Tensor b, Tensor m, Tensor v, int[2] stride, "
    "int[2] padding, int[2] dilation, float eps) -> Tensor",
    example_inputs=(*CONV_INPUTS, [1, 1], [1, 1], [1, 1], 1e-5),
)
def conv_bn_relu(x, w, g, b, m, v, stride, padding, dilation, eps):
    """Convolve, normalize and clip at zero in one go."""
    made = functional.conv2d(x, w, None, stride, padding, dilation)
    return functional.relu(functional.batch_norm(made, m, v, g, b, False, 0.1, eps))
