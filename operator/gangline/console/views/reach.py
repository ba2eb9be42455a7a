"""Finds the running operator with only a kubeconfig, and queries it.

The leader publishes its endpoint in a ConfigMap. An operator on this machine is queried directly, one in a pod through the API
server's proxy. The answer contains the UID of the kube-system namespace, which must be that of the kubeconfig's cluster.
"""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple
from urllib.parse import urlsplit

from gangline.api import names
from gangline.control.process.leader_endpoint import CONFIG_MAP
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json
from gangline.kube.transport import Call

#: timeout of a query, in seconds
PATIENCE = 5.0
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


async def forecasts(api: ApiClient) -> Json | None:
    """The operator's forecasts by workload (`forecasting.alias`) and its flavor offsets; None if it can't be reached."""
    return await ask(api, "/forecasts")


async def ask(api: ApiClient, path: str) -> Json | None:
    """The operator's answer to a GET of `path`; None if it can't be reached."""
    try:
        where = (await api.get(kube.CONFIG_MAPS, names.SYSTEM_NAMESPACE, CONFIG_MAP)).get("data") or {}
        cluster = (await api.get(kube.NAMESPACES, None, "kube-system"))["metadata"]["uid"]
    except ApiError:
        return None
    import aiohttp

    for attempt in (_directly, _through_proxy):
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await attempt(api, where, path)
        except (TimeoutError, aiohttp.ClientError, ApiError, OSError, ValueError):
            continue
        if answer is not None and answer.get("cluster") == cluster:
            return answer
    return None


async def was_here(api: ApiClient) -> bool:
    """Whether the leader was a process of this machine, as the API server is: then it can be reached, if it lives."""
    try:
        where = (await api.get(kube.CONFIG_MAPS, names.SYSTEM_NAMESPACE, CONFIG_MAP)).get("data") or {}
    except ApiError:
        return False
    return {urlsplit(where.get("url") or "").hostname, urlsplit(api.login.server).hostname} <= _HERE


class TextAnswer(NamedTuple):
    """An answer as plain text, with its status."""

    status: int
    text: str


async def page(api: ApiClient, path: str) -> TextAnswer | None:
    """The operator's answer to a GET of `path`, whatever its status; None if it can't be reached. `ask` first, to know whose."""
    import aiohttp

    try:
        where = (await api.get(kube.CONFIG_MAPS, names.SYSTEM_NAMESPACE, CONFIG_MAP)).get("data") or {}
        async with asyncio.timeout(PATIENCE):
            if urlsplit(where.get("url") or "").hostname in _HERE:
                async with aiohttp.ClientSession() as session, session.get(where["url"] + path) as response:
                    return TextAnswer(response.status, await response.text())
            return TextAnswer(200, (await api.raw(_proxied(where, path))).decode(errors="replace"))
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, KeyError):
        return None
    except ApiError as error:
        return TextAnswer(error.status, error.message) if error.status else None


async def _directly(api: ApiClient, where: Json, path: str) -> Json | None:
    url = where.get("url") or ""
    if urlsplit(url).hostname not in _HERE:  # a ConfigMap must not direct users to other hosts
        return None
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        return json.loads(await response.text()) if response.status == 200 else None


async def _through_proxy(api: ApiClient, where: Json, path: str) -> Json | None:
    if not where.get("pod") or not where.get("port"):
        return None
    return await api.json(Call("get", kube.PODS, "GET", _proxied(where, path)))


def _proxied(where: Json, path: str) -> str:
    """The path of the pod through the API server's proxy. Raises KeyError for an operator that is in no pod."""
    namespace = where.get("namespace", names.SYSTEM_NAMESPACE)
    return f"/api/v1/namespaces/{namespace}/pods/{where['pod']}:{where['port']}/proxy{path}"
