"""The accuracy of forecasts and expected starts over the lives of many processes: counted here, stored in the history.

The leader counts; a new leader goes on from the counts saved last. They are saved twice a minute and at the end: a process that
is killed loses at most half a minute of counts. What reserved heads were promised, and what runs have lost to company, is saved
with them, and becomes facts for the engine of the next leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

import orjson

from gangline.control.audit import fact_codec
from gangline.control.forecasting.expected_starts import Accuracy
from gangline.control.forecasting.group_coverage import Groups, counts_of
from gangline.control.forecasting.history_store import History
from gangline.control.forecasting.promises import PromiseRecord as QueueRecord
from gangline.control.forecasting.runtime_facts import EstimateRecord
from gangline.engine import model
from gangline.forecast.errors import StoreError
from gangline.forecast.quantiles import LEVELS
from gangline.kube.resources import Json

log = logging.getLogger(__name__)


#: version of the saved form: counts in another form are discarded
_SHAPE: Final = 1


@dataclass(slots=True)
class Tallies:
    """Counts that other modules keep in `records` and `accuracy`. `cluster` distinguishes clusters that share a database."""

    history: History
    records: dict[str, EstimateRecord]
    accuracy: Accuracy
    cluster: Callable[[], str]
    now: Callable[[], int]
    #: how promises came true, by ClusterQueue
    queues: dict[str, QueueRecord] = field(default_factory=dict[str, QueueRecord])
    #: how many runs of each tenant and size were within their q90
    groups: Groups = field(default_factory=Groups)
    #: the errors of the model and its baseline, saved so that the model can be judged after a restart
    judged: Callable[[], list[list[float]]] = list
    #: what reserved heads were promised, and what came of it; and what takes in what an earlier process saved of that
    promised: Callable[[], Iterable[model.ReservedHead]] = tuple
    observe: Callable[[model.Change], None] = lambda change: None
    #: what running workloads have lost to companions that have left
    slowed: Callable[[], Iterable[model.SlowedRun]] = tuple
    #: when counting began, in Unix seconds
    since: float = 0.0
    #: the errors that an earlier process saved: held until a model is in use, which is judged by them as well
    judgement: list[list[float]] = field(default_factory=list[list[float]])
    _loaded: bool = False
    _kept: bytes = b""

    async def load(self) -> bool:
        """Go on from the saved counts; this process's own counts so far are dropped, since the former leader counted them too.
        Returns False if the database did not answer: try again."""
        try:
            text = await self.history.kept(self._name())
        except StoreError:
            return False
        self.records.clear()
        self.accuracy.clear()
        self.queues.clear()
        self.groups.counts.clear()
        self.since = self.now() / 1000
        if text is not None:
            self._take(text)
        self._loaded = True
        return True

    def _take(self, text: str) -> None:
        try:
            saved = orjson.loads(text)
            if saved["shape"] != _SHAPE:
                return
            records = {source: _record(row) for source, row in saved["runtimes"].items()}
            starts = saved["starts"]
            queues = {name: QueueRecord.of(row) for name, row in saved.get("queues", {}).items()}
            groups = counts_of(saved.get("groups", []))
            heads = [fact_codec.from_json(model.ReservedHead, row) for row in saved.get("heads", [])]
            slowed = [fact_codec.from_json(model.SlowedRun, row) for row in saved.get("slowed", [])]
            self.accuracy.restore(starts["starts"], starts["within_p50"], starts["within_p90"], starts["errors"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("the saved accuracy can't be read, counting starts again: %r", error)
            return
        self.records.update(records)
        self.queues.update(queues)
        self.groups.counts.update(groups)
        self.since = saved["since"]
        for fact in (*heads, *slowed):
            self.observe(model.Put(fact))
        if not self._loaded:
            self.judgement = saved["judged"]

    async def save(self) -> None:
        """Save the counts, if they have changed. Tried again the next time where the database refuses."""
        if not self._loaded:
            return
        text = orjson.dumps(self._saved())
        if text == self._kept:
            return
        try:
            await self.history.keep(self._name(), text.decode())
        except StoreError as error:
            log.info("the accuracy could not be saved: %s", error)
            return
        self._kept = text

    def _saved(self) -> Json:
        records = {source: asdict(record) for source, record in sorted(self.records.items())}
        for row in records.values():
            row["below"] = [row["below"][level] for level in LEVELS]
        counted = self.accuracy
        starts = {
            "starts": counted.starts,
            "within_p50": counted.within_p50,
            "within_p90": counted.within_p90,
            "errors": list(counted.errors),
        }
        judged = self.judged() or self.judgement
        queues = {name: record.saved() for name, record in sorted(self.queues.items())}
        counts = {"runtimes": records, "starts": starts, "queues": queues, "groups": self.groups.saved()}
        counts["heads"] = [fact_codec.written(head) for head in self.promised()]
        counts["slowed"] = [fact_codec.written(run) for run in self.slowed()]
        return {"shape": _SHAPE, "since": self.since, **counts, "judged": judged}

    def _name(self) -> str:
        return f"accuracy/{self.cluster()}"


def _record(row: Json) -> EstimateRecord:
    below = dict(zip(LEVELS, map(int, row["below"]), strict=True))
    return EstimateRecord(int(row["ended"]), below, float(row["log_error"]))
