"""The phase of a training from the metric that it reports: progressing, watching or converged. Pure.

Reports are gathered in windows. The *growth* of a window is the change of the metric's mean since the window before, per second,
whether it falls or rises; it is compared with the growth of the job's first window that had any. A job that reports no metric, or
always the same one, is progressing. Nothing here stops a job.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api.phases import CONVERGED, PROGRESSING, WATCHING, PhasePolicy
from gangline.engine.model import Millis

#: the livelier a phase is, the lower its place
_PLACES: Final = {PROGRESSING: 0, WATCHING: 1, CONVERGED: 2}
#: windows in a row without growth after which a run has converged, and windows in a row with more growth that end a phase
CONVERGED_AFTER: Final = 3
LIVELIER_AFTER: Final = 2
#: digits of a part of the first growth: what is equal as written is equal
_DIGITS: Final = 9
_LONGEST: Final = 1024
_FIRST: Final = re.compile(r"first growth ([0-9][0-9.e+-]{0,30}) ", re.ASCII)


@dataclass(slots=True)
class Phase:
    """The phase of one run. `first` is the growth per second of the first window that had any; None = there was none yet."""

    policy: PhasePolicy
    name: str = PROGRESSING
    first: float | None = None
    #: the last growth as a part of the first one
    share: float = 1.0
    #: the open window: its beginning, and the number, the sum and the sum of times of its reports
    _begun: Millis | None = None
    _count: int = 0
    _sum: float = 0.0
    _times: float = 0.0
    #: mean and time of the window before
    _before: tuple[float, float] | None = None
    #: the kinds of the last windows, in a row, that differ from the phase in one direction
    _quiet: int = 0
    _lively: int = 0

    def take(self, at: Millis, metric: float) -> bool:
        """Take a report. Returns whether the phase is another one."""
        changed = False
        if self._begun is not None and at >= self._begun + self.policy.window:
            changed = self._close()
        if self._begun is None:
            self._begun, self._count, self._sum, self._times = at, 0, 0.0, 0.0
        self._count += 1
        self._sum += metric
        self._times += at - self._begun
        return changed

    def begin_anew(self) -> None:
        """The job went back to a checkpoint: its next window has none before it."""
        self._begun = self._before = None
        self._quiet = self._lively = 0

    def _close(self) -> bool:
        """The open window is over."""
        assert self._begun is not None
        mean, time = self._sum / self._count, self._begun + self._times / self._count
        before, self._before, self._begun = self._before, (mean, time), None
        if before is None or time <= before[1]:
            return False
        growth = abs(mean - before[0]) / (time - before[1]) * 1000
        if not math.isfinite(growth):
            return False
        if not self.first:
            self.first = growth or None
            return False
        self.share = round(growth / self.first, _DIGITS)
        return self._follow(self.kind_of(self.share))

    def kind_of(self, share: float) -> str:
        """The phase that a single window speaks for."""
        if share > self.policy.watching:
            return PROGRESSING
        return WATCHING if share >= self.policy.converged else CONVERGED

    def _follow(self, kind: str) -> bool:
        before = self.name
        self._quiet = self._quiet + 1 if kind == CONVERGED else 0
        self._lively = self._lively + 1 if _PLACES[kind] < _PLACES[before] else 0
        if self._lively >= LIVELIER_AFTER:
            self.name, self._lively = kind, 0
        elif self._quiet >= CONVERGED_AFTER:
            self.name = CONVERGED
        elif before == PROGRESSING and kind != PROGRESSING:
            self.name = WATCHING
        return self.name != before

    @property
    def text(self) -> str:
        """What the condition of the Workload says, from which a later operator goes on."""
        return f"The metric changes by {self.share:.2%} of its first growth {self.first or 0:.6g} a second"


@bounded.parser(_LONGEST, worst=("first growth 1 ", "first growth 9", "9e"))
def first_growth(text: str) -> float | None:
    """The first growth that a condition names."""
    found = _FIRST.search(text)
    try:
        growth = float(found[1]) if found is not None else 0.0
    except ValueError:
        return None
    return growth if 0 < growth < math.inf else None
