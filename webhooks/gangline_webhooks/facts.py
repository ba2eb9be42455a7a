"""Facts of the cluster for admission rules, read and cached for a moment.

Rules are plain functions, while reading is asynchronous. So a rule is run, and when it asks for an unknown fact it is stopped,
the fact is read, and the rule is run again: rules are pure, most ask nothing, and those that ask do so before they look at what
may be long. None asks for more than a few.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

import orjson

from gangline.api import jobkinds, names
from gangline.api.admission import AdmissionFacts
from gangline.api.admission.findings import annotations_of, listing, mapping, metadata, objects, text
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.admission.of_jobs import jobs
from gangline.api.jobkinds.declaration import Reference
from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.jobs import kind_of, owners
from gangline.jobs.base import JobKind
from gangline.jobs.workload import workload_name
from gangline.kube.client import ApiError, NotFound, Resource
from gangline.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Json,
)
from gangline.objects import JobObject, Stored, WorkloadObject

T = TypeVar("T")

log = logging.getLogger(__name__)

#: seconds: the API server waits for us, and gives up after 2 at the earliest
READ_TIMEOUT: Final = 1.0
#: seconds for which a yes and a no are cached
YES_LASTS: Final = 10.0
NO_LASTS: Final = 1.0
#: seconds for which the existence of an object is cached: a class or queue counts from its creation until its deletion, nearly
#: as with a watch, at no more than ten reads per second of the same object
EXISTENCE_LASTS: Final = 0.1
#: seconds after a failed read without another attempt, so that an unreachable server does not slow jobs down
FAILURE_LASTS: Final = 2.0
MAX_DEPTH: Final = 10
#: facts that one rule may ask for
MAX_QUESTIONS: Final = 16
#: admission checks of one ClusterQueue that are looked at; the schema allows as many
MAX_CHECKS: Final = 64
MAX_CACHED: Final = 10_000
#: seconds that all warnings about an object may take: what is not known by then is not said
WARNINGS_WITHIN: Final = 1.5
#: the operator's answer about a Reservation or QuotaPlan; how many of its sentences are passed on, and characters of each
PLAN_CHECKS: Final = Resource("answers.gangline.io", "v1alpha1", "planchecks", namespaced=False, kind="PlanCheck")
MAX_WARNINGS: Final = 16
LONGEST_WARNING: Final = 1000
#: for each second that such an answer took, so many pass before the next question: whoever sends reviews keeps the operator from
#: a fifth of its work at most
PAUSE: Final = 4.0


class Reader(Protocol):
    """The part of `gangline.kube.client.ApiClient` that is needed here."""

    def get(
        self, resource: Resource, namespace: str | None, name: str, *, within: float | None = None
    ) -> Awaitable[Json]: ...

    def create(
        self, resource: Resource, namespace: str | None, body: Json, *, within: float | None = None
    ) -> Awaitable[Json]: ...


@dataclass(frozen=True, slots=True)
class _Exists:
    resource: Resource
    namespace: str | None
    name: str


@dataclass(frozen=True, slots=True)
class _Missing:
    """Whether there is certainly no such object: only the author of what names it reads so, and nothing depends on it."""

    resource: Resource
    namespace: str | None
    name: str


@dataclass(frozen=True, slots=True)
class _Queued:
    """Whether this owner, or an ancestor of it, is in a queue."""

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str
    #: the owner's reference to it: shows whether the owner really creates it, as JSON
    child: bytes


@dataclass(frozen=True, slots=True)
class _Selected:
    """Whether the configuration selects this namespace."""

    namespace: str


@dataclass(frozen=True, slots=True)
class _OnOtherCluster:
    """Whether workloads of this LocalQueue run in other clusters."""

    namespace: str
    queue: str


@dataclass(frozen=True, slots=True)
class _Limited:
    """Whether an annotation of this namespace says which priority classes its jobs may name."""

    namespace: str


_Question: TypeAlias = _Exists | _Missing | _Queued | _Selected | _OnOtherCluster | _Limited


@dataclass(frozen=True, slots=True)
class _Object:
    """An object as it is, or None. It may be large, so it is not cached: only the author of a job reads what follows."""

    resource: Resource
    namespace: str | None
    name: str


@dataclass(frozen=True, slots=True)
class _PlanCheck:
    """What the operator says of a Reservation or QuotaPlan: the `spec` of the question, as JSON."""

    asked: bytes


class _UnansweredError(Exception):
    def __init__(self, question: _Question | _Object | _PlanCheck) -> None:
        super().__init__(question)
        self.question = question


class Facts:
    """Runs rules with a Context whose answers come from the cluster. One per process, used from one event loop."""

    def __init__(
        self,
        reader: Reader | None,
        clock: Callable[[], float] = time.monotonic,
        managed: ManagedJobs = EVERY_QUEUED,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._reader = reader
        self._clock = clock
        #: which jobs are managed, as configured
        self.managed = managed
        self._wall = wall
        self._cache: dict[_Question, tuple[float, bool]] = {}
        self._asking: dict[_Question, asyncio.Task[bool]] = {}
        self._resting_until = float("-inf")
        self._silent_until = float("-inf")  # until then no further failure is logged
        #: plans are asked about one after the other, and not before this time
        self._checking = asyncio.Lock()
        self._next_check = float("-inf")

    async def run(self, rule: Callable[[AdmissionFacts], T]) -> T:
        """The result of `rule`, once all its questions are answered."""
        known: dict[_Question, bool] = {}
        objects: dict[_Object, Json | None] = {}
        checks: dict[_PlanCheck, tuple[str, ...]] = {}
        while len(known) + len(objects) + len(checks) <= MAX_QUESTIONS:
            try:
                return rule(_context(known, objects, checks, self.managed, round(1000 * self._wall())))
            except _UnansweredError as unanswered:
                question = unanswered.question
                if isinstance(question, _Object):
                    objects[question] = await self._object(question)
                elif isinstance(question, _PlanCheck):
                    checks[question] = await self._warnings(question)
                else:
                    known[question] = await self._answer(question)
        raise RuntimeError(f"a rule asks for more than {MAX_QUESTIONS} facts")

    async def _object(self, question: _Object) -> Json | None:
        if self._reader is None or self._clock() < self._resting_until:
            return None
        try:
            return await self._reader.get(question.resource, question.namespace, question.name, within=READ_TIMEOUT)
        except NotFound:
            return None
        except ApiError as error:
            self._failed(question, error)
            return None

    async def _warnings(self, question: _PlanCheck) -> tuple[str, ...]:
        """The operator's sentences; none where it does not answer in time, which says nothing about the API server."""
        if self._reader is None or self._clock() < self._resting_until:
            return ()
        body = {"apiVersion": PLAN_CHECKS.api_version, "kind": PLAN_CHECKS.kind, "spec": orjson.loads(question.asked)}
        try:
            async with asyncio.timeout(READ_TIMEOUT), self._checking:
                if (pause := self._next_check - self._clock()) > READ_TIMEOUT:
                    return ()
                await asyncio.sleep(pause)
                began = self._clock()
                try:
                    answer = await self._reader.create(PLAN_CHECKS, None, body, within=READ_TIMEOUT)
                finally:
                    ended = self._clock()
                    self._next_check = ended + PAUSE * (ended - began)
        except (ApiError, TimeoutError) as error:
            self._log("a check of a Reservation or QuotaPlan by the operator", error)
            return ()
        found = listing(mapping(answer.get("status")).get("warnings"))
        return tuple(line[:LONGEST_WARNING] for each in found[:MAX_WARNINGS] if (line := text(each)))

    def _failed(self, question: _Question | _Object, error: ApiError) -> None:
        """An API server that does not answer rests. One that refuses does not: the question alone is wrong, and whoever writes an
        object may choose it, with the name of an owner such as `x/status`.
        """
        if error.retryable:
            self._resting_until = self._clock() + FAILURE_LASTS
        self._log(question, error)

    def _log(self, question: object, error: Exception) -> None:
        now = self._clock()
        if now >= self._silent_until:
            self._silent_until = now + FAILURE_LASTS
            log.warning("admission goes on without an answer to %s: %s", question, error)

    async def _answer(self, question: _Question) -> bool:
        until, answer = self._cache.get(question, (float("-inf"), False))
        if self._clock() < until:
            return answer
        if self._reader is None or self._clock() < self._resting_until:
            return _safe(question)
        task = self._asking.get(question)
        if task is None:  # many jobs ask the same question at once: one read answers all
            task = self._asking[question] = asyncio.create_task(self._ask(self._reader, question))
            task.add_done_callback(lambda _: self._asking.pop(question, None))
        return await asyncio.shield(task)

    async def _ask(self, reader: Reader, question: _Question) -> bool:
        try:
            answer = await _read(reader, question, self.managed)
        except ApiError as error:
            self._failed(question, error)
            return _safe(question)
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[question] = (self._clock() + _lasts(question, answer), answer)
        return answer


def _safe(question: _Question) -> bool:
    """The answer that leaves a job as its author wrote it; the operator corrects jobs that pass wrongly."""
    return isinstance(question, _Queued)


def _lasts(question: _Question, answer: bool) -> float:
    if isinstance(question, _Exists):
        return EXISTENCE_LASTS
    if isinstance(question, _Missing):
        return NO_LASTS if answer else YES_LASTS
    return YES_LASTS if answer else NO_LASTS


async def _read(reader: Reader, question: _Question, managed: ManagedJobs) -> bool:
    if isinstance(question, _Queued):
        return await _is_queued(reader, question, managed)
    if isinstance(question, _Selected):
        return await _is_selected(reader, question, managed)
    if isinstance(question, _Limited):
        return await _is_limited(reader, question)
    if isinstance(question, _OnOtherCluster):
        return await _runs_on_other_cluster(reader, question)
    try:
        await reader.get(question.resource, question.namespace, question.name, within=READ_TIMEOUT)
    except NotFound:
        return isinstance(question, _Missing)
    return isinstance(question, _Exists)


async def _is_selected(reader: Reader, question: _Selected, managed: ManagedJobs) -> bool:
    try:
        namespace = await reader.get(NAMESPACES, None, question.namespace, within=READ_TIMEOUT)
    except NotFound:
        return False
    return managed.namespace(mapping(mapping(namespace.get("metadata")).get("labels")))


async def _is_limited(reader: Reader, question: _Limited) -> bool:
    try:
        namespace = await reader.get(NAMESPACES, None, question.namespace, within=READ_TIMEOUT)
    except NotFound:
        return False
    return names.ALLOWED_CLASSES in annotations_of(namespace)


async def _runs_on_other_cluster(reader: Reader, question: _OnOtherCluster) -> bool:
    """Whether jobs of the LocalQueue run in other clusters: a check of its ClusterQueue is one of MultiKueue."""
    try:
        local = await reader.get(LOCAL_QUEUES, question.namespace, question.queue, within=READ_TIMEOUT)
        name = text(_spec(local).get("clusterQueue"))
        queue = await reader.get(CLUSTER_QUEUES, None, name, within=READ_TIMEOUT) if name else {}
    except NotFound:
        return False
    checks = objects(mapping(_spec(queue).get("admissionChecksStrategy")).get("admissionChecks"))
    for name in [text(check.get("name")) for check in checks][:MAX_CHECKS]:
        try:
            check = await reader.get(ADMISSION_CHECKS, None, name, within=READ_TIMEOUT)
        except NotFound:
            continue
        if _spec(check).get("controllerName") == CONTROLLER:
            return True
    return False


def _spec(obj: Json) -> Json:
    return mapping(obj.get("spec"))


async def _is_queued(reader: Reader, question: _Queued, managed: ManagedJobs) -> bool:
    """Follow the owners until one is managed: it names a queue, or need not."""
    reference: Json | None = {
        "apiVersion": question.api_version,
        "kind": question.kind,
        "name": question.name,
        "uid": question.uid,
    }
    child = Stored(orjson.loads(question.child))
    of_pod = child.get("kind") == "Pod"  # which waits itself where Gangline has no such owners
    for _ in range(MAX_DEPTH):
        if reference is None or not jobs.may_lead_to_queued(reference):
            return False
        try:
            owner = JobObject(
                await reader.get(_resource_of(reference), question.namespace, reference["name"], within=READ_TIMEOUT)
            )
        except NotFound:
            return False
        if metadata(owner).get("uid") != reference["uid"] or not owners.creates(owner, child):
            return False
        child = owner
        ours = _is_known(reference)
        if managed.kind(reference["apiVersion"], reference["kind"]) and (
            (owner.queue_name and (ours or not of_pod)) or (managed.without_queue and ours)
        ):
            return True
        reference = jobs.controller_of(owner)
    return False


def _waits(
    namespace: str, reference: Json | None, managed: ManagedJobs, look: Callable[[Reference], Json | None]
) -> bool:
    """Whether the topmost queued one of these owners is suspended. A GPUJob has to be admitted besides: its author can unsuspend
    it, and nobody but the operator creates its children.

    Owners are read as they are now: a controller creates children right after it saw its own job start.
    """
    found: tuple[JobKind, JobObject] | None = None
    for _ in range(MAX_DEPTH):
        if reference is None or not jobs.could_be_queued(reference):
            break
        seen = look((_resource_of(reference), f"{namespace}/{text(reference.get('name'))}"))
        if seen is None or metadata(seen).get("uid") != reference.get("uid"):
            break
        owner = JobObject(seen)
        kind = kind_of(text(reference.get("apiVersion")), text(reference.get("kind")))
        if kind is not None and (owner.queue_name or managed.without_queue or kind.owns_children):
            found = kind, owner
        reference = jobs.controller_of(owner)
    if found is None:
        return False
    kind, owner = found
    if kind.is_suspended(owner):
        return True
    if not kind.owns_children or not (owner.queue_name or managed.without_queue):
        return False
    workload = look((WORKLOADS, f"{namespace}/{owner.prebuilt_workload or workload_name(kind, owner)}"))
    return workload is None or not WorkloadObject(workload).admitted


def _is_known(reference: Json) -> bool:
    """Whether the owner is of a kind that is queued here, or by a controller of its own."""
    group = reference["apiVersion"].rpartition("/")[0]
    queued_by_others = jobkinds.external_kind(group, reference["kind"]) is not None
    return queued_by_others or kind_of(reference["apiVersion"], reference["kind"]) is not None


def _resource_of(reference: Json) -> Resource:
    """A kind without a declaration has a regular plural."""
    group, _, version = reference["apiVersion"].rpartition("/")
    if (known := jobkinds.declaration_of(group, reference["kind"])) is not None:
        return known.resource._replace(version=version)
    if (external := jobkinds.external_kind(group, reference["kind"])) is not None:
        return external._replace(version=version)
    return Resource(group, version, f"{reference['kind'].lower()}s", kind=reference["kind"])


def _head_of_child(child: Json) -> bytes:
    """Kind, name and size of a job, or the labels of a pod, for `owners.creates`."""
    meta, spec = child.get("metadata"), child.get("spec")
    name = meta.get("name") if isinstance(meta, dict) else None
    pods = spec.get("parallelism") if isinstance(spec, dict) else None
    head = {part: child.get(part) for part in ("apiVersion", "kind")}
    labels = {"labels": meta.get("labels")} if isinstance(meta, dict) and child.get("kind") == "Pod" else {}
    return orjson.dumps({**head, "metadata": {"name": name, **labels}, "spec": {"parallelism": pods}})


def _context(
    known: dict[_Question, bool],
    seen: dict[_Object, Json | None],
    checks: dict[_PlanCheck, tuple[str, ...]],
    managed: ManagedJobs,
    now: int,
) -> AdmissionFacts:
    def ask(question: _Question) -> bool:
        if question not in known:
            raise _UnansweredError(question)
        return known[question]

    def local_queue_exists(namespace: str, name: str) -> bool:
        return managed.queue_by_default and bool(namespace) and ask(_Exists(LOCAL_QUEUES, namespace, name))

    def priority_class_exists(name: str) -> bool:
        return managed.priority_by_default and ask(_Exists(WORKLOAD_PRIORITY_CLASSES, None, name))

    def owner_is_queued(namespace: str, reference: Json, child: Json) -> bool:
        parts = (reference.get(part) for part in ("apiVersion", "kind", "name", "uid"))
        return bool(namespace) and ask(
            _Queued(namespace, *(str(part or "") for part in parts), child=_head_of_child(child))
        )

    def namespace_is_managed(namespace: str, queued: bool) -> bool:
        return not managed.asks_namespace(queued=queued) or (bool(namespace) and ask(_Selected(namespace)))

    def runs_on_other_cluster(namespace: str, queue: str) -> bool:
        return bool(namespace) and ask(_OnOtherCluster(namespace, queue))

    def local_queue_is_missing(namespace: str, name: str) -> bool:
        return bool(namespace and name) and ask(_Missing(LOCAL_QUEUES, namespace, name))

    def priority_class_is_missing(name: str) -> bool:
        return bool(name) and ask(_Missing(WORKLOAD_PRIORITY_CLASSES, None, name))

    def cluster_queue_is_missing(name: str) -> bool:
        return bool(name) and ask(_Missing(CLUSTER_QUEUES, None, name))

    def classes_are_limited(namespace: str) -> bool:
        return bool(namespace) and ask(_Limited(namespace))

    def owner_waits(namespace: str, reference: Json) -> bool:
        return bool(namespace) and _waits(namespace, reference, managed, look)

    def look(reference: Reference) -> Json | None:
        resource, key = reference
        namespace, _, name = key.rpartition("/")
        question = _Object(resource, namespace or None, name)
        if question not in seen:
            raise _UnansweredError(question)
        return seen[question]

    def warnings_of_plan(obj: Json) -> tuple[str, ...]:
        spec = {"kind": obj.get("kind"), "name": metadata(obj).get("name"), "spec": obj.get("spec")}
        question = _PlanCheck(orjson.dumps(spec))
        if question not in checks:
            raise _UnansweredError(question)
        return checks[question]

    return AdmissionFacts(
        local_queue_exists,
        priority_class_exists,
        owner_is_queued,
        namespace_is_managed,
        managed.without_queue,
        runs_on_other_cluster,
        local_queue_is_missing,
        priority_class_is_missing,
        managed.leaving_checked,
        managed.elastic,
        managed.group_size_stays,
        look,
        classes_are_limited,
        owner_waits,
        cluster_queue_is_missing,
        now,
        warnings_of_plan,
    )
