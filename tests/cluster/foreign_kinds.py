"""CRDs of foreign job kinds: without a schema unless one is given, with a status of their own."""

from __future__ import annotations

from typing import Any

from gangline.kube.resources import Resource

Json = dict[str, Any]


#: of a part of an object that is kept as it is
OPEN: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def closed(**properties: Json) -> Json:
    """The schema of an object of which only these fields are kept."""
    return {"type": "object", "properties": properties}


def crd(resource: Resource, schema: Json = OPEN) -> Json:
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},  # wanted in groups below k8s.io
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind},
            "versions": [version],
        },
    }
