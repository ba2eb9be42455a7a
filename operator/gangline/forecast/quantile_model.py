"""The model: one LightGBM booster per quantile, on log seconds of the average flavor. One file keeps it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gangline import files
from gangline.forecast import features
from gangline.forecast.boosting import Ensemble, lightgbm
from gangline.forecast.errors import ModelError
from gangline.forecast.flavors import FlavorScale
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.runs import StartedRun

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Validation:
    """How the model did on the last runs before its training, which it has not seen. Errors are of log seconds."""

    runs: int
    first: float  #: submission of the first of them, Unix seconds
    last: float
    error: float  #: mean absolute log error of the median
    last_two: float  #: the same of the last-two estimate, on the same runs

    @property
    def worse(self) -> bool:
        return self.error > self.last_two


@dataclass(frozen=True, slots=True)
class Model:
    ensemble: Ensemble  #: one booster per level of LEVELS
    columns: tuple[int, ...]  #: which of features.NAMES they use
    scale: FlavorScale
    trained_at: float  #: Unix seconds: nothing that came later was seen
    samples: int  #: finished runs it was trained on
    hints: int  #: of them with a hint
    limits: int  #: of them with a limit
    validation: Validation | None
    seeds: tuple[StartedRun, ...] = field(repr=False, default=())  #: unseen runs with what was forecast for them

    def predict(self, matrix: NDArray[np.float32] | Sequence[Sequence[float]]) -> NDArray[np.float64]:
        """Log seconds on the average flavor, not yet calibrated: one row per row of `matrix`, one column per level, rising."""
        used = np.asarray(matrix, dtype=np.float32)[:, list(self.columns)]
        return np.sort(self.ensemble.predict(used), axis=1)

    def save(self, path: Path) -> None:
        """Write one file, whole or not at all. It is readable by this process's user alone: it tells who runs what."""
        files.write(path, gzip.compress(json.dumps(self._as_json()).encode(), compresslevel=5, mtime=0))

    def _as_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "features": features.VERSION,
            "levels": list(LEVELS),
            "boosters": [booster.model_to_string() for booster in self.ensemble.boosters],
            "columns": list(self.columns),
            "offsets": dict(self.scale.offsets),
            "trainedAt": self.trained_at,
            "samples": self.samples,
            "hints": self.hints,
            "limits": self.limits,
            "validation": asdict(self.validation) if self.validation else None,
            "seeds": [[r.uid, r.start, list(r.logs), r.finish, r.target, r.group] for r in self.seeds],
        }


def load(path: Path) -> Model:
    """A saved model. Raises ModelError naming the file where it is none, is damaged or of another version."""
    try:
        told = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        raise ModelError(f"{path}: no forecast model: {error}") from error
    if not isinstance(told, dict) or told.get("format") != _FORMAT or told.get("features") != features.VERSION:
        raise ModelError(f"{path}: made by another version of Gangline; train anew with `gangline forecast train`")
    if told.get("levels") != list(LEVELS):
        raise ModelError(f"{path}: has quantiles {told.get('levels')}, not {list(LEVELS)}; train anew")
    try:
        return _from_json(told)
    except (KeyError, TypeError, ValueError, lightgbm.basic.LightGBMError) as error:
        raise ModelError(f"{path}: damaged: {error}") from error


def _from_json(told: Mapping[str, Any]) -> Model:
    return Model(
        ensemble=Ensemble(tuple(lightgbm.Booster(model_str=text) for text in told["boosters"])),
        columns=tuple(told["columns"]),
        scale=FlavorScale({str(k): float(v) for k, v in told["offsets"].items()}),
        trained_at=float(told["trainedAt"]),
        samples=int(told["samples"]),
        hints=int(told["hints"]),
        limits=int(told["limits"]),
        validation=Validation(**told["validation"]) if told["validation"] else None,
        seeds=tuple(StartedRun(uid, at, tuple(logs), *rest) for uid, at, logs, *rest in told["seeds"]),
    )
