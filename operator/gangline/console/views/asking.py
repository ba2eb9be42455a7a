"""Asks the operator, through the API server and with the user's own rights: a thin client of `answers.gangline.io`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click

from gangline.console.output import remarks
from gangline.console.output.spelling import meant
from gangline.control.answers.api import calls, question
from gangline.control.answers.api.discovery import ANSWERS
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Forbidden, Invalid, NotFound, TooManyRequests, Unavailable
from gangline.kube.resources import Json
from gangline.kube.transport import Call

T = TypeVar("T")

#: pages of a list that are fetched at most: as many as any cluster has
_PAGES: Final = 1000


class NotServedError(Exception):
    """Says that no operator answers, and why, in one sentence."""


class NotAllowedError(Exception):
    """Says that the user may not ask; the text is the API server's."""


class NoAnswerError(click.ClickException):
    """Says that the operator has refused the question, or found nothing; the message is the operator's. `missing`: there is no
    such job.
    """

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


async def get(api: ApiClient, path: str, query: Mapping[str, str | bool | int] | None = None) -> Json:
    """The answer to a GET of `path` below the group's root. Raises NotServedError, NotAllowedError, NoAnswerError."""
    return await _ask(api, calls.get(path, _texts(query or {})))


async def listed(api: ApiClient, path: str, query: Mapping[str, str | bool | int] | None = None) -> list[Json]:
    """The items of all pages of a list. Raises as `get` does."""
    return [item async for item in _items(api, path, {"limit": 2 * question.DEFAULT_LIMIT, **(query or {})})]


async def in_scope(ask: Callable[[str], Awaitable[T]], namespace: str, *, everywhere: bool, shown: str = "") -> T:
    """What `ask` returns about the whole cluster, whose scope is "", or about a namespace: where only that is asked for, or where
    the user may not ask for more, which is then said. `shown`: what is shown in that case. Raises as `ask` does.
    """
    own = f"/namespaces/{namespace}"
    if not everywhere:
        return await ask(own)
    try:
        return await ask("")
    except NotAllowedError:
        remarks.remark(f"you may not ask about all namespaces: {shown or f'this is namespace {namespace}'}")
        return await ask(own)


async def _items(api: ApiClient, path: str, query: dict[str, str | bool | int]) -> AsyncIterator[Json]:
    for _ in range(_PAGES):
        page = await get(api, path, query)
        for item in page["items"]:
            yield item
        token = page["metadata"].get("continue")
        if not token:
            return
        query["continue"] = token


async def create(api: ApiClient, path: str, body: Json) -> Json:
    """The answer to a POST. Raises as `get` does."""
    return await _ask(api, calls.create(path, body))


async def of_job(
    api: ApiClient, namespace: str, job: str, *rest: str, query: Mapping[str, str | bool | int] | None = None
) -> Json:
    """The answer about a job by its name, or by `kind/name`. Raises as `get` does, for a job that does not exist with those whose
    names are nearly the same.
    """
    path, kind = job_path(namespace, job, *rest)
    try:
        return await get(api, path, {**kind, **(query or {})})
    except NoAnswerError as error:
        if not error.missing:
            raise
        try:
            known = await get(api, f"/namespaces/{quote(namespace)}/queuedjobs", {"limit": question.MOST})
        except (NotServedError, NotAllowedError, NoAnswerError, ApiError):
            raise error from None
        names = [str(item.get("jobName")) for item in known["items"]]
        near = meant(job.rpartition("/")[2], names)
        raise NoAnswerError(f"{error.message}.{near}" if near else error.message, missing=True) from None


def job_path(namespace: str, job: str, *rest: str) -> tuple[str, dict[str, str | bool | int]]:
    """Path and query of a job by its name, or by `kind/name`."""
    kind, _, name = job.rpartition("/")
    path = "/".join([f"/namespaces/{quote(namespace)}/queuedjobs/{quote(name, safe='')}", *rest])
    return path, {"kind": kind} if kind else {}


async def _ask(api: ApiClient, call: Call) -> Json:
    try:
        return await api.json(call)
    except ApiError as error:
        raise _meaning(error) from error


def _meaning(error: ApiError) -> Exception:
    """Answers of the operator name its group in their details; the API server's own do not."""
    ours = error.group == ANSWERS.name
    if ours and not isinstance(error, Forbidden):
        if error.status == 501:
            return NotServedError(error.message)
        return NoAnswerError(error.message, missing=isinstance(error, NotFound))
    match error:
        case Forbidden():
            return NotAllowedError(error.message)
        case NotFound():
            return NotServedError("no operator serves its answers on this cluster: none leads, or it serves no API")
        case Unavailable():
            if error.timeout:
                return NotServedError("the operator does not answer in time")
            if not error.status:
                return error  # the API server itself is away
            return NotServedError("the operator does not answer: it is away, or another one is about to lead")
        case TooManyRequests() | Invalid():
            return NoAnswerError(error.message)
        case _:
            return error


def _texts(query: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts; those that are empty or false are left out."""
    return {name: str(value).lower() if value is True else str(value) for name, value in query.items() if value}
