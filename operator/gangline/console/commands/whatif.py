"""`gangline whatif -f JOB.yaml`: when a job would start, and which changes would start it earlier. Submits nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import yaml

from gangline.api import names
from gangline.api.admission.jobs import queue_name
from gangline.api.read import parse
from gangline.console.views import access, world
from gangline.console.views.table import Rows, age, plain
from gangline.console.views.times import admissions_of, named, runtime_text, view_of
from gangline.console.views.world import ClusterFacts
from gangline.control.forecasting.by_flavor import offered, slowest
from gangline.control.forecasting.runtime_facts import fact
from gangline.engine import ExpectedStart, accelerators_of, is_accelerator, outlook
from gangline.engine.model import Change, Gone, PodSet, Put, RuntimeForecast, Workload
from gangline.forecast import Forecast
from gangline.jobs import kind_of
from gangline.jobs import workload as workloads
from gangline.jobs.base import JobError, JobKind
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Invalid
from gangline.kube.resources import Json

#: fractions of the job's size and of its runtime that are tried
SHARES: Final = (0.5, 0.25)
#: a job that does not fit is halved at most this often, until it fits
HALVES: Final = 10
#: maximum number of suggestions
BEST: Final = 3
_UID: Final = "whatif"


@dataclass(frozen=True, slots=True)
class Variant:
    """The job with one change."""

    kind: str  # smaller | shorter | queue
    change: str  # description of the change
    workload: Workload
    forecast: Forecast
    #: forecast by flavor; empty if all flavors have the same forecast
    by_flavor: Mapping[str, Forecast] = field(default_factory=dict[str, Forecast])

    def scaled(self, factor: float) -> tuple[Forecast, Mapping[str, Forecast]]:
        """The forecasts for a runtime multiplied by `factor`: the general one and those by flavor."""
        return self.forecast.scaled(factor), {flavor: each.scaled(factor) for flavor, each in self.by_flavor.items()}


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


@click.command("whatif")
@click.option(
    "-f",
    "--filename",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Manifest of a Job, JobSet or GPUJob; - reads standard input.",
)
@access.cluster_options
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def command(
    file: Path, kubeconfig: Path | None, context: str | None, namespace: str | None, output: str | None
) -> None:
    """Show when the job in FILE would start if submitted now, and whether a smaller size, a shorter runtime or another queue
    would start it earlier.
    """
    job, kind = read(file)
    here, job = access.run(_submitted(kubeconfig, context, namespace, job, kind))
    try:
        original = put(here, job, kind)
    except (JobError, parse.ParseError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:  # an invalid manifest
        raise click.ClickException(f"{file}: not a valid {kind.kind}: {error}") from error
    base, because, flavor = _start(here, original)
    answers = best(_answers(here, original, base))
    first = _answer(here, original, base, base, flavor)
    if output == "json":
        click.echo(json.dumps(_as_json(first, because, answers), indent=2))
        return
    _show(here, original, first, because, answers)


async def _submitted(
    kubeconfig: Path | None, context: str | None, namespace: str | None, job: Json, kind: JobKind
) -> tuple[ClusterFacts, Json]:
    async with access.client(kubeconfig, context) as api:
        job["metadata"].setdefault("namespace", namespace or api.login.namespace)
        job = await accepted(api, job, kind)
        return await world.load(api), job


async def accepted(api: ApiClient, job: Json, kind: JobKind) -> Json:
    """The job as the API server would store it, from a dry run; the job unchanged if the user may not create it.

    Raises click.ClickException with the API server's message if it would reject the job.
    """
    namespace, rehearsal = job["metadata"]["namespace"], {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        return await api.create(kind.resource, namespace, job, query=rehearsal)
    except ApiError as error:
        if isinstance(error, Invalid) or "denied the request" in error.message:
            raise click.ClickException(f"the API server would reject the job: {error.message}") from error
        return job  # the user may not create jobs, or the job exists already


# --- from a manifest to a workload --------------------------------------------------------------------------------------


def read(file: Path) -> tuple[Json, JobKind]:
    """The one job in a file of manifests. Raises click.ClickException."""
    try:
        with click.open_file(str(file)) as stream:
            documents = [document for document in yaml.safe_load_all(stream) if isinstance(document, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    jobs = [
        (document, kind)
        for document in documents
        if (kind := kind_of(str(document.get("apiVersion")), str(document.get("kind")))) is not None
    ]
    if len(jobs) != 1:
        found = f"{len(jobs)} jobs" if jobs else "no job"
        raise click.ClickException(f"{file}: {found} in it; exactly one Job, JobSet or GPUJob is needed")
    job, kind = jobs[0]
    if not isinstance(job.get("metadata"), dict) or not isinstance(job.get("spec"), dict):
        raise click.ClickException(f"{file}: metadata or spec is missing")
    return job, kind


def put(here: ClusterFacts, job: Json, kind: JobKind) -> Variant:
    """Add the job to the local copy of the cluster. Raises JobError, ParseError, click.ClickException."""
    meta = job["metadata"]
    meta.setdefault("name", f"{meta.get('generateName', '')}{_UID}")
    meta |= {"uid": _UID, "resourceVersion": "0", "creationTimestamp": _stamp(here.now)}
    queue = queue_name(job) or _default_queue(here, meta["namespace"])
    if kind.resource == kube.JOBS or kind.resource == kube.GPU_JOBS:
        job["spec"]["suspend"] = True
    pod_sets = kind.pod_sets(job)
    priority, class_ref = here.mirror.priority(job, pod_sets)
    raw = workloads.build(kind, job, pod_sets, queue=queue, priority=priority, priority_class_ref=class_ref)
    raw["metadata"] |= {"uid": f"{_UID}-workload", "resourceVersion": "0", "creationTimestamp": _stamp(here.now)}
    key = kube.key_of(raw)
    here.mirror.upsert(kind.resource, job)
    here.mirror.upsert(kube.WORKLOADS, raw)
    here.forecasts.tell_all()
    value, estimate = here.mirror.workload_value(key), here.estimate(key)
    if value is None or estimate is None:
        raise click.ClickException(f"{kind.kind} {meta['name']} can't be converted to a Workload")
    return Variant("", "as it is", value, estimate, here.forecasts.by_flavor(key))


def _default_queue(here: ClusterFacts, namespace: str) -> str:
    if here.mirror.get(kube.LOCAL_QUEUES, f"{namespace}/{names.LOCAL_QUEUE_DEFAULT}") is None:
        raise click.ClickException(f"the job names no queue (label {names.QUEUE_NAME})")
    return names.LOCAL_QUEUE_DEFAULT


def _stamp(millis: int) -> str:
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- variants of the job ------------------------------------------------------------------------------------------------


def variants(here: ClusterFacts, original: Variant) -> Iterator[Variant]:
    """Variants of the job: smaller (with a proportionally longer runtime), shorter, and in each other queue of its namespace."""
    yield from filter(None, (_smaller(original, share) for share in SHARES))
    for share in SHARES:
        forecast, by_flavor = original.scaled(share)
        limit = original.workload.max_execution_seconds
        shorter = replace(original.workload, max_execution_seconds=max(1, round(limit * share)) if limit else None)
        yield Variant("shorter", f"let it run for {runtime_text(forecast)} at a time", shorter, forecast, by_flavor)
    for key, queue in sorted(here.mirror.objects[kube.LOCAL_QUEUES].items()):
        namespace, _, name = key.partition("/")
        if namespace == original.workload.namespace and name != original.workload.queue:
            elsewhere = replace(original.workload, queue=name)
            where = f"submit it to queue {name} (ClusterQueue {queue['spec'].get('clusterQueue', '')})"
            yield Variant("queue", where, elsewhere, original.forecast, _by_flavor(here, elsewhere))


def _by_flavor(here: ClusterFacts, elsewhere: Workload) -> dict[str, Forecast]:
    """The forecast on each flavor of another queue; empty if the forecaster does not compare flavors."""
    forecaster = here.forecasts.forecaster
    if not forecaster.compares_flavors:
        return {}
    found = (
        (name, forecaster.forecast(elsewhere.uid, here.now / 1000, name)) for name in offered(here.mirror, elsewhere)
    )
    return {flavor: forecast for flavor, forecast in found if forecast is not None}


def _smaller(original: Variant, share: float) -> Variant | None:
    """The job with `share` of its pods (with one pod: of its GPUs) and a proportionally longer runtime; None if not smaller."""
    pods = original.workload.pod_sets
    several = any(entry.count > 1 for entry in pods)
    reduced = tuple(_fewer(entry, share) if several else _thinner(entry, share) for entry in pods)
    before, after = accelerators_of(pods), accelerators_of(reduced)
    if after >= before or not after:
        return None
    change = f"ask for {after} GPUs instead of {before}"
    return Variant("smaller", change, replace(original.workload, pod_sets=reduced), *original.scaled(before / after))


def _fewer(pods: PodSet, share: float) -> PodSet:
    return replace(pods, count=max(1, round(pods.count * share)), min_count=None)


def _thinner(pods: PodSet, share: float) -> PodSet:
    requests = {r: max(1, round(n * share)) if is_accelerator(r) else n for r, n in pods.requests.items()}
    return replace(pods, requests=requests)


# --- when it would start ------------------------------------------------------------------------------------------------


def _answers(here: ClusterFacts, original: Variant, base: ExpectedStart | None) -> Iterator[tuple[str, Answer]]:
    fits = base is not None
    for variant in variants(here, original):
        start, _, flavor = _start(here, variant)
        fits = fits or (variant.kind == "smaller" and start is not None)
        yield variant.kind, _answer(here, variant, start, base, flavor)
    smaller = (_smaller(original, 0.5**n) for n in range(1 + len(SHARES), 1 + HALVES) if not fits)
    for variant in filter(None, smaller):
        start, _, flavor = _start(here, variant)
        if start is not None:
            yield variant.kind, _answer(here, variant, start, base, flavor)
            return


def best(answers: Iterable[tuple[str, Answer]]) -> list[Answer]:
    """The variant of each kind that gains most, in order of gain; variants that gain less than a minute are left out."""
    helpful: dict[str, Answer] = {}
    for kind, answer in answers:
        known = helpful.get(kind)
        if answer.gained >= 60 and (known is None or answer.gained > known.gained):
            helpful[kind] = answer
    return sorted(helpful.values(), key=lambda answer: -answer.gained)[:BEST]


def _start(here: ClusterFacts, variant: Variant) -> tuple[ExpectedStart | None, str, str]:
    """Expected start, the workloads it follows (""), and the flavor of the forecast ("" if it makes no difference)."""
    key = variant.workload.key
    changes: Sequence[Change] = [
        *here.engine.facts(),
        Gone(RuntimeForecast, key),
        Put(fact(key, variant.forecast, variant.by_flavor)),
        Put(variant.workload),
    ]
    seen = outlook(changes, here.engine.settings, here.now, only=frozenset({key}), seconds=1.0, clock=time.perf_counter)
    start = seen.starts.get(key)
    flavor = slowest(variant.by_flavor, admissions_of(seen).get(key))
    return start, start.because if start is not None else "", flavor


def _answer(
    here: ClusterFacts, variant: Variant, start: ExpectedStart | None, base: ExpectedStart | None, flavor: str
) -> Answer:
    p50 = (start.p50 - here.now) / 1000 if start is not None else None
    p90 = (start.p90 - here.now) / 1000 if start is not None and start.p90 is not None else None
    if start is None:
        gained = 0.0
    else:
        gained = (base.p50 - start.p50) / 1000 if base is not None else float("inf")
    return Answer(variant.change, p50, p90, gained, variant.by_flavor.get(flavor, variant.forecast), flavor)


# --- showing ------------------------------------------------------------------------------------------------------------


def _show(here: ClusterFacts, original: Variant, first: Answer, because: str, answers: list[Answer]) -> None:
    value = original.workload
    jobs = {f"{view.namespace}/{view.name}": view.job_name for view in view_of(here).workloads}
    reason = f", {named(because, jobs)}" if because else ""
    start = (
        f"no start within the horizon{_obstacle(here, value)}"
        if first.p50 is None
        else f"it would start {_span(first)}"
    )
    click.echo(f"Submitted now to queue {value.queue}, {start}{reason}")
    source = f"{original.forecast.source}, from {original.forecast.samples} finished runs"
    click.echo(f"and run for {runtime_text(first.runs, first.flavor)} ({source}).")
    if not answers:
        click.echo("\nNo smaller size, shorter runtime or other queue would start it earlier.")
        return
    cells = tuple(
        (str(rank), answer.change, _span(answer), _gained(answer), runtime_text(answer.runs, answer.flavor))
        for rank, answer in enumerate(answers, start=1)
    )
    click.echo(f"\n{plain(Rows(('', 'WHAT IF', 'STARTS', 'GAINED', 'RUNS FOR'), cells, (), frozenset()))}")


def _obstacle(here: ClusterFacts, value: Workload) -> str:
    """Why the job would not start: the engine's message after one decision round."""
    tried = here.engine.rebuilt()
    tried.decide(here.now)
    explanation = tried.explain(value.key)
    return f": {explanation.message}" if explanation is not None and explanation.message else ""


def _span(answer: Answer) -> str:
    if answer.p50 is None:
        return "not within the horizon"
    last = "?" if answer.p90 is None else age(answer.p90)
    return "at once" if answer.p90 is not None and answer.p90 < 1 else f"in {age(answer.p50)} – {last}"


def _gained(answer: Answer) -> str:
    return age(answer.gained) if answer.gained != float("inf") else "all"


def _as_json(first: Answer, because: str, answers: list[Answer]) -> dict[str, Any]:
    def body(answer: Answer) -> dict[str, Any]:
        gained = answer.gained / 3600 if answer.gained != float("inf") else None
        return {
            "change": answer.change,
            "startsInSeconds": None if answer.p50 is None else {"p50": answer.p50, "p90": answer.p90},
            "gainedHours": gained,
            "runsForSeconds": {"p50": answer.runs.q50, "p90": answer.runs.q90},
            "flavor": answer.flavor or None,
        }

    return {**body(first), "because": because, "suggestions": [body(answer) for answer in answers]}
