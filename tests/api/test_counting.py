"""What pods count for: overhead, defaults, bounds and transformations, with the numbers of Kueue's tests where it has some."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.objects import Workload

from gangline.api import quantity
from gangline.api.read import parse
from gangline.api.read.counting import namespace_rules
from gangline.api.read.counting.namespace_rules import (
    NO_LIMITS,
    NO_RULES,
    ContainerLimits,
    NamespaceRules,
    as_written,
    completed,
)
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules, Transformation
from gangline.api.read.reading import ParseError
from gangline.api.read.render import resource_requests
from gangline.engine.model import UNLIMITED

Json = dict[str, Any]


def limit_range(*rows: Json) -> Json:
    return {"metadata": {"name": "r", "namespace": "team"}, "spec": {"limits": list(rows)}}


def limits(*rows: Json) -> ContainerLimits:
    return namespace_rules.limits(limit_range(*rows))


def rules(
    *rows: Json, overheads: dict[str, dict[str, int]] | None = None, of: ResourceRules = EVERYTHING
) -> NamespaceRules:
    return NamespaceRules.of(limits(*rows), overheads or {}, of)


def container(requests: Json | None = None, bounds: Json | None = None, **more: Any) -> Json:
    resources = {"requests": requests, "limits": bounds}
    return {"name": "c", "resources": {key: value for key, value in resources.items() if value}, **more}


def workload(*specs: Json, count: int = 1) -> Json:
    """A Workload with a pod set for each of these specs of pods."""
    rows = ({"name": f"p{i}", "count": count, "template": {"spec": spec}} for i, spec in enumerate(specs))
    return Workload("job").pod_sets(*rows).made


def pod(*containers: Json, **more: Any) -> Json:
    return {"containers": list(containers), **more}


def counted(spec: Json, by: NamespaceRules = NO_RULES) -> dict[str, int]:
    return dict(parse.workload(workload(spec), by).pod_sets[0].counted)


def violation(*specs: Json, by: NamespaceRules = NO_RULES) -> str:
    return parse.workload(workload(*specs), by).violation


CONTAINER = {"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "3"}}
AT = "spec.podSets[0].template.spec"


# --- LimitRanges ------------------------------------------------------------------------------------------------------


def test_of_several_ranges_the_narrowest_bounds_and_the_first_defaults_count() -> None:
    first = limits(
        {
            "type": "Container",
            "max": {"cpu": "3", "memory": "2Gi"},
            "min": {"cpu": "100m"},
            "default": {"cpu": "2"},
            "defaultRequest": {"memory": "1Gi"},
        }
    )
    second = limits(
        {"type": "Container", "max": {"cpu": "2", "nvidia.com/gpu": "8"}, "min": {"cpu": "500m", "memory": "1Mi"}},
        {"type": "Container", "default": {"cpu": "1", "memory": "3Gi"}},
        {"type": "Pod", "max": {"cpu": "10"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    )
    both = namespace_rules.together([first, second])
    assert both.container is not None and both.pod is not None
    assert both.container.most == {"cpu": 2000, "memory": 2 * 2**30, "nvidia.com/gpu": 8}
    assert both.container.least == {"cpu": 500, "memory": 2**20}
    assert both.container.limits == {"cpu": 2000, "memory": 3 * 2**30}
    assert both.container.requests == {"memory": 2**30}
    assert both.pod.most == {"cpu": 10_000}


def test_a_range_about_nothing_of_pods_limits_nothing() -> None:
    assert limits({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}) == NO_LIMITS
    assert namespace_rules.together([]) == NO_LIMITS
    assert NamespaceRules.of(NO_LIMITS, {}, EVERYTHING) is NO_RULES


def test_a_range_that_cannot_be_read_says_where() -> None:
    with pytest.raises(ParseError, match=r"spec\.limits\[0\]\.max\[cpu\]"):
        limits({"type": "Container", "max": {"cpu": "much"}})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(pod(container(), initContainers=[container()]), 3000, id="nothing is written"),
        pytest.param(pod(container(bounds={"cpu": "6"})), 6000, id="a limit is a request before defaults are looked at"),
        pytest.param(pod(container(bounds={"cpu": "2"})), 2000, id="also a limit below the default request"),
        pytest.param(pod(container({"cpu": "1"}), initContainers=[container()]), 3000, id="the init container asks for more"),
        pytest.param(pod(container({"cpu": "1"})), 1000, id="a request stays"),
        pytest.param(pod(container(), container({"cpu": "500m"})), 3500, id="containers add up"),
        pytest.param(pod(), 0, id="no containers"),
    ],
)  # fmt: skip
def test_containers_get_the_defaults_of_their_namespace(spec: Json, expected: int) -> None:
    assert counted(spec, rules(CONTAINER)).get("cpu", 0) == expected


def test_without_a_default_request_the_default_limit_counts() -> None:
    assert counted(pod(container()), rules({"type": "Container", "default": {"cpu": "4"}})) == {"cpu": 4000}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(pod(container({"cpu": "1"}), resources={"limits": {"cpu": "2"}}), {"cpu": 1000}, id="a container's request"),
        pytest.param(pod(container(bounds={"cpu": "1"}), resources={"limits": {"cpu": "2"}}), {"cpu": 1000}, id="and its limit"),
        pytest.param(pod(container(), resources={"limits": {"cpu": "2"}}), {"cpu": 2000}, id="no container requests any"),
        pytest.param(
            pod(container({"memory": "1Gi"}), resources={"limits": {"cpu": "2"}}), {"cpu": 2000, "memory": 2**30}, id="another"
        ),
        pytest.param(pod(*[container({"cpu": "1"})] * 2, resources={"limits": {"cpu": "3"}}), {"cpu": 2000}, id="their sum"),
        pytest.param(
            pod(container({"cpu": "1"}), resources={"limits": {"cpu": "6"}, "requests": {"cpu": "2"}}),
            {"cpu": 2000},
            id="written",
        ),
        pytest.param(
            pod(container({"cpu": "1"}), initContainers=[container({"cpu": "2"})], resources={"limits": {"cpu": "6"}}),
            {"cpu": 2000},
            id="the peak of init containers",
        ),
    ],
)  # fmt: skip
def test_a_pod_with_limits_as_a_whole_requests_what_its_containers_do(spec: Json, expected: dict[str, int]) -> None:
    assert counted(spec) == expected


def test_the_default_request_of_a_range_comes_after_the_limit_of_the_pod() -> None:
    """The API server has decided by then what the pod requests as a whole."""
    assert counted(pod(container(), resources={"limits": {"cpu": "2"}}), rules(CONTAINER)) == {"cpu": 2000}


# --- RuntimeClasses ---------------------------------------------------------------------------------------------------

OVERHEADS = {"kata": {"cpu": 1000, "memory": 1024}}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({"runtimeClassName": "kata"}, {"cpu": 2000, "memory": 1024}, id="named"),
        pytest.param({}, {"cpu": 1000}, id="not named"),
        pytest.param({"runtimeClassName": "other"}, {"cpu": 1000}, id="a class that is not there"),
        pytest.param(
            {"runtimeClassName": "kata", "overhead": {"cpu": "2"}}, {"cpu": 3000}, id="the template has its own"
        ),
        pytest.param({"runtimeClassName": "other", "overhead": {"cpu": "2"}}, {"cpu": 3000}, id="and is believed"),
    ],
)
def test_overhead_is_that_of_the_runtime_class(more: Json, expected: dict[str, int]) -> None:
    assert counted(pod(container({"cpu": "1"}), **more), rules(overheads=OVERHEADS)) == expected


# --- violations -------------------------------------------------------------------------------------------------------


def test_requests_above_limits() -> None:
    spec = pod(container({"cpu": "2"}, {"cpu": "1"}), container({"cpu": "1"}, {"cpu": "1"}))
    error = f'{AT}.containers[0]: Invalid value: ["cpu"]: requests must not exceed its limits'
    assert violation(spec) == f"resources validation failed: {error}"
    assert violation(pod(container({"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}))) == ""


def test_all_errors_are_told_init_containers_first() -> None:
    above = container({"memory": "2Gi", "cpu": "2"}, {"cpu": "1", "memory": "1Gi"})
    spec = pod(above, initContainers=[above], resources={"requests": {"cpu": "3"}, "limits": {"cpu": "1"}})
    said = violation(pod(container()), spec)
    where = "spec.podSets[1].template.spec"
    assert said == (
        "resources validation failed: ["
        f'{where}.initContainers[0]: Invalid value: ["cpu","memory"]: requests must not exceed its limits, '
        f'{where}.containers[0]: Invalid value: ["cpu","memory"]: requests must not exceed its limits, '
        f'{where}.resources: Invalid value: ["cpu"]: requests must not exceed its limits]'
    )


def test_a_default_limit_below_a_request_is_a_violation() -> None:
    said = violation(pod(container({"cpu": "5"})), by=rules(CONTAINER))
    assert said.startswith("resources validation failed: ")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"type": "Container", "max": {"cpu": "1"}}, ".containers[0]:max", id="container above"),
        pytest.param({"type": "Container", "min": {"cpu": "3"}}, ".containers[0]:min", id="container below"),
        pytest.param({"type": "Pod", "max": {"cpu": "1"}}, ":max", id="pod above"),
        pytest.param({"type": "Pod", "min": {"cpu": "3"}}, ":min", id="pod below"),
        pytest.param({"type": "Container", "max": {"cpu": "3"}, "min": {"cpu": "2"}}, "", id="within"),
        pytest.param({"type": "Pod", "max": {"cpu": "2"}, "min": {"cpu": "2"}}, "", id="just so"),
        pytest.param({"type": "Container", "min": {"memory": "1Gi"}}, "", id="a resource that is not asked for"),
    ],
)
def test_bounds_of_limit_ranges(row: Json, words: str) -> None:
    said = violation(pod(container({"cpu": "2"}, {"cpu": "3"})), by=rules(row))
    where, _, bound = words.partition(":")
    what = {
        "max": "requests must not be above the limitRange max",
        "min": "requests must not be below the limitRange min",
    }
    expected = (
        f'resources didn\'t satisfy LimitRange constraints: {AT}{where}: Invalid value: ["cpu"]: {what[bound]}'
        if bound
        else ""
    )
    assert said == expected


def test_a_limit_above_the_maximum_is_a_violation_too() -> None:
    assert violation(pod(container({"cpu": "1"}, {"cpu": "3"})), by=rules({"type": "Container", "max": {"cpu": "2"}}))


def test_a_pod_is_measured_with_its_sidecars_and_overhead() -> None:
    by = rules({"type": "Pod", "max": {"cpu": "500m"}}, overheads={"kata": {"cpu": 250}})
    sidecar = container({"cpu": "300m"}, restartPolicy="Always")
    assert violation(pod(container({"cpu": "300m"}), initContainers=[sidecar]), by=by)
    assert violation(pod(container({"cpu": "300m"})), by=by) == ""
    assert violation(pod(container({"cpu": "300m"}), runtimeClassName="kata"), by=by)


def test_a_long_message_is_cut() -> None:
    above = container({"cpu": "2"}, {"cpu": "1"})
    assert len(violation(pod(*[above] * 500))) < 5000


# --- transformations --------------------------------------------------------------------------------------------------


def made(outputs: dict[str, str], multiply_by: str = "", *, retain: bool = True) -> Transformation:
    return Transformation({name: quantity.exact(size) for name, size in outputs.items()}, multiply_by, retain)


CREDITS = ResourceRules(
    transformations={
        "nvidia.com/mig-1g.5gb": made({"memory-of-gpus": "5Ki", "credits": "10"}, retain=False),
        "nvidia.com/mig-2g.10gb": made({"memory-of-gpus": "10Ki", "credits": "15"}, retain=False),
        "nvidia.com/gpu": made({"memory-of-gpus": "40Ki", "credits": "100"}),
        "nvidia.com/vgpucores": made({"total-vgpucores": "1"}, "nvidia.com/vgpu", retain=False),
    }
)
ALLOWANCE = ResourceRules(
    transformations={
        "gpumem": made({"overage": "1"}, "gpu", retain=False),
        "gpu": made({"overage": "-1024"}),
    }
)


@pytest.mark.parametrize(
    ("by", "requests", "expected"),
    [
        (
            CREDITS,
            {"cpu": "1", "nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 1},
            {"cpu": 1000, "memory-of-gpus": 20 * 1024, "credits": 35},
        ),
        (CREDITS, {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1, "memory-of-gpus": 40 * 1024, "credits": 100}),
        (
            CREDITS,
            {"nvidia.com/vgpu": 2, "nvidia.com/vgpucores": 20},
            {"nvidia.com/vgpu": 2, "total-vgpucores": 40},
        ),
        (CREDITS, {"nvidia.com/vgpucores": 20}, {"total-vgpucores": 20}),
        (ALLOWANCE, {"gpumem": 2048, "gpu": 2}, {"gpu": 2, "overage": 2048}),
        (ALLOWANCE, {"gpumem": 1024, "gpu": 2}, {"gpu": 2, "overage": 0}),
        (ALLOWANCE, {"gpumem": 512, "gpu": 2}, {"gpu": 2, "overage": 0}),
        (ResourceRules(transformations={"credit": made({"gpu": "-1"}, retain=False)}), {"gpu": 8, "credit": 3}, {"gpu": 8}),
        (ResourceRules(transformations={"credit": made({"gpu": "1"}, retain=False)}), {"gpu": 1, "credit": 1}, {"gpu": 2}),
        (ResourceRules(transformations={"gpu": made({"gpu": "5"})}), {"gpu": 1}, {"gpu": 6}),
        (ResourceRules(transformations={"gpu": made({"gpu": "1"}, "node")}), {"gpu": 1, "node": 2}, {"gpu": 3, "node": 2}),
        (
            ResourceRules(transformations={"gpumem": made({"quota": "1"}, "cpu")}),
            {"gpumem": 1024, "cpu": "500m"},
            {"gpumem": 1024, "quota": 512, "cpu": 500},
        ),
        (
            ResourceRules(transformations={"credit": made({"gpu": "10000000000"}, retain=False)}),
            {"credit": 10_000_000_000},
            {"gpu": UNLIMITED},
        ),
        (
            ResourceRules(
                transformations={
                    "cpu": made({"cpu-credits": "3000"}, retain=False),
                    "memory": made({"memory-credits": "3m"}, retain=False),
                }
            ),
            {"cpu": "100m", "memory": "100M"},
            {"cpu-credits": 300, "memory-credits": 300_000},
        ),
        (ResourceRules(transformations={"mig": made({"cpu": "250m"}, retain=False)}), {"mig": 3, "cpu": "1"}, {"cpu": 1750}),
        (ResourceRules(transformations={"mig": made({"gpu": "0.3"}, retain=False)}), {"mig": 2}, {"gpu": 1}),
        (ResourceRules(transformations={"mig": Transformation(retain=False)}), {"mig": 2, "cpu": 1}, {"cpu": 1000}),
        (ResourceRules(excluded=("networking.example.com/",)), {"networking.example.com/vpc": 1, "cpu": 1}, {"cpu": 1000}),
        (
            ResourceRules(("net",), {"gpu": made({"credits": "2"}, "network")}),
            {"gpu": 3, "network": 5},
            {"gpu": 3, "credits": 6},
        ),
    ],
)  # fmt: skip
def test_what_counts(by: ResourceRules, requests: Json, expected: dict[str, int]) -> None:
    parsed = parse.workload(workload(pod(container(requests))), rules(of=by)).pod_sets[0]
    assert dict(parsed.counted) == expected
    assert parsed.requests == counted(pod(container(requests))), "nodes give what is requested"


def test_what_no_rule_concerns_is_not_copied() -> None:
    requests = {"cpu": 1}
    assert CREDITS.counted(requests) is requests
    assert parse.workload(workload(pod(container({"cpu": "1"}))), rules(of=CREDITS)).pod_sets[0].quota is None


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, UNLIMITED), max_size=3),
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.builds(
            Transformation,
            st.dictionaries(st.sampled_from(["a", "b", "d"]), st.fractions(-10, 10), max_size=2),
            st.sampled_from(["", "a", "c"]),
            st.booleans(),
        ),
        max_size=3,
    ),
)
def test_counted_amounts_are_whole_and_within_bounds(
    requests: dict[str, int], transformations: dict[str, Transformation]
) -> None:
    found = ResourceRules(transformations=transformations).counted(requests)
    assert all(isinstance(size, int) and 0 <= size <= UNLIMITED for size in found.values())


def test_pods_of_a_workload_together_stay_within_bounds() -> None:
    by = rules(of=ResourceRules(transformations={"credit": Transformation({"gpu": Fraction(10**10)}, retain=False)}))
    found = parse.workload(workload(pod(container({"credit": 10**10})), count=4), by).pod_sets[0]
    assert found.counted["gpu"] * 4 <= UNLIMITED


# --- together ---------------------------------------------------------------------------------------------------------


def test_the_same_workload_counts_differently_in_other_namespaces() -> None:
    spec = pod(container())
    assert counted(spec) == {}
    assert counted(spec, rules(CONTAINER)) == {"cpu": 3000}
    assert counted(spec, rules({**CONTAINER, "defaultRequest": {"cpu": "2"}})) == {"cpu": 2000}
    assert counted(spec) == {}


def test_a_pod_to_which_nothing_is_added_is_not_copied() -> None:
    spec = pod(container({"cpu": "1"}))
    assert completed(spec, NO_RULES) is spec
    assert completed(spec, rules(overheads=OVERHEADS)) is spec
    assert counted({**spec, "runtimeClassName": ["kata"]}, rules(overheads=OVERHEADS)) == {"cpu": 1000}


def test_requests_are_told_where_templates_do_not_say_them() -> None:
    body = workload(pod(container()), pod(container({"cpu": "1"})), count=3)
    by = rules(CONTAINER, of=ResourceRules(transformations={"cpu": made({"credits": "2"})}))
    read = parse.workload({**body, "status": {"reclaimablePods": [{"name": "p0", "count": 1}]}}, by)
    assert not as_written(body, read.pod_sets)
    assert resource_requests(read) == [
        {"name": "p0", "resources": {"cpu": "6", "credits": "12"}},
        {"name": "p1", "resources": {"cpu": "3", "credits": "6"}},
    ]
    ordinary = workload(pod(container({"cpu": "1"})))
    assert as_written(ordinary, parse.workload(ordinary, rules(CONTAINER)).pod_sets)


def test_pods_that_together_request_more_than_can_be_counted_are_not_admitted() -> None:
    """A quota of 1E cores has no end: 2³¹-1 pods of so many cores were admitted on it."""
    absurd = parse.workload(workload(pod(container({"cpu": "1P"})), count=2**31 - 1))
    assert absurd.violation == "spec.podSets[0].count: all pods together request more of cpu than can be counted"
    assert absurd.pod_sets[0].counted["cpu"] * absurd.pod_sets[0].count <= UNLIMITED
    assert parse.workload(workload(pod(container({"cpu": "1k"})), count=2**31 - 1)).violation == ""
