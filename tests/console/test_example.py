"""The quickstart is what users copy from: it must be right in every field, and show what its comments promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangline.api import admission, names, quantity
from gangline.api.convert.conversion import convert
from gangline.api.schema.kinds import KINDS
from gangline.console.run import example as examples
from gangline.console.run.example import Example, ExampleError, Manifest
from gangline.control.answers.workloads.snapshot import requested
from gangline.engine.model import accelerators
from gangline.jobs import kind_of
from gangline.objects import JobObject, WorkloadObject

QUICKSTART = examples.load(examples.bundled())
MODELS = {(f"{kind.group}/{v.name}", kind.kind): v.model for kind in KINDS for v in kind.versions}
GPU = "nvidia.com/gpu"


def of_kind(kind: str) -> list[Manifest]:
    return [m for m in QUICKSTART.manifests if m.resource.kind == kind]


def queue_of(job: Manifest) -> tuple[str, str]:
    """(label, annotation)"""
    metadata = job.obj["metadata"]
    return tuple((metadata.get(where) or {}).get(names.QUEUE_NAME, "") for where in ("labels", "annotations"))


def gpus(job: Manifest) -> int:
    kind = kind_of(job.obj["apiVersion"], job.obj["kind"])
    assert kind is not None
    return accelerators(requested(WorkloadObject({"spec": {"podSets": kind.pod_sets(JobObject(job.obj))}})))


def keys(value: Any) -> Any:
    """The tree of field names of some JSON."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    return [keys(inner) for inner in value] if isinstance(value, list) else None


OURS = [m for m in QUICKSTART.manifests if (m.obj["apiVersion"], m.obj["kind"]) in MODELS]


@pytest.mark.parametrize("manifest", OURS, ids=str)
def test_every_field_is_known_to_its_model(manifest):
    model = MODELS[manifest.obj["apiVersion"], manifest.obj["kind"]]
    understood = model.model_validate(manifest.obj).model_dump(by_alias=True, exclude_unset=True)
    written = {field: value for field, value in manifest.obj.items() if field != "metadata"}
    assert keys({f: v for f, v in understood.items() if f != "metadata"}) == keys(written)


@pytest.mark.parametrize(
    "manifest",
    [m for m in QUICKSTART.manifests if m.resource.kind not in ("Namespace", "WorkloadPriorityClass")],
    ids=str,
)
def test_the_webhooks_have_nothing_to_object(manifest):
    obj = convert(manifest.obj, names.V1BETA2) if manifest.obj["apiVersion"] == names.V1BETA1 else manifest.obj
    classes = {m.name for m in of_kind("WorkloadPriorityClass")}
    context = admission.AdmissionFacts(
        local_queue_exists=lambda ns, name: True, priority_class_exists=lambda name: name in classes
    )
    completed = admission.default(obj, None, context).obj
    assert admission.validate(completed, None, context) == []


def test_names_refer_to_what_exists():
    flavors, namespaces = {m.name for m in of_kind("ResourceFlavor")}, {m.name for m in of_kind("Namespace")}
    queues = {m.name for m in of_kind("ClusterQueue")}
    doors = {(m.namespace, m.name): m.obj["spec"]["clusterQueue"] for m in of_kind("LocalQueue")}
    classes = {m.name for m in of_kind("WorkloadPriorityClass")}
    used = {f["name"] for q in of_kind("ClusterQueue") for g in q.obj["spec"]["resourceGroups"] for f in g["flavors"]}
    assert used == flavors
    assert set(doors.values()) == queues
    assert {ns for ns, _ in doors} == namespaces
    for job in QUICKSTART.jobs:
        label, annotation = queue_of(job)
        assert bool(label) != bool(annotation), job
        assert (job.namespace, label or annotation) in doors, job
        wanted = job.obj["metadata"].get("labels", {}).get(names.PRIORITY_CLASS)
        assert wanted is None or wanted in classes, job


def test_the_teams_share_a_cohort_and_one_queue_is_in_the_older_version():
    queues = of_kind("ClusterQueue")
    assert len(queues) == 2
    assert {q.obj["spec"].get("cohortName") or q.obj["spec"].get("cohort") for q in queues} == {"lab"}
    assert sorted(q.obj["apiVersion"] for q in queues) == [names.V1BETA1, names.V1BETA2]


def test_the_jobs_are_many_and_of_all_sizes():
    sizes = {job.name: gpus(job) for job in QUICKSTART.jobs}
    assert len(sizes) == 30
    assert min(sizes.values()) == 1
    assert max(sizes.values()) == 64
    assert {job.resource.kind for job in QUICKSTART.jobs} == {"Job", "GPUJob"}


def test_queue_names_come_as_label_and_as_annotation_of_both_kinds():
    ways = {(job.resource.kind, bool(queue_of(job)[0])) for job in QUICKSTART.jobs}
    assert ways == {("Job", True), ("Job", False), ("GPUJob", True), ("GPUJob", False)}


def test_exactly_one_job_is_too_big_for_its_queue_for_ever():
    nodes = {pool.name: pool.count * int(pool.allocatable[GPU]) for pool in QUICKSTART.node_pools()}
    limits: dict[str, dict[str, int]] = {}
    for queue in of_kind("ClusterQueue"):
        for flavor in queue.obj["spec"]["resourceGroups"][0]["flavors"]:
            quota = flavor["resources"][0]
            most = (
                quota["nominalQuota"] + quota["borrowingLimit"] if "borrowingLimit" in quota else nodes[flavor["name"]]
            )
            limits.setdefault(queue.name, {})[flavor["name"]] = most
    doors = {m.namespace: m.obj["spec"]["clusterQueue"] for m in of_kind("LocalQueue")}
    too_big = [job.name for job in QUICKSTART.jobs if gpus(job) > max(limits[doors[job.namespace]].values())]
    assert too_big == ["llama-405b"]


def test_quota_and_simulated_nodes_are_the_same_capacity():
    for pool in QUICKSTART.node_pools():
        quotas = [
            flavor["resources"][0]["nominalQuota"]
            for queue in of_kind("ClusterQueue")
            for flavor in queue.obj["spec"]["resourceGroups"][0]["flavors"]
            if flavor["name"] == pool.name
        ]
        assert sum(quotas) == pool.count * int(pool.allocatable[GPU])


def test_flavors_select_and_tolerate_their_nodes():
    flavors = {m.name: m.obj["spec"] for m in of_kind("ResourceFlavor")}
    for pool in QUICKSTART.node_pools():
        spec = flavors[pool.name]
        assert spec["nodeLabels"].items() <= dict(pool.labels).items()
        tolerated = {(t["key"], t.get("value", ""), t["effect"]) for t in spec.get("tolerations", [])}
        assert {(t.key, t.value, t.effect) for t in pool.taints} <= tolerated


def test_every_pod_says_how_long_it_is_simulated_to_run():
    for job in QUICKSTART.jobs:
        kind = kind_of(job.obj["apiVersion"], job.obj["kind"])
        assert kind is not None
        for pod_set in kind.pod_sets(JobObject(job.obj)):
            text = pod_set["template"]["metadata"]["annotations"][names.SIMULATED_RUNTIME]
            assert 1 <= quantity.parse_duration(text) <= 60, job


def test_the_urgent_job_comes_last_of_all_that_can_run():
    urgent = [j for j in QUICKSTART.jobs if j.obj["metadata"].get("labels", {}).get(names.PRIORITY_CLASS) == "urgent"]
    assert len(urgent) == 1
    assert QUICKSTART.jobs[-1] == urgent[0]
    assert urgent[0].arrival > 10


# --- reading ----------------------------------------------------------------------------------------------------------

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: n}\n"


def load(directory: Path, text: str) -> Example:
    (directory / "10.yaml").write_text(text)
    return examples.load(directory)


def test_jobs_are_in_the_order_of_their_arrival(tmp_path):
    later = JOB.replace("name: j", 'name: late, annotations: {gangline.io/simulated-arrival: "1m5s"}')
    loaded = load(tmp_path, f"{later}---\n---\n{JOB}")
    assert [(j.name, j.arrival) for j in loaded.jobs] == [("j", 0.0), ("late", 65.0)]
    assert loaded.node_pools() == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "10.yaml"),
        ("just text", "10.yaml, document 1: not a manifest"),
        (f"{JOB}---\nkind: Job\n", "10.yaml, document 2: metadata.name is missing"),
        (
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: d}\n",
            "Ingress of 'networking.k8s.io/v1' is not supported",
        ),
        ("apiVersion: batch/v1\nkind: ClusterQueue\nmetadata: {name: d}\n", "ClusterQueue of 'batch/v1'"),
        (JOB.replace("name: j", "name: j, annotations: {gangline.io/simulated-arrival: soon}"), "simulated-arrival"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: d}\n", "no Job and no GPUJob"),
    ],
)
def test_a_bad_manifest_is_named_with_its_place(tmp_path, text, complaint):
    with pytest.raises(ExampleError) as caught:
        load(tmp_path, text)
    assert complaint in str(caught.value)


def test_an_empty_directory_is_no_example(tmp_path):
    with pytest.raises(ExampleError, match=r"no \*\.yaml"):
        examples.load(tmp_path)


@pytest.mark.parametrize("text", ["a: 1", "- {name: UPPER, count: 1}", "- {name: a, cont: 1}", "- 7"])
def test_bad_node_pools_are_named(tmp_path, text):
    (tmp_path / "simulated").mkdir()
    (tmp_path / "simulated" / "node-pools.yaml").write_text(text)
    with pytest.raises(ExampleError, match=r"node-pools\.yaml"):
        load(tmp_path, JOB).node_pools()


def test_an_unknown_bundled_example_is_refused():
    with pytest.raises(ExampleError, match="no example 'nope'"):
        examples.bundled("nope")
