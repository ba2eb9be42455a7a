"""Traces as plain values: jobs, nodes and quotas. Times and durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class TraceError(ValueError):
    """A trace file that cannot be read; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One gang of a trace. Empty strings and None mean that the trace does not say."""

    id: str
    submit: float  #: when it was submitted, in seconds of the trace's own clock
    duration: float  #: how long it ran (see `ended` and `clamped`)
    gpus: int  #: whole GPUs of the whole gang
    user: str = ""
    vc: str = ""  #: virtual cluster, tenant or queue
    name: str = ""
    state: str = ""  #: as the trace spells it
    pods: int = 1
    #: thousandths of one GPU per pod if it asks for a fraction, else 0
    gpu_milli: int = 0
    cpu_milli: int = 0  #: per pod
    memory: int = 0  #: bytes per pod
    wait: float | None = None  #: recorded queueing delay
    limit: float | None = None  #: requested runtime limit: the job was stopped then
    hint: float | None = None  #: its author's expected runtime
    flavor: str = ""  #: kind of GPU it asked for or ran on
    clamped: bool = False  #: the true duration is at least `duration`: it was cut for publication
    ended: bool = True  #: False: it still ran when the trace ended, `duration` after its start
    checkpoint: float | None = None  #: how often it saves its work, in seconds of work; 0 = never
    save: float | None = None  #: how long one save takes; not part of `duration`


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their submission; ties in the order of the file."""

    format: str
    jobs: tuple[TraceJob, ...]
    #: rows without a runnable job (no GPUs, no duration, never started), by reason
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])

    def between(self, first: float, last: float) -> Trace:
        """The trace with the jobs only that were submitted in [first, last)."""
        return Trace(self.format, tuple(job for job in self.jobs if first <= job.submit < last), self.skipped)
