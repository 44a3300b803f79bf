"""The backend: which calls the device takes, and how it runs a part of a program."""

from torch_ir import DelegateBackend, IRExecutor
from torch_ir.backends import SUPPORTED, Support

KERNELS = {
    "acme.softclip.default",
    "aten.linear.default",
    "aten.addmm.default",
    "aten.permute.default",
    "aten.relu.default",
    "aten.tanh.default",
}


class Acme(DelegateBackend):
    """The device; torch stands for its kernels."""

    name = "acme"

    def supports(self, node, ir):
        """Take the calls that there is a kernel for."""
        return (
            SUPPORTED if node.op_type in KERNELS else Support.refused("Acme has no kernel for it")
        )

    def compile(self, ir, payload):
        """Return a function of the tensors of the part that are not its weights."""
        run = IRExecutor(ir, {})
        names = ir.input_names

        def call(*given):
            rest = iter(given)
            return run(
                *[payload[name] if name in payload else next(rest) for name in names], *rest
            )

        return call
