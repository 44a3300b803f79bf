"""Programs to look at, made without torch."""

import random

from torch_ir import parse
from torch_ir.ir import IR, Location, OpNode, TensorMeta

BRANCHES = """
ir "Branches" {
  weight @fc.weight: f32[8, 8] as %p_fc
  constant @table: i64[2] = [3, 4]
  func &yes "yes" {
    func &inner "inner" {
      input %c: f32[2, 8]
      %deep: f32[2, 8] = aten.tanh.default(%c)
      return %deep
    }
    input %a: f32[2, 8]
    %relu: f32[2, 8] = aten.relu.default(%a)
    %again.0: f32[2, 8] = again: higher_order.invoke_subgraph(operands=[%relu], subgraph=&inner)
    return %again.0
  }
  func &no "no" {
    input %b: f32[2, 8]
    %neg: f32[2, 8] = aten.neg.default(%b)
    return %neg
  }
  input %x: f32[2, 8]
  %linear: f32[2, 8] = aten.linear.default(%x, @fc.weight)
  %sum: f32[] = aten.sum.default(%linear)
  %gt: b8[] = aten.gt.Scalar(%sum, other=0)
  %cond.0: f32[2, 8] = cond: higher_order.cond(pred=%gt, operands=[%linear], true_fn=&yes, \
false_fn=&no)
  %max.0: f32[2], %max.1: i64[2] = max: aten.max.dim(%cond.0, dim=1)
  return %max.0, %max.1
}
"""


def branches():
    """A branch with a call inside, a weight, a constant, two results."""
    return parse(BRANCHES)


def chain(modules, name="Chain"):
    """One node after the other, each in the module of that path."""
    x = taken = TensorMeta("x", (2, 8), "float32")
    nodes = []
    for index, module in enumerate(modules):
        made = TensorMeta(f"v{index}", (2, 8), "float32", f"v{index}")
        place = Location("net.py", index + 1, f"v = op{index}(v)", module, "net.Block")
        nodes.append(OpNode(f"v{index}", "aten.relu.default", [taken], [made], location=place))
        taken = made
    return IR(nodes, [x], [taken], [], model_name=name)


def layers(count, of=("norm", "attn.q", "attn.k", "mlp", "")):
    """Equal layers one after the other."""
    return chain(
        [f"layers.{at}.{part}".rstrip(".") for at in range(count) for part in of], "Layers"
    )


def tangled(seed, size=120):
    """A graph whose modules are called again and again, in any order."""
    draw = random.Random(seed)
    values = [TensorMeta("x", (4,), "float32")]
    paths = ["", "a", "b", "a.0", "a.1", "b.c", "b.c.d", "act"]
    nodes = []
    for index in range(size):
        made = TensorMeta(f"v{index}", (4,), "float32", f"v{index}")
        taken = [draw.choice(values[-12:]), draw.choice(values)]
        place = Location(module=draw.choice(paths), module_type="net.M")
        nodes.append(OpNode(f"v{index}", "aten.add.Tensor", taken, [made], location=place))
        values.append(made)
    return IR(nodes, values[:1], values[-1:], [], model_name="Tangled")


HOSTILE = '</script><img src=x onerror="window.pwned=1">\u202e${1}\'"`<b>\x1b[2J'


def hostile():
    """A program in which every text is one that a careless page would obey."""
    h = HOSTILE
    x = TensorMeta(h + "x", (2, "s0"), "float32")
    w = TensorMeta(h + "w", (2,), "float32")
    y = TensorMeta(h + "y", (2,), "float32", h + "n")
    place = Location(h, 1, h, f"{h}.0.{h}", h)
    attrs = {h: h, "mode": h}
    node = OpNode(h + "n", f"my::{h}", [x, w], [y], attrs, {h: 0, "w": 1}, place)
    from torch_ir.ir.values import FunctionRef

    body = IR([node], [x], [y], [w], model_name=h)
    z = TensorMeta(h + "z", (2,), "float32", h + "m")
    call = OpNode(h + "m", "my::call", [x], [z], {"f": FunctionRef(h)}, {"x": 0}, place)
    return IR(
        [node, call],
        [x],
        [y, z],
        [w],
        {h + "w": h + "w"},
        model_name=h,
        pytorch_version=h,
        dialect=h,
        functions={h: body},
        metadata={h: h},
    )
