"""Names, labels and ports that several objects of the installation share."""

from __future__ import annotations

from typing import Final

from gangline.install.manifests.tree import INSTANCE, MANAGER, NAMESPACE, Node
from gangline.kube.resources import Json

PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
PRODUCT: Final = "gangline"
KUEUE_NAMESPACE: Final = "kueue-system"

OPERATOR: Final = "operator"
WEBHOOKS: Final = "webhooks"
#: the Deployments, ServiceAccounts and Services of the two components
OPERATOR_NAME: Final = "gangline-operator"
WEBHOOKS_NAME: Final = "gangline-webhooks"

#: of pods; the operator's are plain HTTP, metrics over TLS, visibility over TLS
HTTP_PORT: Final = 8080
METRICS_PORT: Final = 8443
VISIBILITY_PORT: Final = 8082
WEBHOOKS_PORT: Final = 9443


def labels(component: str = "") -> Json:
    """The labels of every object of the installation."""
    return {**selector(component), PART_OF: PRODUCT, MANAGED_BY: MANAGER}


def selector(component: str = "") -> Json:
    """The labels by which pods of a component are found."""
    of_component = {"app.kubernetes.io/component": component} if component else {}
    return {"app.kubernetes.io/name": PRODUCT, "app.kubernetes.io/instance": INSTANCE, **of_component}


def head(
    api_version: str, kind: str, name: str, component: str = "", namespace: Node = NAMESPACE, **more: Node
) -> Json:
    """apiVersion, kind and metadata; `namespace` None for objects of the cluster, `more` for fields of the metadata."""
    where = {} if namespace is None else {"namespace": namespace}
    meta = {"name": name, **where, "labels": {**labels(component), **more.pop("labels", {})}, **more}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}
