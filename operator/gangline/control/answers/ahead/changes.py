"""Compares the plan as it is with the plan after one change: of a waiting job, of a queue's quota, or of a node.

Nothing is changed. Both are played by the engine with all its rules, over the same courses of run times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.read import alternatives
from gangline.api.reservations import reservation
from gangline.api.spec_fields import SpecError
from gangline.control.answers.ahead import capacity, whatif
from gangline.control.answers.ahead.remedies import starts_in, with_quota
from gangline.control.answers.sight import Sight
from gangline.control.answers.source import EngineOutlooks, NoForecastsError, Source
from gangline.control.answers.workloads.snapshot import WorkloadView
from gangline.control.forecasting.rehearsals import Rehearsal, Rehearsed
from gangline.engine import accelerators, accelerators_of, is_accelerator
from gangline.engine.model import Change, ClusterQueue, Millis, Node, Put, QuotaAhead, QuotaStep, Taint
from gangline.kube.resources import Json

#: seconds for both plays
TIME: Final = 20.0
#: who starts earlier or later by less than so many seconds is not listed
LEAST: Final = 60
#: jobs that are named on each side
MOST: Final = 50
#: seconds of the longest run that can be asked about, and GPUs of the largest job or quota
LONGEST: Final = 365 * 86_400
LARGEST: Final = 1_000_000
_JOB: Final = ("kind", "name", "durationSeconds", "gpus", "queue")
_QUOTA: Final = ("clusterQueue", "flavor", "gpus", "at")
_NODE: Final = ("drain",)
_RESERVATION: Final = ("reservation",)
#: the name of a Reservation that does not exist
_NAME: Final = "whatif"


class WrongChangeError(ValueError):
    """Says, naming the field, why the change can't be asked about."""


@dataclass(frozen=True, slots=True)
class WantedChange:
    """One change. Of a job: `kind`, `name` and what changes of it; of a queue: `cluster_queue`, `flavor` and its quota in `gpus`,
    from the instant `at` on (None: at once); of a node: `drain`.
    """

    kind: str = ""
    name: str = ""
    duration: float | None = None
    gpus: int | None = None
    queue: str = ""
    cluster_queue: str = ""
    flavor: str = ""
    drain: str = ""
    at: Millis | None = None
    reservation: Json | None = None

    @property
    def of_job(self) -> bool:
        return bool(self.name)


def read(given: object) -> WantedChange:
    """The change in a request. Raises WrongChangeError."""
    if not isinstance(given, dict):
        raise WrongChangeError("spec.change: must be an object")
    fields: dict[str, Any] = {str(name): value for name, value in given.items()}  # pyright: ignore[reportUnknownVariableType]
    group = next((each for each in (_JOB[1:2], _QUOTA, _NODE, _RESERVATION) if each[0] in fields), None)
    if group is None:
        raise WrongChangeError(
            "spec.change: must name a job (name), a queue (clusterQueue), a node (drain) or a Reservation (reservation)"
        )
    known = _JOB if group[0] == "name" else group
    for name in fields:
        if name not in known:
            raise WrongChangeError(f"spec.change.{bounded.shown(name)}: there is no such field beside {group[0]}")
    for name in ("kind", "name", "queue", "clusterQueue", "flavor", "drain"):
        text = fields.get(name, "")
        if not isinstance(text, str) or len(text) > 253:
            raise WrongChangeError(f"spec.change.{name}: must be a name")
    wanted = WantedChange(
        kind=fields.get("kind", ""),
        name=fields.get("name", ""),
        duration=_number(fields, "durationSeconds", LONGEST),
        gpus=_whole(fields),
        queue=fields.get("queue", ""),
        cluster_queue=fields.get("clusterQueue", ""),
        flavor=fields.get("flavor", ""),
        drain=fields.get("drain", ""),
        at=whatif.instant_of(fields.get("at"), "spec.change.at", WrongChangeError),
        reservation=_reservation(fields),
    )
    if wanted.of_job and wanted.duration is None and wanted.gpus is None and not wanted.queue:
        raise WrongChangeError("spec.change: must change durationSeconds, gpus or queue of the job")
    if wanted.cluster_queue and (wanted.gpus is None or not wanted.flavor):
        raise WrongChangeError("spec.change: a queue's quota is changed by flavor and gpus")
    return wanted


def _number(fields: Mapping[str, Any], name: str, most: float) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= most:
        raise WrongChangeError(f"spec.change.{name}: must be from 1 to {most:g}")
    return value * 1.0


def _reservation(fields: Mapping[str, Any]) -> Json | None:
    """The spec of a Reservation, which can be honoured."""
    if "reservation" not in fields:
        return None
    spec = fields["reservation"]
    try:
        reservation({"spec": spec})
    except SpecError as error:
        raise WrongChangeError(f"spec.change.reservation{error.path.removeprefix('spec')}: {error.message}") from None
    return spec


def _whole(fields: Mapping[str, Any]) -> int | None:
    value = fields.get("gpus")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise WrongChangeError(f"spec.change.gpus: must be a whole number from 0 to {LARGEST}")
    return value


@dataclass(frozen=True, slots=True)
class _Played:
    """A change as facts. `key`: of the job that changes; `hours`: GPU-hours that its run takes more; `note`: anything else.

    `stops`: of a Reservation, when its windows stop who still runs on their nodes.
    """

    changes: tuple[Change, ...]
    command: str
    key: str = ""
    hours: float | None = None
    note: str = ""
    stops: frozenset[Millis] | None = None


async def compare(
    source: Source,
    foresight: EngineOutlooks,
    sight: Sight,
    jobs: Mapping[str, str],
    wanted: WantedChange,
    view: WorkloadView | None,
) -> Json:
    """What the change would do: the job's start before and after, who starts earlier and later, and the command that would apply
    it. `view`: the waiting job that would change. Raises WrongChangeError, NoForecastsError.
    """
    if source.forecasts is None:
        raise NoForecastsError("this operator makes no forecasts")
    if view is not None:
        played = _of_job(source, wanted, view)
    elif wanted.reservation is not None:
        played = _of_reservation(source, wanted.reservation)
    else:
        played = _of_quota(source, wanted) if wanted.cluster_queue else _of_node(source, wanted)
    before, after = (await foresight.rehearse([Rehearsal("", ()), Rehearsal("", played.changes)], TIME)).outcomes
    if before is None or after is None:
        raise NoForecastsError("the time was not enough to play the plan twice")
    now = source.now()
    moved = sorted(_moved(before, after, played.key), key=lambda each: -abs(each[1]))
    rows = [{"job": sight.name(key, jobs), "seconds": round(seconds)} for key, seconds in moved]
    return {
        "before": starts_in(before, played.key, now),
        "after": starts_in(after, played.key, now),
        "gains": [row for row in rows if row["seconds"] > 0][:MOST],
        "loses": [{**row, "seconds": -row["seconds"]} for row in rows if row["seconds"] < 0][:MOST],
        "headDelaySeconds": _head_delay(source, before, after, played.key),
        "gpuHours": None if played.hours is None else round(played.hours, 3),
        "command": played.command,
        "note": played.note,
        **_stopped(source, after, played.stops, sight, jobs),
    }


def _stopped(
    source: Source, after: Rehearsed, stops: frozenset[Millis] | None, sight: Sight, jobs: Mapping[str, str]
) -> Json:
    """The runs that windows would stop, and the GPU-hours that are lost. A job that saves its work saves it by the deadline."""
    if stops is None:
        return {"stopped": [], "gpuHoursLost": None}
    found: list[Json] = []
    lost = 0.0
    for run in after.outlook.stretches:
        if run.ended not in stops:
            continue
        value = source.mirror.workload_value(run.workload)
        hours = sum(accelerators(each.usage) for each in run.admission.pod_sets) * (run.ended - run.began) / 3_600_000
        saves = value is not None and value.checkpoint_seconds is not None
        lost += 0.0 if saves else hours
        found.append({"job": sight.name(run.workload, jobs), "gpuHoursLost": 0.0 if saves else round(hours, 3)})
    found.sort(key=lambda row: (-row["gpuHoursLost"], row["job"]))
    return {"stopped": found[:MOST], "gpuHoursLost": round(lost, 3)}


def _moved(before: Rehearsed, after: Rehearsed, own: str) -> list[tuple[str, float]]:
    """Other workloads whose start moves, and by how many seconds it comes earlier. One that starts in one plan alone counts as
    if it started at the end of the horizon in the other.
    """
    ends = [run.ended for done in (before, after) for run in done.outlook.stretches]
    horizon = max(ends, default=before.outlook.now)
    found: list[tuple[str, float]] = []
    for key in before.outlook.starts.keys() | after.outlook.starts.keys():
        first, second = before.outlook.starts.get(key), after.outlook.starts.get(key)
        then, base = (second.p50 if second else horizon), (first.p50 if first else horizon)
        if key != own and abs(base - then) >= LEAST * 1000:
            found.append((key, (base - then) / 1000))
    return found


def _head_delay(source: Source, before: Rehearsed, after: Rehearsed, own: str) -> float | None:
    """The most by which the reserved head of a queue starts later; None where no queue reserves anything."""
    delays = [
        (then.p50 - base.p50) / 1000
        for key in source.engine.heads().values()
        if key != own and (base := before.outlook.starts.get(key)) and (then := after.outlook.starts.get(key))
    ]
    return max(0.0, *delays) if delays else None


# --- a job ------------------------------------------------------------------------------------------------------------


def _of_job(source: Source, wanted: WantedChange, view: WorkloadView) -> _Played:
    key = view.key
    value = source.mirror.workload_value(key)
    forecast = source.forecasts.estimate(key) if source.forecasts is not None else None
    if value is None or forecast is None:
        raise NoForecastsError(f"the run time of {view.job} is not known")
    variant = whatif.Variant("", "", value, forecast, source.forecasts.by_flavor(key) if source.forecasts else {})
    commands: list[str] = []
    note = ""
    if wanted.queue:
        if f"{view.namespace}/{wanted.queue}" not in source.mirror.local_queues:
            raise WrongChangeError(f"spec.change.queue: namespace {view.namespace} has no LocalQueue {wanted.queue!r}")
        variant = replace(variant, workload=replace(variant.workload, queue=wanted.queue))
        commands.append(f"gangline move {view.job} {wanted.queue} -n {view.namespace}")
    before = accelerators_of(value.pod_sets)
    if wanted.gpus is not None and wanted.gpus != before:
        variant = _resized(variant, wanted.gpus)
        if view.job_kind == "GPUJob":
            workers = variant.workload.pod_sets[-1].count
            commands.append(_patched(view, f'{{"spec":{{"workers":{workers}}}}}'))
        else:
            note = f"A {view.job_kind} keeps its size: submit it again with {wanted.gpus} GPUs."
    if wanted.duration is not None:
        limit = variant.workload.max_execution_seconds
        if limit is not None and wanted.duration > limit:
            raise WrongChangeError(f"spec.change.durationSeconds: the job is stopped after {limit} s")
        scaled = variant.scaled(wanted.duration / variant.forecast.q50)
        variant = replace(variant, forecast=scaled[0], by_flavor=scaled[1])
        commands.append(_expected(view, wanted.duration))
    hours = (accelerators_of(variant.workload.pod_sets) * variant.forecast.q50 - before * forecast.q50) / 3600
    return _Played(variant.rehearsal.changes, " && ".join(commands), key, hours, note)


def _resized(variant: whatif.Variant, gpus: int) -> whatif.Variant:
    """The job with so many GPUs, by the number of its pods."""
    pods = [each for each in variant.workload.pod_sets if accelerators_of((each,))]
    if len(pods) != 1:
        raise WrongChangeError("spec.change.gpus: only jobs whose GPUs are all in one set of pods can be resized")
    (chosen,) = pods
    each = accelerators_of((replace(chosen, count=1, min_count=None),))
    if gpus < each or gpus % each:
        raise WrongChangeError(f"spec.change.gpus: must be a multiple of {each}, which each pod asks for")
    resized = replace(chosen, count=gpus // each, min_count=None)
    sets = tuple(resized if one is chosen else one for one in variant.workload.pod_sets)
    return replace(variant, workload=replace(variant.workload, pod_sets=sets))


def _expected(view: WorkloadView, seconds: float) -> str:
    """The command that tells how long the job is expected to run."""
    text = f"{round(seconds)}s"
    if view.job_kind == "GPUJob":
        return _patched(view, f'{{"spec":{{"runtime":{{"expected":"{text}"}}}}}}')
    return f"kubectl annotate {view.job} -n {view.namespace} --overwrite {names.EXPECTED_RUNTIME}={text}"


def _patched(view: WorkloadView, patch: str) -> str:
    return f"kubectl patch {view.job} -n {view.namespace} --type merge -p '{patch}'"


# --- a queue and a node -----------------------------------------------------------------------------------------------


def _of_quota(source: Source, wanted: WantedChange) -> _Played:
    facts = [fact.item for fact in source.engine.facts() if isinstance(fact, Put)]
    queue = next((each for each in facts if isinstance(each, ClusterQueue) and each.name == wanted.cluster_queue), None)
    if queue is None:
        raise WrongChangeError(f"spec.change.clusterQueue: there is no ClusterQueue {wanted.cluster_queue!r}")
    resources = [
        resource
        for group in queue.groups
        for flavor in group.flavors
        if flavor.name == wanted.flavor
        for resource in flavor.resources
        if is_accelerator(resource)
    ]
    if len(resources) != 1:
        raise WrongChangeError(
            f"spec.change.flavor: ClusterQueue {queue.name} has {len(resources) or 'no'} GPU resources of flavor "
            f"{wanted.flavor!r}"
        )
    (resource,) = resources
    amount = wanted.gpus or 0

    def changed(queue: ClusterQueue) -> ClusterQueue:
        return with_quota(queue, wanted.flavor, {resource: amount}, lambda quota, n: replace(quota, nominal=n))

    known = next((each for each in facts if isinstance(each, QuotaAhead) and each.name == queue.name), None)
    ahead = known or QuotaAhead(queue.name, "")
    if wanted.at is not None and wanted.at > source.now():
        then = replace(queue, groups=ahead.groups_at(wanted.at, queue.groups))
        before = [step for step in ahead.steps if step.at < wanted.at]
        after = [
            QuotaStep(step.at, changed(replace(queue, groups=step.groups)).groups)
            for step in ahead.steps
            if step.at > wanted.at
        ]
        steps = (*before, QuotaStep(wanted.at, changed(then).groups), *after)
        return _Played((Put(replace(ahead, steps=steps)),), "", note="A QuotaPlan changes quotas at a time.")
    nominal = quantity.format(amount, resource)
    more = f" --resource {resource}" if resource != "nvidia.com/gpu" else ""
    command = f"gangline limits set {queue.name} --flavor {wanted.flavor}{more} --nominal {nominal}"
    return _Played((Put(changed(queue)),), command)


def _of_node(source: Source, wanted: WantedChange) -> _Played:
    node: Node | None = source.engine.nodes().get(wanted.drain)
    if node is None:
        raise WrongChangeError(f"spec.change.drain: there is no node {wanted.drain!r} of a flavor")
    vacated = replace(node, taints=(*node.taints, Taint(names.VACATE)), unschedulable=True)
    return _Played((Put(vacated),), f"gangline admin swap now {node.name}")


# --- a reservation ----------------------------------------------------------------------------------------------------


def _of_reservation(source: Source, spec: Json) -> _Played:
    """The windows that a Reservation would have beside those of the others."""
    own = capacity.beside(source, _NAME, spec)
    windows = own.windows()
    remarks = [f"{sentence}." for sentence in alternatives.said(own.troubles, own.advice)]
    if not windows:
        remarks.append("The Reservation has no window ahead.")
    stops = frozenset(window.begin for window in windows)
    return _Played(tuple(map(Put, windows)), "", note=" ".join(remarks), stops=stops)
