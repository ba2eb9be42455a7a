"""The model: one LightGBM booster per quantile, on log seconds on the average flavor. It is stored in one file."""

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
from gangline.forecast.errors import ModelError
from gangline.forecast.history.runs import StartedRun
from gangline.forecast.learning.boosting import Ensemble, lightgbm
from gangline.forecast.learning.guard import Validation
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.tracking import features
from gangline.forecast.tracking.flavors import FlavorScale

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class QuantileModel:
    ensemble: Ensemble  #: one booster per level of LEVELS
    columns: tuple[int, ...]  #: indices of the features.NAMES that the boosters use
    scale: FlavorScale
    trained_at: float  #: Unix seconds: nothing later was used in training
    samples: int  #: finished training runs
    hints: int  #: training runs with a hint
    limits: int  #: training runs with a limit
    validation: Validation | None
    seeds: tuple[StartedRun, ...] = field(repr=False, default=())  #: held-out runs with their predictions

    def predict(self, matrix: NDArray[np.float32] | Sequence[Sequence[float]]) -> NDArray[np.float64]:
        """Log seconds on the average flavor, not yet calibrated: one row per row of `matrix`, one ascending column per level."""
        used = np.asarray(matrix, dtype=np.float32)[:, list(self.columns)]
        return np.sort(self.ensemble.predict(used), axis=1)

    def save(self, path: Path) -> None:
        """Write the file atomically. Only this process's user can read it, because it contains users' job data."""
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


#: bytes of a model, unpacked; one of a hundred thousand runs has five million
MOST_BYTES: Final = 256 * 2**20


def load(path: Path) -> QuantileModel:
    """Load a model. Raises ModelError, which names the file, if it is not a model, damaged or of another version."""
    try:
        body = json.loads(files.read_bytes(path, most=MOST_BYTES, unpack=True))
    except (OSError, EOFError, ValueError) as error:
        raise ModelError(f"{path}: not a forecast model: {error}") from error
    if not isinstance(body, dict) or body.get("format") != _FORMAT or body.get("features") != features.VERSION:
        raise ModelError(f"{path}: made by another version of Gangline; retrain with `gangline admin forecast train`")
    if body.get("levels") != list(LEVELS):
        raise ModelError(f"{path}: has quantiles {body.get('levels')}, not {list(LEVELS)}; retrain")
    try:
        return _from_json(body)
    except (KeyError, TypeError, ValueError, lightgbm.basic.LightGBMError) as error:
        raise ModelError(f"{path}: damaged: {error}") from error


def _from_json(body: Mapping[str, Any]) -> QuantileModel:
    return QuantileModel(
        ensemble=Ensemble(tuple(lightgbm.Booster(model_str=text) for text in body["boosters"])),
        columns=tuple(body["columns"]),
        scale=FlavorScale({str(k): float(v) for k, v in body["offsets"].items()}),
        trained_at=float(body["trainedAt"]),
        samples=int(body["samples"]),
        hints=int(body["hints"]),
        limits=int(body["limits"]),
        validation=Validation(**body["validation"]) if body["validation"] else None,
        seeds=tuple(StartedRun(uid, at, tuple(logs), *rest) for uid, at, logs, *rest in body["seeds"]),
    )
