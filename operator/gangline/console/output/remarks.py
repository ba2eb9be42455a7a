"""What is said beside a list, such as that it is not complete: on stderr; while a list is watched, where it stays in sight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gangline.console.output import terminal

_kept: ContextVar[list[str] | None] = ContextVar("kept", default=None)


def remark(text: str) -> None:
    """Say it, in parentheses."""
    kept = _kept.get()
    if kept is None:
        terminal.say(f"({text})", err=True)
    elif text not in kept:
        kept.append(text)


@contextmanager
def kept() -> Iterator[list[str]]:
    """Within the block remarks are not printed, but kept in this list."""
    found: list[str] = []
    token = _kept.set(found)
    try:
        yield found
    finally:
        _kept.reset(token)
