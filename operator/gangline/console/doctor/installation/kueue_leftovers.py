"""Checks for what Kueue has left behind: a controller that still decides, webhooks without a server, finalizers that nobody
removes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gangline.api import names
from gangline.console.doctor import kueue_names
from gangline.console.doctor.cluster import ClusterReads, failure, ok, some, warning
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.installation import endpoints
from gangline.control.answers.workloads.words import counted
from gangline.install.inventory import DEPLOYMENTS
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource, deleting
from gangline_webhooks import registration


async def controllers(cluster: ClusterReads) -> list[Json]:
    """Kueue's Deployments, in whatever namespace. Gangline's own of that name, for Kueue's command line, is none."""
    found = [
        *await cluster.list(DEPLOYMENTS, kueue_names.NAMESPACE),
        *await cluster.list(DEPLOYMENTS, None, kueue_names.SELECTOR),
    ]
    unique = {(row["metadata"]["namespace"], row["metadata"]["name"]): row for row in found}
    return [row for row in unique.values() if _is_controller(row)]


def _is_controller(deployment: Json) -> bool:
    meta = deployment["metadata"]
    ours = (meta.get("labels") or {}).get("app.kubernetes.io/part-of") == "gangline"
    return not ours and meta["name"].endswith("controller-manager")


async def controller(cluster: ClusterReads) -> Findings:
    running = [row for row in await controllers(cluster) if (row.get("status") or {}).get("replicas")]
    for row in running:
        meta = row["metadata"]
        advice = f"kubectl scale -n {meta['namespace']} deployment/{meta['name']} --replicas=0"
        detail = f"Deployment {meta['namespace']}/{meta['name']} runs: Kueue decides about the same Workloads"
        yield failure(detail, advice, [meta["name"]])
    if not running:
        yield ok("it does not run")


async def dead_webhooks(cluster: ClusterReads) -> Findings:
    """Check of Kueue's webhook registrations: those that lead nowhere refuse every object that they are about, jobs of all
    namespaces above all.
    """
    found = False
    for resource in (kube.MUTATING_WEBHOOKS, kube.VALIDATING_WEBHOOKS):
        for configuration in await cluster.list(resource):
            for name, client in _kueues(configuration):
                found = True
                trouble = await endpoints.trouble(cluster, client)
                if not trouble:
                    yield warning(
                        f"{resource.kind} {name} still leads to {endpoints.name_of(client)}", _remove(resource, name)
                    )
                elif blocking := _blocking(configuration):
                    detail = f"{resource.kind} {name} leads to {endpoints.name_of(client)}, and {trouble}"
                    yield failure(f"{detail}: no {some(blocking)} can be created", _remove(resource, name), blocking)
    if not found:
        yield ok("none is registered")


def _kueues(configuration: Json) -> Iterator[tuple[str, Json]]:
    """The places to which a configuration of Kueue leads."""
    name = configuration["metadata"]["name"]
    if name == registration.NAME:
        return
    clients = {
        endpoints.name_of(row["clientConfig"]): row["clientConfig"] for row in configuration.get("webhooks") or ()
    }
    for where, client in clients.items():
        if "kueue" in name or "kueue" in where:
            yield name, client


def _blocking(configuration: Json) -> list[str]:
    """The kinds that cannot be created while nobody answers."""
    return sorted(
        {
            resource
            for row in configuration.get("webhooks") or ()
            if row.get("failurePolicy", "Fail") == "Fail"
            for rule in row.get("rules") or ()
            for resource in rule.get("resources") or ()
        }
    )


def _remove(resource: Resource, name: str) -> str:
    return f"kubectl delete {resource.kind.lower()}/{name}"


#: kinds on whose objects Kueue's controllers leave a finalizer that Gangline does not remove
_HELD: Final = (kube.COHORTS,)


async def finalizers(cluster: ClusterReads) -> Findings:
    found = False
    pods = await cluster.list(kube.PODS, None, f"{kueue_names.MANAGED}=true")
    held = [pod for pod in pods if kueue_names.MANAGED in (pod["metadata"].get("finalizers") or ())]
    if stuck := [_key(pod) for pod in held if deleting(pod)]:
        found = True
        advice = 'kubectl patch each with \'{"metadata":{"finalizers":null}}\''
        detail = f"{counted(len(stuck), 'pod')} cannot go: only Kueue removes their finalizer {kueue_names.MANAGED}"
        yield failure(f"{detail} ({some(stuck)})", advice, stuck)
    if gated := [_key(pod) for pod in pods if _gated(pod)]:
        found = True
        detail = f"{counted(len(gated), 'pod')} wait for a gate that only Kueue removes ({some(gated)})"
        yield warning(detail, "create them again without a queue, or as Jobs", gated)
    for resource in _HELD:
        rows = [row for row in await cluster.list(resource) if deleting(row)]
        if stuck := [
            row["metadata"]["name"]
            for row in rows
            if names.IN_USE_FINALIZER in (row["metadata"].get("finalizers") or ())
        ]:
            found = True
            advice = (
                f'if nothing uses them: kubectl patch {resource.plural} … with \'{{"metadata":{{"finalizers":null}}}}\''
            )
            yield warning(f"{resource.kind} {some(stuck)} cannot be deleted: {names.IN_USE_FINALIZER}", advice, stuck)
    if not found:
        yield ok("none is in the way")


def _gated(pod: Json) -> bool:
    return any(gate.get("name") == kueue_names.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _key(obj: Json) -> str:
    return f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}"
