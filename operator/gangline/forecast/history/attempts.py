"""An attempt: one stretch in which a job held quota, from the reservation to the release, and what came of its GPU time. Pure.

Each second of an attempt is of one of three kinds, in this order: its pods were not ready (starting), work that is kept (useful),
work that was done in vain (lost). Nothing counts twice, so the three make up the whole. Idle seconds, where telemetry measured
them, are a part of the useful ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

# how attempts end; "" while one is in progress
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
PREEMPTED: Final = "Preempted"
EVICTED: Final = "Evicted"
CANCELLED: Final = "Cancelled"
#: the quota was given back in another way: the job goes on as another slice, or has no pods to run for now
RELEASED: Final = "Released"
#: all of them
ENDS: Final = (SUCCEEDED, FAILED, PREEMPTED, EVICTED, CANCELLED, RELEASED)
#: ends after which a job does not come back
FINAL: Final = (SUCCEEDED, FAILED, CANCELLED)

#: causes to which work is lost
LOSSES: Final = ("preemption", "failure", "overrun", "cancel", "eviction")
_LOST_TO: Final = {PREEMPTED: "preemption", FAILED: "failure", CANCELLED: "cancel", EVICTED: "eviction"}
#: reasons of evictions that stop a run which is too long, or makes no progress
_OVERRUNS: Final = frozenset({"MaximumExecutionTimeExceeded", "Overrun", "Stalled"})
#: … and of those for which a machine is to blame
_MACHINES: Final = frozenset({"NodeFailures"})

#: names of nodes that are kept of one attempt
MOST_NODES: Final = 64
#: labels that are kept of one attempt, at most, and characters of the key of one
MOST_LABELS: Final = 8
LONGEST_LABEL_KEY: Final = 240
#: characters of a text that are kept
LONGEST_TEXT: Final = 1024

#: labels as pairs of key and value, in the order of their keys
Labels: TypeAlias = tuple[tuple[str, str], ...]


def value_of(labels: Labels, key: str) -> str:
    """The value of a label; "" where there is none."""
    return next((value for name, value in labels if name == key), "")


@dataclass(frozen=True, slots=True)
class Stages:
    """The four instants between which an attempt starts up, does useful work, and does what is lost."""

    reserved: float
    working: float
    losing: float
    ended: float


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One attempt. Times are Unix seconds, spans seconds. Empty strings and None mean: unknown, or not (yet)."""

    uid: str  #: of its Workload
    reserved: float
    submitted: float
    queued: float  #: since when it waited: its submission, or the end of the attempt before
    number: int = 1
    namespace: str = ""
    workload: str = ""
    job_kind: str = ""
    job_name: str = ""
    user: str = ""
    local_queue: str = ""
    cluster_queue: str = ""
    flavor: str = ""
    gpus: int = 0  #: of the whole gang
    pods: int = 1
    started: float | None = None  #: admitted
    ready: float | None = None  #: all pods were ready
    reports_ready: bool = (
        True  #: whether its pods are reported as ready at all; otherwise it works from its admission on
    )
    unready: float = 0.0  #: seconds after `ready` in which pods were not, such as while a node was replaced
    unready_since: float | None = None
    checkpoint: float | None = None  #: a stop loses work in steps of so many seconds; None = all of it
    stopped: float | None = None  #: the stop was requested; its pods then had their grace
    ended: float | None = None
    end: str = ""
    reason: str = ""
    text: str = ""
    by: str = ""  #: key of the Workload for which it was preempted
    by_job: str = ""  #: … and its job, as kind/name
    by_queue: str = ""  #: … and its ClusterQueue
    backfilled: bool = False
    idle: float | None = None  #: GPU-seconds in which telemetry saw its GPUs idle; None = not measured
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    labels: Labels = ()  #: those of its job that are kept

    @property
    def key(self) -> str:
        """The identity of the attempt: a Workload does not reserve quota twice in one second."""
        return f"{self.uid}/{self.reserved:.0f}"

    @property
    def job(self) -> str:
        return f"{self.job_kind.lower()}/{self.job_name}"

    @property
    def loss(self) -> str:
        """The cause to which its unsaved work is lost, one of LOSSES; "" where nothing is lost."""
        if self.end == EVICTED and self.reason in _OVERRUNS:
            return "overrun"
        if self.end == EVICTED and self.reason in _MACHINES:
            return "failure"
        return _LOST_TO.get(self.end, "")

    @property
    def stopping(self) -> float | None:
        """The seconds from when the stop was requested until its pods were gone; None for one that ended otherwise."""
        if self.stopped is None or self.ended is None or self.end not in (EVICTED, PREEMPTED):
            return None
        return max(0.0, self.ended - self.stopped)

    def label(self, key: str) -> str:
        """The value of a label; "" where its job had none, or none was kept."""
        return value_of(self.labels, key)

    def stages(self, now: float) -> Stages:
        """The attempt up to its end, or up to now."""
        ended = max(self.reserved, self.ended if self.ended is not None else now)
        working = ended if (begun := self._begun) is None else begun + self._unready(ended)
        working = min(ended, max(self.reserved, working))
        lost = min(ended - working, self._unsaved(ended)) if self.loss else 0.0
        return Stages(self.reserved, working, ended - lost, ended)

    def saved(self, now: float) -> float:
        """Seconds of its work that checkpoints keep, whatever happens next."""
        stages = self.stages(now)
        return max(0.0, stages.ended - stages.working - self._unsaved(stages.ended)) if self.checkpoint else 0.0

    @property
    def _begun(self) -> float | None:
        """When its work began. A job may succeed before its pods have been seen ready."""
        if self.ready is None and (not self.reports_ready or self.end == SUCCEEDED):
            return self.started
        return self.ready

    def _unready(self, ended: float) -> float:
        return self.unready + (max(0.0, ended - self.unready_since) if self.unready_since is not None else 0.0)

    def _unsaved(self, ended: float) -> float:
        """The seconds since its last checkpoint, or its admission, as the engine counts them."""
        ran = max(0.0, ended - self.started) if self.started is not None else 0.0
        return ran % self.checkpoint if self.checkpoint else ran


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """What a new leader has to know of a Workload's attempts so far: when the last one began, its number and its end."""

    reserved: float
    number: int
    ended: float | None


@dataclass(frozen=True, slots=True)
class AttemptQuery:
    """Which attempts are asked for: those in progress, and those that ended at or after `since`; "" = any."""

    cluster: str = ""
    since: float = 0.0
    namespace: str = ""
    cluster_queue: str = ""
    job_name: str = ""
    end: str = ""
    by_namespace: str = ""  #: of the Workload for which it was preempted
    by_job: str = ""  #: … the name of its job
    by_queue: str = ""  #: … its ClusterQueue
    most: int = 5_000

    def fits(self, attempt: JobAttempt) -> bool:
        return (
            (attempt.ended is None or attempt.ended >= self.since)
            and self.namespace in ("", attempt.namespace)
            and self.cluster_queue in ("", attempt.cluster_queue)
            and self.job_name in ("", attempt.job_name)
            and self.end in ("", attempt.end)
            and self.by_namespace in ("", attempt.by.partition("/")[0])
            and self.by_job in ("", attempt.by_job.partition("/")[2])
            and self.by_queue in ("", attempt.by_queue)
        )


def newest_first(attempts: list[JobAttempt], most: int) -> list[JobAttempt]:
    """Those in progress, the latest reservation first, then those that ended last."""

    def order(each: JobAttempt) -> tuple[bool, float, str]:
        return each.ended is not None, -(each.reserved if each.ended is None else each.ended), each.key

    return sorted(attempts, key=order)[:most]
