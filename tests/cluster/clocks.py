"""Clocks that are off: what processes under test read in the place of this machine's."""

from __future__ import annotations

import time
from functools import partial

from tests.cluster.harness import Replaced


def _shifted(seconds: float) -> float:
    return time.time() + seconds


def ahead(seconds: float) -> Replaced:
    """A clock that is so far ahead (behind, if negative)."""
    return {"gangline.kube.transport:read": partial(_shifted, seconds)}
