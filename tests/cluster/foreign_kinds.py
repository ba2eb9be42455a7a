"""CRDs of foreign job kinds: without a schema, with a status of their own."""

from __future__ import annotations

from typing import Any

from gangline.kube.resources import Resource

Json = dict[str, Any]


def crd(resource: Resource) -> Json:
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
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
