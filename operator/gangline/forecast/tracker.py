"""What is known at an instant: runs are submitted, start and finish, and the classes they belong to remember it.

Facts arrive in the order of time. What a run's feature vector holds was known when it was taken: only runs that had finished by
then count, and of running ones only how long they have run.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.forecast import stats
from gangline.forecast.flavors import FlavorScale
from gangline.forecast.keys import CLASSES, KEYS, Key, keys_of
from gangline.forecast.runs import Run
from gangline.forecast.stats import ClassStats

MAX_CLASSES: Final = 20_000  # classes remembered per key; the longest unused go first
_KEY_NAMES: Final = tuple(KEYS)
_RATIOS: Final = ("hint", "limit")
#: An author's hints are corrected by how much longer than said the author's runs took, as if so many runs had been right …
_DOUBT: Final = 3.0
_KNOWN: Final = 3
#: … and by so many times what the errors (in logs) scatter beyond this, 0.7 being a factor of two
_WARINESS, _USUAL_SCATTER = 3.0, 1.0
#: seconds after which what was said and ran counts half
_HALF_LIFE: Final = 86_400.0


@dataclass(slots=True)
class _Word:
    """What an author's hints were worth: log(runtime / hint) of the last runs; the seconds that all ran and were said, fading.

    Seconds count, since an author who is right about a hundred short runs may be wrong about the long one that matters.
    """

    ratios: ClassStats = field(default_factory=ClassStats)
    ran: float = 0.0
    said: float = 0.0
    _at: float = 0.0

    def finished(self, uid: str, at: float, seconds: float, hint: float) -> None:
        faded = 0.5 ** (max(0.0, at - self._at) / _HALF_LIFE)
        self.ran, self.said = self.ran * faded + seconds, self.said * faded + hint
        self._at = max(self._at, at)
        self.ratios.finished(uid, at, math.log(seconds / hint))

    def correction(self) -> float:
        """What to add to the logarithm of a hint: by the sums or, sooner, by the last runs, and more where these scatter."""
        scatter = max(0.0, math.sqrt(self.ratios.variance) - _USUAL_SCATTER)
        share = self.ratios.remembered / (self.ratios.remembered + _DOUBT)
        return share * (max(math.log(self.ran / self.said), self.ratios.mean) + _WARINESS * scatter)


@dataclass(slots=True)
class _Open:
    """A run that has not ended: what is told of it, its keys, and what became of it since."""

    run: Run
    keys: list[Key]
    start: float | None = None
    flavor: str = ""


class Tracker:
    """The history of all classes, and the runs that have not ended."""

    def __init__(self, scale: FlavorScale | None = None, max_classes: int = MAX_CLASSES) -> None:
        self._scale = scale or FlavorScale()
        self._max = max_classes
        self._classes: tuple[OrderedDict[Key, ClassStats], ...] = tuple(OrderedDict() for _ in KEYS)
        self._open: dict[str, _Open] = {}
        self._asked: tuple[Run | None, list[Key]] = (None, [])
        #: how much longer than said runs took, in logs: by what was said, for one owner and for all
        self._ratios: dict[tuple[str, Key], ClassStats] = {}
        self._words: OrderedDict[Key, _Word] = OrderedDict()

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
        known = self._open.get(uid)
        return None if known is None else replace(known.run, start=known.start, finish=None, flavor=known.flavor)

    # --- facts --------------------------------------------------------------------------------------------------------

    def submitted(self, run: Run) -> None:
        """A run exists; its start and finish are told apart. Told twice, the second says what has changed of it."""
        if (known := self._open.get(run.uid)) is not None:
            self._changed(known, run)
            return
        keys = self._keys(run)
        self._open[run.uid] = _Open(run, keys, flavor=run.flavor)
        for entry in self._entries(keys):
            entry.submitted(run.uid, run.submit)

    def _changed(self, known: _Open, run: Run) -> None:
        known.run = run
        if (keys := self._keys(run)) == known.keys:
            return
        self._withdraw(known)
        known.keys = keys
        if known.start is not None:
            for entry in self._entries(keys):
                entry.started(run.uid, known.start)

    def started(self, uid: str, at: float, flavor: str = "") -> None:
        """It runs since `at`, on `flavor`. A run that is not known is not counted."""
        known = self._open.get(uid)
        if known is None:
            return
        known.start, known.flavor = at, flavor or known.flavor
        for entry in self._entries(known.keys):
            entry.started(uid, at)

    def stopped(self, uid: str) -> None:
        """It was preempted or evicted: it waits again, and its time so far teaches nothing."""
        if (known := self._open.get(uid)) is not None:
            self._withdraw(known)
            known.start = None

    def finished(self, uid: str, at: float) -> Run | None:
        """It ended at `at`: its runtime counts from now on. Returns the run, or None where it had never started."""
        known = self._open.pop(uid, None)
        if known is None or known.start is None:
            return None
        run = replace(known.run, start=known.start, finish=max(at, known.start), flavor=known.flavor)
        log = run.log_seconds - self._scale.offset(run.flavor)
        for entry in self._entries(known.keys):
            entry.finished(uid, at, log)
        self._learn_ratios(run)
        return run

    def forget(self, uid: str) -> None:
        """It is gone without having finished."""
        if (known := self._open.pop(uid, None)) is not None:
            self._withdraw(known)

    def _withdraw(self, known: _Open) -> None:
        for entry in self._entries(known.keys):
            entry.stopped(known.run.uid)

    def _keys(self, run: Run) -> list[Key]:
        """keys_of, remembered for the run that was asked for last: it is looked at and then submitted."""
        if run is not self._asked[0]:
            self._asked = (run, keys_of(run))
        return self._asked[1]

    def _entries(self, keys: list[Key]) -> list[ClassStats]:
        return [self._entry(column, key) for column, key in enumerate(keys) if key is not None]

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
        for classes, key in zip(self._classes, self._keys(run), strict=True):
            entry = classes.get(key) if key is not None else None
            values += entry.columns(now) if entry is not None else stats.empty()
        return values

    def stats(self, run: Run) -> Mapping[str, ClassStats]:
        """The classes of a run that have finished runs, by key name."""
        found: dict[str, ClassStats] = {}
        for name, classes, key in zip(_KEY_NAMES, self._classes, self._keys(run), strict=True):
            entry = classes.get(key) if key is not None else None
            if entry is not None and entry.count:
                found[name] = entry
        return found

    def class_of(self, run: Run, at_least: int = 1) -> tuple[str, ClassStats] | None:
        """The finest class of a run with that many finished runs."""
        found = self.stats(run)
        return next(((n, found[n]) for n in CLASSES if n in found and found[n].remembered >= at_least), None)

    def everything(self) -> ClassStats | None:
        """The history of all runs, if any has been seen."""
        return self._classes[_KEY_NAMES.index("all")].get("")

    def ratio(self, said: str, run: Run) -> ClassStats | None:
        """log(runtime / what was said) of finished runs: the author's if there are some, else the namespace's or everyone's."""
        entries = (self._ratios.get((said, owner)) for owner in _owners(run))
        return next((entry for entry in entries if entry is not None and entry.remembered >= 3), None)

    def believed(self, run: Run) -> float:
        """The hint in log seconds, as its author is to be understood; NaN where there is none.

        A user label can be chosen anew for every job, a namespace can't: an author without a past is taken for the namespace.
        """
        if not run.hint:
            return math.nan
        words = (self._words.get(owner) for owner in _owners(run)[:2])
        past = next((word for word in words if word is not None and word.ratios.remembered >= _KNOWN), None)
        return math.log(run.hint) + (past.correction() if past is not None else 0.0)

    def _learn_ratios(self, run: Run) -> None:
        if run.hint:
            for owner in _owners(run)[:2]:
                word = self._words.setdefault(owner, _Word())
                self._words.move_to_end(owner)
                word.finished(run.uid, run.finish or 0.0, math.exp(run.log_seconds), run.hint)
            while len(self._words) > self._max:
                self._words.popitem(last=False)
        for said, value in zip(_RATIOS, (run.hint, run.limit), strict=True):
            if value:
                for owner in _owners(run):
                    entry = self._ratios.get((said, owner))
                    if entry is None:
                        entry = self._ratios[said, owner] = ClassStats()
                        if len(self._ratios) > self._max:
                            del self._ratios[next(iter(self._ratios))]
                    entry.finished(run.uid, run.finish or 0.0, run.log_seconds - math.log(value))


def _owners(run: Run) -> tuple[Key, Key, None]:
    """Of whom is remembered how wrong they were: the author, all of the namespace, everyone."""
    return (run.namespace, run.user), (run.namespace,), None
