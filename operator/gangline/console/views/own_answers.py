"""The operator's answers, computed here by an administrator who may list everything, where no operator gives them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from gangline.api import names
from gangline.api.quota_plans import Planned
from gangline.api.read.parse import ParseError
from gangline.console.output import remarks
from gangline.console.views import own_rights, reach
from gangline.control.answers.ahead import whatif
from gangline.control.answers.answers import Answers
from gangline.control.answers.desk import Wish
from gangline.control.answers.refusals import NoSuchJobError, NoSuchQueueError
from gangline.control.answers.sight import Everybody
from gangline.control.answers.source import Source
from gangline.control.answers.workloads.briefs import WrongNameError
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex
from gangline.control.feed.watched_kinds import INVENTORY, optional, resources, selector, unqueued
from gangline.control.forecasting.forecasting import alias
from gangline.control.forecasting.promises import Ledger
from gangline.control.forecasting.rehearsals import (
    Move,
    PreemptionOutlook,
    Rehearsal,
    Rehearsals,
    evacuation,
    preemption,
    rehearse,
)
from gangline.control.forecasting.runtime_facts import Forecasts
from gangline.control.kinds.dependencies import facts_of
from gangline.control.nodes.cards.card_inventory import CardInventory
from gangline.control.nodes.cards.inventory_feed import of_node, put
from gangline.control.queues.planned_quotas import expand
from gangline.control.writes.status import fallen_back, queue_orders
from gangline.engine import HORIZON, POLICY, Engine, Mode, Outlook, model, outlook
from gangline.forecast.history.runs import Run
from gangline.forecast.quantiles import Forecast
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import Json, Resource, key_of
from gangline.objects import PodObject, view

# --- world ------------------------------------------------------------------------------------------------------------
#
# A local copy of a cluster's engine, for an administrator where no operator answers: lists all objects, reads them as the
# operator does, and simulates what follows.
#
# Nothing is written to the cluster; the kubeconfig needs permission to list everything. Runtime forecasts come from the
# operator, whose history is longer. If it can't be reached, they come from finished workloads in the cluster and the jobs'
# hints.


#: resources that don't affect start times and are not listed, so that no permission for them is needed
_SKIPPED = frozenset({kube.SERVICES})


class ListForbiddenError(Exception):
    """The user may not list what all answers depend on; the text says what."""


def wall_millis() -> int:
    return int(time.time() * 1000)


@dataclass
class ClusterInstant:
    """The engine with the cluster's state at the instant `now` (milliseconds since the epoch)."""

    now: int = field(default_factory=wall_millis)
    engine: Engine = field(default_factory=Engine)
    #: whether the operator's forecasts are used
    from_operator: bool = False
    #: what was promised, as far as it is known here
    ledger: Ledger | None = None

    def __post_init__(self) -> None:
        self.mirror = Mirror(observe=self._observe, now=lambda: self.now)
        self.mirror.mode_of = self._mode_of
        self.mirror.effective = self._effective
        #: ClusterQueue -> the QuotaPlan that is in force for it; and its quotas as its spec says
        self._planned: dict[str, Planned] = {}
        self._written: dict[str, tuple[model.ResourceGroup, ...]] = {}
        self.pods = PodIndex(self.engine.observe, self.mirror.pod_counts)
        self.cards = CardInventory(self.pods.workload_of)
        self.forecasts = Forecasts(self.mirror, self.engine.observe, now=lambda: self.now)

    def _mode_of(self, cluster_queue: str) -> Mode:
        """The mode of a ClusterQueue that the operator last recorded: its policy, or what it has fallen back to."""
        queue = self.mirror.get(kube.CLUSTER_QUEUES, cluster_queue)
        found = fallen_back.of_queue(self.mirror.policy_of(queue), cluster_queue) if queue is not None else None
        return found.mode if found is not None else POLICY

    def _effective(self, queue: model.ClusterQueue) -> model.ClusterQueue:
        """The ClusterQueue with the quotas that it has now."""
        self._written[queue.name] = queue.groups
        planned = self._planned.get(queue.name)
        return queue if planned is None else planned.applied_to(queue)

    def _apply_plans(self) -> None:
        """Let ClusterQueues have the quotas that QuotaPlans give them now and later."""
        for planned in expand(self.mirror.objects[kube.QUOTA_PLANS].values(), self._written, self.now):
            if planned.facts is not None:
                queue = planned.facts.cluster_queue
                self._planned[queue] = planned
                self.mirror.read_again(kube.CLUSTER_QUEUES, queue)
                if (ahead := planned.ahead(self._written[queue])) is not None:
                    self._observe(model.Put(ahead))

    def _observe(self, change: model.Change) -> None:
        self.engine.observe(change)
        self.forecasts.note(change)

    def fill(self, objects: Mapping[Resource, list[Json]]) -> None:
        """Add all objects to the mirror; pods only if they were listed."""
        for pod in objects.get(kube.PODS, ()):
            self.pods.upsert(PodObject(pod))
        for resource in resources():  # in any order: the mirror reads queues again when policies change
            for obj in objects.get(resource, ()):
                self.mirror.upsert(resource, view(resource, obj))
        self._apply_plans()
        for policy in self.mirror.objects[kube.QUEUE_POLICIES].values():
            for order in queue_orders.recorded(policy):
                self._observe(model.Put(order))
        self._survey(objects)
        for workload in self.mirror.recounted():
            self.mirror.count_anew(workload)
        self.mirror.know_pods()
        for fact in facts_of(self.mirror):
            self.engine.observe(model.Put(fact))

    def _survey(self, objects: Mapping[Resource, list[Json]]) -> None:
        """Let the mirror know the cards of nodes, by which shares of them count."""
        for resource in (kube.NODES, kube.PODS, *INVENTORY):
            for obj in objects.get(resource, ()):
                try:
                    put(self.cards, resource, key_of(obj), view(resource, obj))
                except ParseError:
                    continue  # the operator complains of it
        for known in self.cards.refresh()[0]:
            self.engine.observe(of_node(known))
        self.mirror.rules.put_cards(self.cards.sizes())

    def forecast(self, answer: Mapping[str, Any] | None, offsets: Mapping[str, float] | None = None) -> None:
        """Use the operator's forecasts and flavor offsets; make local forecasts for workloads that have none."""
        if offsets:
            self.forecasts.forecaster.compare_flavors(offsets)
        self.forecasts.tell_all()
        self.from_operator = answer is not None
        for key, body in (answer or {}).items():
            estimate = _estimate(body.get("quantiles"), body)
            if estimate is not None:
                by_flavor = {flavor: _estimate(values, body) for flavor, values in (body.get("byFlavor") or {}).items()}
                self.forecasts.take(
                    key, estimate, {name: found for name, found in by_flavor.items() if found is not None}
                )

    def outlook(self, only: frozenset[str] | None = None, *, seconds: float = 3.0, horizon: int = HORIZON) -> Outlook:
        """Simulate expected starts; with `only`, stop once these workloads have started."""
        facts = self.engine.facts()
        return outlook(
            facts, self.engine.settings, self.now, only=only, seconds=seconds, horizon=horizon, clock=time.perf_counter
        )

    def answers(self) -> Answers:
        """The answers that the operator would give, from this copy."""
        source = Source(self.mirror, self.engine, self.forecasts, lambda: self.now, self.pods, self.cards)
        return Answers(source, _OwnForesight(self), self.engine.pending)


@dataclass(frozen=True, slots=True)
class _OwnForesight:
    """Simulates in this process, which does nothing else."""

    world: ClusterInstant

    @property
    def ledger(self) -> Ledger | None:
        return self.world.ledger

    async def outlook(self, workload: str = "") -> Outlook:
        return self.world.outlook(frozenset({workload}) if workload else None)

    async def rehearse(self, rehearsals: Sequence[Rehearsal], seconds: float, best: int = 0) -> Rehearsals:
        engine = self.world.engine
        return rehearse(engine.facts(), engine.settings, self.world.now, rehearsals, seconds, best)

    async def preemption(self, workload: str) -> PreemptionOutlook:
        engine = self.world.engine
        return preemption(engine.facts(), engine.settings, self.world.now, workload)

    async def evacuation(self, node: str) -> tuple[Move, ...]:
        engine = self.world.engine
        return evacuation(engine.facts(), engine.settings, self.world.now, node, names.VACATE)

    async def past(self, namespace: str, since: float, most: int) -> list[Run]:
        """No runs: the operator's history is not this process's to read."""
        return []


def _estimate(quantiles: Sequence[float] | None, body: Mapping[str, Any]) -> Forecast | None:
    """The forecast in the operator's answer; None if it has another format."""
    try:
        return Forecast.of_values(quantiles or (), body.get("source", ""), body.get("samples", 0))
    except ValueError:
        return None


async def load(api: ApiClient) -> ClusterInstant:
    """The cluster's current state. Raises RefusedError if the user may not list a resource."""
    request = asyncio.create_task(reach.forecasts(api))
    try:
        objects = await _list(api)
        world = ClusterInstant()
        world.fill(objects)
        answer = await request or {}
        world.forecast(_named(answer.get("forecasts"), objects[kube.WORKLOADS]), answer.get("flavorOffsets"))
    finally:
        request.cancel()
    return world


def _named(answer: Mapping[str, Any] | None, workloads: Sequence[Json]) -> Mapping[str, Any] | None:
    """The operator's forecasts by `namespace/name`. The operator answers anybody, and so names no workload."""
    if answer is None:
        return None
    found = ((key_of(obj), answer.get(alias(obj["metadata"]["uid"]))) for obj in workloads)
    return {key: row for key, row in found if row is not None}


async def _list(api: ApiClient) -> dict[Resource, list[Json]]:
    wanted = [resource for resource in resources() if resource not in _SKIPPED and resource not in unqueued()]
    lists = await asyncio.gather(*(_objects(api, resource) for resource in wanted))
    objects = dict(zip(wanted, lists, strict=True))
    if objects[kube.TOPOLOGIES]:
        objects[kube.PODS] = await _objects(api, kube.PODS)
    return objects


async def _objects(api: ApiClient, resource: Resource) -> list[Json]:
    try:
        return (await api.list(resource, label_selector=selector(resource))).items
    except NotFound:
        if resource in optional():
            return []
        raise
    except Forbidden as error:
        if resource in INVENTORY:
            return []  # less is known of cards then
        raise ListForbiddenError(f"you may not list {resource} in all namespaces ({error.message})") from error


_WRONG = (NoSuchJobError, NoSuchQueueError, WrongNameError, whatif.WrongJobError)


async def jobs(
    api: ApiClient, namespace: str, anywhere: bool, cluster_queue: str | None, finished: bool, error: Exception
) -> list[Json]:
    """Jobs with their times."""
    here = await _load(api, error)
    wish = Wish("" if anywhere or cluster_queue else namespace, cluster_queue or "", finished, times=True)
    try:
        found = await here.answers().jobs(Everybody(), wish)
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong
    return [item for item in found.items if anywhere or item["namespace"] == namespace]


async def job(api: ApiClient, namespace: str, name: str, error: Exception) -> Json:
    """One job with its times, by its name or `kind/name`."""
    here = await _load(api, error)
    kind, _, name = name.rpartition("/")
    try:
        return await here.answers().job(Everybody(), namespace, kind, name, with_times=True)
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong


async def plan(api: ApiClient, cluster_queue: str | None, horizon: float, error: Exception) -> list[Json]:
    here = await _load(api, error)
    try:
        return (await here.answers().plan(Everybody(), "", cluster_queue or "", horizon)).items
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong


async def what_if(api: ApiClient, namespace: str, submitted: Json, date: str, error: Exception) -> Json:
    here = await _load(api, error)
    try:
        return await here.answers().what_if(Everybody(), namespace, submitted, date or None)
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong


async def _load(api: ApiClient, error: Exception) -> ClusterInstant:
    """A local copy of the cluster's engine. Raises click.ClickException if the user may not list everything."""
    try:
        here = await load(api)
    except ListForbiddenError as refused:
        raise click.ClickException(f"{error}; to compute expected starts here, {refused}") from refused
    own_rights.say(error)
    if not here.from_operator:
        remarks.remark("forecasts come from finished workloads in the cluster and hints of the jobs")
    return here
