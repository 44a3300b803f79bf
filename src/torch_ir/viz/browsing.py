"""The app that walks a program; importing it needs Textual, and only :func:`browser` does."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

from rich.text import Text

from torch_ir.errors import counted, printable
from torch_ir.ir import IR
from torch_ir.ir.queries import positions
from torch_ir.viz.hierarchy import ModuleGroup
from torch_ir.viz.terminal import Branch, ProgramTree

_app: Any = import_module("textual.app")
_containers: Any = import_module("textual.containers")
_widgets: Any = import_module("textual.widgets")


class Browser(_app.App):  # pyright: ignore[reportUntypedBaseClass]  # an optional dependency
    """The tree on the left, the node on the right, the search below."""

    CSS = """
    Tree { width: 45%; } VerticalScroll { padding: 0 1; } Input { dock: bottom; }
    .-narrow Horizontal { layout: vertical; } .-narrow Tree { width: 100%; height: 60%; }
    """
    HORIZONTAL_BREAKPOINTS: ClassVar = [(0, "-narrow"), (60, "-wide")]
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = (
        ("slash", "search", "Search"),
        ("n", "next", "Next"),
        ("u", "maker", "Maker"),
        ("d", "user", "User"),
        ("f", "function", "Function"),
        ("q", "quit", "Quit"),
        ("escape", "leave", ""),
    )

    def __init__(self, ir: IR):
        super().__init__()
        self.known, self.words = ProgramTree(ir), ""
        self.title = f"{printable(ir.model_name) or 'program'}: {counted(len(ir.nodes), 'node')}"

    def compose(self) -> Iterator[Any]:
        """Lay the screen out."""
        tree = _widgets.Tree(Text(self.title))
        with _containers.Horizontal():
            yield tree
            with _containers.VerticalScroll():
                yield _widgets.Static(id="details", markup=False)
        search = _widgets.Input(placeholder="words of a name, operator or module")
        search.display = False
        yield search
        yield _widgets.Footer()

    def on_mount(self) -> None:
        """Open the top of the tree."""
        self.rows = self.query_one(_widgets.Tree)
        self.rows.root.expand()
        self._add(self.rows.root, list(self.known.roots()))
        self.rows.focus()

    def _add(self, row: Any, branches: list[Branch]) -> None:
        for branch in branches:
            is_group = isinstance(branch.member, ModuleGroup)
            row.add(Text(self.known.label(branch)), data=branch, allow_expand=is_group)

    def on_tree_node_expanded(self, event: Any) -> None:
        """Make the rows inside of what is opened for the first time."""
        self._open(event.node)

    def _open(self, row: Any) -> None:
        if row.data is not None and not row.children:
            self._add(row, self.known.inside(row.data))

    def on_tree_node_highlighted(self, event: Any) -> None:
        """Show what the cursor is on."""
        text = "" if event.node.data is None else self.known.details(event.node.data)
        self.query_one("#details").update(text)

    def go(self, place: Branch) -> None:
        """Open the way to a node, and put the cursor on it."""
        row = self.rows.root
        for branch in self.known.way(place.path, int(str(place.member))):
            self._open(row)
            row.expand()
            row = next(child for child in row.children if child.data == branch)
        self.call_after_refresh(self.rows.move_cursor, row, True)

    def action_search(self) -> None:
        """Ask for words."""
        search = self.query_one(_widgets.Input)
        search.display = True
        search.focus()

    def action_leave(self) -> None:
        """Close the search."""
        self.query_one(_widgets.Input).display = False
        self.rows.focus()

    def on_input_submitted(self, event: Any) -> None:
        """Go to the first node with the words."""
        self.words = event.value
        self.action_leave()
        if self.words:
            self.action_next()

    def action_next(self) -> None:
        """Go to the next node with the words; ask for them first."""
        found = self.known.find(self.words, self.place) if self.words else None
        if found is not None:
            self.go(found)
        elif self.words:
            self.query_one("#details").update(f"no node has the words {printable(self.words)!r}")
        else:
            self.action_search()

    @property
    def place(self) -> Branch | None:
        """What the cursor is on."""
        row = self.rows.cursor_node
        return None if row is None else row.data

    def _linked(self, names: list[str]) -> None:
        path, _ = self.place or ("", 0)
        if names:
            self.go(Branch(path, positions(self.known.bodies[path])[names[0]]))

    def action_maker(self) -> None:
        """Go to the node that makes the first operand."""
        path, member = self.place or ("", None)
        if isinstance(member, int):
            graph = self.known.bodies[path]
            makers = [graph.producers.get(m.name) for m in graph.nodes[member].inputs]
            self._linked([node.name for node in makers if node is not None])

    def action_function(self) -> None:
        """Go to the first function that the node calls."""
        path, member = self.place or ("", None)
        names = self.known.bodies[path].nodes[member].functions if isinstance(member, int) else ()
        rows = {row.data.path: row for row in self.rows.root.children if row.data.path}
        for row in [rows[f"{path}{name}/"] for name in names if f"{path}{name}/" in rows][:1]:
            self.rows.move_cursor(row, True)

    def action_user(self) -> None:
        """Go to the first node that takes a result."""
        path, member = self.place or ("", None)
        if isinstance(member, int):
            graph = self.known.bodies[path]
            made = graph.nodes[member].outputs
            self._linked([u.name for m in made for u in graph.users.get(m.name, ())])
