"""An API server drops what its CRD does not have: an admission goes where it is kept, or the job is not started."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cluster import declared
from tests.cluster.conftest import System
from tests.cluster.declared import CONFIGURATION, declaration, everything, job_of, with_gpus
from tests.cluster.foreign_kinds import OPEN, closed
from tests.cluster.harness import Api, condition_row, flavor, local_queue
from tests.jobs.foreign import CASES, TRAIN_JOB, Case, Json

from gangline.api import names
from gangline.api.jobkinds.declaration import at
from gangline.console.cli import main
from gangline.control.writes.status import run_changes
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
PYTORCH = next(case for case in CASES if case.name == "PyTorchJob")
BOOLEAN, TEXT = {"type": "boolean"}, {"type": "string"}
#: Kubeflow Trainer 2.1, as far as an admission concerns it
TRAINER = closed(
    spec=closed(
        runtimeRef=OPEN,
        trainer=OPEN,
        suspend=BOOLEAN,
        managedBy=TEXT,
        podTemplateOverrides={"type": "array", "items": OPEN},
    ),
    status=OPEN,
)
#: a CRD that was generated without the metadata of pod templates
REPLICAS = closed(replicas={"type": "integer"}, restartPolicy=TEXT, template=closed(metadata=closed(), spec=OPEN))
TRAINING = closed(
    spec=closed(runPolicy=OPEN, pytorchReplicaSpecs={"type": "object", "additionalProperties": REPLICAS}), status=OPEN
)


@pytest.fixture
async def older(system: System, api: Api, tmp_path: Path) -> AsyncIterator[System]:
    schemas = {"TrainJob": TRAINER, "PyTorchJob": TRAINING}
    async with declared.configured(system, api, tmp_path, CONFIGURATION, schemas) as running:
        yield running


async def created(api: Api, case: Case) -> Json:
    job = job_of(case)
    job["spec"].pop("runtimePatches", None)

    async def create() -> Json | None:
        try:
            return await api.client.create(declaration(case).resource, "default", job)
        except NotFound:  # the kind is not served yet
            return None

    return await api.until(create, f"a {case.name} is created")


async def test_an_admission_goes_where_the_crd_keeps_it_or_the_job_is_held_and_says_why(
    older: System, api: Api
) -> None:
    await api.apply(flavor(labels={"gangline.io/node-pool": "gpu"}), everything("cq"), local_queue("main", "cq"))
    assert TRAIN_JOB.description is not None
    await api.until(lambda: _runtime(api), "the runtime is created")
    before = await created(api, TRAIN_JOB)
    train, resource = before["metadata"]["name"], declaration(TRAIN_JOB).resource

    async def started() -> Json | None:
        found = await api.client.get(resource, "default", train)
        return found if not found["spec"]["suspend"] else None

    running = await api.until(started, "the TrainJob starts")
    written = {row["targetJobs"][0]["name"]: row for row in running["spec"]["podTemplateOverrides"]}
    assert written.keys() == TRAIN_JOB.counts.keys()
    for name, row in written.items():
        assert row["spec"]["nodeSelector"] == {"gangline.io/node-pool": "gpu"}
        assert row["metadata"]["labels"][names.PODSET] == name

    held = (await created(api, PYTORCH))["metadata"]["name"]

    async def refused() -> Json | None:
        workload = await api.workload_of(held)
        row = condition_row(workload, names.PODS_REFUSED) if workload is not None else {}
        return row if row.get("status") == "True" else None

    row = await api.until(refused, "the Workload says why its job is not started")
    assert row["reason"] == run_changes.UNKNOWN_FIELD
    assert row["message"].startswith("The CRD pytorchjobs.kubeflow.org has no field for the admission of the job")
    assert "spec.pytorchReplicaSpecs.Master.template.metadata." in row["message"]
    command = ["why", held, "--kubeconfig", str(older.kubeconfig), "-n", "default"]
    why = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert "it is not started (UnknownField): The CRD pytorchjobs.kubeflow.org" in " ".join(why.output.split()), (
        why.output
    )
    stored = await api.client.get(declaration(PYTORCH).resource, "default", held)
    assert declaration(PYTORCH).suspension.read(stored)
    assert at(stored, ("spec", "pytorchReplicaSpecs", "Master", "template", "spec", "nodeSelector")) is None


async def _runtime(api: Api) -> Json | None:
    description = TRAIN_JOB.description
    assert description is not None
    try:
        return await api.client.create(kube.CLUSTER_TRAINING_RUNTIMES, None, with_gpus(copy.deepcopy(description)))
    except NotFound:
        return None
