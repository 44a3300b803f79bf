"""Fail if docstrings of the package say what things are like instead of what they do.

Usage: ``python tools/check_docstrings.py [--list [FOLDER ...]]``

Counted are public functions and methods of ``src``; properties, operator meanings in
``semantics/operators``, magic methods and overrides of a method that an ancestor in the same file
documents aside. At most ``LIMIT`` of them may begin with another word than a verb. No docstring of
a module may be a clause without a subject ("What a call gives"), and none at all may hold a phrase
of ``BANNED``. ``--list`` prints the offenders.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "torch_ir"
LIMIT = 0.25
BANNED = ("likewise", "nobody can tell")
MEANINGS = "semantics/operators/"  # what an operator computes, a noun phrase each
_CLAUSES = """
    What Which Whether How Who Whose Where When Why That As If Of
    Running Watching Drawing Reading Writing Making Keeping Comparing Taking Giving
    Putting Removing Computing Rewriting Measuring Converting Finding Saving Loading
    """
# Verbs that may lead; a word that is a noun as often stands here only where it is used as a verb.
_VERBS = """
    Accept Accumulate Add Adjust Advance Align Allocate Allow Append Apply Arrange Ask Assemble
    Assert Assign Attach Bind Bound Bring Broadcast Build Calculate Call Cancel Canonicalize
    Capture
    Carry Change Check Choose Classify Clone Close Coerce Collapse Collect Combine Compare
    Compile Complete Compose Compute Concatenate Connect Construct Consume Convert Copy Count
    Create Decide Declare Decode Decompose Deduce Define Delegate Delete Derive Describe Detach
    Detect Determine Differentiate Disable Discard Dispatch Divide Draw Drop Eliminate Embed
    Emit Enable Encode Enforce Ensure Enter Enumerate Erase Escape Establish Estimate Evaluate
    Exclude Execute Expand Explain Extend Extract Fail Fetch Fill Filter Find Finish Flatten
    Fold Forget Format Freeze Functionalize Fuse Gather Generate Get Give Group Handle Hash Hide
    Hold Identify Ignore Import Include Increase Increment Infer Initialize Inline Insert
    Inspect Install Instantiate Interpret Invert Invoke Iterate Join Keep Lay Leave Let Lift
    List Load Locate Look Lower Make Map Match Materialize Measure Merge Multiply Name Normalize
    Note Observe Open Pack Pad Parse Pass Permute Pick Plan Predict Prepare Preserve Print
    Produce Promote Propagate Prove Pull Put Quantize Quote Raise Read Rebuild Receive Recognize
    Record Reduce Refer Refuse Register Reject Relax Remember Remove Rename Render Replace
    Report Represent Require Reshape Resolve Restore Restrict Retrace Return Reuse Rewrite Round
    Run Save Say Select Send Serialize Set Shorten Show Simplify Simulate Skip Solve Spell Split
    Store Strip Substitute Take Tell Trace Translate Traverse Truncate Turn Unflatten Unify
    Unpack Unregister Unroll Unwrap Update Upgrade Validate Vary Verify Warn Withdraw Wrap Write
    Yield
    """
CLAUSES = frozenset(_CLAUSES.split())
VERBS = frozenset(_VERBS.split())


@dataclass(frozen=True, slots=True)
class Docstring:
    """The first sentence of one docstring: where it stands and of what it is."""

    path: str
    line: int
    name: str
    text: str

    @property
    def first_word(self) -> str:
        """The first word, without punctuation."""
        return self.text.split(maxsplit=1)[0].strip(",.:;`") if self.text.split() else ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.text}"


def of_functions(path: str, tree: ast.Module) -> Iterator[Docstring]:
    """Yield the docstring of every public function and method that counts."""
    if MEANINGS not in path:
        yield from _of_functions(path, tree, "")


def _of_functions(path: str, node: ast.AST, prefix: str) -> Iterator[Docstring]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _of_functions(path, child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(child)
            if text and not child.name.startswith("_") and not _is_property(child):
                yield Docstring(path, _line(child), prefix + child.name, _sentence(text))
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _of_functions(path, child, prefix)


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = (ast.unparse(decorator).split("(")[0] for decorator in function.decorator_list)
    return any(name.endswith(("property", ".setter")) for name in names)


def _line(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> int:
    return node.body[0].lineno


def _sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def of_module(path: str, tree: ast.Module) -> Docstring | None:
    """Return the docstring of a module, or None if it has none."""
    text = ast.get_docstring(tree)
    return None if text is None else Docstring(path, _line(tree), "module", _sentence(text))


def is_led_by_verb(docstring: Docstring) -> bool:
    """Return whether the docstring begins with a verb in the imperative."""
    return docstring.first_word in VERBS


def is_clause(docstring: Docstring) -> bool:
    """Return whether a module's docstring is a clause or a bare participle, not a noun."""
    return docstring.first_word in CLAUSES


def banned_phrases(path: str, tree: ast.Module) -> Iterator[Docstring]:
    """Yield each paragraph of a docstring that holds a phrase which is banned."""
    for node in ast.walk(tree):
        if not isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            continue
        for part in (ast.get_docstring(node) or "").split("\n\n"):
            if any(phrase in part for phrase in BANNED):
                name = getattr(node, "name", "module")
                yield Docstring(path, _line(node), name, " ".join(part.split()))


def trees(folders: Sequence[str] = ()) -> Iterator[tuple[str, ast.Module]]:
    """Yield path and syntax tree of every file of the package, or of some of its folders."""
    for path in sorted(SOURCE.rglob("*.py")):
        below = path.relative_to(SOURCE)
        if not folders or any(below.as_posix().startswith(folder) for folder in folders):
            text = path.read_text(encoding="utf-8")
            yield path.relative_to(ROOT).as_posix(), ast.parse(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--list", nargs="*", metavar="FOLDER", help="print the offenders")
    folders = parser.parse_args(arguments).list
    found = [*trees(folders or ())]
    functions = [one for path, tree in found for one in of_functions(path, tree)]
    modules = [one for path, tree in found if (one := of_module(path, tree)) is not None]
    unled = [one for one in functions if not is_led_by_verb(one)]
    clauses = [one for one in modules if is_clause(one)]
    banned = [one for path, tree in found for one in banned_phrases(path, tree)]
    if folders is not None:
        print(*clauses, *unled, *banned, sep="\n")
    share = len(unled) / max(len(functions), 1)
    counts = f"{len(unled)} of {len(functions)} functions ({share:.1%}) are not led by a verb"
    print(
        f"docstrings: {counts}, {len(clauses)} modules are clauses, {len(banned)} phrases banned"
    )
    return 1 if share > LIMIT or clauses or banned else 0


if __name__ == "__main__":
    sys.exit(main())
