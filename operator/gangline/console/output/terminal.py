"""The only place where the command prints: all output of the console passes through this module, which lets no foreign text
through as it is.

Names, messages and files come from others, and their text may hold what moves the cursor, renames the window, hides or reverses
what stands beside it. A test finds every other way to print.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from gangline.bounded import printable

if TYPE_CHECKING:
    from rich.console import Console

_CLEAR: Final = "\x1b[H\x1b[J"


@dataclass(frozen=True, slots=True)
class PrintedText:
    """What a command has printed: the texts of stdout, and those of stderr, without colours."""

    out: list[str] = field(default_factory=list[str])
    err: list[str] = field(default_factory=list[str])


_captured: ContextVar[PrintedText | None] = ContextVar("captured", default=None)


@contextmanager
def captured() -> Iterator[PrintedText]:
    """Keep what is said within the block, in place of printing it. Nobody can be asked there."""
    printed = PrintedText()
    token = _captured.set(printed)
    try:
        yield printed
    finally:
        _captured.reset(token)


class Styled(str):
    """A text with a terminal's codes for colours, in which foreign text is printable. Only `style` makes one."""

    __slots__ = ()

    def __add__(self, other: str) -> Styled:
        return Styled(super().__add__(other if isinstance(other, Styled) else clean(other)))


def write_in_full() -> None:
    """Give standard streams without a buffer one that is flushed with each line. Under PYTHONUNBUFFERED a write that a signal
    interrupts, such as a change of the window's size, is cut short, and Python drops the rest.
    """
    for name, own in (("stdout", sys.__stdout__), ("stderr", sys.__stderr__)):
        stream = getattr(sys, name)
        raw = getattr(stream, "buffer", None)
        if stream is own and isinstance(raw, io.RawIOBase):
            buffer = io.BufferedWriter(raw)
            setattr(
                sys, name, io.TextIOWrapper(buffer, stream.encoding, stream.errors, newline="\n", line_buffering=True)
            )


def style(text: str, **how: Any) -> Styled:
    """The text in this style, as click has it."""
    return Styled(click.style(clean(text), **how))


def clean(text: str) -> str:
    """The text, printable; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def say(*lines: str, err: bool = False, nl: bool = True) -> None:
    """Print lines, without any an empty one; to stderr with `err`, without a line break at the end where `nl` is false."""
    kept = _captured.get()
    if kept is not None:
        (kept.err if err else kept.out).extend(clean(click.unstyle(line)) for line in lines or ("",))
        return
    for line in lines or ("",):
        click.echo(line if isinstance(line, Styled) else clean(line), err=err, nl=nl)


def pass_on(data: bytes, *, err: bool = False) -> None:
    """Print what a command writes that the user has started in a container, as it is: such a command may draw."""
    stream = (sys.stderr if err else sys.stdout).buffer
    stream.write(data)
    stream.flush()


def redraw(*lines: str) -> None:
    """Clear the terminal and print lines."""
    click.echo(_CLEAR, nl=False)
    say(*lines)


def can_ask() -> bool:
    """Whether somebody at a terminal can answer a question."""
    return _captured.get() is None and sys.stdin.isatty()


def is_here() -> bool:
    """Whether standard input and output are a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def confirm(question: str) -> None:
    """Ask, and go on at a yes. Raises click.ClickException for a no, and click.UsageError where there is no terminal to ask."""
    if not can_ask():
        raise click.UsageError(clean(f"{question} There is no terminal to ask: -y says yes"))
    if not click.confirm(clean(question)):
        raise click.ClickException("nothing is changed")


def end_line() -> None:
    """End the line on which a terminal has shown ^C."""
    if sys.stderr.isatty():
        click.echo(err=True)


def ask(question: str, default: str = "") -> str:
    """Ask for a text, and wait for it; an empty answer is the default."""
    return click.prompt(clean(question), default=clean(default), show_default=bool(default)).strip()


def agreed(question: str) -> bool:
    """Whether the answer to a question is a yes; an empty one is a no."""
    return click.confirm(clean(question))


def console(**options: Any) -> Console:
    """A console of rich, which prints what it is given as `say` does."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Clean(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Any:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(clean(segment.text), segment.style)

    return Clean(**options)
