"""An API server that gives the answers that a test has put down, by path: for the command in a process of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ANSWERS = "/apis/answers.gangline.io/v1alpha1"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


class StandIn(ThreadingHTTPServer):
    """`answers`: by path, an object, or a status and the bytes of a body; `otherwise`: of other paths. `asked`: method and
    path of each request. `before`: called with the path before it is answered.
    """

    daemon_threads = True

    def __init__(self, answers: Mapping[str, Json | tuple[int, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Any] = dict(answers)
        self.otherwise: Json | tuple[int, bytes] = status(
            404, "NotFound", "the server could not find the requested resource"
        )
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda path: None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A command that ends does not wait for its answers."""

    def kubeconfig(self, folder: Path, namespace: str = "ml") -> Path:
        return kubeconfig(folder, f"http://{self.address}", namespace)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandIn

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {path}")
        self.server.before(path)
        found = self.server.answers.get(path, self.server.otherwise)
        code, body = found if isinstance(found, tuple) else (found.get("code", 200), json.dumps(found).encode())
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(answers: Mapping[str, Json | tuple[int, bytes]]) -> Iterator[StandIn]:
    """A stand-in that answers while the block runs."""
    server = StandIn(answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(folder: Path, server: str, namespace: str = "ml") -> Path:
    """A kubeconfig for a server without TLS."""
    body = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(body))  # JSON is YAML
    return path


def status(code: int, reason: str, message: str, **details: Any) -> Json:
    """A Status object, as an API server refuses with."""
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def listed(kind: str, items: list[Json], version: str = "answers.gangline.io/v1alpha1") -> Json:
    return {"kind": f"{kind}List", "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items}
