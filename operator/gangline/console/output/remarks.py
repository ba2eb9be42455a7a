"""Remarks beside a list, such as that it is not complete: on stderr; while a list is watched, where they stay in sight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gangline.console.output import terminal

_kept: ContextVar[list[str] | None] = ContextVar("kept", default=None)


def remark(text: str) -> None:
    """Print a remark, in parentheses."""
    kept = _kept.get()
    if kept is None:
        terminal.say(f"({text})", err=True)
    elif text not in kept:
        kept.append(text)


@contextmanager
def kept() -> Iterator[list[str]]:
    """Keep remarks in this list, within the block, in place of printing them."""
    found: list[str] = []
    token = _kept.set(found)
    try:
        yield found
    finally:
        _kept.reset(token)
