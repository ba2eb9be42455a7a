"""A Workload and its job as the run that the forecaster learns from. Pure.

Runtime estimates by flavor: the flavors that a waiting workload may get, and how long it would run on each,
where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from gangline.api import names, profiles
from gangline.api.flavor_speeds import relative
from gangline.api.read import conditions, policy_reader
from gangline.api.read.reading import ParseError
from gangline.api.spec_fields import SpecError
from gangline.control.feed.mirror import Mirror
from gangline.engine import accelerators, flavors_of, is_accelerator, model
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.runs import MIN_SECONDS, Run, flavor_of, from_workload
from gangline.forecast.quantiles import Forecast
from gangline.jobs.base import RuntimeHints as Hints
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import JobObject, Stored, WorkloadObject

#: the label of nodes, and so of flavors, with the model of their cards
_PRODUCT: Final = "nvidia.com/gpu.product"
#: an estimate whose q50 and q90 moved by less than this share is not reported again
MATERIAL: Final = 0.05


def offered(mirror: Mirror, value: model.Workload, *, without_accelerators: bool = False) -> list[str]:
    """The flavors of the workload's queue that cover the accelerators it requests; it will get one of them.

    A workload that requests none has none; `without_accelerators`: it has those that cover what it requests.
    """
    queue = mirror.local_queues.get(f"{value.namespace}/{value.queue}")
    cluster_queue = mirror.get(kube.CLUSTER_QUEUES, queue.cluster_queue) if queue else None
    if cluster_queue is None:
        return []
    requested = {resource for pods in value.pod_sets for resource in pods.requests}
    asked = set(filter(is_accelerator, requested)) or (requested if without_accelerators else set[str]())
    found = {
        flavor["name"]
        for group in cluster_queue.spec.get("resourceGroups") or ()
        if asked.intersection(group["coveredResources"])
        for flavor in group["flavors"]
    }
    return sorted(found)


def estimates(
    mirror: Mirror, forecaster: Forecaster, waiting: Mapping[str, Forecast], now: float
) -> dict[str, dict[str, Forecast]]:
    """The estimates of these waiting workloads (by key, with their estimate on any flavor) on each flavor that they may get, by
    what was learned of all work alike.

    Workloads for which the flavor makes no difference are left out. `now` in Unix seconds.
    """
    if not forecaster.compares_flavors:
        return {}
    keys: dict[str, str] = {}  # by uid
    asked: dict[str, list[str]] = {}  # uids by flavor
    for key in waiting:
        value = mirror.workload_value(key)
        flavors = offered(mirror, value) if value is not None else []
        if value is not None and len(flavors) > 1:
            keys[value.uid] = key
            for flavor in flavors:
                asked.setdefault(flavor, []).append(value.uid)
    found: dict[str, dict[str, Forecast]] = {}
    for flavor, uids in sorted(asked.items()):
        for uid, estimate in forecaster.forecasts(uids, now, flavor, conditional=False).items():
            found.setdefault(keys[uid], {})[flavor] = estimate
    return {
        key: by_flavor
        for key, by_flavor in found.items()
        if any(differs(waiting[key], each) for each in by_flavor.values())
    }


def some_choose(mirror: Mirror) -> bool:
    """Whether `chooses` may be true of some workload."""
    return any("flavors" in policy.spec for policy in mirror.objects[kube.QUEUE_POLICIES].values())


def chooses(mirror: Mirror, value: model.Workload) -> bool:
    """Whether its QueuePolicy has one of several flavors chosen for the workload, by its runtime there."""
    queue = mirror.local_queues.get(f"{value.namespace}/{value.queue}")
    cluster_queue = mirror.get(kube.CLUSTER_QUEUES, queue.cluster_queue) if queue else None
    try:
        return cluster_queue is not None and policy_reader.flavors(mirror.policy_of(cluster_queue)) is not None
    except ParseError:  # the policy is complained of where it is put into force
        return False


def own_estimates(
    mirror: Mirror,
    forecaster: Forecaster,
    compared: Iterable[tuple[model.Workload, Mapping[str, float]]],
    now: float,
) -> dict[str, dict[str, Forecast]]:
    """The estimates, by uid, of workloads on each flavor that they may get, or on the one that they have, by what is known of
    them and of their likes. Beside each is what its author says of speeds. `now` in Unix seconds.
    """
    flavors: dict[str, list[str]] = {}
    speeds: dict[str, Mapping[str, float]] = {}
    for value, said in compared:
        has, may_get = flavor_of(value) if value.admitted else "", offered(mirror, value, without_accelerators=True)
        flavors[value.uid] = [has] if has else may_get
        speeds[value.uid] = said or _measured_speeds(mirror, value, may_get)
    return forecaster.on_flavors(flavors, now, speeds) if flavors else {}


def _measured_speeds(mirror: Mirror, value: model.Workload, flavors: Iterable[str]) -> dict[str, float]:
    """The speeds that JobProfiles give the class of the workload's pods on these flavors, 1 on average; nothing where they say
    nothing of several of them.
    """
    kinds = {pods.traits.kind for pods in value.pod_sets} - {""}
    if len(kinds) != 1:
        return {}
    alone = [each for obj in mirror.objects[kube.JOB_PROFILES].values() for each in _alone(obj, *kinds)]
    rates: dict[str, float] = {}
    for name in flavors:
        flavor = mirror.get(kube.RESOURCE_FLAVORS, name)
        product = str((flavor.spec.get("nodeLabels") or {}).get(_PRODUCT, "")) if flavor is not None else ""
        rate = next(
            (each.rate for each in alone if each.rate and each.gpu and each.gpu.lower() in product.lower()), 0.0
        )
        if rate:
            rates[name] = rate
    return relative(rates) if len(rates) > 1 else {}


def _alone(obj: Stored, kind: str) -> tuple[model.SpeedAlone, ...]:
    """What a JobProfile says of a class alone on cards; nothing where it is about another one, or cannot be read."""
    if (obj.spec.get("class") or obj.name) != kind:
        return ()
    try:
        return profiles.profile(obj).profile.alone
    except SpecError:  # its status says so
        return ()


def as_run(run: Run, speeds: Mapping[str, float]) -> Run:
    """The run with the runtime that its author expected on its flavor: so are hints compared with runtimes."""
    speed = speeds.get(run.flavor, 1.0)
    return run if run.hint is None or speed == 1.0 else replace(run, hint=run.hint / speed)


def slowest(by_flavor: Mapping[str, Forecast], admission: model.Admission | None) -> str:
    """The slowest flavor of an admission, which sets the workload's pace; "" where no estimate distinguishes flavors."""
    known = [flavor for flavor in flavors_of(admission) if flavor in by_flavor]
    return max(known, key=lambda flavor: by_flavor[flavor].q50, default="")


def differs(old: Forecast | None, new: Forecast) -> bool:
    """Whether the estimates differ enough to report the new one."""
    if old is None or old.source != new.source:
        return True
    return any(abs(b - a) > MATERIAL * a for a, b in ((old.q50, new.q50), (old.q90, new.q90)))


def run_of(workload: model.Workload, raw: WorkloadObject, job: JobObject | None, hints: Hints) -> Run:
    """The run as it is known now; `raw` is the Workload as stored in the API server, `job` its owner, if known."""
    container = _main_container(raw, workload)
    limits = [limit for limit in (hints.limit, workload.max_execution_seconds) if limit]
    return from_workload(
        workload,
        name=_job_name(raw),
        user=(job or raw).user,
        image=container.get("image") or "",
        command=[*_words(container.get("command")), *_words(container.get("args"))],
        limit=min(limits, default=None),
        hint=hints.expected,
        finished_at=finished_at(raw) if workload.finished else None,
    )


def finished_at(raw: WorkloadObject) -> float | None:
    """The time at which the workload's job ended, in Unix seconds; None while it has not."""
    row = raw.true_condition(names.FINISHED)
    return conditions.millis_of(row.get("lastTransitionTime")) / 1000 if row is not None else None


def least(workload: model.Workload) -> float:
    """The seconds that the workload takes at least, as its earlier runs show, work that it saved included.

    Of several runs from the start only the sum is known. One that was stopped before it did anything shows nothing.
    """
    past = workload.past / 1000
    if workload.checkpoint is None and workload.preemptions:
        return past / workload.preemptions
    return past if workload.saved else 0.0


def log_of(seconds: float) -> float:
    """The natural logarithm of a runtime, which counts as at least a second."""
    return math.log(max(seconds, MIN_SECONDS))


def _job_name(raw: WorkloadObject) -> str:
    """The name of the job, or of the object that serves: names of its Workloads differ from one time to the next."""
    owner = raw.controller
    return owner["name"] if owner is not None else raw.annotations.get(names.JOB_OWNER_NAME) or raw.name


def _main_container(raw: WorkloadObject, workload: model.Workload) -> Json:
    """The first container of the pod set that requests most: a gang's workers show its purpose."""
    pod_sets = raw.pod_sets
    if not pod_sets:
        return {}
    sizes = [accelerators(pods.requests) * pods.count for pods in workload.pod_sets]
    largest = max(range(len(pod_sets)), key=lambda i: sizes[i]) if len(sizes) == len(pod_sets) else 0
    spec = (pod_sets[largest].get("template") or {}).get("spec") or {}
    return next(iter(spec.get("containers") or ()), {})


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []
