"""Whether JobSet itself is in the cluster: then the stand-in is not needed, and stops.

JobSet may be installed at any time and in any order: its namespace, its CRD in place of the stand-in's, its webhooks, the Lease
of its leader. The first of them is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gangline.kube.client import ApiClient, NotFound
from gangline.kube.reflector import Event, Reflector, ReflectorGroup, Upsert
from gangline.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    Json,
    Resource,
)

#: label on everything that the local cluster's stand-in for JobSet installs
STAND_IN: Final = "gangline.io/stand-in"
NAMESPACE: Final = "jobset-system"
CRD_NAME: Final = "jobsets.jobset.x-k8s.io"
#: the Lease by which JobSet's controllers elect a leader, in any namespace
LEASE: Final = "6d4f6a47.x-k8s.io"
WEBHOOK_PREFIX: Final = "jobset-"

#: resource -> the one object of it that matters, "" = any
_WATCHED: Final[dict[Resource, str]] = {
    NAMESPACES: NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS: CRD_NAME,
    LEASES: LEASE,
    MUTATING_WEBHOOKS: "",
    VALIDATING_WEBHOOKS: "",
}


def sign(resource: Resource, obj: Json) -> str:
    """The evidence of JobSet itself in this object, in a few words; "" for none."""
    name = obj["metadata"]["name"]
    if resource == CUSTOM_RESOURCE_DEFINITIONS:
        return "its CRD" if name == CRD_NAME and not is_stand_in(obj) else ""
    if resource == NAMESPACES:
        return f"namespace {name}" if name == NAMESPACE else ""
    if resource == LEASES:
        return f"lease {name}" if name == LEASE or obj["metadata"].get("namespace") == NAMESPACE else ""
    return f"webhooks {name}" if name.startswith(WEBHOOK_PREFIX) else ""


def is_stand_in(crd: Json) -> bool:
    """Whether the CRD is the stand-in's. Its label may survive when another schema is applied over it; its description
    may not.
    """
    if STAND_IN not in (crd["metadata"].get("labels") or {}):
        return False
    schemas = (version.get("schema", {}).get("openAPIV3Schema", {}) for version in crd["spec"]["versions"])
    return not any("properties" in schema.get("properties", {}).get("spec", {}) for schema in schemas)


async def look(client: ApiClient) -> str:
    """The evidence of JobSet itself now; "" for none."""
    for resource, name in _WATCHED.items():
        selector = f"metadata.name={name}" if name else ""
        try:
            found = (await client.list(resource, field_selector=selector)).items
        except NotFound:
            continue
        if (seen := next(filter(None, (sign(resource, obj) for obj in found)), "")) != "":
            return seen
    return ""


async def appears(client: ApiClient) -> str:
    """Wait for evidence of JobSet itself. Returns it."""
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def sink(resource: Resource) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            if isinstance(event, Upsert) and not seen.done() and (found := sign(resource, event.obj)):
                seen.set_result(found)

        return take

    reflectors = ReflectorGroup()
    for resource, name in _WATCHED.items():
        selector = f"metadata.name={name}" if name else ""
        reflectors.add(Reflector(client, resource, field_selector=selector, optional=True), sink(resource))
    watching = asyncio.ensure_future(reflectors.run())
    try:
        await asyncio.wait((seen, watching), return_when=asyncio.FIRST_COMPLETED)
        return seen.result() if seen.done() else ""
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
