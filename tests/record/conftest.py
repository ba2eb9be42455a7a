"""A replay forecasts, and that needs LightGBM with the machine's OpenMP runtime; without it the rest of Gangline works."""

from __future__ import annotations

import warnings

try:
    import gangline.forecast.learning.quantile_model as _boosting
except ImportError as error:
    warnings.warn(f"tests/record is left out: {error}", stacklevel=1)
    collect_ignore_glob = ["test_*.py"]
else:
    assert _boosting.lightgbm
