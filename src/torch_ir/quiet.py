"""Keep libraries of others from writing between our own lines."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout, suppress


@contextmanager
def silent_log() -> Generator[None, None, None]:
    """Silence the log of torch, whose errors the exception that follows says better."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def torch_errors_unlogged() -> Generator[None, None, None]:
    """Keep torch from logging errors, which the exception that follows says better.

    What it warns of, and what code of users logs, goes where it went.
    """
    known = dict(logging.root.manager.loggerDict)
    loggers = [log for name, log in known.items() if _is_torchs(name)]
    handlers = {h: None for log in loggers for h in getattr(log, "handlers", ())}

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno != logging.ERROR or not _is_torchs(record.name)

    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)


def _is_torchs(logger: str) -> bool:
    return logger.partition(".")[0] == "torch"


@contextmanager
def quietly() -> Generator[None, None, None]:
    """Keep libraries of others from logging, warning and printing while they load or convert."""
    with silent_log(), warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def silent_stderr() -> Generator[None, None, None]:
    """Drop what code below Python writes to stderr: that of all threads, so for moments only."""
    with suppress(AttributeError, OSError, ValueError):  # Python's stderr may be closed or another
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  # a name of the system
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
