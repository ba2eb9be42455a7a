"""What of a SparkApplication counts, and how an admission gets into its driver and executors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.jobs.foreign import SPARK, Json
from tests.merging import merge_patch

from gangline.api import admission
from gangline.api.jobkinds.spark import MOVED
from gangline.jobs import kind_of, owners
from gangline.jobs.base import JobError, PodSetInfo

KIND = kind_of("sparkoperator.k8s.io/v1beta2", "SparkApplication")
assert KIND is not None
kind = KIND


def spark(**spec: Any) -> Json:
    made = copy.deepcopy(SPARK.job)
    made["spec"] |= {"suspend": True, **spec}
    return made


def started(held: Json, **info: Any) -> Json:
    patch = kind.start(held, [PodSetInfo(role, 1, **info) for role in ("driver", "executor")])
    assert patch is not None
    return merge_patch(held, patch.body)


def test_the_template_that_counts() -> None:
    driver, executor = (row["template"] for row in kind.pod_sets(spark()))
    assert driver["metadata"] == {"labels": {"app": "x"}}
    assert driver["spec"] == {
        "containers": [
            {"name": "spark-kubernetes-driver", "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}}}
        ],
        "nodeSelector": {"disk": "ssd"},
    }
    assert executor["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"gpu": "8"},
    }
    assert executor["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]


def test_everything_that_a_role_can_have() -> None:
    role = {
        "coreRequest": "1",
        "coreLimit": "2",
        "memory": "1g",
        "memoryLimit": "2g",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "nodeSelector": {"e": "f"},
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "initContainers": [{"name": "first"}],
        "sidecars": [{"name": "beside"}],
        "volumeMounts": [{"name": "data"}, {"name": "spark-local-dir-1"}, {"name": "unknown"}],
        "template": {
            "metadata": {"labels": {"own": "1"}},
            "spec": {"schedulingGates": [{"name": "mine"}], "nodeSelector": {"ignored": "x"}},
        },
    }
    volumes = [{"name": "data"}, {"name": "spark-local-dir-1"}, {"name": "unused"}]
    [row, _] = kind.pod_sets(spark(driver=role, volumes=volumes, nodeSelector=None))
    found = row["template"]
    assert found["metadata"] == {"labels": {"own": "1", "a": "b"}, "annotations": {"c": "d"}}
    spec = found["spec"]
    assert [each["name"] for each in spec["containers"]] == ["spark-kubernetes-driver", "beside"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "2Gi"},
    }
    assert spec["containers"][0]["volumeMounts"] == [{"name": "data"}]
    assert spec["volumes"] == [{"name": "data"}]
    assert spec["initContainers"] == [{"name": "first"}]
    assert spec["nodeSelector"] == {"e": "f"}
    assert spec["affinity"] == {"nodeAffinity": {}}
    assert spec["priorityClassName"] == "high"
    assert spec["schedulingGates"] == [{"name": "mine"}]


@pytest.mark.parametrize(
    ("written", "counted"),
    [("512m", "512Mi"), ("1G", "1Gi"), ("2gb", "2Gi"), ("64k", "64Ki"), ("1t", "1Ti"), ("1Gi", "1Gi"), (" 7 ", "7")],
)
def test_memory_in_the_units_of_the_jvm(written: str, counted: str) -> None:
    [row, _] = kind.pod_sets(spark(driver={"memory": written}))
    assert row["template"]["spec"]["containers"][0]["resources"]["requests"] == {"memory": counted}


@pytest.mark.parametrize("written", ["lots", "1.2.3g", "9" * 70, ""])
def test_an_amount_that_is_none(written: str) -> None:
    with pytest.raises(JobError) as caught:
        kind.pod_sets(spark(driver={"memory": written}))
    assert caught.value.field == "spec.driver.memory"


def test_the_node_selector_of_all_is_moved_into_the_roles_and_back() -> None:
    """Spark's operator refuses it beside those of the roles."""
    held = spark()
    running = started(held, node_selector={"pool": "a"})
    assert "nodeSelector" not in running["spec"]
    assert running["spec"]["driver"]["nodeSelector"] == {"disk": "ssd", "pool": "a"}
    assert running["metadata"]["annotations"] == {MOVED: "true"}
    patch = kind.stop(running, kind.pod_sets(held))
    assert patch is not None
    assert merge_patch(running, patch.body)["spec"] == held["spec"]


def test_one_of_each_role_stays_with_it() -> None:
    held = spark(nodeSelector=None, driver={"nodeSelector": {"a": "b"}})
    del held["spec"]["nodeSelector"]
    running = started(held, node_selector={"pool": "a"}, scheduling_gates=[{"name": "kueue.x-k8s.io/topology"}])
    assert running["spec"]["driver"]["template"] == {
        "spec": {
            "containers": [{"name": "spark-kubernetes-driver"}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
        }
    }
    patch = kind.stop(running, kind.pod_sets(held))
    assert patch is not None
    assert merge_patch(running, patch.body)["spec"] == held["spec"]


def test_all_executors_have_to_have_started() -> None:
    running: Json = {**spark(), "status": {"applicationState": {"state": "RUNNING"}}}
    assert not kind.pods_ready(running)
    running["status"]["executorState"] = {"1": "RUNNING", "2": "PENDING", "3": "COMPLETED"}
    assert not kind.pods_ready(running)
    running["status"]["executorState"]["2"] = "RUNNING"
    assert kind.pods_ready(running)


def test_its_author_is_told_what_does_not_count() -> None:
    assert admission.warnings(spark()) == []
    for factor in ("0", "0.0", ".0"):
        assert admission.warnings(spark(memoryOverheadFactor=factor)) == [], "nothing is added"
    found = admission.warnings(spark(driver={"cores": 2, "memoryOverhead": "1g"}, memoryOverheadFactor="0.2"))
    assert [each.partition(" ")[0] for each in found] == [
        "spec.driver.cores",
        "spec.driver.memoryOverhead",
        "spec.memoryOverheadFactor",
    ]


@pytest.mark.parametrize(
    ("name", "labels", "made"),
    [
        ("mine-driver", {"sparkoperator.k8s.io/app-name": "mine"}, True),
        ("mine-driver", {}, False),
        ("other", {"sparkoperator.k8s.io/app-name": "mine"}, False),
    ],
)
def test_the_driver_is_its_own(name: str, labels: Json, made: bool) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}
    assert owners.creates(spark(), pod) is made
