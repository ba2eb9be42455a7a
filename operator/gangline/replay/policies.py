"""The policies that a replay can compare, by name. Each is the settings of a ClusterQueue and a source of runtime estimates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from gangline.engine.model import (
    UNLIMITED,
    Backfill,
    CheckpointPreemption,
    ClusterQueue,
    EarliestCompletion,
    Moves,
    Ordering,
)
from gangline.replay.replayed import ReplayError

QUEUE: Final = "replay"
#: source of estimates of a policy that names none: that of --predictor
CHOSEN: Final = ""


#: `announced`: windows are known as early as the operator knows them, and jobs that save their work save it by the deadline;
#: `drain`: a window is known from the moment at which it stops jobs; `without`: there is none
WindowHandling: TypeAlias = Literal["announced", "drain", "without"]


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    about: str
    strategy: str = "BestEffortFIFO"
    ordering: Ordering | None = None
    backfill: Backfill | None = None
    predictor: str = CHOSEN  #: blind | true | limit | last-two | "" (as --predictor says)
    #: priorities by true duration: the only order besides age that a strict queue has
    ranked: bool = False
    #: the QueuePolicy that it was read from, which may select some queues only
    document: Mapping[str, Any] | None = field(default=None, compare=False)
    #: it falls back to best effort or EASY where it costs more (engine.floor)
    floor: bool = False
    #: how windows of Reservations are handled
    windows: WindowHandling = "announced"
    #: how running jobs are moved to make room
    moves: Moves | None = None
    #: how one of several flavors is chosen; None = by their order
    flavors: EarliestCompletion | None = None
    #: nobody is moved, whatever policies say: what moves are compared with
    unmoved: bool = False

    @property
    def queue(self) -> ClusterQueue:
        return ClusterQueue(
            QUEUE,
            strategy=self.strategy,
            ordering=self.ordering,
            backfill=self.backfill,
            floor=self.floor,
            moves=None if self.unmoved else self.moves,
            flavors=self.flavors,
        )


_SHORTEST = Ordering("ShortestFirst")
_EASY = Backfill(depth=1, running=0.5, candidate=0.5)
_SJBF = Backfill(depth=1, candidates="ShortestFirst", running=0.5, candidate=0.5)
#: of forecasts the published rule, a candidate ends by its median, lets too few pass: bench/lab/replay.md
_LIKELY = replace(_SJBF, candidate=0.3)
_CONSERVATIVE = Backfill(depth=UNLIMITED, running=0.5, candidate=0.5)

#: the policy `gangline`; docs/replay.md says on which data the constants were chosen
ORDER: Final = Ordering("AgedShortestFirst", age_weight=5.0, age_cap_seconds=57_600.0, optimism=0.75)
CHECKPOINT_PREEMPTION: Final = CheckpointPreemption(
    longer_than=10.0,
    loss_share=0.1,
    min_runtime_seconds=900.0,
    longer_than_backfilled=0.3,
    max_preemptions=3,
)
BACKFILL: Final = Backfill(
    depth=1,
    running=0.5,
    candidate=0.9,
    revoke="Overdue",
    overdue_factor=0.25,
    idle_share=0.1,
    checkpoint_preemption=CHECKPOINT_PREEMPTION,
    loss_budget=0.01,
)
STAY: Final = replace(BACKFILL, revoke="Never", checkpoint_preemption=None)
ANY: Final = replace(BACKFILL, revoke="Any")
GANGLINE: Final = "forecasts, aged shortest first, reservation; overdue backfill and long runs give way"

_ALL: Final = (
    Policy("fifo", "strict FIFO: no job passes the head", "StrictFIFO", predictor="blind"),
    Policy("besteffort", "best-effort FIFO, Kueue's default: any job that fits starts", predictor="blind"),
    Policy("sjf", "shortest first by true durations, any job that fits starts", ordering=_SHORTEST, predictor="true"),
    Policy(
        "sjf-strict", "shortest first by true durations, no job passes", "StrictFIFO", predictor="blind", ranked=True
    ),
    Policy("sjf-predicted", "shortest first by forecast, any job that fits starts", ordering=_SHORTEST),
    Policy("easy", "EASY backfilling with requested times", backfill=_EASY, predictor="limit"),
    Policy("easy-true", "EASY backfilling with true durations", backfill=_EASY, predictor="true"),
    Policy("easy-sjbf", "EASY, shortest candidate first, requested times", backfill=_SJBF, predictor="limit"),
    Policy("easy-sjbf-true", "the same with true durations", backfill=_SJBF, predictor="true"),
    Policy("easy-sjbf-predicted", "the same by forecast, and with candidates that may end in time", backfill=_LIKELY),
    Policy("easy++", "EASY, shortest candidate first, last two runtimes", backfill=_SJBF, predictor="last-two"),
    Policy("conservative", "a reservation for every job, requested times", backfill=_CONSERVATIVE, predictor="limit"),
    Policy("gangline", GANGLINE, ordering=ORDER, backfill=BACKFILL, floor=True),
    Policy("gangline-no-floor", "the same, and it never falls back", ordering=ORDER, backfill=BACKFILL),
    Policy(
        "gangline-any", "backfill gives way whenever the head could start", ordering=ORDER, backfill=ANY, floor=True
    ),
    Policy("gangline-stay", "gangline, but no job is ever evicted", ordering=ORDER, backfill=STAY, floor=True),
    Policy(
        "gangline-true", "gangline, durations known", ordering=ORDER, backfill=BACKFILL, predictor="true", floor=True
    ),
)
POLICIES: Final = {policy.name: policy for policy in _ALL}


def chosen(names: str) -> list[Policy]:
    """Policies by a comma-separated list of names, each once. Raises ReplayError."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in POLICIES]
    if unknown or not wanted:
        wrong = ", ".join(unknown) or "names none"
        raise ReplayError(f"--policy {wrong}: use some of {', '.join(POLICIES)}")
    return [POLICIES[name] for name in dict.fromkeys(wanted)]


def with_comparisons(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Each policy, and beside it the same without windows, and with windows that are not known before they stop jobs."""
    others: tuple[WindowHandling, ...] = ("without", "drain")
    return tuple(
        each
        for policy in policies
        for each in (policy, *(replace(policy, name=f"{policy.name}-{how}", windows=how) for how in others))
    )


def unmoved(name: str) -> str:
    """The name of a policy where it moves nobody."""
    return f"{name}-without-moves"


def with_unmoved(policies: Iterable[Policy], moving: Collection[str] = ()) -> tuple[Policy, ...]:
    """Each policy, and beside one that moves jobs (itself, or as one of the names in `moving`) the same without moves."""
    return tuple(
        each
        for policy in policies
        for each in (policy, replace(policy, name=unmoved(policy.name), unmoved=True))
        if not each.unmoved or (policy.windows == "announced" and (policy.moves is not None or policy.name in moving))
    )


def with_restart(queue: ClusterQueue, seconds: float) -> ClusterQueue:
    """The queue, whose policy counts on what a restart costs in the replay."""
    if queue.backfill is not None:
        queue = replace(queue, backfill=replace(queue.backfill, restart_seconds=seconds))
    if queue.moves is not None:
        queue = replace(queue, moves=replace(queue.moves, restart_seconds=seconds))
    return queue


def table() -> str:
    """A table of all policies, for people."""
    width = max(map(len, POLICIES))
    return "\n".join(f"{policy.name:<{width}}  {policy.about}" for policy in _ALL)
