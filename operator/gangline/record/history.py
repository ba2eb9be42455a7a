"""A record as values: what was configured when, which nodes there were, and what became of each Workload. Times are Unix
milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gangline.engine.model import Millis
from gangline.kube.resources import Json


class RecordError(ValueError):
    """A record that can't be read; the message names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """A line of a file."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """An object of the configuration, or a node, is as `body` says from now on; None: it is gone."""

    at: Millis
    kind: str
    name: str
    body: Json | None
    place: FileLine


@dataclass(slots=True)
class AdmittedSpan:
    """A time for which a Workload was admitted. `end` is None while it lasts."""

    start: Millis
    end: Millis | None = None
    reason: str = ""  #: why it ended: Finished, the reason of the eviction, or Deleted
    finished: bool = False


@dataclass(slots=True)
class Recorded:
    """One Workload: what was kept of it last, and its history."""

    uid: str
    name: str  #: namespace/name
    body: Json
    place: FileLine
    stays: list[AdmittedSpan] = field(default_factory=list[AdmittedSpan])
    gone: Millis | None = None

    @property
    def created(self) -> Millis:
        return self.body["created"]

    @property
    def finished(self) -> Millis | None:
        return None if "finished" not in self.body else self.body["finished"]["at"]


@dataclass(slots=True)
class RecordedHistory:
    """What a record holds, in the order of time."""

    first: Millis = 0
    last: Millis = 0
    changes: list[RecordedChange] = field(default_factory=list[RecordedChange])
    workloads: dict[str, Recorded] = field(default_factory=dict[str, Recorded])
    #: times for which nobody recorded
    gaps: list[tuple[Millis, Millis]] = field(default_factory=list[tuple[Millis, Millis]])
    #: lines that could not be read, and were passed over
    cut: list[FileLine] = field(default_factory=list[FileLine])
