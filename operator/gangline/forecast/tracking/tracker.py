"""Class statistics and open runs, updated as runs are submitted, start and finish.

Facts arrive in time order. A run's feature vector contains only what was known when it was computed: finished runs, and the
elapsed runtimes of running ones.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from gangline.forecast.history.runs import CLASSES, KEYS, OWN, Key, Run, keys_of
from gangline.forecast.quantiles import LEVELS, TAIL_LEVELS
from gangline.forecast.tracking import stats
from gangline.forecast.tracking.flavors import FlavorRuns, FlavorScale, work_of
from gangline.forecast.tracking.stats import ClassStats
from gangline.tenants import SharedRoom, Sizes

# --- survival ---------------------------------------------------------------------------------------------------------
#
# How long runs last that have already lasted for long: which share of all runs outlives a time, as observed lately.
#
# A forecast says little about a run that has outlived its q95: its class does not tell how it differs from its likes. What
# tells is how long it has run, in comparison with all runs that lasted as long. Clusters differ there: in some a limit of days
# ends half of these runs, in others they go on for weeks.
#
# The share is the product-limit estimate (Kaplan and Meier, 1958) of a period life table: every run counts for the time of the
# last two weeks in which it ran, from the age that it had then, whether it ended or not. Times are seconds.
#
# Only so many ends are remembered. Beyond, the namespace with most of them loses its oldest one, and its runs count from then
# on: one that runs thousands of short jobs does not displace the long ones of others.


#: the period that is looked at, and the most runs that ended in it, of all namespaces
PERIOD: Final = 14 * 86_400.0
MOST: Final = 10_000
#: a curve ends where fewer runs than this have reached that age
LEAST: Final = 20
#: a curve is made again when so large a share of its runs has been replaced, or when it is a day old
_NEWS: Final = 0.1
_AT_MOST: Final = 86_400.0


class Spell(NamedTuple):
    """The ages between which a run was observed, and whether it ended then."""

    entry: float
    exit: float
    ended: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """`shares[i]` of all runs outlive `times[i]`; both in order of time. Nothing is known of ages beyond `known`."""

    times: Sequence[float] = ()
    shares: Sequence[float] = ()
    known: float = 0.0

    def share(self, seconds: float) -> float:
        """The share of all runs that lasts longer."""
        place = bisect_right(self.times, seconds)
        return self.shares[place - 1] if place else 1.0

    def tail(self, q95: float) -> tuple[float, ...]:
        """Runtimes at TAIL_LEVELS of a run whose q95 is this; fewer, or none, where they are not known."""
        beyond = self.share(q95) / (1.0 - LEVELS[-1])
        if q95 >= self.known or not beyond:
            return ()
        found: list[float] = []
        for level in TAIL_LEVELS:
            place = bisect_left(self.shares, -beyond * (1.0 - level), key=_negative)
            if place == len(self.times):
                break
            found.append(max(q95, self.times[place]))
        return tuple(found)


def _negative(share: float) -> float:
    return -share


class Survival:
    """The runs that have ended lately, and the curve that they and the running ones make."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._ended: dict[str, deque[tuple[float, float]]] = {}  # by namespace, when and how long they had taken
        self._sizes = Sizes()
        self._full: set[str] = set()  # the namespaces of which ends were dropped that are not that old
        self._curve = Curve()
        self._at = -math.inf  # as of when the curve is
        self._news = 0  # runs that have ended since

    def finished(self, at: float, seconds: float, namespace: str = "") -> None:
        self._ended.setdefault(namespace, deque()).append((at, seconds))
        self._sizes.add(namespace)
        self._news += 1
        if self._sizes.total > self._most:
            largest = self._sizes.largest()
            self._full.add(largest)
            self._drop(largest)

    def _drop(self, namespace: str) -> None:
        ended = self._ended[namespace]
        ended.popleft()
        self._sizes.remove(namespace)
        if not ended:
            del self._ended[namespace]
            self._full.discard(namespace)

    def outdated(self, now: float) -> bool:
        """Whether the curve should be made again."""
        return not 0 <= now - self._at < _AT_MOST or self._news > _NEWS * self._sizes.total

    def renew(self, now: float, running: Iterable[tuple[str, float]]) -> None:
        """Make the curve as of `now`, with the namespaces and ages of all runs that are running then."""
        self._at, self._news = now, 0
        for namespace, ended in [*self._ended.items()]:
            while ended and ended[0][0] < now - PERIOD:
                self._drop(namespace)
        if not self._ended:
            self._curve = Curve()
            return
        first = min(ended[0][0] for ended in self._ended.values())  # of what ended before nothing is known
        firsts = {namespace: self._ended[namespace][0][0] for namespace in self._full}
        spells = [
            Spell(max(0.0, seconds - (at - firsts.get(namespace, first))), seconds, True)
            for namespace, ended in self._ended.items()
            for at, seconds in ended
        ]
        spells += [
            Spell(max(0.0, age - (now - firsts.get(namespace, first))), age, False) for namespace, age in running
        ]
        self._curve = product_limit(spells)

    @property
    def curve(self) -> Curve:
        return self._curve


def product_limit(spells: Sequence[Spell]) -> Curve:
    """The curve of runs that were observed so."""
    exits = sorted((spell for spell in spells if spell.entry < spell.exit), key=lambda spell: spell.exit)
    entries = sorted(spell.entry for spell in exits)
    times: list[float] = []
    shares: list[float] = []
    share, entered, number, known = 1.0, 0, 0, 0.0
    while number < len(exits):
        age, left, ends = exits[number].exit, number, 0
        while entered < len(entries) and entries[entered] < age:
            entered += 1
        while number < len(exits) and exits[number].exit == age:
            ends += exits[number].ended
            number += 1
        reached = entered - left
        if reached < LEAST:
            break
        known = age
        if ends:
            share *= max(0.0, 1.0 - ends / reached)
            times.append(age)
            shares.append(share)
    return Curve(times, shares, known)


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
#: finished runs from which on it is known how they keep their limits, and the share of them that the learned cap covers
_JUDGED: Final = 10
_NEARLY_ALL: Final = 0.95
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
        #: by the work that they did
        self._on_flavors: SharedRoom[Key, FlavorRuns] = SharedRoom(max_classes)

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
        if run.flavor and (work := work_of(run)) is not None:
            self._on_flavors.use(run.namespace, work, FlavorRuns).add(run.flavor, run.log_seconds)
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

    def on_flavors(self, run: Run) -> FlavorRuns:
        """The finished runs that did the same work, by flavor."""
        work = work_of(run)
        return (self._on_flavors.get(run.namespace, work) if work is not None else None) or FlavorRuns()

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

    def outlasts(self, run: Run) -> float:
        """The factor, at least 1, by which runs outlast their limit: a cluster may stop them only after a grace, or not at all.

        It is that of the author's runs, else the namespace's, else of all; 1 while little is known.
        """
        entries = (*self._own_ratios("limit", run), self._ratios_of_all.get("limit"))
        known = next((entry for entry in entries if entry is not None and entry.remembered >= _JUDGED), None)
        return math.exp(max(0.0, known.quantile(_NEARLY_ALL))) if known is not None else 1.0

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
