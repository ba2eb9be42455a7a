"""`gangline preemptions`: who was preempted for whom, by which rule, when, and what was lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import click

from gangline.console.commands.see import history
from gangline.console.options import Span
from gangline.console.output import clock, presenting, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import DOCUMENTS, document
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, own_rights
from gangline.control.answers.workloads.words import age, counted
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

#: by what preemptions are added up: texts of one row
_Key: TypeAlias = tuple[str, ...]
#: pairs of queues, and rules, that the lines after a table name
_SHOWN: Final = 5


@dataclass(slots=True)
class PreemptionSum:
    """How many preemptions there were, and what was lost with them."""

    preemptions: int = 0
    lost: float = 0.0

    def add(self, row: Json) -> None:
        self.preemptions += 1
        self.lost += row["lostGpuHours"]

    def as_json(self) -> Json:
        return {"preemptions": self.preemptions, "lostGpuHours": round(self.lost, 6)}

    def __str__(self) -> str:
        return f"{self.preemptions} ({self.lost:.1f} GPU-hours)"


@click.command("preemptions")
@click.argument("job", metavar="[JOB]", default="", shell_complete=completing.jobs)
@access.cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Preemptions in all namespaces, others' reduced to size and times."
)
@click.option(
    "-q",
    "--cluster-queue",
    default="",
    help="Only preemptions in this ClusterQueue, of any namespace.",
    shell_complete=completing.cluster_queues,
)
@click.option(
    "--caused",
    is_flag=True,
    help="Show preemptions that the job, the queue or the namespace caused, not those that it suffered.",
)
@click.option("--since", type=Span(), default="7d", show_default=True, help="How far to look back, such as 12h or 30d.")
@presenting.options("user", "queue")
def command(
    job: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str,
    caused: bool,
    since: float,
    shape: Presentation,
) -> None:
    """Show who was preempted for whom, by which rule, when, and which work was lost: of JOB, of a queue, or of your namespace.

    CHEAPER says whether another choice of victims would have lost less, and how many GPU-hours less, where the operator's record
    still has the decision (`?` where it has not).

    Jobs that you may not see have labels in place of names. What would be preempted now is in `gangline preempt --dry-run`.
    """
    if job and (all_namespaces or cluster_queue):
        raise click.UsageError("JOB is one of a namespace (-n): give it without -A and -q")
    kind, _, name = job.rpartition("/")
    asked: dict[str, str | bool | int] = {"endedAs": "Preempted", "job": name, "kind": kind, "caused": caused}
    asked["cheaper"] = True
    listing = OF_JOB if job else LISTING

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            everywhere = all_namespaces or bool(cluster_queue and namespace is None)

            async def look() -> list[Json]:
                found = await history.rows(api, "jobattempts", where, everywhere, since, cluster_queue, asked)
                if job and not found:
                    await _check(api, where, job)
                return found

            if shape.watch or shape.format.kind not in DOCUMENTS:
                await presenting.present(listing, shape, look)
                return
            found = shape.selection.of(listing, await look(), time.time())
            terminal.say(document(shape.format.kind, as_json(found)))

    access.run(work())


async def _check(api: ApiClient, namespace: str, job: str) -> None:
    """Raises click.ClickException for a job of which nothing is known, with names that are nearly the same."""
    try:
        await asking.of_job(api, namespace, job, "attempts")
    except own_rights.NoOperator as error:
        raise own_rights.refusal(error) from error


def as_json(found: Sequence[Json]) -> Json:
    """Preemptions, and their sums by rule, by pair of queues, and by job."""
    return {
        "items": list(found),
        "total": _sum(found).as_json(),
        "byRule": _listed(found, _rule, "reason", "rule"),
        "byQueues": _listed(found, _queues, "clusterQueue", "byClusterQueue"),
        "byJob": _listed(found, lambda row: (row["namespace"], _job(row)), "namespace", "job"),
    }


def _listed(found: Sequence[Json], key: Callable[[Json], _Key], *names: str) -> list[Json]:
    return [{**dict(zip(names, texts, strict=True)), **each.as_json()} for texts, each in _sums(found, key)]


def _sums(found: Sequence[Json], key: Callable[[Json], _Key]) -> list[tuple[_Key, PreemptionSum]]:
    """The sums of what has the same texts, those with most losses first."""
    sums: dict[_Key, PreemptionSum] = {}
    for row in found:
        sums.setdefault(key(row), PreemptionSum()).add(row)
    return sorted(sums.items(), key=lambda entry: (-entry[1].lost, -entry[1].preemptions, entry[0]))


def _sum(found: Sequence[Json]) -> PreemptionSum:
    whole = PreemptionSum()
    for row in found:
        whole.add(row)
    return whole


def _rule(row: Json) -> _Key:
    return row["reason"], row["rule"]


def _queues(row: Json) -> _Key:
    return row["clusterQueue"], row["byClusterQueue"]


def _job(row: Json) -> str:
    return f"{row['jobKind'].lower()}/{row['jobName']}" if row["jobKind"] else row["jobName"]


def _by(row: Json) -> str:
    """The other job, with its namespace where that is another one."""
    if row["byNamespace"] and row["byNamespace"] != row["namespace"]:
        return f"{row['byNamespace']}/{row['by']}"
    return row["by"]


def _totals(found: Sequence[Json]) -> list[str]:
    """How often, what was lost, by which rules and between which queues."""
    whole, jobs = _sum(found), len({(row["namespace"], _job(row)) for row in found})
    times = counted(whole.preemptions, "preemption")
    lines = [f"{times} of {counted(jobs, 'job')}, {whole.lost:.1f} GPU-hours lost"]
    rules = _sums(found, _rule)
    lines += [
        f"{each}: for a job {rule or reason or 'of which nothing is shown'}" for (reason, rule), each in rules[:_SHOWN]
    ]
    pairs = _sums(found, _queues)
    if len(pairs) > 1 or any(first != last for (first, last), _ in pairs):
        by_queue = ", ".join(f"{first or '?'} for {last or '?'}: {each}" for (first, last), each in pairs[:_SHOWN])
        lines.append(f"by queue: {by_queue}{', …' if len(pairs) > _SHOWN else ''}")
    return lines


def _cheaper(row: Json) -> float | None:
    """How many GPU-hours less another choice of victims would have lost, 0 for none; None where that is not known."""
    hindsight = row.get("hindsight")
    if hindsight is None or hindsight["unknown"]:
        return None
    cheaper = hindsight["cheaper"]
    return cheaper["chosen"]["lostGpuHours"] - cheaper["instead"]["lostGpuHours"] if cheaper is not None else 0.0


def _cheaper_cell(row: Json) -> str:
    less = _cheaper(row)
    return "?" if less is None else f"-{less:.1f}h" if less else "no"


def _hindsight(found: Sequence[Json]) -> list[str]:
    """How many preemptions could have lost less, and why that is not known of others."""
    known = [less for row in found if (less := _cheaper(row)) is not None]
    lines: list[str] = []
    if known:
        could = sum(less > 0 for less in known)
        lines.append(f"{could} of {len(known)} could have lost less with another choice of victims")
    for why, times in Counter(_unknown(row) for row in found if _cheaper(row) is None).most_common(_SHOWN):
        lines.append(f"not known of {times}: {why}")
    return lines


def _unknown(row: Json) -> str:
    return (row.get("hindsight") or {}).get("unknown") or "you may not see what was decided, or the operator is older"


def _hindsight_of_job(found: Sequence[Json]) -> list[str]:
    """What another choice of victims would have lost, for the first preemptions in the table."""
    lines = _hindsight(found) if len(found) > _SHOWN else list[str]()
    for row in found[:_SHOWN]:
        which = f"{_job(row)}, attempt {row['attempt']}"
        less = _cheaper(row)
        if less is None:
            lines.append(f"{which}: it is not known whether it could have been avoided: {_unknown(row)}")
        elif not less:
            lines.append(f"{which}: no other choice of victims would have lost less")
        else:
            chosen, instead = row["hindsight"]["cheaper"]["chosen"], row["hindsight"]["cheaper"]["instead"]
            spared = "spared" if row["hindsight"]["cheaper"]["spared"] else "one of them"
            lines.append(
                f"{which}: {_loss(chosen)} lost; with `preemption.victims: LeastLostWork` in the QueuePolicy of the other job's "
                f"queue {_loss(instead)}, and it would have been {spared}"
            )
    return lines


def _loss(loss: Json) -> str:
    return f"{counted(loss['workloads'], 'job')} with {loss['lostGpuHours']:.1f} GPU-hours"


LISTING: Final[Listing[Json]] = Listing(
    columns=(
        Column("NAMESPACE", lambda row, _: row["namespace"], rank=3, least=10),
        Column("NAME", lambda row, _: row["jobName"], least=16),
        Column("NO", lambda row, _: str(row["attempt"]), right=True, rank=5, key=lambda row, _: row["attempt"]),
        Column("USER", lambda row, _: row["user"], rank=4, least=8, sparse=True),
        Column("QUEUE", lambda row, _: row["clusterQueue"] or row["localQueue"], rank=2, least=10),
        Column("GPUS", lambda row, _: str(row["gpus"] or "–"), right=True, rank=1, key=lambda row, _: row["gpus"]),
        Column(
            "HELD",
            lambda row, _: age(row["ended"] - row["reserved"]),
            right=True,
            rank=2,
            key=lambda row, _: row["ended"] - row["reserved"],
        ),
        Column(
            "LOST-H",
            lambda row, _: f"{row['lostGpuHours']:.1f}" if row["lostGpuHours"] else "",
            right=True,
            key=lambda row, _: row["lostGpuHours"],
        ),
        Column(
            "CHEAPER", lambda row, _: _cheaper_cell(row), right=True, rank=1, key=lambda row, _: _cheaper(row) or 0.0
        ),
        Column("WHEN", lambda row, now: clock.when(row["ended"], now), rank=1, key=lambda row, _: row["ended"]),
        Column("FOR", lambda row, _: _by(row) or "–", least=16),
        Column("ITS QUEUE", lambda row, _: row["byClusterQueue"], rank=2, least=10, sparse=True),
        Column("RULE", lambda row, _: row["rule"] or row["reason"]),
    ),
    as_json=lambda row: row,
    name=_job,
    empty="Nobody was preempted in this time (--since 30d looks back further).",
    style=lambda row: "dim" if row["hidden"] else "",
    user=lambda row: tuple(name for name in (row["user"], row["namespace"]) if name),
    queue=lambda row: tuple(name for name in (row["clusterQueue"], row["localQueue"]) if name),
    remarks=lambda found: [*_totals(found), *_hindsight(found)],
)
#: the same for the preemptions of one job: what is known of each
OF_JOB: Final = replace(LISTING, remarks=lambda found: [*_totals(found), *_hindsight_of_job(found)])
