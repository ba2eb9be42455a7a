"""The forecaster of a running operator: takes facts as they happen, keeps the latest estimates, and never does I/O.

A run's features are taken when it is submitted. The model is asked in batches, the first time an estimate is wanted; a waiting
run's estimate is then a lookup, a running run's is conditional on the time that it has taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gangline.forecast import baselines, fallback_estimator, features, playback
from gangline.forecast.calibration import Calibrator, group_of
from gangline.forecast.flavors import FlavorScale
from gangline.forecast.guard import Guard, Verdict
from gangline.forecast.quantiles import LEVELS, Forecast, Source, of_logs
from gangline.forecast.runs import Run, StartedRun
from gangline.forecast.tracker import Tracker

if TYPE_CHECKING:
    from gangline.forecast.model import Model

_MEDIAN: Final = LEVELS.index(0.5)
_LEARNED: Final = 500  # runs with a hint (or limit) after which the model knows what hints are worth
Logs = tuple[float, ...]


@dataclass(slots=True)
class _Asked:
    """What was known of a run when it was submitted."""

    vector: list[float]
    fallback: Forecast  #: on the average flavor
    itself: bool  #: runs like it had finished
    last_two: float  #: log seconds
    group: str  #: with which it is calibrated
    logs: Logs | None = None  #: what the model says, once it was asked


class Forecaster:
    """How long runs will take. Facts arrive in the order of time; times are Unix seconds, spans seconds."""

    def __init__(self, model: Model | None = None, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._model: Model | None = None
        self._tracker = Tracker()
        self._calibrator = Calibrator()
        self._guard = Guard()
        self._asked: dict[str, _Asked] = {}
        self._unrecorded: dict[str, float] = {}  # started since the model was asked last: uid -> start
        if model is not None:
            self.use(model)

    # --- the model ----------------------------------------------------------------------------------------------------

    @property
    def tracker(self) -> Tracker:
        """What is known of classes, for baselines and for people."""
        return self._tracker

    @property
    def model(self) -> Model | None:
        return self._model

    def use(self, model: Model | None) -> None:
        """Forecast with another model from now on, or with none."""
        self._model = model
        self._calibrator = Calibrator()
        self._unrecorded.clear()
        self._tracker.rescale(model.scale if model else self._tracker.scale)
        for asked in self._asked.values():
            asked.logs = None
        if model is None:
            self._guard = Guard()
            return
        self._guard.use(model.validation, model.trained_at)
        seeded: set[str] = set()
        for seed in model.seeds:
            if not math.isnan(seed.finish) or seed.uid in self._tracker:
                self._calibrator.add(replace(seed))
                seeded.add(seed.uid)
        for uid in self._asked:
            run = self._tracker.run(uid)
            if run is not None and run.start is not None and run.start >= model.trained_at and uid not in seeded:
                self._unrecorded[uid] = run.start

    def restore(self, runs: Iterable[Run]) -> None:
        """Fill an empty forecaster with what the history store holds; unfinished runs stay open."""
        model = self._model
        self.use(None)  # the past is not forecast: what the model would have said of it is in its seeds
        for _ in playback.play(runs, self):
            pass
        self.use(model)

    def status(self, now: float) -> Verdict:
        """Whether the model is in use, and why."""
        nan = math.nan
        if not self._enabled:
            return Verdict(False, nan, nan, 0, "the model is switched off by configuration")
        if self._model is None:
            return Verdict(False, nan, nan, 0, "there is no model yet: forecasts come from hints, limits and history")
        return self._guard.verdict(now)

    def judged(self) -> list[list[float]]:
        """By how much model and baseline were off in the last week, for `judge_on` of a later process; empty without a model."""
        return self._guard.rows() if self._model is not None else []

    def judge_on(self, rows: Iterable[Iterable[float]]) -> None:
        """Judge the model by what `judged` said in an earlier process, too. Raises TypeError or ValueError."""
        self._guard.recall(rows)

    # --- facts --------------------------------------------------------------------------------------------------------

    def submitted(self, run: Run, *, ask: bool = True) -> None:
        """A run waits. Told again, its features are not taken anew, but a changed limit counts.

        `ask=False` puts off taking its features until it is asked for, which may be never: that is most of the cost.
        """
        if ask and run.uid not in self._tracker:
            self._remember(run)
        self._tracker.submitted(run)

    def renew(self, uids: Iterable[str]) -> None:
        """Take the features of these runs anew where they still wait: others have finished, or they say otherwise now."""
        for uid in uids:
            run = self._tracker.run(uid) if uid in self._asked else None
            if run is not None and run.start is None:
                self._remember(run)

    def _remember(self, run: Run) -> None:
        tracker = self._tracker
        self._asked[run.uid] = _Asked(
            vector=features.vector(run, tracker, run.submit),
            fallback=fallback_estimator.forecast(run, tracker),
            itself=fallback_estimator.knows_itself(run, tracker),
            last_two=math.log(baselines.last_two(run, tracker)),
            group=group_of(run.queue, run.gpus),
        )

    def started(self, uid: str, at: float, flavor: str = "") -> None:
        self._tracker.started(uid, at, flavor)
        if uid in self._asked and self._model is not None:
            self._unrecorded[uid] = at

    def stopped(self, uid: str) -> None:
        """It was evicted and waits again."""
        self._tracker.stopped(uid)
        self._calibrator.forget(uid)
        self._unrecorded.pop(uid, None)

    def finished(self, uid: str, at: float) -> Run | None:
        """It ended. Returns the whole run for the history store, None where it never ran."""
        self._record()
        run = self._tracker.finished(uid, at)
        asked = self._asked.pop(uid, None)
        if run is None or asked is None:
            return run
        target = run.log_seconds - self._tracker.scale.offset(run.flavor)
        self._calibrator.finished(uid, at, target)
        if asked.logs is not None:
            shift = float(self._calibrator.shifts(at, asked.group)[_MEDIAN])
            self._guard.finished(at, target, asked.logs[_MEDIAN] + shift, asked.last_two)
        return run

    def forget(self, uid: str) -> None:
        """It is gone without having finished."""
        self._tracker.forget(uid)
        self._calibrator.forget(uid)
        self._unrecorded.pop(uid, None)
        self._asked.pop(uid, None)

    # --- estimates ----------------------------------------------------------------------------------------------------

    def forecast(self, uid: str, now: float, flavor: str = "") -> Forecast | None:
        """The total runtime of an open run, given that it has run for as long as it has; None for a run that is not known.

        `flavor` says where it would run; a running run's own flavor counts.
        """
        return self.forecasts([uid], now, flavor).get(uid)

    def forecasts(
        self, uids: Iterable[str], now: float, flavor: str = "", *, conditional: bool = True
    ) -> dict[str, Forecast]:
        """The same for many runs at once, which is much cheaper; unknown runs are left out.

        `conditional=False` leaves out for how long a run has run: for whoever does that arithmetic at a later instant.
        """
        wanted = [uid for uid in uids if self._is_open(uid)]
        trusted = self.status(now).trusted
        if self._model is not None:
            self._ask(wanted)
            self._record()
        return {uid: self._forecast(uid, now, flavor, trusted, conditional) for uid in wanted}

    @property
    def flavor_offsets(self) -> Mapping[str, float]:
        """By how much log runtimes differ between flavors, as far as that was learned; 0 = average."""
        return self._tracker.scale.offsets

    @property
    def compares_flavors(self) -> bool:
        """It has learned how much longer the same work takes on one flavor than on another."""
        return any(self.flavor_offsets.values())

    def compare_flavors(self, offsets: Mapping[str, float]) -> None:
        """Take over what another forecaster has learned of flavors (its `flavor_offsets`)."""
        self._tracker.rescale(FlavorScale(dict(offsets)))

    def _is_open(self, uid: str) -> bool:
        if uid not in self._asked and (run := self._tracker.run(uid)) is not None:
            self._remember(run)
        return uid in self._asked

    def _forecast(self, uid: str, now: float, flavor: str, trusted: bool, conditional: bool) -> Forecast:
        asked, run = self._asked[uid], self._tracker.run(uid)
        assert run is not None  # every asked run is open in the tracker
        basis = asked.fallback
        if trusted and asked.logs is not None and self._model_knows(run, asked):
            shifts = self._calibrator.shifts(now, asked.group).tolist()
            logs = [log + shift for log, shift in zip(asked.logs, shifts, strict=True)]
            basis = of_logs(logs, Source.MODEL, self._model.samples if self._model else 0)
        where = run.flavor if run.start is not None else flavor or run.flavor
        said = basis.source in (Source.HINT, Source.LIMIT)
        total = basis if said else basis.scaled(math.exp(self._tracker.scale.offset(where)))
        elapsed = max(0.0, now - run.start) if conditional and run.start is not None else 0.0
        return total.after(elapsed).capped(run.limit, elapsed)

    def _model_knows(self, run: Run, asked: _Asked) -> bool:
        """A run whose class is new is better told by its hint or limit, unless the model has learned from such."""
        model = self._model
        if model is None or asked.itself:
            return True
        if run.hint:
            return model.hints >= _LEARNED
        return not run.limit or model.limits >= _LEARNED

    def _ask(self, uids: Iterable[str]) -> None:
        """Ask the model for all of them at once."""
        asked = [a for uid in uids if (a := self._asked[uid]).logs is None]
        if not asked or self._model is None:
            return
        logs = self._model.predict([a.vector for a in asked])
        for entry, row in zip(asked, logs.tolist(), strict=True):
            entry.logs = tuple(row)

    def _record(self) -> None:
        """Tell the calibrator what was forecast for the runs that have started."""
        if not self._unrecorded:
            return
        self._ask(self._unrecorded)
        for uid, at in self._unrecorded.items():
            asked = self._asked[uid]
            if asked.logs is not None:
                self._calibrator.add(StartedRun(uid, at, asked.logs, group=asked.group))
        self._unrecorded.clear()

    def asked(self, uid: str) -> tuple[list[float], float]:
        """The features and the last-two estimate (log seconds) of an open run, as of its submission. KeyError if unknown."""
        asked = self._asked[uid]
        return asked.vector, asked.last_two

    def foretold(self, logs: Mapping[str, Logs]) -> None:
        """What the model says of open runs, asked beforehand in one batch: for evaluation and replay."""
        for uid, row in logs.items():
            if (asked := self._asked.get(uid)) is not None:
                asked.logs = row
