"""Where the pods of gangs are, as facts for the engine."""

from __future__ import annotations

from tests.builders.objects import T, a_pod
from tests.objects import PodObject

from gangline.api import names
from gangline.control.feed.pod import claimed_workload, read_pod
from gangline.control.feed.pod_index import PodIndex
from gangline.engine import model

INDEX = "batch.kubernetes.io/job-completion-index"
GROUP = {"jobset.sigs.k8s.io/job-index": "1", "jobset.sigs.k8s.io/replicatedjob-replicas": "2"}


def store() -> tuple[PodIndex, list[model.Change]]:
    changes: list[model.Change] = []

    def observe(change: model.Change) -> None:
        if (type(change.item) if isinstance(change, model.Put) else change.kind) is not model.ForeignPod:  # type: ignore[union-attr]
            changes.append(change)

    return PodIndex(observe=observe, counts=lambda workload: {"main": 8}), changes


def test_the_engine_is_told_of_a_gang_as_a_whole_and_only_when_something_changed() -> None:
    found, changes = store()
    found.upsert(a_pod("b", "n2", ready=False))
    found.upsert(a_pod("a", "n1", **{INDEX: "3"}))
    assert changes == []
    found.report_changes()
    pods = (model.BoundPod("a", "main", "n1", 3, ready=True), model.BoundPod("b", "main", "n2"))
    assert changes == [model.Put(model.WorkloadPods("ns/w", pods))]
    again = a_pod("a", "n1", **{INDEX: "3"})
    again["metadata"]["labels"]["other"] = "label"
    found.upsert(again)
    found.report_changes()
    assert len(changes) == 1


def test_pods_that_wait_or_have_ended_sit_on_no_node() -> None:
    found, changes = store()
    found.upsert(a_pod("waits", "", phase="Pending"))
    found.upsert(a_pod("ended", "n1", phase="Succeeded"))
    found.report_changes()
    assert changes == []
    found.upsert(a_pod("going", "n1", due=T))
    found.report_changes()
    [change] = changes
    assert isinstance(change, model.Put)
    assert [(pod.name, pod.terminating) for pod in change.item.pods] == [("going", True)]  # type: ignore[union-attr]


def test_pods_that_their_node_failed_are_told_apart_from_those_that_failed_themselves() -> None:
    found, changes = store()
    faults = ("UnexpectedAdmissionError", "Terminated", "OutOfnvidia.com/gpu", "", "Evicted", "OutOfcpu")
    for number, reason in enumerate(faults):
        pod = a_pod(f"p{number}", "n1", phase="Failed")
        pod["status"]["reason"] = reason
        found.upsert(pod)
    unknown = a_pod("p9", "n2", phase="Failed")
    unknown["status"]["containerStatuses"] = [{"state": {"terminated": {"reason": "ContainerStatusUnknown"}}}]
    found.upsert(unknown)
    found.report_changes()
    failed = (("p0", "n1"), ("p1", "n1"), ("p2", "n1"), ("p9", "n2"))
    assert changes == [model.Put(model.WorkloadPods("ns/w", (), failed))]
    for number in (0, 1, 2, 9):
        found.remove(f"ns/p{number}")
    found.report_changes()
    assert changes[1:] == [model.Gone(model.WorkloadPods, "ns/w")]


def test_the_last_pod_takes_the_footprint_with_it() -> None:
    found, changes = store()
    found.upsert(a_pod("a"))
    found.report_changes()
    found.remove("ns/a")
    found.report_changes()
    assert changes[1:] == [model.Gone(model.WorkloadPods, "ns/w")]
    assert found.on("n1") == found.of("ns/w") == []


def test_a_pod_that_was_left_behind_is_no_longer_of_the_gang() -> None:
    found, changes = store()
    found.upsert(a_pod("a"))
    found.report_changes()
    found.upsert(a_pod("a", workload=""))
    found.report_changes()
    assert changes[1:] == [model.Gone(model.WorkloadPods, "ns/w")]


def test_the_index_counts_through_the_jobs_of_a_replicated_job() -> None:
    found = read_pod(a_pod("a", **{INDEX: "2"}, **GROUP), "ns/w")
    assert found.bound(8).index == 6
    alone = read_pod(a_pod("a", **{INDEX: "2"}), "ns/w")
    assert alone.bound(8).index == 2


def test_what_is_read_of_a_pod() -> None:
    pod = read_pod(a_pod("a", due=T, attempt=3, created=T - 5000), "ns/w")
    assert (pod.workload, pod.attempt, pod.created, pod.due) == ("ns/w", 3, T - 5000, T)
    assert (pod.terminating, pod.alive) == (True, False)
    assert claimed_workload(a_pod("a", workload="")) is None


def test_numbers_of_thousands_of_digits_are_none() -> None:
    pod = a_pod("a", **{INDEX: "9" * 60, **GROUP})
    pod["metadata"]["annotations"]["gangline.io/attempt"] = "9" * 5000
    found = read_pod(pod, "ns/w")
    assert (found.index, found.attempt) == (None, 0)


def test_an_index_beyond_the_pod_set_is_none() -> None:
    found = read_pod(a_pod("a", **{INDEX: "9" * 18}), "ns/w")
    assert found.bound(8).index is None


def test_more_pods_than_a_gang_can_have_do_not_speak_for_it() -> None:
    found, changes = store()
    for number in range(100):
        found.upsert(a_pod(f"p{number:02}", f"n{number:02}", created=T + number * 1000))
        found.upsert(a_pod(f"q{number:02}", f"m{number:02}", created=T + number * 1000, due=T))
    found.report_changes()
    [change] = changes
    assert isinstance(change, model.Put)
    names = [pod.name for pod in change.item.pods]  # type: ignore[union-attr]
    assert [name for name in names if name.startswith("p")] == [f"p{number:02}" for number in range(8)], "the oldest"
    assert [name for name in names if name.startswith("q")] == [f"q{number}" for number in range(68, 100)], "the newest"


def test_a_version_that_is_older_than_the_answer_to_a_write_gives_a_pod_no_gate_again() -> None:
    found, _ = store()
    gated = a_pod("a", "", phase="Pending")
    gated["metadata"] |= {
        "resourceVersion": "7",
        "annotations": {**gated["metadata"]["annotations"], names.SLICE_NAME: "w"},
    }
    gated["spec"]["schedulingGates"] = [{"name": names.ELASTIC_GATE}]
    started = PodObject({**gated, "metadata": {**gated["metadata"], "resourceVersion": "9"}, "spec": {}})
    found.upsert(gated)
    assert [pod.at_elastic_gate for pod in found.of("ns/w")] == [True]
    found.upsert(started)
    found.upsert(PodObject({**gated, "metadata": {**gated["metadata"], "resourceVersion": "8"}}))
    assert [pod.at_elastic_gate for pod in found.of("ns/w")] == [False]
    anew = PodObject({**gated, "metadata": {**gated["metadata"], "uid": "another", "resourceVersion": "8"}})
    found.upsert(anew)
    assert [pod.at_elastic_gate for pod in found.of("ns/w")] == [True], "another pod of that name"


def test_of_a_pod_that_waits_for_its_place_is_kept_what_says_where_it_may_run() -> None:
    pod = a_pod("a", **{INDEX: "2"})
    pod["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    container = {"name": "c", "image": "i", "args": ["x" * 100_000], "resources": {"limits": {"gpu": "1"}}}
    pod["spec"] |= {
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}, {"name": names.DOMAIN_GATE}],
        "nodeSelector": {"pool": "a"},
        "containers": [container],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    kept = read_pod(pod, "ns/w").manifest
    assert len(repr(kept)) < 2000
    assert kept["spec"]["containers"] == [{"name": "c", "resources": {"limits": {"gpu": "1"}}}]
    assert kept["spec"]["nodeSelector"] == {"pool": "a"} and len(kept["spec"]["schedulingGates"]) == 2
    assert "managedFields" not in kept["metadata"]
    assert pod["spec"]["containers"] == [container], "the event is others' as well"
