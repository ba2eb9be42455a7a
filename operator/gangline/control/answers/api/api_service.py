"""Registers the leader with the API server's aggregator: a Service that leads to it, and an APIService for each version.

Only the leader knows the queue, so the Service selects no pods: a new leader points it to itself. The address of a pod or machine
goes into Endpoints (older API servers read them) and an EndpointSlice (newer ones do). For a host name, or an address that is
reachable only on the API server's own machine, the Service is an alias (ExternalName).
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gangline.kube import ownership
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.ownership import owned_by
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored

log = logging.getLogger(__name__)


API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False, kind="APIService")
ENDPOINTS: Final = Resource("", "v1", "endpoints", kind="Endpoints")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", kind="EndpointSlice")

SERVICE: Final = "gangline-visibility"
FIELD_MANAGER: Final = "gangline-operator"
#: as Kueue's: after the groups of the objects themselves
PRIORITY: Final = 100
HTTPS: Final = 443
#: seconds for each request that withdraws the registration at shutdown
PATIENCE: Final = 3.0
_LABELS: Final = {"app.kubernetes.io/part-of": "gangline"}


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which API servers reach this process: a name or an IP address, and a port."""

    host: str
    port: int

    @property
    def routable(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The IP address, if Endpoints accept it."""
        try:
            found = ipaddress.ip_address(self.host)
        except ValueError:
            return None
        return None if found.is_loopback else found

    @property
    def alias(self) -> str:
        """The name for an ExternalName Service otherwise."""
        try:
            return "localhost" if ipaddress.ip_address(self.host).is_loopback else self.host
        except ValueError:
            return self.host


@dataclass(frozen=True, slots=True)
class Registration:
    """Registers groups, each with its versions, with a Service of the namespace."""

    client: ApiClient
    groups: Mapping[str, tuple[str, ...]]
    namespace: str
    service: str = SERVICE

    async def ensure(self, address: Address, bundle: bytes) -> None:
        """Make all objects as they should be, whoever wrote them before; unchanged objects are not written. Raises ApiError."""
        owned = await owned_by(self.client, ownership.OPERATOR)
        for resource, body in self.objects(address, bundle):
            meta = {**body["metadata"], **owned}
            await self.client.patch(
                resource,
                meta.get("namespace"),
                meta["name"],
                {**body, "metadata": meta},
                kind="apply",
                field_manager=FIELD_MANAGER,
                force=True,
            )

    async def withdraw(self, bundle: bytes) -> None:
        """Delete the APIServices of this process: an APIService without a server blocks the deletion of every namespace.

        `bundle` distinguishes them from those that another leader has registered since. Failure is logged.
        """
        names = (f"{version}.{group}" for group, versions in self.groups.items() for version in versions)
        await asyncio.gather(*(self._withdraw(name, bundle) for name in names))

    async def _withdraw(self, name: str, bundle: bytes) -> None:
        try:
            found = Stored(await self.client.get(API_SERVICES, None, name, within=PATIENCE))
            if found.spec.get("caBundle") == _text(bundle):
                read = found.resource_version
                await self.client.delete(API_SERVICES, None, name, resource_version=read, within=PATIENCE)
        except ApiError as error:
            log.info("APIService %s was not withdrawn: %s", name, error)

    def objects(self, address: Address, bundle: bytes) -> list[tuple[Resource, Json]]:
        """The objects to write, in this order."""
        meta = {"namespace": self.namespace, "name": self.service, "labels": _LABELS}
        services = [
            self._api_service(group, version, PRIORITY + place, address, bundle)
            for group, versions in self.groups.items()
            for place, version in enumerate(versions)
        ]
        if address.routable is None:
            spec = {"type": "ExternalName", "externalName": address.alias}
            return [(kube.SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}), *services]
        ports = [{"name": "https", "port": address.port, "protocol": "TCP"}]
        spec = {
            "type": "ClusterIP",
            "ports": [{"name": "https", "port": HTTPS, "targetPort": address.port, "protocol": "TCP"}],
        }
        unmirrored = {**meta, "labels": {**_LABELS, "endpointslice.kubernetes.io/skip-mirror": "true"}}
        owned = {**meta, "labels": {**_LABELS, "kubernetes.io/service-name": self.service}}
        return [
            (kube.SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}),
            (
                ENDPOINTS,
                {
                    "apiVersion": "v1",
                    "kind": ENDPOINTS.kind,
                    "metadata": unmirrored,
                    "subsets": [{"addresses": [{"ip": str(address.routable)}], "ports": ports}],
                },
            ),
            (
                ENDPOINT_SLICES,
                {
                    "apiVersion": ENDPOINT_SLICES.api_version,
                    "kind": ENDPOINT_SLICES.kind,
                    "metadata": owned,
                    "addressType": f"IPv{address.routable.version}",
                    "endpoints": [{"addresses": [str(address.routable)], "conditions": {"ready": True}}],
                    "ports": ports,
                },
            ),
            *services,
        ]

    def _api_service(
        self, group: str, version: str, priority: int, address: Address, bundle: bytes
    ) -> tuple[Resource, Json]:
        port = HTTPS if address.routable is not None else address.port  # an alias has no ports of its own
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": PRIORITY,
            "versionPriority": priority,
            "service": {"namespace": self.namespace, "name": self.service, "port": port},
            "caBundle": _text(bundle),
            "insecureSkipTLSVerify": False,
        }
        body = {
            "apiVersion": API_SERVICES.api_version,
            "kind": API_SERVICES.kind,
            "metadata": {"name": f"{version}.{group}", "labels": _LABELS},
            "spec": spec,
        }
        return API_SERVICES, body


def _text(bundle: bytes) -> str:
    return base64.b64encode(bundle).decode()
