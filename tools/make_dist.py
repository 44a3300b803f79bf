"""Build wheel and sdist into ``dist/``, check them, and try the wheel where no torch is installed.

Usage: ``python tools/make_dist.py``, which is ``make dist``. Needs a package index.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SOURCE = ROOT / "src"
PACKAGE = "torch_ir"
TOOLS = ("build", "twine")
# Files of the source tree that serve its development only.
LEFT_OUT = ("ruff.toml",)
CACHE = re.compile(r"/(__pycache__|\.[^/]+)/")


def expected_members() -> set[str]:
    """Return the paths that the wheel must hold below its top: all of the package's files."""
    return {
        _below(path)
        for path in (SOURCE / PACKAGE).rglob("*")
        if path.is_file() and path.name not in LEFT_OUT and not CACHE.search(_below(path))
    }


def _below(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def wheel_faults(members: Iterable[str], expected: Iterable[str]) -> Iterator[str]:
    """Yield one sentence for each file that a wheel lacks and each that it should not have."""
    held = {name for name in members if ".dist-info/" not in name}
    wanted = {*expected}
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - held))
    yield from (f"the wheel should not have {name}" for name in sorted(held - wanted))


def environment(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with some packages; return its interpreter."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    call(python, "-m", "pip", "install", "--quiet", *packages)
    return python


def call(*command: object) -> None:
    """Run a command from the root of the project; raise CalledProcessError if it fails."""
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder, "tools"), *TOOLS)
        call(python, "-m", "build", "--outdir", DIST, ROOT)
        files = sorted(DIST.iterdir())
        call(python, "-m", "twine", "check", "--strict", *files)
        (wheel,) = (path for path in files if path.suffix == ".whl")
        with zipfile.ZipFile(wheel) as archive:
            faults = [*wheel_faults(archive.namelist(), expected_members())]
        if faults:
            print("\n".join(faults), file=sys.stderr)
            return 1
        fresh = environment(Path(folder, "fresh"), str(wheel))
        # -I ignores PYTHONPATH: the wheel is what is imported, not the source tree.
        call(fresh, "-I", ROOT / "tools" / "torch_free_lines.py", ROOT / "README.md")
    print(*(path.relative_to(ROOT) for path in files), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
