"""The runs of a replay that have ended, kept in files until the replay is complete: one that was interrupted goes on with them.

A file is JSON. It counts only for the same version, parameters and inputs, whose digest is in its name.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gangline import __version__, files
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.replayed import ReplayResult
from gangline.replay.run import PolicyResult

_FOLDER: Final = "unfinished"
#: bytes of one file; the result of a million jobs has about 300 MB
_MOST: Final = 2**30


@dataclass(frozen=True, slots=True)
class _Kept:
    policy: str
    result: ReplayResult
    measures: dict[str, Any]
    forecast: dict[str, Any]


_ADAPTER: Final = TypeAdapter(_Kept)


class FinishedRuns:
    """The ended runs of one replay, in a folder within that of its report. `folder` None: nothing is kept."""

    def __init__(self, folder: Path | None, plan: ReplayPlan, prepared: Prepared) -> None:
        self._folder = None if folder is None else folder / _FOLDER
        # a model is trained from these inputs, not always to the bit
        inputs = prepared.jobs, prepared.history, prepared.past_seconds, prepared.limit, prepared.quotas
        told = repr((__version__, replace(plan, workers=1), inputs, prepared.planned, prepared.worlds))
        self._digest = hashlib.sha256(told.encode()).hexdigest()[:32]

    def _path(self, policy: str, shaken: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._digest}-{hashlib.sha256(policy.encode()).hexdigest()[:16]}-{shaken}.json"

    def read(self, policy: str, shaken: int) -> tuple[PolicyResult, dict[str, Any]] | None:
        """The run, if it has ended; None also where its file cannot be read or understood."""
        if self._folder is None:
            return None
        try:
            kept = _ADAPTER.validate_json(files.read_bytes(self._path(policy, shaken), most=_MOST))
        except (OSError, ValidationError):
            return None
        return PolicyResult(kept.policy, kept.result, kept.measures), kept.forecast

    def keep(self, policy: str, shaken: int, story: PolicyResult, forecast: Mapping[str, Any]) -> None:
        """Write a run that has ended. Raises OSError."""
        if self._folder is None:
            return
        kept = _Kept(story.policy, story.result, story.measures, dict(forecast))
        files.write(self._path(policy, shaken), _ADAPTER.dump_json(kept))

    def forget(self) -> None:
        """The replay is complete, and its report is what counts."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
