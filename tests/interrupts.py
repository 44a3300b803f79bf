"""Interrupts of a call, as Ctrl-C is one, at each place where Python looks for signals."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

LOOKS = frozenset(("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"))
"""Instructions behind which Python looks for signals."""


def interrupted_everywhere(call: Callable[[], Any], before: Callable[[], Any]) -> Iterator[str]:
    """Interrupt a call in each of its places in turn; yield the place afterwards.

    Args:
        call: What is interrupted, in code of torch-ir or made by it, and at last ends.
        before: What is called before each call.
    """
    place = 0
    while True:
        before()
        interrupt = _Interrupt(place)
        sys.settrace(interrupt.enters)
        try:
            call()
        except KeyboardInterrupt:
            pass
        else:
            return
        finally:
            sys.settrace(None)
        yield interrupt.where
        place += 1


class _Interrupt:
    def __init__(self, place: int):
        self.left, self.where = place, ""
        self._last: dict[FrameType, int] = {}

    def enters(self, frame: FrameType, _event: str, _arg: object) -> Any:
        name = frame.f_code.co_filename
        if "torch_ir" not in name and not name.startswith("torch-ir:"):
            return None
        frame.f_trace_opcodes = True
        return self.goes_on

    def goes_on(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "opcode":
            last, self._last[frame] = self._last.get(frame), frame.f_lasti
            if last is not None and _is_seen(frame.f_code, last, frame.f_lasti):
                self.left -= 1
                if self.left < 0:
                    self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                    raise KeyboardInterrupt
        return self.goes_on


def _is_seen(code: CodeType, last: int, here: int) -> bool:
    """Whether a signal is seen between two instructions, and raised in the second as in the first.

    Python raises what comes behind a call in that call, which a trace cannot.
    """
    looks, handlers = _facts(code)
    return last in looks and handlers(last) == handlers(here)


@cache
def _facts(code: CodeType) -> tuple[frozenset[int], Callable[[int], int | None]]:
    found = dis.Bytecode(code)
    looks = frozenset([item.offset for item in found if item.opname in LOOKS])
    entries: Any = found.exception_entries  # pyright: ignore[reportAttributeAccessIssue]  # not in typeshed

    def handler(offset: int) -> int | None:
        return next((e.target for e in entries if e.start <= offset < e.end), None)

    return looks, handler


def from_another_thread(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or raises, in another thread: it would wait for a lock forever."""
    made: list[Any] = []

    def run() -> None:
        try:
            made.append(call())
        except Exception as error:  # noqa: BLE001  # which is what the call gave
            made.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert made, "it waits for what an interrupted call holds"
    return made[0]
