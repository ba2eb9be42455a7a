"""Telemetry values: one reading per pod, and the interface of their source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class SourceError(Exception):
    """The source does not answer, or gives an invalid answer. The message says which and why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The measurements of one pod. None = not measured."""

    namespace: str
    pod: str
    at: float  # Unix seconds
    gpu: float | None = None  # share of the time in which its GPUs computed, 0 to 1, the mean over its GPUs
    kernel_age: float | None = None  # seconds since the last kernel was started
    power: float | None = None  # power of its GPUs, as a multiple of their idle power
    log_bytes: float | None = None  # written to its logs so far
    xid: int | None = None  # the last error that the driver reported (NVIDIA's XID), 0 = none

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.pod}"


class ReadingSource(Protocol):
    async def read(self) -> list[Reading]:
        """The newest reading of every pod that has one. Raises SourceError."""
        ...

    async def close(self) -> None: ...
