"""The gangs of `bench.kinds`: every kind, valid, of the wanted size, and statuses that mean what they are taken for."""

from __future__ import annotations

import pytest
from bench.kind_objects import Gang, crds, descriptions, gangs
from bench.kinds import main
from bench.parameters import read
from tests.objects import JobObject, altered

from gangline.api import admission, jobkinds
from gangline.api.jobkinds.declaration import DESCRIPTION
from gangline.jobs import kind_of

PODS = 8
each_gang = pytest.mark.parametrize("gang", gangs(PODS), ids=lambda gang: gang.resource.kind)


def built(gang: Gang) -> JobObject:
    [kind] = read("kinds", "smoke").classes
    job = gang.build(kind, "queue", 3)
    [runtime] = descriptions()
    held = admission.default(job, None, admission.AdmissionFacts()).obj
    return JobObject({**held, DESCRIPTION: runtime} if gang.declaration.descriptions else held)


def test_every_declared_kind_is_measured() -> None:
    declared = {each.kind for each in jobkinds.BUILT_IN if each.behaviour is not None}
    assert {gang.resource.kind for gang in gangs(PODS)} == declared | {"JobSet", "Job"}
    made = {crd["spec"]["names"]["kind"] for crd in crds()}
    assert made >= declared | {"ClusterTrainingRuntime"} and "Job" not in made


@each_gang
def test_a_gang_is_held_valid_and_of_the_wanted_size(gang: Gang) -> None:
    kind = kind_of(gang.resource.api_version, gang.resource.kind)
    assert kind is not None
    job = built(gang)
    assert kind.is_suspended(job)
    assert not admission.validate(job, None, admission.AdmissionFacts())
    assert sum(row["count"] for row in kind.pod_sets(job)) == PODS


@each_gang
def test_its_statuses_say_that_it_runs_and_that_it_has_ended(gang: Gang) -> None:
    kind = kind_of(gang.resource.api_version, gang.resource.kind)
    assert kind is not None
    running = altered(built(gang), status=gang.running)
    assert kind.pods_ready(running)
    assert kind.finished(running) is None
    if gang.ended is None:
        return
    outcome = kind.finished(altered(built(gang), status=gang.ended))
    assert outcome is not None
    assert outcome.success


def test_a_kind_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kinds", "Train", "--size", "smoke"]) == 2
    assert "--kinds: 'Train' is none of PyTorchJob" in capsys.readouterr().err
