"""Ten scripts of kinds that people have for sbatch: each becomes the job that one expects, and no directive is lost."""

from __future__ import annotations

import re

import pytest
from tests.console.sbatch import FOLDER, SCRIPTS, outcome, written

from gangline.console.submitting import wishes
from gangline.console.submitting.wishes import OPTIONS, Given
from gangline.jobs.gpujob import GPUJobKind
from gangline.objects import JobObject


def test_there_are_ten_scripts_each_with_its_outcome() -> None:
    assert len(SCRIPTS) == 10
    assert {path.stem for path in FOLDER.iterdir()} == set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_becomes_the_job_that_is_expected(name: str) -> None:
    assert written(name) == (FOLDER / f"{name}.yaml").read_text(), "`python -m tests.console.sbatch` writes it anew"


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_directive_is_acted_on_or_named_with_a_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (FOLDER / f"{name}.sh").read_text()
    found = outcome(text)
    monkeypatch.setattr(wishes, "given", lambda name, value, source="": Given(OPTIONS[name], value, source))
    directives = wishes.directives(text, "job.sh").given
    assert len(directives) >= 6
    for each in directives:
        lines = [line for line in (*found["refused"], *found["remarks"]) if line.startswith(f"{each.source}: ")]
        named = [line for line in lines if re.search(rf"--{each.option.name}\b", line)]
        acted = not each.option.why and not [line for line in found["refused"] if line in named]
        assert acted or named, each
        assert all(len(line.partition(": ")[2]) > 20 for line in named), "with a reason"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_job_is_one_that_gangline_can_run(name: str) -> None:
    job = outcome((FOLDER / f"{name}.sh").read_text())["job"]
    [pod_set] = GPUJobKind().pod_sets(JobObject({**job, "metadata": {**job["metadata"], "namespace": "ml"}}))
    assert pod_set["count"] == job["spec"]["workers"]
