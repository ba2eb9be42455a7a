"""`gangline admin record`: watches a cluster and writes its record, with no right but to read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from gangline.jobs import BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.reflector import Reflector, ReflectorGroup
from gangline.kube.resources import Resource
from gangline.record.entries import RECORDED
from gangline.record.recorder import Recorder

log = logging.getLogger(__name__)

#: seconds between two signs of life
TICK: Final = 5.0
#: kinds that a cluster may lack
_OPTIONAL: Final = frozenset({kube.QUEUE_POLICIES, kube.TOPOLOGIES, kube.COHORTS, kube.RESERVATIONS, kube.QUOTA_PLANS})


def watched() -> tuple[Resource, ...]:
    """The kinds of a record, and those of jobs, which say how long they expect to run."""
    return (*RECORDED, *BY_RESOURCE)


async def follow(client: ApiClient, recorder: Recorder, ready: Callable[[], None] = lambda: None) -> None:
    """Record until cancelled. `ready` is called once everything was listed."""
    jobs, others = ReflectorGroup(), ReflectorGroup()
    reflectors: list[Reflector] = []
    for resource in watched():
        job = resource in BY_RESOURCE
        optional = job or resource in _OPTIONAL
        reflector = Reflector(client, resource, optional=optional, refusable=optional)
        reflectors.append(reflector)
        (jobs if job else others).add(reflector, partial(recorder.observe, resource))
    async with asyncio.TaskGroup() as tasks:
        # jobs first: what they say of their runtime is kept with their Workloads
        for group in (jobs, others):
            tasks.create_task(group.run())
            await group.wait_synced()
        for reflector in reflectors:
            if not reflector.absent:
                recorder.listed(reflector.resource)
        _tell(reflectors)
        ready()
        while True:
            recorder.tick()
            await asyncio.sleep(TICK)


def _tell(reflectors: list[Reflector]) -> None:
    """What is missing in the record, and why."""
    for reflector in reflectors:
        if reflector.refusal:
            log.warning("%s are not recorded: %s", reflector.resource, reflector.refusal)
