"""One control plane with Gangline's CRDs and webhooks per test process; operators are started by the tests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner
from tests.cluster import accounts, authors, harness

from gangline.console.cli import main
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.nodes import EqualNodes, create_pools
from gangline.install import rights
from gangline.install.kinds import install_kinds

#: 16 GPU nodes of 8 and one TPU pool: enough for every test, whose quotas are far smaller.
POOLS = (
    EqualNodes("gpu", 16, {"nvidia.com/gpu": 8}),
    EqualNodes("tpu", 8, {"google.com/tpu": 4}, {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}),
)


Before: TypeAlias = Callable[[harness.Api], Awaitable[None]]

#: a manager and two worker clusters
TRIO = MANAGER, FIRST, SECOND = "manager", "worker-1", "worker-2"

#: how a process of ours, or kopf within it, tells of a 403
REFUSED = re.compile(r"was refused \(403\)|APIForbiddenError|is forbidden: User")


@dataclass
class System:
    plane: LocalControlPlane
    directory: Path
    webhooks: harness.WebhookProcess
    #: by which operators log in: they may do what `gangline admin rbac` grants, and no more
    operators_login: Path
    running: list[harness.OperatorProcess] = field(default_factory=list)
    #: the test has restarted the API server
    restarted: bool = False
    _read: dict[Path, int] = field(default_factory=dict)  # how much of each log

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    def operator(
        self,
        identity: str = "operator",
        fault: str = "",
        *,
        login: Path | None = None,
        replaced: harness.Replaced | None = None,
        **arguments: object,
    ) -> harness.OperatorProcess:
        """A started operator; alone and leading at once unless `leader_election=True`."""
        chosen = {"leader_election": False, **arguments}
        login = login or self.operators_login
        process = harness.OperatorProcess(login, self.directory, identity, fault, chosen, replaced or {}).start()
        self.running.append(process)
        return process

    async def printed(self, *words: str) -> harness.Json:
        """The document that a command prints for the administrator."""
        line = [*words, "-o", "json", "--kubeconfig", str(self.kubeconfig)]
        result = await asyncio.to_thread(CliRunner().invoke, main, line)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def restart_apiserver(self) -> None:
        """Until it knows its roles again, it refuses everything to everybody but the administrator."""
        self.restarted = True
        self.plane.restart_apiserver()

    def new_refusals(self) -> list[str]:
        """What operators and webhooks wanted to do since this was last asked, without having the right to."""
        found: list[str] = []
        for path in self.directory.glob("*.log"):
            with path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                found += [line for line in log.read().decode(errors="replace").splitlines() if REFUSED.search(line)]
                self._read[path] = log.tell()
        return found

    def kill_operators(self) -> None:
        for process in self.running:
            process.kill()
        self.running.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows what the operators that it started said last."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    system = getattr(item, "funcargs", {}).get("system")
    if report.when == "call" and report.failed and isinstance(system, System):
        for operator in system.running:
            report.sections.append((f"log of {operator.identity}", operator.tail()))


@contextmanager
def standing(
    directory: Path,
    crds: Sequence[harness.Json] | None = None,
    version: str | None = None,
    before: Before | None = None,
    pools: Sequence[EqualNodes] = POOLS,
) -> Iterator[System]:
    """A control plane with these kinds (by default, all), nodes, accounts and webhooks. `before`: what happens on it first."""
    options = ControlPlaneOptions(
        gogc=200,
        flags={"kube-apiserver": authors.flags(directory)},
        version=version,
        # nodes renew their Leases every 40 s, not 10: while nothing happens, nothing else is written
        node_lease=160,
        node_monitor_grace=120,
    )
    with LocalControlPlane(options) as control_plane:
        asyncio.run(_prepare(control_plane.kubeconfig, crds, before, pools))
        logins = asyncio.run(accounts.grant(control_plane.kubeconfig, directory))
        webhooks = harness.WebhookProcess(logins[rights.WEBHOOKS.name], directory).start()
        system = System(control_plane, directory, webhooks, logins[rights.OPERATOR.name])
        yield system
        system.kill_operators()
        webhooks.stop()


async def _prepare(
    kubeconfig: Path, crds: Sequence[harness.Json] | None, before: Before | None, pools: Sequence[EqualNodes]
) -> None:
    async with harness.connect(kubeconfig) as api:
        if before is not None:
            await before(api)
        await install_kinds(api.client, crds)
        await create_pools(api.client, pools)


@dataclass
class Trio:
    """A manager and two worker clusters, which run from the first test that asks for them to the last one in a row.

    The modules that use them start their own operators there.
    """

    folders: pytest.TempPathFactory
    _running: ExitStack = field(default_factory=ExitStack)
    _systems: dict[str, System] = field(default_factory=dict)

    def systems(self) -> dict[str, System]:
        if not self._systems:
            for name in TRIO:
                self._systems[name] = self._running.enter_context(standing(self.folders.mktemp(name)))
        return self._systems

    def end(self) -> None:
        self._systems = {}
        self._running.close()


@pytest.fixture(scope="session")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    trio = Trio(tmp_path_factory)
    yield trio
    trio.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends the three control planes where the next test does not need them: idle ones take a share of the CPU."""
    trio = getattr(item, "funcargs", {}).get("trio")
    try:
        return (yield)
    finally:
        if isinstance(trio, Trio) and "trio" not in getattr(nextitem, "fixturenames", ()):
            trio.end()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with standing(tmp_path_factory.mktemp("gangline")) as system:
        yield system


@pytest.fixture
async def system(plane: System) -> AsyncIterator[System]:
    """The control plane, empty; what the test leaves behind is removed. Operators and webhooks have the rights for all of it."""
    plane.restarted = False
    yield plane
    plane.kill_operators()
    async with harness.connect(plane.kubeconfig) as api:
        await api.withdraw_answers()
        await api.wipe()
    refused = plane.new_refusals()
    assert plane.restarted or not refused


@pytest.fixture
async def api(system: System) -> AsyncIterator[harness.Api]:
    async with harness.connect(system.kubeconfig) as connected:
        yield connected
