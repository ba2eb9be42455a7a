"""Installs Gangline's CRDs on a cluster and waits until they are served; and the roles of people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from gangline.api import names
from gangline.api.schema import crd_install
from gangline.install.manifests import people
from gangline.install.manifests.tree import TemplateContext, render
from gangline.kube.client import ApiClient
from gangline.kube.ownership import CLUSTER_ROLES
from gangline.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Json

FIELD_MANAGER = "gangline-install"
TIMEOUT = 60.0
#: roles that are written at the same time
_AT_ONCE = 8


class InstallError(Exception):
    """The cluster did not establish Gangline's CRDs."""


async def install_kinds(api: ApiClient, crds: Sequence[Json] | None = None, *, namespace: bool = True) -> list[str]:
    """Apply the CRDs (default: all) and, if wanted, the system namespace. Returns the CRDs' names once all are served.

    Raises InstallError or ApiError.
    """
    crds = crd_install.crds() if crds is None else crds
    if namespace:
        await _namespace(api)
    await asyncio.gather(*(_apply(api, crd) for crd in crds))
    crd_names = [crd["metadata"]["name"] for crd in crds]
    await _served(api, crd_names)
    return crd_names


async def install_roles(api: ApiClient) -> None:
    """Apply the ClusterRoles of people, as an installation has them. Raises ApiError."""
    roles = render(people.documents(), TemplateContext({"roles": True}, names.SYSTEM_NAMESPACE))
    room = asyncio.Semaphore(_AT_ONCE)

    async def apply(role: Json) -> None:
        async with room:
            name = role["metadata"]["name"]
            await api.patch(CLUSTER_ROLES, None, name, role, kind="apply", field_manager=FIELD_MANAGER, force=True)

    await asyncio.gather(*map(apply, roles))


async def _apply(api: ApiClient, crd: Json) -> None:
    name = crd["metadata"]["name"]
    await api.patch(CUSTOM_RESOURCE_DEFINITIONS, None, name, crd, kind="apply", field_manager=FIELD_MANAGER, force=True)


async def _namespace(api: ApiClient) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.SYSTEM_NAMESPACE}}
    await api.patch(
        NAMESPACES, None, names.SYSTEM_NAMESPACE, body, kind="apply", field_manager=FIELD_MANAGER, force=True
    )


async def _served(api: ApiClient, wanted: list[str]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while True:
        crds = (await api.list(CUSTOM_RESOURCE_DEFINITIONS)).items
        waiting = set(wanted) - {crd["metadata"]["name"] for crd in crds if _established(crd)}
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise InstallError(f"not served after {TIMEOUT:g} s: {', '.join(sorted(waiting))}. {_complaints(crds)}")
        await asyncio.sleep(0.1)


def _established(crd: Json) -> bool:
    return _true(crd, "Established") and _true(crd, "NamesAccepted")


def _true(crd: Json, kind: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def _complaints(crds: list[Json]) -> str:
    """The API server's messages about CRDs that are not established."""
    messages = [
        f"{crd['metadata']['name']}: {c['message']}"
        for crd in crds
        for c in (crd.get("status") or {}).get("conditions") or []
        if c["type"] in ("NamesAccepted", "Established") and c["status"] == "False" and c.get("message")
    ]
    return "; ".join(messages)
