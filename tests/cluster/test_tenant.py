"""A tenant who does anything with what it may write, and another team, whose jobs are admitted as fast as ever.

A short run is one of many tests that share a machine, and waits say little there: it judges that nobody waits for ever, that all
processes go on, and their memory. Only a run of at least a ROUND judges how much longer the other team waits.

GANGLINE_TENANT_SECONDS says how long (default 20), GANGLINE_TENANT_SEED which attempts:

    make fuzz-cluster MINUTES=60 SEED=7
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster import harness
from tests.cluster.accounts import LIFE, RESOURCES
from tests.cluster.conftest import System
from tests.cluster.harness import Api, OperatorProcess, cluster_queue, connect, flavor, job, local_queue, priority_class
from tests.cluster.stand_in import StandIn, uninstall
from tests.fuzz.tenant import Tenant, role

from gangline.api import names
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Reflector, Upsert
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
SECONDS = float(os.environ.get("GANGLINE_TENANT_SECONDS", "20"))
SEED = int(os.environ.get("GANGLINE_TENANT_SEED", "1"))
#: attempts of the tenant and jobs of the other team, a second
ATTEMPTS, PROBES = 8.0, 0.5
#: jobs of the other team while the tenant rests
USUALLY = 12
#: after so many seconds the tenant rests, while it is measured again how fast they are usually admitted
ROUND = 300.0
#: so many times as long as usually may an admission take under attack, in the median
SLOWER = 2.0
#: the API server takes at least so much of what the tenant attempts
TAKEN = 1 / 8
#: MB that the chart allows a process
MOST_MEMORY, MOST_MEMORY_OF_WEBHOOKS = 2048, 512
#: nobody waits for so long, in seconds; the machine may be busy with other tests during a short run
STALL = 10.0 if SECONDS > 60 else 30.0
#: what a process says when it was not ready for something
UNPREPARED = re.compile(
    r"failed in this round|was never retrieved|the operator ended|Unhandled|^\w*Error: ", re.MULTILINE
)


@dataclass
class Team:
    """Jobs of another team, one after the other: how long each waits for its admission, and to its end, in seconds."""

    api: Api
    made: dict[str, float] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def submit(self) -> str:
        name = f"probe-{next(self._numbers)}"
        body = job(name, "others", pods=4, gpus=1, runtime="200ms", namespace="others")
        body["spec"]["ttlSecondsAfterFinished"] = 5
        self.made[name] = time.monotonic()
        await self.api.create(body)
        return name

    def take(self, event: Event) -> None:
        if not isinstance(event, Upsert):
            return
        name = event.obj["metadata"]["name"]
        if name in self.made and not event.obj["spec"].get("suspend"):
            self.waits.setdefault(name, time.monotonic() - self.made[name])
        if harness.condition(event.obj, "Complete"):
            self.ended.add(name)

    async def served(self, name: str) -> None:
        while name not in self.waits and time.monotonic() - self.made[name] < STALL:
            await asyncio.sleep(0.05)

    def stalled(self) -> list[str]:
        """Those who wait for too long, or did."""
        now = time.monotonic()
        return [name for name, made in self.made.items() if self.waits.get(name, now - made) > STALL]


@contextlib.asynccontextmanager
async def watched(api: Api) -> AsyncIterator[Team]:
    team, reflector = Team(api), Reflector(api.client, kube.JOBS, namespace="others")
    watching = asyncio.ensure_future(reflector.run(team.take))
    await reflector.synced.wait()
    try:
        yield team
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def login(api: Api, system: System, namespace: str) -> Path:
    """A kubeconfig by which somebody is the tenant."""
    for body in role(namespace):
        known = {**RESOURCES, "ResourceQuota": Resource("", "v1", "resourcequotas")}
        meta = body["metadata"]
        await api.client.patch(
            known[body["kind"]],
            meta.get("namespace"),
            meta["name"],
            body,
            kind="apply",
            field_manager="test",
            force=True,
        )
    tokens = Resource("", "v1", "serviceaccounts/tenant/token")
    answer = await api.client.create(tokens, namespace, {"spec": {"expirationSeconds": LIFE}})
    config = yaml.safe_load(system.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    path = system.directory / "tenant.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def queue_for(namespace: str) -> Json:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    preemption = {"withinClusterQueue": "LowerPriority"}
    return cluster_queue(namespace, 64, namespaceSelector=selector, preemption=preemption)


def devices() -> list[Json]:
    """What the expressions of claims are evaluated over: 128 devices of 16 nodes."""
    rows = [{"name": f"d{n}", "attributes": {"model": {"string": f"m{n % 3}"}}} for n in range(8)]
    slices = [
        {
            "apiVersion": kube.RESOURCE_SLICES.api_version,
            "kind": "ResourceSlice",
            "metadata": {"name": f"tenant-{node}"},
            "spec": {
                "driver": "gpu.example.com",
                "pool": {"name": f"pool-{node}", "generation": 1, "resourceSliceCount": 1},
                "nodeName": f"pool-{node}",
                "devices": rows,
            },
        }
        for node in range(16)
    ]
    device_class = {"apiVersion": kube.DEVICE_CLASSES.api_version, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    return [{**device_class, "spec": {}}, *slices]


@pytest.fixture
async def two_teams(system: System, api: Api) -> AsyncIterator[Path]:
    """Namespaces `hostile` and `others` with 64 GPUs each; how the tenant of the first logs in."""
    stand_in = StandIn(system).start()
    path = await login(api, system, "hostile")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}}
    await api.apply(
        namespace,
        flavor(labels={"kubernetes.io/os": "linux"}),
        *(priority_class(name, value) for name, value in (("low", 1), ("high", 100))),
        *(queue_for(name) for name in ("hostile", "others")),
        local_queue("mine", "hostile", "hostile"),
        local_queue("others", "others", "others"),
    )
    made = devices()
    for obj in made:
        resource = kube.DEVICE_CLASSES if obj["kind"] == "DeviceClass" else kube.RESOURCE_SLICES
        await api.client.create(resource, None, obj)
    yield path
    system.kill_operators()
    async with connect(path) as own:
        await Tenant(own.client, "hostile", (), 0).leave()
    for name in ("hostile", "others"):
        await api.delete_pods(name)
        await api.wipe(name)
    for obj in made:
        resource = kube.DEVICE_CLASSES if obj["kind"] == "DeviceClass" else kube.RESOURCE_SLICES
        await api.client.delete(resource, None, obj["metadata"]["name"])
    await uninstall(api, stand_in)


@dataclass
class Processes:
    """Leader, standby and webhooks: none may end, nor give way to another."""

    system: System
    operators: Sequence[OperatorProcess]
    audit: Path
    _size: int = 0
    _read: dict[Path, int] = field(default_factory=dict)

    def troubles(self) -> list[str]:
        found = [f"{each.identity} ended: {each.tail(5)}" for each in self.operators if not each.process.is_alive()]
        webhooks = self.system.webhooks.process
        if webhooks is None or webhooks.poll() is not None:
            found.append("the webhooks ended")
        return [*found, *self._unprepared()]

    def audit_grew(self) -> bool:
        before, self._size = self._size, self.audit.stat().st_size
        return self._size > before

    def memory(self) -> dict[str, int]:
        """Resident, in MB."""
        pids = {each.identity: each.process.pid for each in self.operators}
        if self.system.webhooks.process is not None:
            pids["webhooks"] = self.system.webhooks.process.pid
        return {name: _resident(pid) for name, pid in pids.items()}

    def _unprepared(self) -> list[str]:
        found: list[str] = []
        for path in (*(each.log for each in self.operators), self.system.directory / "webhooks.log"):
            with path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                text = log.read().decode(errors="replace")
                self._read[path] = log.tell()
            found += [
                f"{path.name}: {text[max(0, m.start() - 1500) : m.end() + 300]}" for m in UNPREPARED.finditer(text)
            ]
        return found


def _resident(pid: int) -> int:
    row = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(row.split()[1]) // 1024


async def holder(api: Api) -> str:
    lease = await api.get(kube.LEASES, names.KUEUE_LEASE, names.KUEUE_NAMESPACE)
    return lease["spec"]["holderIdentity"]


async def attack(tenant: Tenant, end: float) -> None:
    async with asyncio.TaskGroup() as group:
        while time.monotonic() < end:
            group.create_task(tenant.act())
            await asyncio.sleep(1 / ATTEMPTS)


async def submit_calmly(team: Team) -> set[str]:
    """Jobs while the tenant does nothing; each is admitted before the next one comes."""
    submitted: set[str] = set()
    for _ in range(USUALLY):
        name = await team.submit()
        await team.served(name)
        submitted.add(name)
        await asyncio.sleep(0.2)
    return submitted


async def submit_under_attack(team: Team, tenant: Tenant, processes: Processes, seconds: float) -> list[str]:
    """Jobs while the tenant does what it can. Returns what went wrong; then it stops at once."""
    end, troubles = time.monotonic() + seconds, list[str]()
    attacking = asyncio.ensure_future(attack(tenant, end))
    while time.monotonic() < end and not attacking.done() and not troubles:
        await team.submit()
        await asyncio.sleep(1 / PROBES)
        troubles += processes.troubles() + [f"{name} waits" for name in team.stalled()]
    if not processes.audit_grew():
        troubles.append("the audit does not grow")
    if troubles:
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
    else:
        await attacking
    return troubles


@pytest.mark.timeout(SECONDS * 1.5 + 300)
async def test_another_team_is_admitted_as_ever(system: System, api: Api, two_teams: Path) -> None:
    audit = system.directory / "tenant.audit"
    leader = system.operator("leader", leader_election=True, audit=audit).wait_ready()
    standby = system.operator("standby", leader_election=True).wait_ready()
    processes = Processes(system, (leader, standby), audit)
    nodes = [node["metadata"]["name"] for node in await api.all(kube.NODES)]
    calm: set[str] = set()
    troubles: list[str] = []
    async with watched(api) as team, connect(two_teams) as own:
        tenant = Tenant(own.client, "hostile", nodes, SEED)
        calm |= await submit_calmly(team)
        leads, memory = await holder(api), processes.memory()
        for number in range(rounds := max(1, round(SECONDS / ROUND))):
            troubles = await submit_under_attack(team, tenant, processes, SECONDS / rounds)
            if troubles:
                break
            calm |= await submit_calmly(team)
            figures = figures_of(team, calm, tenant.outcomes) | {"memory": [memory, processes.memory()]}
            print(f"round {number + 1} of {rounds}: {json.dumps(figures)}", flush=True)
        troubles += [f"{name} waits" for name in team.stalled()]
        assert not troubles, "\n".join([*troubles[:5], *list(tenant.history)[-60:]])
    assert await holder(api) == leads
    for name, size in processes.memory().items():
        assert size < (MOST_MEMORY_OF_WEBHOOKS if name == "webhooks" else MOST_MEMORY), f"{name}: {size} MB"
    assert sum(figures["taken"].values()) > TAKEN * figures["attempts"] > 0, figures
    if SECONDS >= ROUND:
        assert figures["median"] <= SLOWER * figures["usual"], figures


def figures_of(team: Team, calm: set[str], outcomes: Counter[tuple[str, str]]) -> Json:
    """The run in figures; waits in milliseconds."""
    rows = sorted(1000 * wait for name, wait in team.waits.items() if name not in calm)
    return {
        "usual": round(statistics.median(1000 * wait for name, wait in team.waits.items() if name in calm)),
        "median": round(statistics.median(rows)),
        "99%": round(rows[int(0.99 * len(rows))]),
        "most": round(rows[-1]),
        "jobs": len(rows),
        "attempts": outcomes.total(),
        "taken": dict(_summed(outcomes, lambda operation, outcome: operation if outcome == "taken" else "")),
        "refused": dict(_summed(outcomes, lambda _, outcome: outcome if outcome != "taken" else "")),
    }


def _summed(outcomes: Counter[tuple[str, str]], name: Callable[[str, str], str]) -> Counter[str]:
    sums = Counter[str]()
    for (operation, outcome), count in outcomes.items():
        if under := name(operation, outcome):
            sums[under] += count
    return sums
