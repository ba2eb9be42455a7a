"""Queues as rows, a run's changes as lines, and the tables of a run, which are redrawn in place. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gangline.bounded import printable
from gangline.console.output.layout import Cells, Rows, TableLine, fit
from gangline.control.answers.workloads.snapshot import (
    FINISHED,
    AnswerSnapshot,
    FlavorView,
    JobState,
    QueueView,
    WorkloadView,
)
from gangline.control.answers.workloads.words import amount, counted, why
from gangline.engine.model import is_accelerator

if TYPE_CHECKING:
    from rich.text import Text

_RIGHT = frozenset({"USED/NOMINAL", "BORROWED", "ADMITTED", "PENDING"})


# --- queues -----------------------------------------------------------------------------------------------------------


def queue_rows(snapshot: AnswerSnapshot) -> Rows:
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
    ranks = {"RESOURCE": 4, "COHORT": 3, "BORROWED": 2, "ADMITTED": 1}
    return Rows(header, tuple(cells), tuple(styles), _RIGHT, ranks, {"QUEUE": 16, "FLAVOR": 12})


def _flavor_cells(flavor: FlavorView) -> Cells:
    used, nominal = amount(flavor.used, flavor.resource), amount(flavor.nominal, flavor.resource)
    borrowed = amount(flavor.borrowed, flavor.resource) if flavor.borrowed else "–"
    return (flavor.flavor, flavor.resource, f"{used}/{nominal}", borrowed)


# --- workloads --------------------------------------------------------------------------------------------------------


def change_line(view: WorkloadView, elapsed: float) -> str:
    """A log line for a workload's state change."""
    gpus = counted(view.gpus, "GPU") if view.gpus else counted(view.pods, "pod")
    state = "Never fits" if view.never_fits else str(view.state)
    line = (
        f"{elapsed:6.1f}s  {state:<10}  {view.cluster_queue or '?':<10}  {view.job} ({gpus}, priority {view.priority})"
    )
    return printable(f"{line}: {reason}" if (reason := why(view)) else line)


def counts_line(snapshot: AnswerSnapshot, elapsed: float) -> str:
    """A log line with the number of workloads by state and the GPU usage."""
    views = snapshot.workloads
    waiting = sum(v.state is JobState.PENDING for v in views)
    ended = sum(v.state in FINISHED for v in views)
    used, total = gpu_use(snapshot.queues)
    running = len(views) - waiting - ended
    return f"{elapsed:6.1f}s  {running} running, {waiting} waiting, {ended} finished; {used}/{total} GPUs in use"


def gpu_use(queues: Iterable[QueueView]) -> tuple[int, int]:
    """GPUs in use and nominal GPU quota, over all queues."""
    flavors = [f for queue in queues for f in queue.flavors if is_accelerator(f.resource)]
    return sum(f.used for f in flavors), sum(f.nominal for f in flavors)


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(rows: Rows, width: int, most: int) -> list[Text]:
    """A table that is redrawn in place, for a terminal of `width` columns, in `most` lines. Where these are too few, the last has
    the number of rows that are left out; [] where there is not even room for one row and that number.
    """
    from rich.text import Text

    lines = fit(replace(rows, cells=rows.cells[: max(0, most)]), width).lines
    count = len(lines)
    if count > most or len(rows.cells) > most:
        count = most - 1
        while 0 < count < len(lines) and lines[count].below:
            count -= 1  # no row without the text below it
    shown = len({line.row for line in lines[:count]} - {None})
    if not shown:
        return []
    text = [Text(line.text, _style(rows, line), no_wrap=True) for line in lines[:count]]
    if (left := len(rows.cells) - shown) > 0:
        text.append(Text(f"… {left} more", "dim"))
    return text


def _style(rows: Rows, line: TableLine) -> str:
    if line.row is None:
        return "bold"
    if line.below:
        return "dim"
    return rows.styles[line.row] if rows.styles else ""
