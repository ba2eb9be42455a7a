"""Runtime forecasts: a history of finished runs, quantiles learned from it, and fallback estimates without a model.

forecaster = Forecaster(model)          # in the deciding process: facts in, estimates out, no I/O
forecaster.restore(store.runs())
forecaster.submitted(run); forecaster.started(run.uid, at, flavor); store.put([forecaster.finished(run.uid, at)])
forecaster.forecasts(uids, now)         # uid -> Forecast(q10, q50, q80, q90, q95, source, samples)
model = train_in_process(url, Path("model.gz"), now)      # in a worker; then forecaster.use(model)

Names are imported on first use, because numpy and LightGBM need 47 MB, which an operator without a model saves.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gangline.forecast.errors import ModelError, TooFewRunsError, TrainingError
    from gangline.forecast.forecaster import Forecaster
    from gangline.forecast.history.run_store import HistoryStore, StoreError
    from gangline.forecast.history.runs import Run, command_shape, from_trace, from_workload, hint_seconds
    from gangline.forecast.learning.guard import ModelVerdict
    from gangline.forecast.learning.quantile_model import QuantileModel, load
    from gangline.forecast.learning.settings import LearningSettings
    from gangline.forecast.learning.training import train
    from gangline.forecast.learning.worker import train_in_process
    from gangline.forecast.quantiles import LEVELS, Forecast, ForecastSource

_MODULES: Final = {
    "errors": ("ModelError", "TooFewRunsError", "TrainingError"),
    "forecaster": ("Forecaster",),
    "learning.guard": ("ModelVerdict",),
    "learning.quantile_model": ("QuantileModel", "load"),
    "quantiles": ("LEVELS", "Forecast", "ForecastSource"),
    "history.runs": ("Run", "command_shape", "from_trace", "from_workload", "hint_seconds"),
    "learning.settings": ("LearningSettings",),
    "history.run_store": ("HistoryStore", "StoreError"),
    "learning.training": ("train",),
    "learning.worker": ("train_in_process",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "LEVELS",
    "Forecast",
    "ForecastSource",
    "Forecaster",
    "HistoryStore",
    "LearningSettings",
    "ModelError",
    "ModelVerdict",
    "QuantileModel",
    "Run",
    "StoreError",
    "TooFewRunsError",
    "TrainingError",
    "command_shape",
    "from_trace",
    "from_workload",
    "hint_seconds",
    "load",
    "train",
    "train_in_process",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value
