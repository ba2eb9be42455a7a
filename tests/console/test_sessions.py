"""`gangline exec` and `gangline submit -i`: the streams of this process, which pod is meant, and how a session ends."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.kube.exec_server import ExecServer

from gangline.console import cli
from gangline.console.commands.start import exec as exec_command
from gangline.console.submitting import session as submitted
from gangline.console.submitting import wishes
from gangline.console.views import pod_logs, remote_terminal, session, targets
from gangline.console.views.pod_logs import RankedPod
from gangline.console.views.remote_terminal import OwnStreams, PodOfJob
from gangline.console.views.targets import Target
from gangline.kube.client import ApiClient
from gangline.kube.config import Login
from gangline.kube.errors import Unavailable
from gangline.kube.remote_process import RemoteCommand
from gangline.kube.resources import GPU_JOBS, Json

JOB: Json = {
    "apiVersion": GPU_JOBS.api_version,
    "kind": "GPUJob",
    "metadata": {"name": "session", "namespace": "ml", "uid": "u1"},
    "spec": {"runtime": {"limit": "1h"}},
}


def ranked(rank: int = 0, phase: str = "Running", name: str = "") -> RankedPod:
    return RankedPod(rank, str(rank), name or f"train-{rank}", f"uid-{rank}-{name}", phase, ("main", "sidecar"))


class Streams(OwnStreams):
    """The streams of a test: a file descriptor as input, and what is written."""

    def __init__(self, source: int) -> None:
        super().__init__(source)
        self.written: dict[bool, bytes] = {False: b"", True: b""}
        self.seen = asyncio.Event()

    def size(self) -> tuple[int, int]:
        return (100, 30)

    def write(self, data: bytes, *, err: bool) -> None:
        self.written[err] += data
        self.seen.set()

    async def until(self, text: bytes) -> None:
        while text not in self.written[False]:
            self.seen.clear()
            await self.seen.wait()


@contextmanager
def piped(data: bytes = b"") -> Iterator[Streams]:
    source, target = os.pipe()
    os.write(target, data)
    os.close(target)
    try:
        yield Streams(source)
    finally:
        os.close(source)


async def run(server: ExecServer, streams: OwnStreams, *words: str, tty: bool = False, **more: Any) -> int:
    async with ApiClient(server.login()) as api:
        command = RemoteCommand("ml", "train-0", "main", words, tty=tty, takes_input=True)
        return await remote_terminal.run_in_pod(api, command, streams, **more)


# --- exec -------------------------------------------------------------------------------------------------------------


async def test_a_pipe_goes_through_the_pod_and_back() -> None:
    async with ExecServer() as server:
        with piped(b"b\na\n") as streams:
            assert await run(server, streams, "sort") == 0
            assert streams.written == {False: b"a\nb\n", True: b""}
        with piped() as streams:
            assert await run(server, streams, "sh", "-c", "echo no >&2; exit 7") == 7
            assert streams.written == {False: b"", True: b"no\n"}


async def test_a_file_is_an_input_too(tmp_path: Any) -> None:
    (tmp_path / "data").write_bytes(b"x" * 100_000)
    source = os.open(tmp_path / "data", os.O_RDONLY)
    async with ExecServer() as server:
        streams = Streams(source)
        assert await run(server, streams, "wc", "-c") == 0
    assert streams.written[False].strip() == b"100000"
    os.close(source)


async def test_a_terminal_has_its_size_its_keys_and_its_state_back() -> None:
    import termios

    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    async with ExecServer() as server:
        streams = Streams(slave)
        assert streams.is_terminal
        words = ("sh", "-c", 'trap "echo caught; exit 4" INT; echo ready; while :; do sleep 0.1; done')
        running = asyncio.create_task(run(server, streams, *words, tty=True))
        await streams.until(b"ready")
        assert termios.tcgetattr(slave) != before, "each key goes to the pod as it is"
        os.write(master, b"\x03")
        assert await running == 4
    assert b"caught" in streams.written[False] and server.sizes == [(100, 30)]
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


async def test_a_terminal_tells_each_new_size() -> None:
    master, slave = pty.openpty()
    async with ExecServer() as server:
        streams = Streams(slave)
        running = asyncio.create_task(run(server, streams, "sh", "-c", "echo ready; read line", tty=True))
        await streams.until(b"ready")
        os.kill(os.getpid(), signal.SIGWINCH)
        while len(server.sizes) < 2:
            await asyncio.sleep(0.01)
        os.write(master, b"\r")
        assert await running == 0
    os.close(master)
    os.close(slave)


async def test_what_runs_beside_can_tell_and_ends_with_the_command() -> None:
    ended = asyncio.Event()

    async def beside(tell: Callable[[str], None]) -> None:
        tell("soon \x1b[2Jover")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with ExecServer() as server:
        with piped() as streams:
            assert await run(server, streams, "true", beside=beside) == 0
    assert ended.is_set() and b"over" in streams.written[True] and b"\x1b" not in streams.written[True]


@pytest.mark.parametrize("text", ["train:", "train:x", "train:-1", "train:" + "9" * 30, ":3", ""])
def test_a_rank_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="a job and a rank, as in train:3"):
        PodOfJob.read(text)


def test_a_command_that_is_too_long_is_refused() -> None:
    with pytest.raises(click.UsageError, match="longer than 32 KiB"):
        remote_terminal.command_in("ml", ranked(), "main", ["echo", "é" * 20_000], tty=False)


def test_a_job_and_its_rank() -> None:
    assert PodOfJob.read("train") == PodOfJob("train", 0)
    assert PodOfJob.read("job/train:12") == PodOfJob("job/train", 12)


@pytest.mark.parametrize(
    ("pods", "rank", "said"),
    [
        ([], 0, "has no pods"),
        ([ranked()], 1, "ranks are 0 to 0"),
        ([ranked(phase="Pending")], 0, "does not run: it is Pending"),
        ([ranked(phase="Succeeded")], 0, "does not run: it is Succeeded"),
    ],
)
async def test_a_pod_that_does_not_run_is_named(
    pods: list[RankedPod], rank: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(*_: Any) -> list[RankedPod]:
        return pods

    monkeypatch.setattr(pod_logs, "pods_of", found)
    target = Target("gpujob/train", None, None, GPU_JOBS, JOB)
    with pytest.raises(click.ClickException, match=said):
        await remote_terminal.running_pod(None, "ml", target, rank)  # type: ignore[arg-type]


async def test_the_newest_pod_of_a_rank_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_: Any) -> list[RankedPod]:
        return [ranked(name="old", phase="Failed"), ranked(name="lost"), ranked(name="new"), ranked(1)]

    monkeypatch.setattr(pod_logs, "pods_of", found)
    target = Target("gpujob/train", None, None, GPU_JOBS, JOB)
    pod = await remote_terminal.running_pod(None, "ml", target, 0)  # type: ignore[arg-type]
    assert pod.name == "new" and remote_terminal.container_of(pod, "") == "main"
    assert remote_terminal.container_of(pod, "sidecar") == "sidecar"
    with pytest.raises(click.ClickException, match="no container 'x': it has main, sidecar"):
        remote_terminal.container_of(pod, "x")


@pytest.mark.parametrize("line", ["train", "train --tty -- true", "--tty train -- true", "train: -- true"])
def test_a_wrong_line_of_exec_ends_with_2(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_command.targets, "find", None)
    done = CliRunner().invoke(cli.main, ["exec", *line.split()])
    if line == "train --tty -- true":  # what stands after the job is the command
        assert done.exit_code == 1
    else:
        assert done.exit_code == 2, done.output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train -- ls -l", ("ls", "-l")),
        ("train ls -- -l", ("ls", "--", "-l")),
        ("train -- -- ls", ("--", "ls")),
        ("-- train ls", ("ls",)),
    ],
)
def test_the_command_begins_after_the_dashes(
    line: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    async def ran(api: Any, command: RemoteCommand, streams: Any) -> int:
        del api, streams
        asked.append(tuple(command.words))
        return 0

    async def found(*_: Any) -> Any:
        return ranked()

    monkeypatch.setattr(exec_command.targets, "find", found)
    monkeypatch.setattr(remote_terminal, "running_pod", found)
    monkeypatch.setattr(remote_terminal, "run_in_pod", ran)
    monkeypatch.setattr(exec_command.access, "client", lambda *_: ApiClient(Login("http://127.0.0.1:1")))
    done = CliRunner().invoke(cli.main, ["exec", "-n", "ml", "--no-tty", *line.split()])
    assert done.exit_code == 0, done.output
    assert asked == [words]


# --- sessions ---------------------------------------------------------------------------------------------------------


class Cluster:
    """What a session looks at: the job's pods, as they become, and the deletions."""

    def __init__(self, *looks: Any) -> None:
        self.looks = list(looks)
        self.deleted: list[tuple[str, str]] = []
        self.clock = self
        self.paused: list[float] = []
        self.now = 1_000_000.0

    def seconds(self) -> float:
        return self.now

    async def delete(self, resource: Any, namespace: str, name: str, *, propagation: str, uid: str) -> Json:
        assert resource == GPU_JOBS and propagation == "Background"
        self.deleted.append((name, uid))
        return {}

    async def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    here = Cluster()
    target = Target("gpujob/session", None, None, GPU_JOBS, JOB)

    async def find(*_: Any) -> Target:
        return target

    async def pods(*_: Any) -> list[RankedPod]:
        found = here.looks.pop(0) if len(here.looks) > 1 else here.looks[0]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(targets, "find", find)
    monkeypatch.setattr(pod_logs, "pods_of", pods)
    return here


def runs(monkeypatch: pytest.MonkeyPatch, how: Any) -> list[RemoteCommand]:
    asked: list[RemoteCommand] = []

    async def run_in_pod(api: Any, command: RemoteCommand, streams: Any, beside: Any) -> int:
        asked.append(command)
        return await how(beside)

    monkeypatch.setattr(remote_terminal, "run_in_pod", run_in_pod)
    return asked


async def hold(place: Cluster) -> int:
    with piped() as streams:
        return await session.hold(place, "ml", JOB, ["bash"], ["guard"], streams, place.pause)  # type: ignore[arg-type]


async def test_a_session_waits_opens_its_terminal_and_deletes_its_job(
    place: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.looks = [[], Unavailable(0, "Gone", "away"), [ranked(phase="Pending")], [ranked(), ranked(1)]]

    async def ends(_: Any) -> int:
        assert place.deleted == []
        return 5

    asked = runs(monkeypatch, ends)
    assert await hold(place) == 5
    assert asked == [RemoteCommand("ml", "train-0", "main", ["bash"], tty=True, takes_input=True)]
    assert place.deleted == [("session", "u1")] and place.paused == [session.LOOK_EVERY] * 3
    printed = capsys.readouterr().err
    assert (
        printed.count("gpujob/session is submitted") == 1
        and "away" in printed
        and "gpujob/session is deleted" in printed
    )


@pytest.mark.parametrize("which", [signal.SIGHUP, signal.SIGTERM, None])
@pytest.mark.parametrize("opened", [False, True])
async def test_a_session_that_is_ended_from_outside_deletes_its_job(
    place: Cluster, monkeypatch: pytest.MonkeyPatch, which: signal.Signals | None, opened: bool
) -> None:
    place.looks = [[ranked()]] if opened else [[]]
    waiting = asyncio.Event()

    async def stays(_: Any) -> int:
        waiting.set()
        return await asyncio.Event().wait()

    async def pause(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    runs(monkeypatch, stays)
    place.pause = pause  # type: ignore[method-assign]
    task = asyncio.create_task(hold(place))
    await waiting.wait()
    if which is None:  # as Ctrl-C does
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        os.kill(os.getpid(), which)
        assert await task == 128 + which
    assert place.deleted == [("session", "u1")]


async def test_a_connection_that_breaks_ends_the_session(
    place: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.looks = [[ranked()]]

    async def breaks(_: Any) -> int:
        raise Unavailable(0, "ConnectionLost", "the connection to the container is lost")

    runs(monkeypatch, breaks)
    assert await hold(place) == 1
    assert place.deleted == [("session", "u1")]
    assert "the connection to the container is lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limit", "began", "warnings"),
    [
        ("1h", 0, {3300: "5 minutes", 3540: "1 minute"}),
        ("1h", 3400, {140: "1 minute"}),
        ("4m", 0, {180: "1 minute"}),
        ("1h", 4000, {}),
    ],
)
async def test_a_session_is_warned_before_its_time_is_up(limit: str, began: int, warnings: dict[int, str]) -> None:
    place, warned = Cluster(), {}
    start = place.now

    def tell(text: str) -> None:
        warned[round(place.now - start)] = text

    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": "1970-01-12T13:46:40Z"}
    place.now = start = 1_000_000.0 + began
    job = {**JOB, "spec": {"runtime": {"limit": limit}}}
    target = Target("gpujob/session", None, {"status": {"conditions": [admitted]}}, GPU_JOBS, job)
    await session._warn(place, job, target, tell, place.pause)  # type: ignore[arg-type]
    assert list(warned) == list(warnings)
    for at, words in warnings.items():
        assert f"ends in {words}" in warned[at]


@contextmanager
def keeper(tmp_path: Any, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process that keeps a session's pod, with a folder of its own in place of /tmp; it prints into the file `log`."""
    words = [word.replace("/tmp/", f"{tmp_path}/") for word in submitted.keeper().words]
    own = {**os.environ, "HOSTNAME": "here", **environment}
    with (tmp_path / "log").open("wb") as log:
        kept = subprocess.Popen(words, env=own, stdout=log, start_new_session=True)
    try:
        yield kept
    finally:
        with suppress(ProcessLookupError):
            os.killpg(kept.pid, signal.SIGKILL)
        kept.wait()


def until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_the_pod_of_a_session_ends_when_its_terminal_is_gone(tmp_path: Any) -> None:
    mark = tmp_path / ".gangline-session-here"
    mark.write_text("1\n")  # of an earlier start of the container
    with keeper(tmp_path) as kept:
        until(lambda: not mark.stat().st_size)
        words = submitted.in_terminal(["sh", "-c", "read line; exit 3"])
        words = [word.replace("/tmp/", f"{tmp_path}/") for word in words]
        shell = subprocess.Popen(words, env={**os.environ, "HOSTNAME": "here"}, stdin=subprocess.PIPE)
        until(lambda: mark.stat().st_size > 0)
        assert kept.poll() is None and shell.stdin is not None
        shell.stdin.close()
        assert shell.wait() == 3
        until(lambda: kept.poll() is not None)
        assert (kept.returncode, (tmp_path / "log").read_text()) == (1, "the terminal is closed\n")


@pytest.mark.parametrize("index", ["0", "1"])
def test_the_pods_of_a_session_end_at_once_when_they_are_deleted(tmp_path: Any, index: str) -> None:
    with keeper(tmp_path, GANGLINE_INDEX=index) as kept:
        until(lambda: "sleep" in children(kept.pid))
        kept.send_signal(signal.SIGTERM)
        until(lambda: kept.poll() is not None)
        assert kept.returncode == 0


def children(pid: int) -> list[str]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{each}/comm").read_text().strip() for each in found]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("array", "0-3", "a session is one job"), ("time", "unlimited", "a session has a limit")],
)
def test_a_session_has_a_limit_and_is_one_job(name: str, value: str, said: str) -> None:
    with pytest.raises(wishes.WishError, match=said):
        submitted.of_session(wishes.merged([wishes.given(name, value)]))


def test_a_session_that_names_no_limit_has_one() -> None:
    for given, limit in (((), "4h"), ((wishes.given("time", "30"),), "30")):
        found = submitted.of_session(wishes.merged(given)).one("time")
        assert found is not None and found.value == limit


@pytest.mark.parametrize("line", ["-i train.sh", "-i --from a", "-i -W", "-i -f -- bash", "-i", "-i -- bash"])
def test_a_session_needs_a_terminal_and_goes_with_no_script(line: str) -> None:
    done = CliRunner().invoke(cli.main, ["submit", *line.split()])
    assert done.exit_code == 2, done.output
    assert ("needs a terminal" if line in ("-i", "-i -- bash") else "goes with no script") in done.stderr


@pytest.mark.parametrize("ignores", [False, True], ids=["a hangup ends it", "it ignores hangups"])
def test_the_terminal_ends_when_the_connection_of_its_user_is_gone(tmp_path: Any, ignores: bool) -> None:
    """As after the death of the user's machine: the terminal's own streams stay open, the input of the guard ends."""
    own = {**os.environ, "HOSTNAME": "here"}
    here = [word.replace("/tmp/", f"{tmp_path}/").replace("sleep 5", "sleep 0.2") for word in submitted.guard()]
    program = "trap '' HUP; echo ready; while :; do sleep 0.1; done" if ignores else "echo ready; exec sleep 600"
    words = [word.replace("/tmp/", f"{tmp_path}/") for word in submitted.in_terminal(["sh", "-c", program])]
    with keeper(tmp_path) as kept:
        until((tmp_path / ".gangline-session-here").exists)  # the pod runs before a terminal is opened in it
        master, slave = pty.openpty()
        shown = subprocess.Popen(words, env=own, stdin=slave, stdout=subprocess.PIPE, start_new_session=True)
        assert shown.stdout is not None and shown.stdout.readline() == b"ready\n"
        watched = subprocess.Popen(here, env=own, stdin=subprocess.PIPE, start_new_session=True)
        time.sleep(0.2)
        assert shown.poll() is None and watched.poll() is None
        assert watched.stdin is not None
        watched.stdin.close()
        assert shown.wait(20) in (-signal.SIGHUP, -signal.SIGKILL)
        assert kept.wait(20) == 1
        watched.wait(20)
        shown.stdout.close()
        os.close(master)
        os.close(slave)
    assert (tmp_path / "log").read_text() == "the terminal is closed\n"


async def test_the_guard_runs_beside_the_terminal_as_long_as_that(
    place: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.looks = [[ranked()]]
    kept: list[RemoteCommand] = []
    open_now = asyncio.Event()

    async def keep_open(api: Any, command: RemoteCommand) -> None:
        kept.append(command)
        open_now.set()
        await asyncio.Event().wait()

    async def runs_beside(beside: Any) -> int:
        task = asyncio.create_task(beside(lambda text: None))
        await open_now.wait()
        task.cancel()
        return 0

    monkeypatch.setattr(remote_terminal, "keep_open", keep_open)
    runs(monkeypatch, runs_beside)
    assert await hold(place) == 0
    assert kept == [RemoteCommand("ml", "train-0", "main", ["guard"], tty=False, takes_input=True)]


async def test_what_is_kept_open_has_an_input_without_end_and_may_fail() -> None:
    async with ExecServer() as server, ApiClient(server.login()) as api:
        command = RemoteCommand("ml", "train-0", "main", ("cat",), takes_input=True)
        task = asyncio.create_task(remote_terminal.keep_open(api, command))
        await asyncio.sleep(0.5)
        assert not task.done()
        assert server.asked[0]["stdin"] == ["true"] and "tty" not in server.asked[0]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with ExecServer(forbids="no") as server, ApiClient(server.login()) as api:
        await remote_terminal.keep_open(api, command)
