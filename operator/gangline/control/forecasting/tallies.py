"""The accuracy of forecasts and expected starts over the lives of many processes: counted here, stored in the history.

The leader counts; a new leader continues from the stored counts. They are stored twice a minute and at the end: a killed
process loses at most half a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

import orjson

from gangline.control.forecasting.expected_starts import Accuracy
from gangline.control.forecasting.history_store import History
from gangline.control.forecasting.runtime_facts import Record
from gangline.forecast import LEVELS, StoreError
from gangline.kube.resources import Json

log = logging.getLogger(__name__)


#: version of the stored format: another version begins anew
_SHAPE: Final = 1


@dataclass(slots=True)
class Tallies:
    """`records` and `accuracy` are counted elsewhere, and added to here. `cluster` distinguishes clusters that share a
    database.
    """

    history: History
    records: dict[str, Record]
    accuracy: Accuracy
    cluster: Callable[[], str]
    now: Callable[[], int]
    #: the errors of the model and its baseline: stored for judging the model
    judged: Callable[[], list[list[float]]] = list
    #: when counting began, in Unix seconds
    since: float = 0.0
    #: the errors from an earlier process: until a model is in use, which is judged by them as well
    judgement: list[list[float]] = field(default_factory=list[list[float]])
    _loaded: bool = False
    _kept: bytes = b""

    async def load(self) -> bool:
        """Continue from the stored counts; what this process counted before, the last leader has counted as well. False:
        retry.
        """
        try:
            text = await self.history.kept(self._name())
        except StoreError:
            return False
        self.records.clear()
        self.accuracy.clear()
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
            self.accuracy.restore(starts["starts"], starts["within_p50"], starts["within_p90"], starts["errors"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("what was kept of the accuracy can't be read, and counting begins anew: %r", error)
            return
        self.records.update(records)
        self.since = saved["since"]
        if not self._loaded:
            self.judgement = saved["judged"]

    async def save(self) -> None:
        """Store the counts if they changed. Retried the next time if the database refuses them."""
        if not self._loaded:
            return
        text = orjson.dumps(self._told())
        if text == self._kept:
            return
        try:
            await self.history.keep(self._name(), text.decode())
        except StoreError as error:
            log.info("the accuracy could not be kept: %s", error)
            return
        self._kept = text

    def _told(self) -> Json:
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
        return {"shape": _SHAPE, "since": self.since, "runtimes": records, "starts": starts, "judged": judged}

    def _name(self) -> str:
        return f"accuracy/{self.cluster()}"


def _record(row: Json) -> Record:
    below = dict(zip(LEVELS, map(int, row["below"]), strict=True))
    return Record(int(row["ended"]), below, float(row["log_error"]))
