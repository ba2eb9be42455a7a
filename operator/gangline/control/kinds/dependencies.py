"""Jobs that wait for other jobs of their namespace (`gangline.io/after`): how these stand, and what follows for those that wait.

`JobStandings` says how a job stands, by its kind and name. `Dependencies` keeps an index from jobs to the Workloads that wait for
them, so that a change costs only these. It writes on a Workload which of its dependencies have come true: that lasts, whatever
becomes of the other jobs, and lets the Workload into its queue. The engine gets the rest, for reasons and simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from gangline.api import dependencies, names
from gangline.api.dependencies import Dependency, DependencyError, DependencyPolicy, DependencyState
from gangline.control.feed.changes import JobRef
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.kinds import steps
from gangline.control.kinds.variant_bodies import is_variant
from gangline.control.parts.changed_keys import KeySet
from gangline.control.writes.status import dependency_changes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource, namespace_of
from gangline.objects import JobObject, WorkloadObject

#: Workloads that are looked at in search of a circle
_MOST_STEPS: Final = 256
#: dependencies, or jobs of a circle, that a message names
_NAMED: Final = 4

_WAYS_ON: Final = (
    f"Run such a job again under the same name, or change or remove the annotation {names.AFTER} of the job that waits"
)


# --- how a job stands -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobStanding:
    """How a job stands. `succeeded`: None until it has ended. `remark` completes "it …". `workloads`: their keys."""

    exists: bool = True
    deleted: bool = False
    runs: bool = False
    succeeded: bool | None = None
    remark: str = ""
    workloads: tuple[str, ...] = ()

    def meets(self, state: DependencyState) -> bool | None:
        """Whether the job has reached the state; None while it may still do so."""
        ended = self.succeeded is not None
        if self.deleted and not ended:
            return state is DependencyState.FINISHED
        match state:
            case DependencyState.RUNNING:
                return True if self.runs or self.succeeded else False if ended else None
            case DependencyState.FINISHED:
                return True if ended else None
            case DependencyState.SUCCEEDED:
                return self.succeeded
            case DependencyState.FAILED:
                return None if not ended else not self.succeeded


NO_SUCH_JOB: Final = JobStanding(exists=False, remark="does not exist yet")


class JobStandings:
    """How jobs stand, by kind and name, as the mirror has them."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._resources: dict[str, list[Resource]] = {}
        for resource in JOB_KINDS:
            self._resources.setdefault(resource.kind.lower(), []).append(resource)
        #: `namespace/kind/name` of what serves -> the keys of its Workloads; and back
        self._serving: dict[str, set[str]] = {}
        self._served_by: dict[str, str] = {}

    @classmethod
    def of_all(cls, mirror: Mirror) -> JobStandings:
        """Those of a mirror that is complete already."""
        made = cls(mirror)
        for key, workload in mirror.workloads.items():
            made.note(key, workload)
        return made

    def name_of(self, key: str, workload: WorkloadObject | None) -> str:
        """The `namespace/kind/name` by which others wait for the job of a Workload; "" if they can't."""
        if workload is None:
            return self._served_by.get(key, "")
        ref = self._mirror.job_of(workload)
        if ref is not None:
            return name_of(ref)
        annotations, namespace = workload.annotations, workload.namespace
        if parent := annotations.get(names.JOB_OWNER_NAME):
            kind = annotations.get(names.JOB_OWNER_GVK, "").rpartition("Kind=")[2].lower()
            return f"{namespace}/{kind}/{parent}"
        is_group = annotations.get(names.IS_GROUP_WORKLOAD) == "true"
        return f"{namespace}/{dependencies.POD_GROUP}/{workload.name}" if is_group else ""

    def note(self, key: str, workload: WorkloadObject | None) -> None:
        """Note whether a Workload is one of what serves, which can't be found by the object that serves."""
        before = self._served_by.pop(key, "")
        if before:
            known = self._serving[before]
            known.discard(key)
            if not known:
                del self._serving[before]
        if workload is not None and names.JOB_OWNER_NAME in workload.annotations:
            now = self._served_by[key] = self.name_of(key, workload)
            self._serving.setdefault(now, set()).add(key)

    def of(self, namespace: str, dependency: Dependency) -> JobStanding:
        for resource in self._resources.get(dependency.kind, ()):
            job = self._mirror.job((resource, f"{namespace}/{dependency.name}"))
            if job is not None:
                return self._of_job(resource, job)
        if dependency.kind == dependencies.POD_GROUP:
            keys: Iterable[str] = (f"{namespace}/{dependency.name}",)
        else:
            keys = sorted(self._serving.get(f"{namespace}/{dependency.job}", ()))
        found = [workload for key in keys if (workload := self._mirror.workloads.get(key)) is not None]
        return self._of_workloads(found) if found else NO_SUCH_JOB

    def _of_job(self, resource: Resource, job: JobObject) -> JobStanding:
        kind = JOB_KINDS[resource]
        outcome = kind.finished(job)
        if outcome is not None:
            return _ended(outcome.success)
        if mine := self._mirror.workloads_of(job):
            # of an elastic job that grows, a slice waits while the job runs with another one
            unfinished = [each for each in mine if not each.finished]
            return self._of_workloads([each for each in unfinished if each.holds_quota] or unfinished or mine)
        if not kind.is_suspended(job) and kind.pods_ready(job):
            return JobStanding(runs=True, remark="runs, outside any queue")
        return JobStanding(remark="is not queued yet")

    @staticmethod
    def _of_workloads(workloads: Sequence[WorkloadObject]) -> JobStanding:
        keys = tuple(each.key for each in workloads)
        if all(each.finished for each in workloads):
            ended = (each.true_condition(names.FINISHED) or {} for each in workloads)
            return replace(_ended(all(row.get("reason") == "Succeeded" for row in ended)), workloads=keys)
        for each in workloads:
            evicted = each.condition(names.EVICTED) or {}
            if not each.active and str(evicted.get("reason")).startswith(names.DEACTIVATED_DUE_TO):
                return JobStanding(
                    succeeded=False, remark=f"was stopped for good ({evicted['reason']})", workloads=keys
                )
        since = [_running_since(each) for each in workloads if not each.finished]
        if all(since):
            return JobStanding(runs=True, remark=f"runs since {max(since)}", workloads=keys)
        return JobStanding(remark=_why_not_running(workloads), workloads=keys)


def _ended(success: bool) -> JobStanding:
    return JobStanding(succeeded=success, remark="has succeeded" if success else "has failed")


def _running_since(workload: WorkloadObject) -> str:
    """Since when all pods of a Workload are ready; "" if they are not. The condition may be from an earlier start."""
    admitted, ready = workload.true_condition(names.ADMITTED), workload.true_condition(names.PODS_READY)
    if admitted is None or ready is None or workload.evicted:
        return ""
    since = str(ready.get("lastTransitionTime") or "")
    return since if since >= str(admitted.get("lastTransitionTime") or "") else ""


def _why_not_running(workloads: Sequence[WorkloadObject]) -> str:
    if any(not each.active or each.held for each in workloads):
        return "is on hold"
    if all(each.admitted for each in workloads):
        return "starts"
    if waits := [
        words for each in workloads if not each.holds_quota for words in dependencies.waits_for(each.annotations)
    ]:
        return f"waits itself for {waits[0]}"
    return "waits in its queue"


def name_of(ref: JobRef) -> str:
    """The `namespace/kind/name` by which others wait for a job."""
    namespace, _, name = ref[1].partition("/")
    return f"{namespace}/{ref[0].kind.lower()}/{name}"


# --- what follows for those that wait ---------------------------------------------------------------------------------


class DependencyVerdicts(NamedTuple):
    """The dependencies of a Workload that have come true, that still may, and that cannot; each with how its job stands."""

    met: Sequence[Dependency]
    open: Sequence[tuple[Dependency, JobStanding]]
    never: Sequence[tuple[Dependency, JobStanding]]


def judged(standings: Iterable[tuple[Dependency, JobStanding]]) -> DependencyVerdicts:
    met: list[Dependency] = []
    still: list[tuple[Dependency, JobStanding]] = []
    never: list[tuple[Dependency, JobStanding]] = []
    for each, job in standings:
        verdict = job.meets(each.state)
        if verdict:
            met.append(each)
        else:
            (still if verdict is None else never).append((each, job))
    return DependencyVerdicts(met, still, never)


def described(verdicts: DependencyVerdicts, key: str) -> model.Dependencies:
    """The fact for the engine about a Workload that waits for other jobs."""
    if verdicts.never:
        text = _some(
            [f"{each.title} can't {each.state.verb} any more: it {job.remark}" for each, job in verdicts.never]
        )
        return model.Dependencies(key, text, f"{_WAYS_ON}.", never=True)
    text = _some([f"for {each.words}: it {job.remark}" for each, job in verdicts.open])
    needs = _some([f"{each.title} has to {each.state.verb}" for each, _ in verdicts.open])
    awaited: tuple[model.Awaited, ...] = ()
    if all(job.workloads and each.state is not DependencyState.FAILED for each, job in verdicts.open):
        awaited = tuple(
            model.Awaited(workload, each.state is DependencyState.RUNNING)
            for each, job in verdicts.open
            for workload in job.workloads
        )
    return model.Dependencies(key, f"Waits {text}", f"{needs}.", awaited=awaited)


def _some(words: Sequence[str]) -> str:
    more = f"; and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return "; ".join(words[:_NAMED]) + more


class Dependencies(Reconciler[str]):
    """Looks at every Workload that waits for other jobs when it or one of them changes."""

    name = "dependencies"
    doing = "looking at the jobs that it waits for"

    def __init__(self, context: Context, observe: Callable[[model.Change], None]) -> None:
        mirror = context.mirror
        exists = mirror.has(kube.WORKLOADS)
        super().__init__(
            context, KeySet[str](lambda key: exists(key) or key in self._waits_for or key in self._engine_has)
        )
        self.kinds = tuple(JOB_KINDS)
        self._observe = observe
        self._standings = JobStandings(mirror)
        self._changed_workloads = mirror.changes.workloads.subscribe(worth=exists)
        self._changed_jobs = mirror.changes.jobs.subscribe(worth=lambda ref: ref[1] in mirror.objects[ref[0]])
        #: a Workload -> what it waits for; `namespace/kind/name` of a job -> the Workloads that wait for it
        self._waits_for: dict[str, tuple[Dependency, ...]] = {}
        self._dependents: dict[str, set[str]] = {}
        #: a Workload that waits -> the `namespace/kind/name` of its job; and the other way round
        self._names: dict[str, str] = {}
        self._named: dict[str, set[str]] = {}
        #: `namespace/kind/name` of jobs that others wait for -> how they were when they were last there
        self._last: dict[str, JobStanding] = {}
        #: `namespace/kind/name` of jobs that waited -> their UID, and what has come true for them: a Workload may be made anew
        self._met_before: dict[str, tuple[str, frozenset[str]]] = {}
        #: Workloads that wait for themselves
        self._in_circles: set[str] = set()
        #: the facts that the engine has
        self._engine_has: dict[str, model.Dependencies] = {}

    # --- what has changed ---------------------------------------------------------------------------------------------

    def observe(self, resource: Resource, event: Event) -> None:
        """Note how a job ended that others wait for: it may be deleted before the next round."""
        if not self._dependents or not isinstance(event, Upsert | Removed):
            return
        if event.obj is None:  # only a list has shown that it is gone
            return
        job = JobObject(event.obj)
        name = name_of((resource, job.key))
        outcome = JOB_KINDS[resource].finished(job) if name in self._dependents else None
        if outcome is not None:
            self._last[name] = _ended(outcome.success)

    def lead(self) -> None:
        self._standings = JobStandings.of_all(self._mirror)
        self._changed.update(key for key, each in self._mirror.workloads.items() if names.AFTER in each.annotations)

    def _gather(self, now: int) -> None:
        changed = self._changed_workloads.take()
        for key in changed:
            workload = self._mirror.workloads.get(key)
            before = self._standings.name_of(key, None)
            self._standings.note(key, workload)
            named = workload is not None and names.AFTER in workload.annotations
            if named or key in self._waits_for or key in self._engine_has:
                self._changed.add(key)
            if self._dependents:
                namespace, _, name = key.partition("/")
                group = f"{namespace}/{dependencies.POD_GROUP}/{name}"
                for job in {before, self._standings.name_of(key, workload), group}:
                    self._changed.update(self._dependents.get(job, ()))
        changed_jobs = self._changed_jobs.take()
        for ref in changed_jobs if self._dependents or self._met_before else ():
            name = name_of(ref)
            self._changed.update(self._dependents.get(name, ()))
            if self._mirror.job(ref) is None:
                self._met_before.pop(name, None)

    def _index(self, key: str, wanted: tuple[Dependency, ...]) -> None:
        """Note what a Workload waits for now. What waits for it may be part of a circle that has closed or opened."""
        before = self._waits_for.get(key, ())
        if before == wanted:
            return
        namespace, kept = namespace_of(key), {each.job for each in wanted}
        for each in before:
            job = f"{namespace}/{each.job}"
            if each.job not in kept and _discard(self._dependents, job, key):
                self._last.pop(job, None)
        for each in wanted:
            self._dependents.setdefault(f"{namespace}/{each.job}", set()).add(key)
        own = self._names.pop(key, "")
        _discard(self._named, own, key)
        self._waits_for.pop(key, None)
        if wanted:
            own = self._names[key] = self._standings.name_of(key, self._mirror.workloads.get(key))
            self._named.setdefault(own, set()).add(key)
            self._waits_for[key] = wanted
        self._changed.update(self._dependents.get(own, ()))

    # --- one Workload -------------------------------------------------------------------------------------------------

    def _reconcile(self, key: str, now: int) -> None:
        workload = self._mirror.workloads.get(key)
        try:
            wanted = _unmet(workload) if workload is not None else ()
        except DependencyError as error:
            self._index(key, ())
            self._note_circle(key, closed=False)
            needs = f"Correct the annotation {names.AFTER}."
            self._tell(key, model.Dependencies(key, f"The annotation {names.AFTER} {error}", needs, never=True))
            return
        self._index(key, wanted)
        before = self._known_to_be_met(key, workload)
        if workload is None or not wanted:
            self._note_circle(key, closed=False)
            self._tell(key, None)
            if workload is not None and not workload.holds_quota and dependency_changes.waits(workload.conditions):
                self._change(key, key, dependency_changes.dependencies_met)
            return
        seen = dependencies.known_as(workload.annotations.get(names.AFTER_SEEN, ""))
        verdicts = judged(
            (each, self._standing(workload.namespace, each, seen)) for each in wanted if str(each) not in before
        )
        verdicts = verdicts._replace(met=[*verdicts.met, *(each for each in wanted if str(each) in before)])
        if patch := _record(workload, wanted, seen, verdicts):
            done = partial(self._met, verdicts.met) if verdicts.met else None
            self._send(key, ObjectKey.of(kube.WORKLOADS, workload), "patch", steps.fenced(workload, patch), done=done)
            return
        circle = self._circle(key)
        self._note_circle(key, closed=bool(circle))
        waits = _of_circle(key, circle) if circle else described(verdicts, key)
        self._tell(key, waits)
        cancels = dependencies.policy(workload.annotations) is DependencyPolicy.CANCEL
        if verdicts.never and cancels and workload.active and not workload.is_true(names.DEACTIVATION_TARGET):
            self._change(key, key, dependency_changes.cancel(waits.message))

    def _known_to_be_met(self, key: str, workload: WorkloadObject | None) -> frozenset[str]:
        """What has come true for the job of a Workload, perhaps while it had another one."""
        uid = workload.controller_uid if workload is not None else None
        if workload is None or uid is None or is_variant(workload):
            return frozenset()
        name, met = self._standings.name_of(key, workload), workload.annotations.get(names.AFTER_MET)
        if met and self._mirror.job_with(uid) is not None:
            self._met_before[name] = (uid, dependencies.known_as(met))
        known, entries = self._met_before.get(name, ("", frozenset[str]()))
        return entries if known == uid else frozenset()

    def _standing(self, namespace: str, dependency: Dependency, seen: frozenset[str]) -> JobStanding:
        """How the job stands, or how it was when it was last there."""
        name = f"{namespace}/{dependency.job}"
        standing = self._standings.of(namespace, dependency)
        if standing.exists:
            self._last[name] = standing
            return standing
        last = self._last.get(name)
        if last is not None and last.succeeded is not None:
            return last
        if last is not None or dependency.job in seen:
            return JobStanding(exists=False, deleted=True, remark="was deleted")
        return standing

    def _met(self, met: Sequence[Dependency], answer: WorkloadObject | None) -> None:
        if answer is not None:
            met_text = ", ".join(each.words for each in met[:_NAMED])
            self._recorder.record(
                answer, "Normal", "DependenciesMet", f"The workload need not wait any more for {met_text}"
            )

    def _tell(self, key: str, waits: model.Dependencies | None) -> None:
        """Tell the engine what is known of the jobs that a Workload waits for."""
        if self._engine_has.get(key) == waits:
            return
        if waits is None:
            del self._engine_has[key]
            self._observe(model.Gone(model.Dependencies, key))
        else:
            self._engine_has[key] = waits
            self._observe(model.Put(waits))

    def _note_circle(self, key: str, *, closed: bool) -> None:
        """Look at those that wait for this Workload, which are in its circle, when that closes or opens."""
        if closed == (key in self._in_circles):
            return
        (self._in_circles.add if closed else self._in_circles.discard)(key)
        self._changed.update(self._dependents.get(self._names.get(key, ""), ()))

    def _circle(self, key: str) -> list[str]:
        """The jobs of a circle in which this one waits for itself, in order; [] if none is found."""
        namespace, own = namespace_of(key), self._names.get(key)
        if not own:
            return []
        came_from: dict[str, str] = {}
        to_visit = [own]
        for _ in range(_MOST_STEPS):
            if not to_visit:
                return []
            name = to_visit.pop()
            for each in (each for waiting in self._named.get(name, ()) for each in self._waits_for[waiting]):
                job = f"{namespace}/{each.job}"
                if job == own:
                    path = [name]
                    while path[-1] != own:
                        path.append(came_from[path[-1]])
                    return [each.partition("/")[2].replace("/", " ") for each in reversed(path)]
                if job not in came_from:
                    came_from[job] = name
                    to_visit.append(job)
        return []


def _discard(index: dict[str, set[str]], name: str, key: str) -> bool:
    """Remove a key from an index. Returns whether nothing is left under that name."""
    known = index.get(name, set())
    known.discard(key)
    if not known:
        index.pop(name, None)
    return not known


def _unmet(workload: WorkloadObject) -> tuple[Dependency, ...]:
    """What a Workload still waits for. A variant follows its parent, and what holds quota or has ended waits for nothing."""
    if workload.finished or workload.deleting or workload.holds_quota or is_variant(workload):
        return ()
    return dependencies.unmet(workload.annotations)


def _record(
    workload: WorkloadObject, wanted: Sequence[Dependency], seen: frozenset[str], verdicts: DependencyVerdicts
) -> Json:
    """The patch that records what has come true and, where their deletion would matter, which jobs have been there."""
    annotations: dict[str, str] = {}
    if verdicts.met:
        left = [each for each in wanted if each not in verdicts.met]
        every = dependencies.parse(workload.annotations[names.AFTER])
        annotations[names.AFTER_MET] = dependencies.written([each for each in every if each not in left])
    cancels = dependencies.policy(workload.annotations) is DependencyPolicy.CANCEL
    there = {
        each.job for each, job in verdicts.open if job.exists and (cancels or each.state is DependencyState.FINISHED)
    }
    if not there <= seen:
        listed = {each.job for each in wanted}
        annotations[names.AFTER_SEEN] = ",".join(sorted(there | (seen & listed)))
    return {"metadata": {"annotations": annotations}} if annotations else {}


def _of_circle(key: str, circle: Sequence[str]) -> model.Dependencies:
    more = ["…"] if len(circle) > _NAMED else []
    path = " → ".join([*circle[:_NAMED], *more, circle[0]])
    needs = f"Remove the annotation {names.AFTER} of one of these jobs."
    return model.Dependencies(key, f"The jobs wait for each other: {path}", needs, never=True)


def as_submitted(
    mirror: Mirror, value: model.Workload, annotations: Mapping[str, str]
) -> tuple[model.Workload, model.Dependencies | None]:
    """A workload that might be submitted with these annotations, and what would be known of the jobs that it waits for."""
    if not value.waits_for:
        return value, None
    standings = JobStandings.of_all(mirror)
    wanted = dependencies.unmet(annotations)
    verdicts = judged((each, standings.of(value.namespace, each)) for each in wanted)
    value = replace(value, waits_for=tuple(each.words for each in wanted if each not in verdicts.met))
    return value, described(verdicts, value.key) if value.waits_for else None


def facts_of(mirror: Mirror) -> Iterator[model.Dependencies]:
    """What is known of the jobs that Workloads wait for, from a mirror alone, where no operator has said it."""
    waiting = [each for each in mirror.workloads.values() if names.AFTER in each.annotations]
    if not waiting:
        return
    standings = JobStandings.of_all(mirror)
    for workload in waiting:
        try:
            wanted = _unmet(workload)
        except DependencyError:
            continue
        verdicts = judged((each, standings.of(workload.namespace, each)) for each in wanted)
        if verdicts.open or verdicts.never:
            yield described(verdicts, workload.key)
