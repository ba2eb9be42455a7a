"""How long runs will take: a history of finished runs, quantiles learned from it, and what to say before there is any.

forecaster = Forecaster(model)          # in the deciding process: facts in, estimates out, no I/O
forecaster.restore(store.runs())
forecaster.submitted(run); forecaster.started(run.uid, at, flavor); store.put([forecaster.finished(run.uid, at)])
forecaster.forecasts(uids, now)         # uid -> Forecast(q10, q50, q80, q90, q95, source, samples)
model = train_in_process(url, Path("model.gz"), now)      # in a worker; then forecaster.use(model)
"""

from __future__ import annotations

from gangline.forecast.forecaster import Forecaster
from gangline.forecast.guard import Verdict
from gangline.forecast.model import Model, ModelError, load
from gangline.forecast.quantiles import LEVELS, Forecast, Source
from gangline.forecast.runs import Run, command_shape, from_trace, from_workload, hint_seconds
from gangline.forecast.store import HistoryStore, StoreError
from gangline.forecast.training import Settings, TooFewRunsError, train
from gangline.forecast.worker import TrainingError, train_in_process

__all__ = [
    "LEVELS",
    "Forecast",
    "Forecaster",
    "HistoryStore",
    "Model",
    "ModelError",
    "Run",
    "Settings",
    "Source",
    "StoreError",
    "TooFewRunsError",
    "TrainingError",
    "Verdict",
    "command_shape",
    "from_trace",
    "from_workload",
    "hint_seconds",
    "load",
    "train",
    "train_in_process",
]
