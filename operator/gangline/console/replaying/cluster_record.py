"""`gangline admin replay --cluster-record`: the record of a cluster under its own settings and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gangline.record import preparing, reading
from gangline.record.preparing import ReadRecord
from gangline.record.worlds import OWN
from gangline.replay import policies
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.run import Replay
from gangline.replay.world import savings

#: the policies of a record that are played unless others are named
USUAL: Final = "own,besteffort,easy,gangline"
#: shaken runs: below three an interval says little
SHAKEN: Final = 5


def opened(folder: Path) -> ReadRecord:
    """The record in a folder, to be replayed. Raises RecordError, ReplayError."""
    return preparing.source(reading.read(folder))


def chosen(names: str) -> tuple[Policy, ...]:
    """The policies to play: the cluster's own first, and those that are named. Raises ReplayError."""
    others = ",".join(name for name in (each.strip() for each in names.split(",")) if name and name != OWN.name)
    return preparing.with_own(policies.chosen(others) if others else (), OWN)


def finished(
    source: ReadRecord, plan: ReplayPlan, prepared: Prepared, play: Callable[[], Replay], notes: Sequence[str] = ()
) -> Replay:
    """The replay with what really happened as its first policy, and with what each policy saves against the cluster's own."""
    done = play()
    measures = {story.policy: story.measures for story in done.stories}
    done.savings = savings(measures, done.shaken, OWN.name)
    done.base = OWN.name
    done.stories.insert(0, preparing.as_recorded(source, plan, prepared))
    return replace(done, notes=[*done.notes, *notes])
