"""The jobs of a replay, the cluster, and the outcome of each job. Times are integer milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.model import Millis, ReservedHead
from gangline.traces import TraceJob

DAY: Final = 86_400_000
#: longer durations are cut, as in the reference replays
LONGEST: Final = 30 * DAY
#: of a job that does not lie about its checkpoints
TRUTH: Final[Millis] = -1


class ReplayError(ValueError):
    """An invalid combination of options; the message names the option."""


@dataclass(frozen=True, slots=True)
class ReplayedJob:
    """A gang of the window. `number` is its index by submission; it breaks ties."""

    number: int
    id: str
    submit: Millis
    duration: Millis
    gpus: int
    tenant: str
    limit: Millis | None = None  #: requested run time
    trace: TraceJob | None = None  #: other columns of the trace
    #: the declared checkpoint interval, true or not: None = never, TRUTH = the real one
    checkpoint: Millis | None = TRUTH
    #: the real one, from the end of one save to the end of the next: None = never, TRUTH = as the replay's rules say
    saves: Millis | None = TRUTH
    #: what one save costs; None = as the replay's rules say
    save: Millis | None = None
    #: the part of `duration` that saving takes
    saving: Millis = 0
    #: how fast it is on which flavor: `duration` is its work, at speed 1
    speeds: Mapping[str, float] = field(default_factory=dict[str, float])

    def speed(self, flavors: Iterable[str]) -> float:
        """The speed of a run on these flavors: that of the slowest."""
        return min((self.speeds.get(flavor, 1.0) for flavor in flavors), default=1.0)

    @property
    def key(self) -> str:
        """The key of the job's Workload in the engine. Names rise with the number, so that ties go by submission."""
        return f"replay/{name_of(self.number)}"


def name_of(number: int) -> str:
    return f"job-{number:08d}"


def number_of(key: str) -> int:
    return int(key[-8:])


def replayed(jobs: Iterable[TraceJob], longest: Millis = LONGEST) -> list[ReplayedJob]:
    """The jobs of a trace that are replayed: those with GPUs, in the order of submission."""
    ordered = sorted((job for job in jobs if job.gpus > 0), key=lambda job: job.submit)
    return [
        ReplayedJob(
            number=number,
            id=job.id,
            submit=round(job.submit * 1000),
            duration=min(longest, max(1, round(job.duration * 1000))),
            gpus=job.gpus,
            tenant=job.vc or job.user,
            limit=None if job.limit is None else round(job.limit * 1000),
            saves=TRUTH if job.checkpoint is None else _millis(job.checkpoint) or None,
            save=None if job.save is None else _millis(job.save),
            trace=job,
        )
        for number, job in enumerate(ordered)
    ]


def _millis(seconds: float) -> Millis:
    """The duration in milliseconds, at most `LONGEST`."""
    return round(min(seconds, LONGEST / 1000) * 1000)


@dataclass(frozen=True, slots=True)
class ReplayedCluster:
    """`gpus` in nodes of `per_node`; 0 per node = a flat pool, where only the count of free GPUs matters.

    `flavors`: the flavors and the GPUs of each, in the order of the ClusterQueue; () = one flavor.
    """

    gpus: int
    per_node: int = 8
    flavors: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_flavors(cls, flavors: Mapping[str, int], per_node: int) -> ReplayedCluster:
        """Raises ReplayError."""
        for name, gpus in flavors.items():
            if gpus <= 0 or (per_node > 0 and gpus % per_node):
                raise ReplayError(f"--flavor {name}={gpus}: needs a multiple of --gpus-per-node {per_node}")
        return cls(sum(flavors.values()), per_node, tuple(flavors.items()))

    def __post_init__(self) -> None:
        if self.gpus <= 0:
            raise ReplayError(f"--gpus must be positive, not {self.gpus}")
        if self.per_node < 0:
            raise ReplayError(f"--gpus-per-node must be 0 (a flat pool) or more, not {self.per_node}")
        if self.per_node and self.gpus % self.per_node:
            raise ReplayError(f"--gpus {self.gpus} is no multiple of --gpus-per-node {self.per_node}")

    @property
    def largest(self) -> int:
        """The GPUs of the largest flavor."""
        return max((gpus for _, gpus in self.flavors), default=self.gpus)

    @property
    def nodes(self) -> int:
        return self.gpus // self.per_node if self.per_node else 0


@dataclass(slots=True)
class Stint:
    """One run of a job, from its start to its end or eviction. `places` are (node, GPUs)."""

    start: Millis
    end: Millis
    backfilled: bool = False
    places: tuple[tuple[int, int], ...] = ()
    lost: Millis = 0  #: the part of it that has to be repeated, and the restart
    evicted: str = ""  #: the reason of its eviction, "" = it ended, or runs
    flavors: tuple[str, ...] = ()  #: of a job with speeds
    moved_for: int | None = None  #: the job, by number, for which it was moved to other nodes


@dataclass(slots=True)
class ReplayedOutcome:
    """The outcome of a job. Without a finish it was still waiting or running when the replay ended."""

    job: ReplayedJob
    stints: list[Stint] = field(default_factory=list[Stint])
    finish: Millis | None = None
    evictions: int = 0
    #: why it could never start, "" = it could
    impossible: str = ""

    @property
    def start(self) -> Millis | None:
        return self.stints[0].start if self.stints else None

    @property
    def length(self) -> Millis:
        """How long it runs without evictions; with speeds, on the flavors that it had."""
        if not self.job.speeds or self.finish is None:
            return self.job.duration
        return sum(stint.end - stint.start - stint.lost for stint in self.stints)

    @property
    def wait(self) -> Millis | None:
        """Completion time minus duration: the cost of queueing and evictions."""
        return None if self.finish is None else self.finish - self.job.submit - self.length

    @property
    def lost(self) -> Millis:
        return sum(stint.lost for stint in self.stints)


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the cluster at an instant."""

    at: Millis
    allocated: int  # GPUs
    waiting: int  # jobs
    waiting_gpus: int


@dataclass(frozen=True, slots=True)
class Headship:
    """The time for which a job was first of its queue's reserved ones."""

    queue: str
    job: int
    since: Millis
    until: Millis


@dataclass(frozen=True, slots=True)
class PlayedWindow:
    """A window of a Reservation over some nodes (by their numbers); `stops` is when whoever else runs there is stopped."""

    name: str
    reservation: str
    stops: Millis
    end: Millis
    nodes: frozenset[int]
    #: the jobs that may use it
    guests: frozenset[int] = frozenset()


@dataclass(slots=True)
class ReplayResult:
    cluster: ReplayedCluster
    outcomes: list[ReplayedOutcome]
    samples: Sequence[Sample] = ()
    decisions: int = 0
    seconds: float = 0.0  #: CPU seconds of the replay
    #: seconds for which heads could have started but for backfilled jobs, by cause (engine.backfill.head_delay)
    head_delay: dict[str, float] = field(default_factory=dict[str, float])
    #: the jobs for which a start was planned and others were held back, by number: the first plan of each, and its start
    heads: dict[int, ReservedHead] = field(default_factory=dict[int, ReservedHead])
    headships: list[Headship] = field(default_factory=list[Headship])
    #: when a cohort tree changed its mode (engine.floor): the time, the tree and the mode
    modes: list[tuple[Millis, str, str]] = field(default_factory=list[tuple[Millis, str, str]])
    #: the windows of Reservations in the time of the replay, also where the policy knew nothing of them
    windows: tuple[PlayedWindow, ...] = ()
