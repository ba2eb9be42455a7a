"""How a model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Settings:
    rows: int = 60_000  #: the latest finished runs that are learned from; older ones only fill the classes' history
    rounds: int = 80
    leaves: int = 31
    rate: float = 0.08
    min_leaf: int = 200
    bins: int = 63
    threads: int = 2
    seed: int = 1
    holdout: float = 0.1  #: share of the runs, the latest, that the model does not see: they calibrate and validate it
    holdout_seconds: float = 7 * 86400.0  #: but no longer than this


DEFAULTS: Final = Settings()
