"""Child processes of Python that run modules of Gangline."""

from __future__ import annotations

import os
import sys


def environment() -> dict[str, str]:
    """The environment of a child that finds the same modules as this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
