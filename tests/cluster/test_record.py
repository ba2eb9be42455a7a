"""The history of a live cluster: by the operator itself, and by `gangline admin record` beside it, which may only read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster import accounts, harness
from tests.cluster.conftest import System
from tests.cluster.harness import Api, Json, cluster_queue, flavor, job, local_queue

from gangline.control.recording.cluster_record import RecordOptions
from gangline.install import rights
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden
from gangline.record import reading
from gangline.record.entries import RECORDED
from gangline.record.folder import files_of
from gangline.record.history import RecordedHistory
from gangline.record.preparing import source

pytestmark = pytest.mark.cluster


async def login(api: Api, system: System, folder: Path) -> Path:
    """A kubeconfig with exactly the rights that `gangline admin rbac --record` prints."""
    for body in rights.recorder():
        meta, resource = body["metadata"], accounts.RESOURCES[body["kind"]]
        await api.client.patch(
            resource, meta.get("namespace"), meta["name"], body, kind="apply", field_manager="test", force=True
        )
    return await accounts.login(api, system.kubeconfig, folder, rights.RECORDER.name)


def recording(kubeconfig: Path, folder: Path, ready: Path) -> subprocess.Popen[bytes]:
    ready.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "gangline.console.cli",
        "admin",
        "record",
        str(folder),
        "--kubeconfig",
        str(kubeconfig),
    ]
    with (ready.parent / "record.out").open("ab") as log:
        process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=log, stderr=log)
    harness.wait_until(lambda: ready.exists() or process.poll() is not None, 90, "everything is listed")
    assert process.poll() is None, (ready.parent / "record.out").read_text()
    return process


def story(history: RecordedHistory, name: str) -> tuple[list[str], int, str]:
    """Of the Workload of a job: why its stays ended, its GPUs, its author."""
    (found,) = [each for each in history.workloads.values() if each.body.get("job", {}).get("name") == name]
    (played,) = [each for each in source(history).played.trace.jobs if each.id == found.uid]
    return [stay.reason for stay in found.stays], played.gpus, played.user


async def test_operator_and_bystander_record_the_same_history(system: System, api: Api, tmp_path: Path) -> None:
    beside, own, ready = tmp_path / "beside", tmp_path / "own", tmp_path / "ready"
    await api.apply(flavor(), cluster_queue("cq", 4), local_queue("lq", "cq"))
    operator = system.operator("recording", record=RecordOptions(own)).wait_ready()
    kubeconfig = await login(api, system, tmp_path)
    process = recording(kubeconfig, beside, ready)
    try:
        first: Json = job("first", "lq", gpus=2, runtime="2s")
        first["metadata"].setdefault("annotations", {})["gangline.io/expected-runtime"] = "90s"
        await api.create(first)
        await api.finished("first")

        process.kill()  # nothing that happens meanwhile is lost, as long as it leaves a trace
        process.wait(30)
        operator.kill()
        await api.apply(cluster_queue("cq", 8))
        operator = system.operator("recording-again", record=RecordOptions(own)).wait_ready()
        process = recording(kubeconfig, beside, ready)

        await api.create(job("second", "lq", gpus=8, runtime="2s"))
        await api.finished("second")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (tmp_path / "record.out").read_text()
    finally:
        process.kill()
        process.wait(30)
    assert operator.stop() == 0
    for folder in (beside, own):
        history = reading.read(folder)
        assert not history.cut and len(files_of(folder)) == 1
        assert story(history, "first") == (["Finished"], 2, "")
        assert story(history, "second")[:2] == (["Finished"], 8)
        quotas = [
            change.body["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
            for change in history.changes
            if change.kind == "ClusterQueue" and change.body is not None
        ]
        assert [next(str(row["nominalQuota"]) for row in rows) for rows in quotas] == ["4", "8"]
        assert {"Node", "LocalQueue", "ResourceFlavor"} <= {change.kind for change in history.changes}
        hinted = [each for each in history.workloads.values() if each.body.get("hint")]
        assert [each.body["hint"] for each in hinted] == [90.0]
        written = "".join(path.read_text() for path in files_of(folder))
        assert '"image"' not in written and '"command"' not in written and '"env"' not in written


async def test_the_account_of_a_recorder_reads_and_nothing_else(system: System, api: Api, tmp_path: Path) -> None:
    kubeconfig = await login(api, system, tmp_path)
    role = await api.get(accounts.RESOURCES["ClusterRole"], rights.RECORDER.name)
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert {resource.plural for resource in RECORDED} <= {name for rule in role["rules"] for name in rule["resources"]}
    async with harness.connect(kubeconfig) as as_recorder:
        await as_recorder.client.list(kube.WORKLOADS, None)
        with pytest.raises(Forbidden):
            await as_recorder.client.list(kube.SECRETS, None)
        with pytest.raises(Forbidden):
            await as_recorder.client.patch(kube.NODES, None, "gpu-0", {"spec": {"unschedulable": True}})
    assert json.dumps(role).count("secrets") == 0
