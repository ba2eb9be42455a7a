"""The endpoints of webhooks: how API servers reach one (`clientConfig`), and whether any pod is ready behind it."""

from __future__ import annotations

from gangline.console.doctor.cluster import ClusterReads
from gangline.kube.resources import Json


def name_of(client: Json) -> str:
    service = client.get("service") or {}
    if service:
        return f"Service {service.get('namespace')}/{service.get('name')}"
    return str(client.get("url") or "nobody")


async def trouble(cluster: ClusterReads, client: Json) -> str:
    """The reason why nobody answers at an endpoint; "" where somebody may. A URL is known to the API server alone: a dry run
    tries it.
    """
    service = client.get("service")
    if not service:
        return "" if client.get("url") else "neither a Service nor a URL is set"
    ready = await cluster.ready_endpoints(service["namespace"], service["name"])
    if ready is None:
        return "there is no such Service"
    return "" if ready else "no pod behind it is ready"
