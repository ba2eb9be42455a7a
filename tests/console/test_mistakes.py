"""Ten mistakes of administrators: `gangline admin doctor --cluster` finds each before the first job, `gangline why` says it of a
job that waits. Both come from the same cluster of JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.builders import clusters
from tests.builders.clusters import GPU, NOW, key_of
from tests.control.test_room import pod

from gangline.console.doctor.cluster import ClusterReads, Finding
from gangline.console.doctor.examination import Check, Findings
from gangline.console.doctor.installation import EXAMINATION, queues, setup
from gangline.control.answers.sight import Everybody, Sight
from gangline.kube import resources as kube
from gangline.kube.resources import Resource

Json = dict[str, Any]
CHECKS: dict[str, Callable[[ClusterReads], Findings]] = {
    "flavors": setup.flavors,
    "quota": setup.quota,
    "namespaces": setup.namespaces,
    "policies": setup.policies,
    "LocalQueues": queues.local_queues,
    "unqueued": setup.unqueued_jobs,
    "sizes": setup.pod_sizes,
}


def node(name: str, taints: list[Json] | None = None, gpus: int = 8, **labels: str) -> clusters.Entry:
    amounts = {GPU: str(gpus), "cpu": "96", "memory": "1Ti", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    meta = {"name": name, "uid": name, "labels": {"pool": "fast", "kubernetes.io/hostname": name, **labels}}
    return kube.NODES, {"metadata": meta, "spec": {"taints": taints or []}, "status": status}


def flavor(name: str = "h100", tolerations: list[Json] | None = None, **labels: str) -> clusters.Entry:
    spec = {"nodeLabels": labels or {"pool": "fast"}, "tolerations": tolerations or []}
    return kube.RESOURCE_FLAVORS, {"kind": "ResourceFlavor", "metadata": {"name": name, "uid": name}, "spec": spec}


def cluster_queue(
    name: str = "a", gpus: int = 64, *, resource: str = GPU, covers: bool = True, **spec: Any
) -> clusters.Entry:
    usual = [("cpu", "700"), ("memory", "7Ti")] if covers else []
    quotas = [{"name": each, "nominalQuota": n} for each, n in ((resource, str(gpus)), *usual)]
    groups = [
        {"coveredResources": [each["name"] for each in quotas], "flavors": [{"name": "h100", "resources": quotas}]}
    ]
    body = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
    active = {"type": "Active", "status": "True", "reason": "Ready", "message": ""}
    meta = {"name": name, "uid": name, "creationTimestamp": "2023-11-14T22:00:00Z"}
    return kube.CLUSTER_QUEUES, {
        "kind": "ClusterQueue",
        "metadata": meta,
        "spec": body,
        "status": {"conditions": [active]},
    }


def namespace(name: str = "ml", **labels: str) -> clusters.Entry:
    meta = {"name": name, "uid": f"ns-{name}", "labels": {"kubernetes.io/metadata.name": name, **labels}}
    return kube.NAMESPACES, {"metadata": meta}


def policy(name: str, **selects: Any) -> clusters.Entry:
    meta = {"name": name, "uid": f"policy-{name}"}
    return kube.QUEUE_POLICIES, {"kind": "QueuePolicy", "metadata": meta, "spec": {"clusterQueues": selects}}


def job(name: str, cores: str = "1", queue: str = "") -> clusters.Entry:
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "m", "resources": {"requests": {"cpu": cores}}}]}
    }
    meta: Json = {
        "name": name,
        "namespace": "ml",
        "uid": f"job-{name}",
        "labels": {names_queue(): queue} if queue else {},
    }
    return kube.JOBS, {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {"suspend": True, "template": template},
    }


def names_queue() -> str:
    return "kueue.x-k8s.io/queue-name"


GOOD: dict[str, clusters.Entry] = {
    "flavor": flavor(),
    **{f"node-{n}": node(f"n{n}") for n in range(8)},
    "queue": cluster_queue(),
    "local": clusters.local_queue("a", "a"),
    "namespace": namespace(),
}
TAINT = {"key": "reserved-for", "value": "gangs", "effect": "NoSchedule"}


def entries(*replaced: tuple[str, clusters.Entry]) -> list[clusters.Entry]:
    return list({**GOOD, **dict(replaced)}.values())


class Reads:
    """In place of the cluster: the objects of a world, as doctor's checks read them."""

    def __init__(self, objects: list[clusters.Entry]) -> None:
        self.objects = objects
        self.api = SimpleNamespace(pages=self.pages)

    async def server_clock(self) -> tuple[int, float]:
        return NOW * 1000, 0.0

    async def get(self, resource: Resource, namespace: str | None, name: str) -> None:
        return None

    async def list(self, resource: Resource, namespace: str | None = None, selector: str = "") -> list[Json]:
        return [body for of, body in self.objects if of == resource]

    async def pages(self, resource: Resource, label_selector: str = "") -> AsyncIterator[Any]:
        found = await self.list(resource)
        if label_selector.startswith("!"):
            found = [each for each in found if label_selector[1:] not in (each["metadata"].get("labels") or {})]
        yield SimpleNamespace(items=found)


async def examined(objects: list[clusters.Entry], *checks: str) -> list[Finding]:
    reads = cast(ClusterReads, Reads(objects))
    return [finding for name in checks or CHECKS for finding in [each async for each in CHECKS[name](reads)]]


@dataclass(frozen=True)
class Mistake:
    """`doctor`: the check that finds it, and words of its finding and advice; `why`: words of the explanation."""

    world: list[clusters.Entry]
    check: str
    verdict: str
    doctor: tuple[str, ...]
    why: tuple[str, ...]
    job: list[clusters.Entry] = field(default_factory=list)
    unscheduled: bool = False
    name: str = "gang"


def waits(message: str = "", reason: str = "WaitingForQuota", queue: str = "a") -> list[clusters.Entry]:
    made = clusters.submitted("gang", 2, "1h", ago=100, queue=queue, message=message)
    for row in (made[1][1].get("status") or {}).get("conditions") or ():
        row["reason"] = reason
    return made


def runs() -> list[clusters.Entry]:
    return clusters.submitted("gang", 2, "1h", ago=100, started=60)


FRAME = "couldn't assign flavors to pod set worker: "
MISTAKES = {
    "a flavor whose labels no node has": Mistake(
        entries(("flavor", flavor(pool="fats"))),
        "flavors",
        "failure",
        (
            "ResourceFlavor h100: no node has its labels pool=fats",
            "nodes have pool=fast",
            """-p '{"spec":{"nodeLabels":{"pool":"fast"}}}'""",
        ),
        ("no node has its labels pool=fats", "kubectl patch resourceflavor h100"),
        runs(),
        unscheduled=True,
    ),
    "a flavor without toleration for its nodes": Mistake(
        entries(*((f"node-{n}", node(f"n{n}", [TAINT])) for n in range(8))),
        "flavors",
        "failure",
        (
            "all 8 of its nodes have the taint reserved-for=gangs:NoSchedule",
            '"key":"reserved-for","operator":"Equal","value":"gangs"',
        ),
        ("does not tolerate", "kubectl patch resourceflavor h100", '"tolerations"'),
        waits(
            f"{FRAME}insufficient healthy capacity in flavor h100: room for 0 out of 2 pods of pod set worker",
            "WaitingForCapacity",
        ),
    ),
    "a resource that is misspelt": Mistake(
        entries(("queue", cluster_queue(resource=f"{GPU}s"))),
        "quota",
        "failure",
        (f"no node of the flavor offers {GPU}s; they offer {GPU}", "spec.resourceGroups"),
        (
            f"it has quota for {GPU}s of flavor h100, and no node",
            f"an administrator to mend it: name {GPU} in spec.resourceGroups",
        ),
        waits(f"{FRAME}resource {GPU} unavailable in ClusterQueue", "NoMatchingFlavor"),
    ),
    "a resource that the job misspells": Mistake(
        entries(("queue", cluster_queue(resource="nvidia.com/gpo"))),
        "quota",
        "failure",
        (f"they offer {GPU}",),
        (f"gpujob/gang: it asks for {GPU}s, which no node offers; close is {GPU}", f"needs: ask for {GPU} in the pods"),
        waits(f"{FRAME}resource {GPU}s unavailable in ClusterQueue", "NoMatchingFlavor"),
    ),
    "more quota than there are GPUs": Mistake(
        entries(("queue", cluster_queue(gpus=1000))),
        "flavors",
        "warning",
        (f"the quota of it is 1k {GPU} (a 1k), and its nodes have 64", "lower nominalQuota"),
        ("and its nodes have 64", "kubectl edit clusterqueue a"),
        waits(
            f"{FRAME}insufficient healthy capacity in flavor h100: room for 0 out of 2 pods of pod set worker",
            "WaitingForCapacity",
        ),
    ),
    "a queue without cpu and memory": Mistake(
        entries(("queue", cluster_queue(covers=False))),
        "quota",
        "warning",
        ("it has no quota for cpu and memory", "excludeResourcePrefixes"),
        ("not to ask for cpu", "coveredResources and each flavor of spec.resourceGroups"),
        waits(f"{FRAME}resource cpu unavailable in ClusterQueue", "NoMatchingFlavor"),
    ),
    "a namespaceSelector that selects nobody": Mistake(
        entries(("queue", cluster_queue(namespaceSelector={"matchLabels": {"team": "vision"}}))),
        "namespaces",
        "failure",
        ("it admits no job of namespace ml", "team In vision", "kubectl label namespace ml team=vision"),
        ("it admits no job of namespace ml", "an administrator to mend it: kubectl label namespace ml team=vision"),
        waits("workload namespace doesn't match ClusterQueue selector", "Misconfigured"),
    ),
    "no namespaceSelector": Mistake(
        entries(("queue", cluster_queue(namespaceSelector=None))),
        "namespaces",
        "failure",
        ("it has no namespaceSelector", '"matchLabels":{"kubernetes.io/metadata.name":"ml"}'),
        ("it has no namespaceSelector", "kubectl patch clusterqueue a"),
        waits("workload namespace doesn't match ClusterQueue selector", "Misconfigured"),
    ),
    "a QueuePolicy that selects nothing": Mistake(
        [*entries(), cluster_queue("vision"), policy("lab", names=["visoin"])],
        "policies",
        "warning",
        ("QueuePolicy lab: it selects no ClusterQueue (name visoin); close is vision", """{"names":["vision"]}"""),
        ("QueuePolicy lab: it selects no ClusterQueue", "kubectl patch queuepolicy lab"),
        waits(f"{FRAME}insufficient unused quota for {GPU} in flavor h100, 8 more needed"),
    ),
    "a job without a queue": Mistake(
        [*entries(), job("alone")],
        "unqueued",
        "warning",
        ("1 job without a queue", "Job ml/alone", "kueue.x-k8s.io/queue-name: a"),
        ("it names no queue", "LocalQueues of namespace ml: a", "kubectl label job alone"),
        name="alone",
    ),
    "a LocalQueue to a ClusterQueue that does not exist": Mistake(
        [*entries(("local", clusters.local_queue("a", "visoin"))), cluster_queue("vision")],
        "LocalQueues",
        "failure",
        ("LocalQueue ml/a: it leads to ClusterQueue visoin", "close is vision", "kubectl delete localqueue a -n ml"),
        (
            "it leads to ClusterQueue visoin, which does not exist (close is vision)",
            "spec.clusterQueue cannot be changed",
        ),
        waits("ClusterQueue visoin doesn't exist", "Misconfigured"),
    ),
    "a pod that is larger than the nodes": Mistake(
        [*entries(*((f"node-{n}", node(f"n{n}", gpus=4)) for n in range(8)))],
        "sizes",
        "warning",
        ("1 Workload with pods that fit on no node", f"a pod asks for 8 {GPU}, and no node of h100 has more than 4"),
        ("each pod of worker asks 8 GPUs, and no node of h100 has more than 4",),
        waits(),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
async def test_doctor_finds_the_mistake_and_says_what_mends_it(mistake: Mistake) -> None:
    objects = [*mistake.world, *(mistake.job if mistake.check == "sizes" else [])]
    found = await examined(objects, mistake.check)
    texts = [f"{each.detail} → {each.advice}" for each in found if each.verdict == mistake.verdict]
    assert any(all(word in text for word in mistake.doctor) for text in texts), found


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
async def test_why_says_the_mistake_to_whom_it_keeps_waiting(mistake: Mistake) -> None:
    here = clusters.world_of(*mistake.world, *mistake.job)
    if mistake.unscheduled:
        workload = key_of(here, "gang").partition("/")[2]
        here.pods.upsert(pod("gang-0", "", 8, workload=workload))
    here.engine.decide(NOW * 1000)
    lines = (await here.answers().why(Everybody(), "ml", "", mistake.name))[1]
    text = "\n".join(f"{line.label}: {line.text}" for line in lines)
    assert all(word in text for word in mistake.why), text


async def test_nothing_is_found_where_nothing_is_wrong() -> None:
    found = await examined([*entries(), policy("lab", names=["a"]), job("queued", queue="a")])
    assert {each.verdict for each in found} == {"ok"}, found


def test_the_examination_of_an_installation_makes_all_these_checks() -> None:
    made = {check.run for check in EXAMINATION.checks}
    assert set(CHECKS.values()) <= made
    assert all(isinstance(check, Check) for check in EXAMINATION.checks)


class Tenant:
    """Reads the Workloads of its own namespace only."""

    async def sight(self, namespaces: Any, queues: Any) -> Sight:
        return Sight(namespaces=frozenset({"ml"}), queues=frozenset(queues))


async def test_a_tenant_hears_nothing_of_other_queues_and_policies() -> None:
    message = f"{FRAME}insufficient healthy capacity in flavor h100: room for 0 out of 2 pods of pod set worker"
    world = [*entries(), cluster_queue("secret-queue", gpus=1000), policy("secret-policy", names=["secret-name"])]
    here = clusters.world_of(*world, *waits(message, "WaitingForCapacity"))
    text = str((await here.answers().why(Tenant(), "ml", "", "gang"))[1])
    assert "and its nodes have 64" in text and "secret" not in text


@pytest.mark.parametrize(
    "taints",
    [
        [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}],
        [{"key": "preferred", "effect": "PreferNoSchedule"}],
    ],
)
async def test_taints_that_pass_or_only_advise_are_no_fault(taints: list[Json]) -> None:
    found = await examined(entries(*((f"node-{n}", node(f"n{n}", taints)) for n in range(8))), "flavors")
    assert [each.verdict for each in found] == ["ok"]


async def test_a_taint_that_a_flavor_tolerates_or_that_some_nodes_have() -> None:
    tainted = [(f"node-{n}", node(f"n{n}", [TAINT])) for n in range(8)]
    tolerates = flavor(tolerations=[{"key": "reserved-for", "operator": "Exists"}])
    assert [each.verdict for each in await examined(entries(("flavor", tolerates), *tainted), "flavors")] == ["ok"]
    (some,) = [each for each in await examined(entries(*tainted[:3]), "flavors") if each.verdict == "warning"]
    assert "3 of its 8 nodes have" in some.detail


async def test_flavors_that_an_autoscaler_makes_nodes_for_need_none_yet() -> None:
    grows = flavor(pool="later")
    grows[1]["metadata"]["annotations"] = {"gangline.io/autoscaled": "true"}
    assert [each.verdict for each in await examined(entries(("flavor", grows)), "flavors", "quota")] == ["ok", "ok"]


async def test_very_long_and_many_names_cost_little() -> None:
    """The faults of one queue are a few lines, whatever is written."""
    many = [policy(f"p{n}", names=["x" * 253]) for n in range(500)]
    found = await examined([*entries(), *many], "policies")
    assert len(found) == 11 and all(len(each.detail) <= 400 for each in found)
