"""Crashes on cue: the process dies at a chosen write exactly as `kill -9` would kill it. For tests of crash safety."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

VARIABLE = "GANGLINE_FAULT"
KILLED = 137


@dataclass(slots=True)
class FaultHook:
    """Kills the process at a chosen write. `moment` is "before" or "after" (the answer to) the `at`-th write that this process
    sends; "" = never.
    """

    moment: str = ""
    at: int = 0
    die: Callable[[int], object] = os._exit
    sent: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> FaultHook:
        """Parse e.g. GANGLINE_FAULT=before:7. Raises ValueError on anything else."""
        text = environment.get(VARIABLE, "")
        if not text:
            return cls()
        moment, _, number = text.partition(":")
        if moment not in ("before", "after") or not number.isdigit() or int(number) < 1:
            raise ValueError(f"{VARIABLE}: must be before:N or after:N with N >= 1, not {text!r}")
        return cls(moment, int(number))

    def before(self) -> int:
        """Note that a write is about to be sent. Returns its number."""
        self.sent += 1
        if self.moment == "before" and self.sent == self.at:
            self.die(KILLED)
        return self.sent

    def after(self, number: int) -> None:
        """Note that the answer to write `number` has arrived, and no code has seen it yet."""
        if self.moment == "after" and number == self.at:
            self.die(KILLED)
