"""The model: one LightGBM booster per quantile, on log seconds on the average flavor. It is stored in one file."""

from __future__ import annotations

import ctypes
import gzip
import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gangline import files
from gangline.forecast.errors import ModelError
from gangline.forecast.history.runs import StartedRun
from gangline.forecast.learning.guard import Validation
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.tracking import features
from gangline.forecast.tracking.flavors import FlavorScale

# --- boosting ---------------------------------------------------------------------------------------------------------
#
# Imports LightGBM, with a readable error if a library is missing; and ensembles of boosters for many rows or few.
#
# LightGBM's own `predict` repeats its set-up in every call, which costs several times the evaluation of a single row. Its C
# library has functions for single rows that keep the set-up; they give the same numbers. One call for all boosters costs
# little more than one for each.


try:
    import lightgbm as lightgbm
    from lightgbm.libpath import _LIB  # the C library, whose interface is public
except OSError as error:
    raise ImportError(
        "forecast models need LightGBM, and that needs libgomp.so.1, which this machine lacks "
        f"(Debian, Ubuntu: apt-get install libgomp1): {error}"
    ) from error

#: up to this number of rows are predicted one by one
_FEW: Final = 8
# constants of LightGBM's C interface
_NORMAL: Final = ctypes.c_int(0)
_FIRST: Final = ctypes.c_int(0)
_ALL: Final = ctypes.c_int(-1)
_FLOAT32: Final = ctypes.c_int(0)
_ONE_THREAD: Final = b"num_threads=1"

# of LightGBM's text of a model: lines of its header that differ for merged boosters, and a tree that adds nothing
_REPLACED: Final = ("num_class=", "num_tree_per_iteration=", "objective=", "tree_sizes=")
_NOTHING: Final = "num_leaves=1\nnum_cat=0\nleaf_value=0\nis_linear=0\nshrinkage=1"


class Ensemble:
    """Boosters on the same columns, evaluated together: as one booster with a tree of each of them per round."""

    def __init__(self, boosters: tuple[lightgbm.Booster, ...]) -> None:
        self.boosters = boosters
        self._merged: lightgbm.Booster | None = None
        self._prepared: _Prepared | None = None

    def __reduce__(self) -> tuple[type[Ensemble], tuple[tuple[lightgbm.Booster, ...]]]:
        return Ensemble, (self.boosters,)  # prepared state can't be pickled

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """One row per row of `matrix`, one column per booster. Raises LightGBMError for a wrong number of columns."""
        rows = np.ascontiguousarray(matrix, dtype=np.float32)
        if self._merged is None:
            self._merged = _merged(self.boosters)
        if len(rows) > _FEW:
            answers = np.asarray(self._merged.predict(rows, num_threads=1), np.float64)
            return answers.reshape(len(rows), len(self.boosters))
        if self._prepared is None:
            self._prepared = _Prepared(self._merged, len(self.boosters))
        prepared = self._prepared
        return np.array([prepared.predict(row) for row in rows], np.float64).reshape(len(rows), len(self.boosters))


def _merged(boosters: tuple[lightgbm.Booster, ...]) -> lightgbm.Booster:
    """One booster with an output per booster: the same trees, and the same sums."""
    header, first = _parts(boosters[0])
    trees = [first, *(_parts(booster)[1] for booster in boosters[1:])]
    rounds = max(map(len, trees))
    one = [line for line in header if not line.startswith(_REPLACED)]
    one[2:2] = [f"num_class={len(trees)}", f"num_tree_per_iteration={len(trees)}"]
    body = [(each[number] if number < len(each) else _NOTHING) for number in range(rounds) for each in trees]
    numbered = [f"Tree={number}\n{tree}\n\n" for number, tree in enumerate(body)]
    return lightgbm.Booster(model_str="\n".join(one) + "\n\n" + "".join(numbered) + "end of trees\n")


def _parts(booster: lightgbm.Booster) -> tuple[list[str], list[str]]:
    """The lines of a model's header, and its trees without their numbers."""
    text = booster.model_to_string()
    header, *trees = text[: text.index("end of trees")].split("Tree=")
    return header.strip().split("\n"), [tree.partition("\n")[2].strip() for tree in trees]


class _Prepared:
    """A booster prepared for fast predictions of single rows."""

    def __init__(self, booster: lightgbm.Booster, outputs: int) -> None:
        self._booster = booster  # must outlive the prepared state
        self._columns = booster.num_feature()
        self._answer = ctypes.c_double * outputs
        self._config = ctypes.c_void_p()
        handle = booster._handle
        _checked(
            _LIB.LGBM_BoosterPredictForMatSingleRowFastInit(
                handle, _NORMAL, _FIRST, _ALL, _FLOAT32, ctypes.c_int32(self._columns), _ONE_THREAD,
                ctypes.byref(self._config),
            )
        )  # fmt: skip
        weakref.finalize(self, _LIB.LGBM_FastConfigFree, self._config)

    def predict(self, row: NDArray[np.float32]) -> list[float]:
        """The answer of every output."""
        if len(row) != self._columns:
            raise lightgbm.basic.LightGBMError(f"a row of {len(row)} columns for a booster of {self._columns}")
        answer, length = self._answer(), ctypes.c_int64()  # per call: other threads may predict at the same time
        data = ctypes.c_void_p(row.ctypes.data)
        _checked(
            _LIB.LGBM_BoosterPredictForMatSingleRowFast(self._config, data, ctypes.byref(length), ctypes.byref(answer))
        )
        return list(answer)


def _checked(code: int) -> None:
    if code != 0:
        raise lightgbm.basic.LightGBMError(_LIB.LGBM_GetLastError().decode())


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
