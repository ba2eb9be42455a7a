"""Reads events of Jobs about pods that the API server refuses: the kind of refusal, its words, and when. Pure.

Only an answer that a retry does not change counts: a quota, Pod Security, a webhook or policy that says no, an invalid template.
A timeout, an error of a server or a webhook that cannot be reached does not: those pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api.read import conditions
from gangline.objects import Stored

#: reason of a Job controller's event about a pod that could not be created
FAILED_CREATE: Final = "FailedCreate"
#: characters of a refusal that are kept
LONGEST: Final = 1000
#: words of an answer, and the reason that stands for it; the first that occurs counts
_KINDS: Final = (
    ("exceeded quota", "ExceededQuota"),
    ("violates PodSecurity", "PodSecurity"),
    ("denied request", "Denied"),
    ("denied the request", "Denied"),
    ("is forbidden", "Forbidden"),
    ("is invalid", "Invalid"),
)
#: words of answers that pass by themselves: a quota that is not counted yet, a namespace whose jobs go with it, servers that are
#: away
_PASSING: Final = (
    "status unknown for quota",
    "being terminated",
    "failed calling webhook",
    "failed to call webhook",
    "timed out",
    "timeout",
    "try again",
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of pods. `at` is in milliseconds since the epoch, on the clock of the Job controller."""

    at: int
    reason: str
    message: str


def read(event: Stored) -> Refusal | None:
    """The refusal that an event of a Job tells; None if it is about something else."""
    if event.get("reason") != FAILED_CREATE:
        return None
    text = _words(str(event.get("note") or ""))
    if any(words in text for words in _PASSING):
        return None
    reason = next((reason for words, reason in _KINDS if words in text), None)
    return Refusal(_time(event), reason, text) if reason is not None else None


@bounded.parser(65_536, instead="", worst=("exceeded quota ", "\n", "é"))
def _words(note: str) -> str:
    """One line of printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in note).split())
    return line.removeprefix("Error creating: ")[:LONGEST]


def _time(event: Stored) -> int:
    """The time at which the event was last seen."""
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event.created,
    )
    return max(conditions.millis_of(time) for time in times)
