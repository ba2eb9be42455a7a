"""Waits for jobs to end, and finds the exit code of their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from gangline.api import names
from gangline.console.output import exit_codes, terminal
from gangline.console.views import access
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.resources import GPU_JOBS, PODS, Json, Resource

#: seconds between two looks, the first and the longest
FIRST: Final = 0.5
LONGEST: Final = 5.0


async def awaited(
    api: ApiClient,
    namespace: str,
    resource: Resource,
    jobs: Sequence[str],
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> int:
    """The exit code of the jobs once all have ended: of the first of them that failed. Says how each ended. A server that is
    away comes back.
    """
    left, codes, seconds = list(jobs), dict.fromkeys(jobs, exit_codes.SUCCESS), FIRST
    outage = access.Outage()
    while left:
        ended: list[str] = []
        for name in left:
            try:
                found = await api.get(resource, namespace, name)
                verdict = _verdict(found)
                code = await _code(api, namespace, resource, name) if verdict and verdict["type"] == "Failed" else 0
            except NotFound:
                verdict, code = {"type": "Deleted", "message": ""}, exit_codes.FAILURE
            except ApiError as error:
                outage.endure(error)
                break
            if verdict is None:
                continue
            ended.append(name)
            codes[name] = code
            words = {"Complete": "has succeeded", "Deleted": "was deleted"}.get(verdict["type"], "has failed")
            message = f": {verdict['message']}" if verdict.get("message") and code else ""
            terminal.say(f"{resource.kind.lower()}/{name} {words}{message}", err=True)
        left = [name for name in left if name not in ended]
        if left:
            await pause(seconds)
            seconds = min(seconds * 1.5, LONGEST)
    return next(filter(None, codes.values()), exit_codes.SUCCESS)


def _verdict(job: Json) -> Json | None:
    """The condition by which a job has ended."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return next(
        (each for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True"), None
    )


async def _code(api: ApiClient, namespace: str, resource: Resource, name: str) -> int:
    """The exit code of the container that failed first, as far as pods tell."""
    label = names.GPUJOB_LABEL if resource == GPU_JOBS else "batch.kubernetes.io/job-name"
    try:
        pods = (await api.list(PODS, namespace, label_selector=f"{label}={name}")).items
    except ApiError:
        return exit_codes.FAILURE
    found: list[tuple[str, int]] = []
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or []:
            for state in ("state", "lastState"):
                ended = (container.get(state) or {}).get("terminated") or {}
                if code := ended.get("exitCode"):
                    found.append((ended.get("finishedAt") or "", code))
    return min(found)[1] if found else exit_codes.FAILURE
