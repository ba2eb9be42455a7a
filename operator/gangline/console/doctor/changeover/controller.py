"""Kueue's own processes: which version runs, how it elects its leader, and the webhooks that have to go before it does."""

from __future__ import annotations

from typing import Final

from gangline import bounded
from gangline.api.read.configuration.manager import KUEUES
from gangline.api.schema.kinds import CONVERTED
from gangline.console.doctor.cluster import ClusterReads, ok, some, unknown, warning
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.installation import endpoints
from gangline.console.doctor.installation.kueue_leftovers import controllers
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline_webhooks import registration

#: arguments of Kueue's manager that something here takes the place of, or that say where its configuration is
_EXPECTED: Final = ("--config", "--zap-log-level", "--feature-gates")


async def deployment(cluster: ClusterReads) -> Findings:
    found = await controllers(cluster)
    if not found:
        yield unknown("no Deployment of Kueue was found: what follows is about its objects alone")
    for row in found:
        meta = row["metadata"]
        where = f"deployment/{meta['name']}"
        step = f"kubectl scale -n {meta['namespace']} {where} --replicas=0 (step 1 of docs/from-kueue.md)"
        replicas = (row.get("status") or {}).get("replicas") or 0
        detail = (
            f"{meta['namespace']}/{meta['name']}, {some(images(row))}, {replicas} running: admits until it is stopped"
        )
        yield warning(detail, step, [meta["name"]])
        if unread := [text for text in arguments(row) if not text.startswith(_EXPECTED)]:
            yield warning(f"arguments that Gangline does not have: {some(unread)}", "see docs/cli.md", unread)


def images(deployment: Json) -> list[str]:
    return [container.get("image", "") for container in deployment["spec"]["template"]["spec"]["containers"]]


def arguments(deployment: Json) -> list[str]:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return [
        text
        for container in containers
        for text in (*(container.get("command") or ())[1:], *(container.get("args") or ()))
    ]


async def version(cluster: ClusterReads) -> tuple[int, int] | None:
    """Kueue's major and minor version, by the tag of its image; None where there is none."""
    for row in await controllers(cluster):
        for image in images(row):
            tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2].lstrip("v")
            major, minor = (bounded.whole(part) for part in (*tag.split(".", 2), "", "")[:2])
            if major is not None and minor is not None:
                return major, minor
    return None


async def lease(cluster: ClusterReads) -> Findings:
    found = await cluster.get(kube.LEASES, KUEUES.namespace, KUEUES.name)
    holder = ((found or {}).get("spec") or {}).get("holderIdentity")
    where = f"Lease {KUEUES}"
    if not holder:
        yield ok(f"{where} is held by nobody")
    else:
        yield ok(f"{where} is held by {holder}: Gangline waits until it is free, so both never decide at once")


async def webhooks(cluster: ClusterReads) -> Findings:
    """Kueue's registrations: they refuse jobs as soon as nobody serves them."""
    found = False
    for resource in (kube.MUTATING_WEBHOOKS, kube.VALIDATING_WEBHOOKS):
        for row in await cluster.list(resource):
            name = row["metadata"]["name"]
            if name != registration.NAME and "kueue" in name:
                found = True
                detail = f"{resource.kind} {name} ({len(row.get('webhooks') or ())} webhooks)"
                yield warning(
                    detail, f"kubectl delete {resource.kind.lower()}/{name}, when the controller has stopped", [name]
                )
    if not found:
        yield ok("Kueue has registered none")
    for kind in CONVERTED:
        live = await cluster.get(kube.CUSTOM_RESOURCE_DEFINITIONS, None, kind.name)
        webhook = ((live or {}).get("spec", {}).get("conversion") or {}).get("webhook") or {}
        where = endpoints.name_of(webhook.get("clientConfig") or {})
        if "kueue" in where:
            detail = f"{kind.name} is converted by {where}: until Gangline's webhooks run, one of its versions cannot be read"
            yield warning(detail, "start the webhooks right after the CRDs (steps 2 and 3)", [kind.name])
