"""JobProfiles as they are read, and as webhooks refuse them."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api import admission
from gangline.api.profiles import MOST_PAIRS, profile, written_pair
from gangline.api.read import policy_reader
from gangline.api.read.reading import ParseError
from gangline.api.sharing.traits import max_slowdown, trait_faults, traits
from gangline.api.spec_fields import SpecError
from gangline.engine.model import CompanyPolicy, CompanySpeed, JobProfile, SpeedAlone

Json = dict[str, Any]


def made(status: Json | None = None, **spec: Any) -> Json:
    return {"metadata": {"name": "lammps"}, "spec": spec, "status": status or {}}


def test_a_profile_is_read() -> None:
    found = profile(
        made(
            **{"class": "ml/ResNet-50"},
            family="resnet",
            alone=[{"gpu": "V100", "rate": "8.5", "memory": "5Gi", "utilisation": 47, "watts": 210}],
            pairs=[
                {"beside": "vgg", "gpu": "V100", "sharing": "MPS", "slowdown": "1.25", "samples": 3},
                {"beside": "cnn", "outOfMemory": True},
                {"beside": "gromacs", "on": "Node", "slowdown": 2},
                {"beside": "vgg", "gpu": "v100", "sharing": "MPS", "slowdown": "9"},
            ],
        )
    )
    assert found.family == "resnet"
    assert found.profile == JobProfile(
        "ml/ResNet-50",
        (
            CompanySpeed("vgg", "V100", "MPS", speed=0.8, samples=3),
            CompanySpeed("cnn", out_of_memory=True),
            CompanySpeed("gromacs", on_node=True, speed=0.5),
        ),
        (SpeedAlone("V100", 8.5, 5 * 1024, 47, 210),),
    ), "of the same pair the first counts"


def test_its_name_is_its_class_and_its_family_unless_it_says_otherwise() -> None:
    found = profile(made())
    assert (found.profile.name, found.family, found.profile.pairs) == ("lammps", "lammps", ())


def test_what_was_learned_goes_after_what_was_declared_and_what_cannot_be_read_of_it_is_left_out() -> None:
    learned = [{"beside": "a", "slowdown": "2"}, {"beside": "b", "slowdown": "2"}, {"beside": "b!"}, 7, {"beside": "c"}]
    found = profile(made({"pairs": learned}, pairs=[{"beside": "a", "slowdown": "1.25"}]))
    assert [(each.beside, each.speed) for each in found.whole.pairs] == [("a", 0.8), ("b", 0.5)]
    assert profile(made({"pairs": "x"})).whole.pairs == ()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"class": "a b"}, "spec.class: must be a class of jobs"),
        ({"class": 7}, "spec.class: must be a class of jobs"),
        ({"family": "x" * 64}, "spec.family: must be a text of at most 63 characters"),
        ({"alone": {}}, "spec.alone: must be a list"),
        ({"alone": [7]}, r"spec.alone\[0\]: must be an object"),
        ({"alone": [{"rate": "-1"}]}, r"spec.alone\[0\].rate: must be a number from 0"),
        ({"alone": [{"memory": "1Ei"}]}, r"spec.alone\[0\].memory"),
        ({"alone": [{"utilisation": 101}]}, r"spec.alone\[0\].utilisation: must be a whole number from 0 to 100"),
        ({"alone": [{"gpu": "a\x1b"}]}, r"spec.alone\[0\].gpu: must be a text"),
        ({"pairs": [{"beside": "a"}]}, r"spec.pairs\[0\].slowdown: give slowdown, or outOfMemory"),
        ({"pairs": [{"beside": "a", "slowdown": 2, "outOfMemory": True}]}, r"spec.pairs\[0\].slowdown: give"),
        ({"pairs": [{"beside": "a", "slowdown": "0.5"}]}, r"must be a number from 0.9 to 20"),
        ({"pairs": [{"beside": "a", "slowdown": "9" * 40}]}, r"must be a number from 0.9 to 20"),
        (
            {"pairs": [{"beside": "a", "slowdown": 2, "samples": True}]},
            r"spec.pairs\[0\].samples: must be a whole number",
        ),
        ({"pairs": [{"beside": "a", "slowdown": 2, "sharing": "MIG"}]}, r"spec.pairs\[0\].sharing: must be one of"),
        ({"pairs": [{"beside": "a", "slowdown": 2, "on": "Rack"}]}, r"spec.pairs\[0\].on: must be Card or Node"),
        ({"pairs": [{"slowdown": 2}]}, r"spec.pairs\[0\].beside: must be a class"),
        ({"pairs": [{"beside": "a", "slowdown": 2}] * (MOST_PAIRS + 1)}, f"spec.pairs: must have at most {MOST_PAIRS}"),
    ],
)
def test_faults_name_the_field(spec: Json, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        profile(made(**spec))
    rules = admission.KINDS["gangline.io", "JobProfile"]
    assert rules.validate is not None
    (fault,) = rules.validate(made(**spec), None, admission.AdmissionFacts())
    with pytest.raises(SpecError) as raised:
        profile(made(**spec))
    assert fault.path == raised.value.path


def test_a_pair_is_written_as_it_is_read() -> None:
    for pair in (
        CompanySpeed("a", "V100", "MPS", speed=0.8, samples=7),
        CompanySpeed("a", on_node=True, speed=0.5),
        CompanySpeed("a", out_of_memory=True),
    ):
        assert profile(made(pairs=[written_pair(pair)])).profile.pairs == (pair,)


@pytest.mark.parametrize(
    ("written", "read"), [("1.25", 1250), ("1", 1000), ("20", 20_000), ("1.2", 1200), ("1.001", 1001)]
)
def test_the_slowdown_that_a_job_allows(written: str, read: int) -> None:
    annotations = {"gangline.io/max-slowdown": written}
    assert traits(annotations, {}, images=False).max_slowdown == read and trait_faults(annotations) == []


@pytest.mark.parametrize("written", ["", "0.9", "21", "1.2345", "1,5", "+2", "1e1", "٢", "1" * 9])
def test_other_slowdowns_are_refused(written: str) -> None:
    assert max_slowdown(written) is None
    (fault,) = trait_faults({"gangline.io/max-slowdown": written})
    assert "must be a number from 1 to 20" in fault.message


# --- policies ---------------------------------------------------------------------------------------------------------


def policy(**placement: Any) -> Any:
    body = {"apiVersion": "gangline.io/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": "p"}}
    found = policy_reader.placement({**body, "spec": {"placement": placement}})
    assert found is not None
    return found.interference


def test_a_policy_looks_at_company_where_it_says_so_or_its_profile_does() -> None:
    assert policy(profile="Pack") is None
    assert (
        policy(profile="Interference") == policy(scores=[{"name": "Interference"}]) == CompanyPolicy(1.25, 1.1, "Alone")
    )
    said = {"maxSlowdown": "1.5", "minGain": 1, "unknown": "Probe"}
    assert policy(profile="Pack", interference=said) == CompanyPolicy(1.5, 1.0, "Probe")


@pytest.mark.parametrize(
    ("field", "value"), [("maxSlowdown", "0.5"), ("maxSlowdown", 21), ("minGain", "2.1"), ("minGain", -1)]
)
def test_its_numbers_are_bounded(field: str, value: object) -> None:
    with pytest.raises(ParseError, match=f"spec.placement.interference.{field}: must be from"):
        policy(interference={field: value})
