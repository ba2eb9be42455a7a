"""`gangline exec` and `gangline submit -i` in containers of a real kubelet, as a researcher."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster import accounts, harness
from tests.cluster.harness import Api
from tests.controlplane import PATIENCE, Kubectl
from tests.real.conftest import Field, manifests
from tests.realnodes import SHELL_IMAGE, shell_image

from gangline.api import names
from gangline.devcluster.building import build
from gangline.install.kinds import install_roles
from gangline.kube import resources as kube

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("real-nodes"), pytest.mark.timeout(600)]
Json = dict[str, Any]
SPACE, PYTHON = "training", "/usr/bin/python3"
MIRA = f"system:serviceaccount:{SPACE}:mira"
#: says the size of its terminal at each line of input, and ends with 4 at Ctrl-C
SCREEN = """
import os, sys
try:
    print("ready", flush=True)
    for line in sys.stdin:
        print("size", *os.get_terminal_size(), flush=True)
except KeyboardInterrupt:
    sys.exit(4)
"""


class Person:
    """A user with a kubeconfig of their own, and the commands that they type."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "gangline.console.cli", *words]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self._kubeconfig)}

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(words),
            env=self._environment(),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @contextmanager
    def at_terminal(self, *words: str) -> Iterator[Terminal]:
        ours, theirs = pty.openpty()
        resize(ours, 100, 30)
        process = subprocess.Popen(
            self._command(words),
            env=self._environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            process.wait()
            os.close(ours)


def resize(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    """A command at a terminal: what it shows, and the keys that are pressed."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process, self._ours = process, ours
        self.shown = ""

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        resize(self._ours, columns, rows)
        os.kill(self.process.pid, signal.SIGWINCH)

    def until(self, text: str, seconds: float = 60.0) -> None:
        """Wait until it has shown this."""
        deadline = time.monotonic() + PATIENCE * seconds
        os.set_blocking(self._ours, False)
        while text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown[-2000:]!r}"
            with suppress(BlockingIOError, OSError):
                self.shown += os.read(self._ours, 65536).decode(errors="replace")
            time.sleep(0.05)

    def ended(self, seconds: float = 60.0) -> int:
        """The exit status, once it has ended."""
        deadline = time.monotonic() + PATIENCE * seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown[-2000:]
            with suppress(BlockingIOError, OSError):
                self.shown += os.read(self._ours, 65536).decode(errors="replace")
            time.sleep(0.05)
        return self.process.returncode


@pytest.fixture
def shells(field: Field) -> None:
    assert field.plane.real is not None
    field.plane.real.load_image(shell_image())


@pytest.fixture
async def mira(field: Field, api: Api, tmp_path: Path) -> Person:
    """A researcher without the right to open terminals."""
    await install_roles(api.client)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mira", "namespace": SPACE}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "researchers", "namespace": SPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": names.RESEARCHER},
        "subjects": [{"kind": "ServiceAccount", "name": "mira", "namespace": SPACE}],
    }
    await accounts.apply(api, account, binding)
    kubeconfig = await accounts.login(api, field.plane.kubeconfig, tmp_path, "mira", SPACE)
    config = yaml.safe_load(kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = SPACE
    kubeconfig.write_text(yaml.safe_dump(config))
    return Person(kubeconfig)


def suggested_command(said: str) -> list[str]:
    """The command that an administrator is to type, by a refusal."""
    line = next(line for line in said.splitlines() if "kubectl create rolebinding" in line)
    return [*shlex.split(line.replace("NAME", "terminals", 1))[1:]]


async def test_commands_and_sessions_in_real_containers(field: Field, api: Api, mira: Person, shells: None) -> None:
    admin = Kubectl(build.kubectl(), field.plane.kubeconfig)
    [gang] = manifests("20-gpujob.yaml")
    gang["spec"]["template"]["spec"]["containers"][0]["args"] = ["--dir=/checkpoints/ddp", "--steps=100000"]
    await api.apply(gang)
    await api.until(lambda: all_run(api), "the gang runs", 90, namespace=SPACE)

    await asyncio.to_thread(without_the_right, mira, admin)
    await asyncio.to_thread(commands, mira)
    await asyncio.to_thread(a_terminal, mira)
    await api.client.delete(kube.GPU_JOBS, SPACE, "ddp", propagation="Background")
    await session_of_a_shell(api, mira)
    await session_whose_machine_dies(api, mira)


async def all_run(api: Api) -> bool:
    pods = await api.all(kube.PODS, SPACE)
    return sum(pod["status"].get("phase") == "Running" for pod in pods) == 4


def without_the_right(mira: Person, admin: Kubectl) -> None:
    """A refusal names the role and a command, and that very command gives the right."""
    refused = mira.run("exec", "ddp", "--", PYTHON, "-c", "print(1)")
    assert refused.returncode == 1 and refused.stdout == "", refused
    assert f"{MIRA} may not" in refused.stderr and names.TERMINAL_USER in refused.stderr
    with mira.at_terminal("submit", "-i", "--gpus", "1", "--image", SHELL_IMAGE) as terminal:
        assert terminal.ended() == 1
        assert names.TERMINAL_USER in terminal.shown and "Submitted" not in terminal.shown
    admin(*suggested_command(refused.stderr))


def commands(mira: Person) -> None:
    code = "import sys; data = sys.stdin.read(); print(data.upper()); print('bad', file=sys.stderr); sys.exit(7)"
    done = mira.run("exec", "ddp", "--", PYTHON, "-c", code, given="through and back\n" * 5000)
    if "may not" in done.stderr:  # the authorizer has not heard of the binding yet
        time.sleep(2)
        done = mira.run("exec", "ddp", "--", PYTHON, "-c", code, given="through and back\n" * 5000)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "THROUGH AND BACK\n" * 5000 + "\n" and done.stderr == "bad\n"
    for rank in (0, 3):
        result = mira.run("exec", f"ddp:{rank}", "--", PYTHON, "-c", "import os; print(os.environ['RANK'])")
        assert result.stdout.strip() == str(rank), result
    none = mira.run("exec", "ddp", "--", "/no/such/program")
    assert none.returncode not in (0, 7) and "no such file" in none.stderr, none
    beyond = mira.run("exec", "ddp:4", "--", PYTHON)
    assert beyond.returncode == 1 and "ranks are 0 to 3" in beyond.stderr


def a_terminal(mira: Person) -> None:
    """It has the size of ours, also when that changes, and gets each key."""
    with mira.at_terminal("exec", "ddp", "--", PYTHON, "-c", SCREEN) as terminal:
        terminal.until("ready")
        terminal.press("\n")
        terminal.until("size 100 30")
        terminal.resize(60, 20)
        time.sleep(1)
        terminal.press("\n")
        terminal.until("size 60 20")
        terminal.press("\x03")
        assert terminal.ended() == 4, terminal.shown


def open_session(terminal: Terminal) -> str:
    """The name of the session's job, once its shell answers."""
    terminal.until("(the terminal is in pod", 120)
    terminal.press("echo $((6 * 7))-$RANK$GANGLINE_INDEX\n")
    terminal.until("42-", 30)
    found = re.search(r"Submitted gpujob/(\S+) to LocalQueue", terminal.shown)
    assert found is not None, terminal.shown
    return found[1]


async def gone(api: Api, job: str) -> bool:
    pods = await api.all(kube.PODS, SPACE)
    return all(each["metadata"]["name"] != job for each in await api.all(kube.GPU_JOBS, SPACE)) and not [
        pod for pod in pods if pod["metadata"].get("labels", {}).get(names.GPUJOB_LABEL) == job
    ]


async def session_of_a_shell(api: Api, mira: Person) -> None:
    """It ends with its shell and has that one's exit status, and the job goes with it."""
    with mira.at_terminal("submit", "-i", "--gpus", "8", "--image", SHELL_IMAGE) as terminal:
        job = await asyncio.to_thread(open_session, terminal)
        terminal.press("exit 5\n")
        assert await asyncio.to_thread(terminal.ended) == 5, terminal.shown
        assert f"gpujob/{job} is deleted" in terminal.shown
    await api.until(lambda: gone(api, job), "the job and its pods are gone", 60, namespace=SPACE)


async def session_whose_machine_dies(api: Api, mira: Person) -> None:
    """The client is killed, as when its machine dies: the pod sees that its terminal is gone, and the job ends by itself."""
    with mira.at_terminal("submit", "-i", "--gpus", "8", "--image", SHELL_IMAGE) as terminal:
        job = await asyncio.to_thread(open_session, terminal)
        terminal.process.kill()

        async def failed() -> bool:
            workload = await api.workload_of(job, SPACE)
            return workload is not None and harness.condition_row(workload, names.FINISHED).get("reason") == "Failed"

        await api.until(failed, "the session's job ends", 90, namespace=SPACE)
