"""Sums of a report against a count that shares nothing with them: gangs live second by second and note each second, while their
attempts are written to a database as an operator writes them.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gangline.forecast.history.attempts import JobAttempt
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.usage import Window

BEGIN = 1_790_000_000
SECONDS = 900
#: seconds after which what has changed is written
EVERY = 45
GANGS = 9
#: end -> the cause to which the work since the last checkpoint is lost, "" = to none
ENDS = {
    ("Succeeded", ""): "",
    ("Released", ""): "",
    ("Failed", ""): "failure",
    ("Preempted", "InClusterQueue"): "preemption",
    ("Cancelled", ""): "cancel",
    ("Evicted", "Stalled"): "overrun",
    ("Evicted", "NodeFailures"): "failure",
    ("Evicted", "PodsReadyTimeout"): "eviction",
}
#: what a report is made by -> the field that tells a gang's group
GROUPED = {
    "clusterQueue": "queue",
    "localQueue": "local_queue",
    "namespace": "namespace",
    "user": "user",
    "flavor": "flavor",
    "jobKind": "kind",
    "label:team": "team",
}


@dataclass
class Gang:
    """A gang that waits, starts, works and ends, again and again. `seconds`: what was done in each second with quota."""

    uid: str
    namespace: str
    user: str
    queue: str
    local_queue: str
    flavor: str
    kind: str
    team: str
    gpus: int
    checkpoint: int | None
    seconds: list[tuple[int, str]] = field(default_factory=list)
    phase: str = "waits"
    attempt: JobAttempt | None = None
    #: seconds that the attempt has taken since it was admitted, those among them that it worked, and since when it lasts
    admitted: int = 0
    worked: list[int] = field(default_factory=list)
    attempts: int = 0

    def live(self, now: int, draw: random.Random, written: dict[str, JobAttempt]) -> None:
        """Live the second that begins now. `written`: what is to be kept of attempts, by key."""
        if self.phase == "waits" and draw.random() < 0.05:
            self._reserve(now)
        elif self.phase == "reserved" and draw.random() < 0.3:
            self._note(phase="admitted", started=float(now))
            self.admitted = 0
        elif self.phase == "admitted" and draw.random() < 0.1:
            self._note(phase="works", ready=float(now))
        elif self.phase != "waits" and draw.random() < 0.02:
            self._end(now, *draw.choice([*ENDS]))
        if self.attempt is not None:
            written[self.attempt.key] = self.attempt
        if self.phase == "waits":
            self.attempt = None
            return
        if self.phase == "works":
            self.worked.append(now)
        self.admitted += self.phase in ("admitted", "works")
        self.seconds.append((now, "useful" if self.phase == "works" else "starting"))

    def _reserve(self, now: int) -> None:
        self.phase, self.worked = "reserved", []
        self.attempts += 1
        names: dict[str, Any] = {"uid": self.uid, "namespace": self.namespace, "user": self.user, "workload": self.uid}
        queues = {"cluster_queue": self.queue, "local_queue": self.local_queue, "job_kind": self.kind}
        labels = (("team", self.team),) if self.team else ()
        at = float(now)
        self.attempt = JobAttempt(
            **names, **queues, reserved=at, submitted=at, queued=at, flavor=self.flavor, gpus=self.gpus,
            checkpoint=None if self.checkpoint is None else float(self.checkpoint), labels=labels, number=self.attempts,
        )  # fmt: skip

    def _note(self, *, phase: str, **fields: float) -> None:
        assert self.attempt is not None
        self.phase, self.attempt = phase, replace(self.attempt, **fields)

    def _end(self, now: int, end: str, reason: str) -> None:
        """It ends at the beginning of this second: its work since the last checkpoint, counted from its admission, is gone."""
        assert self.attempt is not None
        if end == "Succeeded" and self.phase != "works":
            end = "Released"
        cause = ENDS.get((end, reason), "")
        unsaved = self.admitted % self.checkpoint if self.checkpoint else self.admitted
        gone = {second for second in self.worked if second >= now - unsaved} if cause else set()
        self.seconds = [(second, cause if second in gone else what) for second, what in self.seconds]
        self._note(phase="waits", ended=float(now))
        self.attempt = replace(self.attempt, end=end, reason=reason)

    def group(self, by: str) -> str:
        return getattr(self, GROUPED[by])


def gangs(draw: random.Random) -> Iterator[Gang]:
    for number in range(GANGS):
        queue = draw.choice("ab")
        yield Gang(
            uid=f"w{number}", namespace=draw.choice(["ml", "nlp"]), user=draw.choice(["mira", "tom", ""]), queue=queue,
            local_queue=f"to-{queue}", flavor=draw.choice(["h100", "a100"]), kind=draw.choice(["Job", "GPUJob"]),
            team=draw.choice(["vision", "speech", ""]), gpus=draw.choice([1, 8, 64]), checkpoint=draw.choice([None, 30, 7]),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_report_of_any_window_has_the_seconds_that_were_counted(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    alive = [*gangs(draw)]
    with HistoryStore(str(tmp_path / "h.db")) as store:
        written: dict[str, JobAttempt] = {}
        for now in range(BEGIN, BEGIN + SECONDS):
            for gang in alive:
                gang.live(now, draw, written)
            if now % EVERY == 0 or now == BEGIN + SECONDS - 1:
                store.put_attempts("here", written.values())
                written.clear()
        end = BEGIN + SECONDS
        edges = sorted(draw.sample(range(SECONDS), 6))
        windows = [
            (BEGIN, end),
            *((BEGIN + first, BEGIN + last) for first, last in itertools.pairwise(edges)),
        ]
        cut = 0
        for since, until in windows:
            for by in GROUPED:
                expected, on_flavor = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
                for gang in alive:
                    space = gang.namespace if by in ("localQueue", "namespace", "user") or ":" in by else ""
                    for second, what in gang.seconds:
                        if since <= second < until:
                            expected[space, gang.group(by), what] += gang.gpus
                            on_flavor[space, gang.group(by), gang.flavor] += gang.gpus
                usage = store.usage(Window(since, until, by, cluster="here"), ())
                found = Counter[tuple[str, str, str]]()
                for (space, name), each in usage.items():
                    hours = {"starting": each.starting, "useful": each.useful, **each.lost}
                    found.update({(space, name, what): round(value * 3600) for what, value in hours.items()})
                    assert each.hours == pytest.approx(sum(hours.values()))
                    for flavor, used in each.flavors.items():
                        assert round(used.used * 3600) == on_flavor[space, name, flavor]
                assert +found == +expected, (by, since - BEGIN, until - BEGIN)
            for gang in alive:
                seconds = {second for second, _ in gang.seconds}
                cut += {since - 1, since} <= seconds
    assert cut > 3, "windows cut attempts"
    assert {what for gang in alive for _, what in gang.seconds} >= {"starting", "useful"}


def test_all_causes_are_met() -> None:
    """What the seeds above play has every end."""
    causes: set[str] = set()
    for seed in range(4):
        draw = random.Random(seed)
        alive = [*gangs(draw)]
        for now in range(BEGIN, BEGIN + SECONDS):
            for gang in alive:
                gang.live(now, draw, {})
        causes |= {what for gang in alive for _, what in gang.seconds}
    assert causes == {"starting", "useful", *ENDS.values()} - {""}
