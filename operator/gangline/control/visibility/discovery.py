"""Discovery documents for API servers and clients: the group, versions and resources that are served here. Pure."""

from __future__ import annotations

from typing import Any, Final

from gangline.kube.resources import Json

GROUP: Final = "visibility.kueue.x-k8s.io"
#: the preferred one last
VERSIONS: Final = ("v1beta1", "v1beta2")
SUBRESOURCE: Final = "pendingworkloads"
SUMMARY: Final = "PendingWorkloadsSummary"
#: plural -> kind, and whether it is namespaced
RESOURCES: Final = {"clusterqueues": ("ClusterQueue", False), "localqueues": ("LocalQueue", True)}


def group_list() -> Json:
    """`/apis`"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> Json:
    """`/apis/GROUP`"""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def _group() -> Json:
    versions = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in reversed(VERSIONS)]
    return {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}


def resource_list(version: str) -> Json:
    """`/apis/GROUP/VERSION`. The queues belong to another group: here they have no verbs, only a subresource."""
    resources: list[Json] = []
    for plural, (kind, namespaced) in RESOURCES.items():
        resources += [
            {
                "name": plural,
                "singularName": kind.lower(),
                "namespaced": namespaced,
                "kind": kind,
                "verbs": [],
            },
            {
                "name": f"{plural}/{SUBRESOURCE}",
                "singularName": "",
                "namespaced": namespaced,
                "kind": SUMMARY,
                "verbs": ["get"],
            },
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{version}",
        "resources": resources,
    }


def path(version: str, plural: str, *, queue: str = "{name}", namespace: str = "{namespace}") -> str:
    """The URL path of a queue's pending workloads."""
    _, namespaced = RESOURCES[plural]
    scope = f"/namespaces/{namespace}" if namespaced else ""
    return f"/apis/{GROUP}/{version}{scope}/{plural}/{queue}/{SUBRESOURCE}"


# --- OpenAPI ----------------------------------------------------------------------------------------------------------


def openapi_v2() -> Json:
    """`/openapi/v2`, which the API server merges into its own."""
    paths = {path(version, plural): _operation(version, plural, _v2) for version in VERSIONS for plural in RESOURCES}
    return {"swagger": "2.0", "info": {"title": GROUP, "version": VERSIONS[-1]}, "paths": paths, "definitions": {}}


def openapi_v3_index() -> Json:
    """`/openapi/v3`"""
    roots = {f"apis/{GROUP}/{version}": f"/openapi/v3/apis/{GROUP}/{version}" for version in VERSIONS}
    return {"paths": {root: {"serverRelativeURL": url} for root, url in roots.items()}}


def openapi_v3(version: str) -> Json:
    """`/openapi/v3/apis/GROUP/VERSION`"""
    paths = {path(version, plural): _operation(version, plural, _v3) for plural in RESOURCES}
    return {"openapi": "3.0.0", "info": {"title": GROUP, "version": version}, "paths": paths, "components": {}}


def _operation(version: str, plural: str, parameter: Any) -> Json:
    kind, namespaced = RESOURCES[plural]
    names = ["name", *(["namespace"] if namespaced else [])]
    parameters = [
        *(parameter(name, "path", "string", required=True) for name in names),
        *(parameter(name, "query", "integer", required=False) for name in ("offset", "limit")),
    ]
    return {
        "get": {
            "operationId": f"read{version.capitalize()}{kind}PendingWorkloads",
            "description": f"Pending workloads of a {kind}, in queue order.",
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": {"group": GROUP, "version": version, "kind": SUMMARY},
        }
    }


def _v2(name: str, where: str, kind: str, *, required: bool) -> Json:
    return {"name": name, "in": where, "type": kind, "required": required}


def _v3(name: str, where: str, kind: str, *, required: bool) -> Json:
    return {"name": name, "in": where, "schema": {"type": kind}, "required": required}
