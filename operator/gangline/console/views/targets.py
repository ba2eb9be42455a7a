"""The job or queue that a command is to change: found with the user's own rights, and changed only as it was when it was read.

Each write names the version that was judged. If the object has changed meanwhile, it is looked at and judged again: a job that
has just started is not stopped by a command for a job that waits.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gangline import bounded
from gangline.api import names
from gangline.console.output import terminal
from gangline.console.output.selection import ListSelection, words
from gangline.console.output.spelling import meant
from gangline.console.views import denied, jobs, own_rights
from gangline.control.answers.workloads.briefs import job_kinds, singular
from gangline.control.answers.workloads.snapshot import (
    FINISHED,
    HOLDING,
    AnswerSnapshot,
    JobState,
    WorkloadView,
    snapshot,
)
from gangline.control.answers.workloads.words import counted
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Conflict, Forbidden, NotFound
from gangline.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, PODS, WORKLOADS, Json, Resource, controller_of
from gangline.objects import LocalQueueObject, WorkloadObject

if TYPE_CHECKING:
    from gangline.objects import PodObject

T = TypeVar("T")

#: looks at an object that changes all the time
_TRIES: Final = 8


class NoSuchJob(click.ClickException):
    """There is no job of this name that the user may read."""

    def __init__(self, namespace: str, name: str, known: Iterable[str] = ()) -> None:
        near = meant(name.rpartition("/")[2], known)
        super().__init__(f"no job {name!r} in namespace {namespace} that you may read{'.' * bool(near)}{near}")


@dataclass(frozen=True, slots=True)
class Target:
    """The job that a command is to change. `view`, `workload`: None for a job without a Workload. `job`: None for a Workload
    without one, such as a group of pods.
    """

    title: str
    view: WorkloadView | None
    workload: Json | None
    resource: Resource | None
    job: Json | None

    @property
    def state(self) -> JobState:
        return self.view.state if self.view is not None else JobState.NOT_QUEUED

    @property
    def holds(self) -> bool:
        return self.state in HOLDING

    def what_it_does(self) -> str:
        """What the job does, such as `runs on 8 GPUs` or `waits`."""
        gpus = self.view.gpus if self.view is not None else 0
        on = f" on {counted(gpus, 'GPU')}" if gpus and self.holds else ""
        words = {JobState.RUNNING: "runs", JobState.PENDING: "waits", JobState.NOT_QUEUED: "is not queued"}
        return words.get(self.state, f"is {self.state.lower()}") + on


@dataclass(frozen=True, slots=True)
class SeenVersions:
    """The uids and versions of a job and of its Workload at one look: a later change is made only if both are still the same."""

    of_workload: tuple[str, str] = ("", "")
    of_job: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, target: Target) -> SeenVersions:
        return cls(_version(target.workload), _version(target.job))


def _version(obj: Json | None) -> tuple[str, str]:
    meta = obj["metadata"] if obj is not None else {}
    return meta.get("uid", ""), meta.get("resourceVersion", "")


class ChangedSinceError(click.ClickException):
    """Says that a job is not any more as it was at an earlier look."""

    def __init__(self, title: str) -> None:
        super().__init__(f"{title} has changed since it was looked at: look again before it is changed")


async def find(api: ApiClient, namespace: str, name: str, as_seen: SeenVersions | None = None) -> Target:
    """The newest job of a name, or `kind/name`. Raises NoSuchJob, and ChangedSinceError for one that is not `as_seen`."""
    found = await _found(api, namespace, name)
    if as_seen is not None and SeenVersions.of(found) != as_seen:
        raise ChangedSinceError(found.title)
    return found


async def _found(api: ApiClient, namespace: str, name: str) -> Target:
    workloads, seen = await _seen(api, namespace)
    view = own_rights.find(seen, namespace, name)
    if view is not None:
        raw = next(each for each in workloads if each["metadata"]["uid"] == view.uid)
        resource, job = await _owner(api, namespace, raw)
        return Target(view.job, view, raw, resource, job)
    kind, _, plain = name.rpartition("/")
    for each in [resource for known, resource in job_kinds().items() if singular(kind) in ("", known)]:
        try:
            job = await api.get(each, namespace, plain)
        except (NotFound, Forbidden):
            continue
        return Target(f"{each.kind.lower()}/{plain}", None, None, each, job)
    raise NoSuchJob(namespace, name, [view.job_name for view in seen.workloads])


async def _seen(api: ApiClient, namespace: str) -> tuple[list[Json], AnswerSnapshot]:
    """The Workloads of the namespace as they are, and as values."""
    workloads = (await api.list(WORKLOADS, namespace)).items
    queues = (await api.list(LOCAL_QUEUES, namespace)).items
    return workloads, snapshot(map(WorkloadObject, workloads), [], map(LocalQueueObject, queues), complete=False)


async def _owner(api: ApiClient, namespace: str, workload: Json) -> tuple[Resource | None, Json | None]:
    reference = controller_of(workload) or _parent(workload)
    if reference is None:
        return None, None
    resource = resource_of(reference["apiVersion"], reference["kind"])
    try:
        return resource, await api.get(resource, namespace, reference["name"])
    except NotFound:
        return resource, None


def _parent(workload: Json) -> Json | None:
    """The owner reference to the object that serves and has made the group of this Workload, which it owns together with its
    pods; None without one.
    """
    from gangline.jobs.serving import BY_RESOURCE  # much of the operator, which a command that only asks does not need

    serving = {resource.kind for resource in BY_RESOURCE}
    references = workload["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each["kind"] in serving), None)


def resource_of(api_version: str, kind: str) -> Resource:
    """The kind of a job by its owner reference; one that is not known here is named as kinds are."""
    from gangline.api import jobkinds  # as above

    group, _, version = api_version.rpartition("/")
    declared = jobkinds.declaration_of(group, kind)
    known = declared.resource if declared is not None else job_kinds().get(kind.lower())
    if known is not None and known.group == group:
        return known
    return Resource(group, version, f"{kind.lower()}s", kind=kind)


async def members(api: ApiClient, workload: Json) -> list[PodObject]:
    """The pods of a group whose Workload this is; the annotation that names it has precedence over the label."""
    from gangline.jobs.pods.member import group_name
    from gangline.objects import PodObject

    meta = workload["metadata"]
    listed = (await api.list(PODS, meta["namespace"])).items
    return [pod for pod in map(PodObject, listed) if group_name(pod) == meta["name"]]


async def until_unchanged(attempt: Callable[[], Awaitable[T]], tries: int = _TRIES) -> T:
    """The outcome of looking, judging and writing, repeated while the object changes in between. Raises Conflict if the last
    attempt met one, too.
    """
    for _ in range(tries - 1):
        try:
            return await attempt()
        except Conflict:
            continue
    return await attempt()


async def patched(api: ApiClient, resource: Resource, obj: Json, body: Json, *, dry_run: bool = False) -> Json:
    """Patch an object as it was read. Raises Conflict if it has changed, click.ClickException where the user has no right."""
    try:
        return await patch(api, resource, obj, body, dry_run=dry_run)
    except Forbidden as error:
        raise click.ClickException(denied.said(error)) from error


async def patch(api: ApiClient, resource: Resource, obj: Json, body: Json, *, dry_run: bool = False) -> Json:
    """Patch an object as it was read. Raises Conflict if it has changed, Forbidden where the user has no right."""
    meta = obj["metadata"]
    fenced = {**body, "metadata": {**(body.get("metadata") or {}), "resourceVersion": meta["resourceVersion"]}}
    query = {"dryRun": "All"} if dry_run else {}
    return await api.patch(resource, meta.get("namespace"), meta["name"], fenced, query=query)


def queue_of(name: str) -> tuple[Resource, str] | None:
    """The queue that a name such as `clusterqueue/NAME` means; None: it means no queue."""
    kind, slash, plain = name.partition("/")
    resource = _QUEUES.get(kind.lower()) if slash else None
    return (resource, plain) if resource is not None else None


async def existing(api: ApiClient, resource: Resource, namespace: str | None, name: str) -> Json:
    """The queue or class of this name. Raises click.ClickException that says which there are instead, and what is meant."""
    try:
        return await api.get(resource, namespace, name)
    except NotFound:
        where = f"namespace {namespace} has no" if namespace else "there is no"
        known: list[str] = []
        with suppress(Forbidden):
            known = [each["metadata"]["name"] for each in (await api.list(resource, namespace)).items]
        there = f" (there is: {', '.join(known[:_SHOWN]) + ' …' * (len(known) > _SHOWN)})" if known else ""
        near = meant(name, known)
        raise click.ClickException(f"{where} {resource.kind} {name!r}{there}{'.' * bool(near)}{near}") from None


async def stop_policy(
    api: ApiClient, namespace: str, resource: Resource, name: str, policy: str, *, dry_run: bool
) -> str:
    """Set whether a queue starts jobs. Returns what was done, as a sentence."""

    async def attempt() -> str:
        obj = await existing(api, resource, namespace if resource.namespaced else None, name)
        title = f"{resource.kind} {name}"
        before = obj["spec"].get("stopPolicy") or "None"
        if before == policy:
            return f"{title} {_POLICIES[policy]} already"
        await patched(api, resource, obj, {"spec": {"stopPolicy": policy}}, dry_run=dry_run)
        return f"{title} {_POLICIES[policy]}"

    return await until_unchanged(attempt)


_POLICIES: Final = {
    "None": "starts jobs",
    "Hold": "starts no jobs; those that run go on",
    "HoldAndDrain": "starts no jobs, and those that run are stopped",
}


_QUEUES: Final[dict[str, Resource]] = {
    "localqueue": LOCAL_QUEUES,
    "lq": LOCAL_QUEUES,
    "clusterqueue": CLUSTER_QUEUES,
    "cq": CLUSTER_QUEUES,
}


# --- choosing ---------------------------------------------------------------------------------------------------------
#
# Jobs that a command is to change, by name or by user, state and queue; what was chosen in bulk is asked about first.


#: names in a question, and in a list of what there is
_NAMED = 3
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The jobs that the user has chosen. `names`: as they were given. `selection`: of which jobs, where none was named."""

    names: tuple[str, ...] = ()
    selection: ListSelection = field(default_factory=ListSelection)
    #: do not ask
    yes: bool = False

    @property
    def by_filters(self) -> bool:
        return bool(self.selection.users or self.selection.states or self.selection.queues)

    async def found(
        self, api: ApiClient, namespace: str, verb: str, *, dry_run: bool, among: Collection[JobState] | None = None
    ) -> Sequence[str]:
        """The names, or the jobs that the filters leave, of those in the states `among` (None: all that have not ended).

        Asks before many are changed. Raises click.ClickException where none is left, and for a no.
        """
        if not self.by_filters:
            return self.names
        found = await matching(api, namespace, self.selection, among)
        if not found:
            states = f" that {'are' if len(among) > 1 else 'is'} {' or '.join(map(str.lower, among))}" if among else ""
            raise click.ClickException(f"no job in namespace {namespace}{states} is left by these filters")
        if not (self.yes or dry_run):
            jobs = "job" if len(found) == 1 else "jobs"
            terminal.confirm(f"{verb} {len(found)} {jobs} of namespace {namespace} ({_some(found)})?")
        return found


def options(metavar: str, completion: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add names, `-u`, `-s`, `--queue` and `-y`; the command gets them as `choice`. Names and filters exclude each other."""
    found = [
        click.argument("names", metavar=metavar, nargs=-1, shell_complete=completion),
        click.option("-u", "--user", "users", multiple=True, help="All jobs of these users (label gangline.io/user)."),
        click.option("-s", "--state", "states", multiple=True, help="All jobs in these states, such as pending."),
        click.option("--queue", "queues", multiple=True, help="All jobs of these LocalQueues or ClusterQueues."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask, where jobs are chosen by user, state or queue."),
    ]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**given: Any) -> Any:
            wanted = {name: words(given.pop(name)) for name in ("users", "states", "queues")}
            choice = JobChoice(given.pop("names"), ListSelection(**wanted), given.pop("yes"))
            if choice.by_filters == bool(choice.names):
                raise click.UsageError("name jobs, or choose them by --user, --state or --queue")
            return command(choice=choice, **given)

        for option in reversed(found):
            gathered = option(gathered)
        return gathered

    return decorate


async def matching(
    api: ApiClient, namespace: str, selection: ListSelection, among: Collection[JobState] | None = None
) -> list[str]:
    """Jobs of the namespace that have not ended, as `kind/name`."""
    _, seen = await _seen(api, namespace)
    views = [view for view in seen.workloads if view.state not in FINISHED and (among is None or view.state in among)]
    if selection.users:
        views = await _with_users(api, namespace, views)
    live = [jobs.ListedJob(view) for view in views]
    return list(dict.fromkeys(job.view.job for job in selection.of(jobs.LISTING, live, 0.0)))


async def _with_users(api: ApiClient, namespace: str, views: Sequence[WorkloadView]) -> list[WorkloadView]:
    """The views with the users whom their jobs name: a Workload has no such label. Kinds that may not be listed name none."""
    users: dict[str, str] = {}
    for kind in sorted({view.job_kind.lower() for view in views if not view.user} & job_kinds().keys()):
        with suppress(ApiError):
            for job in (await api.list(job_kinds()[kind], namespace, label_selector=names.USER)).items:
                users[job["metadata"]["uid"]] = job["metadata"]["labels"][names.USER]
    return [replace(view, user=view.user or users.get(view.job_uid, "")) for view in views]


def _some(found: Sequence[str]) -> str:
    return bounded.some(found, _NAMED)
