"""The metrics `gangline_forecast_*`, collected when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from gangline.control.forecasting.forecasting import Forecasting


class ForecastMetrics(Collector):
    """The collector of these metrics. Coverage is `covered / finished`, which should be near the quantile; the mean log error is
    `error / finished`.
    """

    def __init__(self, forecasting: Forecasting) -> None:
        self._of = forecasting

    def describe(self) -> Iterator[Metric]:
        return iter(())  # the names are not needed before the first scrape

    def collect(self) -> Iterator[Metric]:
        yield from self._open()
        yield from self._outcomes()
        yield from self._model()
        yield from self._history()

    def _open(self) -> Iterator[Metric]:
        forecasts = self._of.forecasts
        open_ = GaugeMetricFamily(
            "gangline_forecast_workloads", "Unfinished workloads by the source of their forecast.", labels=["source"]
        )
        for source, count in sorted(Counter(e.source for e in forecasts.estimates().values()).items()):
            open_.add_metric([source], count)
        yield open_
        yield GaugeMetricFamily("gangline_forecast_backlog", "Facts not processed yet.", value=forecasts.waiting())

    def _outcomes(self) -> Iterator[Metric]:
        finished = CounterMetricFamily(
            "gangline_forecast_finished", "Runs that ended and had a forecast when they started.", labels=["source"]
        )
        covered = CounterMetricFamily(
            "gangline_forecast_covered",
            "Finished runs that took no longer than the quantile.",
            labels=["source", "quantile"],
        )
        error = CounterMetricFamily(
            "gangline_forecast_error", "Sum of |ln(runtime / q50)| over finished runs.", labels=["source"]
        )
        for source, record in sorted(self._of.forecasts.records.items()):
            finished.add_metric([source], record.ended)
            error.add_metric([source], record.log_error)
            for level, count in record.below.items():
                covered.add_metric([source, f"{level:g}"], count)
        yield from (finished, covered, error)
        yield from self._groups()

    def _groups(self) -> Iterator[Metric]:
        finished = CounterMetricFamily(
            "gangline_forecast_group_finished",
            "Runs that ended and had a forecast, of tenants (LocalQueues) and sizes with at least 200 of them.",
            labels=["by", "group"],
        )
        covered = CounterMetricFamily(
            "gangline_forecast_group_covered",
            "Those of these runs that took no longer than their q90.",
            labels=["by", "group"],
        )
        for group, each in self._of.forecasts.groups.shown():
            finished.add_metric([*group], each.finished)
            covered.add_metric([*group], each.covered)
        yield from (finished, covered)

    def _model(self) -> Iterator[Metric]:
        verdict = self._of.verdict()
        has_model = self._of.forecasts.forecaster.model is not None
        yield GaugeMetricFamily(
            "gangline_forecast_model", "1 while a trained model is in use.", value=has_model and verdict.trusted
        )
        yield GaugeMetricFamily(
            "gangline_forecast_training_seconds", "How long the last training took.", value=self._of.training_seconds
        )

    def _history(self) -> Iterator[Metric]:
        history = self._of.history
        yield CounterMetricFamily("gangline_forecast_history_written", "Runs written to the history.", history.written)
        yield CounterMetricFamily("gangline_forecast_history_dropped", "Runs lost to a full backlog.", history.dropped)
        yield GaugeMetricFamily(
            "gangline_forecast_history_backlog", "Runs that wait to be written.", value=history.waiting
        )
        yield GaugeMetricFamily(
            "gangline_forecast_history_up", "1 while the database accepts writes.", value=not history.error
        )
