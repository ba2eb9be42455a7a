"""What is known at an instant: runs are submitted, start and finish, and the classes they belong to remember it.

Facts arrive in the order of time. What a run's feature vector holds was known when it was taken: only runs that had finished by
then count, and of running ones only how long they have run.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gangline.forecast import stats
from gangline.forecast.flavors import FlavorScale
from gangline.forecast.keys import CLASSES, KEYS, Key, keys_of
from gangline.forecast.runs import Run
from gangline.forecast.stats import ClassStats

MAX_CLASSES: Final = 20_000  # classes remembered per key; the longest unused go first
_KEY_NAMES: Final = tuple(KEYS)
_RATIOS: Final = ("hint", "limit")


class Tracker:
    """The history of all classes, and the runs that have not ended."""

    def __init__(self, scale: FlavorScale | None = None, max_classes: int = MAX_CLASSES) -> None:
        self._scale = scale or FlavorScale()
        self._max = max_classes
        self._classes: tuple[OrderedDict[Key, ClassStats], ...] = tuple(OrderedDict() for _ in KEYS)
        self._open: dict[str, tuple[Run, list[Key]]] = {}
        #: how much longer than said runs took, in logs: by what was said, for one owner and for all
        self._ratios: dict[tuple[str, Key], ClassStats] = {}

    @property
    def scale(self) -> FlavorScale:
        return self._scale

    def rescale(self, scale: FlavorScale) -> None:
        """Use other ratios between flavors from now on; what has been observed stays as it was taken."""
        self._scale = scale

    def __contains__(self, uid: str) -> bool:
        return uid in self._open

    def run(self, uid: str) -> Run | None:
        """The run as it is known, if it has not ended."""
        found = self._open.get(uid)
        return found[0] if found else None

    # --- facts --------------------------------------------------------------------------------------------------------

    def submitted(self, run: Run) -> None:
        """A run exists; told twice, the second says what has changed of it."""
        known = self._open.get(run.uid)
        keys = keys_of(run)
        if known is not None:
            self._withdraw(run.uid, known[1])
            run = replace(run, start=known[0].start)
        self._open[run.uid] = (run, keys)
        for column, key in enumerate(keys):
            if key is not None:
                entry = self._entry(column, key)
                if known is None:
                    entry.submitted(run.uid, run.submit)
                if run.start is not None and known is not None:
                    entry.started(run.uid, run.start)

    def started(self, uid: str, at: float, flavor: str = "") -> None:
        """It runs since `at`, on `flavor`. A run that is not known is not counted."""
        known = self._open.get(uid)
        if known is None:
            return
        run, keys = known
        self._open[uid] = (replace(run, start=at, flavor=flavor or run.flavor), keys)
        for column, key in enumerate(keys):
            if key is not None:
                self._entry(column, key).started(uid, at)

    def stopped(self, uid: str) -> None:
        """It was preempted or evicted: it waits again, and its time so far teaches nothing."""
        known = self._open.get(uid)
        if known is None:
            return
        run, keys = known
        self._withdraw(uid, keys)
        self._open[uid] = (replace(run, start=None), keys)

    def finished(self, uid: str, at: float) -> Run | None:
        """It ended at `at`: its runtime counts from now on. Returns the run, or None where it had never started."""
        known = self._open.pop(uid, None)
        if known is None:
            return None
        run, keys = known
        if run.start is None:
            return None
        run = replace(run, finish=max(at, run.start))
        log = run.log_seconds - self._scale.offset(run.flavor)
        for column, key in enumerate(keys):
            if key is not None:
                self._entry(column, key).finished(uid, at, log)
        self._learn_ratios(run)
        return run

    def forget(self, uid: str) -> None:
        """It is gone without having finished."""
        known = self._open.pop(uid, None)
        if known is not None:
            self._withdraw(uid, known[1])

    def _withdraw(self, uid: str, keys: list[Key]) -> None:
        for column, key in enumerate(keys):
            if key is not None and (entry := self._classes[column].get(key)) is not None:
                entry.stopped(uid)

    def _entry(self, column: int, key: Key) -> ClassStats:
        classes = self._classes[column]
        entry = classes.get(key)
        if entry is None:
            entry = classes[key] = ClassStats()
            if len(classes) > self._max:
                classes.popitem(last=False)
        else:
            classes.move_to_end(key)
        return entry

    # --- what is known ------------------------------------------------------------------------------------------------

    def columns(self, run: Run, now: float) -> list[float]:
        """What the classes of a run know at `now`: stats.COLUMNS for each of KEYS, one after the other."""
        values: list[float] = []
        for classes, key in zip(self._classes, keys_of(run), strict=True):
            entry = classes.get(key) if key is not None else None
            values += entry.columns(now) if entry is not None else stats.empty()
        return values

    def stats(self, run: Run) -> Mapping[str, ClassStats]:
        """The classes of a run that have finished runs, by key name."""
        found: dict[str, ClassStats] = {}
        for name, classes, key in zip(_KEY_NAMES, self._classes, keys_of(run), strict=True):
            entry = classes.get(key) if key is not None else None
            if entry is not None and entry.count:
                found[name] = entry
        return found

    def class_of(self, run: Run, at_least: int = 1) -> tuple[str, ClassStats] | None:
        """The finest class of a run with that many finished runs."""
        found = self.stats(run)
        return next(((n, found[n]) for n in CLASSES if n in found and found[n].remembered >= at_least), None)

    def ratio(self, said: str, run: Run) -> ClassStats | None:
        """log(runtime / what was said) of finished runs: the owner's where there are some, else everyone's."""
        for owner in ((run.namespace, run.user), None):
            entry = self._ratios.get((said, owner))
            if entry is not None and entry.remembered >= 3:
                return entry
        return None

    def _learn_ratios(self, run: Run) -> None:
        for said, value in zip(_RATIOS, (run.hint, run.limit), strict=True):
            if value:
                for owner in ((run.namespace, run.user), None):
                    entry = self._ratios.setdefault((said, owner), ClassStats())
                    entry.finished(run.uid, run.finish or 0.0, run.log_seconds - math.log(value))
