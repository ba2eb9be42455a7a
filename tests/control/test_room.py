"""Room on nodes: who sits where, in queues and outside of any, and what a gang waits for whose pods are not scheduled."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.clusters import GPU, NOW, SECRET, key_of
from tests.objects import PodObject

from gangline.api import names
from gangline.api.read import conditions
from gangline.console.commands.see.nodes import listing
from gangline.console.output.layout import plain
from gangline.control.answers.desk import Wish
from gangline.control.answers.pages import ListPage
from gangline.control.answers.sight import Everybody, Sight
from gangline.control.feed.pod import read_pod
from gangline.engine import minute_text
from gangline.kube import resources as kube

Json = dict[str, Any]
INSUFFICIENT = (
    "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: no victims."
)


class Reader:
    """May list the Workloads of these namespaces."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = frozenset(namespaces)

    async def sight(self, namespaces: Collection[str], queues: Collection[str]) -> Sight:
        return Sight(namespaces=self.namespaces, queues=frozenset(queues))


def node(name: str, gpus: int = 8, **spec: Any) -> clusters.Entry:
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {GPU: str(gpus), "cpu": "64", "memory": "512Gi"}, "conditions": [ready]}
    meta = {"name": name, "uid": name, "labels": {"pool": "fast", "kubernetes.io/hostname": name}}
    return kube.NODES, {"metadata": meta, "spec": spec, "status": status}


def flavor(name: str = "h100", **labels: str) -> clusters.Entry:
    resource, body = clusters.flavor(name)
    return resource, body | {"spec": {"nodeLabels": labels}}


def pod(name: str, on: str, gpus: int, namespace: str = "ml", owner: str = "", workload: str = "") -> PodObject:
    meta: Json = {"name": name, "namespace": namespace, "uid": name, "labels": {}, "annotations": {}}
    if owner:
        kind, _, of = owner.partition("/")
        meta["ownerReferences"] = [{"kind": kind, "name": of, "uid": of, "controller": True}]
    if workload:
        meta["annotations"]["kueue.x-k8s.io/workload"] = workload
        meta["labels"]["kueue.x-k8s.io/podset"] = "worker"
    spec = {"containers": [{"name": "main", "resources": {"requests": {GPU: gpus}}}]}
    status: Json = {"phase": "Running"}
    if on:
        spec["nodeName"] = on
    else:
        row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": INSUFFICIENT}
        status = {"phase": "Pending", "conditions": [row]}
    return PodObject({"metadata": meta, "spec": spec, "status": status})


def crowded(*nodes: clusters.Entry) -> Any:
    """A gang of two pods of 8 GPUs is admitted. A Deployment has what the second one needs."""
    machines = nodes or (node("n1"), node("n2"))
    here = clusters.world_of(
        flavor(pool="fast"),
        *clusters.queue("a", 16),
        *clusters.submitted("gang", 2, "1h", ago=100, started=60),
        *machines,
    )
    workload = key_of(here, "gang").partition("/")[2]
    for each in (
        pod("gang-0", "n1", 8, workload=workload),
        pod("gang-1", "", 8, workload=workload),
        pod("llm-1", "n2", 2, SECRET, "ReplicaSet/llm-5d"),
        pod("llm-2", "n2", 2, SECRET, "ReplicaSet/llm-5d"),
        pod("note", "n2", 0, "ml"),
    ):
        here.pods.upsert(each)
    here.engine.decide(NOW * 1000)
    return here


async def why(here: Any, asker: Any = None) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in (await here.answers().why(asker or Everybody(), "ml", "", "gang"))[1]:
        lines.setdefault(line.label, []).append(line.text)
    return lines


async def test_an_admitted_gang_says_which_pods_wait_for_what_and_who_has_it() -> None:
    lines = await why(crowded())
    assert lines["state"] == ["Starting for 60s in ClusterQueue a"]
    assert lines["pods"] == [
        "1 of 2 pods not scheduled (gang-1): 0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
    ]
    assert lines["nodes"] == ["h100: 4 GPUs of 16 free on 2 nodes, at most 4 on one of them"]
    assert lines["on nodes"] == [f"h100, outside of any queue: replicaset/llm-5d in namespace {SECRET} (4 GPUs)"]
    assert lines["needs"] == ["the pods outside of any queue to leave 4 GPUs of h100"]


@pytest.mark.parametrize(
    ("reason", "place"),
    [("Unschedulable", "at its old place"), ("CausedByJob", "behind those that waited, since the job is the cause")],
)
async def test_the_end_of_its_patience_is_said_too(reason: str, place: str) -> None:
    entries = clusters.submitted("gang", 2, "1h", ago=400, started=250)
    workload = entries[1][1]
    workload["metadata"].setdefault("annotations", {})[names.UNSCHEDULED_TIMEOUT] = "10m"
    since = conditions.timestamp((NOW - 180) * 1000)
    row = {
        "type": names.PODS_UNSCHEDULED,
        "status": "True",
        "reason": reason,
        "message": "1 of 2 pods unscheduled: full",
    }
    workload["status"]["conditions"].append({**row, "lastTransitionTime": since})
    here = clusters.world_of(flavor(pool="fast"), *clusters.queue("a", 16), *entries, node("n1"))
    key = key_of(here, "gang")
    here.pods.upsert(pod("gang-1", "", 8, workload=key.partition("/")[2]))
    (said,) = (await why(here))["requeued"]
    until = minute_text((NOW - 180 + 600) * 1000)
    assert said.startswith(f"at {until} if pods are still unscheduled, as they are for 3m by now; {place}")
    assert "requeued" not in await why(crowded()), "nobody has asked for a limit"


async def test_the_queue_says_so_too() -> None:
    (item,) = (await crowded().answers().jobs(Everybody(), Wish("ml"))).items
    assert item["why"] == "on h100; 1 pod is not scheduled"


async def test_another_teams_pods_are_held_against_nobody_by_name() -> None:
    lines = await why(crowded(), Reader("ml"))
    assert SECRET not in str(lines) and "llm" not in str(lines)
    assert lines["on nodes"][0].startswith("h100, outside of any queue: hidden-") and "(4 GPUs)" in lines["on nodes"][0]


async def test_a_flavor_without_nodes_is_said_to_have_none() -> None:
    here = clusters.world_of(
        flavor(pool="fast"), *clusters.queue("a", 16), *clusters.submitted("gang", 2, "1h", ago=100, started=60)
    )
    here.pods.upsert(pod("gang-0", "", 8, workload=key_of(here, "gang").partition("/")[2]))
    lines = await why(here)
    assert lines["nodes"] == ["no node has the labels of flavor h100"]
    assert lines["needs"] == ["nodes with the labels of flavor h100"]


async def test_nodes_that_cannot_be_used_are_named_with_the_reason() -> None:
    lines = await why(crowded(node("n1"), node("n2", unschedulable=True)))
    assert lines["nodes"][1] == "h100: 1 of 2 nodes can't be used: n2 (Cordoned)"
    assert "1 node of h100 to be usable again" in lines["needs"][0]


async def test_a_gang_whose_pods_have_their_nodes_hears_nothing_of_nodes() -> None:
    here = clusters.world_of(
        flavor(pool="fast"),
        *clusters.queue("a", 16),
        *clusters.submitted("gang", 2, "1h", ago=100, started=60),
        node("n1"),
    )
    assert not {"pods", "nodes", "on nodes", "needs"} & (await why(here)).keys()


async def test_a_gang_that_waits_for_nodes_hears_who_is_there() -> None:
    message = (
        "couldn't assign flavors to pod set worker: insufficient healthy capacity in flavor h100: room for 1 out of 2"
    )
    here = clusters.world_of(
        flavor(pool="fast"), *clusters.queue("a", 16), *clusters.submitted("gang", 2, "1h", ago=100), node("n1")
    )
    workload = here.mirror.objects[kube.WORKLOADS][key_of(here, "gang")]
    row = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForCapacity", "message": message}
    workload["status"] = {"conditions": [row]}
    here.pods.upsert(pod("llm-1", "n1", 3, "ml", "ReplicaSet/llm-5d"))
    lines = await why(here)
    assert lines["on nodes"] == ["h100, outside of any queue: replicaset/llm-5d in namespace ml (3 GPUs)"]


async def test_how_many_whole_nodes_are_needed() -> None:
    nodes = [node(f"n{number}") for number in range(3)]
    here = clusters.world_of(
        flavor(pool="fast"), *clusters.queue("a", 64), *clusters.submitted("gang", 5, "1h", ago=100), *nodes
    )
    workload = here.mirror.objects[kube.WORKLOADS][key_of(here, "gang")]
    said = "couldn't assign flavors to pod set worker: insufficient healthy capacity in flavor h100: room for 3 out of 5 pods"
    row = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForCapacity", "message": said}
    workload["status"] = {"conditions": [row]}
    here.engine.decide(here.now)
    lines = await why(here)
    assert lines["because"][0].endswith(". 5 whole nodes of h100 needed: 3 free now, none can be freed by preemption")
    assert lines["needs"] == ["Nodes of flavor h100 must become healthy, or workloads on them finish or be preempted."]


async def test_behind_the_head_of_a_strict_queue_its_owner_hears_whom_it_waits_for() -> None:
    strict = clusters.queue("a", 8)
    strict[0][1]["spec"]["queueingStrategy"] = "StrictFIFO"
    jobs = [*clusters.submitted("big", 2, "1h", ago=200), *clusters.submitted("gang", 1, "1h", ago=100)]
    here = clusters.world_of(clusters.flavor("h100"), *strict, *jobs)
    here.engine.decide(here.now)
    lines = await why(here)
    assert "waits behind" in lines["because"][0] and "can never start as things are" in lines["because"][0]
    assert "big" in lines["because"][0] and "must start, be deleted or be deactivated" in lines["needs"][0]


# --- the nodes --------------------------------------------------------------------------------------------------------


async def test_each_node_has_its_capacity_and_those_who_sit_there() -> None:
    here = crowded()
    first, second = (await here.answers().nodes(Everybody(), "ml")).items
    assert (first["metadata"]["name"], first["flavors"], first["trouble"]) == ("n1", ["h100"], "")
    assert (first["capacity"][GPU], first["used"][GPU]) == ("8", "8")
    assert [(each["job"], each["outside"], each["amounts"][GPU]) for each in first["occupants"]] == [
        ("gang", False, "8")
    ]
    assert [(each["job"], each["namespace"], each["outside"], each["pods"]) for each in second["occupants"]] == [
        ("replicaset/llm-5d", SECRET, True, 2),
        ("pod/note", "ml", True, 1),
    ]
    text = plain(listing().rows([first, second], NOW))
    assert "8/8" in text and "ml/gang (8)" in text and f"{SECRET}/replicaset/llm-5d (outside queues, 4)" in text
    assert "note" not in text, "where there are GPUs, those without are of no interest"


async def test_pods_that_were_sent_to_a_node_and_are_not_bound_are_named_and_use_nothing() -> None:
    here = crowded()
    sent = pod("gang-1", "", 8, workload=key_of(here, "gang").partition("/")[2])
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    sent["spec"]["affinity"] = {"nodeAffinity": required}
    here.pods.upsert(sent)
    first, second = (await here.answers().nodes(Everybody(), "ml")).items
    assert first["awaited"] == [] and second["used"][GPU] == "4"
    [awaited] = second["awaited"]
    assert (awaited["job"], awaited["pods"], awaited["amounts"][GPU]) == ("gang", 1, "8")
    assert "ml/gang (8, not bound yet)" in plain(listing().rows([second], NOW))
    [_, second] = (await here.answers().nodes(Reader("experiments"), "ml")).items
    assert second["awaited"][0]["hidden"]


async def test_pods_placed_by_topology_count_once() -> None:
    here = crowded()
    placed = pod("gang-1", "n2", 8, workload=key_of(here, "gang").partition("/")[2])
    placed["metadata"]["labels"]["kueue.x-k8s.io/tas"] = "true"
    placed["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = "rack"
    assert read_pod(placed, "ml/x").placed
    here.pods.upsert(placed)
    second = (await here.answers().nodes(Everybody(), "ml")).items[1]
    assert second["used"][GPU] == "12" and second["occupants"][0]["job"] == "gang"


async def test_a_flavor_that_does_not_exist_has_no_nodes() -> None:
    missing = clusters.queue("a", 8)
    missing[0][1]["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "not-there"
    here = clusters.world_of(*missing, node("n1"))
    assert (await here.answers().nodes(Everybody(), "ml")).items == []


async def test_only_nodes_of_the_namespaces_queues_and_others_jobs_as_labels() -> None:
    here = crowded()
    resource, other = node("other")
    other["metadata"]["labels"] = {"pool": "slow"}
    other["metadata"]["resourceVersion"] = "77"
    here.mirror.upsert(resource, other)
    found = (await here.answers().nodes(Reader("ml"), "ml")).items
    assert [each["metadata"]["name"] for each in found] == ["n1", "n2"] and SECRET not in str(found)
    assert found[1]["occupants"][0]["hidden"] and found[1]["occupants"][0]["amounts"] == {GPU: "4"}
    assert (await here.answers().nodes(Everybody(), "nobody")).items == []
    page = await here.answers().nodes(Everybody(), "ml", ListPage(1, 1))
    assert ([each["metadata"]["name"] for each in page.items], page.left) == (["n2"], 0)


@pytest.mark.parametrize("message", ["", "x" * 5000, "Insufficient " * 200])
async def test_a_long_message_is_cut(message: str) -> None:
    body = pod("gang-1", "", 8, workload="w")
    body["status"]["conditions"][0]["message"] = message
    assert 0 < len(read_pod(body, "ml/w").unscheduled) <= 1024
