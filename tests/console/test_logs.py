"""`gangline logs`: every rank's lines by time, each once, over connections that break, with the user's own rights."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.console.standin import kubeconfig, status

from gangline.console import cli
from gangline.console.views import pod_logs
from gangline.console.views.pod_logs import Position
from gangline.kube.client import ApiClient
from gangline.kube.config import load
from gangline.kube.resources import Json

CORE = "/api/v1/namespaces/ml"


def pod(name: str, phase: str = "Succeeded", role: str = "worker", index: int = 0, **labels: str) -> Json:
    marks = {
        "gangline.io/gpujob": "train",
        "gangline.io/role": role,
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    meta = {"name": name, "uid": name, "namespace": "ml", "labels": {**marks, **labels}}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": {"phase": phase}}


def at(second: float, text: str) -> bytes:
    return f"2026-01-01T00:00:{second:012.9f}Z {text}\n".encode()


class LogServer(ThreadingHTTPServer):
    """An API server with pods. `logs`: by pod the answers one after the other, the last again and again: the bytes, and whether
    the connection breaks behind them.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods: dict[str, Json] = {}
        self.job: Json = {"metadata": {"name": "train", "uid": "j", "namespace": "ml"}, "spec": {}, "status": {}}
        self.logs: dict[str, list[tuple[bytes, bool]]] = {}
        self.refused: Json | None = None
        self.asked: list[dict[str, list[str]]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A command that ends does not wait for its answers."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LogServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        server, url = self.server, urlsplit(self.path)
        parts = url.path.removeprefix(f"{CORE}/pods").strip("/").split("/")
        if url.path == f"{CORE}/pods":
            self._say(
                200,
                {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": "1"},
                    "items": [*server.pods.values()],
                },
            )
        elif url.path.startswith(f"{CORE}/pods/") and len(parts) == 2:
            self._log(parts[0], parse_qs(url.query))
        elif url.path.startswith(f"{CORE}/pods/"):
            found = server.pods.get(parts[0])
            self._say(200 if found else 404, found or status(404, "NotFound", "pod not found"))
        elif url.path.endswith("/gpujobs/train"):
            self._say(200, server.job)
        elif url.path.endswith(("/workloads", "/localqueues")):
            self._say(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
        else:
            self._say(404, status(404, "NotFound", "not found"))

    def _log(self, name: str, query: dict[str, list[str]]) -> None:
        server = self.server
        server.asked.append({"pod": [name], **query})
        if server.refused is not None:
            self._say(server.refused["code"], server.refused)
            return
        answers = server.logs[name]
        data, breaks = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) + (100 if breaks else 0)))
        self.end_headers()
        self.wfile.write(data)
        if breaks:
            self.wfile.flush()
            self.close_connection = True
        if len(answers) == 1 and not breaks:
            server.pods[name]["status"]["phase"] = "Succeeded"
            if all(each["status"]["phase"] == "Succeeded" for each in server.pods.values()):
                server.job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]

    def _say(self, code: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogServer]:
    monkeypatch.setattr(pod_logs, "AGAIN_AFTER", 0.01)
    monkeypatch.setattr(pod_logs, "LOOK_EVERY", 0.02)
    here = LogServer()
    thread = threading.Thread(target=here.serve_forever, daemon=True)
    thread.start()
    yield here
    here.shutdown()
    here.server_close()
    thread.join()


@pytest.fixture
def config(server: LogServer, tmp_path: Path) -> Path:
    return kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")


def logs(config: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.main, ["logs", "train", "--kubeconfig", str(config), *words])


def test_two_ranks_are_merged_by_time_with_their_ranks_in_front(server: LogServer, config: Path) -> None:
    server.pods = {name: pod(name, index=index) for index, name in ((1, "b"), (0, "a"))}
    server.logs = {
        "a": [(at(1, "one") + at(4, "four") + at(5, "\x1b[2Jfive"), False)],
        "b": [(at(2, "two") + at(3, "three"), False)],
    }
    done = logs(config)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "[worker-0] one",
        "[worker-1] two",
        "[worker-1] three",
        "[worker-0] four",
        "[worker-0] �[2Jfive",
    ]
    one = logs(config, "--rank", "1", "--tail", "5", "--since", "10m", "--no-prefix")
    assert one.stdout.splitlines() == ["two", "three"]
    assert (server.asked[-1]["tailLines"], server.asked[-1]["sinceSeconds"]) == (["5"], ["600"])
    none = logs(config, "--rank", "7")
    assert none.exit_code == 1 and "no rank 7: ranks are 0 to 1" in none.stderr


def test_a_broken_connection_repeats_and_loses_no_line(server: LogServer, config: Path) -> None:
    server.pods = {"a": pod("a", "Running"), "b": pod("b", "Running", index=1)}
    equal = at(3, "equal") * 3
    server.logs = {
        "a": [
            (at(1, "one") + at(2, "two") + equal[: 2 * len(equal) // 3] + b"2026-01-01T00:00:04.0Z cut o", True),
            (at(2, "two") + equal + at(4, "cut off"), True),
            (equal + at(4, "cut off") + at(5, "five"), False),
        ],
        "b": [(at(1, "other"), False)],
    }
    done = logs(config, "-f")
    assert done.exit_code == 0, done.output
    of_a = [line.removeprefix("[worker-0] ") for line in done.stdout.splitlines() if line.startswith("[worker-0]")]
    assert of_a == ["one", "two", "equal", "equal", "equal", "cut off", "five"]
    assert done.stdout.count("other") == 1 and "reading goes on" in done.stderr
    resumed = [each["sinceTime"] for each in server.asked if each["pod"] == ["a"] and "sinceTime" in each]
    assert resumed[:2] == [["2026-01-01T00:00:02Z"], ["2026-01-01T00:00:03Z"]]


def test_a_job_that_another_may_not_read_names_the_role(server: LogServer, config: Path) -> None:
    server.pods = {"a": pod("a")}
    message = 'pods "a" is forbidden: User "mira" cannot get resource "pods/log" in API group "" in the namespace "ml"'
    server.refused = status(403, "Forbidden", message)
    for words in ((), ("-f",)):
        done = logs(config, *words)
        assert done.exit_code == 1 and "gangline-viewer-role gives this right" in done.stderr, done.output


def test_a_job_without_pods_says_when_there_are_some(server: LogServer, config: Path) -> None:
    done = logs(config)
    assert done.exit_code == 1 and "has no pods: they are there once it has started" in done.stderr


def test_a_job_of_many_pods_is_read_by_ranks(server: LogServer, config: Path) -> None:
    server.pods = {f"p{index}": pod(f"p{index}", index=index) for index in range(pod_logs.MOST_PODS + 1)}
    server.logs = {"p3": [(at(1, "three"), False)]}
    assert "choose by --rank" in logs(config).stderr
    assert logs(config, "--rank", "3").stdout == "[worker-3] three\n"


def test_ranks_go_on_through_the_roles_as_they_are_written() -> None:
    pods = [pod("a", role="actor", index=1), pod("b", role="reward"), pod("c", role="actor"), pod("d", role="reward")]
    found = pod_logs.ranked(pods, {"reward": 0, "actor": 1})
    assert [(each.rank, each.prefix, each.name) for each in found] == [
        *((0, "reward-0", "b"), (0, "reward-0", "d")),  # two attempts
        *((1, "actor-0", "c"), (2, "actor-1", "a")),
    ]


async def test_a_line_without_end_takes_no_memory(server: LogServer, config: Path) -> None:
    server.pods = {"a": pod("a")}
    server.logs = {"a": [(at(1, "x" * 3_000_000) + at(2, "next"), False)]}
    async with ApiClient(load(config, None)) as api:
        [seat] = pod_logs.ranked([server.pods["a"]], {})
        found = [line async for line, _ in pod_logs.lines(api, "ml", seat, {})]
    assert [len(line) <= pod_logs.LONGEST_LINE for line in found] == [True, True] and found[1].endswith(b"next")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_every_line_is_shown_once_wherever_the_connection_breaks(
    steps: list[tuple[int, int]], breaks: list[int]
) -> None:
    second, printed = 0.0, list[bytes]()
    for gap, text in steps:
        second += gap / 2
        printed.append(at(second, f"{text}").rstrip())
    position, shown = Position(), list[bytes]()
    for stop in [*sorted(min(each, len(printed)) for each in breaks), len(printed)]:
        position.begin()
        since = position.since[:19].encode()
        shown += [line for line in printed[:stop] if line[:19] >= since and position.is_new(line)]
    assert shown == printed


def test_what_has_no_time_is_shown_as_it_is() -> None:
    assert pod_logs.parsed(b"unable to read \xff", 0).text == "unable to read �"
