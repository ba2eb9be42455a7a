from __future__ import annotations

from typing import Any

from bench.drivers import DRIVERS, finished_patch
from bench.parameters import read

from bench import floor, objects
from gangline.api import names
from gangline.api.read import parse

NOW = 1_700_000_000_000


def _stored(body: dict[str, Any], **status: Any) -> dict[str, Any]:
    """As the API server would return it."""
    metadata = {**body["metadata"], "uid": "u", "resourceVersion": "7", "creationTimestamp": "2025-01-01T00:00:00Z"}
    return {**body, "metadata": metadata, "status": status}


def test_queues_come_after_what_they_name():
    kinds = [obj["kind"] for obj in objects.setup(read("tas", "smoke"))]
    assert kinds.index("Topology") < kinds.index("ResourceFlavor") < kinds.index("ClusterQueue")
    assert kinds.count("ClusterQueue") == kinds.count("LocalQueue") == kinds.count("Namespace") == 8


def test_the_engine_reads_the_queues_as_the_load_means_them():
    queue = next(obj for obj in objects.setup(read("baseline", "full")) if obj["kind"] == "ClusterQueue")
    parsed = parse.cluster_queue(_stored(queue))
    quota = parsed.groups[0].flavors[0].resources["cpu"]
    assert (quota.nominal, quota.borrowing_limit) == (20_000, 100_000)
    assert parsed.preemption.within_cluster_queue == "LowerPriority"
    assert parsed.preemption.reclaim_within_cohort == "Any"


def test_the_engine_reads_the_workloads():
    large = next(kind for kind in read("baseline", "full").classes if kind.name == "large")
    parsed = parse.workload(_stored(objects.workload(large, "queue-0-0", 3)))
    assert (parsed.priority, parsed.queue, parsed.pod_sets[0].requests["cpu"]) == (200, objects.LOCAL_QUEUE, 20_000)


def test_topologies_are_taken_in_turn():
    small = next(kind for kind in read("tas", "full").classes if kind.name == "small")
    requests = [
        parse.workload(_stored(objects.workload(small, "q", number))).pod_sets[0].topology for number in range(4)
    ]
    required, preferred, balanced, again = requests
    assert required is not None and required.required == objects.RACK
    assert preferred is not None and preferred.preferred == objects.RACK and not preferred.slices
    assert balanced is not None and balanced.slices[0].level == objects.HOSTNAME and balanced.slices[0].size == 1
    assert again == required


def test_the_null_controller_admits_as_the_operator_does():
    large = next(kind for kind in read("tas", "full").classes if kind.name == "large")
    workload = _stored(objects.workload(large, "queue-0-0", 0))
    patch = floor.admitted_patch(workload, NOW)
    assert patch["metadata"] == {"resourceVersion": "7"}
    admitted = parse.workload({**workload, "status": patch["status"]})
    assert admitted.admitted and admitted.admission is not None
    assert admitted.admission.pod_sets[0].usage == {"cpu": 8 * 96 * 1000}


def test_phases_of_a_workload():
    driver, kind = DRIVERS["workloads"], read("baseline", "full").classes[0]
    workload = _stored(objects.workload(kind, "queue-0-0", 0))
    assert driver.phase(workload) == "waiting"
    admitted = {**workload, "status": floor.admitted_patch(workload, NOW)["status"]}
    assert driver.phase(admitted) == "running"
    evicted = {"type": names.EVICTED, "status": "True"}
    leaving = {**admitted, "status": {"conditions": [*admitted["status"]["conditions"], evicted]}}
    assert driver.phase(leaving) == "waiting"
    finished = {**admitted, "status": finished_patch(admitted, NOW)["status"]}
    assert driver.phase(finished) == "finished"


def test_an_eviction_is_ended_by_the_load():
    kind = read("baseline", "full").classes[0]
    workload = _stored(objects.workload(kind, "queue-0-0", 0))
    admitted = {**workload, "status": floor.admitted_patch(workload, NOW)["status"]}
    evicted = {"type": names.EVICTED, "status": "True"}
    leaving = {**admitted, "status": {"conditions": [*admitted["status"]["conditions"], evicted]}}
    driver = DRIVERS["workloads"]
    assert driver.release(admitted, NOW) is None
    patch = driver.release(leaving, NOW)
    assert patch is not None and patch["metadata"]["resourceVersion"] == "7"
    rows = {row["type"]: row["status"] for row in patch["status"]["conditions"]}
    assert (rows[names.QUOTA_RESERVED], rows[names.EVICTED]) == ("False", "True")
    assert patch["status"]["admission"] is None
    assert driver.release({**leaving, "status": patch["status"]}, NOW) is None


def test_finishing_keeps_the_other_conditions_and_is_fenced():
    kind = read("baseline", "full").classes[0]
    workload = _stored(objects.workload(kind, "queue-0-0", 0))
    admitted = {**workload, "status": floor.admitted_patch(workload, NOW)["status"]}
    patch = finished_patch(admitted, NOW + 1000)
    assert patch["metadata"]["resourceVersion"] == "7"
    rows = {row["type"]: row["status"] for row in patch["status"]["conditions"]}
    assert rows == {names.QUOTA_RESERVED: "True", names.ADMITTED: "True", names.FINISHED: "True"}
    assert len(admitted["status"]["conditions"]) == 2


def test_phases_of_a_job():
    driver, kind = DRIVERS["jobs"], read("jobs", "full").classes[0]
    job = _stored(driver.build(kind, "queue-0-0", 0))
    assert job["metadata"]["labels"][names.QUEUE_NAME] == objects.LOCAL_QUEUE
    held = {**job, "spec": {**job["spec"], "suspend": True}}
    assert (driver.phase(held), driver.phase(job)) == ("waiting", "running")
    complete = {**job, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert driver.phase(complete) == "finished"
    assert names.QUEUE_NAME not in DRIVERS["bare-jobs"].build(kind, "queue-0-0", 0)["metadata"]["labels"]
