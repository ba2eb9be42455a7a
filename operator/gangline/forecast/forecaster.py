"""The operator's forecaster: receives facts as they happen, keeps the latest estimates, and never does I/O.

A run's features are computed at its submission. The model predicts in batches, when an estimate is first requested; the estimate
of a pending run is then a lookup, that of a running run is conditional on its elapsed runtime. What ends teach the calibration
waits for the next batch, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gangline.forecast.history import playback
from gangline.forecast.history.runs import Run, StartedRun
from gangline.forecast.learning.calibration import Calibrator, group_of
from gangline.forecast.learning.guard import ModelGuard, ModelVerdict
from gangline.forecast.quantiles import LEVELS, Forecast, ForecastSource, of_logs
from gangline.forecast.tracking import baselines, fallback_estimator, features
from gangline.forecast.tracking.flavors import FlavorScale
from gangline.forecast.tracking.tracker import Tracker

if TYPE_CHECKING:
    from gangline.forecast.learning.quantile_model import QuantileModel

_MEDIAN: Final = LEVELS.index(0.5)
_LEARNED: Final = (
    500  # training runs with a hint (or limit) from which on the model is preferred to the hint (or limit)
)
Logs = tuple[float, ...]
#: starts and ends that wait for a batch of predictions, at most
_BATCH: Final = 512


@dataclass(slots=True)
class _Asked:
    """Features and estimates of a run as of its submission."""

    vector: list[float]
    fallback: Forecast  #: on the average flavor
    knows_itself: bool  #: whether similar runs had finished
    declared: bool  #: whether its author declares runtimes, and keeps them
    last_two: float  #: log seconds
    group: str  #: calibration group
    logs: Logs | None = None  #: the model's prediction, once computed


@dataclass(frozen=True, slots=True)
class _Started:
    uid: str
    at: float
    asked: _Asked


@dataclass(frozen=True, slots=True)
class _Ended:
    run: Run
    at: float
    asked: _Asked
    target: float  #: log seconds on the average flavor
    reply: Callable[[Forecast], None] | None


class Forecaster:
    """Forecasts runtimes. Facts must arrive in time order; times are Unix seconds, durations seconds."""

    def __init__(self, model: QuantileModel | None = None, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._model: QuantileModel | None = None
        self._tracker = Tracker()
        self._calibrator = Calibrator()
        self._guard = ModelGuard()
        self._asked: dict[str, _Asked] = {}
        #: starts and ends since the last predictions, oldest first: calibrator and guard do not know them yet
        self._past: list[_Started | _Ended] = []
        if model is not None:
            self.use(model)

    # --- the model ----------------------------------------------------------------------------------------------------

    @property
    def tracker(self) -> Tracker:
        """The statistics of classes, for baselines and reports."""
        return self._tracker

    @property
    def model(self) -> QuantileModel | None:
        return self._model

    def use(self, model: QuantileModel | None) -> None:
        """Forecast with this model from now on, or without one."""
        self.catch_up()
        self._model = model
        self._calibrator = Calibrator()
        self._tracker.rescale(model.scale if model else self._tracker.scale)
        for asked in self._asked.values():
            asked.logs = None
        if model is None:
            self._guard = ModelGuard()
            return
        self._guard.use(model.validation, model.trained_at)
        seeded: set[str] = set()
        for seed in model.seeds:
            if not math.isnan(seed.finish) or seed.uid in self._tracker:
                self._calibrator.add(replace(seed))
                seeded.add(seed.uid)
        for uid, asked in self._asked.items():
            run = self._tracker.run(uid)
            if run is not None and run.start is not None and run.start >= model.trained_at and uid not in seeded:
                self._past.append(_Started(uid, run.start, asked))

    def restore(self, runs: Iterable[Run]) -> None:
        """Fill an empty forecaster with the runs of the history store; unfinished runs stay open."""
        model = self._model
        self.use(None)  # past runs need no predictions: those for calibration are the model's seeds
        for _ in playback.play(runs, self):
            pass
        self.use(model)

    def status(self, now: float) -> ModelVerdict:
        """Whether the model is in use, and why."""
        nan = math.nan
        if not self._enabled:
            return ModelVerdict(False, nan, nan, 0, "the model is disabled by configuration")
        if self._model is None:
            return ModelVerdict(
                False, nan, nan, 0, "there is no model yet: forecasts come from hints, limits and history"
            )
        self.catch_up()
        return self._guard.verdict(now)

    def judged(self) -> list[list[float]]:
        """Errors of model and baseline in the last week, for `judge_on` of a later process; empty without a model."""
        self.catch_up()
        return self._guard.rows() if self._model is not None else []

    def judge_on(self, rows: Iterable[Iterable[float]]) -> None:
        """Judge the model also by the errors that `judged` returned in an earlier process. Raises TypeError or ValueError."""
        self._guard.recall(rows)

    # --- facts --------------------------------------------------------------------------------------------------------

    def submitted(self, run: Run, *, ask: bool = True) -> None:
        """A run is pending. A repeated call does not recompute its features, but uses a changed limit.

        `ask=False` defers the features, which are most of the cost, until a forecast of the run is requested.
        """
        if ask and run.uid not in self._tracker:
            self._remember(run)
        self._tracker.submitted(run)

    def renew(self, uids: Iterable[str]) -> None:
        """Recompute the features of those runs that are still pending, after other runs finished or their attributes changed."""
        for uid in uids:
            run = self._tracker.run(uid) if uid in self._asked else None
            if run is not None and run.start is None:
                self._remember(run)

    def _remember(self, run: Run) -> None:
        tracker = self._tracker
        self._asked[run.uid] = _Asked(
            vector=features.vector(run, tracker, run.submit),
            fallback=fallback_estimator.forecast(run, tracker),
            knows_itself=fallback_estimator.knows_itself(run, tracker),
            declared=fallback_estimator.declared(run, tracker) is not None,
            last_two=math.log(baselines.last_two(run, tracker)),
            group=group_of(run),
        )

    def started(self, uid: str, at: float, flavor: str = "") -> None:
        self._tracker.started(uid, at, flavor)
        asked = self._asked.get(uid)
        if asked is not None and self._model is not None:
            self._note(_Started(uid, at, asked))

    def stopped(self, uid: str) -> None:
        """The run was evicted and is pending again."""
        self._tracker.stopped(uid)
        self._strike(uid)

    def finished(self, uid: str, at: float, reply: Callable[[Forecast], None] | None = None) -> Run | None:
        """The run ended. Returns the complete run for the history store, None if it never ran.

        `reply` is given its forecast as of now, from which its end is left out, with the next batch.
        """
        run = self._tracker.finished(uid, at)
        asked = self._asked.pop(uid, None)
        if run is None or asked is None:
            return run
        target = run.log_seconds - self._tracker.scale.offset(run.flavor)
        self._note(_Ended(run, at, asked, target, reply))
        return run

    def forget(self, uid: str) -> None:
        """The run was deleted before it finished."""
        self._tracker.forget(uid)
        self._strike(uid)
        self._asked.pop(uid, None)

    def _strike(self, uid: str) -> None:
        """How long a run takes that did not come to its end is not known."""
        self._past = [each for each in self._past if not (isinstance(each, _Started) and each.uid == uid)]
        self._calibrator.forget(uid)

    # --- estimates ----------------------------------------------------------------------------------------------------

    def forecast(self, uid: str, now: float, flavor: str = "") -> Forecast | None:
        """The total runtime of an open run, conditional on its elapsed runtime; None for an unknown run.

        `flavor`: the flavor on which a pending run would run; a running run's own flavor takes precedence.
        """
        return self.forecasts([uid], now, flavor).get(uid)

    def forecasts(
        self, uids: Iterable[str], now: float, flavor: str = "", *, conditional: bool = True
    ) -> dict[str, Forecast]:
        """`forecast` for many runs in one batch, which is much cheaper; unknown runs are left out.

        `conditional=False` ignores elapsed runtimes, for callers that condition on them later.
        """
        wanted = [uid for uid in uids if self._is_open(uid)]
        self.catch_up(wanted)
        trusted = self.status(now).trusted
        return {uid: self._forecast_open(uid, now, flavor, trusted, conditional) for uid in wanted}

    @property
    def flavor_offsets(self) -> Mapping[str, float]:
        """Learned offsets of log runtimes by flavor; 0 = average."""
        return self._tracker.scale.offsets

    @property
    def compares_flavors(self) -> bool:
        """Whether the forecaster has learned that the same work takes longer on one flavor than on another."""
        return any(self.flavor_offsets.values())

    def compare_flavors(self, offsets: Mapping[str, float]) -> None:
        """Use the `flavor_offsets` that another forecaster has learned."""
        self._tracker.rescale(FlavorScale(dict(offsets)))

    def on_flavors(
        self, uids: Mapping[str, Sequence[str]], now: float, speeds: Mapping[str, Mapping[str, float]]
    ) -> dict[str, dict[str, Forecast]]:
        """The total runtime of open runs on each of some flavors, by what their authors say of speeds there, and by the runs that
        did the same work there. Without either it is that of `forecasts`, and for what an author says alone the same everywhere.

        `uids`: the flavors of each run; `speeds`: flavor -> speed, of those whose authors say any.
        """
        wanted = [uid for uid in uids if self._is_open(uid)]
        self.catch_up(wanted)
        trusted = self.status(now).trusted
        found: dict[str, dict[str, Forecast]] = {}
        for uid in wanted:
            run = self._tracker.run(uid)
            assert run is not None  # every asked run is open in the tracker
            anywhere = replace(run, start=None, flavor="")
            basis, cap = self._forecast(self._asked[uid], anywhere, now, "", trusted), self._cap(run)
            offsets = self._offsets(run, uids[uid], speeds.get(uid, {}), basis)
            found[uid] = {
                flavor: basis.scaled(math.exp(offset)).capped(cap) if offset else basis.capped(cap)
                for flavor, offset in offsets.items()
            }
        return found

    def _offsets(
        self, run: Run, flavors: Sequence[str], speeds: Mapping[str, float], basis: Forecast
    ) -> dict[str, float]:
        """Offsets of log runtime by flavor, relative to this forecast."""
        by_author = basis.source in (ForecastSource.HINT, ForecastSource.LIMIT)
        scale: Mapping[str, float] = {} if by_author else self._tracker.scale.offsets
        expected = {**scale, **{flavor: -math.log(speed) for flavor, speed in speeds.items()}}
        seen = self._tracker.on_flavors(run)
        # what its author says holds at speed 1; a class has its history on the flavors that its runs had
        usual = 0.0 if by_author else seen.mean(scale) - seen.mean(expected)
        return {flavor: offset + usual for flavor, offset in seen.offsets(flavors, expected).items()}

    def _is_open(self, uid: str) -> bool:
        if uid not in self._asked and (run := self._tracker.run(uid)) is not None:
            self._remember(run)
        return uid in self._asked

    def _forecast_open(self, uid: str, now: float, flavor: str, trusted: bool, conditional: bool) -> Forecast:
        run = self._tracker.run(uid)
        assert run is not None  # every asked run is open in the tracker
        elapsed = max(0.0, now - run.start) if conditional and run.start is not None else 0.0
        total = self._forecast(self._asked[uid], run, now, flavor, trusted)
        return total.after(elapsed).capped(self._cap(run), elapsed)

    def _cap(self, run: Run) -> float | None:
        """The runtime that the run can't exceed: its limit, and what runs are seen to take beyond it; None without a limit."""
        return run.limit * self._tracker.outlasts(run) if run.limit else None

    def _forecast(self, asked: _Asked, run: Run, now: float, flavor: str, trusted: bool) -> Forecast:
        """The forecast of the run's total runtime, as if it had not begun."""
        basis = asked.fallback
        if trusted and asked.logs is not None and self._model_knows(run, asked):
            shifts = self._calibrator.shifts(now, asked.group).tolist()
            logs = [log + shift for log, shift in zip(asked.logs, shifts, strict=True)]
            basis = of_logs(logs, ForecastSource.MODEL, self._model.samples if self._model else 0)
        from_author = basis.source in (ForecastSource.HINT, ForecastSource.LIMIT)
        if not from_author:
            basis = basis.with_tail(self._tracker.survival(now).tail(basis.q95))
        where = run.flavor if run.start is not None else flavor or run.flavor
        offset = 0.0 if from_author else self._tracker.scale.offset(where)
        return basis.scaled(math.exp(offset)) if offset else basis

    def _model_knows(self, run: Run, asked: _Asked) -> bool:
        """Whether to use the model: a declaration that is always kept is better; for a new class, hint or limit
        are, unless the model has learned from such runs.
        """
        model = self._model
        if asked.declared:
            return False
        if model is None or asked.knows_itself:
            return True
        if run.hint:
            return model.hints >= _LEARNED
        return not run.limit or model.limits >= _LEARNED

    def _note(self, event: _Started | _Ended) -> None:
        self._past.append(event)
        if len(self._past) >= _BATCH:
            self.catch_up()

    def catch_up(self, uids: Iterable[str] = ()) -> None:
        """Predict these runs, and those that have started or wait for a reply, in one batch; then give calibrator and guard what
        has happened since the last one. Other methods do it when they need it.
        """
        past, self._past = self._past, []
        if self._model is not None:
            awaited = (each.asked for each in past if isinstance(each, _Started) or each.reply is not None)
            self._predict(self._model, [*awaited, *(self._asked[uid] for uid in uids)])
        for each in past:
            if isinstance(each, _Ended):
                self._learn(each)
            elif each.asked.logs is not None:
                self._calibrator.add(StartedRun(each.uid, each.at, each.asked.logs, group=each.asked.group))

    @staticmethod
    def _predict(model: QuantileModel, runs: Iterable[_Asked]) -> None:
        """Predict the runs that have no prediction yet."""
        asked = list({id(each): each for each in runs if each.logs is None}.values())
        if asked:
            logs = model.predict([each.vector for each in asked])
            for entry, row in zip(asked, logs.tolist(), strict=True):
                entry.logs = tuple(row)

    def _learn(self, end: _Ended) -> None:
        asked, at = end.asked, end.at
        if end.reply is not None:
            trusted = self._model is not None and self._enabled and self._guard.verdict(at).trusted
            end.reply(self._forecast(asked, end.run, at, "", trusted).capped(self._cap(end.run), 0.0))
        self._calibrator.finished(end.run.uid, at, end.target)
        if asked.logs is not None:
            shift = float(self._calibrator.shifts(at, asked.group)[_MEDIAN])
            self._guard.finished(at, end.target, asked.logs[_MEDIAN] + shift, asked.last_two, end.run.namespace)

    def asked(self, uid: str) -> tuple[list[float], float]:
        """The features and the last-two estimate (log seconds) of an open run, as of its submission. KeyError if unknown."""
        asked = self._asked[uid]
        return asked.vector, asked.last_two

    def set_predictions(self, logs: Mapping[str, Logs]) -> None:
        """Set the model's predictions for open runs, computed beforehand in one batch: for evaluation and replay."""
        for uid, row in logs.items():
            if (asked := self._asked.get(uid)) is not None:
                asked.logs = row
