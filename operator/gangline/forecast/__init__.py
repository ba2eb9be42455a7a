"""Runtime forecasts: a history of finished runs, quantiles learned from it, and fallback estimates without a model.

forecaster = Forecaster(model)          # in the deciding process: facts in, estimates out, no I/O
forecaster.restore(store.runs())
forecaster.submitted(run); forecaster.started(run.uid, at, flavor); store.put([forecaster.finished(run.uid, at)])
forecaster.forecasts(uids, now)         # uid -> Forecast(q10, q50, q80, q90, q95, source, samples)
model = train_in_process(url, Path("model.gz"), now)      # in a worker; then forecaster.use(model)

Names are imported on first use, because numpy and LightGBM need 47 MB, which an operator without a model saves.
"""
