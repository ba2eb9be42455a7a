"""Decides from combined evidence whether a running gang hangs; one weak sign alone never suffices. Pure.

    RUNNING ──one strong sign, or two weak ones of different kinds──▶ SUSPECT ──for the grace──▶ STALLED ──▶ the policy's action
       ◀───────────────────── a sign of life ─────────────────────────┘                          │
       ◀──────────────────────────────── a sign of life ─────────────────────────────────────────┘

Progress that a run reports outweighs all other evidence: idle GPUs with a rising step counter are not a stall. Weak signs of one
kind (an idle engine, no kernel, low power) have the same cause and count once. A gang is idle only when all of its pods are: one
idle rank among busy ones is a straggler, or waits for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gangline.api.read.policy_reader import StallPolicy
from gangline.engine import span_text
from gangline.engine.model import Millis

RUNNING: Final = "Running"
SUSPECT: Final = "Suspect"
STALLED: Final = "Stalled"

#: No run is silent before it missed this many of its own steps.
STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """The current evidence about one running gang. Times are in milliseconds; None = unknown."""

    #: time since all its pods were ready
    running_for: Millis
    #: time since it last reported progress; None = it never reported in this run
    silence: Millis | None = None
    #: the reporting interval that it promised (GPUJob spec.progress.heartbeat) …
    heartbeat: Millis | None = None
    #: … and for how long this process has waited for its first report; short right after the process started
    unreported: Millis | None = None
    median_step: float | None = None
    #: it reports a phase without steps
    quiet: bool = False
    #: for how long each measured pod's GPUs have computed nothing, started no kernel, drawn hardly any power; 0 = not the case
    idle: tuple[Millis, ...] = ()
    kernel_age: tuple[Millis, ...] = ()
    low_power: tuple[Millis, ...] = ()
    #: time since any pod wrote to its log
    log_silence: Millis | None = None
    #: errors of GPUs during this run (NVIDIA's XID)
    xids: tuple[int, ...] = ()
    #: number of running pods
    pods: int = 1
    #: it runs far longer than forecast
    overdue: bool = False

    def allowed(self, policy: StallPolicy) -> Millis:
        """The silence that is no sign yet: the promised interval, else the policy's time; at least some of the run's own
        steps."""
        promised = policy.after if self.heartbeat is None else self.heartbeat
        return max(promised, round(STEPS * (self.median_step or 0.0)))

    @property
    def has_rhythm(self) -> bool:
        """Whether the reporting interval is known, from a promise or from steps. Otherwise the run may just have long steps."""
        return self.heartbeat is not None or self.median_step is not None

    def all_pods(self, spans: tuple[Millis, ...]) -> Millis:
        """The time for which all pods of the run have been in this state; 0 where some are not measured."""
        return min(spans) if len(spans) >= self.pods else 0


@dataclass(frozen=True, slots=True)
class Sign:
    """One kind of evidence: when it holds, how much it proves, and its text for users."""

    name: str
    kind: str  # weak signs of one kind count once
    strong: bool
    holds: Callable[[Evidence, StallPolicy], bool]
    says: Callable[[Evidence], str]


#: XIDs after which a GPU does no more work for the process: double-bit errors, row remapping, lost GPUs, dead NVLinks.
DEADLY_XIDS: Final = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 119, 120})

SIGNS: Final[tuple[Sign, ...]] = (
    Sign(
        "NoProgress",
        "progress",
        True,
        lambda e, p: e.has_rhythm and _silence(e) >= e.allowed(p),
        lambda e: f"no progress for {span_text(_silence(e))}",
    ),
    Sign(
        "NoReport",
        "progress",
        False,
        lambda e, p: not e.has_rhythm and _silence(e) >= e.allowed(p),
        lambda e: f"no report for {span_text(_silence(e))}",
    ),
    Sign(
        "GpuError",
        "errors",
        True,
        lambda e, p: bool(DEADLY_XIDS.intersection(e.xids)),
        lambda e: f"GPU error (XID {', '.join(map(str, sorted(DEADLY_XIDS.intersection(e.xids))))})",
    ),
    Sign(
        "IdleGpus",
        "gpu",
        False,
        lambda e, p: e.all_pods(e.idle) >= p.after,
        lambda e: f"the GPUs of all {e.pods} pods idle for {span_text(e.all_pods(e.idle))}",
    ),
    Sign(
        "NoKernels",
        "gpu",
        False,
        lambda e, p: e.all_pods(e.kernel_age) >= p.after,
        lambda e: f"no kernel on any GPU for {span_text(e.all_pods(e.kernel_age))}",
    ),
    Sign(
        "LowPower",
        "gpu",
        False,
        lambda e, p: e.all_pods(e.low_power) >= p.after,
        lambda e: f"the GPUs of all {e.pods} pods draw hardly any power for {span_text(e.all_pods(e.low_power))}",
    ),
    Sign(
        "SilentLogs",
        "logs",
        False,
        lambda e, p: (e.log_silence or 0) >= p.after,
        lambda e: f"nothing in the logs for {span_text(e.log_silence or 0)}",
    ),
    Sign("Overdue", "forecast", False, lambda e, p: e.overdue, lambda e: "it runs far longer than forecast"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion from the evidence now. `alive` means that there is a sign of life, not only a lack of evidence."""

    signs: tuple[str, ...] = ()
    says: str = ""
    suspect: bool = False
    alive: bool = False
    idle: bool = False
    stragglers: int = 0


def judge(evidence: Evidence, policy: StallPolicy) -> Verdict:
    """Combine the evidence."""
    found = [sign for sign in SIGNS if sign.holds(evidence, policy)]
    weak = {sign.kind for sign in found if not sign.strong}
    progressing = _progressing(evidence, policy)
    started = evidence.running_for >= policy.startup
    enough = any(sign.strong for sign in found) or len(weak) >= 2
    idle = tuple(span for span in evidence.idle if span >= policy.after)
    busy = [span for span in evidence.idle if span == 0]
    return Verdict(
        signs=tuple(sign.name for sign in found),
        says=", ".join(sign.says(evidence) for sign in found),
        suspect=enough and started and not progressing,
        alive=progressing or bool(busy),
        idle=started and "gpu" in weak,
        stragglers=len(idle) if busy else 0,
    )


def _progressing(evidence: Evidence, policy: StallPolicy) -> bool:
    """Whether the run reports progress, or a phase that takes its time."""
    return evidence.silence is not None and evidence.silence < evidence.allowed(policy)


def _silence(evidence: Evidence) -> Millis:
    """The silence of a run. A run that promised to report and never did is silent since this process started to wait for it; one
    that never reported and promised nothing is not silent."""
    if evidence.silence is not None:
        return evidence.silence
    return evidence.unreported or 0 if evidence.heartbeat is not None else 0


@dataclass(slots=True)
class Watch:
    """The state of one run, and since when it is in it."""

    state: str = RUNNING
    since: Millis = 0

    def follow(self, verdict: Verdict, policy: StallPolicy, now: Millis) -> bool:
        """Update the state with a verdict. Returns True when the state changed."""
        wanted = self.state
        if self.state == STALLED:
            wanted = RUNNING if verdict.alive and not verdict.suspect else STALLED
        elif not verdict.suspect:
            wanted = RUNNING
        elif self.state == RUNNING:
            wanted = SUSPECT
        elif now - self.since >= policy.grace:
            wanted = STALLED
        if wanted == self.state:
            return False
        self.state, self.since = wanted, now
        return True
