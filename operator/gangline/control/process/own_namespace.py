"""The namespace that holds Gangline's own objects."""

from __future__ import annotations

import asyncio
import logging

from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError, NotFound

log = logging.getLogger(__name__)


async def ensure_namespace(client: ApiClient, name: str) -> None:
    """Make sure that the namespace exists. Retries until the API server accepts it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    while True:
        try:
            await _get_or_create(client, name, body)
            return
        except AlreadyExists:
            return
        except ApiError as error:
            log.warning("namespace %s: %s", name, error)
            await asyncio.sleep(1)


async def _get_or_create(client: ApiClient, name: str, namespace: dict[str, object]) -> None:
    """Create the namespace unless it exists: without permission to create namespaces, it must exist already."""
    try:
        await client.get(kube.NAMESPACES, None, name)
    except NotFound:
        await client.create(kube.NAMESPACES, None, namespace)
