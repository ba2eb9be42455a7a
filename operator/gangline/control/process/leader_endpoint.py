"""Publishes the leader's address in a ConfigMap, so that clients with a kubeconfig can query the leader."""

from __future__ import annotations

import logging
import os
from typing import Final

from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError

log = logging.getLogger(__name__)

CONFIG_MAP: Final = "gangline-operator"
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})


async def publish(client: ApiClient, namespace: str, host: str, port: int) -> None:
    """Write the leader's address. An error is logged; only clients of the endpoint depend on it."""
    data = {"port": str(port), "url": f"http://{_literal(host)}:{port}" if host not in _ANY_ADDRESS else ""}
    if pod := os.environ.get("POD_NAME"):
        data |= {"pod": pod, "namespace": os.environ.get("POD_NAMESPACE", namespace)}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": namespace},
        "data": data,
    }
    try:
        await client.patch(
            kube.CONFIG_MAPS, namespace, CONFIG_MAP, body, kind="apply", field_manager="gangline-operator", force=True
        )
    except ApiError as error:
        log.info("the leader's address could not be written to ConfigMap %s/%s: %s", namespace, CONFIG_MAP, error)


def _literal(host: str) -> str:
    return f"[{host}]" if ":" in host else host
