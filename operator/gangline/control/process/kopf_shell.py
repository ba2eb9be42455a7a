"""kopf, the shell: process life cycle, login, and the handlers of the configuration kinds and GPUJob.

kopf is kept away from the hot path. Its event handlers cost 20 to 50 times an own list-watch, and it loses deletions when a
watch has to list again, which for quota is a leak for ever. So the truth about every kind comes from our own reflectors, and
kopf's watch is a second, independent pair of eyes: each event it sees must soon be seen by the reflector too, else that
reflector's stream is taken for dead and opened anew.

kopf writes nothing: no annotations, no finalizers, no events, no peering objects.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import kopf

from gangline.kube import resources as kube
from gangline.kube.config import Login
from gangline.kube.resources import Resource

log = logging.getLogger(__name__)

#: Kinds with tens of objects, changed by people: what kopf watches.
WATCHED: tuple[Resource, ...] = (
    kube.CLUSTER_QUEUES,
    kube.COHORTS,
    kube.RESOURCE_FLAVORS,
    kube.LOCAL_QUEUES,
    kube.GPU_JOBS,
)
#: Bearer tokens are asked for again after this time.
LOGIN_PERIOD = datetime.timedelta(minutes=10)

#: called with a resource, an object's key and the resourceVersion that kopf saw
Witness = Callable[[Resource, str, str], None]


class _NoProgress(kopf.ProgressStorage):
    """Keeps no handler progress anywhere: no annotation of kopf's may land on anybody's object."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


class _NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no copy of the last handled configuration."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def settings() -> kopf.OperatorSettings:
    """A kopf that reads, and only that."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.peering.standalone = True
    chosen.queueing.idle_timeout = 0.5
    chosen.persistence.progress_storage = _NoProgress()
    chosen.persistence.diffbase_storage = _NoDiffBase()
    chosen.process.ultimate_exiting_timeout = 60
    return chosen


def registry(
    login: Login,
    witness: Witness,
    *,
    startup: Callable[[], Awaitable[None]],
    cleanup: Callable[[], Awaitable[None]],
) -> kopf.OperatorRegistry:
    """The handlers. `startup` must return once the process may be called started; `cleanup` ends it in order."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers, id="login")
    async def _(**_: Any) -> kopf.AiohttpSession:
        return await _session(login)

    @kopf.on.startup(registry=handlers, id="startup")
    async def _(**_: Any) -> None:
        await startup()

    @kopf.on.cleanup(registry=handlers, id="cleanup", errors=kopf.ErrorsMode.PERMANENT)  # or it is repeated for ever
    async def _(**_: Any) -> None:
        await cleanup()

    for resource in WATCHED:
        _watch(handlers, resource, witness)
    return handlers


def _watch(handlers: kopf.OperatorRegistry, resource: Resource, witness: Witness) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=handlers, id=f"saw-{resource.plural}")
    async def _(type: str | None, meta: Mapping[str, Any], **_: Any) -> None:
        if type != "DELETED":
            namespace = meta.get("namespace")
            key = f"{namespace}/{meta['name']}" if namespace else meta["name"]
            witness(resource, key, meta["resourceVersion"])


async def _session(login: Login) -> kopf.AiohttpSession:
    connector = aiohttp.TCPConnector(ssl=login.ssl_context or True)
    session = aiohttp.ClientSession(connector=connector, headers=await login.headers())
    expiration = datetime.datetime.now(datetime.UTC) + LOGIN_PERIOD if login.tokens else None
    return kopf.AiohttpSession(
        server=login.server,
        aiohttp_session=session,
        default_namespace=login.namespace,
        expiration=expiration,
    )


async def run(handlers: kopf.OperatorRegistry, stop: asyncio.Event) -> None:
    """Runs until `stop` is set or the process is told to end (SIGINT, SIGTERM)."""
    await kopf.operator(registry=handlers, settings=settings(), standalone=True, clusterwide=True, stop_flag=stop)
