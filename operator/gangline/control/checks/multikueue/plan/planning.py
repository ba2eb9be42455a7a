"""The next steps for one workload that is sent to other clusters. Pure, and level-triggered like `control.kinds.job_plan`.

The order of the rules is that of Kueue's reconciler. Steps in different clusters do not wait for each other. A workload that has
chosen its cluster looks at no other one any more, so that a cluster that comes back after it was given up wins nothing.

Chooses the clusters that a workload is offered to: all at once, some more in each round, or those that another controller
names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.jobkinds.declaration import at, put, shown
from gangline.api.read import conditions
from gangline.api.read.configuration.multikueue import ALL_AT_ONCE, INCREMENTAL, MultiKueueSettings
from gangline.control.checks.multikueue.clusters.copies import Copy, digest
from gangline.control.checks.multikueue.plan import growing, preemption, stopping
from gangline.control.checks.multikueue.plan.steps import (
    Choose,
    ClusterView,
    Finish,
    Follow,
    MirrorStatus,
    MultiKueueView,
    Nominate,
    Reprioritise,
    SendJob,
    SetCheck,
    Step,
    Wait,
    WithdrawFromCluster,
)
from gangline.kube.resources import Json
from gangline.objects import JobObject

#: milliseconds of a round of the incremental dispatcher
ROUND = 300_000


def nominate(
    settings: MultiKueueSettings,
    listed: Sequence[str],
    connected: Sequence[str],
    nominated: Sequence[str],
    *,
    round_at: int | None,
    now: int,
) -> tuple[list[Step], Sequence[str]]:
    """The steps, and the clusters in which copies are wanted. `nominated`: as the status says now."""
    if settings.dispatcher == ALL_AT_ONCE:
        wanted = sorted(connected)
        return ([Nominate(wanted)] if set(wanted) != set(nominated) else []), wanted
    if settings.dispatcher == INCREMENTAL:
        return _more(settings, listed, nominated, round_at, now), nominated
    return [], nominated


def _more(
    settings: MultiKueueSettings, listed: Sequence[str], nominated: Sequence[str], round_at: int | None, now: int
) -> list[Step]:
    left = [name for name in listed if name not in nominated]
    if not left:
        return []
    if nominated and round_at is None:  # begun by an earlier process: its round is counted from here
        return [Nominate(nominated, begins=True)]
    if nominated and round_at is not None and now < round_at + ROUND:
        return [Wait(round_at + ROUND)]
    if not settings.in_listed_order:
        left.sort()
    return [Nominate([*nominated, *left[: settings.step]], begins=True)]


PENDING: Final = "Pending"
READY: Final = "Ready"
RETRY: Final = "Retry"
REJECTED: Final = "Rejected"

OUT_OF_SYNC: Final = "OutOfSync"
OWNER_NOT_FOUND: Final = "OwnerNotFound"
_ENDED: Final = ("Succeeded", "Failed")
_NOBODY: Final = "No connected cluster can run the job"


def plan(view: MultiKueueView) -> list[Step]:
    """The next steps; [] when there is nothing to do until something changes."""
    workload = view.workload
    if view.chain is not None and view.chain.over:
        return growing.replaced(view)
    if view.chain is not None and view.chain.waits:
        return []  # the job runs with the slice that this one is to replace, which gets it its cluster
    if view.row is None:
        return list(stopping.withdraw(view, view.clusters))
    ends = workload.finished or workload.deleting
    if not ends and not workload.holds_quota and view.chain is not None and growing.is_given_its_cluster(view):
        return []
    if ends or not workload.holds_quota:
        return [*stopping.withdraw(view, view.clusters), *(stopping.settle(view) if stopping.settles(view) else ())]
    if view.row["state"] == REJECTED or view.listed is None or _runs_here(view):
        return []
    if (refusal := _refusal(view)) is not None:
        return [SetCheck(view.row, REJECTED, _before(view.row, refusal), "Warning")]
    if not view.jobs:
        return []
    return _with_quota(view, view.row, view.listed)


def _runs_here(view: MultiKueueView) -> bool:
    """Whether the job runs in this cluster, because it was admitted already when its queue got the check."""
    workload = view.workload
    return (
        view.row is not None
        and view.row["state"] == PENDING
        and not workload.cluster
        and not workload.nominated_clusters
        and workload.admitted
        and not workload.evicted  # which takes the cluster's name away
    )


def _refusal(view: MultiKueueView) -> str | None:
    """Why the workload can never run in another cluster, in Kueue's words."""
    if view.kind is None:
        what = f' for owner kind "{view.owner[0]}, Kind={view.owner[1]}"' if view.owner is not None else ""
        return f"No multikueue adapter found{what}"
    where = view.kind.managed_by
    managers = [at(job, where) or "" for job in view.jobs.values()] if where else []
    manager = next((each for each in managers if each != CONTROLLER), CONTROLLER)
    if manager != CONTROLLER:
        wanted = f'Expecting {shown(where)} to be "{CONTROLLER}" not "{str(manager)[: bounded.SHOWN]}"'
        return f"The owner is not managed by Kueue: {wanted}"
    why = next((text for job in view.jobs.values() if (text := view.kind.unsendable(job))), "")
    return f"The owner cannot be sent: {why}" if why else None


def _with_quota(view: MultiKueueView, row: Json, listed: Iterable[str]) -> list[Step]:
    chosen = view.workload.cluster
    looked_at = [chosen] if chosen else list(listed)
    evicted = view.workload.true_condition(names.EVICTED)
    over, ended = _deleted_after_its_end(view, looked_at), _first(view, looked_at, names.FINISHED)
    if over or (over is not None and (ended is None or _is_out_of_sync(ended[1]))):
        return over
    if ended is not None and not (evicted and view.chain is not None and _is_out_of_sync(ended[1])):
        return _finish(view, row, *ended)
    if evicted is not None:
        return stopping.stop(view, evicted)
    if row["state"] == RETRY:
        return []  # it is about to be evicted
    if row["state"] == READY and (stopped := _first(view, looked_at, names.EVICTED)) is not None:
        text = f'Workload evicted on worker cluster: "{stopped[0]}", resetting for re-admission'
        return [SetCheck(row, RETRY, f'{text}. Previously: "{row["state"]}"')]
    runs_in = growing.follows(view) if row["state"] == PENDING else ""
    if runs_in and growing.lost_before(view, runs_in):
        text = f'Workload evicted on worker cluster: "{runs_in}", resetting for re-admission'
        return [SetCheck(row, RETRY, f'{text}. Previously: "{row["state"]}"')]
    outdated = _outdated(view)
    steps: list[Step] = [*_replace(view, outdated), *_keep_in_step(view, outdated)]
    if view.chain is not None:
        steps += growing.cut(view)
    admitted = _first(view, [name for name in looked_at if name not in outdated], names.ADMITTED)
    if admitted is not None:
        return [*steps, *_run(view, row, admitted[0])]
    if row["state"] == READY or (runs_in and not _is_connected(view, runs_in)):
        return [*steps, *_lost(view, row, chosen)]
    steps += preemption.open_next(view, [name for name in looked_at if name not in outdated])
    if runs_in:
        return [*steps, *stopping.mirrors(view, runs_in), *(growing.send(view, runs_in) if _is_next(view, row) else ())]
    return [*steps, *_nominate(view, row, list(listed), outdated)]


def _deleted_after_its_end(view: MultiKueueView, looked_at: Iterable[str]) -> list[Step] | None:
    """The steps for a workload all of whose jobs have finished in their cluster and are gone since: their end is that of the jobs
    here, and nothing runs again. None if that is not so.
    """
    kind = view.kind
    if kind is None:
        return None
    ended = {
        name: job for each in looked_at if each in view.clusters for name, job in view.clusters[each].ended.items()
    }
    if any(kind.finished(job) is None and name not in ended for name, job in view.jobs.items()):
        return None
    mirrored = [(job, kind.mirrored(job, ended[name])) for name, job in view.jobs.items() if name in ended]
    return [MirrorStatus(job, status) for job, status in mirrored if status is not None]


# --- what the copies say ----------------------------------------------------------------------------------------------


def _first(view: MultiKueueView, looked_at: Iterable[str], kind: str) -> tuple[str, Copy] | None:
    """The connected cluster whose copy has had this condition for longest, with the copy; None if no copy has it."""
    found = [
        (cluster.copy.since(kind), name, cluster.copy)
        for name in looked_at
        if (cluster := view.clusters.get(name)) is not None
        and cluster.connected
        and cluster.copy is not None
        and cluster.copy.row(kind) is not None
        and (kind == names.FINISHED or not cluster.copy.leaving)
    ]
    return min(found, key=lambda each: each[:2])[1:] if found else None


def _finish(view: MultiKueueView, row: Json, cluster: str, copy: Copy) -> list[Step]:
    condition = copy.row(names.FINISHED) or {}
    if _is_out_of_sync(copy):  # the job there could not be run; that is not the end of this one
        if row["state"] != READY and not growing.follows(view):
            return []
        text = (
            f'Remote workload on worker cluster "{cluster}" is out of sync with its user job, resetting for re-dispatch'
        )
        return [SetCheck(row, RETRY, _before(row, text), "Warning")]
    if mirrors := stopping.mirrors(view, cluster):
        return [*mirrors]
    reason, message = str(condition.get("reason") or "Succeeded"), str(condition.get("message") or "")
    return [Finish(reason, conditions.cut(message))]


def _outdated(view: MultiKueueView) -> set[str]:
    """The clusters whose copy asks for something else than the workload does."""
    asked = digest(view.workload.spec)
    copies = ((name, cluster.copy) for name, cluster in view.clusters.items() if cluster.connected)
    if view.chain is not None:
        return {name for name, copy in copies if copy is not None and growing.is_outdated(view, copy)}
    return {name for name, copy in copies if copy is not None and copy.spec != asked}


def _replace(view: MultiKueueView, outdated: set[str]) -> Iterator[Step]:
    for name in sorted(outdated):
        if not (cluster := view.clusters[name]).busy:
            yield WithdrawFromCluster(name, cluster.copy, [] if cluster.shared else [*cluster.jobs.values()], rest=True)


def _keep_in_step(view: MultiKueueView, outdated: set[str]) -> Iterator[Step]:
    """Give the copies another priority of the workload."""
    wanted = (view.workload.priority, view.workload.spec.get("priorityClassRef"))
    for name, cluster in view.clusters.items():
        copy = cluster.copy
        if not cluster.connected or cluster.busy or copy is None or name in outdated:
            continue
        if (copy.priority, copy.priority_class) != wanted:
            yield Reprioritise(name, copy)


# --- it runs ----------------------------------------------------------------------------------------------------------


def _run(view: MultiKueueView, row: Json, cluster: str) -> Iterator[Step]:
    """Let the workload run in the cluster that admitted it, and in no other one."""
    yield from stopping.withdraw(view, [name for name in view.clusters if name != cluster])
    there = view.clusters[cluster]
    if view.kind is not None and view.kind.pods_wait:
        yield from _recall(view, cluster, there)
    running = {name: job for name, job in there.jobs.items() if not job.deleting}
    wanted = [name for name, job in view.jobs.items() if _may_be_sent(view, job)]
    yield from _send_jobs(view, cluster, there, wanted)
    mirrors = stopping.mirrors(view, cluster)
    yield from mirrors
    for name in running.keys() & view.jobs.keys():
        yield from growing.resize(view, view.jobs[name], cluster, running[name])
        yield from _follow(view, view.jobs[name], cluster, running[name])
    if not running or not running.keys() >= set(wanted):
        return
    placed = _newly_placed(view, there)
    # what is changed in the status before the job here starts would keep it from starting
    waits = view.kind is not None and any(view.kind.suspension.read(mirror.job) for mirror in mirrors)
    if (row["state"] != READY and not waits) or placed:
        yield Choose(row, cluster, placed)


def _may_be_sent(view: MultiKueueView, job: JobObject) -> bool:
    """Whether a job may be created in the cluster. A pod that has ended does not run again."""
    ended = view.kind is None or (view.kind.pods_wait and at(job, ("status", "phase")) in _ENDED)
    return not ended and not job.deleting


def _send_jobs(view: MultiKueueView, cluster: str, there: ClusterView, wanted: Iterable[str]) -> Iterator[Step]:
    for name in wanted:
        if there.busy or view.kind is None or name in there.jobs:  # that one is there, or on its way out
            continue
        blocker = there.blockers.get(name)
        if blocker is None:
            job = view.jobs[name]
            yield SendJob(cluster, job, view.kind.sent(job, view.workload.spec["podSets"]))
        elif not blocker.deleting:
            yield WithdrawFromCluster(cluster, None, [blocker])


def _recall(view: MultiKueueView, cluster: str, there: ClusterView) -> Iterator[Step]:
    """Delete a pod in the cluster that is deleted here; the last one takes the Workload with it. Then it does
    not run any more.
    """
    gone = [name for name in there.jobs if name not in view.jobs or view.jobs[name].deleting]
    there_still = [there.jobs[name] for name in gone if not there.jobs[name].deleting]
    if there_still and not there.busy:
        yield WithdrawFromCluster(cluster, None, there_still)
    for name, job in view.jobs.items():
        if name not in there.jobs and (status := stopping.idle(view, job)) is not None:
            yield MirrorStatus(job, status)


def _follow(view: MultiKueueView, job: JobObject, cluster: str, remote: JobObject) -> Iterator[Step]:
    """Pass on the fields that may change while the job runs."""
    if view.kind is None or not view.settings.jobs_follow or view.clusters[cluster].busy:
        return
    if view.family is not None and not view.family.leads:
        return
    differing = [path for path in view.kind.followed if at(job, path) != at(remote, path)]
    if differing:
        change: Json = {}
        for path in differing:
            put(change, path, at(job, path))
        yield Follow(cluster, remote, change["spec"])


def _newly_placed(view: MultiKueueView, there: ClusterView) -> list[str]:
    rows, placed = view.workload.assignments, there.copy.placed if there.copy is not None else frozenset[str]()
    return [each["name"] for each in rows if each.get("delayedTopologyRequest") == PENDING and each["name"] in placed]


def _lost(view: MultiKueueView, row: Json, chosen: str) -> list[Step]:
    """The steps for a workload that ran in a cluster while no copy says so any more."""
    if not chosen:
        text = "Admission check is Ready but no admitting cluster is recorded; this is unexpected, please report it"
    elif chosen in view.clusters and not view.clusters[chosen].connected and chosen in (view.listed or ()):
        due = view.clusters[chosen].lost_at + stopping.patience(view)
        if due > view.now:
            return [Wait(due)]
        text = "Admitting remote lost"
    else:
        text = "Admitting remote no longer exists"
    return [SetCheck(row, RETRY, _before(row, text), "Warning")]


# --- it is offered ----------------------------------------------------------------------------------------------------


def _nominate(view: MultiKueueView, row: Json, listed: list[str], outdated: set[str]) -> Iterator[Step]:
    """Make copies in the nominated clusters, and in no others."""
    if row["state"] != PENDING or view.workload.cluster or not _is_next(view, row):
        return
    if view.family is not None and not (view.family.complete and (view.family.leads or view.family.cluster)):
        return  # all of them are sent to the cluster that the first one gets
    nominated = view.workload.nominated_clusters
    connected = [name for name in listed if name in view.clusters and view.clusters[name].connected]
    takers = [name for name in connected if not view.clusters[name].refuses]
    yield from _tell_takers(view, row, connected, takers)
    if view.family is not None and view.family.cluster:
        wanted = [view.family.cluster]
        steps = [Nominate(wanted)] if nominated != wanted else []
    else:
        steps, wanted = nominate(view.settings, listed, takers, nominated, round_at=view.round_at, now=view.now)
    yield from steps
    for name in takers:
        cluster = view.clusters[name]
        if name in wanted and name in nominated and cluster.copy is None and not cluster.busy:
            yield preemption.send(view, name, alone=view.family is not None and bool(view.family.cluster))
    yield from stopping.withdraw(view, [name for name in view.clusters if name not in wanted and name not in outdated])


def _tell_takers(view: MultiKueueView, row: Json, connected: list[str], takers: list[str]) -> Iterator[Step]:
    """Says in the check that no connected cluster can run such a job: it waits until one can."""
    if connected and not takers:
        whys = "; ".join(f'"{name}": {view.clusters[name].refuses}' for name in connected)
        text = conditions.cut(f"{_NOBODY}: {whys}")
        if row.get("message") != text:
            yield SetCheck(row, PENDING, text, "Warning")
    elif takers and str(row.get("message") or "").startswith(_NOBODY):
        yield SetCheck(row, PENDING, f"The job can run in: {', '.join(takers)}")


# --- small words ------------------------------------------------------------------------------------------------------


def _before(row: Json, text: str) -> str:
    return conditions.cut(f'{text}, Previously: "{row["state"]}"')


def _is_next(view: MultiKueueView, row: Json) -> bool:
    """Whether all other checks are ready."""
    return all(check["state"] == READY for check in view.workload.checks if check["name"] != row["name"])


def _is_connected(view: MultiKueueView, cluster: str) -> bool:
    return cluster in (view.listed or ()) and cluster in view.clusters and view.clusters[cluster].connected


def _is_out_of_sync(copy: Copy) -> bool:
    """Whether the copy's end says nothing of the job here: the job there did not fit the copy, or was deleted."""
    return (copy.row(names.FINISHED) or {}).get("reason") in (OUT_OF_SYNC, OWNER_NOT_FOUND)
