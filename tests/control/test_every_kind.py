"""What holds for whatever is queued: forecasts, expected starts, reasons, checkpoints, stalls. The kind changes none of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.builders import clusters
from tests.control import test_stall_watch
from tests.control.test_forecasts import START, ForecastWorld
from tests.jobs import every_kind
from tests.jobs.every_kind import NAMES, gang
from tests.jobs.foreign import OWN
from tests.objects import PodObject

from gangline import jobs
from gangline.api.read import parse
from gangline.api.read.configuration.managed_jobs import ManagedJobs
from gangline.control.answers.desk import Wish
from gangline.control.answers.sight import Everybody
from gangline.control.forecasting import run_facts
from gangline.control.writes.status import status_changes
from gangline.engine import model
from gangline.jobs.base import RuntimeHints
from gangline.kube import resources as kube
from gangline.record import entries
from gangline.telemetry import Reading

Json = dict[str, Any]
each_kind = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def own_kind() -> Iterator[None]:
    jobs.declare([OWN])
    yield
    jobs.declare([])


def taken_in(here: ForecastWorld, made: every_kind.Gang, workload: Json | None = None) -> None:
    if made.job is not None:
        here.put(*made.job)
    here.put(kube.WORKLOADS, workload or made.workload)
    here.turn()


@each_kind
def test_its_author_is_heard(name: str) -> None:
    """Expected runtime, checkpoint interval and user; the record of the cluster has them, too."""
    made = gang(name, created=START)
    value = parse.workload(made.workload)
    assert value.checkpoint_seconds == 1800
    here = ForecastWorld()
    here.policy()
    taken_in(here, made)
    estimate = here.forecasts.estimate(made.key)
    assert estimate is not None and estimate.source == "Hint" and 3600 <= estimate.q50 <= 7200
    job = entries.NOTHING if made.job is None else entries.job_facts(*made.job)
    entry = entries.entry(kube.WORKLOADS, made.workload, job)
    assert (entry["user"], entry["hint"], entry["checkpoint"]) == ("ada", 7200.0, 1800)


@each_kind
def test_it_is_learned_from_by_its_pods(name: str) -> None:
    """Size, image and user of its run are those of its pod sets and its author, whatever the kind."""
    made = gang(name, created=START)
    job = made.job[1] if made.job is not None else None
    run = run_facts.run_of(parse.workload(made.workload), made.workload, job, RuntimeHints())
    images = {
        container.get("image", "")
        for row in made.workload["spec"]["podSets"]
        for container in row["template"]["spec"]["containers"]
    }
    assert (run.gpus, run.user) == (made.gpus, "ada") and run.image in images
    assert run.name == ("mine-0" if name == "Pod" else "mine")

    here = ForecastWorld()
    here.policy()
    for number in range(20):
        created = START - 40_000 + 1000 * number
        before = gang(name, created=created)
        for part in (before.workload, before.job[1] if before.job is not None else None):
            if part is not None:  # without its author's hint, only the history is left
                part["metadata"].update(name=f"mine-{number}", uid=f"{part['metadata']['uid']}-{number}")
                part["metadata"]["annotations"].pop("gangline.io/expected-runtime", None)
        for owner in before.workload["metadata"]["ownerReferences"]:
            owner["uid"] = f"job-{number}"
        here.seconds = created + 600
        ran = before.admitted(created)
        end = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        ran["status"]["conditions"].append({**end, "lastTransitionTime": clusters.timestamp((created + 600) * 1000)})
        taken_in(here, before, ran)
    here.seconds = START
    again = gang(name, created=START)
    for part in (again.workload, again.job[1] if again.job is not None else None):
        if part is not None:
            part["metadata"]["annotations"].pop("gangline.io/expected-runtime", None)
    taken_in(here, again)
    estimate = here.forecasts.estimate(again.key)
    assert estimate is not None and estimate.source not in ("Hint", "Default") and 300 <= estimate.q50 <= 1200


@each_kind
async def test_it_hears_when_it_starts_and_why_it_waits(name: str) -> None:
    made = gang(name, created=clusters.NOW - 600)
    others = -(-made.gpus // 8)
    queue, local = clusters.queue("a", 8 * others)
    plenty = [{"name": each, "nominalQuota": "1T"} for each in ("cpu", "memory")]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": plenty}]}
    queue[1]["spec"]["resourceGroups"].append(group)
    here = clusters.world_of(
        clusters.flavor("h100"),
        clusters.flavor("any"),
        *(queue, local),
        *clusters.submitted("runs", others, "1h", ago=1300, started=1200),
        *([] if made.job is None else [made.job]),
        (kube.WORKLOADS, made.workload),
        managed=ManagedJobs(unlisted=frozenset()),
    )
    [pending] = [each for each in here.engine.decide(here.now) if isinstance(each, model.ReportPending)]
    status_changes.pending(pending.explanation)(made.workload["status"], here.now)
    here.mirror.upsert(kube.WORKLOADS, made.workload)
    [item] = [
        item
        for item in (await here.answers().jobs(Everybody(), Wish("ml", times=True))).items
        if item["name"] == made.workload["metadata"]["name"]
    ]
    assert (item["state"], item["gpus"], item["pods"]) == ("Pending", made.gpus, made.pods)
    assert item["because"] == "after runs ends"
    assert 1200 < item["expectedStart"]["p50"] - clusters.NOW < 3600
    assert item["forecast"]["source"] == "Hint"
    _, lines = await here.answers().why(Everybody(), "ml", item["jobKind"], item["jobName"])
    texts = {line.label: line.text for line in lines}
    assert "GPU" in texts["because"] and "h100" in texts["because"]


@each_kind
@pytest.mark.parametrize("chosen", ["", "none"])
def test_it_is_found_to_hang_unless_its_author_opted_out(name: str, chosen: str) -> None:
    place = test_stall_watch.Place({"action": "Restart"})
    made = gang(name, created=test_stall_watch.START // 1000, **({"stall": chosen} if chosen else {}))
    running = made.admitted(test_stall_watch.START // 1000)
    running["status"]["admission"]["clusterQueue"] = "cq"
    if made.job is not None:
        made.job[1]["spec"]["suspend"] = False
        place.put(*made.job)
    place.put(kube.WORKLOADS, running)
    for index in range(made.pods):
        meta = {"namespace": "ml", "name": f"p{index}", "uid": f"mine{index}"}
        noted = {"annotations": {"kueue.x-k8s.io/workload": made.workload["metadata"]["name"]}}
        pod = {"metadata": meta | noted, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
        place.pods.upsert(PodObject(pod))
    for _ in range(30):
        place.now += test_stall_watch.MINUTE
        readings = [Reading("ml", f"p{i}", place.now / 1000, gpu=0.0, log_bytes=512.0) for i in range(made.pods)]
        place.watch.take_readings(readings)
        place.watch.look(place.watch.policies(), [made.key])
    value = place.mirror.workload_value(made.key)
    assert value is not None
    if chosen:
        assert (value.stalled, place.events) == ("", [])
        return
    assert value.stalled == ("Restart" if name == "GPUJob" else "Requeue"), "only a GPUJob restarts in place"
    assert f"the GPUs of all {made.pods} pods idle for 20m" in place.events[-1][1] or made.pods == 1
    assert place.notices == ["Stalled"]
