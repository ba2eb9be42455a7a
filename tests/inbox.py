"""Who receives the messages that Gangline sends to people."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Inbox:
    """A real HTTP receiver for Apprise's json:// URLs; `status` is what it answers."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status = 200
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(inbox.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, path: str = "", scheme: str = "json") -> str:
        return f"{scheme}://127.0.0.1:{self.server.server_port}/{path}"

    @property
    def texts(self) -> list[str]:
        return [f"{body['title']}\n{body['message']}" for body in self.bodies]


@contextlib.contextmanager
def opened() -> Iterator[Inbox]:
    inbox = Inbox()
    try:
        yield inbox
    finally:
        inbox.server.shutdown()
        inbox.server.server_close()
