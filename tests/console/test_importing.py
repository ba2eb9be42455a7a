"""`gangline admin import`: rules, and what becomes of each job."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cluster.harness import cluster_queue, flavor, job, local_queue
from tests.jobs.foreign import CASES, Case
from tests.objects import JobObject, PodObject, Stored, altered, as_stored

from gangline.api import names
from gangline.api.read.counting.device_claims import Devices, DeviceSource
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.console.importing import cluster_facts
from gangline.console.importing.adoptions import AdoptableJob, Adoption, Skipped
from gangline.console.importing.assigning import GATE
from gangline.console.importing.cluster_facts import ImportFacts, pods_of, uses
from gangline.console.importing.mapping import MappingError, MappingRule, from_file, from_pairs, pairs, rule_for
from gangline.console.importing.planning import plan
from gangline.engine import model
from gangline.jobs import kind_of
from gangline.kube import resources as kube
from gangline.kube.resources import Resource

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
RULES = from_pairs("team", {"vision": "lq"})
KIND = kind_of("batch/v1", "Job")


# --- rules ------------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_decides() -> None:
    rules = from_file(
        """
        - match: {labels: {team: vision}, priorityClassName: high}
          toLocalQueue: urgent
        - match: {labels: {team: vision}}
          toLocalQueue: usual
        - match: {labels: {team: infra}}
          skip: true
        """
    )
    assert rule_for(rules, {"team": "vision"}, "high") == rules[0]
    assert rule_for(rules, {"team": "vision", "more": "x"}, "") == rules[1]
    assert rule_for(rules, {"team": "infra"}, "high") == MappingRule({"team": "infra"}, skip=True)
    assert rule_for(rules, {}, "") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- match: {labels: {a: b}}", "rule 0: either toLocalQueue or skip: true"),
        ("- {toLocalQueue: q, skip: true}", "rule 0: either toLocalQueue or skip: true"),
        ("- {toLocalQueue: q, typo: 1}", "rule 0.typo: Extra inputs"),
        ("- {toLocalQueue: 5}", "rule 0.toLocalQueue: Input should be a valid string"),
        ("a: b", "Input should be a valid list"),
        ("- [", "is not YAML"),
        ("- &a {toLocalQueue: q}\n- *a", "is not YAML: aliases are not supported"),
        ("[" * 5000, "is not YAML"),
        ("#" * 262_145, "is longer than 262144 characters"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(text: str, said: str) -> None:
    with pytest.raises(MappingError, match="^" + said.replace(".", r"\.")):
        from_file(text)


def test_pairs_are_given_once_or_several_times() -> None:
    assert pairs(["a=b,c=d", "e=f"], "--queuemapping") == {"a": "b", "c": "d", "e": "f"}
    with pytest.raises(MappingError, match=r"--queuemapping: .*nonsense.* is not of the form KEY=VALUE"):
        pairs(["nonsense"], "--queuemapping")


# --- planning ---------------------------------------------------------------------------------------------------------


def running(**spec: Any) -> AdoptableJob:
    body = job("train", "", pods=2, gpus=4, namespace="ns")
    body["metadata"] |= {"uid": "job-uid", "labels": {"team": "vision"}}
    body["spec"] |= spec
    assert KIND is not None
    return AdoptableJob(KIND, JobObject(body))


def pod(name: str, node: str = "") -> PodObject:
    owner = {"kind": "Job", "name": "train", "uid": "job-uid", "controller": True}
    return PodObject(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": f"pod-{name}", "ownerReferences": [owner]},
            "spec": {"nodeName": node} if node else {},
        }
    )


def facts(
    *objects: Json, nodes: dict[str, dict[str, str]] | None = None, pods: tuple[PodObject, ...] = ()
) -> ImportFacts:
    found: dict[Resource, dict[str, Stored]] = {}
    for obj in map(as_stored, objects):
        found.setdefault(kube.BY_KIND[obj["kind"]], {})[obj.key] = obj
    return ImportFacts(found, nodes or {}, pods_of(pods, [running().obj]))


QUEUES = (cluster_queue("vision", 6, flavors=("old", "new")), local_queue("lq", "vision", "ns"))
FLAVORS = (flavor("old", {"card": "v100"}), flavor("new", {"card": "h100"}))


def adopted(job: AdoptableJob, known: ImportFacts) -> Adoption:
    found = plan(job, RULES, known, {"by": "import"})
    assert isinstance(found, Adoption), found
    return found


def reason(job: AdoptableJob, known: ImportFacts) -> str:
    found = plan(job, RULES, known, {})
    assert isinstance(found, Skipped)
    assert found.fault
    return found.reason


def test_it_is_admitted_to_the_flavor_of_its_nodes() -> None:
    known = facts(*QUEUES, *FLAVORS, nodes={"n1": {"card": "h100"}}, pods=(pod("a", "n1"), pod("b", "n1")))
    found = adopted(running(), known)
    (row,) = found.admission.pod_sets
    assert (found.admission.cluster_queue, row.flavors, row.usage, row.count) == ("vision", {GPU: "new"}, {GPU: 8}, 2)
    metadata = found.workload["metadata"]
    assert metadata["labels"] == {names.JOB_UID: "job-uid", "by": "import"}
    assert metadata["annotations"][names.ADMISSION_GATED_BY] == GATE
    assert not metadata["ownerReferences"][0]["controller"], "the operator leaves it alone until the job names it"
    (use,) = uses([found], known)
    assert (use.flavor, use.adopted, use.nominal, use.over) == ("new", 8, 6, 2)


def test_without_nodes_it_gets_the_first_flavor() -> None:
    assert adopted(running(), facts(*QUEUES, *FLAVORS)).admission.pod_sets[0].flavors == {GPU: "old"}


def test_pods_on_nodes_of_two_flavors_cannot_be_adopted() -> None:
    nodes = {"n1": {"card": "h100"}, "n2": {"card": "v100"}}
    known = facts(*QUEUES, *FLAVORS, nodes=nodes, pods=(pod("a", "n1"), pod("b", "n2")))
    assert reason(running(), known) == "its pods run on n1, n2, which no flavor has alone (flavors: old, new)"


def topology(*levels: str) -> Json:
    rows = [{"nodeLabel": level} for level in levels]
    return {"kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": rows}}


@pytest.mark.parametrize(
    ("levels", "domains"),
    [
        (("rack",), [(("r1",), 1), (("r2",), 1)]),
        (("rack", "kubernetes.io/hostname"), [(("n1",), 1), (("n2",), 1)]),
    ],
)
def test_with_a_topology_it_holds_the_domains_of_its_nodes(
    levels: tuple[str, ...], domains: list[tuple[tuple[str, ...], int]]
) -> None:
    nodes = {f"n{i}": {"rack": f"r{i}", "kubernetes.io/hostname": f"n{i}"} for i in (1, 2)}
    spread = flavor("old")
    spread["spec"]["topologyName"] = "racks"
    queues = (cluster_queue("vision", 8, flavors=("old",)), local_queue("lq", "vision", "ns"))
    known = facts(*queues, spread, topology(*levels), nodes=nodes, pods=(pod("a", "n1"), pod("b", "n2")))
    assigned = adopted(running(), known).admission.pod_sets[0].topology
    assert assigned is not None
    assert list(assigned.domains) == [model.Domain(values, count) for values, count in domains]

    known = facts(*queues, spread, topology(*levels), nodes=nodes, pods=(pod("a", "n1"), pod("b")))
    assert reason(running(), known).startswith('1 of its 2 pods are on nodes of topology "racks"')


def test_checks_of_its_queue_count_as_passed() -> None:
    rules = [{"name": "always", "onFlavors": []}, {"name": "new-only", "onFlavors": ["new"]}]
    strategy = {"admissionChecksStrategy": {"admissionChecks": rules}}
    queue = cluster_queue("vision", 6, flavors=("old", "new"), **strategy)
    assert adopted(running(), facts(queue, QUEUES[1], *FLAVORS)).checks == ("always",)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (facts(*FLAVORS), 'namespace ns has no LocalQueue "lq"'),
        (facts(QUEUES[1]), 'LocalQueue "lq" leads to ClusterQueue "vision", which does not exist'),
        (facts(*QUEUES), 'ResourceFlavor "old" does not exist'),
    ],
)
def test_what_is_missing_is_named(known: ImportFacts, said: str) -> None:
    assert reason(running(), known) == said


def test_a_resource_without_quota_and_a_missing_priority_class_are_named() -> None:
    wide = running()
    wide.obj["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    assert reason(wide, facts(*QUEUES, *FLAVORS)) == 'ClusterQueue "vision" has no quota for cpu'
    named = running()
    named.obj["spec"]["template"]["spec"]["priorityClassName"] = "high"
    assert 'PriorityClass "high" not found' in reason(named, facts(*QUEUES, *FLAVORS))


def test_a_job_of_another_queue_is_a_fault() -> None:
    other = running()
    other.obj["metadata"]["labels"][names.QUEUE_NAME] = "other"
    assert reason(other, facts(*QUEUES, *FLAVORS)) == 'it names queue "other", and the rules say "lq"'


def test_jobs_that_need_nothing_are_left_alone() -> None:
    owned, done, queued, gone = running(), running(), running(), running()
    owned.obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "x", "controller": True}
    ]
    done.obj["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    queued.obj["metadata"]["labels"][names.QUEUE_NAME] = "lq"
    gone.obj["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"
    reasons = {
        "it belongs to JobSet js": owned,
        "it has finished": done,
        "it is in its queue already": queued,
        "it is being deleted": gone,
        "it is suspended: it queues like any job once it names a queue": running(suspend=True),
    }
    for said, each in reasons.items():
        assert plan(each, RULES, facts(*QUEUES, *FLAVORS), {}) == Skipped(each, said, fault=False)


def test_pods_belong_to_the_topmost_job() -> None:
    def owned(name: str, owner: str) -> Json:
        return {"metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": owner, "controller": True}]}}

    jobset, child = JobObject({"metadata": {"name": "js", "uid": "js"}}), JobObject(owned("c", "js"))
    of_child, alone = PodObject(owned("p", "c")), PodObject({"metadata": {"name": "alone"}})
    done = altered(of_child, status={"phase": "Succeeded"})
    assert pods_of([of_child, done, alone], [jobset, child]) == {"js": [of_child]}
    executor = PodObject(owned("e", "p"))
    assert pods_of([of_child, executor], [jobset, child]) == {"js": [of_child, executor]}, "a driver owns its executors"


#: kind -> the labels that its controller gives the pods of each pod set
LABELS: dict[str, dict[str, dict[str, str]]] = {
    **{
        kind: {
            each: {"training.kubeflow.org/replica-type": each}
            for each in ("chief", "master", "ps", "worker", "evaluator")
        }
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
    },
    "MPIJob": {each: {"training.kubeflow.org/job-role": each} for each in ("launcher", "worker")},
    **{
        kind: {
            "head": {"ray.io/group": "headgroup"},
            "small": {"ray.io/group": "Small"},
            "slice": {"ray.io/group": "slice"},
            "submitter": {"job-name": "mine"},
        }
        for kind in ("RayCluster", "RayService", "RayJob")
    },
    "TrainJob": {each: {"jobset.sigs.k8s.io/replicatedjob-name": each} for each in ("dataset-initializer", "node")},
    "SparkApplication": {each: {"spark-role": each} for each in ("driver", "executor")},
}
#: a queue for whatever the jobs request
AMOUNTS = [{"name": name, "nominalQuota": "1000000"} for name in ("cpu", "memory", "gpu")]
GROUP: Json = {
    "coveredResources": ["cpu", "memory", "gpu"],
    "flavors": [{"name": "old", "resources": AMOUNTS}, {"name": "new", "resources": AMOUNTS}],
}
WIDE: Json = {**(made := cluster_queue("vision", 0)), "spec": {**made["spec"], "resourceGroups": [GROUP]}}


def running_of(case: Case) -> AdoptableJob:
    kind = kind_of(case.job["apiVersion"], case.name)
    assert kind is not None
    body = copy.deepcopy(case.job)
    body["metadata"] |= {"uid": "job-uid", "namespace": "ns", "labels": {"team": "vision"}}
    return AdoptableJob(kind, altered(body, status=case.busy))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_is_adopted_with_the_flavor_of_the_nodes_of_each_pod_set(case: Case) -> None:
    """The pods of the first pod set are on new nodes, all others on old ones."""
    job, labels = running_of(case), LABELS.get(case.name, {})
    first = next(iter(case.counts))
    made = [
        pod(f"{name}-{i}", "n-new" if name == first or not labels else "n-old")
        for name, count in case.counts.items()
        for i in range(count)
    ]
    for each in made:
        each["metadata"]["labels"] = labels.get(each["metadata"]["name"].rpartition("-")[0], {})
    known = facts(
        WIDE, QUEUES[1], *FLAVORS, nodes={"n-new": {"card": "h100"}, "n-old": {"card": "v100"}}, pods=tuple(made)
    )
    if case.description is not None:
        assert reason(job, known) == "spec.runtimeRef: the ClusterTrainingRuntime 'torch' does not exist"
        found = {kube.CLUSTER_TRAINING_RUNTIMES: {"torch": Stored(case.description)}}
        known = replace(known, objects={**known.objects, **found})
    rows = adopted(job, known).admission.pod_sets
    assert {row.name: row.count for row in rows} == case.counts
    for (
        row
    ) in rows:  # an AppWrapper's pods do not say of which pod set they are, so they have to be on nodes of one flavor
        assert {*row.flavors.values()} == {"new" if row.name == first or not labels else "old"}


def test_a_job_that_is_left_alone_when_it_is_queued_is_left_alone_here() -> None:
    case = next(each for each in CASES if each.name == "RayJob")
    job = running_of(case)
    job.obj["spec"]["clusterSelector"] = {"ray.io/cluster": "other"}
    found = plan(job, RULES, facts(WIDE, QUEUES[1], *FLAVORS), {})
    assert isinstance(found, Skipped)
    assert not found.fault
    assert found.reason.startswith("it is not queued: ")


class Listing:
    """An API server with these objects; remembers what it was asked for."""

    def __init__(self, objects: Mapping[Resource, Sequence[Json]]) -> None:
        self._objects = objects
        self.asked: list[Resource] = []

    async def list(self, kind: Resource, namespace: str | None = None) -> Any:
        self.asked.append(kind)
        return SimpleNamespace(items=list(self._objects.get(kind, ())))


async def test_devices_of_claims_count_as_what_they_consume() -> None:
    source = DeviceSource("counter", "gpu-memory", "gpu.example.com", "memory", "true")
    rules = ResourceRules(devices=Devices({"mig": "gpu-memory"}, {"mig": (source,)}))
    asked = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "mig"}}]}}
    consumed = [{"counterSet": "s", "counters": {"memory": {"value": "5Gi"}}}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    slice_ = {"driver": "gpu.example.com", "pool": pool, "devices": [{"name": "d", "consumesCounters": consumed}]}
    objects: dict[Resource, Sequence[Json]] = {
        kube.RESOURCE_CLAIM_TEMPLATES: [{"metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": asked}}],
        kube.DEVICE_CLASSES: [{"metadata": {"name": "mig"}, "spec": {}}],
        kube.RESOURCE_SLICES: [{"metadata": {"name": "s"}, "spec": slice_}],
    }
    spec = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "t", "resourceClaimTemplateName": "t"}]}
    facts = await cluster_facts.read(Listing(objects), ["ns"], rules, [], [])  # pyright: ignore[reportArgumentType]
    assert facts.rules("ns").quota(spec, {}) == {"gpu-memory": 5 << 30}
    without = Listing({})
    await cluster_facts.read(without, ["ns"], rules, [], [])  # pyright: ignore[reportArgumentType]
    assert kube.RESOURCE_SLICES not in without.asked
