"""The words of telemetry: one reading per pod, and who provides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class SourceError(Exception):
    """The source does not answer, or not what it should. The message says which and why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured of one pod. None = not measured."""

    namespace: str
    pod: str
    at: float  # Unix seconds
    gpu: float | None = None  # share of the time in which its GPUs computed, 0 to 1, the mean over its GPUs
    kernel_age: float | None = None  # seconds since the last kernel was started
    power: float | None = None  # of its GPUs, as a multiple of what they draw when idle
    log_bytes: float | None = None  # written to its logs so far
    xid: int | None = None  # the last error that the driver reported (NVIDIA's XID), 0 = none

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.pod}"


class Source(Protocol):
    async def read(self) -> list[Reading]:
        """The newest reading of every pod that there is one of. Raises SourceError."""
        ...

    async def close(self) -> None: ...
