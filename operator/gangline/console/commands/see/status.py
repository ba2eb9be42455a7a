"""`gangline status`: the cluster on one screen: GPUs by flavor and queue, what waits, what starts next, what needs a person."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from gangline.console.commands.see.nodes import accelerators_in
from gangline.console.output import clock, layout, presenting, terminal
from gangline.console.output.formats import DOCUMENTS, OutputFormat, answer_option, dated, document
from gangline.console.output.layout import Rows
from gangline.console.views import access, asking, own_rights
from gangline.control.answers.workloads.words import age, counted
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

#: things that need a person and are named
MOST: Final = 12
#: states of jobs that hold quota
_HOLDING: Final = ("Reserved", "Starting", "Running", "Stopping")
_INSTANTS: Final = ("at", "waiting.oldest.since", "next.p50", "next.p90")


@click.command("status")
@access.cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="The whole cluster, not only what your namespace's queues use."
)
@answer_option
def command(
    kubeconfig: Path | None, context: str | None, namespace: str | None, all_namespaces: bool, output: OutputFormat
) -> None:
    """Show GPUs by flavor and by queue, what waits, what starts next, and what needs a person, on one screen."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            try:
                nodes, shares, jobs = await _asked(api, where, everywhere=all_namespaces)
            except own_rights.NoOperator as error:
                raise own_rights.refusal(error) from error
        now = time.time()
        found = summary(nodes, shares, jobs, now)
        if output.kind in DOCUMENTS:
            terminal.say(document(output.kind, dated(found, _INSTANTS)))
            return
        show(found, now)

    access.run(work())


async def _asked(api: ApiClient, namespace: str, *, everywhere: bool) -> tuple[list[Json], list[Json], list[Json]]:
    """Nodes, shares and jobs: of the whole cluster where that is asked for and allowed. Raises as `asking.listed` does."""

    async def ask(scope: str) -> tuple[list[Json], list[Json], list[Json]]:
        nodes, shares, jobs = await asyncio.gather(
            asking.listed(api, f"{scope}/flavornodes"),
            asking.listed(api, f"{scope}/queueshares"),
            asking.listed(api, f"{scope}/queuedjobs", {"times": True}),
        )
        return nodes, shares, jobs

    return await asking.in_scope(ask, namespace, everywhere=everywhere)


# --- the summary ------------------------------------------------------------------------------------------------------


def summary(nodes: Iterable[Json], shares: Iterable[Json], jobs: Sequence[Json], now: float) -> Json:
    """What is on the screen, as a document. GPUs are whole numbers, instants Unix seconds."""
    nodes, waiting = list(nodes), [job for job in jobs if job["state"] == "Pending"]
    queues = [
        {
            "clusterQueue": row["clusterQueue"],
            "nominalGpus": row["nominalGpus"],
            "usedGpus": row["usedGpus"],
            "borrowedGpus": row["borrowedGpus"],
            "running": row["running"],
            "waiting": row["waiting"],
            "waitingGpus": row["pendingGpus"],
        }
        for row in shares
        if row["level"] == "ClusterQueue"
    ]
    oldest = min(waiting, key=lambda job: job["created"], default=None)
    expected = [job for job in waiting if job.get("expectedStart")]
    first = min(expected, key=lambda job: job["expectedStart"]["p50"], default=None)
    return {
        "at": now,
        "flavors": _flavors(nodes),
        "queues": queues,
        "running": sum(job["state"] in _HOLDING for job in jobs),
        "waiting": {
            "jobs": len(waiting),
            "gpus": sum(job["gpus"] for job in waiting),
            "oldest": None if oldest is None else {"job": _job(oldest), "since": oldest["created"]},
        },
        "next": None if first is None else {"job": _job(first), "gpus": first["gpus"], **first["expectedStart"]},
        "needs": list(_needs(nodes, waiting)),
    }


def _flavors(nodes: Iterable[Json]) -> list[Json]:
    """The GPUs of each flavor: used, free, and those of nodes that take no work and that nobody uses."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(("total", "used", "free", "away"), 0))
    for node in nodes:
        total, used = accelerators_in(node["capacity"]), accelerators_in(node["used"])
        if not total:
            continue
        flavor = found[",".join(node["flavors"])]
        flavor["total"] += total
        flavor["used"] += used
        flavor["away" if node["trouble"] else "free"] += max(0, total - used)
    return [{"flavor": name, **amounts} for name, amounts in sorted(found.items())]


def _needs(nodes: Iterable[Json], waiting: Iterable[Json]) -> Iterator[str]:
    """What a person has to look at, nodes first."""
    for node in nodes:
        if node["trouble"]:
            yield f"node {node['metadata']['name']}: {node['trouble']}"
    for job in waiting:
        if job["neverFits"]:
            yield f"{_job(job)} can never start as it is: {job['why']}"
        elif job["warnings"]:
            yield f"{_job(job)}: {job['warnings'][0]}"


def _job(job: Json) -> str:
    return job["jobName"] if job["hidden"] else f"{job['jobKind'].lower()}/{job['jobName']}"


# --- in words ---------------------------------------------------------------------------------------------------------


def show(found: Json, now: float) -> None:
    """Print the screen."""
    if found["flavors"]:
        presenting.echo(_flavor_rows(found["flavors"]))
        terminal.say("")
    if found["queues"]:
        presenting.echo(_queue_rows(found["queues"]))
        terminal.say("")
    else:
        terminal.say("No LocalQueue of this namespace leads to a ClusterQueue (-A: all).", "")
    for line in lines(found, now):
        terminal.say(*layout.wrapped(line, presenting.width()))


def lines(found: Json, now: float) -> Iterator[str]:
    """What stands below the tables."""
    waiting, following = found["waiting"], found["next"]
    yield f"running  {counted(found['running'], 'job')}"
    if not waiting["jobs"]:
        yield "waiting  nothing"
    else:
        oldest = waiting["oldest"]
        many = f"{counted(waiting['jobs'], 'job')} for {counted(waiting['gpus'], 'GPU')}"
        yield f"waiting  {many}, the oldest for {age(now - oldest['since'])}: {oldest['job']}"
    if following is not None:
        when = clock.between(following["p50"], following["p90"], now)
        yield f"next     {following['job']} ({counted(following['gpus'], 'GPU')}) {when}"
    needs: list[str] = found["needs"]
    for number, text in enumerate(needs[:MOST]):
        yield f"{'look at' if number == 0 else '':9}{text}"
    if len(needs) > MOST:
        yield f"{'':9}and {len(needs) - MOST} more: `gangline nodes`, `gangline queue`"


def _flavor_rows(flavors: Iterable[Json]) -> Rows:
    cells = tuple(
        (row["flavor"], str(row["used"]), str(row["free"]), str(row["away"] or ""), str(row["total"]))
        for row in flavors
    )
    header = ("FLAVOR", "USED", "FREE", "AWAY", "GPUS")
    return Rows(header, cells, right=frozenset(header[1:]))


def _queue_rows(queues: Iterable[Json]) -> Rows:
    names = ("usedGpus", "nominalGpus", "borrowedGpus", "running", "waiting", "waitingGpus")
    cells = tuple((row["clusterQueue"], *("" if row[n] is None else str(row[n]) for n in names)) for row in queues)
    header = ("QUEUE", "USED", "OWNS", "BORROWED", "RUN", "WAIT", "FOR GPUS")
    return Rows(header, cells, right=frozenset(header[1:]))
