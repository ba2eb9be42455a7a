"""Imports LightGBM, with a readable error if a library is missing; and ensembles of boosters for many rows or few.

LightGBM's own `predict` repeats its set-up in every call, which costs several times the evaluation of a single row. Its C
library has functions for single rows that keep the set-up; they give the same numbers. One call for all boosters costs little
more than one for each.
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
        handle = booster._handle  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
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
