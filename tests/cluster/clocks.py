"""Clocks that are off: what processes under test read in the place of this machine's."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tests.cluster.harness import Replaced


def _shifted(seconds: float) -> float:
    return time.time() + seconds


def _shifted_by(file: Path) -> float:
    text = file.read_text() if file.exists() else ""
    return time.time() + float(text or 0)


def stepping(file: Path) -> Replaced:
    """A clock that is ahead by as many seconds as this file says at each moment."""
    return {"gangline.kube.transport:read": partial(_shifted_by, file)}


def ahead(seconds: float) -> Replaced:
    """A clock that is so far ahead (behind, if negative)."""
    return {"gangline.kube.transport:read": partial(_shifted, seconds)}
