"""The command as a process of its own: it says at once what it waits for, and Ctrl-C ends it."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

from torch_ir.cli import main
from torch_ir.cli.group import INTERRUPTED
from torch_ir.steps import uncollected

PATIENCE = 0.25
"""Seconds that a kernel may go on after Ctrl-C."""


class TorchFinder:
    """Finds torch as the others do; while it is loaded, a terminal says so and Ctrl-C ends all."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return torch's spec; None for any other module."""
        others = [each for each in sys.meta_path if each is not self] if name == "torch" else []
        found = (each.find_spec(name, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            setattr(spec.loader, "exec_module", partial(_loaded, load))  # noqa: B010  # a method is not assigned to
        return spec


def _loaded(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Load a module whose libraries hold the interpreter for seconds."""
    told = "loading PyTorch" if sys.stderr.isatty() else ""
    print(told, end="", file=sys.stderr, flush=True)  # noqa: T201  # erased below
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL) if is_main else None
    try:
        with uncollected():
            load(module)
        gc.freeze()  # no later collection looks at what torch keeps to the end
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)
        erased = f"\r{' ' * len(told)}\r" if told else ""
        print(erased, end="", file=sys.stderr, flush=True)  # noqa: T201


def _watch(signals: int) -> None:
    """End the process where the main thread does not come back from C to see an interrupt."""
    while os.read(signals, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(PATIENCE)
    os.write(2, b"\nAborted!\n")
    os._exit(INTERRUPTED)


def _open_standard_streams() -> None:
    """Open what the shell closed (``>&-``), so that no other file gets the number of a stream.

    Nothing is read from it and messages are lost, but results that cannot be written are an error.
    """
    read, written = os.O_RDONLY, os.O_WRONLY
    for number, name, flags in ((0, "stdin", read), (1, "stdout", read), (2, "stderr", written)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)  # writing to what is open for reading fails
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _leave_memory() -> None:
    """Leave memory to the system, which frees it at once; Python does object by object.

    Not where triton is loaded (by builds of torch for GPUs): its bindings, made with nanobind,
    print a page about what is left.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
    else:
        gc.freeze()


def run() -> None:
    """Run ``torch-ir``."""
    _open_standard_streams()
    sys.meta_path.insert(0, TorchFinder())
    atexit.register(_leave_memory)
    if os.name == "posix":
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=_watch, args=(read,), daemon=True).start()
    main(prog_name="torch-ir")
