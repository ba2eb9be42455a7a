"""kopf as the shell: process life cycle, login, and event handlers of the configuration kinds and GPUJob.

kopf is kept off the hot path. Its event handlers cost 20 to 50 times as much as our own list-watch, and it misses deletions when
a watch has to list again, which would leak quota forever. So the state of every kind comes from our own reflectors, and kopf's
watch is a second, independent observer: each event that kopf sees must soon be seen by the reflector too, else the reflector's
stream counts as dead and is reopened.

kopf gets nothing of an object but its head: name, namespace, uid and resourceVersion. Its JSON decoder gives up at an object that
is nested deeply, and the process would end with it; and kopf acts on annotations and finalizers of its own, which anybody can
write. With heads alone, and handlers that only observe, kopf writes nothing to the cluster.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import kopf
import orjson

from gangline import bounded
from gangline.kube import resources as kube
from gangline.kube.config import Login
from gangline.kube.resources import Resource

log = logging.getLogger(__name__)

#: Kinds with tens of objects, changed by users: the kinds that kopf watches.
WATCHED: tuple[Resource, ...] = (
    kube.CLUSTER_QUEUES,
    kube.COHORTS,
    kube.RESOURCE_FLAVORS,
    kube.LOCAL_QUEUES,
    kube.GPU_JOBS,
)
#: After this time, in seconds, a process that was asked to end is killed.
LONGEST_SHUTDOWN = 60.0
#: Bearer tokens are renewed after this time.
LOGIN_PERIOD = datetime.timedelta(minutes=10)

#: called with a resource, an object's key and the resourceVersion that kopf saw
Witness = Callable[[Resource, str, str], None]


def settings() -> kopf.OperatorSettings:
    """Settings with which kopf posts no events, and looks for kinds once."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.queueing.idle_timeout = 0.5
    chosen.process.ultimate_exiting_timeout = LONGEST_SHUTDOWN
    return chosen


def registry(
    login: Login,
    witness: Witness,
    *,
    startup: Callable[[], Awaitable[None]],
    cleanup: Callable[[], Awaitable[None]],
) -> kopf.OperatorRegistry:
    """The handlers. `startup` must return once the process counts as started; `cleanup` shuts it down in order."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers, id="login")
    async def _(**_: Any) -> kopf.AiohttpSession:
        return await _session(login)

    @kopf.on.startup(registry=handlers, id="startup")
    async def _(**_: Any) -> None:
        await startup()

    # without PERMANENT a failing cleanup would be repeated forever
    @kopf.on.cleanup(registry=handlers, id="cleanup", errors=kopf.ErrorsMode.PERMANENT)
    async def _(**_: Any) -> None:
        await cleanup()

    for resource in WATCHED:
        _watch(handlers, resource, witness)
    return handlers


def _stop_at_signals(stop: asyncio.Event) -> None:
    """Shut down in order at SIGINT or SIGTERM, however often it comes. kopf's own handlers fail at the second one."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()

    def received(number: signal.Signals) -> None:
        if stop.is_set():
            log.info("%s: the shutdown goes on", number.name)
            return
        log.info("%s: shutting down", number.name)
        stop.set()
        loop.call_later(LONGEST_SHUTDOWN, signal.pthread_kill, threading.get_ident(), signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received, number)


def _watch(handlers: kopf.OperatorRegistry, resource: Resource, witness: Witness) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=handlers, id=f"saw-{resource.plural}")
    async def _(type: str | None, meta: Mapping[str, Any], **_: Any) -> None:
        if type != "DELETED":
            namespace = meta.get("namespace")
            key = f"{namespace}/{meta['name']}" if namespace else meta["name"]
            witness(resource, key, meta["resourceVersion"])


async def _session(login: Login) -> kopf.AiohttpSession:
    connector = aiohttp.TCPConnector(ssl=login.ssl_context or True)
    session = aiohttp.ClientSession(connector=connector, headers=await login.headers(), middlewares=(_heads_only,))
    expiration = datetime.datetime.now(datetime.UTC) + LOGIN_PERIOD if login.tokens else None
    return kopf.AiohttpSession(
        server=login.server,
        aiohttp_session=session,
        default_namespace=login.namespace,
        expiration=expiration,
    )


async def _heads_only(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Have an answer of the API server read with the heads of objects alone."""
    response = await handler(request)
    response.content = _Heads(response.content)  # pyright: ignore[reportAttributeAccessIssue]
    return response


class _Heads:
    """The content of an answer with the heads of objects in place of objects: a document, or one watch event a line."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self) -> bytes:
        return _with_heads(await self._content.read())

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        begun: list[bytes] = []
        async for part in self._content.iter_chunked(size):
            *lines, last = part.split(b"\n")
            for line in lines:
                yield _with_heads(b"".join((*begun, line))) + b"\n"
                begun.clear()
            begun.append(last)
        yield _with_heads(b"".join(begun))


#: what the handlers and kopf itself use of an object's metadata
_HEAD: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def _with_heads(data: bytes) -> bytes:
    """A list or a watch event with the heads of objects; any other answer as it is."""
    try:
        document = bounded.load_shallow(data)
    except bounded.BadJsonError:
        return data
    match document:
        case {"items": [*objects]}:
            return orjson.dumps({**document, "items": [_head(obj) for obj in objects]})
        case {"type": str(change), "object": {} as obj} if change != "ERROR":
            return orjson.dumps({**document, "object": _head(obj)})
        case _:
            return data


def _head(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata") or {}
    head = {field: metadata[field] for field in _HEAD if field in metadata}
    return {**{field: obj[field] for field in ("apiVersion", "kind") if field in obj}, "metadata": head}


async def run(handlers: kopf.OperatorRegistry, stop: asyncio.Event, identity: str) -> None:
    """Run until `stop` is set or the process gets SIGINT or SIGTERM.

    kopf's own identity is made of the user's name, which a pod need not have: OpenShift gives each namespace UIDs of its own.
    """
    others = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=handlers,
        settings=settings(),
        identity=identity,  # pyright: ignore[reportArgumentType]  # a str, of a type that kopf does not export
        standalone=True,
        clusterwide=True,
        stop_flag=stop,
    )
    _stop_at_signals(stop)
    await kopf.run_tasks(tasks, ignored=others)
