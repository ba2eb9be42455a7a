"""The namespaces that hold Gangline's own objects and the Lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound

log = logging.getLogger(__name__)

#: seconds between two attempts
RETRY: Final = 1.0


async def ensure_namespace(client: ApiClient, name: str, *, told: Callable[[str], None] = lambda _: None) -> None:
    """Make sure that the namespace exists. Retries until it does; `told` gets what is in the way, and "" in the end."""
    trouble = ""
    while said := await _trouble(client, name):
        if said != trouble:
            log.warning("%s", said)
            told(said)
        trouble = said
        await asyncio.sleep(RETRY)
    told("")


async def _trouble(client: ApiClient, name: str) -> str:
    """Create the namespace unless it exists. Why it does not exist, or ""."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        try:
            await client.get(kube.NAMESPACES, None, name)
        except NotFound:
            await client.create(kube.NAMESPACES, None, body)
    except AlreadyExists:
        return ""
    except Forbidden:
        return f"there is no namespace {name}, and no right to create it: kubectl create namespace {name}"
    except ApiError as error:
        return f"namespace {name}: {error}"
    return ""
