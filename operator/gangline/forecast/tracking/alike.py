"""The last finished runs that are like a run: of the same task name, else of the same owner, and of the same size."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial
from typing import Final

from gangline.forecast.history.runs import Run, fold
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.tracking.stats import ClassStats
from gangline.tenants import SharedRoom

#: finished runs of one kind of which quantiles are taken, the latest ones; and how few there may be
ALIKE_RUNS: Final = 300
_FEWEST: Final = 5
#: kinds that are remembered, of all namespaces together; a full one takes 7 kB
MOST_KINDS: Final = 5_000

_new = partial(ClassStats, ALIKE_RUNS)


class AlikeRuns:
    """Quantiles of the last runs that are alike, which a model has to beat.

    Call `finished` for each run in the order of their ends. Runtimes are log seconds on the average flavor.
    """

    def __init__(self, most: int = MOST_KINDS) -> None:
        self._latest: SharedRoom[Hashable, ClassStats] = SharedRoom(most)

    def __len__(self) -> int:
        """The number of kinds."""
        return len(self._latest)

    def finished(self, run: Run, at: float, log: float) -> None:
        for namespace, kind in _kinds(run):
            self._latest.use(namespace, kind, _new).finished(run.uid, at, log)

    def quantiles(self, run: Run) -> list[float]:
        """The quantiles at LEVELS of the narrowest kind with enough runs; NaN if there is none."""
        known = self._narrowest(run)
        return [known.quantile(level, unseen=1) for level in LEVELS] if known is not None else [math.nan] * len(LEVELS)

    def remembered(self, run: Run) -> int:
        """The number of runs of which these quantiles are."""
        known = self._narrowest(run)
        return known.remembered if known is not None else 0

    def _narrowest(self, run: Run) -> ClassStats | None:
        for namespace, kind in _kinds(run):
            known = self._latest.get(namespace, kind)
            if known is not None and known.remembered >= _FEWEST:
                return known
        return None


def _kinds(run: Run) -> list[tuple[str, Hashable]]:
    """The kinds of a run, the narrowest first, each with the namespace that it belongs to; "" for those of all namespaces."""
    namespace, owner = run.namespace, (run.namespace, run.user or run.queue)
    named: list[tuple[str, Hashable]] = [(namespace, (owner, run.gpus, fold(run.name)))] if run.name else []
    owned: list[tuple[str, Hashable]] = [(namespace, (owner, run.gpus))] if any(owner) else []
    return [*named, *owned, ("", run.gpus), ("", "")]
