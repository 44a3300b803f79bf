"""A backend is what others are compared with: it runs what it takes, and torch the rest."""

import pytest
import torch

import torch_ir
from torch_ir import compare, parse
from torch_ir.backends import SUPPORTED, DelegateBackend, Support
from torch_ir.errors import BackendError

PROGRAM = parse("""ir {
  symbol u0: 0..4
  input %x: f32[4]
  weight @w: f32[4]
  %a: f32[4] = aten.mul.Tensor(%x, @w)
  %b: f32[4] = aten.add.Tensor(%a, %x)
  %n: i64[u0, 1] = aten.nonzero.default(%b)
  %c: f32[4] = aten.mul.Tensor(%b, %x)
  %d: f32[4] = aten.mul.Tensor(%c, @w)
  return %d, %n
}""")
GIVEN = {"w": torch.tensor([1.0, 2.0, 3.0, 4.0])}, (torch.tensor([1.0, 0.0, -2.0, 3.0]),)


class Products(DelegateBackend):
    """Takes products alone, and requires that their weights are held.

    Args:
        change: What its results become.
    """

    name = "products"

    def __init__(self, change=lambda results: results):
        self.change = change

    def supports(self, node, ir):
        is_taken = node.op_type == "aten.mul.Tensor"
        return SUPPORTED if is_taken else Support.refused("it is no product")

    def compile(self, ir, payload):
        assert {node.op_type for node in ir.nodes} == {"aten.mul.Tensor"}
        graph, names = torch_ir.compile_graph(ir.replace(signature=None)), ir.input_names
        assert ("w" in payload) == ("w" in names)

        def call(*given):
            rest = iter(given)
            values = [payload[name] if name in payload else next(rest) for name in names]
            return self.change(graph.eval(values))

        return call


@pytest.mark.parametrize("mode", ["isolated", "accumulated", "both"])
@pytest.mark.parametrize("run", ["aten", "eager", "reference", Products()])
def test_a_backend_or_its_runner_is_compared_with(run, mode):
    weights, inputs = GIVEN
    runner = torch_ir.compile(PROGRAM, weights, backend=Products())
    for against in (Products(), runner):
        report = compare(PROGRAM, weights, inputs, run=run, against=against, mode=mode)
        assert report.divergences == ()
        assert report.verdict == "agree" or mode == "accumulated"
    wrong = Products(lambda results: [result + 1 for result in results])
    report = compare(PROGRAM, weights, inputs, run=run, against=wrong, mode=mode)
    assert report.first.node == "a"


def raises(results):
    raise KeyError("no such kernel")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (raises, "failed: KeyError: 'no such kernel'"),
        (lambda results: [], "gave 0 results, not 1"),
    ],
)
def test_a_backend_that_fails_as_the_other_side_is_an_error_that_names_it(change, said):
    with pytest.raises(BackendError) as error:
        compare(PROGRAM, *GIVEN, against=Products(change))
    assert str(error.value) == f"the backend 'products', of 1 node, the first 'a', {said}"
