"""A cluster's own engine, here: everything is listed, read as the operator reads it, and asked what would come of it.

Nothing is written, and nothing more is needed than a kubeconfig that may list. How long workloads run is asked of the operator,
whose history is longer; where it can't be reached, what has finished on the cluster and what jobs say of themselves must do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from gangline.console.views import reach
from gangline.control.forecasting.by_flavor import slowest
from gangline.control.forecasting.runtime_facts import Forecasts
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.mirror.watched_kinds import OPTIONAL, SELECTORS, resources
from gangline.engine import HORIZON, Engine, Outlook, model, outlook
from gangline.forecast import LEVELS, Forecast
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import Json, Resource

#: resources that tell nothing of time; what is not listed need not be allowed
_SKIPPED = frozenset({kube.SERVICES})


def wall_millis() -> int:
    return int(time.time() * 1000)


@dataclass
class World:
    """The engine with all that is known, at the instant `now` (milliseconds)."""

    now: int = field(default_factory=wall_millis)
    engine: Engine = field(default_factory=Engine)
    #: the operator's own estimates are used
    from_operator: bool = False

    def __post_init__(self) -> None:
        self.mirror = Mirror(observe=self._observe)
        self.forecasts = Forecasts(self.mirror, self.engine.observe, now=lambda: self.now)
        self._told: dict[str, Forecast] = {}

    def _observe(self, change: model.Change) -> None:
        self.engine.observe(change)
        self.forecasts.note(change)

    def fill(self, objects: Mapping[Resource, list[Json]]) -> None:
        """Take in everything there is; pods only if they were listed."""
        pods = PodIndex(self.engine.observe, self.mirror.pod_counts)
        for pod in objects.get(kube.PODS, ()):
            pods.upsert(pod)
        for resource in resources():  # policies before queues would be read again: the order does not matter
            for obj in objects.get(resource, ()):
                self.mirror.upsert(resource, obj)
        self.mirror.know_pods()

    def forecast(self, told: Mapping[str, Any] | None, offsets: Mapping[str, float] | None = None) -> None:
        """Use the operator's estimates, and make our own where it says nothing; with what it has learned of flavors."""
        if offsets:
            self.forecasts.forecaster.compare_flavors(offsets)
        self.forecasts.tell_all()
        self.from_operator = told is not None
        for key, body in (told or {}).items():
            estimate = _estimate(body.get("quantiles"), body)
            if estimate is not None:
                there = {flavor: _estimate(values, body) for flavor, values in (body.get("byFlavor") or {}).items()}
                self.forecasts.take(key, estimate, {name: found for name, found in there.items() if found is not None})

    def outlook(self, only: frozenset[str] | None = None, *, seconds: float = 3.0, horizon: int = HORIZON) -> Outlook:
        """Who starts when, as it looks now; with `only`, no further than until these have started."""
        facts = self.engine.facts()
        return outlook(
            facts, self.engine.settings, self.now, only=only, seconds=seconds, horizon=horizon, clock=time.perf_counter
        )

    def estimate(self, key: str) -> Forecast | None:
        """Of a workload's whole runtime, wherever it runs."""
        return self.forecasts.estimate(key)

    def expected(self, key: str, admission: model.Admission | None) -> tuple[Forecast | None, str]:
        """Of a workload's whole runtime if it is admitted like this, and the flavor that tells; "" if none is told apart."""
        there = self.forecasts.by_flavor(key)
        flavor = slowest(there, admission)
        return (there[flavor], flavor) if flavor else (self.estimate(key), "")


def _estimate(quantiles: Sequence[float] | None, body: Mapping[str, Any]) -> Forecast | None:
    """As the operator says it; None if it says something else."""
    if quantiles is None or len(quantiles) != len(LEVELS):
        return None
    return Forecast(*quantiles, source=body.get("source", ""), samples=body.get("samples", 0))


async def load(api: ApiClient) -> World:
    """The cluster as it is now. Raises click.ClickException where something may not be listed."""
    told = asyncio.create_task(reach.forecasts(api))
    try:
        objects = await _list(api)
        world = World()
        world.fill(objects)
        answer = await told or {}
        world.forecast(answer.get("forecasts"), answer.get("flavorOffsets"))
    finally:
        told.cancel()
    return world


async def _list(api: ApiClient) -> dict[Resource, list[Json]]:
    wanted = [resource for resource in resources() if resource not in _SKIPPED]
    lists = await asyncio.gather(*(_objects(api, resource) for resource in wanted))
    objects = dict(zip(wanted, lists, strict=True))
    if objects[kube.TOPOLOGIES]:
        objects[kube.PODS] = await _objects(api, kube.PODS)
    return objects


async def _objects(api: ApiClient, resource: Resource) -> list[Json]:
    try:
        return (await api.list(resource, label_selector=SELECTORS.get(resource, ""))).items
    except NotFound:
        if resource in OPTIONAL:
            return []
        raise
    except Forbidden as error:
        raise click.ClickException(
            f"when something starts depends on all who wait; you may not list {resource} in all namespaces: "
            f"{error.message}"
        ) from error
