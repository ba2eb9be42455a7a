"""Settings of the model's training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LearningSettings:
    rows: int = 60_000  #: number of latest finished runs used for training; older ones only fill the classes' history
    rounds: int = 80
    leaves: int = 31
    rate: float = 0.08
    min_leaf: int = 200
    bins: int = 63
    threads: int = 2
    seed: int = 1
    holdout: float = 0.1  #: share of the latest runs that is held out for calibration and validation
    holdout_seconds: float = 7 * 86400.0  #: maximum duration of the held-out period


DEFAULTS: Final = LearningSettings()
