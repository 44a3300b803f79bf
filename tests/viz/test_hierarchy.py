import pytest

from torch_ir.viz.hierarchy import LONGEST_LIST, ModuleGroup, hierarchy
from viz.programs import chain, layers, tangled


def everything(group):
    yield group
    for inner in group.groups():
        yield from everything(inner)


def labels(group):
    return [inner.label for inner in group.groups()]


def test_equal_layers_stand_together_once():
    root = hierarchy(layers(80))
    (repeat,) = root.groups()
    assert (repeat.kind, repeat.label, repeat.count) == ("repeat", "layers 0 … 79", 400)
    assert [layer.path for layer in repeat.groups()] == [f"layers.{at}" for at in range(80)]


def test_layers_that_differ_do_not():
    ir = layers(4)
    nodes = [
        node.replace(op_type="aten.neg.default") if at == 7 else node
        for at, node in enumerate(ir.nodes)
    ]
    (around,) = hierarchy(ir.replace(nodes=nodes)).groups()
    assert labels(around) == ["0", "1", "2 … 3"]
    assert [inner.kind for inner in around.groups()] == ["module", "module", "repeat"]


def test_what_is_alone_in_a_module_stands_without_it():
    root = hierarchy(chain(["a.b.c.fc", "a.b.c.fc", "head"]))
    assert labels(root) == ["a.b.c.fc"]
    assert root.members[1] == 2


def test_calls_that_nothing_keeps_apart_are_one():
    ir = chain(["block", "block", "other", "block", "block"])
    last, other = ir.nodes[3], ir.nodes[2]
    free = ir.replace(
        nodes=[*ir.nodes[:3], last.replace(inputs=[ir.nodes[1].outputs[0]]), ir.nodes[4]]
    )
    assert [m.count if isinstance(m, ModuleGroup) else m for m in hierarchy(ir).members] == [
        2,
        2,
        2,
    ]
    assert [m.count if isinstance(m, ModuleGroup) else m for m in hierarchy(free).members] == [
        4,
        2,
    ]
    assert other.name == "v2"


def test_a_deep_path_and_a_long_list_are_bounded():
    deep = hierarchy(chain([".".join(["m"] * 5000)] * 2))
    assert max(group.path.count(".") for group in everything(deep)) < 16
    flat = hierarchy(chain([""] * 3000))
    assert max(len(group.members) for group in everything(flat)) <= LONGEST_LIST
    assert list(flat.nodes()) == list(range(3000))


@pytest.mark.parametrize("seed", range(20))
def test_every_node_stands_once_and_groups_never_depend_on_each_other_in_a_circle(seed):
    ir = tangled(seed)
    root = hierarchy(ir)
    assert sorted(root.nodes()) == list(range(len(ir.nodes)))
    made = {meta.name: at for at, node in enumerate(ir.nodes) for meta in node.outputs}
    for group in everything(root):
        assert group.count == len(list(group.nodes()))
        home = {
            node: place
            for place, member in enumerate(group.members)
            for node in (member.nodes() if isinstance(member, ModuleGroup) else [member])
        }
        needs = {
            (home[made[meta.name]], home[node])
            for node in home
            for meta in ir.nodes[node].inputs
            if made.get(meta.name) in home
        }
        assert all(before <= after for before, after in needs)
