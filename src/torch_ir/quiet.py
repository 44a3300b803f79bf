"""Keep libraries of others from writing between our own lines."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout


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
def quietly() -> Generator[None, None, None]:
    """Keep libraries of others from logging, warning and printing while they load or convert."""
    with silent_log(), warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
