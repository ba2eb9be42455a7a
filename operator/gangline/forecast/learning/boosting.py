"""Imports LightGBM, with a readable error if a library is missing; and ensembles of boosters for many rows or few.

LightGBM's own `predict` repeats its set-up in every call, which costs several times the evaluation of a single row. Its C
library has functions for single rows that keep the set-up; they give the same numbers.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Final

import numpy as np
from numpy.typing import NDArray

try:
    import lightgbm as lightgbm
    from lightgbm.libpath import _LIB  # pyright: ignore[reportPrivateUsage]  # the C library, whose interface is public
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


class Ensemble:
    """Boosters on the same columns, evaluated together."""

    def __init__(self, boosters: tuple[lightgbm.Booster, ...]) -> None:
        self.boosters = boosters
        self._prepared: tuple[_Prepared, ...] | None = None

    def __reduce__(self) -> tuple[type[Ensemble], tuple[tuple[lightgbm.Booster, ...]]]:
        return Ensemble, (self.boosters,)  # prepared state can't be pickled

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """One row per row of `matrix`, one column per booster. Raises LightGBMError for a wrong number of columns."""
        rows = np.ascontiguousarray(matrix, dtype=np.float32)
        if len(rows) > _FEW:
            return np.column_stack([np.asarray(b.predict(rows, num_threads=1), np.float64) for b in self.boosters])
        if self._prepared is None:
            self._prepared = tuple(_Prepared(booster) for booster in self.boosters)
        answers = [one.predict(row) for row in rows for one in self._prepared]
        return np.array(answers, np.float64).reshape(len(rows), len(self.boosters))


class _Prepared:
    """A booster prepared for fast predictions of single rows."""

    def __init__(self, booster: lightgbm.Booster) -> None:
        self._booster = booster  # must outlive the prepared state
        self._columns = booster.num_feature()
        self._config = ctypes.c_void_p()
        handle = booster._handle  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
        _checked(
            _LIB.LGBM_BoosterPredictForMatSingleRowFastInit(
                handle, _NORMAL, _FIRST, _ALL, _FLOAT32, ctypes.c_int32(self._columns), _ONE_THREAD,
                ctypes.byref(self._config),
            )
        )  # fmt: skip
        weakref.finalize(self, _LIB.LGBM_FastConfigFree, self._config)

    def predict(self, row: NDArray[np.float32]) -> float:
        if len(row) != self._columns:
            raise lightgbm.basic.LightGBMError(f"a row of {len(row)} columns for a booster of {self._columns}")
        answer, length = ctypes.c_double(), ctypes.c_int64()  # per call: other threads may predict at the same time
        data = ctypes.c_void_p(row.ctypes.data)
        _checked(
            _LIB.LGBM_BoosterPredictForMatSingleRowFast(self._config, data, ctypes.byref(length), ctypes.byref(answer))
        )
        return answer.value


def _checked(code: int) -> None:
    if code != 0:
        raise lightgbm.basic.LightGBMError(_LIB.LGBM_GetLastError().decode())
