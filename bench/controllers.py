"""The controllers that a load is run against, and the driver that the load process needs for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from bench.stack import Stack


class Controller(Protocol):
    @property
    def jobs(self) -> bool:
        """The load is real Jobs, not only Workloads."""
        ...

    @property
    def driver(self) -> str:
        """One of `bench.drivers.DRIVERS`."""
        ...

    def start(self, stack: Stack) -> None:
        """Returns once it is ready. Raises BenchError."""
        ...


@dataclass(frozen=True, slots=True)
class Gangline:
    """For Jobs with its webhooks. With `profile`, the operator's stacks are sampled into that file."""

    jobs: bool = False
    profile: Path | None = None

    @property
    def driver(self) -> str:
        return "jobs" if self.jobs else "workloads"

    def start(self, stack: Stack) -> None:
        if self.jobs:
            stack.webhooks()
        stack.operator(self.profile)


@dataclass(frozen=True, slots=True)
class Floor:
    """The least possible work: the null controller, or for Jobs no controller at all."""

    jobs: bool = False

    @property
    def driver(self) -> str:
        return "bare-jobs" if self.jobs else "workloads"

    def start(self, stack: Stack) -> None:
        if not self.jobs:
            stack.null_controller()


@dataclass(frozen=True, slots=True)
class Kueue:
    """The `minimalkueue` of Kueue's own benchmark."""

    binary: Path
    jobs: Literal[False] = False
    driver: str = "workloads"

    def start(self, stack: Stack) -> None:
        stack.kueue(self.binary)
