"""LightGBM, or words about what it lacks: its wheel needs the OpenMP runtime of the machine."""

from __future__ import annotations

try:
    import lightgbm as lightgbm
except OSError as error:
    raise ImportError(
        "forecast models need LightGBM, and that needs libgomp.so.1, which this machine lacks "
        f"(Debian, Ubuntu: apt-get install libgomp1): {error}"
    ) from error
