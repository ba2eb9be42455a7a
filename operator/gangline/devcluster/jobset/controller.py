"""The stand-in's controller: it watches, and advances one JobSet after the other.

One at a time, so that a chosen domain is known to be taken when the next one is chosen. The API server's answer to a write
counts as seen at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

import yaml

from gangline.api.read import parse, podspec
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.jobset import children
from gangline.devcluster.jobset.children import EXCLUSIVE, JOB_KEY, Child
from gangline.devcluster.jobset.reconcile import (
    CreateChildJob,
    DeleteChildJob,
    PatchChildJob,
    Reconciled,
    Step,
    reconcile,
)
from gangline.engine.model import ForeignPod, Node, tolerates
from gangline.kube.client import AlreadyExists, ApiClient, ApiError, Conflict, NotFound
from gangline.kube.reflector import Event, Reflector, ReflectorGroup, Removed, Upsert
from gangline.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    JOB_SETS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Json,
    Resource,
    controller_of,
    key_of,
)

# --- exclusive topology: the domain in which a child Job may run alone. Pure ------------------------------------------
#
# JobSet itself lets the scheduler find the place of a Job's first pod by affinity and sends the others after it. The stand-in
# chooses before the pods exist: a domain without pods of another Job, where all of the Job's pods fit on healthy nodes.


def choose(
    child: Child, nodes: Iterable[Json], pods: Sequence[Json], jobs: Iterable[Json], other_than: Set[str] = frozenset()
) -> str:
    """The first domain, by name, that is free and large enough; "" when there is none."""
    level = child.exclusive_by
    known = [parse.node(node) for node in nodes]
    places = {node.name: node.labels[level] for node in known if level in node.labels}
    taken = {*other_than, *_held(level, jobs, child.key), *_occupied(places, pods, child.key)}
    room = _room(child, known, pods, level)
    return next((domain for domain in sorted(room) if domain not in taken and room[domain] >= child.pods), "")


def _held(level: str, jobs: Iterable[Json], mine: str) -> Iterator[str]:
    """Domains of other Jobs that run, or are about to."""
    for job in jobs:
        meta, status = job["metadata"], job.get("status") or {}
        ended = any(
            row["type"] in ("Complete", "Failed") and row["status"] == "True" for row in status.get("conditions") or ()
        )
        if (meta.get("annotations") or {}).get(EXCLUSIVE) != level or meta["labels"].get(JOB_KEY) == mine:
            continue
        if not ended and (not job["spec"].get("suspend") or status.get("active")):
            yield (job["spec"]["template"]["spec"].get("nodeSelector") or {}).get(level, "")


def _occupied(places: Mapping[str, str], pods: Iterable[Json], mine: str) -> Iterator[str]:
    """Domains with a pod of another Job, even one that is ending."""
    for pod in pods:
        key = (pod["metadata"].get("labels") or {}).get(JOB_KEY)
        if key is not None and key != mine and (bound := parse.foreign_pod(pod)) is not None:
            yield places.get(bound.node, "")


def _room(child: Child, nodes: Iterable[Node], pods: Iterable[Json], level: str) -> dict[str, int]:
    """Domain -> how many of the Job's pods fit on its healthy nodes now."""
    needs = podspec.needs(child.group["template"]["spec"]["template"]["spec"])
    used = _used(filter(None, map(parse.foreign_pod, pods)))
    room: dict[str, int] = defaultdict(int)
    for node in nodes:
        if level in node.labels and _suits(node, needs):
            free = (
                (node.allocatable.get(resource, 0) - used[node.name].get(resource, 0)) // size
                for resource, size in needs.requests.items()
                if size > 0
            )
            room[node.labels[level]] += max(0, min(free, default=child.pods))
    return room


def _used(pods: Iterable[ForeignPod]) -> Mapping[str, Mapping[str, int]]:
    used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for pod in pods:
        for resource, size in pod.requests.items():
            used[pod.node][resource] += size
    return used


def _suits(node: Node, needs: podspec.PodNeeds) -> bool:
    if not node.ready or node.unschedulable:
        return False
    if any(node.labels.get(key) != value for key, value in needs.node_selector.items()):
        return False
    barriers = [taint for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute")]
    return all(any(tolerates(toleration, taint) for toleration in needs.tolerations) for taint in barriers)


# --- whether JobSet itself is in the cluster: then the stand-in is not needed, and stops ------------------------------
#
# JobSet may be installed at any time and in any order: its namespace, its CRD in place of the stand-in's, its webhooks, the
# Lease of its leader. The first of them is enough.


#: label on everything that the local cluster's stand-in for JobSet installs
STAND_IN: Final = "gangline.io/stand-in"
NAMESPACE: Final = "jobset-system"
CRD_NAME: Final = "jobsets.jobset.x-k8s.io"
#: the Lease by which JobSet's controllers elect a leader, in any namespace
LEASE: Final = "6d4f6a47.x-k8s.io"
WEBHOOK_PREFIX: Final = "jobset-"

#: resource -> the one object of it that matters, "" = any
_WATCHED: Final[dict[Resource, str]] = {
    NAMESPACES: NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS: CRD_NAME,
    LEASES: LEASE,
    MUTATING_WEBHOOKS: "",
    VALIDATING_WEBHOOKS: "",
}


def sign(resource: Resource, obj: Json) -> str:
    """The evidence of JobSet itself in this object, in a few words; "" for none."""
    name = obj["metadata"]["name"]
    if resource == CUSTOM_RESOURCE_DEFINITIONS:
        return "its CRD" if name == CRD_NAME and not is_stand_in(obj) else ""
    if resource == NAMESPACES:
        return f"namespace {name}" if name == NAMESPACE else ""
    if resource == LEASES:
        return f"lease {name}" if name == LEASE or obj["metadata"].get("namespace") == NAMESPACE else ""
    return f"webhooks {name}" if name.startswith(WEBHOOK_PREFIX) else ""


def is_stand_in(crd: Json) -> bool:
    """Whether the CRD is the stand-in's. Its label may survive when another schema is applied over it; its description
    may not.
    """
    if STAND_IN not in (crd["metadata"].get("labels") or {}):
        return False
    schemas = (version.get("schema", {}).get("openAPIV3Schema", {}) for version in crd["spec"]["versions"])
    return not any("properties" in schema.get("properties", {}).get("spec", {}) for schema in schemas)


async def look(client: ApiClient) -> str:
    """The evidence of JobSet itself now; "" for none."""
    for resource, name in _WATCHED.items():
        selector = f"metadata.name={name}" if name else ""
        try:
            found = (await client.list(resource, field_selector=selector)).items
        except NotFound:
            continue
        if (seen := next(filter(None, (sign(resource, obj) for obj in found)), "")) != "":
            return seen
    return ""


async def appears(client: ApiClient) -> str:
    """Wait for evidence of JobSet itself. Returns it."""
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def sink(resource: Resource) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            if isinstance(event, Upsert) and not seen.done() and (found := sign(resource, event.obj)):
                seen.set_result(found)

        return take

    reflectors = ReflectorGroup()
    for resource, name in _WATCHED.items():
        selector = f"metadata.name={name}" if name else ""
        reflectors.add(Reflector(client, resource, field_selector=selector, optional=True), sink(resource))
    watching = asyncio.ensure_future(reflectors.run())
    try:
        await asyncio.wait((seen, watching), return_when=asyncio.FIRST_COMPLETED)
        return seen.result() if seen.done() else ""
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


log = logging.getLogger(__name__)


WATCHED: Final = (JOB_SETS, JOBS, SERVICES, PODS, NODES)
CRD: Final = Path(__file__).with_name("crd.yaml")
#: after a write that was refused, in seconds
RETRY: Final = 1.0
#: for the API server to serve a new kind, in seconds
SERVED_WITHIN: Final = 30.0


async def install(client: ApiClient) -> None:
    """Install the CRD. Raises DevClusterError if JobSet itself is installed: two controllers would fight."""
    crd = yaml.safe_load(CRD.read_text())
    try:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, crd)
    except AlreadyExists:
        found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, crd["metadata"]["name"])
        if not is_stand_in(found):
            message = (
                f"{crd['metadata']['name']} is installed already: this cluster has JobSet itself and needs no stand-in"
            )
            raise DevClusterError(message) from None
    deadline = time.monotonic() + SERVED_WITHIN
    while not await _served(client):
        if time.monotonic() > deadline:
            raise DevClusterError(f"JobSets are not served after {SERVED_WITHIN:g} s")
        await asyncio.sleep(0.1)


async def _served(client: ApiClient) -> bool:
    try:
        await client.list(JOB_SETS)
    except NotFound:
        return False
    return True


class StandIn:
    """Watches a cluster and acts as JobSet. `run()` ends by cancellation only."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._objects: dict[Resource, dict[str, Json]] = {resource: {} for resource in WATCHED}
        self._due: set[str] = set()
        self._waiting: set[str] = set()  # for a free domain
        self._wake = asyncio.Event()
        self._reflectors = ReflectorGroup()
        for resource in WATCHED:
            self._reflectors.add(Reflector(client, resource), self._sink(resource))

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Run; `ready` is called once all objects are known."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflectors.run())
            await self._reflectors.wait_synced()
            ready()
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._due:
                    await self._turn(self._due.pop())

    # --- in ---

    def _sink(self, resource: Resource) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            match event:
                case Upsert(obj):
                    self._learn(resource, obj)
                case Removed(key, uid):
                    known = self._objects[resource].get(key)
                    if known is not None and known["metadata"]["uid"] == uid:
                        self._mark(resource, self._objects[resource].pop(key))
                case _:
                    pass

        return take

    def _learn(self, resource: Resource, obj: Json) -> None:
        """Store the newest version of an object; older ones are ignored."""
        known = self._objects[resource].get(key_of(obj))
        if (
            known is not None
            and known["metadata"]["uid"] == obj["metadata"]["uid"]
            and _version(known) >= _version(obj)
        ):
            return
        self._objects[resource][key_of(obj)] = obj
        self._mark(resource, obj)

    def _mark(self, resource: Resource, obj: Json) -> None:
        """Mark the JobSets that have to be examined because `obj` changed."""
        if resource == JOB_SETS:
            self._due.add(key_of(obj))
        elif resource == JOBS and (name := _controller_name(obj)):
            self._due.add(f"{obj['metadata']['namespace']}/{name}")
        if resource in (JOBS, PODS, NODES):
            self._due |= self._waiting
        if self._due:
            self._wake.set()

    # --- out ---

    async def _turn(self, key: str) -> None:
        """Advance one JobSet."""
        self._waiting.discard(key)
        job_set = self._objects[JOB_SETS].get(key)
        if job_set is None or job_set["metadata"].get("deletionTimestamp"):
            return
        try:
            outcome = self._decide(job_set)
        except (TypeError, ValueError, LookupError, AttributeError) as error:  # its CRD accepts invalid JobSets
            log.warning("%s is no JobSet: %r", key, error)
            return
        if outcome.waits:
            self._waiting.add(key)
        try:
            for step in outcome.steps:
                await self._take(step)
            if outcome.status != (job_set.get("status") or {}):
                await self._report(job_set, outcome.status)
        except Conflict:
            self._later(key, 0.05)  # another write was faster; the watch is about to show it
        except ApiError as error:
            log.warning("%s: %s", key, error)
            self._later(key, RETRY)

    def _decide(self, job_set: Json) -> Reconciled:
        meta = job_set["metadata"]
        jobs = self._objects[JOBS].values()
        mine = [job for job in jobs if _controller_uid(job) == meta["uid"]]
        services = {
            service["metadata"]["name"]
            for service in self._objects[SERVICES].values()
            if service["metadata"]["namespace"] == meta["namespace"]
        }
        return reconcile(job_set, mine, services, self._choose)

    def _choose(self, child: children.Child, other_than: Set[str]) -> str:
        nodes, pods, jobs = (list(self._objects[resource].values()) for resource in (NODES, PODS, JOBS))
        return choose(child, nodes, pods, jobs, other_than)

    async def _take(self, step: Step) -> None:
        match step:
            case CreateChildJob(resource, body):
                self._learn(resource, await self._client.create(resource, body["metadata"]["namespace"], body))
            case PatchChildJob(job, body, subresource):
                meta = job["metadata"]
                fenced = {**body, "metadata": {"resourceVersion": meta["resourceVersion"]}}
                changed = await self._client.patch(
                    JOBS, meta["namespace"], meta["name"], fenced, subresource=subresource
                )
                self._learn(JOBS, changed)
            case DeleteChildJob(job):
                meta = job["metadata"]
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        JOBS, meta["namespace"], meta["name"], propagation="Foreground", uid=meta["uid"]
                    )

    async def _report(self, job_set: Json, status: Json) -> None:
        meta = job_set["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        self._learn(
            JOB_SETS, await self._client.patch(JOB_SETS, meta["namespace"], meta["name"], body, subresource="status")
        )

    def _later(self, key: str, seconds: float) -> None:
        def again() -> None:
            self._due.add(key)
            self._wake.set()

        asyncio.get_running_loop().call_later(seconds, again)


def _version(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _controller(obj: Json) -> Json:
    return controller_of(obj) or {}


def _controller_uid(obj: Json) -> str:
    return _controller(obj).get("uid", "")


def _controller_name(obj: Json) -> str:
    """The name of the JobSet that controls an object, "" for other objects."""
    found = _controller(obj)
    return found["name"] if found.get("kind") == JOB_SETS.kind else ""
