"""From `kubectl apply` to a gang that runs, finishes, and makes room for the next one."""

from __future__ import annotations

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    gpu_job,
    job,
    local_queue,
    priority_class,
)

from gangline.api import names
from gangline.api.read.configuration.sections import Retention
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster


async def test_a_job_is_admitted_runs_and_finishes(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await api.apply(flavor(labels={"gangline.io/node-pool": "gpu"}), cluster_queue("cq", 8), local_queue("lq", "cq"))
    await api.create(job("train", "lq", pods=4, gpus=2, runtime="1s", as_annotation=True))
    created = await api.get(kube.JOBS, "train")
    assert created["spec"]["suspend"] is True, "the webhook holds a job that names a queue"
    assert created["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lq"

    await api.finished("train")
    workload = await api.workload_of("train")
    assert workload is not None
    assert workload["metadata"]["name"].startswith("job-train-")
    assert condition_row(workload, "QuotaReserved")["message"] == "Quota reserved in ClusterQueue cq"
    assert condition_row(workload, "Admitted")["message"] == "The workload is admitted"
    assert workload["status"]["admission"]["podSetAssignments"][0]["flavors"] == {"nvidia.com/gpu": "gpu"}
    pods = await api.all(kube.PODS, "default")
    assert len(pods) == 4
    assert all(pod["spec"]["nodeSelector"] == {"gangline.io/node-pool": "gpu"} for pod in pods)

    async def finished() -> bool:
        found = await api.workload_of("train")
        return found is not None and condition(found, "Finished") and not found["metadata"].get("finalizers")

    await api.until(finished, "the Workload is finished and let go")

    async def freed() -> bool:
        status = (await api.get(kube.CLUSTER_QUEUES, "cq"))["status"]
        return status["admittedWorkloads"] == 0 and status["flavorsUsage"][0]["resources"][0]["total"] == "0"

    await api.until(freed, "the quota is back")


async def test_the_second_gang_waits_with_kueues_message(system: System, api: Api) -> None:
    """Seed manifests' shape: 8 pods × 4 TPU fill a quota of 32; a second such gang says what is missing, then runs."""
    system.operator().wait_ready()
    tpu = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    queue = cluster_queue("tpu-training-cq", 32, flavors=["tpu-v6e-slice"])
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"] = ["google.com/tpu"]
    group["flavors"][0]["resources"][0]["name"] = "google.com/tpu"
    await api.apply(flavor("tpu-v6e-slice", tpu), queue, local_queue("default-queue", "tpu-training-cq"))
    shape = {"pods": 8, "gpus": 4, "resource": "google.com/tpu", "runtime": "3s", "as_annotation": True}
    await api.create(job("first", "default-queue", **shape))

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "first"))["spec"]["suspend"] is False

    await api.until(runs, "the first gang runs")
    await api.create(job("second", "default-queue", **shape))

    async def says_why() -> str:
        workload = await api.workload_of("second")
        return condition_row(workload, "QuotaReserved").get("message", "") if workload else ""

    message = await api.until(says_why, "the second gang says why it waits")
    assert message == (
        "couldn't assign flavors to pod set main: "
        "insufficient unused quota for google.com/tpu in flavor tpu-v6e-slice, 32 more needed"
    )
    waiting = await api.workload_of("second")
    assert waiting is not None
    assert condition_row(waiting, "QuotaReserved")["reason"] == "WaitingForQuota"
    await api.finished("first", "second")


async def test_preemption_stops_the_victim_and_it_resumes(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await api.apply(
        flavor(),
        cluster_queue("cq", 8, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("lq", "cq"),
        priority_class("low", 10),
        priority_class("high", 1000),
    )
    await api.create(job("victim", "lq", pods=2, gpus=4, runtime="4s", priority="low"))

    async def running() -> bool:
        pods = await api.all(kube.PODS, "default")
        return sum(pod["status"].get("phase") == "Running" for pod in pods) == 2

    await api.until(running, "the victim runs")
    await api.create(job("urgent", "lq", pods=2, gpus=4, runtime="1s", priority="high"))

    async def evicted() -> bool:
        workload = await api.workload_of("victim")
        return workload is not None and condition(workload, "Evicted")

    await api.until(evicted, "the victim is evicted")
    victim = await api.workload_of("victim")
    assert victim is not None
    assert condition_row(victim, "Preempted")["reason"] == "InClusterQueue"
    await api.finished("urgent")
    assert not condition(await api.get(kube.JOBS, "victim"), "Complete")
    held = await api.get(kube.JOBS, "victim")
    assert "kueue.x-k8s.io/stopping" not in held["metadata"].get("annotations", {})
    await api.finished("victim")


async def test_a_job_starts_from_the_workload_that_it_names_and_takes_quota_once(system: System, api: Api) -> None:
    system.operator(retention=Retention(after_finished=0)).wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    named = job("built", "lq", pods=2, gpus=4, runtime="600s")
    named["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "mine"
    [made] = await api.create(named)

    async def not_found_event() -> bool:
        events = await api.all(kube.EVENTS, "default")
        return any(event["reason"] == "PrebuiltWorkloadNotFound" for event in events)

    await api.until(not_found_event, "the job says that there is no such Workload")
    pod_sets = [{"name": "main", "count": 2, "template": {"spec": made["spec"]["template"]["spec"]}}]
    workload = {"metadata": {"name": "mine"}, "spec": {"queueName": "lq", "podSets": pod_sets}}
    await api.client.create(kube.WORKLOADS, "default", {"apiVersion": names.V1BETA2, "kind": "Workload", **workload})

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "built"))["spec"]["suspend"] is False

    await api.until(runs, "the job runs")
    [mine] = await api.all(kube.WORKLOADS, "default")
    assert mine["metadata"]["name"] == "mine"
    assert mine["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert condition_row(mine, "Admitted")["observedGeneration"] == mine["metadata"]["generation"]
    other = {"metadata": {"name": "other"}, "spec": {"queueName": "lq", "podSets": [{**pod_sets[0], "count": 1}]}}
    await api.client.create(kube.WORKLOADS, "default", {"apiVersion": names.V1BETA2, "kind": "Workload", **other})
    differs = job("differs", "lq", pods=2, gpus=4)
    differs["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "other"
    await api.create(differs)

    async def deleted() -> bool:
        return [each["metadata"]["name"] for each in await api.all(kube.WORKLOADS, "default")] == ["mine"]

    await api.until(deleted, "the Workload that is out of sync is finished, and deleted as the configuration says")


async def test_a_job_is_followed_by_its_workload_while_it_is_gated_and_while_it_runs(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await api.apply(
        flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"), priority_class("low", 1), priority_class("high", 9)
    )
    check = {"apiVersion": names.V1BETA2, "kind": "AdmissionCheck", "metadata": {"name": "kept"}}
    await api.apply({**check, "spec": {"controllerName": "example.com/nobody"}})
    gated = job("gated", "lq", gpus=4, runtime="600s", priority="low")
    gated["metadata"]["annotations"][names.ADMISSION_GATED_BY] = "example.com/gate"
    await api.create(gated)

    async def waits() -> bool:
        workload = await api.workload_of("gated")
        return workload is not None and condition_row(workload, "QuotaReserved").get("reason") == "AdmissionGated"

    await api.until(waits, "it is gated")
    await api.client.patch(
        kube.JOBS, "default", "gated", {"metadata": {"annotations": {names.ADMISSION_GATED_BY: None}}}
    )

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "gated"))["spec"]["suspend"] is False

    await api.until(runs, "it runs without the gate")
    await api.client.patch(kube.JOBS, "default", "gated", {"metadata": {"labels": {names.PRIORITY_CLASS: "high"}}})

    async def ranked() -> bool:
        workload = await api.workload_of("gated")
        return workload is not None and workload["spec"]["priority"] == 9

    await api.until(ranked, "its Workload has the other priority, and goes on")
    assert await runs()

    async def marked() -> bool:
        found = await api.client.get(kube.ADMISSION_CHECKS, None, "kept")
        return names.IN_USE_FINALIZER in (found["metadata"].get("finalizers") or ())

    await api.until(marked, "the check would be kept if it were in use")
    await api.client.delete(kube.ADMISSION_CHECKS, None, "kept")

    async def gone() -> bool:
        return not await api.all(kube.ADMISSION_CHECKS)

    await api.until(gone, "it is not in use")


async def test_a_gpujob_runs_with_its_rendezvous(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await api.apply(flavor(labels={"gangline.io/node-pool": "gpu"}), cluster_queue("cq", 16), local_queue("lq", "cq"))
    await api.create(gpu_job("llama", "lq", workers=2, gpus=8, framework="PyTorch"))

    async def done() -> bool:
        return condition(await api.get(kube.GPU_JOBS, "llama"), "Complete")

    await api.until(done, "the GPUJob is complete", 60)
    pods = await api.all(kube.PODS, "default", "gangline.io/gpujob=llama")
    assert len(pods) == 2
    env = {row["name"]: row.get("value") for row in pods[0]["spec"]["containers"][0]["env"]}
    assert env["WORLD_SIZE"] and env["MASTER_ADDR"]
    assert pods[0]["spec"]["nodeSelector"] == {"gangline.io/node-pool": "gpu"}

    async def accounted() -> bool:
        workload = await api.workload_of("llama")
        return workload is not None and condition(workload, "Finished")

    await api.until(accounted, "its Workload is finished")


async def test_what_slipped_through_is_suspended(system: System, api: Api) -> None:
    """A queued job that runs without admission, as one made during a webhook outage would, is put on hold."""
    await api.apply(flavor(), cluster_queue("cq", 4), local_queue("lq", "cq"))
    big = job("slipped", "", pods=1, gpus=8, runtime="30s")
    await api.create(big)
    labels = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}
    system.webhooks.stop()
    try:
        mutating = await api.all(kube.MUTATING_WEBHOOKS)
        validating = await api.all(kube.VALIDATING_WEBHOOKS)
        for resource, objects in ((kube.MUTATING_WEBHOOKS, mutating), (kube.VALIDATING_WEBHOOKS, validating)):
            for obj in objects:
                await api.client.delete(resource, None, obj["metadata"]["name"])

        async def named() -> bool:
            await api.client.patch(kube.JOBS, "default", "slipped", labels)
            return True

        await api.until(named, "the API server has seen that there are no webhooks any more")
        system.operator().wait_ready()

        async def held() -> bool:
            found = await api.get(kube.JOBS, "slipped")
            return found["spec"]["suspend"] is True and not await api.all(kube.PODS, "default")

        await api.until(held, "the job is held")
        workload = await api.until(lambda: api.workload_of("slipped"), "it is queued")
        assert not condition(workload, "QuotaReserved")
    finally:
        system.webhooks.start()


async def test_a_webhook_outage_stops_no_job_without_a_queue(system: System, api: Api) -> None:
    system.operator().wait_ready()
    system.webhooks.stop()
    try:
        await api.create(job("free", "", runtime="1s"))
        await api.finished("free")
        with pytest.raises(harness.ApiError):
            await api.create(job("queued", "lq", as_annotation=True))
    finally:
        system.webhooks.start()


async def test_what_is_incomplete_says_so(system: System, api: Api) -> None:
    """A LocalQueue without a ClusterQueue, and a check that would send workloads to other clusters."""
    system.operator().wait_ready()
    nowhere = local_queue("nowhere", "")
    del nowhere["spec"]["clusterQueue"]
    spec = {"controllerName": "kueue.x-k8s.io/multikueue"}
    check = {"apiVersion": names.V1BETA2, "kind": "AdmissionCheck", "metadata": {"name": "elsewhere"}, "spec": spec}
    strategy = {"admissionChecks": [{"name": "elsewhere"}]}
    await api.apply(flavor(), nowhere, check, cluster_queue("cq", 8, admissionChecksStrategy=strategy))
    await api.create(job("train", "nowhere", pods=1))

    async def all_say_why() -> bool:
        queue = await api.get(kube.LOCAL_QUEUES, "nowhere")
        checks = await api.client.get(kube.ADMISSION_CHECKS, None, "elsewhere")
        cluster = await api.get(kube.CLUSTER_QUEUES, "cq")
        reasons = [condition_row(obj, "Active").get("reason") for obj in (queue, checks, cluster)]
        return reasons == ["ClusterQueueDoesNotExist", "BadConfig", "AdmissionCheckInactive"]

    await api.until(all_say_why, "each says why it is inactive")
    workload = await api.workload_of("train")
    assert workload is None or not condition(workload, "QuotaReserved")
    await api.client.patch(kube.LOCAL_QUEUES, "default", "nowhere", {"spec": {"clusterQueue": "cq2"}})
    await api.apply(cluster_queue("cq2", 8))
    await api.finished("train")
