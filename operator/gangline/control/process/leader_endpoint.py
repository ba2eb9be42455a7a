"""Publishes the leader's address in a ConfigMap, so that clients with a kubeconfig can query the leader.

In a pod that is the pod's name and port, by which the API server's proxy reaches it from outside of the cluster, and a URL with
the pod's address, which other pods reach.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from gangline.kube import ownership
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.ownership import owned_by

log = logging.getLogger(__name__)

CONFIG_MAP: Final = "gangline-operator"
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})


async def publish(client: ApiClient, namespace: str, host: str, port: int) -> None:
    """Write the leader's address. An error is logged; only clients of the endpoint depend on it."""
    if host in _ANY_ADDRESS:
        host = os.environ.get("POD_IP", "")
    data = {"port": str(port), "url": f"http://{_literal(host)}:{port}" if host else ""}
    if pod := os.environ.get("POD_NAME"):
        data |= {"pod": pod, "namespace": os.environ.get("POD_NAMESPACE", namespace)}
    try:
        meta = {"name": CONFIG_MAP, "namespace": namespace, **await owned_by(client, ownership.OPERATOR)}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        await client.patch(
            kube.CONFIG_MAPS, namespace, CONFIG_MAP, body, kind="apply", field_manager="gangline-operator", force=True
        )
    except ApiError as error:
        log.info("the leader's address could not be written to ConfigMap %s/%s: %s", namespace, CONFIG_MAP, error)


def _literal(host: str) -> str:
    return f"[{host}]" if ":" in host else host
