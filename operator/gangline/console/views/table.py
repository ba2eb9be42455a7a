"""Queues as rows, a run's changes as lines, and the tables of a run, which are redrawn in place. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gangline.console.output.layout import Cells, Rows, fit
from gangline.control.answers.workloads.snapshot import FINISHED, FlavorView, QueueView, Snapshot, State, WorkloadView
from gangline.control.answers.workloads.words import amount, why
from gangline.engine import is_accelerator

if TYPE_CHECKING:
    from rich.text import Text

_RIGHT = frozenset({"USED/NOMINAL", "BORROWED", "ADMITTED", "PENDING"})


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
    ranks = {"RESOURCE": 4, "COHORT": 3, "BORROWED": 2, "ADMITTED": 1}
    return Rows(header, tuple(cells), tuple(styles), _RIGHT, ranks, {"QUEUE": 16, "FLAVOR": 12})


def _flavor_cells(flavor: FlavorView) -> Cells:
    used, nominal = amount(flavor.used, flavor.resource), amount(flavor.nominal, flavor.resource)
    borrowed = amount(flavor.borrowed, flavor.resource) if flavor.borrowed else "–"
    return (flavor.flavor, flavor.resource, f"{used}/{nominal}", borrowed)


# --- workloads --------------------------------------------------------------------------------------------------------


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


def draw(rows: Rows, width: int, *, limit: int | None = None) -> Text:
    """A table that is redrawn in place, for a terminal of `width` columns; with a `limit`, the last line has the number of rows
    that are left out."""
    from rich.text import Text

    shown = rows if limit is None else replace(rows, cells=rows.cells[:limit])
    text = Text(no_wrap=True)
    for line in fit(shown, width).lines:
        style = "bold" if line.row is None else "dim" if line.below else rows.styles[line.row] if rows.styles else ""
        text.append(f"{line.text}\n", style)
    if len(shown.cells) < len(rows.cells):
        text.append(f"… {len(rows.cells) - len(shown.cells)} more\n", "dim")
    return text
