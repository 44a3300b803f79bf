"""Run the lines of README that promise to work where no torch is installed, and compare outputs.

Usage: ``python tools/torch_free_lines.py README.md``, with the interpreter to try. ``make dist``
runs it in an environment that holds the built wheel and nothing else.

The program is the one that README's first screen prints. Of the shell lines, those run that call a
command which loads no torch; of the Python blocks, those that use none of ``model``, ``executor``
and functions that need torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TORCH_FREE_COMMANDS = ("show", "info", "diff", "convert")
INPUTS = ("net.tir", "net.json")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def shell_lines(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each line of a page that calls a torch-free command on ``INPUTS``, and its output.

    The output is None where the page shows none.
    """
    for language, code, shown in BLOCK.findall(text):
        if language == "sh":
            for line in code.splitlines():
                words = shlex.split(line, comments=True)
                files = [word for word in words if word.endswith((".tir", ".json"))]
                is_free = words[:1] == ["torch-ir"] and words[1] in TORCH_FREE_COMMANDS
                if is_free and {*files} <= {*INPUTS}:
                    yield line, shown or None


def first_program(text: str) -> str:
    """Return the program that the page's first ``text`` block shows."""
    match = re.search(r"^```text\n(ir .*?)^```\n", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError("the page shows no program")
    return match[1]


def python_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each Python block that asks only a loaded program, and the output that it shows."""
    for language, code, shown in BLOCK.findall(text):
        if language == "python" and shown and "loaded.diff(" in code:
            yield code, shown


def run(text: str) -> int:
    """Run the lines in the current folder; return how many ran.

    Raises:
        AssertionError: A line failed, or printed something else than the page shows.
    """
    import torch_ir

    loaded = torch_ir.parse(first_program(text))
    for name in INPUTS:
        loaded.save(name)
        assert torch_ir.IR.load(name) == loaded, name
    assert torch_ir.parse(str(loaded)) == loaded
    assert loaded.check() == ()
    count = 0
    for code, shown in python_blocks(text):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, {"loaded": loaded, "torch_ir": torch_ir})
        _compare(code, output.getvalue(), shown)
        count += 1
    program = Path(sys.executable).with_name("torch-ir")
    for line, shown in shell_lines(text):
        command = [str(program), *shlex.split(line)[1:]]
        result = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}
        )
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"
        if shown is not None:
            _compare(line, result.stdout, shown)
        count += 1
    return count


def _compare(code: str, output: str, shown: str) -> None:
    assert output == shown, f"{code}\nprinted:\n{output}\nshown:\n{shown}"


def main(page: str) -> int:
    text = Path(page).read_text(encoding="utf-8")
    try:
        import torch  # noqa: F401 - it must not be there
    except ModuleNotFoundError:
        pass
    else:
        print("error: torch is installed here, so nothing is shown", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        print(f"{run(text)} lines of {Path(page).name} work without torch")
    return 0


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).absolute())))
