"""Answers when a job that is not submitted would start, and which changes would start it earlier.

The job is read as the operator reads a submitted one, but nothing enters the mirror or the engine: its Workload and its forecasts
are facts of rehearsals only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.api import admission, names
from gangline.api.admission.findings import AdmissionFacts
from gangline.api.flavor_speeds import declared_speeds
from gangline.api.quota_plans import HORIZON
from gangline.api.read import conditions, parse
from gangline.api.schedules import instant
from gangline.bounded import shown
from gangline.control.answers.ahead import capacity
from gangline.control.answers.ahead.times import admissions_of
from gangline.control.answers.sight import Sight
from gangline.control.answers.source import EngineOutlooks, NoForecastsError, Source
from gangline.control.answers.workloads.words import counted, runtime_text
from gangline.control.forecasting import run_facts
from gangline.control.forecasting.rehearsals import LEAST_GAIN, Rehearsal, Rehearsed
from gangline.control.forecasting.run_facts import differs, offered, slowest
from gangline.control.forecasting.runtime_facts import fact
from gangline.control.isolation.time_limit import TookTooLongError, limited
from gangline.control.kinds.dependencies import as_submitted
from gangline.engine import ExpectedStart, accelerators_of, is_accelerator
from gangline.engine.model import (
    Change,
    Dependencies,
    Gone,
    Millis,
    PodSet,
    Put,
    RuntimeForecast,
    Workload,
)
from gangline.forecast.quantiles import Forecast
from gangline.jobs import kind_of
from gangline.jobs import workload as workloads
from gangline.jobs.base import JobError, JobKind
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import JobObject, WorkloadObject

#: fractions of the job's size and of its runtime that are tried
SHARES: Final = (0.5, 0.25)
#: a job that does not fit is halved at most this often, until it fits
HALVES: Final = 10
#: how many other queues of the namespace are tried
MOST_QUEUES: Final = 8
#: maximum number of suggestions
BEST: Final = 3
#: seconds for the job itself and its changes, and for smaller and smaller sizes where nothing fits
TIME: Final = 12.0
MORE_TIME: Final = 5.0
#: characters of a refusal
MOST_WORDS: Final = 2000
_UID: Final = "whatif"


class WrongJobError(ValueError):
    """The job cannot be submitted as it is. The text names the field."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The job with one change."""

    kind: str  # smaller | shorter | queue
    change: str  # description of the change
    workload: Workload
    forecast: Forecast
    #: forecast by flavor; empty if all flavors have the same forecast
    by_flavor: Mapping[str, Forecast] = field(default_factory=dict[str, Forecast])
    #: the jobs that it waits for; None: it waits for none
    dependencies: Dependencies | None = None
    #: further facts: what is known of the time before a later submission
    beside: tuple[Change, ...] = ()
    #: what the job says of its speed on each flavor
    speeds: Mapping[str, float] = field(default_factory=dict[str, float])

    def scaled(self, factor: float) -> tuple[Forecast, Mapping[str, Forecast]]:
        """The forecasts for a runtime multiplied by `factor`: the general one and those by flavor."""
        return self.forecast.scaled(factor), {flavor: each.scaled(factor) for flavor, each in self.by_flavor.items()}

    @property
    def rehearsal(self) -> Rehearsal:
        key = self.workload.key
        forecast = Put(fact(key, self.forecast, self.by_flavor))
        others = () if self.dependencies is None else (Put(self.dependencies),)
        return Rehearsal(
            key, (*self.beside, Gone(RuntimeForecast, key), forecast, *others, Put(self.workload)), self.kind
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Expected start of a variant, in seconds from now; None: not within the horizon.

    `gained`: seconds earlier than the unchanged job.
    """

    change: str
    p50: float | None
    p90: float | None
    gained: float
    runs: Forecast
    flavor: str = ""  # flavor of the forecast `runs`; "" if it makes no difference

    def as_json(self) -> Json:
        gained = self.gained / 3600 if self.gained != float("inf") else None
        return {
            "change": self.change,
            "startsInSeconds": None if self.p50 is None else {"p50": self.p50, "p90": self.p90},
            "gainedHours": gained,
            "runsForSeconds": {"p50": self.runs.q50, "p90": self.runs.q90},
            "flavor": self.flavor or None,
        }


async def what_if(
    source: Source,
    foresight: EngineOutlooks,
    sight: Sight,
    jobs: Mapping[str, str],
    namespace: str,
    job: object,
    date: object = None,
) -> Json:
    """The answer for a job of the namespace. `jobs`: names of jobs by the keys of their Workloads. `date`: when the job would
    be submitted, as text; None: now. Seconds count from that time.

    Raises WrongJobError, NoForecastsError.
    """
    at = _later(date, source.now())
    try:
        variants = limited(lambda: list(_variants(source, namespace, job, at)))
    except TookTooLongError as error:
        raise WrongJobError(f"spec.job: {error}") from None
    original, now = variants[0], at or source.now()
    done = await foresight.rehearse([variant.rehearsal for variant in variants], TIME, BEST)
    first = _start(done.first, original)
    offers = [
        (v.kind, _answer(v, _start(each, v), first, now))
        for v, each in zip(variants[1:], done.outcomes[1:], strict=True)
        if each is not None
    ]
    if first.start is None and all(answer.p50 is None for kind, answer in offers if kind == "smaller"):
        offers += await _much_smaller(foresight, original, first, now)
    start = first.start
    because = sight.text(start.because, jobs) if start is not None else ""
    return {
        **_answer(original, first, first, now).as_json(),
        "queue": original.workload.queue,
        "because": because,
        "obstacle": sight.text(done.first.obstacle, jobs),
        "forecast": {"source": original.forecast.source, "samples": original.forecast.samples},
        "unexamined": done.unexamined,
        "submittedAt": None if at is None else at / 1000,
        "assumed": "" if at is None else _assumed(source, original, at),
        "suggestions": [answer.as_json() for answer in best(offers)],
    }


async def _much_smaller(
    foresight: EngineOutlooks, original: Variant, first: _Start, now: int
) -> list[tuple[str, Answer]]:
    """The largest of smaller and smaller sizes that starts."""
    sizes = [v for n in range(1 + len(SHARES), 1 + HALVES) if (v := smaller(original, 0.5**n)) is not None]
    if not sizes:
        return []
    done = await foresight.rehearse([replace(variant.rehearsal, kind="") for variant in sizes], MORE_TIME)
    starts = [(v, _start(each, v)) for v, each in zip(sizes, done.outcomes, strict=True) if each is not None]
    return [(v.kind, _answer(v, start, first, now)) for v, start in starts if start.start is not None][:1]


# --- a later time -------------------------------------------------------------------------------------------------------


def instant_of(value: object, path: str, error: type[ValueError]) -> Millis | None:
    """A time in a request, None where none is given. Raises such an error, naming the field."""
    if value is None:
        return None
    try:
        return instant(value if isinstance(value, str) else "")
    except (OverflowError, ValueError):
        raise error(f"{path}: must be a time such as 2026-01-31T12:00:00Z") from None


def _later(value: object, now: Millis) -> Millis | None:
    at = instant_of(value, "spec.at", WrongJobError)
    if at is not None and not now < at <= now + HORIZON:
        raise WrongJobError(f"spec.at: {capacity.TOO_FAR}")
    return at


def _assumed(source: Source, original: Variant, at: Millis) -> str:
    """What an answer about a later time assumes, as sentences."""
    local = source.mirror.local_queues.get(f"{original.workload.namespace}/{original.workload.queue}")
    sentence = (
        "Assumed: jobs that run or wait now take as long as forecast, and nobody submits others. Nodes stay as they are, "
        "except in windows of Reservations; quotas are those of the QuotaPlans"
    )
    written = capacity.quotas_of(source, (local.cluster_queue,)) if local is not None else {}
    for plan in capacity.plans_of(source, written).values():
        if (until := capacity.known_until(plan, at)) is not None:
            return f"{sentence}, which are known until {conditions.timestamp(until)}."
    return f"{sentence}."


# --- from a manifest to variants ----------------------------------------------------------------------------------------


def _variants(source: Source, namespace: str, document: object, at: Millis | None = None) -> Iterator[Variant]:
    """The job as it is, and with each change, submitted at this time; None: now. Raises WrongJobError, NoForecastsError."""
    if source.forecasts is None:
        raise NoForecastsError("this operator makes no forecasts")
    job, kind = checked(source, document, namespace)
    try:
        value, raw = _workload(source, job, kind)
    except JobError as error:
        raise WrongJobError(f"spec.job.{error}") from error
    except parse.ParseError as error:
        raise WrongJobError(f"spec.job makes no Workload: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:  # no schema has checked it
        raise WrongJobError(f"spec.job: not a valid {kind.kind}: {shown(str(error))}") from error
    forecaster = source.forecasts.forecaster
    run = run_facts.run_of(value, raw, job, kind.runtime_hints(job))
    forecaster.submitted(run)
    try:
        estimate = forecaster.forecasts([run.uid], source.now() / 1000, conditional=False)[run.uid]
        value, others = as_submitted(source.mirror, value, raw.annotations)
        windows: Sequence[Change] = ()
        if at is not None:  # nothing tries it before
            value = replace(value, created=at, requeue_at=at)
            windows = [Put(each) for one in capacity.expanded_until(source, at) for each in one.windows()]
        speeds = declared_speeds(job.annotations)
        by_flavor = _by_flavor(source, value, estimate, speeds)
        original = Variant("", "as it is", value, estimate, by_flavor, others, tuple(windows), speeds)
        yield original
        yield from changed(source, original)
    finally:
        forecaster.forget(run.uid)


def checked(source: Source, document: object, namespace: str) -> tuple[JobObject, JobKind]:
    """A copy of the job, completed as the webhooks complete it, and its kind. Raises WrongJobError, which names the field."""
    if not isinstance(document, dict):
        raise WrongJobError("spec.job: must be a Job, a JobSet or a GPUJob")
    job = JobObject(document)
    kind = kind_of(str(job.get("apiVersion"))[:253], str(job.get("kind"))[:253])
    if kind is None:
        what = f"{shown(job.get('kind'))} of {shown(job.get('apiVersion'))}"
        raise WrongJobError(f"spec.job: must be a Job, a JobSet or a GPUJob, not {what}")
    for part in ("metadata", "spec"):
        if not isinstance(job.get(part), dict):
            raise WrongJobError(f"spec.job.{part}: must be an object")
    meta = job["metadata"] = {**job["metadata"]}
    for name in ("labels", "annotations"):
        if not isinstance(meta.get(name, {}), dict):
            raise WrongJobError(f"spec.job.metadata.{name}: must be an object")
    if meta.setdefault("namespace", namespace) != namespace:
        raise WrongJobError(f"spec.job.metadata.namespace: must be {namespace!r}, not {shown(meta['namespace'])}")
    if not meta.get("name"):
        meta["name"] = f"{meta.get('generateName') or ''}{_UID}"
    if not isinstance(meta["name"], str) or len(meta["name"]) > 253:
        raise WrongJobError("spec.job.metadata.name: must be a name of at most 253 characters")
    facts = _facts(source)
    job = JobObject(admission.default(job, None, facts).obj)
    if errors := admission.validate(job, None, facts):
        raise WrongJobError("; ".join(f"spec.job.{error}" for error in errors[:8])[:MOST_WORDS])
    if not job.queue_name:
        raise WrongJobError(f"spec.job.metadata.labels[{names.QUEUE_NAME}]: the job names no queue")
    return job, kind


def _workload(source: Source, job: JobObject, kind: JobKind) -> tuple[Workload, WorkloadObject]:
    """The Workload that the job would get: the engine's value, and the object that the operator would create."""
    meta = job["metadata"]
    at = conditions.timestamp(source.now())
    meta |= {"uid": _UID, "resourceVersion": "0", "creationTimestamp": at}
    pod_sets = kind.pod_sets(source.mirror.described(kind, job, None))
    priority, class_ref = source.mirror.priority(job, pod_sets)
    raw = WorkloadObject(
        workloads.build(kind, job, pod_sets, queue=job.queue_name, priority=priority, priority_class_ref=class_ref)
    )
    raw["metadata"] |= {"uid": f"{_UID}-workload", "resourceVersion": "0", "creationTimestamp": at}
    raw.setdefault("status", {})
    return parse.workload(raw, source.mirror.rules.of(job.namespace)), raw


def _facts(source: Source) -> AdmissionFacts:
    """The facts about the cluster that the webhooks' checks of a job need: which queues and priority classes exist."""
    queues, classes = (source.mirror.objects[kind] for kind in (kube.LOCAL_QUEUES, kube.WORKLOAD_PRIORITY_CLASSES))
    return AdmissionFacts(
        local_queue_exists=lambda namespace, name: f"{namespace}/{name}" in queues,
        priority_class_exists=lambda name: name in classes,
    )


def changed(source: Source, original: Variant) -> Iterator[Variant]:
    """Variants of the job: smaller (with a proportionally longer runtime), shorter, and in each other queue of its namespace."""
    yield from filter(None, (smaller(original, share) for share in SHARES))
    for share in SHARES:
        forecast, by_flavor = original.scaled(share)
        limit = original.workload.max_execution_seconds
        shorter = replace(original.workload, max_execution_seconds=max(1, round(limit * share)) if limit else None)
        change = f"let it run for {runtime_text(forecast.q50, forecast.q90)} at a time"
        yield replace(original, kind="shorter", change=change, workload=shorter, forecast=forecast, by_flavor=by_flavor)
    others = [
        (name, queue.cluster_queue)
        for key, queue in sorted(source.mirror.local_queues.items())
        for namespace, _, name in [key.partition("/")]
        if namespace == original.workload.namespace and name != original.workload.queue
    ]
    for name, cluster_queue in others[:MOST_QUEUES]:
        moved = replace(original.workload, queue=name)
        change = f"submit it to queue {name} (ClusterQueue {cluster_queue})"
        by_flavor = _by_flavor(source, moved, original.forecast, original.speeds)
        yield replace(original, kind="queue", change=change, workload=moved, by_flavor=by_flavor)


def _by_flavor(
    source: Source, value: Workload, estimate: Forecast, speeds: Mapping[str, float]
) -> Mapping[str, Forecast]:
    """The forecast on each flavor that the queue offers, given what the job says of its speeds there; empty if flavors make no
    difference.
    """
    forecaster = source.forecasts.forecaster if source.forecasts is not None else None
    if forecaster is None:
        return {}
    mirror, now = source.mirror, source.now() / 1000
    if speeds or (run_facts.some_choose(mirror) and run_facts.chooses(mirror, value)):
        by_flavor = run_facts.own_estimates(mirror, forecaster, [(value, speeds)], now).get(value.uid, {})
    elif forecaster.compares_flavors:
        found = ((flavor, forecaster.forecast(value.uid, now, flavor)) for flavor in offered(mirror, value))
        by_flavor = {flavor: forecast for flavor, forecast in found if forecast is not None}
    else:
        return {}
    return by_flavor if any(differs(estimate, each) for each in by_flavor.values()) else {}


def smaller(original: Variant, share: float) -> Variant | None:
    """The job with `share` of its pods (with one pod: of its GPUs) and a proportionally longer runtime; None if not smaller."""
    pods = original.workload.pod_sets
    several = any(entry.count > 1 for entry in pods)
    reduced = tuple(_fewer(entry, share) if several else _thinner(entry, share) for entry in pods)
    before, after = accelerators_of(pods), accelerators_of(reduced)
    if after >= before or not after:
        return None
    change = f"ask for {counted(after, 'GPU')} instead of {before}"
    forecast, by_flavor = original.scaled(before / after)
    workload = replace(original.workload, pod_sets=reduced)
    return replace(original, kind="smaller", change=change, workload=workload, forecast=forecast, by_flavor=by_flavor)


def _fewer(pods: PodSet, share: float) -> PodSet:
    return replace(pods, count=max(1, round(pods.count * share)), min_count=None)


def _thinner(pods: PodSet, share: float) -> PodSet:
    requests = {r: max(1, round(n * share)) if is_accelerator(r) else n for r, n in pods.requests.items()}
    quota = None if pods.quota is None else {r: max(1, round(n * share)) for r, n in pods.quota.items()}
    return replace(pods, requests=requests, quota=quota)


# --- when it would start ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Start:
    """Expected start of a variant, and the flavor of its forecast ("" if it makes no difference)."""

    start: ExpectedStart | None
    flavor: str


def _start(done: Rehearsed, variant: Variant) -> _Start:
    key = variant.workload.key
    return _Start(
        done.outlook.starts.get(key), slowest(variant.by_flavor, admissions_of(done.outlook, frozenset({key})).get(key))
    )


def _answer(variant: Variant, found: _Start, base: _Start, now: int) -> Answer:
    start = found.start
    p50 = (start.p50 - now) / 1000 if start is not None else None
    p90 = (start.p90 - now) / 1000 if start is not None and start.p90 is not None else None
    if start is None:
        gained = 0.0
    else:
        gained = (base.start.p50 - start.p50) / 1000 if base.start is not None else float("inf")
    return Answer(variant.change, p50, p90, gained, variant.by_flavor.get(found.flavor, variant.forecast), found.flavor)


def best(answers: Iterable[tuple[str, Answer]]) -> list[Answer]:
    """The variant of each kind that gains most, in order of gain; variants that gain less than a minute are left out."""
    helpful: dict[str, Answer] = {}
    for kind, answer in answers:
        known = helpful.get(kind)
        if answer.gained * 1000 >= LEAST_GAIN and (known is None or answer.gained > known.gained):
            helpful[kind] = answer
    return sorted(helpful.values(), key=lambda answer: -answer.gained)[:BEST]
