"""A runtime that is torch again: right wherever torch is, and installed with it."""

from torch_ir.backends import SUPPORTED, NativeBackend


class TorchAgain(NativeBackend):
    """A runtime that takes all, and runs it as torch does."""

    name, version = "torch_again", "1"

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        return program.module()
