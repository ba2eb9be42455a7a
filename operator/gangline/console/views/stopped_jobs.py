"""The running jobs that a Reservation would stop, as the operator expects them to run: before it is created."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api.reservations import ReservationFacts, Span
from gangline.console.output import clock
from gangline.console.views import asking, own_rights
from gangline.control.answers.workloads.snapshot import JobState
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json

#: jobs that are named
_NAMED: Final = 10
#: how far ahead runs are asked for, in seconds: no window that can be reserved begins later without the jobs having long ended
_HORIZON: Final = 92 * 86_400
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class StoppedJob:
    """A job that is expected to run longer than it may: its GPUs, since when it runs, and until when it would. Unix seconds."""

    name: str
    gpus: int
    began: float
    ends: float

    def lost(self, at: float) -> float:
        """The GPU-hours that it has worked if it is stopped then: what its checkpoints do not keep of them is lost."""
        return self.gpus * max(0.0, at - self.began) / _HOUR


def jobs_on(nodes: Collection[str], machines: Iterable[Json], runs: Iterable[Json]) -> list[StoppedJob]:
    """The running jobs with pods on these nodes, those that run longest are first. `machines` and `runs` are answers of the
    operator. Jobs that the user may not see have labels for names.
    """
    there = {
        (occupant["namespace"], occupant["job"])
        for machine in machines
        if machine["metadata"]["name"] in nodes
        for occupant in machine["occupants"]
        if not occupant["outside"]
    }
    found = (
        StoppedJob(
            f"{space}/{run['job']}" if (space := _space(run)) else run["job"], run["gpus"], run["from"], run["to"]
        )
        for run in runs
        if run["state"] == JobState.RUNNING and (_space(run), run["job"]) in there
    )
    return sorted(found, key=lambda each: (-each.ends, each.name))


def _space(run: Json) -> str:
    return run["metadata"].get("namespace") or ""


def lines(facts: ReservationFacts, span: Span | None, jobs: Sequence[StoppedJob], now: float) -> list[str]:
    """What the first window means for the jobs that run on its nodes, and which later start stops none of them."""
    if span is None or not jobs:
        return []
    if facts.soft:
        return [f"{len(jobs)} jobs run on its nodes: they go on until somebody whom it is for needs the nodes"]
    at = (span.start - facts.deadline.stop_before) / 1000
    stopped = [job for job in jobs if job.ends > at]
    if not stopped:
        return ["No running job is expected to be stopped"]
    texts = [
        f"Would be stopped: {job.name}, with {job.gpus} GPUs, expected to end {clock.when(job.ends, now)}; it will have worked"
        f" {job.lost(at):.1f} GPU-hours, of which its checkpoints keep their part"
        for job in stopped[:_NAMED]
    ]
    if len(stopped) > _NAMED:
        texts.append(f"… and {len(stopped) - _NAMED} more jobs")
    later = max(job.ends for job in stopped) + facts.deadline.stop_before / 1000
    return [*texts, f"A start {clock.when(later, now)} is expected to stop none of them"]


async def on(api: ApiClient, nodes: Collection[str]) -> list[StoppedJob] | None:
    """The jobs that run on these nodes, as the operator says; None where it does not answer, or not to this user."""
    try:
        machines = await asking.listed(api, "/flavornodes", {})
        runs = await asking.listed(api, "/plannedruns", {"horizonSeconds": _HORIZON, "clusterQueue": ""})
    except (*own_rights.NoOperator, asking.NoAnswerError, ApiError):
        return None
    return jobs_on(nodes, machines, runs)
