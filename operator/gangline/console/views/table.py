"""Tables and lines of queues and workloads: pure functions from a snapshot to rows and to drawn tables, and their output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gangline.control.answers.snapshot import FINISHED, FlavorView, QueueView, Snapshot, State, WorkloadView
from gangline.control.answers.words import age, amount, why
from gangline.engine import is_accelerator

Cells: TypeAlias = tuple[str, ...]

_PADDING = 3  # spaces between two columns of a drawn table

_STYLES = {
    State.PENDING: "yellow",
    State.RESERVED: "cyan",
    State.STARTING: "cyan",
    State.RUNNING: "green",
    State.STOPPING: "magenta",
    State.SUCCEEDED: "dim",
    State.FAILED: "red",
    State.INACTIVE: "dim red",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """A table before it is drawn."""

    header: Cells
    cells: tuple[Cells, ...]
    styles: tuple[str, ...] = ()
    right: frozenset[str] = frozenset()  # headers of the columns that are aligned to the right


# --- queues -----------------------------------------------------------------------------------------------------------


def queue_rows(snapshot: Snapshot) -> Rows:
    """One row per ClusterQueue and flavor: used and nominal quota, borrowed quota, admitted and pending workloads."""
    cells: list[Cells] = []
    styles: list[str] = []
    for queue in snapshot.queues:
        for index, flavor in enumerate(queue.flavors or (None,)):
            first = index == 0
            cells.append(
                (
                    queue.name if first else "",
                    (queue.cohort or "–") if first else "",
                    *(_flavor_cells(flavor) if flavor else ("–", "–", "–", "–")),
                    str(queue.admitted) if first else "",
                    str(queue.pending) if first else "",
                    ("" if queue.active else queue.reason) if first else "",
                )
            )
            styles.append("" if queue.active else "red")
    header = ("QUEUE", "COHORT", "FLAVOR", "RESOURCE", "USED/NOMINAL", "BORROWED", "ADMITTED", "PENDING", "NOTE")
    return Rows(header, tuple(cells), tuple(styles), frozenset({"USED/NOMINAL", "BORROWED", "ADMITTED", "PENDING"}))


def _flavor_cells(flavor: FlavorView) -> Cells:
    used, nominal = amount(flavor.used, flavor.resource), amount(flavor.nominal, flavor.resource)
    borrowed = amount(flavor.borrowed, flavor.resource) if flavor.borrowed else "–"
    return (flavor.flavor, flavor.resource, f"{used}/{nominal}", borrowed)


# --- workloads --------------------------------------------------------------------------------------------------------


def workload_rows(workloads: Iterable[WorkloadView], now: float, *, wide: bool = False, brief: bool = True) -> Rows:
    """One row per workload, as `gangline queue` and the live table show it."""
    shown = list(workloads)
    columns = [*_COLUMNS, *(_WIDE_COLUMNS if wide else ())]
    cells = tuple(tuple(cell(view, now) for _, cell in columns) for view in shown)
    if not brief:
        reason = [name for name, _ in columns].index("REASON")
        cells = tuple((*row[:reason], view.message, *row[reason + 1 :]) for row, view in zip(cells, shown, strict=True))
    styles = tuple("bold red" if view.never_fits else _STYLES[view.state] for view in shown)
    return Rows(tuple(name for name, _ in columns), cells, styles, frozenset({"GPUS", "PRIO", "POS", "AGE", "PODS"}))


def with_columns(rows: Rows, header: Sequence[str], cells: Sequence[Cells]) -> Rows:
    """The rows with more columns before the last one, because the last column may be cut."""
    return replace(
        rows,
        header=(*rows.header[:-1], *header, rows.header[-1]),
        cells=tuple((*row[:-1], *more, row[-1]) for row, more in zip(rows.cells, cells, strict=True)),
        right=rows.right | frozenset(header),
    )


_Column: TypeAlias = tuple[str, Callable[[WorkloadView, float], str]]
_COLUMNS: tuple[_Column, ...] = (
    ("NAMESPACE", lambda v, _: v.namespace),
    ("NAME", lambda v, _: v.job_name),
    ("KIND", lambda v, _: v.job_kind),
    ("QUEUE", lambda v, _: v.cluster_queue or f"{v.queue}?"),
    ("GPUS", lambda v, _: str(v.gpus) if v.gpus else "–"),
    ("PRIO", lambda v, _: str(v.priority)),
    ("STATE", lambda v, _: "Never fits" if v.never_fits else str(v.state)),
    ("POS", lambda v, _: "" if v.position is None else str(v.position + 1)),
    ("AGE", lambda v, now: age(now - v.created)),
    ("REASON", lambda v, _: why(v)),
)
_WIDE_COLUMNS: tuple[_Column, ...] = (
    ("PODS", lambda v, _: str(v.pods)),
    ("LOCALQUEUE", lambda v, _: v.queue),
    ("WORKLOAD", lambda v, _: v.name),
)


def change_line(view: WorkloadView, elapsed: float) -> str:
    """A log line for a workload's state change."""
    gpus = f"{view.gpus} GPU{'s' if view.gpus != 1 else ''}" if view.gpus else f"{view.pods} pods"
    state = "Never fits" if view.never_fits else str(view.state)
    line = (
        f"{elapsed:6.1f}s  {state:<10}  {view.cluster_queue or '?':<10}  {view.job} ({gpus}, priority {view.priority})"
    )
    return f"{line}: {reason}" if (reason := why(view)) else line


def counts_line(snapshot: Snapshot, elapsed: float) -> str:
    """A log line with the number of workloads by state and the GPU usage."""
    views = snapshot.workloads
    waiting = sum(v.state is State.PENDING for v in views)
    ended = sum(v.state in FINISHED for v in views)
    used, total = gpu_use(snapshot.queues)
    running = len(views) - waiting - ended
    return f"{elapsed:6.1f}s  {running} running, {waiting} waiting, {ended} finished; {used}/{total} GPUs in use"


def gpu_use(queues: Iterable[QueueView]) -> tuple[int, int]:
    """GPUs in use and nominal GPU quota, over all queues."""
    flavors = [f for queue in queues for f in queue.flavors if is_accelerator(f.resource)]
    return sum(f.used for f in flavors), sum(f.nominal for f in flavors)


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(rows: Rows, width: int, *, limit: int | None = None, without: frozenset[str] = frozenset()) -> Table:
    """A rich table for a terminal of `width` columns; with a `limit`, the last line has the number of omitted rows.

    On a narrow terminal only the last column is cut; columns named in `without` are not shown.
    """
    kept = [i for i, name in enumerate(rows.header) if name not in without]
    shown = rows.cells if limit is None else rows.cells[:limit]
    widths = {i: max(len(row[i]) for row in (rows.header, *shown)) for i in kept}
    room = width - sum(widths[i] + _PADDING for i in kept[:-1]) - _PADDING
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i in kept:
        name = rows.header[i]
        table.add_column(name, justify="right" if name in rows.right else "left", no_wrap=True)
    for index, cells in enumerate(shown):
        row = [*(cells[i] for i in kept[:-1]), _cut(cells[kept[-1]], room)]
        table.add_row(*map(Text, row), style=rows.styles[index] if rows.styles else "")
    if len(shown) < len(rows.cells):
        table.add_row("…", f"{len(rows.cells) - len(shown)} more", style="dim")
    return table


def _cut(text: str, width: int) -> str:
    return text if len(text) <= max(width, 10) else f"{text[: max(width, 10) - 1]}…"


def echo(rows: Rows) -> None:
    """Print a coloured table on a terminal, aligned plain text in a pipe."""
    console = Console()
    if console.is_terminal:
        console.print(draw(rows, console.size.width))
    else:
        click.echo(plain(rows))


def plain(rows: Rows) -> str:
    """Aligned text without colour or boxes, for a pipe: columns are separated by two spaces."""
    widths = [max(len(row[i]) for row in (rows.header, *rows.cells)) for i in range(len(rows.header))]
    return "\n".join(_plain_line(row, rows, widths) for row in (rows.header, *rows.cells))


def _plain_line(row: Cells, rows: Rows, widths: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if name in rows.right else cell.ljust(width)
        for cell, name, width in zip(row, rows.header, widths, strict=True)
    )
    return "  ".join(cells).rstrip()
