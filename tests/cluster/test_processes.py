"""Operators as a cluster runs them: from the command line, under any user, beside Kueue."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from bench.revisions import Revisions
from tests.cluster import authors
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, flavor, job, local_queue, wait_until

from gangline.api import names
from gangline.devcluster.building import build
from gangline.devcluster.processes.supervisor import free_of_proxies
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]

#: a user that /etc/passwd does not know, as OpenShift gives each namespace some
NOBODY = 1_000_650_000
#: a configuration with shorter times than usual
LEASE = "leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}"
#: for which a leader is stopped, in seconds
ASLEEP = 16.0


class Command:
    """`gangline admin operator` as a process. Its log is JSON."""

    def __init__(self, kubeconfig: Path, directory: Path, identity: str, *more: str, user: int | None = None) -> None:
        self.log, self.ready = directory / f"{identity}.log", directory / f"{identity}.json"
        self.ready.unlink(missing_ok=True)
        words = ["--kubeconfig", str(kubeconfig), "--identity", identity, "--ready-file", str(self.ready)]
        environment = {**free_of_proxies(), "HOME": str(directory)}
        for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
            environment.pop(name, None)
        options: Json = {} if user is None else {"user": user, "group": 0, "extra_groups": []}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gangline.console.cli",
                    "admin",
                    "operator",
                    *words,
                    "--log-format",
                    "json",
                    *more,
                ],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=directory,
                **options,
            )

    def wait_ready(self) -> Command:
        wait_until(lambda: self.ready.exists() or self.process.poll() is not None, 90, "the operator is ready")
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return self

    def lines(self) -> list[Json]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def asks(self, path: str) -> str:
        port = json.loads(self.ready.read_text())["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


@contextmanager
def commands() -> Iterator[Callable[..., Command]]:
    """Starts operators, and ends those that still run in the end."""
    started: list[Command] = []

    def start(*words: Any, **options: Any) -> Command:
        started.append(Command(*words, **options))
        return started[-1]

    try:
        yield start
    finally:
        for command in started:
            command.kill()


async def _queue(api: Api) -> None:
    await api.apply(flavor(), cluster_queue("cq", 4), local_queue("lq", "cq"))


async def _lease(api: Api) -> Json:
    return (await api.get(kube.LEASES, names.KUEUE_LEASE, names.KUEUE_NAMESPACE))["spec"]


async def test_an_operator_whose_user_nobody_knows_decides(system: System, api: Api) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root starts processes of other users")
    with tempfile.TemporaryDirectory(prefix="gangline-nobody-") as name, commands() as start:
        directory = Path(name)
        kubeconfig = Path(shutil.copy(system.operators_login, directory))
        for path in (directory, kubeconfig):
            os.chown(path, NOBODY, 0)
        operator = start(kubeconfig, directory, "nobody", user=NOBODY).wait_ready()
        await _queue(api)
        await api.create(job("j", "lq", gpus=2, runtime="300ms"))
        await api.finished("j")

        async def both_logged() -> bool:
            lines = [line for line in operator.lines() if line["logger"] == "gangline.control.writes.decision_log"]
            rows = [(row["message"], row["workload"].rpartition("-")[0], row["queue"], row["flavors"]) for row in lines]
            return rows == [(what, "default/job-j", "cq", "gpu") for what in ("admitted", "finished")]

        await api.until(both_logged, "the log has both decisions")
        assert operator.stop() == 0, operator.log.read_text()[-3000:]


async def test_a_leader_that_was_asleep_under_load_writes_nothing_any_more(
    system: System, api: Api, tmp_path: Path
) -> None:
    """It is stopped in the middle of its work for much longer than its Lease lasts, and goes on while the other one leads."""
    before = int((await api.official.list(kube.NODES)).version)
    configuration = tmp_path / "kueue.yaml"
    configuration.write_text(LEASE)
    started = (system.operators_login, tmp_path)
    with commands() as start:
        one = start(*started, "first", "--config", str(configuration)).wait_ready()
        await _queue(api)
        await api.create(*(job(f"a{number}", "lq", gpus=2, runtime="300ms") for number in range(8)))
        await api.finished("a0")
        two = start(*started, "second", "--config", str(configuration)).wait_ready()
        assert one.asks("/readyz") == "ok\nleading\n"
        await api.until(
            lambda: _says(two, "waiting: 'first' holds Lease kueue-system/c1f6bfd2.kueue.x-k8s.io since"), "it waits"
        )
        async with Revisions.of(api.official) as revisions:
            os.kill(one.process.pid, signal.SIGSTOP)
            woken = time.monotonic() + ASLEEP
            jobs: list[str] = []
            while time.monotonic() < woken:
                jobs.append(f"b{len(jobs)}")
                await api.create(job(jobs[-1], "lq", gpus=2, runtime="300ms"))
                await asyncio.sleep(0.5)
            await api.create(*(job(f"c{number}", "lq", gpus=2, runtime="300ms") for number in range(8)))
            os.kill(one.process.pid, signal.SIGCONT)
            await api.finished(*jobs, *(f"c{number}" for number in range(8)), seconds=60)
            proof = await revisions.settle()
        assert await asyncio.to_thread(one.process.wait, 30) == 1, "who lost the Lease ends"
        assert (await _lease(api))["holderIdentity"] == "second"
        assert two.asks("/readyz") == "ok\nleading\n"
        assert two.stop() == 0, two.log.read_text()[-3000:]
    assert not proof.violations, "\n".join(proof.violations[:20])
    wrong, right = authors.usurped(authors.written(authors.log(system.directory), after=before))
    assert not wrong, "\n".join(wrong[:20])
    assert right["first"] and right["second"] >= 3 * len(jobs), "at least to admit, to start and to finish each job"


async def _says(operator: Command, words: str) -> bool:
    return words in operator.asks("/readyz")


@contextmanager
def kueue(system: System, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds Kueue's Lease as Kueue does, by client-go: a scheduler that schedules for nobody."""
    program = build.CONTROL_PLANE.binaries_directory() / "kube-scheduler"
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(system.kubeconfig)},
        "profiles": [{"schedulerName": "nobodys"}],
        "leaderElection": {
            "leaderElect": True,
            "resourceName": names.KUEUE_LEASE,
            "resourceNamespace": names.KUEUE_NAMESPACE,
            "leaseDuration": "6s",
            "renewDeadline": "4s",
            "retryPeriod": "1s",
        },
    }
    (directory / "scheduler.json").write_text(json.dumps(configuration))
    with (directory / "scheduler.log").open("wb") as log:
        words = [str(program), f"--config={directory / 'scheduler.json'}", "--secure-port=0"]
        process = subprocess.Popen(words, stdout=log, stderr=log, env=free_of_proxies())
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


async def test_kueue_and_gangline_never_decide_at_once(system: System, api: Api, tmp_path: Path) -> None:
    """client-go's candidate and ours hold one Lease in turn, and respect each other's times."""
    configuration = tmp_path / "kueue.yaml"
    configuration.write_text(LEASE)
    with suppress(NotFound):
        await api.client.delete(kube.LEASES, names.KUEUE_NAMESPACE, names.KUEUE_LEASE)

    async def holder() -> str:
        try:
            return (await _lease(api)).get("holderIdentity") or ""
        except NotFound:
            return ""

    async def theirs() -> str:
        found = await holder()
        return found if found not in ("", "ours") else ""

    async def ours() -> bool:
        return await holder() == "ours"

    with commands() as start:
        with kueue(system, tmp_path) as foreign:
            other = await api.until(theirs, "client-go holds the Lease")
            words = ("--config", str(configuration))
            operator = start(system.operators_login, tmp_path, "ours", *words).wait_ready()
            await api.until(lambda: _says(operator, f"waiting: {other!r} holds Lease"), "it waits")
            await _queue(api)
            await api.create(job("j", "lq", gpus=2, runtime="300ms"))
            transitions = (await _lease(api))["leaseTransitions"]
            await asyncio.sleep(8)  # longer than a Lease that is not renewed lasts
            assert await holder() == other, "as long as it renews"
            assert (await api.get(kube.JOBS, "j"))["spec"]["suspend"], "nothing is decided beside Kueue"
            said = [
                line
                for line in operator.lines()
                if line["message"].startswith("waiting: ") and "holds" in line["message"]
            ]
            assert len(said) == 1, "who holds the Lease is said once"
            foreign.kill()
            foreign.wait(10)
        await api.until(ours, "Gangline leads once Kueue renews no more", 20)
        assert (await _lease(api))["leaseTransitions"] == transitions + 1
        await api.finished("j")

        with kueue(system, tmp_path) as foreign:
            await asyncio.sleep(9)
            assert foreign.poll() is None and await ours(), "client-go respects what we write"
            operator.process.kill()
            operator.process.wait(10)
            taken = await api.until(theirs, "client-go takes over after our Lease's time", 20)
            assert taken != other
            await api.create(job("k", "lq", gpus=2, runtime="300ms"))
            again = start(system.operators_login, tmp_path, "ours", *words).wait_ready()
            await api.until(lambda: _says(again, f"waiting: {taken!r} holds Lease"), "it waits again")
            foreign.terminate()
            await api.until(ours, "it leads once the other one has ended", 20)
            await api.finished("k")
        assert again.stop() == 0
        assert not await holder(), "given back"
