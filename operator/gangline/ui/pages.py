"""The files of the front end, and the headers that bound what a page may do in a browser."""

from __future__ import annotations

import html
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastapi import Response

from gangline import files

#: nothing is loaded from anywhere else, no script or style stands in a page, nobody frames it
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: where index.html says below which path the dashboard is served
BASE: Final = "<!--base-->"
_FOREVER: Final = "public, max-age=31536000, immutable"
_NEVER: Final = "no-cache"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}


class Pages:
    """Serves the files of a folder, which are read once. Every other path gets index.html, whose script knows the pages."""

    def __init__(self, folder: Path, base: str = "/") -> None:
        self._contents = {
            path.relative_to(folder).as_posix(): files.read_bytes(path) for path in folder.rglob("*") if path.is_file()
        }
        index = self._contents.pop("index.html").decode()
        self._index = index.replace(BASE, f'<base href="{html.escape(base)}">').encode()

    def answer(self, path: str) -> Response:
        content = self._contents.get(path)
        if content is None:
            return Response(self._index, media_type="text/html; charset=utf-8", headers={"Cache-Control": _NEVER})
        kind = _TYPES.get(Path(path).suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
        # names in assets/ hold a hash of their content
        kept = _FOREVER if path.startswith("assets/") else _NEVER
        return Response(content, media_type=kind, headers={"Cache-Control": kept})
