"""Memory growth of a process: resident memory over its runs, and its slope."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from gangline.kube.resources import Json

#: Seconds of each run that do not count: caches and the first model are still filled.
WARM_UP = 180.0
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


@dataclass(slots=True)
class MemoryTrend:
    """Samples (seconds, MB) of one run of the process after the other. Each run has a level of its own, all share one slope."""

    lives: list[list[tuple[float, float]]] = field(default_factory=list[list[tuple[float, float]]])

    def new_life(self) -> None:
        self.lives.append([])

    def note(self, seconds: float, pid: int) -> None:
        """Sample a process; one that has just ended is skipped."""
        try:
            found = _RESIDENT.search(Path(f"/proc/{pid}/status").read_text())
        except OSError:
            return
        if found:
            self.lives[-1].append((seconds, int(found.group(1)) * 1024 / 1e6))

    def summary(self) -> Json:
        """Slopes are None if no run outlasted its warm-up; the late one is of the second half of each run."""
        all_samples = [megabytes for life in self.lives for _, megabytes in life]
        spans = [life[-1][0] - life[0][0] for life in self.lives if life]
        return {
            "lives": len(self.lives),
            "longest_life_seconds": max(spans, default=0.0),
            "mean_mb": sum(all_samples) / len(all_samples) if all_samples else 0.0,
            "max_mb": max(all_samples, default=0.0),
            "slope_mb_per_hour": self.slope(),
            "late_slope_mb_per_hour": self.slope(from_share=0.5),
        }

    def slope(self, from_share: float = 0.0) -> float | None:
        """Least squares over all runs, in MB per hour, each run relative to its own mean, without this share of its
        beginning.
        """
        covariance = variance = 0.0
        for life in self.lives:
            if not life:
                continue
            first, last = life[0][0], life[-1][0]
            warm = [sample for sample in life if sample[0] - first >= max(WARM_UP, from_share * (last - first))]
            if len(warm) < 2:
                continue
            middle = sum(x for x, _ in warm) / len(warm)
            level = sum(y for _, y in warm) / len(warm)
            covariance += sum((x - middle) * (y - level) for x, y in warm)
            variance += sum((x - middle) ** 2 for x, _ in warm)
        return 3600 * covariance / variance if variance else None
