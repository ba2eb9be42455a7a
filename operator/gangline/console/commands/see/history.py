"""`gangline history`: runs that have ended, as Slurm's sacct shows them, or each attempt of them with what it lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from gangline.console.options import Span
from gangline.console.output import clock, presenting
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, own_rights
from gangline.control.answers.workloads.words import age, counted
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json


@click.command("history")
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Runs of all namespaces, others' reduced to size and times.")
@click.option(
    "-q",
    "--cluster-queue",
    default="",
    help="Only runs of this ClusterQueue, of any namespace.",
    shell_complete=completing.cluster_queues,
)
@click.option(
    "--attempts", is_flag=True, help="Each attempt, in progress or ended: how it ended, and what was lost with it."
)
@click.option("--since", type=Span(), default="1d", show_default=True, help="How far to look back, such as 12h or 7d.")
@presenting.options("user", "state", "queue")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str,
    attempts: bool,
    since: float,
    shape: Presentation,
) -> None:
    """Show runs that have ended: how long they waited and ran, on which flavor, with how many GPU-hours; like sacct.

    A run counts from its last start, or as much earlier as it had saved of the runs before; the rest of these is part of its
    wait. With --attempts, each stretch in which a job held quota is listed for itself, from its reservation to its release.
    """

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            everywhere = all_namespaces or bool(cluster_queue and namespace is None)
            listing, kind = (ATTEMPTS, "jobattempts") if attempts else (LISTING, "pastruns")
            if not everywhere:  # people of a namespace know their LocalQueues, and no others
                listing = listing.with_text("QUEUE", lambda run, _: run["localQueue"] or run["clusterQueue"])
            await presenting.present(listing, shape, lambda: rows(api, kind, where, everywhere, since, cluster_queue))

    access.run(work())


async def rows(
    api: ApiClient,
    kind: str,
    namespace: str,
    everywhere: bool,
    since: float,
    cluster_queue: str = "",
    more: Mapping[str, str | bool | int] | None = None,
) -> list[Json]:
    """The operator's answer about runs or attempts, those that ended last first. `more`: further parameters."""
    query = {"sinceSeconds": max(1, round(since)), "clusterQueue": cluster_queue, **(more or {})}
    try:
        return await asking.in_scope(
            lambda scope: asking.listed(api, f"{scope}/{kind}", query), namespace, everywhere=everywhere
        )
    except own_rights.NoOperator as error:
        raise own_rights.refusal(error) from error


def _span(field: str) -> Column[Json]:
    return Column(
        {"waitedSeconds": "WAITED", "ranSeconds": "RAN"}[field],
        lambda run, _: "" if run[field] is None else age(run[field]),
        right=True,
        key=lambda run, _: run[field],
    )


def _total(found: Sequence[Json]) -> list[str]:
    """GPU-hours of all, and of each flavor where there are several."""
    by_flavor: dict[str, float] = defaultdict(float)
    for run in found:
        by_flavor[run["flavor"]] += run["gpuHours"] or 0.0
    total = f"{counted(len(found), 'run')}, {sum(by_flavor.values()):.1f} GPU-hours"
    parts = ", ".join(f"{hours:.1f} on {flavor or '?'}" for flavor, hours in sorted(by_flavor.items()) if hours)
    return [f"{total} ({parts})" if len(by_flavor) > 1 and parts else total]


LISTING: Final[Listing[Json]] = Listing(
    columns=(
        Column("NAMESPACE", lambda run, _: run["namespace"], rank=1, least=10),
        Column("NAME", lambda run, _: run["jobName"], least=20),
        Column("KIND", lambda run, _: run["jobKind"], rank=5, least=8, sparse=True),
        Column("USER", lambda run, _: run["user"], rank=2, least=8, sparse=True),
        Column("QUEUE", lambda run, _: run["clusterQueue"] or run["localQueue"], rank=1, least=10),
        Column("FLAVOR", lambda run, _: run["flavor"], rank=2, least=8),
        Column("GPUS", lambda run, _: str(run["gpus"] or "–"), right=True, key=lambda run, _: run["gpus"]),
        Column(
            "SUBMITTED",
            lambda run, now: clock.wall(run["submitted"], now),
            wide=True,
            key=lambda run, _: run["submitted"],
        ),
        Column(
            "STARTED", lambda run, now: clock.wall(run["started"], now), wide=True, key=lambda run, _: run["started"]
        ),
        _span("waitedSeconds"),
        _span("ranSeconds"),
        Column(
            "GPU-H",
            lambda run, _: "" if run["gpuHours"] is None else f"{run['gpuHours']:.1f}",
            right=True,
            key=lambda run, _: run["gpuHours"],
        ),
        Column(
            "PREEMPTED",
            lambda run, _: str(run["preemptions"] or ""),
            right=True,
            rank=1,
            sparse=True,
            key=lambda run, _: run["preemptions"],
        ),
        Column("ENDED", lambda run, now: clock.when(run["ended"], now), key=lambda run, _: run["ended"]),
        Column("MESSAGE", lambda run, _: run["message"], wide=True),
        Column("STATE", lambda run, _: run["state"]),
    ),
    as_json=lambda run: run,
    instants=("submitted", "started", "ended"),
    name=lambda run: f"{run['jobKind'].lower()}/{run['jobName']}" if run["jobKind"] else run["jobName"],
    empty="No run has ended in this time (--since 7d looks back further).",
    style=lambda run: "red" if run["state"] == "Failed" else "",
    user=lambda run: tuple(name for name in (run["user"], run["namespace"]) if name),
    state=lambda run: (run["state"],),
    queue=lambda run: tuple(name for name in (run["clusterQueue"], run["localQueue"]) if name),
    states=("Succeeded", "Failed", "Cancelled", "Ended"),
    remarks=_total,
)


def _hours(field: str, name: str) -> Column[Json]:
    return Column(
        name,
        lambda row, _: f"{row[field]:.1f}" if row[field] else "",
        right=True,
        sparse=name != "GPU-H",
        key=lambda row, _: row[field],
    )


def _losses(found: Sequence[Json]) -> list[str]:
    """GPU-hours of all, and those that were lost, by cause."""
    lost: dict[str, float] = defaultdict(float)
    for row in found:
        if row["lostTo"]:
            lost[row["lostTo"]] += row["lostGpuHours"]
    whole = sum(row["gpuHours"] for row in found)
    total = f"{counted(len(found), 'attempt')}, {whole:.1f} GPU-hours"
    parts = ", ".join(f"{hours:.1f} to {cause}" for cause, hours in sorted(lost.items()))
    return [f"{total}, of which {sum(lost.values()):.1f} were lost ({parts})" if lost else total]


ATTEMPTS: Final[Listing[Json]] = Listing(
    columns=(
        Column("NAMESPACE", lambda row, _: row["namespace"], rank=2, least=10),
        Column("NAME", lambda row, _: row["jobName"], least=20),
        Column("NO", lambda row, _: str(row["attempt"]), right=True, key=lambda row, _: row["attempt"]),
        Column("KIND", lambda row, _: row["jobKind"], rank=5, least=8, sparse=True),
        Column("USER", lambda row, _: row["user"], rank=3, least=8, sparse=True),
        Column("QUEUE", lambda row, _: row["clusterQueue"] or row["localQueue"], rank=1, least=10),
        Column("FLAVOR", lambda row, _: row["flavor"], rank=4, least=8),
        Column("GPUS", lambda row, _: str(row["gpus"] or "–"), right=True, key=lambda row, _: row["gpus"]),
        Column(
            "RESERVED", lambda row, now: clock.wall(row["reserved"], now), wide=True, key=lambda row, _: row["reserved"]
        ),
        Column("READY", lambda row, now: clock.wall(row["ready"], now), wide=True, key=lambda row, _: row["ready"]),
        Column(
            "HELD",
            lambda row, now: age((row["ended"] or now) - row["reserved"]),
            right=True,
            key=lambda row, now: (row["ended"] or now) - row["reserved"],
        ),
        _hours("gpuHours", "GPU-H"),
        _hours("idleGpuHours", "IDLE-H"),
        _hours("lostGpuHours", "LOST-H"),
        Column("ENDED", lambda row, now: clock.when(row["ended"], now), rank=1, key=lambda row, _: row["ended"]),
        Column("BY", lambda row, _: row["by"], wide=True, sparse=True),
        Column("WHY", lambda row, _: row["text"] or row["reason"], wide=True),
        Column("STATE", lambda row, _: row["end"] or "Running"),
    ),
    as_json=lambda row: row,
    instants=("submitted", "reserved", "started", "ready", "ended"),
    name=lambda row: f"{row['jobKind'].lower()}/{row['jobName']}" if row["jobKind"] else row["jobName"],
    empty="No job has held quota in this time (--since 7d looks back further).",
    style=lambda row: "red" if row["lostTo"] else "",
    user=lambda row: tuple(name for name in (row["user"], row["namespace"]) if name),
    state=lambda row: (row["end"] or "Running",),
    queue=lambda row: tuple(name for name in (row["clusterQueue"], row["localQueue"]) if name),
    states=("Running", "Succeeded", "Failed", "Preempted", "Evicted", "Cancelled", "Released"),
    remarks=_losses,
)
