"""What of a SparkApplication counts, and how an admission gets into its driver and executors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.jobs.foreign import SPARK, Json
from tests.merging import merge_patch
from tests.objects import WorkloadObject, altered

from gangline.api import admission
from gangline.api.jobkinds.spark import MOVED
from gangline.jobs import kind_of, owners, workload
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
            {"name": "spark-kubernetes-driver", "resources": {"requests": {"cpu": "100m", "memory": "896Mi"}}}
        ],
        "nodeSelector": {"disk": "ssd"},
    }
    assert executor["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1433Mi"},
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
        "requests": {"cpu": "1", "memory": "1433Mi"},
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
    [("512m", 512), ("1G", 1024), ("2gb", 2048), ("2048k", 2), ("1t", 1 << 20), ("1Gi", 1024), (" 7 ", 7), ("3", 3)],
)
def test_memory_in_the_units_of_the_jvm(written: str, counted: int) -> None:
    assert requests(spark(driver={"memory": written, "memoryOverhead": "0"}))["memory"] == f"{counted}Mi"


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
    running: Json = altered(spark(), status={"applicationState": {"state": "RUNNING"}})
    assert not kind.pods_ready(running)
    running["status"]["executorState"] = {"1": "RUNNING", "2": "PENDING", "3": "COMPLETED"}
    assert not kind.pods_ready(running)
    running["status"]["executorState"]["2"] = "RUNNING"
    assert kind.pods_ready(running)


def requests(job: Json, role: int = 0, part: str = "requests") -> Json:
    resources = kind.pod_sets(job)[role]["template"]["spec"]["containers"][0]["resources"]
    return resources.get(part) or {}


def executors(job: Json) -> int:
    return kind.pod_sets(job)[1]["count"]


BARE: Json = {"driver": {}, "executor": {}, "nodeSelector": None, "type": "Scala"}


def test_what_spark_asks_for_where_nothing_is_written() -> None:
    job = spark(**BARE)
    assert executors(job) == 2
    assert requests(job) == requests(job, 1) == {"cpu": "1", "memory": "1408Mi"}
    running: Json = altered(job, status={"applicationState": {"state": "RUNNING"}, "executorState": {"1": "RUNNING"}})
    assert not kind.pods_ready(running)
    running["status"]["executorState"]["2"] = "RUNNING"
    assert kind.pods_ready(running)


@pytest.mark.parametrize(
    ("spec", "conf", "cpu"),
    [
        ({"cores": 3}, {}, "3"),
        ({}, {"spark.executor.cores": "4"}, "4"),
        ({"cores": 3}, {"spark.executor.cores": "4"}, "3"),
        ({}, {"spark.executor.cores": "4", "spark.kubernetes.executor.request.cores": "500m"}, "500m"),
        ({"cores": 3}, {"spark.kubernetes.executor.request.cores": "4"}, "4"),
        ({"coreRequest": "2"}, {"spark.kubernetes.executor.request.cores": "4"}, "2"),
        ({}, {"spark.driver.cores": "7"}, "1"),
    ],
)
def test_cores_wherever_they_are_written(spec: Json, conf: Json, cpu: str) -> None:
    assert requests(spark(**{**BARE, "executor": spec}, sparkConf=conf), 1)["cpu"] == cpu


@pytest.mark.parametrize(
    ("spec", "conf", "expected"),
    [
        ({"instances": 5}, {}, 5),
        ({"instances": 0}, {}, 0),
        ({}, {"spark.executor.instances": "8"}, 8),
        ({"instances": 5}, {"spark.executor.instances": "8"}, 5),
    ],
)
def test_executors_wherever_they_are_written(spec: Json, conf: Json, expected: int) -> None:
    held = spark(**{**BARE, "executor": spec}, sparkConf=conf)
    assert executors(held) == expected
    running = started(held, node_selector={"pool": "a"})
    assert running["spec"]["executor"].get("instances") == spec.get("instances"), "a start writes none"
    patch = kind.stop(running, kind.pod_sets(held))
    assert patch is not None
    assert merge_patch(running, patch.body)["spec"]["executor"] == spec, "and so does an eviction"


@pytest.mark.parametrize(
    ("spec", "executor", "conf", "memory"),
    [
        ({}, {"memory": "10g"}, {}, 10240 + 1024),
        ({"type": "Python"}, {"memory": "10g"}, {}, 10240 + 4096),
        ({"memoryOverheadFactor": "0.2"}, {"memory": "10g"}, {}, 10240 + 2048),
        ({"memoryOverheadFactor": "0.2"}, {"memory": "10g"}, {"spark.kubernetes.memoryOverheadFactor": "0.5"}, 15360),
        (
            {},
            {"memory": "10g"},
            {"spark.executor.memoryOverheadFactor": "1", "spark.kubernetes.memoryOverheadFactor": "2"},
            20480,
        ),
        ({"memoryOverheadFactor": "0"}, {"memory": "10g"}, {}, 10240 + 384),
        ({}, {"memory": "10g", "memoryOverhead": "1g"}, {"spark.executor.memoryOverhead": "5g"}, 11264),
        ({}, {}, {"spark.executor.memory": "4g", "spark.executor.memoryOverhead": "512"}, 4608),
        ({"type": "Python"}, {"memory": "1g", "memoryOverhead": "0"}, {"spark.executor.pyspark.memory": "2g"}, 3072),
        ({}, {"memory": "1g", "memoryOverhead": "0"}, {"spark.executor.pyspark.memory": "2g"}, 1024),
        (
            {},
            {"memory": "1g", "memoryOverhead": "0"},
            {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1073741824"},
            2048,
        ),
    ],
)
def test_memory_with_what_spark_adds(spec: Json, executor: Json, conf: Json, memory: int) -> None:
    job = spark(**{**BARE, **spec, "executor": executor}, sparkConf=conf)
    assert requests(job, 1)["memory"] == f"{memory}Mi"


def test_devices_and_selectors_in_the_configuration() -> None:
    conf = {
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.vendor": "nvidia.com",
        "spark.executor.resource.gpu.discoveryScript": "/opt/x.sh",
        "spark.kubernetes.executor.limit.cores": "3",
        "spark.kubernetes.node.selector.zone": "a",
        "spark.kubernetes.node.selector.disk": "hdd",
        "spark.kubernetes.executor.node.selector.pool": "b",
    }
    held = spark(**{**BARE, "nodeSelector": {"disk": "ssd"}}, sparkConf=conf)
    driver, executor = (row["template"]["spec"]["nodeSelector"] for row in kind.pod_sets(held))
    assert driver == {"zone": "a", "disk": "ssd"}
    assert executor == {"zone": "a", "disk": "ssd", "pool": "b"}
    assert requests(held, 1, "limits") == {"nvidia.com/gpu": "2", "cpu": "3"}
    assert requests(held, 0, "limits") == {}
    with pytest.raises(JobError, match="pool"):
        started(held, node_selector={"pool": "other"})

    held = spark(**{**BARE, "executor": {"nodeSelector": {"mine": "x"}}}, sparkConf=conf)
    running = started(held, node_selector={"pool": "b", "rack": "1"})
    patch = kind.stop(running, kind.pod_sets(held))
    assert patch is not None
    assert merge_patch(running, patch.body)["spec"]["executor"] == {"nodeSelector": {"mine": "x"}}


def test_containers_of_a_pod_template_count() -> None:
    containers = [
        {"name": "spark-kubernetes-executor", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "9"}}},
        {"name": "beside", "resources": {"requests": {"cpu": "2"}}},
    ]
    pods = {"spec": {"containers": containers, "initContainers": [{"name": "first"}]}}
    [_, row] = kind.pod_sets(spark(**{**BARE, "executor": {"template": pods}}))
    spec = row["template"]["spec"]
    assert [each["name"] for each in spec["containers"]] == ["spark-kubernetes-executor", "beside"]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}, "Spark sets the rest itself"
    assert spec["initContainers"] == [{"name": "first"}]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"sparkConf": {"spark.dynamicAllocation.enabled": "true"}}, "spec.sparkConf[spark.dynamicAllocation.enabled]"),
        (
            {"sparkConf": {"spark.kubernetes.driver.podTemplateFile": "s3://x/y.yaml"}},
            "spec.sparkConf[spark.kubernetes.driver.podTemplateFile]",
        ),
        ({"sparkConf": {"spark.executor.instances": "many"}}, "spec.sparkConf[spark.executor.instances]"),
        ({"sparkConf": {"spark.executor.cores": "0"}}, "spec.sparkConf[spark.executor.cores]"),
        ({"sparkConf": {"spark.driver.memory": "lots"}}, "spec.sparkConf[spark.driver.memory]"),
        (
            {"sparkConf": {"spark.executor.resource.gpu.amount": "1"}},
            "spec.sparkConf[spark.executor.resource.gpu.vendor]",
        ),
        ({"memoryOverheadFactor": "much"}, "spec.memoryOverheadFactor"),
        ({"memoryOverheadFactor": "1e9"}, "spec.memoryOverheadFactor"),
        ({"executor": {"cores": -1}}, "spec.executor.cores"),
        ({"driver": {"memory": "9" * 40 + "g"}}, "spec.driver.memory"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(spec: Json, field: str) -> None:
    job = spark(**{**BARE, **spec})
    assert [error.path for error in admission.validate(job, None, admission.AdmissionFacts())] == [field]


def test_a_running_application_that_was_counted_otherwise_goes_on() -> None:
    """By Kueue up to 0.19, or an earlier version: it is counted anew when it is queued again."""
    held = spark()
    body = WorkloadObject(workload.build(kind, held, kind.pod_sets(held), queue="main", priority=0))
    body["status"] = {
        "admission": {"podSetAssignments": [{"name": "driver", "count": 1}, {"name": "executor", "count": 3}]}
    }
    for row, memory in zip(body["spec"]["podSets"], ("512Mi", "1Gi"), strict=True):
        row["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    running = started(held, node_selector={"pool": "a"})
    assert workload.equivalent(body, kind.pod_sets(running), running)
    running["spec"]["executor"]["memory"] = "64g"
    assert not workload.equivalent(body, kind.pod_sets(running), running), "its author has changed it"
    assert not workload.equivalent(altered(body, status={}), kind.pod_sets(held), held), (
        "one that waits is counted anew"
    )


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
