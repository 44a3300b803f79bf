"""What a runtime reads from the cache, with the options that it was built with."""

import torch

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend


class Stored(NativeBackend):
    """A runtime whose programs are stored, and that keeps what it was asked for."""

    name = "stored"

    def supports(self, node, ir):
        return SUPPORTED

    def known_options(self):
        return ("threads",)

    def build(self, program, options):
        return self.unpack(b"", program, options)

    def pack(self, built):
        return b"stored"

    def unpack(self, blob, program, options):
        self.asked = (blob, dict(options))
        return program.module()


def test_what_is_read_from_a_cache_has_the_options_that_it_was_built_with(tmp_path):
    x = torch.randn(3)
    ir = extract_ir(torch.nn.Tanh(), (x,))
    asked = []
    for threads in (1, 1, 2):
        backend = Stored()
        run = torch_ir.compile(
            ir, {}, backend=backend, cache=tmp_path, options={"threads": threads}
        )
        assert torch.equal(run(x), x.tanh())
        asked.append(backend.asked)
    assert asked == [(b"", {"threads": 1}), (b"stored", {"threads": 1}), (b"", {"threads": 2})]


def test_a_weight_is_known_by_its_values_where_memory_has_others(tmp_path):
    net, x = torch.nn.Linear(3, 2, bias=False), torch.randn(4, 3)
    ir, weight = extract_ir(net, (x,)), net.weight.detach()
    asked = []
    for given in (torch._neg_view(weight), -weight, weight):
        backend = Stored()
        run = torch_ir.compile(ir, {"weight": given}, backend=backend, cache=tmp_path)
        assert run.assignment.left == ()
        torch.testing.assert_close(run(x), x @ given.t())
        asked.append(backend.asked[0])
    assert asked == [b"", b"stored", b""]
