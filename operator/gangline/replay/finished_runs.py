"""The runs of a replay that have ended, kept in files until the replay is complete: one that was interrupted goes on with them.

A file is JSON. It counts only for the same version, parameters and inputs, whose digest is in its name.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gangline import __version__, files
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.replayed import ReplayResult
from gangline.replay.run import PolicyResult

_FOLDER: Final = "unfinished"
#: bytes of one file; the result of a million jobs has about 300 MB
_MOST: Final = 2**30


@dataclass(frozen=True, slots=True)
class _Kept:
    result: ReplayResult
    measures: dict[str, Any]
    forecast: dict[str, Any]


_ADAPTER: Final = TypeAdapter(_Kept)


class FinishedRuns:
    """The ended runs of one replay, in a folder within that of its report. `folder` None: nothing is kept."""

    def __init__(self, folder: Path | None, plan: ReplayPlan, prepared: Prepared) -> None:
        self._folder = None if folder is None else folder / _FOLDER
        self._digest = "" if folder is None else _digest(plan, prepared)

    def read(self, policy: Policy, shaken: int) -> tuple[PolicyResult, dict[str, Any]] | None:
        """The run, if it has ended; None also where its file cannot be read or understood."""
        if self._folder is None:
            return None
        try:
            kept = _ADAPTER.validate_json(files.read_bytes(self._folder / self._name(policy, shaken), most=_MOST))
        except (OSError, ValidationError):
            return None
        return PolicyResult(policy.name, kept.result, kept.measures), kept.forecast

    def keep(self, policy: Policy, shaken: int, done: tuple[PolicyResult, dict[str, Any]]) -> None:
        """Write a run that has ended. Raises OSError."""
        if self._folder is not None:
            story, forecast = done
            kept = _Kept(story.result, story.measures, forecast)
            files.write(self._folder / self._name(policy, shaken), _ADAPTER.dump_json(kept))

    def _name(self, policy: Policy, shaken: int) -> str:
        return f"{self._digest}-{_hash(policy.name)[:16]}-{shaken}.json"

    def forget(self) -> None:
        """The replay is complete, and its report is what counts."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _digest(plan: ReplayPlan, prepared: Prepared) -> str:
    """What the version, the parameters and the inputs come to. A model is trained from these inputs, not always to the bit."""
    inputs = prepared.jobs, prepared.history, prepared.past_seconds, prepared.limit, prepared.quotas
    return _hash(repr((__version__, replace(plan, workers=1), inputs, prepared.planned, prepared.worlds)))[:32]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
