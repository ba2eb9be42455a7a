"""Replays an audit record: the same facts must lead to the same decisions, and no backfilled workload may have delayed the head
of a reservation against the policy of its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gangline.control.audit import audit_log, fact_codec
from gangline.control.audit.audit_log import Begin, Entry, Gap, Round
from gangline.control.audit.decision_index import LONGEST_LINE, lines
from gangline.engine import BACKFILL, REVOKED, Engine, Lateness, is_late, model
from gangline.files import read_lines
from gangline.kube.resources import Json

#: policies under which backfill must not delay the head of a reservation
PROMISED: Final = frozenset({"Overdue", "Any"})
#: how often a replay asks whether an engine that starts from facts alone would start more, in milliseconds
ASKED: Final = 600_000
#: most differences that are listed one by one
MOST_DIFFERENCES: Final = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """A round whose repeated decisions differ from the recorded ones. Decisions are written as `Kind workload`."""

    now: model.Millis
    recorded: tuple[str, ...]  # in the record, but not decided again
    repeated: tuple[str, ...]  # decided again, but not in the record


@dataclass(slots=True)
class AuditResult:
    """The result of repeating a record's decisions. Times are milliseconds, head delays seconds."""

    runs: int = 0
    rounds: int = 0
    facts: int = 0
    first: model.Millis = 0
    last: model.Millis = 0
    decisions: Counter[str] = field(default_factory=Counter[str])
    #: (time, workload) of every backfilled workload
    early: list[tuple[model.Millis, str]] = field(default_factory=list[tuple[model.Millis, str]])
    revocations: list[str] = field(default_factory=list[str])  # workloads whose backfill was revoked, in order
    differing: int = 0  # rounds
    differences: list[Difference] = field(default_factory=list[Difference])
    #: ClusterQueue -> cause -> seconds
    head_delay: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    #: the latest heads that started from a reservation
    heads: list[model.ReservedHead] = field(default_factory=list[model.ReservedHead])
    #: ClusterQueue -> its policy on revoking backfilled workloads
    revoke: dict[str, str] = field(default_factory=dict[str, str])
    #: (time, workload): would have started at that time if the operator had been started again
    missed: list[tuple[model.Millis, str]] = field(default_factory=list[tuple[model.Millis, str]])
    unreadable: int = 0  # lines; a killed process leaves at most one
    partial: bool = False  # the record begins in the middle of a run
    gaps: int = (
        0  # entries that could not be written; decisions after a gap are not repeated until the next Begin entry
    )

    @property
    def broken(self) -> float:
        """Seconds by which backfill delayed heads whose queue's policy promises that it does not."""
        delays = ((queue, cause, s) for queue, causes in self.head_delay.items() for cause, s in causes.items())
        return sum(s for queue, cause, s in delays if cause == BACKFILL and self.revoke.get(queue, "") in PROMISED)

    @property
    def late(self) -> list[model.ReservedHead]:
        """Heads that started later than promised, whatever the cause."""
        return [head for head in self.heads if is_late(head)]

    @property
    def promises(self) -> dict[str, Lateness]:
        """ClusterQueue -> what its heads were promised, and what came true."""
        found: dict[str, Lateness] = {}
        for head in self.heads:
            found.setdefault(head.cluster_queue, Lateness()).count(head)
        return found

    @property
    def holds(self) -> bool:
        """Whether every decision came out as recorded, no head was delayed against its queue's policy, and no start missed."""
        return not self.differing and self.broken == 0 and not self.missed

    def as_json(self) -> Json:
        return {
            "holds": self.holds,
            "runs": self.runs,
            "rounds": self.rounds,
            "facts": self.facts,
            "from": self.first,
            "to": self.last,
            "decisions": dict(sorted(self.decisions.items())),
            "backfilled": len(self.early),
            "revoked": len(self.revocations),
            "roundsThatDiffer": self.differing,
            "headDelaySeconds": self.head_delay,
            "headDelaySecondsAgainstPolicy": self.broken,
            "revoke": self.revoke,
            "reservedHeadsStarted": len(self.heads),
            "reservedHeadsStartedLate": len(self.late),
            "promises": {queue: sums.as_json() for queue, sums in sorted(self.promises.items())},
            "startsMissed": len(self.missed),
            "unreadableLines": self.unreadable,
            "beginsWithinARun": self.partial,
            "gaps": self.gaps,
        }


#: bytes of a file; the operator begins another one after 64 MiB
MOST_BYTES: Final = 2**30


def read(paths: Iterable[Path], outcome: AuditResult) -> Iterator[Entry]:
    """The entries of several files, in order. Raises fact_codec.FactError naming file and line; OSError."""
    for path in paths:
        for number, written in enumerate(read_lines(path, longest=LONGEST_LINE, most=MOST_BYTES), start=1):
            yield from _entry(written, lambda number=number, path=path: f"{path}, line {number}", outcome)


def read_part(descriptor: int, begin: int, end: int, outcome: AuditResult) -> Iterator[Entry]:
    """The entries of a part of an open file, in order, with a Gap in place of one that another version of Gangline wrote. Raises
    OSError.
    """
    for place, line in lines(descriptor, begin, end):
        try:
            yield from _entry(line, lambda place=place: f"byte {place} of the record", outcome)
        except fact_codec.FactError as error:
            outcome.unreadable += 1
            yield Gap(str(error))


def _entry(written: bytes, where: Callable[[], str], outcome: AuditResult) -> Iterator[Entry]:
    """The entry of a line; none of one that is empty, or was cut off."""
    line = written.strip()
    if not line:
        return
    try:
        yield audit_log.from_line(line)
    except fact_codec.FactError as error:
        if line.endswith(b"}"):
            raise fact_codec.FactError(f"{where()}: {error}") from error
        outcome.unreadable += 1  # the process was killed while it wrote this line


def check(entries: Iterable[Entry], outcome: AuditResult, asked: model.Millis = ASKED) -> AuditResult:
    """Feed all entries to an engine of the same kind and fill in `outcome`. `asked`: as `ASKED`."""
    replayed = _Replayed(outcome, asked)
    for entry in entries:
        replayed.take(entry)
    replayed.end()
    return outcome


class _Replayed:
    def __init__(self, outcome: AuditResult, asked: model.Millis) -> None:
        self._outcome = outcome
        self._every = asked
        self._engine: Engine | None = None
        self._run = ""
        self._serial = -1
        self._asked: model.Millis = 0  # when it was last asked for missed starts
        self._known = 0  # how many of the next facts the engine knows already
        self._from_facts = False

    def take(self, entry: Entry) -> None:
        match entry:
            case Begin():
                self._begin(entry)
            case Round():
                self._decide(entry)
            case Gap():
                self._outcome.gaps += 1
                self.end()
            case _:
                self._observe(entry)

    def end(self) -> None:
        """End a run: add up what the engine reports of its heads."""
        if self._engine is None:
            return
        self._outcome.heads += self._engine.head_starts()
        for queue, causes in self._engine.head_delay_seconds().items():
            total = self._outcome.head_delay.setdefault(queue, {})
            for cause, seconds in causes.items():
                total[cause] = total.get(cause, 0.0) + seconds
        self._engine = None

    def _ask_for_missed_starts(self, now: model.Millis) -> None:
        """Record starts that the engine missed, once nothing is left to decide: every change must have woken all whom it could
        serve.
        """
        assert self._engine is not None
        due = self._engine.next_wakeup(now)
        if due is None or due > now:
            self._asked = now
            self._outcome.missed += [(now, each.workload) for each in self._engine.missed_starts(now)]

    def _begin(self, entry: Begin) -> None:
        goes_on = entry.run == self._run and entry.serial == self._serial + 1 and self._engine is not None
        self._known = entry.known if goes_on else 0
        if not goes_on:
            self.end()
            self._engine = Engine(entry.settings)
            self._outcome.runs += 1
            self._from_facts = entry.serial > 0
            self._outcome.partial = self._outcome.partial or self._from_facts
        self._run, self._serial = entry.run, entry.serial

    def _observe(self, change: model.Change) -> None:
        if self._known:
            self._known -= 1
        elif self._engine is not None:
            match change:
                case model.Put(model.ClusterQueue(name=name, backfill=model.Backfill(revoke=revoke))):
                    self._outcome.revoke[name] = revoke
                case _:
                    pass
            self._engine.observe(change)
            self._outcome.facts += 1

    def _decide(self, entry: Round) -> None:
        if self._engine is None:
            return
        outcome = self._outcome
        outcome.first = outcome.first or entry.now
        outcome.last = entry.now
        outcome.rounds += 1
        for decision in entry.decisions:
            outcome.decisions[type(decision).__name__] += 1
            if isinstance(decision, model.Admit) and decision.backfilled:
                outcome.early.append((entry.now, decision.workload))
            if isinstance(decision, model.Preempt) and decision.reason == REVOKED:
                outcome.revocations.append(decision.workload)
        repeated = tuple(self._engine.decide(entry.now, entry.room))
        if entry.now >= self._asked + self._every:
            self._ask_for_missed_starts(entry.now)
        if self._from_facts:
            recorded, repeated = without_reports(entry.decisions), without_reports(repeated)
        else:
            recorded = entry.decisions
        if recorded != repeated:
            outcome.differing += 1
            if len(outcome.differences) < MOST_DIFFERENCES:
                outcome.differences.append(_difference(entry.now, recorded, repeated))


def without_reports(decisions: tuple[model.Decision, ...]) -> tuple[model.Decision, ...]:
    """The decisions that follow from facts alone: which workloads and warnings were reported, and when, follows from a run."""
    return tuple(decision for decision in decisions if not isinstance(decision, model.ReportPending | model.Warn))


def _difference(
    now: model.Millis, recorded: tuple[model.Decision, ...], repeated: tuple[model.Decision, ...]
) -> Difference:
    missing = tuple(named(decision) for decision in recorded if decision not in repeated)
    extra = tuple(named(decision) for decision in repeated if decision not in recorded)
    return Difference(now, missing, extra)


def named(decision: model.Decision) -> str:
    about = decision.about if isinstance(decision, model.Warn) else decision.workload
    return f"{type(decision).__name__} {about}"
