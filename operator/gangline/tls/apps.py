"""FastAPI apps of our servers: what they answer where no endpoint does, and the pages that describe their endpoints.

The pages load nothing: they work without the internet, and no script runs in them.
"""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.exceptions import HTTPException

import gangline

OPENAPI: Final = "/openapi.json"
DOCS: Final = "/docs"
#: how endpoints refuse a request, in the description of the API
REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"description": "The request is refused; the text says why", "content": {"text/plain": {}}},
    503: {"description": "This process is not the leader", "content": {"text/plain": {}}},
}
_STYLE: Final = "body{font:1em sans-serif;max-width:60em;margin:2em auto;padding:0 1em}code{font-size:1.1em}"
_POLICY: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def new_app(title: str = "", description: str = "") -> FastAPI:
    """An app without endpoints. With a title it describes itself, as an OpenAPI document and as a page."""
    app = FastAPI(
        title=title or "Gangline",
        description=description,
        version=gangline.__version__,
        openapi_url=OPENAPI if title else None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, _refused)
    if title:

        async def docs() -> Response:
            return HTMLResponse(_page(app.openapi()), headers=_POLICY)

        app.add_api_route(DOCS, docs, methods=["GET", "HEAD"], include_in_schema=False)
    return app


def add_get(app: FastAPI, path: str, endpoint: Callable[..., Awaitable[Response]], **described: Any) -> None:
    """Serve GET and HEAD at this path; `described` as for FastAPI, which would describe both methods under one name."""
    app.add_api_route(path, endpoint, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route(path, endpoint, methods=["GET"], **described)


def address_of(request: Request) -> str:
    """The address of the client; "" where the connection has none."""
    return request.client.host if request.client is not None else ""


async def _refused(_: Request, error: Exception) -> Response:
    """Answer in a line of text where there is no such path or method."""
    assert isinstance(error, HTTPException)
    text = f"{error.status_code}: {HTTPStatus(error.status_code).phrase}"
    return PlainTextResponse(text, error.status_code, error.headers)


def _page(document: dict[str, Any]) -> str:
    """The OpenAPI document as a page for people."""
    title, about = html.escape(document["info"]["title"]), html.escape(document["info"].get("description", ""))
    rows = "".join(_rows(document["paths"]))
    return (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f'<h1>{title}</h1><p>{about}</p><p>For programs: <a href="openapi.json"><code>openapi.json</code></a></p>'
        f"<dl>{rows}</dl></html>"
    )


def _rows(paths: dict[str, dict[str, dict[str, Any]]]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, described in methods.items():
            what = f"{method.upper()} {path}"
            yield f"<dt><code>{html.escape(what)}</code><dd>{html.escape(described.get('summary', ''))}"
            answers = (f"{status}: {answer['description']}" for status, answer in described["responses"].items())
            yield f"<br><small>{html.escape('; '.join(answers))}</small>"
