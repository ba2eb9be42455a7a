"""Pending workloads as in Kueue's visibility API, and forecasts over plain HTTP."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson
from fastapi import FastAPI, Response

from gangline import bounded
from gangline.control.answers.sight import ALL, Sight
from gangline.control.controller import Controller
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.tls.apps import add_get

if TYPE_CHECKING:
    from gangline.control.forecasting.forecasting import Forecasting


#: items of one answer, where the request gives no limit or 0, and at most
DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 100_000
#: a computed order is reused for this many times as long as it took, and at most for this many seconds
SHARE: Final = 20.0
LONGEST_GOOD: Final = 5.0
#: how many pending workloads are processed before other tasks get their turn
AT_ONCE: Final = 1000


class PageError(ValueError):
    """The request names an invalid page; the text names the parameter."""


class NoQueueError(LookupError):
    """There is no such queue."""


@dataclass(frozen=True, slots=True)
class PendingPage:
    """The part of the pending workloads that is requested."""

    offset: int = 0
    limit: int = DEFAULT_LIMIT

    @classmethod
    def of(cls, query: Mapping[str, str]) -> PendingPage:
        """Read a page from the parameters of a URL. Raises PageError."""

        def number(name: str, default: int) -> int:
            text = query.get(name)
            if not text:
                return default
            found = bounded.whole(text.removeprefix("-"))
            if found is None:
                raise PageError(f"{name} must be a whole number, not {bounded.shown(text)}")
            return 0 if text.startswith("-") else found

        return cls(number("offset", 0), min(MAX_LIMIT, number("limit", 0) or DEFAULT_LIMIT))


class Visibility:
    """Answers from the mirror and the engine of one process. In answers outside Kueue's API, `cluster` identifies the cluster."""

    def __init__(
        self,
        controller: Controller,
        forecasting: Forecasting | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._controller = controller
        self._forecasting = forecasting
        self._clock = clock
        #: ClusterQueue -> its pending workloads, and until when that order is valid
        self._orders: dict[str, tuple[list[str], float]] = {}
        #: all forecasts as they were answered last, as JSON, and until when they are
        self._answered: tuple[bytes, float] = (b"", float("-inf"))
        self._answering = asyncio.Lock()

    # --- forecasts, over plain HTTP -----------------------------------------------------------------------------------

    def add_to(self, app: FastAPI) -> None:
        add_get(app, "/cluster", self._cluster, summary="Which cluster this is the operator of")
        add_get(
            app, "/forecasts", self._forecasts, summary="Every estimate of a whole runtime, by an alias of the workload"
        )
        add_get(app, "/accuracy", self._accuracy, summary="How good forecasts and expected starts were")

    async def _cluster(self) -> Response:
        """Answer which cluster this is the operator of."""
        return self._answer({})

    async def _forecasts(self) -> Response:
        """Answer with every estimate of a whole runtime, without the names of workloads, since anybody may ask.

        The request has estimates made for a while, even where no policy needs them.
        """
        forecasting = self._forecasting
        if forecasting is None:
            return self._answer({"forecasts": None})
        forecasting.ask()
        await forecasting.settled()
        async with self._answering:
            if self._clock() >= self._answered[1]:
                self._answered = await self._estimates(forecasting)
            return Response(self._answered[0], media_type="application/json")

    async def _estimates(self, forecasting: Forecasting) -> tuple[bytes, float]:
        """The answer with all estimates, and until when it is given again: frequent requests take at most a twentieth of the
        time.
        """
        from gangline.control.forecasting.forecasting import alias, rows_as_json

        rows: Json = {}
        spent, start = 0.0, self._clock()
        for number, (key, row) in enumerate(rows_as_json(forecasting.forecasts)):
            workload = self._controller.mirror.workloads.get(key)
            if workload is not None:
                rows[alias(workload.uid)] = row
            if number % AT_ONCE == AT_ONCE - 1:
                spent += self._clock() - start
                await asyncio.sleep(0)
                start = self._clock()
        offsets = dict(forecasting.forecasts.forecaster.flavor_offsets)
        answer = orjson.dumps(
            {"cluster": self._controller.mirror.cluster_id(), "forecasts": rows, "flavorOffsets": offsets}
        )
        spent += self._clock() - start
        return answer, self._clock() + min(LONGEST_GOOD, SHARE * spent)

    async def _accuracy(self) -> Response:
        """The accuracy of forecasts and expected starts, without the names of ClusterQueues, since anybody may ask."""
        from gangline.control.forecasting.forecasting import alias

        forecasting = self._forecasting
        if forecasting is None:
            return self._answer({"message": "this operator makes no forecasts"}, 404)
        accuracy = forecasting.accuracy()
        known = self._controller.mirror.objects[kube.CLUSTER_QUEUES]
        queues = {alias(known[name].uid): record for name, record in accuracy["queues"].items() if name in known}
        return self._answer({**accuracy, "queues": queues})

    def _answer(self, body: Json, status: int = 200) -> Response:
        answer = orjson.dumps({"cluster": self._controller.mirror.cluster_id(), **body})
        return Response(answer, status, media_type="application/json")

    # --- pending workloads --------------------------------------------------------------------------------------------

    async def pending(self, queue: str, namespace: str, page: PendingPage) -> list[Json]:
        """The pending workloads of a ClusterQueue (no `namespace`) or a LocalQueue, in queue order. Raises NoQueueError."""
        mirror = self._controller.mirror
        if not namespace:
            if mirror.get(kube.CLUSTER_QUEUES, queue) is None:
                raise NoQueueError(queue)
            return await self._listed(queue, page)
        local = mirror.local_queues.get(f"{namespace}/{queue}")
        if local is None:
            raise NoQueueError(queue)
        return await self._listed(local.cluster_queue, page, only=f"{namespace}/{queue}")

    async def _listed(self, cluster_queue: str, page: PendingPage, *, only: str = "") -> list[Json]:
        """A page of the pending workloads of a ClusterQueue, or of those that came through one LocalQueue."""
        if self._forecasting is not None:
            self._forecasting.ask()
        # of a LocalQueue users of its namespace ask, who see no names of other namespaces in `because`
        sight = Sight(namespaces=frozenset({only.partition("/")[0]})) if only else ALL
        places: Counter[str] = Counter()
        items: list[Json] = []
        for position, key in enumerate(self.order(cluster_queue)):
            if position % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            value = self._controller.mirror.workload_value(key)
            if value is None:
                continue
            local_queue = f"{value.namespace}/{value.queue}"
            place = places[local_queue]
            places[local_queue] += 1
            if (only and local_queue != only) or (place if only else position) < page.offset:
                continue
            if len(items) >= page.limit:
                break
            item = self._item(key, sight)
            item |= {
                "priority": value.priority + value.boost,
                "localQueueName": value.queue,
                "positionInClusterQueue": position,
                "positionInLocalQueue": place,
            }
            items.append(item)
        return items

    def order(self, cluster_queue: str) -> list[str]:
        """The pending workloads of a ClusterQueue, in queue order. Sorting many takes time from decisions: the longer it took,
        the longer the result is reused, so that frequent requests take at most a twentieth of the time."""
        now = self._clock()
        order, good_until = self._orders.get(cluster_queue, ([], now))
        if now < good_until:
            return order
        order = self._controller.engine.pending(cluster_queue)
        done = self._clock()
        self._orders = {name: known for name, known in self._orders.items() if now < known[1]}
        self._orders[cluster_queue] = (order, done + min(LONGEST_GOOD, SHARE * (done - now)))
        return order

    def _item(self, key: str, sight: Sight) -> Json:
        """One pending workload; `forecast` and `expectedStart` are Gangline's, the other fields Kueue's."""
        workload = self._controller.mirror.workloads.get(key)
        meta = workload.metadata if workload is not None else {}
        fields = ("name", "namespace", "ownerReferences", "creationTimestamp")
        item: Json = {"metadata": {field: meta[field] for field in fields if field in meta}}
        if self._forecasting is None:
            return item
        estimate = self._forecasting.forecasts.estimate(key)
        if estimate is not None:
            item["forecast"] = {
                "p50Seconds": round(estimate.q50),
                "p90Seconds": round(estimate.q90),
                "source": estimate.source,
                "samples": estimate.samples,
            }
        if (start := self._forecasting.expected.starts.get(key)) is not None:
            from gangline.control.forecasting.expected_starts import start_status

            item["expectedStart"] = start_status(replace(start, because=sight.text(start.because)))
        return item
