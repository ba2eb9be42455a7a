"""Known runtimes of workloads: facts from the mirror in, estimates to the engine out.

A workload that waits in a queue with several flavors also gets an estimate for each flavor, if runtimes are known to differ
between flavors: its flavor is decided when it is admitted. Once it runs, there is one estimate.

Nothing here delays a decision. A fact is only queued when it arrives; `work` feeds queued facts to the forecaster in slices, and
`tell` asks it for estimates in batches. The engine observes an estimate that is new or has changed enough to matter, and only
while estimates are wanted: by a QueuePolicy, a GPUJob, or a client that asked lately.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from gangline.api.flavor_speeds import declared_speeds
from gangline.control.feed import slices
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.forecasting import run_facts
from gangline.control.forecasting.group_coverage import Groups
from gangline.control.forecasting.run_facts import differs
from gangline.engine import model
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.runs import Run, flavor_of
from gangline.forecast.quantiles import LEVELS, Forecast
from gangline.jobs import podspec
from gangline.jobs.base import RuntimeHints as Hints
from gangline.kube import resources as kube
from gangline.objects import JobObject, WorkloadObject

if TYPE_CHECKING:
    from gangline.forecast.learning.quantile_model import QuantileModel

log = logging.getLogger(__name__)

#: how many estimates are made at a time
BATCH: Final = 250
#: how many estimates are renewed at a time after the forecaster has learned
REFRESH: Final = 50
#: a run's end is compared with the estimate given within this time of its start, in seconds
AT_START: Final = 60.0
#: a request for estimates counts as interest for this long, in seconds
INTEREST: Final = 600.0

_NO_FLAVORS: Final[Mapping[str, Forecast]] = {}


@dataclass(slots=True)
class _Open:
    """A workload that has not ended, as the forecaster knows it."""

    uid: str
    basis: tuple[object, ...]  # what its run was made of; when it changes, the run is submitted again
    speeds: Mapping[str, float]  # what its author says, by flavor
    start: float | None = None
    saved: float = 0.0  # seconds of earlier runs that are not done again
    least: float = 0.0  # seconds that it takes at least, those included
    estimate: Forecast | None = None  # from its last or next start to its end, as last reported
    by_flavor: Mapping[str, Forecast] = field(default_factory=dict[str, Forecast])  # as last reported
    at_start: Forecast | None = None  # the estimate when it started, with which its end is compared

    def rest(self, whole: Forecast) -> Forecast:
        """The estimate of what is left after the workload's earlier runs, from an estimate of the whole runtime."""
        return whole.after(self.least).less(self.saved)


@dataclass(slots=True)
class EstimateRecord:
    """The accuracy of estimates from one source."""

    ended: int = 0
    below: dict[float, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))  # runs that took no longer
    log_error: float = 0.0  # sum of |ln(runtime / q50)|


@dataclass(frozen=True, slots=True)
class _News:
    """The last change of a workload that was not processed yet; no value = it was deleted."""

    value: model.Workload | None
    raw: WorkloadObject | None


class Forecasts:
    """The runtime estimates. Times for the forecaster are Unix seconds, those of the engine milliseconds."""

    def __init__(
        self,
        mirror: Mirror,
        observe: Callable[[model.Change], None],
        *,
        now: Callable[[], int],
        forecaster: Forecaster | None = None,
        store: Callable[[Run], None] = lambda run: None,
        noted: Callable[[], None] = lambda: None,
        knows_better: Callable[[str], bool] = lambda key: False,
        lost: Callable[[str], model.Millis] = lambda uid: 0,
    ) -> None:
        """Estimate for this mirror. `store` gets every ended run; `noted` is called when there are facts to process.
        `knows_better` says whether the engine has a better estimate for a workload from another source. `lost` says by how much
        company made a run longer that has ended: what is learned is how long it would have run alone.
        """
        self.forecaster = forecaster or Forecaster()
        self.records: dict[str, EstimateRecord] = {}
        #: … and by tenant and size
        self.groups = Groups()
        #: uids of runs in the store: all at the start, later only those whose Workloads still exist
        self.stored: set[str] = set()
        self._ended: dict[str, str] = {}  # key of a finished Workload that still exists -> its uid
        self._knows_better = knows_better
        self._lost = lost
        self._mirror = mirror
        self._observe = observe
        self._now = now
        self._store = store
        self._noted = noted
        self._news: dict[str, _News] = {}
        self._open: dict[str, _Open] = {}
        self._unasked: dict[str, None] = {}  # keys, in the order of their arrival
        self._round: Iterator[str] = iter(())  # keys whose estimates are renewed, one after the other
        self._learned = False
        self._asked_until = 0.0
        self._was_wanted = False

    # --- in -----------------------------------------------------------------------------------------------------------

    def note(self, change: model.Change) -> None:
        """Record a fact that the engine observed. Costs next to nothing."""
        match change:
            case model.Put(model.Workload() as value):
                self._queue(value)
            case model.Gone(kind, key) if kind is model.Workload:
                news = self._news.get(key)
                if news is None or news.value is None or not news.value.finished:
                    self._news[key] = _News(None, None)
                self._noted()
            case _:
                pass

    def note_job(self, job: JobObject) -> None:
        """Record that a job changed, and with it perhaps its runtime hints."""
        for workload in self._mirror.workloads_of(job):
            value = self._mirror.workload_value(workload.key)
            if value is not None:
                self._queue(value)

    def _queue(self, value: model.Workload) -> None:
        before = self._news.get(value.key)
        if before is not None and before.value is not None and before.value.uid != value.uid:
            self._take(value.key, before)
        self._news[value.key] = _News(value, self._mirror.workloads.get(value.key))
        self._noted()

    def work(self, budget: float) -> bool:
        """Process queued facts, for at most `budget` seconds. Returns whether some are left."""
        deadline = time.perf_counter() + budget
        while self._news:
            key = next(iter(self._news))
            news = self._news.pop(key)
            try:
                self._take(key, news)
            except Exception:  # one workload must not keep all others from their forecasts
                log.exception("%s: it gets no forecast, and nothing is learned from it", key)
            if time.perf_counter() > deadline:
                break
        return bool(self._news)

    def _take(self, key: str, news: _News) -> None:
        value = news.value
        if key in self._ended and (value is None or value.uid != self._ended[key]):
            self.stored.discard(self._ended.pop(key))
        known = self._open.get(key)
        if known is not None and (value is None or value.uid != known.uid):
            self._forget(key, known)
            known = None
        if value is None or news.raw is None:
            return
        if value.finished and slices.has_ended(news.raw):  # the job goes on: this was no run
            if known is not None:
                self._forget(key, known)
        elif value.finished:
            self._finish(value, news.raw, known)
        else:
            self._follow(value, news.raw, known)

    def _follow(self, value: model.Workload, raw: WorkloadObject, known: _Open | None) -> None:
        job = self._job(raw)
        hints, speeds = _hints(job, raw), _speeds(job, raw)
        basis = (hints, speeds, value.max_execution_seconds, value.queue, raw.pod_sets)
        if known is None or known.basis != basis:
            run = run_facts.run_of(value, raw, job[1] if job else None, hints)
            if not run.flavor:
                offered = run_facts.offered(self._mirror, value)
                run = replace(run, flavor=offered[0] if len(offered) == 1 else "")
            self.forecaster.submitted(run, ask=self._was_wanted)
            self.forecaster.renew([value.uid] if known is not None else [])
            before = known or _Open(value.uid, basis, speeds)
            known = self._open[value.key] = replace(before, basis=basis, speeds=speeds, at_start=None)
            self._unasked[value.key] = None
        known.saved, known.least = value.saved / 1000, run_facts.least(value)
        start = value.admitted_at / 1000 if value.admitted else None
        if start == known.start:
            return
        if known.start is not None:
            self.forecaster.stopped(value.uid)
        known.start, known.at_start = start, None
        self._unasked[value.key] = None  # on its flavor it may take longer, or shorter; and what it saved is known
        if start is not None:
            flavor = flavor_of(value)
            self.forecaster.started(value.uid, start - known.saved, flavor)
            known.at_start = known.by_flavor.get(flavor, known.estimate)

    def _finish(self, value: model.Workload, raw: WorkloadObject, known: _Open | None) -> None:
        if known is None:
            self._finish_unseen(value, raw)
            return
        if known.speeds and (run := self.forecaster.tracker.run(value.uid)) is not None:
            self.forecaster.submitted(run_facts.as_run(run, known.speeds), ask=False)
        ended = run_facts.finished_at(raw) or self._now() / 1000
        run = self.forecaster.finished(value.uid, ended - self._lost(value.uid) / 1000)
        self._judge(known, run)
        self._close(value.key)
        self._learned = True
        if run is not None:
            self._remember(value)
            self._store(run)

    def _remember(self, value: model.Workload) -> None:
        """Remember that this run was learned from, for as long as its Workload can be seen again."""
        raw = self._mirror.workloads.get(value.key)
        if raw is not None and raw.uid == value.uid:
            self.stored.add(value.uid)
            self._ended[value.key] = value.uid

    def _finish_unseen(self, value: model.Workload, raw: WorkloadObject) -> None:
        """Learn from a run that had ended before it was seen, unless the store has it already from before a restart."""
        learned = value.uid in self.stored
        self._remember(value)
        if learned:
            return
        job = self._job(raw)
        run = run_facts.run_of(value, raw, job[1] if job else None, _hints(job, raw))
        run = run_facts.as_run(run, _speeds(job, raw))
        if run.start is None or run.finish is None:
            return
        self.forecaster.submitted(run, ask=False)
        self.forecaster.started(run.uid, run.start, run.flavor)
        self.forecaster.finished(run.uid, run.finish)
        self._store(run)

    def _forget(self, key: str, known: _Open) -> None:
        self.forecaster.forget(known.uid)
        self._close(key)

    def _close(self, key: str) -> None:
        known = self._open.pop(key)
        self._unasked.pop(key, None)
        if known.estimate is not None:
            self._observe(model.Gone(model.RuntimeForecast, key))

    def _judge(self, known: _Open, run: Run | None) -> None:
        if run is None or run.start is None or known.at_start is None:
            return
        run = replace(run, start=run.start + known.saved)
        if (seconds := run.seconds) is None:
            return
        record = self.records.setdefault(known.at_start.source, EstimateRecord())
        record.ended += 1
        record.log_error += abs(run.log_seconds - run_facts.log_of(known.at_start.q50))
        for level, value in zip(LEVELS, known.at_start.values, strict=True):
            record.below[level] += seconds <= value
        self.groups.ended(run, known.at_start)

    def _job(self, raw: WorkloadObject) -> tuple[kube.Resource, JobObject] | None:
        ref = self._mirror.job_of(raw)
        job = self._mirror.job(ref) if ref is not None else None
        return (ref[0], job) if ref is not None and job is not None else None

    # --- out ----------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Make estimates for a while, whether or not a policy needs them: a client wants them."""
        self._asked_until = self._now() / 1000 + INTEREST
        self._begin()

    def _begin(self) -> None:
        """Begin to make estimates: every open workload needs one."""
        if not self._was_wanted:
            self._was_wanted = True
            self._unasked.update(dict.fromkeys(self._open))

    @property
    def wanted(self) -> bool:
        """Whether estimates are of use."""
        objects = self._mirror.objects
        if objects[kube.QUEUE_POLICIES] or objects[kube.GPU_JOBS]:
            return True
        return self._now() / 1000 < self._asked_until

    @property
    def behind(self) -> bool:
        """Whether some workload still lacks an estimate that it should have."""
        return bool(self._news) or (bool(self._unasked) and self.wanted)

    def tell(self) -> int:
        """Make a batch of estimates: the missing ones, then the oldest. Returns how many were reported."""
        if not self.wanted:
            self._was_wanted = False
            return 0
        self._begin()
        keys = list(islice(self._unasked, BATCH))
        for key in keys:
            del self._unasked[key]
        if not keys:
            keys = self._due_again()
        return self._estimate(keys)

    def tell_all(self) -> None:
        """Process all facts and estimate every workload. Blocks for as long as it takes: not for the operator's process."""
        while self.work(1.0):
            pass
        self.ask()
        self._estimate(list(self._open))
        self._unasked.clear()

    def _due_again(self) -> list[str]:
        """The next workloads of a renewal round. A round begins whenever the forecaster has learned."""
        found = list(islice(self._round, REFRESH))
        if not found and self._learned:
            self._learned = False
            self._round = iter(list(self._open))
            found = list(islice(self._round, REFRESH))
        self.forecaster.renew(self._open[key].uid for key in found if key in self._open)
        return found

    def use(self, learned: QuantileModel | None) -> None:
        """Forecast with another model from now on, or with none."""
        self.forecaster.use(learned)
        self._learned = True

    def _estimate(self, keys: Iterable[str]) -> int:
        opened = {key: self._open[key] for key in keys if key in self._open}
        uids = [known.uid for known in opened.values()]
        now = self._now() / 1000
        estimates = self.forecaster.forecasts(uids, now, conditional=False)
        waiting = {
            key: estimates[known.uid] for key, known in opened.items() if known.start is None and known.uid in estimates
        }
        by_flavor = run_facts.estimates(self._mirror, self.forecaster, waiting, now)
        compared = self._compared(opened)
        own = run_facts.own_estimates(self._mirror, self.forecaster, compared.values(), now)
        for key, (value, _) in compared.items():
            there = own.get(value.uid, _NO_FLAVORS)
            if len(there) == 1:  # it has this flavor, or will get it
                estimates[value.uid] = next(iter(there.values()))
            whole = estimates.get(value.uid)
            by_flavor.pop(key, None)
            if whole is not None and any(differs(whole, each) for each in there.values()):
                by_flavor[key] = dict(there)
        reported = 0
        for key, known in opened.items():
            whole = estimates.get(known.uid)
            estimate = known.rest(whole) if whole is not None else None
            there = {flavor: known.rest(each) for flavor, each in by_flavor.get(key, _NO_FLAVORS).items()}
            if estimate is not None and not self._knows_better(key) and _moved(known, estimate, there):
                self._report(key, known, estimate, there)
                reported += 1
            if known.at_start is None and known.start is not None and now - known.start < AT_START:
                known.at_start = known.estimate
        return reported

    def _compared(self, opened: Mapping[str, _Open]) -> dict[str, tuple[model.Workload, Mapping[str, float]]]:
        """The workloads for which it matters how fast they are on which flavor, with what their authors say of that."""
        chosen = run_facts.some_choose(self._mirror)
        found: dict[str, tuple[model.Workload, Mapping[str, float]]] = {}
        for key, known in opened.items():
            value = self._mirror.workload_value(key) if known.speeds or chosen else None
            if value is not None and (known.speeds or run_facts.chooses(self._mirror, value)):
                found[key] = value, known.speeds
        return found

    def _report(self, key: str, known: _Open, estimate: Forecast, there: Mapping[str, Forecast]) -> None:
        known.estimate, known.by_flavor = estimate, there
        self._observe(model.Put(fact(key, estimate, there)))

    def tell_again(self, key: str) -> None:
        """Report the forecast again: the better estimate is void."""
        known = self._open.get(key)
        if known is not None:
            known.estimate, known.by_flavor = None, _NO_FLAVORS
            self._unasked[key] = None
            self._noted()

    def take(self, key: str, estimate: Forecast, there: Mapping[str, Forecast] = _NO_FLAVORS) -> None:
        """Replace the forecast by a better estimate from another source, on any flavor and on each that the workload may get."""
        known = self._open.get(key)
        if known is not None:
            self._report(key, known, estimate, there)

    # --- reading ------------------------------------------------------------------------------------------------------

    def estimate(self, key: str) -> Forecast | None:
        """The last reported estimate of a workload's runtime, from its last or next start to its end."""
        known = self._open.get(key)
        return known.estimate if known is not None else None

    def estimates(self) -> Mapping[str, Forecast]:
        """The last reported estimates of all workloads that have not ended, by key."""
        return {key: known.estimate for key, known in self._open.items() if known.estimate is not None}

    def by_flavor(self, key: str) -> Mapping[str, Forecast]:
        """The last reported estimate for each flavor that the workload may get; empty where unknown or without difference."""
        known = self._open.get(key)
        return known.by_flavor if known is not None else _NO_FLAVORS

    def waiting(self) -> int:
        """How many facts are queued."""
        return len(self._news)


def fact(key: str, estimate: Forecast, there: Mapping[str, Forecast] = _NO_FLAVORS) -> model.RuntimeForecast:
    """An estimate as the engine's fact; `there` holds the estimates by flavor, where they differ."""
    return model.RuntimeForecast(
        workload=key,
        quantiles=_quantiles(estimate),
        source=estimate.source,
        samples=estimate.samples,
        by_flavor={flavor: _quantiles(each) for flavor, each in there.items()},
    )


def _quantiles(estimate: Forecast) -> tuple[tuple[float, model.Millis], ...]:
    return tuple((level, max(1, round(value * 1000))) for level, value in estimate.points)


def _hints(job: tuple[kube.Resource, JobObject] | None, workload: WorkloadObject) -> Hints:
    """The runtime hints of the job or, where there is none, of the Workload."""
    if job is not None:
        return JOB_KINDS[job[0]].runtime_hints(job[1])
    return Hints(podspec.annotated(workload))


def _speeds(job: tuple[kube.Resource, JobObject] | None, workload: WorkloadObject) -> Mapping[str, float]:
    """What the author says of the job's speed on each flavor."""
    return declared_speeds((job[1] if job is not None else workload).annotations)


def _moved(known: _Open, estimate: Forecast, there: Mapping[str, Forecast]) -> bool:
    """Whether the estimates differ enough from those last reported."""
    if differs(known.estimate, estimate) or known.by_flavor.keys() != there.keys():
        return True
    return any(differs(known.by_flavor[flavor], each) for flavor, each in there.items())
