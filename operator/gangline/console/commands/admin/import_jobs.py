"""`gangline admin import`: adopts running jobs into queues without restarting them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from gangline import bounded, files
from gangline.api import quantity
from gangline.api.read.configuration import Configuration, ManagedJobs
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.console.importing import adopting, cluster_facts, planning, pod_planning, serving_planning
from gangline.console.importing.adopting import SETTLING, HandingOver, InTheWayError, UnmarkedError, prepare
from gangline.console.importing.adoptions import AdoptableJob, Adoption, Parent, RollOut, Skipped
from gangline.console.importing.mapping import MappingError, MappingRule, from_file, from_pairs, pairs
from gangline.console.options import read_configuration
from gangline.console.output import terminal
from gangline.console.output.formats import OutputFormat, answer_option, document
from gangline.console.views import access
from gangline.jobs import BY_RESOURCE, declare
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.resources import Json
from gangline.objects import JobObject, PodObject

#: examples of one fault that are named
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The import that the user asks for."""

    namespaces: tuple[str, ...]
    rules: tuple[MappingRule, ...]
    labels: dict[str, str]
    resources: ResourceRules
    managed: ManagedJobs
    dry_run: bool
    at_once: int
    #: pods may start anew where they have to
    roll_out: bool = False


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome of an import: jobs adopted (or adoptable, in a dry run), left alone, and failed while they were written."""

    adoptions: Sequence[Adoption]
    skipped: Sequence[Skipped]
    uses: Sequence[cluster_facts.FlavorUse]
    failed: Sequence[tuple[Adoption | RollOut, str]] = ()
    roll_outs: Sequence[RollOut] = ()

    @property
    def faults(self) -> list[tuple[str, str]]:
        """Job and reason of each that should have been adopted, and was not."""
        wrong = [(skipped.job.called, skipped.reason) for skipped in self.skipped if skipped.fault]
        return wrong + [(adoption.job.called, reason) for adoption, reason in self.failed]


@click.command("import")
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, required=True, help="Namespace; several: a,b or -n a -n b."
)
@click.option("--queuelabel", default="", help="Label whose value says the queue, with --queuemapping.")
@click.option("--queuemapping", multiple=True, metavar="VALUE=QUEUE,…", help="Value of --queuelabel → LocalQueue.")
@click.option(
    "--queuemapping-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="YAML file with rules."
)
@click.option("--add-labels", multiple=True, metavar="KEY=VALUE,…", help="Labels to add to jobs and Workloads.")
@click.option("--exclude-resource-prefixes", default="", help="Resources that do not count. Default: as in --config.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The operator's configuration file."
)
@click.option("-c", "--concurrent-workers", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--dry-run", type=bool, default=True, show_default=True, help="true: only check. false: import.")
@click.option(
    "--roll-out",
    is_flag=True,
    help="Import LeaderWorkerSets, too: their controller starts their groups anew, one by one.",
)
@access.login_options
@answer_option
def command(
    namespaces: tuple[str, ...],
    queuelabel: str,
    queuemapping: tuple[str, ...],
    queuemapping_file: Path | None,
    add_labels: tuple[str, ...],
    exclude_resource_prefixes: str,
    config: Path | None,
    concurrent_workers: int,
    dry_run: bool,
    roll_out: bool,
    context: str | None,
    kubeconfig: Path | None,
    output: OutputFormat,
) -> None:
    """Adopt running jobs, pods and services into queues without restarting them.

    Each job, plain pod, pod group, Deployment and StatefulSet of the namespaces is matched with the rules, as Kueue's importer
    does with pods. It gets a Workload that is admitted to the flavors of the nodes on which its pods run, and from then on counts
    in quota. Exit status 1 if one cannot be adopted.
    """
    chosen = read_configuration(config, tell=False)
    declare(chosen.jobs.declared, chosen.jobs.external)
    quantity.print_as_bytes(chosen.resources.devices.consumed)
    order = ImportOptions(
        tuple(name for text in namespaces for name in text.split(",") if name),
        _rules(queuelabel, queuemapping, queuemapping_file),
        _pairs(add_labels, "--add-labels"),
        _resources(chosen, exclude_resource_prefixes),
        chosen.jobs,
        dry_run,
        concurrent_workers,
        roll_out,
    )
    outcome = access.run(_import(order, kubeconfig, context))
    terminal.say(document(output.kind, _as_json(order, outcome)) if output.kind else _rendered(order, outcome))
    if outcome.faults:
        sys.exit(1)


def _rules(label: str, mapping: tuple[str, ...], file: Path | None) -> tuple[MappingRule, ...]:
    if bool(label) != bool(mapping):
        raise click.UsageError("--queuelabel and --queuemapping belong together")
    if bool(label) == (file is not None):
        raise click.UsageError("either --queuelabel with --queuemapping or --queuemapping-file is needed")
    if file is None:
        return from_pairs(label, _pairs(mapping, "--queuemapping"))
    try:
        return from_file(files.read_text(file))
    except (ValueError, OSError) as error:
        raise click.ClickException(f"{file}: {error}") from error


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    try:
        return pairs(texts, option)
    except MappingError as error:
        raise click.UsageError(str(error)) from error


def _resources(chosen: Configuration, prefixes: str) -> ResourceRules:
    """The rules which resources count in quota: as the operator's configuration says, unless prefixes are given."""
    excluded = tuple(prefix for prefix in prefixes.split(",") if prefix)
    return ResourceRules(excluded=excluded) if excluded else chosen.resources


async def _import(order: ImportOptions, kubeconfig: Path | None, context: str | None) -> ImportResult:
    async with access.client(kubeconfig, context) as api:
        jobs = [job for namespace in order.namespaces for job in await _jobs(api, namespace)]
        pods = [PodObject(pod) for each in order.namespaces for pod in await cluster_facts.listed(api, kube.PODS, each)]
        facts = await cluster_facts.read(api, order.namespaces, order.resources, [job.obj for job in jobs], pods)
        plans: list[Adoption | RollOut | Skipped] = [
            planning.plan(job, order.rules, facts, order.labels) for job in jobs
        ]
        for parent in [found for namespace in order.namespaces for found in await _parents(api, namespace)]:
            rules, managed = order.rules, order.managed
            plans += serving_planning.plan(parent, rules, facts, order.labels, managed, roll_out=order.roll_out)
        plans += pod_planning.plan(pods, order.rules, facts, order.labels, order.managed)
        adoptions = [plan for plan in plans if isinstance(plan, Adoption)]
        roll_outs = [plan for plan in plans if isinstance(plan, RollOut)]
        failed: list[tuple[Adoption | RollOut, str]] = []
        if not order.dry_run:
            failed = [*await _adopt_all(api, adoptions, order), *await _roll_out(api, roll_outs, order)]
        return ImportResult(
            adoptions,
            [plan for plan in plans if isinstance(plan, Skipped)],
            cluster_facts.uses(adoptions, facts),
            failed,
            roll_outs,
        )


async def _jobs(api: ApiClient, namespace: str) -> list[AdoptableJob]:
    found: list[AdoptableJob] = []
    for kind in BY_RESOURCE.values():
        try:
            found += [AdoptableJob(kind, JobObject(obj)) for obj in (await api.list(kind.resource, namespace)).items]
        except NotFound:  # the cluster does not have this kind
            continue
    return found


async def _parents(api: ApiClient, namespace: str) -> list[Parent]:
    """The objects whose pods are queued in their place."""
    kinds = (kube.DEPLOYMENTS, kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS)
    return [Parent(JobObject(obj)) for kind in kinds for obj in await cluster_facts.listed(api, kind, namespace)]


async def _adopt_all(api: ApiClient, adoptions: Sequence[Adoption], order: ImportOptions) -> list[tuple[Adoption, str]]:
    """Adopt jobs. Returns those that failed, with the reason; the others do not suffer from it."""
    free = asyncio.Semaphore(order.at_once)

    async def failure(step: Awaitable[None]) -> str:
        async with free:
            try:
                await step
            except (ApiError, InTheWayError, UnmarkedError) as error:
                return str(error)
        return ""

    now = int(time.time() * 1000)
    prepared = await asyncio.gather(*(failure(prepare(api, adoption, now)) for adoption in adoptions))
    failed = [(adoption, why) for adoption, why in zip(adoptions, prepared, strict=True) if why]
    ready = [adoption for adoption, why in zip(adoptions, prepared, strict=True) if not why]
    if ready:
        await asyncio.sleep(SETTLING)
    last = HandingOver(api, order.labels)
    handed = await asyncio.gather(*(failure(last.hand_over(adoption)) for adoption in ready))
    return failed + [(adoption, why) for adoption, why in zip(ready, handed, strict=True) if why]


async def _roll_out(api: ApiClient, roll_outs: Sequence[RollOut], order: ImportOptions) -> list[tuple[RollOut, str]]:
    """Give queues to objects whose pods start anew for it. Returns those that failed, with the reason."""
    failed: list[tuple[RollOut, str]] = []
    for each in roll_outs:
        try:
            await adopting.leader_worker_set(api, each.job.obj, each.queue, order.labels)
        except (ApiError, UnmarkedError) as error:
            failed.append((each, str(error)))
    return failed


# --- what it says -----------------------------------------------------------------------------------------------------


def _rendered(order: ImportOptions, outcome: ImportResult) -> str:
    failed = {id(each) for each, _ in outcome.failed}
    done = [adoption for adoption in outcome.adoptions if id(adoption) not in failed]
    verb = "can be adopted" if order.dry_run else "adopted"
    lines = [f"{len(done)} jobs {verb}"]
    lines += [f"  {adoption.job.called} → {adoption.queue} ({_flavors(adoption)})" for adoption in done]
    if rolled := [each for each in outcome.roll_outs if id(each) not in failed]:
        lines.append(
            f"{len(rolled)} {'would roll out' if order.dry_run else 'roll out'} into their queues, group by group"
        )
        lines += [f"  {each.job.called} → {each.queue}" for each in rolled]
    if left := Counter(skipped.reason for skipped in outcome.skipped if not skipped.fault):
        lines.append(f"{left.total()} jobs left alone")
        lines += [f"  {count} × {reason}" for reason, count in sorted(left.items())]
    if faults := outcome.faults:
        lines.append(f"{len(faults)} jobs cannot be adopted" if order.dry_run else f"{len(faults)} jobs not adopted")
        lines += [f"  {_examples(faults, reason)}: {reason}" for reason in dict.fromkeys(why for _, why in faults)]
    lines += [_over(use) for use in outcome.uses if use.over]
    if order.dry_run:
        lines.append("Nothing was changed: --dry-run=false adopts them.")
    return "\n".join(lines)


def _over(use: cluster_facts.FlavorUse) -> str:
    return (
        f"ClusterQueue {use.cluster_queue}, flavor {use.flavor}: {_amount(use.over, use.resource)} {use.resource} over the "
        f"nominal quota of {_amount(use.nominal, use.resource)}; nothing more is admitted there until that much is free"
    )


def _flavors(adoption: Adoption) -> str:
    return ", ".join(sorted({each for row in adoption.admission.pod_sets for each in row.flavors.values()}))


def _examples(faults: Sequence[tuple[str, str]], reason: str) -> str:
    return bounded.some([job for job, why in faults if why == reason], _EXAMPLES)


def _amount(size: int, resource: str) -> str:
    return quantity.format(size, resource)


def _as_json(order: ImportOptions, outcome: ImportResult) -> Json:
    reasons = {id(adoption): reason for adoption, reason in outcome.failed}
    return {
        "dryRun": order.dry_run,
        "adoptions": [
            {
                "job": adoption.job.called,
                "localQueue": adoption.queue,
                "clusterQueue": adoption.admission.cluster_queue,
                "workload": adoption.workload["metadata"]["name"],
                "flavors": {row.name: dict(row.flavors) for row in adoption.admission.pod_sets},
                "error": reasons.get(id(adoption), ""),
            }
            for adoption in outcome.adoptions
        ],
        "rollOuts": [
            {"job": each.job.called, "localQueue": each.queue, "error": reasons.get(id(each), "")}
            for each in outcome.roll_outs
        ],
        "skipped": [
            {"job": skipped.job.called, "reason": skipped.reason, "fault": skipped.fault} for skipped in outcome.skipped
        ],
        "uses": [
            {
                "clusterQueue": use.cluster_queue,
                "flavor": use.flavor,
                "resource": use.resource,
                "adopted": _amount(use.adopted, use.resource),
                "reserved": _amount(use.reserved, use.resource),
                "nominal": _amount(use.nominal, use.resource),
                "over": _amount(use.over, use.resource),
            }
            for use in outcome.uses
        ],
    }
