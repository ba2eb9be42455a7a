"""Prints a list once, or again and again: redrawn on a terminal, in a pipe only the entries that are new or have changed."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click

from gangline.console.output import layout, remarks, selection, terminal
from gangline.console.output.columns import Listing
from gangline.console.output.formats import DOCUMENTS, Output, OutputFormat, dated, document
from gangline.console.output.layout import Rows
from gangline.console.output.selection import ListSelection
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json

T = TypeVar("T")

#: seconds between two looks of --watch
EVERY: Final = 2.0
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "dim": {"dim": True},
    "bold": {"bold": True},
    "bold red": {"bold": True, "fg": "red"},
    "dim red": {"dim": True, "fg": "red"},
}


@dataclass(frozen=True, slots=True)
class Presentation:
    """The form in which the user wants a list: its format, its selection, and whether it is watched."""

    format: OutputFormat = field(default_factory=OutputFormat)
    selection: ListSelection = field(default_factory=ListSelection)
    watch: bool = False


def only_a_document(shape: Presentation, what: str) -> None:
    """Refuse what is for lists, where a command of lists prints `what`, which is none. Raises click.UsageError."""
    if shape.format.kind not in ("", *DOCUMENTS):
        raise click.UsageError(f"-o {shape.format.kind} is for the list: {what} has {' and '.join(DOCUMENTS)}")
    if shape.watch:
        raise click.UsageError(f"--watch is for the list: {what} is printed once")
    given = {name: getattr(shape.selection, name) for name in ("users", "states", "queues", "sort")}
    if chosen := [f"--{name.removesuffix('s')}" for name, values in given.items() if values]:
        raise click.UsageError(f"{', '.join(chosen)}: filters and order are for the list, not for {what}")


def options(*filters: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `-o`, `--sort`, `--watch` and the filters (of user, state, queue); the command gets them as `shape`."""
    found = [_OPTIONS[name] for name in filters]
    found += [
        click.option(
            "--sort", multiple=True, metavar="COLUMN[,…]", help="Sort by columns or paths; -COLUMN: descending."
        ),
        click.option("-w", "--watch", is_flag=True, help="Go on showing what changes, until Ctrl-C."),
        click.option("-o", "--output", type=Output(), default=OutputFormat(), help="Another form than the table."),
    ]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**given: Any) -> Any:
            wanted = {name: selection.words(given.pop(name, ())) for name in ("users", "states", "queues", "sort")}
            shape = Presentation(given.pop("output"), ListSelection(**wanted), given.pop("watch"))
            return command(shape=shape, **given)

        for option in reversed(found):
            gathered = option(gathered)
        return gathered

    return decorate


_OPTIONS: Final = {
    "user": click.option(
        "-u", "--user", "users", multiple=True, help="Only of these users (label gangline.io/user), or namespaces."
    ),
    "state": click.option("-s", "--state", "states", multiple=True, help="Only in these states, such as pending."),
    "queue": click.option(
        "--queue", "queues", multiple=True, help="Only of these LocalQueues or ClusterQueues, among what is listed."
    ),
}


async def present(
    listing: Listing[T],
    shape: Presentation,
    look: Callable[[], Awaitable[Sequence[T]]],
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Print what `look` finds, once or until Ctrl-C. `wait` returns when it is time to look again: after so many seconds, or
    when something has happened.
    """
    if not shape.watch:
        show(listing, shape, await look())
        return
    follow = _redraw if sys.stdout.isatty() and shape.format.tabular else _report
    await follow(listing, shape, look, wait)


def show(listing: Listing[T], shape: Presentation, entries: Sequence[T]) -> None:
    """Print entries once."""
    now = time.time()
    found = shape.selection.of(listing, entries, now)
    if not shape.format.tabular:
        if found or shape.format.kind != "name":
            terminal.say(shape.format.text(listing, found))
        return
    if not found:
        terminal.say(listing.empty if not entries else "Nothing is left by these filters.", err=True)
        return
    terminal.say(*drawn(listing, shape, found, now, width()))


def echo(rows: Rows) -> None:
    """Print a table of no list: fitted to a terminal, whole in a pipe."""
    terminal.say(*styled(rows, width()))


def width() -> int | None:
    """Columns of the terminal; None in a pipe. $COLUMNS overrides it."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size((80, 24)).columns


def styled(rows: Rows, columns: int | None) -> list[str]:
    """Lines with colours, which click leaves out in a pipe; last the columns for which there is no room."""
    fitted = layout.fit(rows, columns)
    lines = [_coloured(line, rows) for line in fitted.lines]
    if fitted.left_out:
        words = f"(no room for {', '.join(fitted.left_out)}: -o json, or a wider terminal)"
        lines.append(terminal.style(layout.clipped(words, columns or len(words)), dim=True))
    return lines


def _coloured(line: layout.TableLine, rows: Rows) -> str:
    if line.row is None:
        return terminal.style(line.text, bold=True)
    style = rows.styles[line.row] if rows.styles else ""
    if line.below:
        return terminal.style(line.text, dim=True)
    return terminal.style(line.text, **_STYLES.get(style, {"fg": style})) if style else line.text


def drawn(listing: Listing[T], shape: Presentation, found: Sequence[T], now: float, columns: int | None) -> list[str]:
    """The lines of a table for a terminal of so many columns; None: in a pipe. A wide table is as wide as it is."""
    if listing.drawing is not None and not shape.format.kind:
        lines = listing.drawing(found, now, columns or shutil.get_terminal_size((120, 24)).columns)
    else:
        lines = styled(shape.format.rows(listing, found, now), None if shape.format.kind == "wide" else columns)
    if listing.remarks is None or shape.format.kind == "custom-columns":
        return lines
    return [*lines, *(part for text in listing.remarks(found) for part in layout.wrapped(text, columns))]


# --- watching -----------------------------------------------------------------------------------------------------------


async def _looked(look: Callable[[], Awaitable[Sequence[T]]]) -> tuple[Sequence[T] | None, str]:
    """The entries that are found, with remarks on them; or None and why there are none: a process that is away comes back."""
    with remarks.kept() as said:
        try:
            return await look(), "; ".join(said)
        except ApiError as error:
            return None, str(error)
        except click.UsageError:
            raise
        except click.ClickException as error:
            return None, error.message


async def _redraw(
    listing: Listing[T],
    shape: Presentation,
    look: Callable[[], Awaitable[Sequence[T]]],
    wait: Callable[[float], Awaitable[None]],
) -> None:
    entries: Sequence[T] = ()
    while True:
        seen, trouble = await _looked(look)
        entries = entries if seen is None else seen
        now = time.time()
        found = shape.selection.of(listing, entries, now)
        head = time.strftime("%H:%M:%S") + (f"  {trouble}" if trouble else "")
        body = drawn(listing, shape, found, now, width()) if found else [listing.empty]
        head = layout.clipped(head, width() or len(head))
        terminal.redraw(*_fitting([terminal.style(head, dim=True), *body]))
        await wait(EVERY)


def _fitting(lines: list[str]) -> list[str]:
    """The lines that fit on the terminal, the last with the number of the others."""
    most = os.get_terminal_size(sys.stdout.fileno()).lines - 1 if sys.stdout.isatty() else len(lines)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], terminal.style(f"… {len(lines) - most + 1} more lines", dim=True)]


async def _report(
    listing: Listing[T],
    shape: Presentation,
    look: Callable[[], Awaitable[Sequence[T]]],
    wait: Callable[[float], Awaitable[None]],
) -> None:
    reporter = Reporter(listing, shape)
    said = ""
    while True:
        seen, trouble = await _looked(look)
        if trouble and trouble != said:
            terminal.say(f"({trouble})", err=True)
        said = trouble
        if seen is not None and (news := reporter.news(seen, time.time())):
            terminal.say(*news)
        await wait(EVERY)


class Reporter:
    """Turns successive looks at a list into lines: everything at first, then what is new, has changed or is gone."""

    def __init__(self, listing: Listing[T], shape: Presentation) -> None:
        self._listing: Listing[Any] = listing
        self._shape = shape
        self._known: dict[str, Json] = {}
        self._with_header = True

    def news(self, entries: Sequence[Any], now: float) -> list[str]:
        listing, shape = self._listing, self._shape
        found = shape.selection.of(listing, entries, now)
        bodies = {self._identity(entry): listing.as_json(entry) for entry in found}
        changed = [entry for entry in found if self._known.get(self._identity(entry)) != bodies[self._identity(entry)]]
        self._known = bodies
        if not changed:
            return []
        if shape.format.tabular:
            lines = layout.plain(shape.format.rows(listing, changed, now)).splitlines()
            header, self._with_header = self._with_header, False
            return lines if header else lines[1:]
        if shape.format.kind == "name":
            return [listing.name(entry) for entry in changed]
        texts = [document(shape.format.kind, dated(listing.as_json(entry), listing.instants)) for entry in changed]
        return [f"---\n{text}" for text in texts] if shape.format.kind == "yaml" else texts

    def _identity(self, entry: Any) -> str:
        body = self._listing.as_json(entry)
        return f"{body.get('namespace') or ''}/{self._listing.name(entry)}/{body.get('workload') or ''}"
