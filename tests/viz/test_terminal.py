"""The tree of a program in a terminal: lazy, whole, and tried with Textual's pilot."""

import asyncio
import gc
import sys
from itertools import pairwise

import pytest

from torch_ir.errors import OptionalDependencyError
from torch_ir.ir import IR
from torch_ir.ir.queries import graphs
from torch_ir.viz.hierarchy import hierarchy
from torch_ir.viz.terminal import Branch, ProgramTree, browser
from viz.programs import branches, chain, hostile, layers, tangled

PROGRAMS = [branches, hostile, lambda: layers(12), lambda: chain(["m"] * 500)]
PROGRAMS += [lambda seed=seed: tangled(seed) for seed in range(5)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_node_is_reached_by_opening_branches_and_by_search(program):
    ir = program()
    known = ProgramTree(ir)
    reached, rows = [], list(known.roots())
    while rows:
        branch = rows.pop()
        inner = known.inside(branch)
        assert len(inner) <= 161
        rows += inner
        reached += [branch] if isinstance(branch.member, int) else []
    everything = [Branch(path, at) for path, g in graphs(ir) for at in range(len(g.nodes))]
    assert sorted(reached) == sorted(everything)
    for place in everything[:40]:
        way = known.way(*place)
        assert way[-1] == place
        assert way[0] in list(known.roots())
        assert all(b in known.inside(a) for a, b in pairwise(way))
        node = known.bodies[place.path].nodes[place.member]
        found = known.find(f"{place.path}{node.name}")
        assert node.name in known.bodies[found.path].nodes[found.member].name


def test_a_search_goes_on_from_where_it_is_and_around():
    known = ProgramTree(branches())
    names, at = [], None
    for _ in range(3):
        at = known.find("relu", at)
        names.append(at)
    assert names == [Branch("yes/", 0)] * 3
    assert known.find("no such words") is None


def test_what_a_file_says_is_text():
    known = ProgramTree(hostile())
    for branch in known.roots():
        assert "\x1b" not in known.label(branch) + known.details(branch)


def test_without_textual_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "torch_ir.viz.browsing", raising=False)
    with pytest.raises(OptionalDependencyError, match=r'pip install "torch-ir\[browse\]"'):
        browser(branches())


def in_terminal(ir, *keys, size=(100, 30)):
    """What is shown after keys: the rows that exist, the cursor, the details."""
    pytest.importorskip("textual", reason="pip install textual")
    app = browser(ir)

    async def walk():
        async with app.run_test(size=size) as pilot:
            await pilot.press(*keys)
            await pilot.pause()
            await pilot.pause()
            rows, made = [app.rows.root], 0
            while rows:
                made += 1
                rows += rows.pop().children
            assert all(widget.region.width <= size[0] for widget in app.query("*"))
            return made, app.place, str(app.query_one("#details").render())

    return asyncio.run(walk())


def test_keys_open_walk_and_search():
    ir = branches()
    assert in_terminal(ir, "slash", *"neg", "enter")[1] == Branch("no/", 0)
    _, place, details = in_terminal(ir, "slash", *"cond", "enter")
    assert ir.nodes[place.member].name == "cond"
    assert "takes %gt of aten.gt.Scalar" in details
    assert "calls &yes" in details
    after = in_terminal(ir, "slash", *"cond", "enter", "u", "u")[1]
    assert ir.nodes[after.member].name == "sum"


def test_parts_of_long_lists_have_the_names_of_their_ends():
    known = ProgramTree(layers(400))
    (repeat,) = known.roots()
    assert known.label(repeat) == "layers 0 … 399 x 400  Block"
    assert [known.label(b) for b in known.inside(repeat)][:2] == ["0 … 79", "80 … 159"]
    nodes = ProgramTree(chain([""] * 200))
    assert next(map(nodes.label, nodes.roots())) == "%v0 … %v55"


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (200, 60)])
@pytest.mark.parametrize("program", [lambda: IR([], [], [], []), hostile, branches])
def test_every_key_works_everywhere(size, program):
    keys = ["n", "escape", *"udf", "slash", "x", "escape", "down", *"udf", "enter", "slash"]
    _, _, said = in_terminal(program(), *keys, *"zz", "enter", "n", size=size)
    assert said == "no node has the words 'zz'"


def test_a_call_leads_to_its_function():
    ir = branches()
    _, place, said = in_terminal(ir, "slash", *"cond", "enter", "f")
    assert place.path == "yes/"
    assert said.startswith("&yes\n\n2 nodes\n")


def test_of_a_large_program_only_what_is_open_is_made():
    ir = layers(20_000)  # 100,000 nodes
    keys = ("slash", *"layers.17771.mlp", "enter", "up", "down", "u", "d")
    made, place, _ = in_terminal(ir, *keys)
    assert ir.nodes[place.member].location.module.startswith("layers.17771")
    assert made < 500


def test_a_list_of_100000_nodes_without_modules_is_walked_and_left():
    made, place, _ = in_terminal(chain([""] * 100_000), "slash", *"v77777", "enter", "n", "d")
    assert place == Branch("", 77778)
    assert made < 900
    app = browser(chain([""]))

    async def leave():
        async with app.run_test() as pilot:
            await pilot.press("q")
        assert not app.is_running
        assert app.return_code == 0

    asyncio.run(leave())


def test_no_collection_of_garbage_looks_at_a_program_while_it_is_grouped():
    """Each would look at every node; as many objects are made as there are nodes."""
    ir, found = layers(2000), []
    gc.callbacks.append(lambda phase, info: found.append(info["generation"]))
    try:
        hierarchy(ir)
    finally:
        gc.callbacks.pop()
    assert len(found) < 5
