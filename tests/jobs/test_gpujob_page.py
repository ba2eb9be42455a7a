"""docs/gpujob.md: every example is accepted and derives its pods, and the listed environment is the one that pods get."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.jobs.gangs import KIND, env_of
from tests.objects import JobObject

from gangline.api.admission.findings import AdmissionFacts
from gangline.api.admission.of_jobs.gpujob import RULES
from gangline.api.schema.v1alpha1.gpujob import GPUJob
from gangline.jobs import gpujob
from gangline.jobs.base import PodSetInfo
from gangline.jobs.gpujob import gang

PAGE = (Path(__file__).parents[2] / "docs" / "gpujob.md").read_text()
WRITTEN = (JobObject(yaml.safe_load(text)) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
EXAMPLES: dict[str, JobObject] = {job.name: job for job in WRITTEN}
FRAMEWORKS = ("PyTorch", "JAX", "TensorFlow", "MPI", "None")


def templates(job: JobObject) -> list[dict[str, Any]]:
    read = gang.read(job)
    infos = [PodSetInfo(role.name, role.replicas) for role in read.roles]
    return [child["spec"]["template"] for child in gpujob.role_jobs(job, read, infos, {}, "run")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_accepted_and_makes_pods(name: str) -> None:
    job = EXAMPLES[name]
    job["metadata"].setdefault("namespace", "ml")
    job["metadata"].setdefault("uid", name)
    GPUJob.model_validate(job)
    assert RULES.validate(job, None, AdmissionFacts()) == []
    assert len(templates(job)) == len(KIND.pod_sets(job))


def test_there_is_an_example_for_each_framework() -> None:
    assert {job["spec"].get("framework", "None") for job in EXAMPLES.values()} == set(FRAMEWORKS)


def listed() -> dict[str, set[str]]:
    """Framework ("" = all) -> variables, from the page's table."""
    found: dict[str, set[str]] = {}
    table = PAGE.partition("| framework | variable | value |\n|---|---|---|\n")[2].partition("\n\n")[0]
    framework = ""
    for row in table.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        framework = cells[0].strip("`") or framework
        found.setdefault("" if framework == "all" else framework, set()).update(re.findall(r"`(\w+)`", cells[1]))
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_environment_is_listed_whole(framework: str) -> None:
    jobs = [job for job in EXAMPLES.values() if job["spec"].get("framework", "None") == framework]
    given: set[str] = set()
    for job in jobs:
        job["metadata"].setdefault("namespace", "ml")
        job["metadata"].setdefault("uid", "u")
        first, *others = templates(job)
        given |= set(env_of(first))
        assert all(set(env_of(each)) <= given | {"GANGLINE_RANK_OFFSET"} for each in others)
    table = listed()
    assert given == table[""] | table.get(framework, set())
