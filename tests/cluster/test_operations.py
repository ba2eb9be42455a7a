"""docs/operations.md: clocks that differ, an API server that is away, a namespace that is being deleted."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest
from tests.cluster import authors, clocks
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    OperatorProcess,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    gpu_job,
    job,
    local_queue,
)

from gangline.api.read.configuration.manager import LeaseSettings
from gangline.control.feed import watched_kinds
from gangline.devcluster.components import Component
from gangline.devcluster.local import LocalControlPlane
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
LONG = "long"
CONTROLLERS: tuple[Component, ...] = ("kube-controller-manager", "kube-scheduler", "kwok")
LEAVING = "leaving"
LEASE = LeaseSettings(lease_duration=6.0, renew_deadline=4.0, retry_period=1.0)
#: seconds for which the API server is away: longer than the Lease lasts
AWAY = 9.0


async def _queue(api: Api, *namespaces: str) -> None:
    queues = [local_queue("lq", "cq", namespace) for namespace in namespaces or ("default",)]
    await api.apply(flavor(), cluster_queue("cq", 8), *queues)


async def _leads(operator: OperatorProcess) -> bool:
    return bool(operator.ready_file.exists() and (await operator.samples("gangline_leader"))[0].value)


async def _is_ready(api: Api, name: str) -> bool:
    workload = await api.workload_of(name)
    return workload is not None and condition(workload, "PodsReady")


async def _runs(api: Api, name: str, namespace: str = "default") -> bool:
    return (await api.get(kube.JOBS, name, namespace))["spec"]["suspend"] is False


async def test_operators_whose_clocks_differ_by_two_minutes(system: System, api: Api) -> None:
    """The first leader is a minute behind, and the next one a minute ahead: a run of 30 s is not taken to be over."""
    before = int((await api.official.list(kube.NODES)).version)
    slow = system.operator("slow", leader_election=True, replaced=clocks.ahead(-60)).wait_ready()
    await api.until(lambda: _leads(slow), "the first one leads")
    fast = system.operator("fast", leader_election=True, replaced=clocks.ahead(60)).wait_ready()
    await _queue(api)
    long = job(LONG, "lq", gpus=4, runtime="")
    long["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "30"
    await api.create(long, job("a", "lq", gpus=4, runtime="300ms"))
    await api.finished("a")

    workload = await api.workload_of(LONG)
    assert workload is not None
    admitted = datetime.fromisoformat(condition_row(workload, "Admitted")["lastTransitionTime"])
    assert abs((datetime.now(UTC) - admitted).total_seconds()) < 25
    for operator, offset in ((slow, 60), (fast, -60)):
        (measured,) = await operator.samples("gangline_clock_offset_seconds")
        assert abs(measured.value - offset) < 3
        where = "behind" if offset > 0 else "ahead of"
        assert f"s {where} the API server's, whose time counts" in operator.log.read_text()

    assert slow.stop() == 0
    await api.until(lambda: _leads(fast), "the other one leads")
    await api.create(job("b", "lq", gpus=4, runtime="300ms"))
    await api.finished("b")
    workload = await api.workload_of(LONG)
    assert workload is not None and not condition_row(workload, "Evicted") and await _runs(api, LONG)
    for sample in await fast.samples("kueue_admission_wait_time_seconds_sum"):
        assert 0 <= sample.value < 30

    async def seen() -> bool:
        """What the new leader did itself, and what it saw as a standby; its gauges are of the present."""
        ended = await fast.samples("kueue_finished_workloads_total")
        return {sample.labels["replica_role"]: sample.value for sample in ended} == {"follower": 1, "leader": 1}

    await api.until(seen, "both ends are counted")
    for name, value in (
        ("kueue_admitted_workloads_total", 1),
        ("kueue_workload_creation_latency_seconds_count", 1),
        ("kueue_reserving_active_workloads", 1),
        ("kueue_local_queue_admitted_active_workloads", 1),
        ("kueue_finished_workloads", 2),
    ):
        found = [(sample.labels["replica_role"], sample.value) for sample in await fast.samples(name)]
        assert found == [("leader", value)], name
    wrong, right = authors.usurped(authors.written(authors.log(system.directory), after=before))
    assert not wrong, wrong[:20]
    assert right["slow"] and right["fast"]


async def test_an_api_server_that_is_away(system: System, api: Api) -> None:
    """Longer than a lease lasts: the leader ends, as Kubernetes starts it again, and what runs isn't touched."""
    one = system.operator("one", leader_election=True, lease=LEASE).wait_ready()
    await api.until(lambda: _leads(one), "the first one leads")
    two = system.operator("two", leader_election=True, lease=LEASE).wait_ready()
    await _queue(api)
    await api.create(job(LONG, "lq", gpus=6, runtime=""), job("waits", "lq", gpus=6, runtime="300ms"))
    await api.until(lambda: _is_ready(api, LONG), "it runs")
    gang = await _untouched(api)
    requests = await _requests(two)
    system.restarted = True
    await asyncio.to_thread(system.plane.stop_component, "kube-apiserver")
    went = time.monotonic()
    await asyncio.to_thread(one.process.join, 15)
    assert one.process.exitcode == 1
    assert "the operator ended: Lease" in one.tail(1) and "was not renewed within" in one.tail(1)
    one.start()
    await asyncio.sleep(max(0.0, went + AWAY - time.monotonic()))
    assert one.process.is_alive() and two.process.is_alive()
    await asyncio.to_thread(_bring_back, system.plane)
    await api.until(lambda: _leads_of(one, two), "one of them leads", 40)
    await api.create(job("new", "lq", gpus=2, runtime="300ms"))
    await api.finished("new")
    assert gang == await _untouched(api), "what runs goes on"
    kinds = len(watched_kinds.resources())  # each is tried again at growing intervals, listed, and watched
    assert await _requests(two) - requests < 15 * kinds
    await api.client.delete(kube.JOBS, "default", LONG, propagation="Background")
    await api.finished("waits")


def _bring_back(plane: LocalControlPlane) -> None:
    """The API server first; Kubernetes' own controllers are started again, since they wait for up to a minute."""
    plane.start_component("kube-apiserver")
    for component in CONTROLLERS:
        plane.kill(component)
        plane.start_component(component)


async def _untouched(api: Api) -> tuple[int, str, str]:
    """What changes if the long job is stopped, or its pod replaced."""
    found = await api.get(kube.JOBS, LONG)
    (pod,) = await api.all(kube.PODS, "default", f"job-name={LONG}")
    return found["metadata"]["generation"], pod["metadata"]["uid"], pod["status"]["phase"]


async def _leads_of(*operators: OperatorProcess) -> bool:
    return any([await _leads(each) for each in operators])


async def _requests(operator: OperatorProcess) -> float:
    return sum(sample.value for sample in await operator.samples("gangline_api_requests_total"))


async def test_a_namespace_that_is_being_deleted(system: System, api: Api) -> None:
    """One of its pods takes its time. Only what this pod uses stays in use: neither its jobs that wait nor its gang take more."""
    operator = system.operator("op").wait_ready()
    await api.client.create(kube.NAMESPACES, None, {"metadata": {"name": LEAVING}})
    await _queue(api, LEAVING, "default")
    gang = gpu_job("gang", "lq", workers=1, gpus=2, simulated="")
    gang["metadata"]["namespace"] = LEAVING
    stays, ends, waits = (job(name, "lq", gpus=3, runtime="", namespace=LEAVING) for name in ("stays", "ends", "waits"))
    await api.create(stays, ends, gang)
    await api.until(lambda: _ready(api, 3), "all quota is used")
    await api.create(waits)
    await api.until(lambda: api.workload_of("waits", LEAVING), "one waits there")
    await api.create(job("next", "lq", gpus=3, runtime="300ms"), job("last", "lq", gpus=8, runtime="300ms"))
    (pod,) = (pod for pod in await api.all(kube.PODS, LEAVING) if pod["metadata"]["name"].startswith("stays"))
    name = pod["metadata"]["name"]
    await api.client.patch(kube.PODS, LEAVING, name, {"metadata": {"finalizers": ["example.com/slow"]}})
    await api.client.delete(kube.NAMESPACES, None, LEAVING)
    await api.finished("next")
    assert not await _runs(api, "waits", LEAVING)
    assert not await _runs(api, "last"), "a pod still uses quota"

    await api.client.patch(kube.PODS, LEAVING, name, {"metadata": {"finalizers": None}})
    await api.finished("last")
    await api.until(lambda: _gone(api), "the namespace is gone", 120, namespace=LEAVING)
    log = operator.log.read_text()
    assert log.count("because it is being terminated") < 10, "what the API server refuses is repeated ever less often"
    assert "Traceback" not in log


async def _ready(api: Api, count: int) -> bool:
    return sum(condition(pod, "Ready") for pod in await api.all(kube.PODS, LEAVING)) == count


async def _gone(api: Api) -> bool:
    try:
        await api.get(kube.NAMESPACES, LEAVING)
    except NotFound:
        return True
    return False
