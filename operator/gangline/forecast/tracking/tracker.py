"""Class statistics and open runs, updated as runs are submitted, start and finish.

Facts arrive in time order. A run's feature vector contains only what was known when it was computed: finished runs, and the
elapsed runtimes of running ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.forecast.history.keys import CLASSES, KEYS, OWN, Key, keys_of
from gangline.forecast.history.runs import Run
from gangline.forecast.tracking import stats
from gangline.forecast.tracking.flavors import FlavorScale
from gangline.forecast.tracking.stats import ClassStats
from gangline.forecast.tracking.survival import Curve, Survival
from gangline.tenants import SharedRoom

#: classes kept per key; of the namespace with most of them, the least recently used ones are dropped first
MAX_CLASSES: Final = 20_000
_KEY_NAMES: Final = tuple(KEYS)
_OWN: Final = tuple(name in OWN for name in KEYS)
_RATIOS: Final = ("hint", "limit")
#: An author's hints are corrected by the ratio of runtimes to hints, shrunk as if this many runs had matched their hints, …
_DOUBT: Final = 3.0
_KNOWN: Final = 3
#: … plus _WARINESS times the standard deviation of the log errors in excess of _USUAL_SCATTER (0.7 is a factor of two)
_WARINESS, _USUAL_SCATTER = 3.0, 1.0
#: seconds after which the weight of hints and runtimes is halved
_HALF_LIFE: Final = 86_400.0


@dataclass(slots=True)
class _HintRecord:
    """Accuracy of an author's hints: log(runtime / hint) of the last runs, and decaying sums of runtimes and hints in seconds.

    The sums give long runs more weight: hints may be right for a hundred short runs and wrong for the long one that matters.
    """

    ratios: ClassStats = field(default_factory=ClassStats)
    ran: float = 0.0
    hinted: float = 0.0
    _at: float = 0.0

    def finished(self, uid: str, at: float, seconds: float, hint: float) -> None:
        faded = 0.5 ** (max(0.0, at - self._at) / _HALF_LIFE)
        self.ran, self.hinted = self.ran * faded + seconds, self.hinted * faded + hint
        self._at = max(self._at, at)
        self.ratios.finished(uid, at, math.log(seconds / hint))

    def correction(self) -> float:
        """Correction of a log hint: the larger of the ratio of sums and the mean of the last runs, plus a term for scatter."""
        scatter = max(0.0, math.sqrt(self.ratios.variance) - _USUAL_SCATTER)
        share = self.ratios.remembered / (self.ratios.remembered + _DOUBT)
        return share * (max(math.log(self.ran / self.hinted), self.ratios.mean) + _WARINESS * scatter)


@dataclass(slots=True)
class _Open:
    """A run that has not ended: its attributes, keys, start and flavor."""

    run: Run
    keys: list[Key]
    start: float | None = None
    flavor: str = ""
    _shown: Run | None = None

    def show(self) -> Run:
        """The run with its present start and flavor."""
        shown = self._shown
        if shown is None or shown.start != self.start or shown.flavor != self.flavor:
            shown = self._shown = replace(self.run, start=self.start, finish=None, flavor=self.flavor)
        return shown

    def change(self, run: Run) -> None:
        self.run, self._shown = run, None


class Tracker:
    """The history of all classes, and the runs that have not ended."""

    def __init__(self, scale: FlavorScale | None = None, max_classes: int = MAX_CLASSES) -> None:
        self._scale = scale or FlavorScale()
        self._classes: tuple[SharedRoom[Key, ClassStats], ...] = tuple(SharedRoom(max_classes) for _ in KEYS)
        self._open: dict[str, _Open] = {}
        self._asked: tuple[Run | None, list[Key]] = (None, [])
        #: `stats` of the run that was asked for last, until something happens
        self._found: tuple[Run | None, Mapping[str, ClassStats]] = (None, {})
        #: log(runtime / hint) and log(runtime / limit), by ("hint" or "limit", owner)
        self._ratios: SharedRoom[tuple[str, Key], ClassStats] = SharedRoom(max_classes)
        self._ratios_of_all: dict[str, ClassStats] = {}
        self._hint_records: SharedRoom[Key, _HintRecord] = SharedRoom(max_classes)
        self._survival = Survival()

    @property
    def scale(self) -> FlavorScale:
        return self._scale

    def rescale(self, scale: FlavorScale) -> None:
        """Use other flavor offsets from now on; recorded statistics are not changed."""
        self._scale = scale

    def __contains__(self, uid: str) -> bool:
        return uid in self._open

    def run(self, uid: str) -> Run | None:
        """The open run with its current start and flavor; None if unknown."""
        known = self._open.get(uid)
        return None if known is None else known.show()

    # --- facts --------------------------------------------------------------------------------------------------------

    def submitted(self, run: Run) -> None:
        """Add a run; its start and finish are reported separately. A repeated call updates its attributes."""
        if (known := self._open.get(run.uid)) is not None:
            self._changed(known, run)
            return
        keys = self._keys(run)
        self._open[run.uid] = _Open(run, keys, flavor=run.flavor)
        for entry in self._entries(run, keys):
            entry.submitted(run.uid, run.submit)

    def _changed(self, known: _Open, run: Run) -> None:
        known.change(run)
        if (keys := self._keys(run)) == known.keys:
            return
        self._withdraw(known)
        known.keys = keys
        if known.start is not None:
            for entry in self._entries(run, keys):
                entry.started(run.uid, known.start)

    def started(self, uid: str, at: float, flavor: str = "") -> None:
        """The run started at `at`, on `flavor`. An unknown run is ignored."""
        known = self._open.get(uid)
        if known is None:
            return
        known.start, known.flavor = at, flavor or known.flavor
        for entry in self._entries(known.run, known.keys):
            entry.started(uid, at)

    def stopped(self, uid: str) -> None:
        """The run was preempted or evicted and is pending again; its elapsed runtime is not used."""
        if (known := self._open.get(uid)) is not None:
            self._withdraw(known)
            known.start = None

    def finished(self, uid: str, at: float) -> Run | None:
        """The run ended at `at`; its runtime is added to the statistics. Returns the run, or None if it never started."""
        known = self._open.pop(uid, None)
        if known is None or known.start is None:
            return None
        run = replace(known.run, start=known.start, finish=max(at, known.start), flavor=known.flavor)
        log = run.log_seconds - self._scale.offset(run.flavor)
        for entry in self._entries(known.run, known.keys):
            entry.finished(uid, at, log)
        self._survival.finished(at, math.exp(log), run.namespace)
        self._learn_ratios(run)
        return run

    def forget(self, uid: str) -> None:
        """The run was deleted before it finished."""
        if (known := self._open.pop(uid, None)) is not None:
            self._withdraw(known)

    def _withdraw(self, known: _Open) -> None:
        for entry in self._entries(known.run, known.keys):
            entry.stopped(known.run.uid)

    def _keys(self, run: Run) -> list[Key]:
        """keys_of, cached for the last run: its features are computed right before it is submitted."""
        if run is not self._asked[0]:
            self._asked = (run, keys_of(run))
        return self._asked[1]

    def _entries(self, run: Run, keys: list[Key]) -> list[ClassStats]:
        self._found = None, {}
        return [
            classes.use(run.namespace if own else "", key, ClassStats)
            for classes, own, key in zip(self._classes, _OWN, keys, strict=True)
            if key is not None
        ]

    def _found_entries(self, run: Run) -> list[ClassStats | None]:
        return [
            classes.get(run.namespace if own else "", key) if key is not None else None
            for classes, own, key in zip(self._classes, _OWN, self._keys(run), strict=True)
        ]

    # --- statistics ---------------------------------------------------------------------------------------------------

    def columns(self, run: Run, now: float) -> list[float]:
        """The statistics of a run's classes at `now`: stats.COLUMNS for each of KEYS, concatenated."""
        values: list[float] = []
        for entry in self._found_entries(run):
            values += entry.columns(now) if entry is not None else stats.empty()
        return values

    def stats(self, run: Run) -> Mapping[str, ClassStats]:
        """The classes of a run that have finished runs, by key name."""
        if run is self._found[0]:
            return self._found[1]
        found: dict[str, ClassStats] = {}
        for name, entry in zip(_KEY_NAMES, self._found_entries(run), strict=True):
            if entry is not None and entry.count:
                found[name] = entry
        self._found = run, found
        return found

    def class_of(self, run: Run, at_least: int = 1) -> tuple[str, ClassStats] | None:
        """The most specific class of a run with at least `at_least` finished runs."""
        found = self.stats(run)
        return next(((n, found[n]) for n in CLASSES if n in found and found[n].remembered >= at_least), None)

    def everything(self) -> ClassStats | None:
        """The statistics of all runs, or None without any."""
        return self._classes[_KEY_NAMES.index("all")].get("", "")

    def survival(self, now: float) -> Curve:
        """Which share of all runs outlives a time (on the average flavor), about as of `now`."""
        if self._survival.outdated(now):
            self._survival.renew(now, self._ages(now))
        return self._survival.curve

    def _ages(self, now: float) -> Iterator[tuple[str, float]]:
        """The ages of running runs, each with its namespace."""
        for known in self._open.values():
            if known.start is not None:
                age = max(0.0, now - known.start) * math.exp(-self._scale.offset(known.flavor))
                yield known.run.namespace, age

    def ratio(self, kind: str, run: Run) -> ClassStats | None:
        """log(runtime / hint) or log(runtime / limit) of finished runs: the author's, else the namespace's, else of all runs."""
        entries = (*self._own_ratios(kind, run), self._ratios_of_all.get(kind))
        return next((entry for entry in entries if entry is not None and entry.remembered >= 3), None)

    def own_ratio(self, kind: str, run: Run) -> ClassStats | None:
        """The same of the author's runs, or of the namespace's, never of all runs."""
        entries = self._own_ratios(kind, run)
        return next((entry for entry in entries if entry is not None and entry.remembered >= 3), None)

    def _own_ratios(self, kind: str, run: Run) -> tuple[ClassStats | None, ...]:
        return tuple(self._ratios.get(run.namespace, (kind, owner)) for owner in _owners(run))

    def believed(self, run: Run) -> float:
        """The corrected hint in log seconds; NaN without a hint.

        A user label can be chosen anew for every job, a namespace can't: authors without history get the namespace's correction.
        """
        if not run.hint:
            return math.nan
        records = (self._hint_records.get(run.namespace, owner) for owner in _owners(run))
        past = next((record for record in records if record is not None and record.ratios.remembered >= _KNOWN), None)
        return math.log(run.hint) + (past.correction() if past is not None else 0.0)

    def _learn_ratios(self, run: Run) -> None:
        if run.hint:
            for owner in _owners(run):
                record = self._hint_records.use(run.namespace, owner, _HintRecord)
                record.finished(run.uid, run.finish or 0.0, math.exp(run.log_seconds), run.hint)
        for kind, value in zip(_RATIOS, (run.hint, run.limit), strict=True):
            if value:
                of_all = self._ratios_of_all.setdefault(kind, ClassStats())
                own = [self._ratios.use(run.namespace, (kind, owner), ClassStats) for owner in _owners(run)]
                for entry in (*own, of_all):
                    entry.finished(run.uid, run.finish or 0.0, run.log_seconds - math.log(value))


def _owners(run: Run) -> tuple[Key, Key]:
    """The owners of hint statistics: the author and the namespace."""
    return (run.namespace, run.user), (run.namespace,)
