"""Jobs as a list: the columns of `queue`, `eta` and of the live table of a run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from gangline.console.output import clock
from gangline.console.output.columns import Column, Listing
from gangline.console.output.layout import Rows
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.snapshot import FINISHED, OUTSIDE, JobState, WorkloadView
from gangline.control.answers.workloads.words import age, why
from gangline.control.answers.workloads.words import runtime_text as words
from gangline.kube.resources import Json

# --- words for the times in an answer's items: forecast runtimes and expected starts ----------------------------------


def start_of(item: Json) -> tuple[float | None, float | None]:
    """p50 and p90 of the expected start, in Unix seconds; None if it is not expected."""
    start = item.get("expectedStart") or {}
    return start.get("p50"), start.get("p90")


def start_text(item: Json, now: float) -> str:
    """`12m – 1h5m`, or `now`, or `?` if no start is expected within the horizon."""
    start, latest = start_of(item)
    if start is None:
        return "?"
    if latest is not None and latest - now < 1:
        return "now"
    return f"{age(start - now)} – {'?' if latest is None else age(latest - now)}"


def runtime_text(item: Json) -> str:
    """`p50 – p90` of the runtime, with the flavor if it makes a difference; "" without a forecast."""
    forecast = item.get("forecast")
    return words(forecast["p50"], forecast["p90"], forecast["flavor"] or "") if forecast else ""


def record_text(record: Json) -> str:
    """`p90 held 91 % of 412`: how often starts came before the p90 that was promised first."""
    error = f"; the median error of p50 was {record['medianError']:.0%} of the wait"
    return f"p90 held {record['withinP90']:.0%} of {record['starts']} starts, p50 {record['withinP50']:.0%}{error}"


def record_lines(shown: Sequence[Json]) -> list[str]:
    """One line for each ClusterQueue whose earlier starts were counted."""
    known = {item["clusterQueue"]: item["record"] for item in shown if item.get("record")}
    return [f"ClusterQueue {queue}: {record_text(record)}" for queue, record in sorted(known.items())]


def floor_lines(shown: Sequence[Json], now: float) -> list[str]:
    """One line for each ClusterQueue that does not follow its QueuePolicy: what it follows, since when, and why."""
    known = {item["clusterQueue"]: item["fallenBack"] for item in shown if item.get("fallenBack")}
    return [
        f"ClusterQueue {queue} follows {_MODES.get(away['mode'], away['mode'])} instead of its QueuePolicy, since "
        f"{clock.when(away['since'], now)}{': ' * bool(away['message'])}{away['message']}"
        for queue, away in sorted(known.items())
    ]


_MODES = {"BestEffort": "best effort", "Easy": "EASY (in order of age, one reservation)"}


def as_json(item: Json) -> dict[str, Any]:
    """The item as `eta -o json` prints it, but for the form of its `INSTANTS`; null if unknown."""
    return {
        "namespace": item["namespace"],
        "name": item["jobName"],
        "kind": item["jobKind"],
        "workload": item["name"],
        "user": item["user"],
        "queue": item["queue"],
        "clusterQueue": item["clusterQueue"],
        "gpus": item["gpus"],
        "created": item["created"],
        "state": item["state"],
        **{name: item.get(name) for name in TIMES},
    }


#: the times of an item
TIMES = ("elapsedSeconds", "expectedStart", "because", "forecast", "record")
#: those of its fields that are instants
INSTANTS = ("created", "since", "end", "latestEnd", "expectedStart.*", "fallenBack.since")


NEVER_FITS: Final = "Never fits"

_STYLES: Final = {
    JobState.PENDING: "yellow",
    JobState.RESERVED: "cyan",
    JobState.STARTING: "cyan",
    JobState.RUNNING: "green",
    JobState.STOPPING: "magenta",
    JobState.SUCCEEDED: "dim",
    JobState.FAILED: "red",
    JobState.INACTIVE: "dim red",
    JobState.NOT_QUEUED: "bold red",
    JobState.NOT_MANAGED: "dim red",
}


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job in a list. `item`: as the operator answered it, with its times if these were asked for; {} where nobody answered."""

    view: WorkloadView
    item: Json = field(default_factory=dict[str, object])


def of_items(found: Iterable[Json]) -> list[ListedJob]:
    return [ListedJob(briefs.of_json(item), item) for item in found]


def rows(views: Iterable[WorkloadView], now: float) -> Rows:
    """The rows of the live table."""
    return LISTING.rows([ListedJob(view) for view in views], now)


def state(view: WorkloadView) -> str:
    return NEVER_FITS if view.never_fits else str(view.state)


def _states(job: ListedJob) -> tuple[str, ...]:
    return (state(job.view), str(job.view.state))


def _users(job: ListedJob) -> tuple[str, ...]:
    return tuple(name for name in (job.view.user, job.view.namespace) if name)


def _queues(job: ListedJob) -> tuple[str, ...]:
    return tuple(name for name in (job.view.queue, job.view.cluster_queue) if name)


def _queue(job: ListedJob, _now: float = 0.0) -> str:
    return job.view.cluster_queue or f"{job.view.queue}?"


def _name(job: ListedJob) -> str:
    return job.view.job


def _style(job: ListedJob) -> str:
    return "bold red" if job.view.never_fits else _STYLES[job.view.state]


def _waits(job: ListedJob) -> bool:
    return job.view.state is JobState.PENDING


_Column: TypeAlias = Column[ListedJob]
NAMESPACE: Final = _Column("NAMESPACE", lambda job, _: job.view.namespace, rank=1, least=10)
NAME: Final = _Column("NAME", lambda job, _: job.view.job_name, least=20)
USER: Final = _Column("USER", lambda job, _: job.view.user, rank=2, least=8, sparse=True)
#: the ClusterQueue, where jobs of several namespaces are listed; their own LocalQueue for those of one, who know no other
QUEUE: Final = _Column("QUEUE", _queue, least=12)
OWN_QUEUE: Final = _Column("QUEUE", lambda job, _: job.view.queue or job.view.cluster_queue, least=12)
GPUS: Final = _Column(
    "GPUS", lambda job, _: str(job.view.gpus) if job.view.gpus else "–", right=True, key=lambda job, _: job.view.gpus
)
#: forecasts and expected starts
RUNS_FOR: Final = _Column(
    "RUNS FOR",
    lambda job, _: runtime_text(job.item),
    rank=3,
    key=lambda job, _: (job.item.get("forecast") or {}).get("p50"),
)
STARTS_IN: Final = _Column(
    "STARTS IN",
    lambda job, now: start_text(job.item, now) if _waits(job) else "",
    key=lambda job, _: start_of(job.item)[0],
)
AT: Final = _Column(
    "AT",
    lambda job, now: clock.between(*start_of(job.item), now) if _waits(job) else "",
    rank=2,
    key=lambda job, _: start_of(job.item)[0],
)
_TIMES: Final = (
    _Column(
        "ELAPSED",
        lambda job, _: "" if job.item.get("elapsedSeconds") is None else age(job.item["elapsedSeconds"]),
        rank=2,
        right=True,
        key=lambda job, _: job.item.get("elapsedSeconds"),
    ),
    RUNS_FOR,
    STARTS_IN,
    AT,
)
_NAMES: Final = (NAMESPACE, NAME, _Column("KIND", lambda job, _: job.view.job_kind, rank=4, least=8), USER)
_COMMON: Final = (
    GPUS,
    _Column("PRIO", lambda job, _: str(job.view.priority), right=True, rank=3, key=lambda job, _: job.view.priority),
    _Column("STATE", lambda job, _: state(job.view)),
    _Column(
        "POS",
        lambda job, _: "" if job.view.position is None else str(job.view.position + 1),
        right=True,
        key=lambda job, _: job.view.position,
    ),
    _Column(
        "AGE",
        lambda job, now: age(now - job.view.created),
        right=True,
        rank=1,
        key=lambda job, _: -job.view.created,
    ),
)
_SUBMITTED: Final = (
    _Column("SUBMITTED", lambda job, now: clock.wall(job.view.created, now), wide=True),
    _Column("PODS", lambda job, _: str(job.view.pods), wide=True, right=True, key=lambda job, _: job.view.pods),
)
_LOCAL_QUEUE: Final = _Column("LOCALQUEUE", lambda job, _: job.view.queue, wide=True)
_CLUSTER_QUEUE: Final = _Column("CLUSTERQUEUE", lambda job, _: job.view.cluster_queue, wide=True)
_WIDE: Final = (
    _Column("WORKLOAD", lambda job, _: job.view.name, wide=True),
    _Column("MESSAGE", lambda job, _: job.view.message, wide=True),
)
_REASON: Final = _Column("REASON", lambda job, _: why(job.view))
_KNOWN_STATES: Final = (*map(str, JobState), NEVER_FITS)


def _as_json(job: ListedJob) -> Json:
    return briefs.as_json(job.view) | {"fallenBack": job.item.get("fallenBack")}


def _with_times(job: ListedJob) -> Json:
    return _as_json(job) | {name: job.item.get(name) for name in TIMES}


def _floors(found: Sequence[ListedJob]) -> list[str]:
    return floor_lines([job.item for job in found], time.time())


def listing(*, with_times: bool = False, own: bool = False, empty: str = "No jobs.") -> Listing[ListedJob]:
    """The list of `gangline queue`. `own`: of one namespace."""
    return Listing(
        columns=(
            *_NAMES,
            OWN_QUEUE if own else QUEUE,
            *_COMMON,
            *(_TIMES if with_times else ()),
            *_SUBMITTED,
            _CLUSTER_QUEUE if own else _LOCAL_QUEUE,
            *_WIDE,
            _REASON,
        ),
        as_json=_with_times if with_times else _as_json,
        instants=INSTANTS,
        name=_name,
        empty=empty,
        style=_style,
        user=_users,
        state=_states,
        queue=_queues,
        states=_KNOWN_STATES,
        remarks=_floors,
    )


LISTING: Final = listing()


# --- expected starts ----------------------------------------------------------------------------------------------------


def _because(job: ListedJob, now: float) -> str:
    item, view = job.item, job.view
    if view.state in FINISHED:
        return f"it has {view.state.lower()}, {age(now - view.since)} ago"
    if view.state in (*OUTSIDE, JobState.INACTIVE):
        return f"{view.state.lower()}: {item['why']}"
    if view.state is not JobState.PENDING:
        return f"it has started, {age(now - view.since)} ago: {view.state.lower()}"
    if start_of(item)[0] is None:
        return item["why"] or "no start within the horizon"
    return item["because"]


def _records(found: Sequence[ListedJob]) -> list[str]:
    return [*_floors(found), *record_lines([job.item for job in found])]


STARTS: Final[Listing[ListedJob]] = Listing(
    columns=(
        NAMESPACE,
        NAME,
        USER,
        QUEUE,
        GPUS,
        _Column(
            "WAITED",
            lambda job, now: age(now - job.view.created) if _waits(job) else "",
            right=True,
            rank=1,
            key=lambda job, _: -job.view.created,
        ),
        STARTS_IN,
        AT,
        RUNS_FOR,
        _Column("BECAUSE", _because),
    ),
    as_json=lambda job: as_json(job.item),
    instants=INSTANTS,
    name=_name,
    empty="No job is pending.",
    user=_users,
    state=_states,
    queue=_queues,
    states=_KNOWN_STATES,
    remarks=_records,
)


#: the same of one namespace
OWN_STARTS: Final = replace(STARTS, columns=tuple(OWN_QUEUE if each is QUEUE else each for each in STARTS.columns))


def by_start(found: Iterable[ListedJob]) -> list[ListedJob]:
    """The jobs in the order of their expected starts."""
    return sorted(found, key=lambda job: (start_of(job.item)[0] or float("inf"), job.view.created))
