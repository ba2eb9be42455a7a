"""What claims count as in a cluster with devices: selectors, counters and capacities, and why a claim does not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.read import configuration, parse
from gangline.api.read.counting import device_charges, device_claims
from gangline.api.read.counting.device_claims import Devices
from gangline.api.read.counting.device_supply import DeviceSupply
from gangline.api.read.counting.namespace_rules import NO_LIMITS, NamespaceRules
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.api.read.reading import ParseError
from gangline.api.selecting import LocalJudge, UnavailableError
from gangline.engine import model

Json = dict[str, Any]
DRIVER, CLASS, OTHER = "gpu.example.com", "mig.example.com", "other.example.com"
MIB, GIB = 1 << 20, 1 << 30
AT = "spec.podSets[0].template.spec.resourceClaims[0]"
SELECTORS = f"{AT}.devices.requests[0].exactly.selectors"
SHARED = f"device.driver == '{DRIVER}'"
PROFILE = f"device.attributes['{DRIVER}'].profile == '{{}}'"


def device(name: str, profile: str = "1g", memory: str = "", capacity: Any = None, **attributes: Json) -> Json:
    """`memory`: of the counter; `capacity`: of its memory, or with a policy."""
    found: Json = {"name": name, "attributes": {"profile": {"string": profile}, **attributes}}
    if memory:
        found["consumesCounters"] = [{"counterSet": "set", "counters": {"memory": {"value": memory}}}]
    if capacity is not None:
        found["capacity"] = {"memory": capacity if isinstance(capacity, dict) else {"value": capacity}}
    return found


def slice_of(*devices: Json, pool: str = "node", generation: int = 1, count: int = 1, driver: str = DRIVER) -> Json:
    pool_ = {"name": pool, "generation": generation, "resourceSliceCount": count}
    return {"metadata": {"name": "s"}, "spec": {"driver": driver, "pool": pool_, "devices": list(devices)}}


def mapping(name: str, *sources: Json, classes: Sequence[str] = (CLASS,)) -> Json:
    return {"name": name, "deviceClassNames": list(classes), "sources": list(sources)}


def source(kind: str, name: str = "memory", selector: str = SHARED) -> Json:
    return {kind: {"name": name, "driver": DRIVER, "deviceSelector": {"cel": {"expression": selector}}}}


def configured(*mappings: Json, **gates: bool) -> Devices:
    gates = {"KueueDRAIntegrationConsumableCapacity": True, **gates}
    return configuration.load(
        {"resources": {"deviceClassMappings": list(mappings)}, "featureGates": gates}
    ).resources.devices


COUNTED = configured(mapping("gpu.memory", source("counter")), {"name": "others", "deviceClassNames": [OTHER]})
METERED = configured(mapping("gpu.memory", source("capacity")))
PLAIN = configured({"name": "gpus", "deviceClassNames": [CLASS, OTHER]})


class Cluster:
    def __init__(self, devices: Devices, *slices: Json, classes: dict[str, list[str]] | None = None) -> None:
        self.devices = devices
        self.supply = DeviceSupply(LocalJudge())
        for i, each in enumerate(slices):
            self.supply.put_slice(f"slice-{i}", device_charges.resource_slice(each))
        for name, selectors in ({CLASS: [SHARED], OTHER: []} if classes is None else classes).items():
            body = {"spec": {"selectors": [{"cel": {"expression": text}} for text in selectors]}}
            self.supply.put_class(name, device_claims.class_selectors(body))

    def read(self, *requests: Json, templates: int = 1, containers: Json | None = None) -> model.Workload:
        """A Workload with claims by as many templates that are equal."""
        body = {"spec": {"spec": {"devices": {"requests": list(requests)}}}}
        claims = {f"t{n}": device_claims.claim(body) for n in range(templates)}
        rules = NamespaceRules.of(
            NO_LIMITS, {}, ResourceRules(devices=self.devices), claims, supply=self.supply.of("team")
        )
        rows = [{"name": name, "resourceClaimTemplateName": name} for name in claims] if requests else []
        container = {"name": "c", "resources": {"requests": containers or {}}}
        spec = {"containers": [container], "resourceClaims": rows}
        pod_set = {"name": "main", "count": 1, "template": {"spec": spec}}
        return parse.workload({"metadata": {"namespace": "team", "name": "w"}, "spec": {"podSets": [pod_set]}}, rules)

    def counts(self, *requests: Json, templates: int = 1) -> dict[str, int]:
        found = self.read(*requests, templates=templates)
        assert found.violation == ""
        return dict(found.pod_sets[0].counted)

    def refuses(self, *requests: Json) -> str:
        found = self.read(*requests)
        assert found.overtaken
        return found.violation


def asks(device_class: str = CLASS, *selectors: str, memory: str = "", **more: Any) -> Json:
    found: Json = {"deviceClassName": device_class, **more}
    if selectors:
        found["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    if memory:
        found["capacity"] = {"requests": {"memory": memory}}
    return {"name": "r", "exactly": found}


# --- selectors --------------------------------------------------------------------------------------------------------


def test_devices_that_selectors_select() -> None:
    cluster = Cluster(PLAIN, slice_of(device("a"), device("b"), device("c", "2g")))
    assert cluster.counts(asks(CLASS, PROFILE.format("1g"), count=2)) == {"gpus": 2}
    assert cluster.refuses(asks(CLASS, PROFILE.format("1g"), count=3)) == (
        f"{SELECTORS}: Internal error: ResourceClaimTemplate t0: insufficient matching devices for CEL selector in "
        f"DeviceClass {CLASS}: 2 device(s) match in the cluster but 3 requested"
    )
    both = PROFILE.format("1g"), "device.driver.endsWith('.com')"
    assert cluster.counts(asks(CLASS, *both)) == {"gpus": 1}


def test_without_selectors_nobody_looks_for_devices() -> None:
    assert Cluster(PLAIN, classes={}).counts(asks(CLASS, count=7)) == {"gpus": 7}


def test_the_selectors_of_the_class_hold_as_well() -> None:
    cluster = Cluster(PLAIN, slice_of(device("a")), classes={CLASS: ["device.driver == 'another'"]})
    assert "0 device(s) match" in cluster.refuses(asks(CLASS, PROFILE.format("1g")))
    gone = Cluster(PLAIN, slice_of(device("a")), classes={}).refuses(asks(CLASS, PROFILE.format("1g")))
    assert gone == (
        f"{AT}.devices.requests[0]: Internal error: ResourceClaimTemplate t0: failed to get DeviceClass {CLASS}: "
        f'DeviceClass.resource.k8s.io "{CLASS}" not found'
    )
    invalid = Cluster(PLAIN, classes={CLASS: ["true", "device.what"]}).refuses(asks(CLASS, "true"))
    assert invalid.startswith(
        f'{AT}.devices.requests[0][1].cel.expression: Invalid value: "device.what": ResourceClaimTemplate t0: '
        f"DeviceClass {CLASS} has invalid CEL selector: compilation failed: "
    )


def test_a_device_is_taken_once_within_a_claim_and_anew_by_the_next() -> None:
    cluster = Cluster(PLAIN, slice_of(device("a"), device("b")))
    one = asks(CLASS, PROFILE.format("1g"))
    assert cluster.counts(one, one) == {"gpus": 2}
    third = cluster.refuses(one, one, one)
    assert "requests[2].exactly.selectors: Internal error" in third and "0 device(s) match" in third
    assert cluster.counts(one, one, templates=3) == {"gpus": 6}


def test_requests_for_administrators_count_nothing_but_need_devices() -> None:
    cluster = Cluster(PLAIN, slice_of(device("a")))
    admin = asks(CLASS, PROFILE.format("1g"), adminAccess=True, allocationMode="All")
    assert cluster.counts(admin) == {}
    assert "0 device(s) match" in cluster.refuses(asks(CLASS, "false", adminAccess=True))
    assert "CEL compilation failed" in cluster.refuses(asks(CLASS, "no", adminAccess=True))


def test_incomplete_pools_and_old_generations_have_devices_as_well() -> None:
    slices = slice_of(device("a"), count=2), slice_of(device("b"), generation=7, count=3)
    assert Cluster(PLAIN, *slices).counts(asks(CLASS, PROFILE.format("1g"), count=2)) == {"gpus": 2}


def test_expressions_that_do_not_compile_or_fail() -> None:
    cluster = Cluster(PLAIN, slice_of(device("a"), device("b")))
    said = cluster.refuses(asks(CLASS, "true", "nothing", "neither"))
    path = "devices.requests[0].exactly.selectors"
    assert said.startswith(
        f'{SELECTORS}: Invalid value: "null": ResourceClaimTemplate t0: [{path}[1].cel.expression: Invalid value: '
        '"nothing": CEL compilation failed: compilation failed: ERROR: <input>:1:1: undeclared reference'
    )
    assert f', {path}[2].cel.expression: Invalid value: "neither": CEL compilation failed' in said
    assert cluster.refuses(asks(CLASS, f"device.attributes['{DRIVER}'].no == 1")) == (
        f'{SELECTORS}: Invalid value: "null": ResourceClaimTemplate t0: CEL evaluation failed for DeviceClass {CLASS}: '
        "no such key: no"
    )
    # what comes after enough devices is not looked at
    late = f"device.attributes['{DRIVER}'].profile == '1g' ? true : device.attributes['{DRIVER}'].no == 1"
    found = Cluster(PLAIN, slice_of(device("a"), device("b", "2g")))
    assert found.counts(asks(CLASS, late)) == {"gpus": 1}
    assert "no such key" in found.refuses(asks(CLASS, late, count=2))


def test_several_faults_of_one_claim() -> None:
    said = Cluster(PLAIN).refuses(asks(CLASS, "true"), asks(OTHER, "true", count=2))
    assert said.startswith(f"[{SELECTORS}: Internal error") and said.endswith(
        "0 device(s) match in the cluster but 2 requested]"
    )


def test_a_class_without_a_mapping() -> None:
    said = Cluster(PLAIN, slice_of(device("a")), classes={"no": []}).refuses(asks("no", "true"))
    assert said.startswith(f'{AT}.resourceClaimTemplateName: Not found: "DeviceClass no is not mapped')


# --- counters ---------------------------------------------------------------------------------------------------------


def test_the_device_that_consumes_most_counts_for_each() -> None:
    cluster = Cluster(
        COUNTED, slice_of(device("a", memory="4864Mi"), device("b", "3g", "20Gi"), device("c", "3g", "10Gi"))
    )
    assert cluster.counts(asks(CLASS, PROFILE.format("1g"))) == {"gpu.memory": 4864 * MIB}
    assert cluster.counts(asks(CLASS)) == {"gpu.memory": 20 * GIB}
    assert cluster.counts(asks(CLASS, PROFILE.format("3g"), count=2)) == {"gpu.memory": 40 * GIB}
    assert cluster.counts(asks(CLASS), asks(OTHER, count=3), templates=2) == {"gpu.memory": 40 * GIB, "others": 6}
    assert cluster.counts(asks(CLASS, adminAccess=True)) == {}


@pytest.mark.parametrize(
    ("slices", "words"),
    [
        ([], "insufficient matching devices for counter driver: 0 device(s) match but 1 requested"),
        ([slice_of(device("a", memory="1Gi"), driver="x.com")], "0 device(s) match but 1 requested"),
        ([slice_of(device("a", memory="1Gi"), count=2)], "0 device(s) match but 1 requested"),
        (
            [slice_of(device("a", memory="1Gi"), count=2), slice_of(device("b", memory="1Gi"), generation=2, count=2)],
            "0 device(s) match but 1 requested",
        ),
        ([slice_of(device("a"))], 'matched devices have no consumesCounters entry for counter "memory"'),
        ([slice_of({**device("a"), "consumesCounters": "much"})], 'no consumesCounters entry for counter "memory"'),
    ],
)
def test_devices_that_are_not_there_for_counters(slices: list[Json], words: str) -> None:
    said = Cluster(COUNTED, *slices).refuses(asks(CLASS))
    assert said.startswith(f"{AT}.devices.requests[0]: Internal error: ") and said.endswith(words)


def test_the_newest_generation_of_a_pool_counts() -> None:
    old, new = slice_of(device("a", memory="9Gi")), slice_of(device("a", memory="2Gi"), generation=2)
    for slices in ((old, new), (new, old)):
        assert Cluster(COUNTED, *slices).counts(asks(CLASS)) == {"gpu.memory": 2 * GIB}
    halves = [slice_of(device("a", memory="1Gi"), count=2), slice_of(device("b", memory="3Gi"), count=2)]
    assert Cluster(COUNTED, *halves).counts(asks(CLASS, count=2)) == {"gpu.memory": 6 * GIB}


def test_selectors_of_sources_and_what_they_say_when_they_fail() -> None:
    narrow = configured(mapping("gpu.memory", source("counter", selector=PROFILE.format("3g"))))
    devices = device("a", memory="1Gi"), device("b", "3g", "2Gi")
    assert Cluster(narrow, slice_of(*devices)).counts(asks(CLASS)) == {"gpu.memory": 2 * GIB}
    failing = f"device.attributes['{DRIVER}'].no == 1"
    wrong = Cluster(configured(mapping("gpu.memory", source("counter", selector=failing))), slice_of(*devices))
    assert wrong.refuses(asks(CLASS)) == (
        f"{AT}.devices.requests[0]: Internal error: CEL evaluation error in deviceSelector for device a: no such key: no"
    )
    of_class = Cluster(COUNTED, slice_of(*devices), classes={CLASS: [failing]}).refuses(asks(CLASS))
    assert of_class.endswith("CEL evaluation error in DeviceClass selector for device a: no such key: no")
    assert "failed to get DeviceClass" in Cluster(COUNTED, slice_of(*devices), classes={}).refuses(asks(CLASS))


def test_several_counters_of_one_class() -> None:
    devices = configured(mapping("gpu.memory", source("counter")), mapping("gpu.cores", source("counter", "cores")))
    body = device("a", memory="1Gi")
    body["consumesCounters"].append(
        {"counterSet": "x", "counters": {"cores": {"value": "7"}, "memory": {"value": "2Gi"}}}
    )
    cluster = Cluster(devices, slice_of(body))
    assert cluster.counts(asks(CLASS)) == {"gpu.memory": 2 * GIB, "gpu.cores": 7}
    both = configured(mapping("gpu.memory", source("counter"), source("counter", "cores")))
    assert Cluster(both, slice_of(body)).counts(asks(CLASS)) == {"gpu.memory": 2 * GIB + 7}


def test_selectors_are_looked_at_first_and_counters_before_capacities() -> None:
    devices = configured(
        mapping("gpu.memory", source("counter")), mapping("shared", source("capacity"), classes=[OTHER])
    )
    cluster = Cluster(devices, slice_of(device("a")), classes={CLASS: [], OTHER: []})
    assert "insufficient matching devices for CEL" in cluster.refuses(asks(OTHER), asks(CLASS, "false"))
    assert "consumesCounters" in cluster.refuses(asks(OTHER), asks(CLASS))
    assert "no capacity dimension" in cluster.refuses(asks(OTHER))


# --- capacities -------------------------------------------------------------------------------------------------------


def policy(value: str = "80Gi", **more: Any) -> Json:
    return {"value": value, "requestPolicy": more}


VALUES = policy(default="10Gi", validValues=["10Gi", "20Gi", "40Gi"])
RANGE = policy(default="5Gi", validRange={"min": "5Gi", "max": "80Gi", "step": "5Gi"})


@pytest.mark.parametrize(
    ("capacities", "memory", "count", "gib"),
    [
        (["80Gi"], "20Gi", 1, 20),
        (["80Gi"], "", 1, 80),
        (["40Gi", "80Gi"], "", 1, 80),
        (["80Gi", "80Gi"], "20Gi", 2, 40),
        ([policy(default="10Gi")], "", 1, 10),
        ([policy(default="40Gi"), policy("100Gi", default="10Gi")], "", 1, 40),
        ([VALUES], "15Gi", 1, 20),
        ([VALUES], "", 1, 10),
        ([VALUES, policy(validValues=["60Gi"])], "15Gi", 1, 60),
        ([VALUES, policy(validValues=["10Gi"])], "15Gi", 1, 20),
        ([RANGE], "3Gi", 1, 5),
        ([RANGE], "6Gi", 1, 10),
        ([policy(validRange={"min": "0", "step": "4Gi"})], "5Gi", 1, 8),
        ([policy(validRange={"step": "4Gi"})], "5Gi", 1, 5),
        ([policy(validRange={"min": "1Gi"})], "500Gi", 1, 500),
        ([policy("80Gi")], "500Gi", 1, 500),
    ],
)
def test_what_is_consumed_of_a_capacity(capacities: list[Any], memory: str, count: int, gib: int) -> None:
    cluster = Cluster(METERED, slice_of(*(device(f"d{i}", capacity=each) for i, each in enumerate(capacities))))
    assert cluster.counts(asks(CLASS, memory=memory, count=count)) == {"gpu.memory": gib * GIB}


@pytest.mark.parametrize(
    ("capacity", "memory", "words"),
    [
        (
            VALUES,
            "50Gi",
            'Invalid value: "null": capacity request cannot be satisfied by any matched device\'s RequestPolicy for '
            'dimension "memory"',
        ),
        (RANGE, "81Gi", 'Invalid value: "null": capacity request cannot be satisfied'),
        (None, "1Gi", 'Internal error: matched devices have no capacity dimension "memory"'),
        ({"value": "much"}, "1Gi", "Internal error: matched devices have no capacity dimension"),
    ],
)
def test_capacities_that_cannot_be_had(capacity: Any, memory: str, words: str) -> None:
    said = Cluster(METERED, slice_of(device("a", capacity=capacity))).refuses(asks(CLASS, memory=memory))
    if capacity == {"value": "much"}:  # such a device is selected by nothing
        assert "CEL evaluation error in deviceSelector for device a" in said
    else:
        assert said.startswith(f"{AT}.devices.requests[0]: {words}")
    few = Cluster(METERED, slice_of(device("a", capacity="1Gi"))).refuses(asks(CLASS, count=2))
    assert few.endswith("insufficient matching devices for capacity driver: 1 device(s) match but 2 requested")


def test_names_of_capacities_are_compared_as_they_are_written() -> None:
    full = configured(mapping("gpu.memory", source("capacity", f"{DRIVER}/memory")))
    body = {"name": "a", "capacity": {f"{DRIVER}/memory": {"value": "8Gi"}}}
    assert Cluster(full, slice_of(body)).counts(asks(CLASS, memory="2Gi")) == {"gpu.memory": 8 * GIB}
    request = asks(CLASS)
    request["exactly"]["capacity"] = {"requests": {f"{DRIVER}/memory": "2Gi"}}
    assert Cluster(full, slice_of(body)).counts(request) == {"gpu.memory": 2 * GIB}


def test_nothing_overflows() -> None:
    cluster = Cluster(METERED, slice_of(*(device(f"d{i}", capacity="8Ei") for i in range(4))))
    assert cluster.counts(asks(CLASS, count=4), asks(CLASS, count=4)) == {"gpu.memory": model.UNLIMITED}
    assert Cluster(METERED, slice_of(device("a", capacity="-3"))).counts(asks(CLASS)) == {"gpu.memory": 0}


# --- resources that DeviceClasses stand for ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (COUNTED, "with counters configured; use ResourceClaimTemplates with CEL selectors for counter-based quota"),
        (
            METERED,
            "with capacity sources configured; use ResourceClaimTemplates with capacity.requests for capacity-based quota",
        ),
    ],
)
def test_requests_are_refused_whose_class_has_sources(devices: Devices, words: str) -> None:
    body = {"metadata": {"name": CLASS}, "spec": {"extendedResourceName": "example.com/gpu"}}
    standing = device_claims.extended_class(body)
    assert standing is not None
    cluster = Cluster(device_claims.extended({CLASS: standing}, devices))
    held = cluster.read(containers={"example.com/gpu": "1", "cpu": "1"})
    path = "spec.podSets[0].template.spec.containers[0]"
    assert held.violation == (
        f'{path}: Invalid value: "example.com/gpu": extended resource example.com/gpu resolves to DeviceClass {CLASS} {words}'
    )
    assert cluster.read(containers={"cpu": "1"}).violation == ""
    assert cluster.read(containers={"example.com/gpu": 0}).violation == ""


# --- when devices change ----------------------------------------------------------------------------------------------


def test_claims_that_count_differently_are_told() -> None:
    cluster = Cluster(COUNTED)
    claim = device_claims.claim({"spec": {"spec": {"devices": {"requests": [asks(CLASS)]}}}})
    other = device_claims.claim({"spec": {"spec": {"devices": {"requests": [asks(OTHER)]}}}})
    assert not cluster.supply.put_slice("early", device_charges.resource_slice(slice_of(driver="x.com")))
    supply = cluster.supply.of("team")
    for each in (claim, other):
        supply.charge(each, COUNTED)
    found = device_charges.resource_slice(slice_of(device("a", memory="1Gi")))
    assert cluster.supply.put_slice("s", found)
    assert not cluster.supply.put_slice("s", found), "nothing has changed"
    assert [supply.recharge(each, COUNTED) for each in (claim, other)] == [True, False]
    assert supply.charge(claim, COUNTED).amounts == {"gpu.memory": GIB}
    assert cluster.supply.put_slice("s", None)
    assert [supply.recharge(each, COUNTED) for each in (claim, other)] == [True, False]
    supply.forget(claim)
    assert not supply.recharge(claim, COUNTED), "unused claims are forgotten"
    supply.forget(other)
    assert not cluster.supply.put_class(CLASS, None)


def test_what_cannot_be_evaluated_yet_is_asked_for_again() -> None:
    class Paused(LocalJudge):
        paused = True

        def fault(self, expression: str) -> str:
            if self.paused:
                raise UnavailableError("in a moment")
            return super().fault(expression)

    judge = Paused()
    cluster = Cluster(PLAIN, slice_of(device("a")))
    cluster.supply = DeviceSupply(judge)
    cluster.supply.put_class(CLASS, ())
    cluster.supply.put_slice("s", device_charges.resource_slice(slice_of(device("a"))))
    assert cluster.refuses(asks(CLASS, "true")) == f"{AT}: Internal error: ResourceClaimTemplate t0: in a moment"
    claim = device_claims.claim({"spec": {"spec": {"devices": {"requests": [asks(CLASS, "true")]}}}})
    supply = cluster.supply.of("team")
    assert cluster.supply.postponed == {"team": {claim}}
    assert not supply.recharge(claim, PLAIN)
    judge.paused = False
    assert supply.recharge(claim, PLAIN)
    assert not cluster.supply.postponed
    assert cluster.counts(asks(CLASS, "true")) == {"gpus": 1}


def test_what_was_counted_counts_until_it_is_counted_anew() -> None:
    class Pausing(LocalJudge):
        paused = False

        def judge(self, expression: str, groups: Any) -> Any:
            return [None] * len(groups) if self.paused else super().judge(expression, groups)

    judge = Pausing()
    supply = DeviceSupply(judge)
    supply.put_class(CLASS, ())
    supply.put_slice("s", device_charges.resource_slice(slice_of(device("a"))))
    claim = device_claims.claim({"spec": {"spec": {"devices": {"requests": [asks(CLASS, "true")]}}}})
    assert supply.of("team").charge(claim, PLAIN).amounts == {"gpus": 1}
    judge.paused = True
    supply.put_slice("s", device_charges.resource_slice(slice_of(device("b"))))
    assert not supply.of("team").recharge(claim, PLAIN)
    assert supply.of("team").charge(claim, PLAIN).amounts == {"gpus": 1}
    assert supply.postponed == {"team": {claim}}
    judge.paused = False
    supply.put_slice("s", None)
    assert supply.of("team").recharge(claim, PLAIN)
    assert "insufficient matching devices" in supply.of("team").charge(claim, PLAIN).first[0].words
    assert not supply.postponed


def test_of_one_claim_so_many_selectors_are_evaluated() -> None:
    cluster = Cluster(PLAIN, slice_of(device("a"), device("b")))
    many = [f"device.driver != '{n}'" for n in range(33)]
    assert cluster.counts(asks(CLASS, *many), asks(OTHER, *many[:31])) == {"gpus": 2}
    said = cluster.refuses(asks(CLASS, *many), asks(OTHER, *many))
    assert "has more than 64 CEL selectors in all" in said and "requests[1]" in said


# --- readers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "spec.driver"),
        ({"driver": DRIVER, "pool": {}}, "spec.pool.name"),
        ({"driver": DRIVER, "pool": {"name": "p", "generation": "new"}}, "spec.pool.generation"),
        ({"driver": DRIVER, "pool": {"name": "p"}, "devices": [3]}, r"spec.devices\[0\]"),
        ({"driver": DRIVER, "pool": {"name": "p"}, "devices": [{}] * 513}, "spec.devices: a list of at most 512"),
    ],
)
def test_slices_that_cannot_be_read(spec: Json, path: str) -> None:
    with pytest.raises(ParseError, match=path):
        device_charges.resource_slice({"spec": spec})


@pytest.mark.parametrize(
    ("exactly", "path"),
    [
        ({"selectors": "all"}, "selectors"),
        ({"selectors": [{"cel": "x"}]}, r"selectors\[0\].cel"),
        ({"selectors": [{"cel": {"expression": 3}}]}, r"selectors\[0\].cel.expression"),
        ({"selectors": [{"cel": {"expression": "x" * 10_241}}]}, "selectors: an expression has at most 10240"),
        ({"capacity": {"requests": {"memory": "much"}}}, r"capacity.requests\[memory\]"),
    ],
)
def test_claims_that_cannot_be_read(exactly: Json, path: str) -> None:
    with pytest.raises(ParseError, match=path):
        device_claims.claim({"spec": {"spec": {"devices": {"requests": [{"exactly": exactly}]}}}})


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(["1Gi", "-1", "much", "", "1g"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("memory", "value", "requestPolicy", "validValues", "validRange", "min", "max", "step", "default"),
                    *("counters", "profile", "string", "int"),
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional={"name": _ANY, "attributes": _ANY, "capacity": _ANY, "consumesCounters": _ANY}
        ),
        max_size=3,
    )
)
def test_whatever_drivers_publish_a_claim_counts_or_is_refused(published: list[Json]) -> None:
    for devices in (COUNTED, METERED, PLAIN):
        found = Cluster(devices, slice_of(*published)).read(asks(CLASS, PROFILE.format("1g"), memory="1Gi"))
        counted = found.pod_sets[0].counted
        assert bool(found.violation) != bool(counted) or all(amount == 0 for amount in counted.values())
        assert all(0 <= amount <= model.UNLIMITED for amount in counted.values())


# --- the configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mappings", "words"),
    [
        ([mapping("m", {})], r"sources\[0\]: exactly one source type must be set per entry"),
        ([mapping("m", {**source("counter"), **source("capacity")})], r"sources\[0\]: exactly one source type"),
        ([mapping("m", source("counter"), source("capacity"))], "sources: cannot mix counter and capacity sources"),
        ([mapping("m", source("counter", ""))], r"sources\[0\].counter.name: is required"),
        ([mapping("m", source("counter", "Mem.ory"))], r"counter.name: a DNS label"),
        ([mapping("m", source("capacity", "a/b/c"))], r"capacity.name: a name like"),
        ([mapping("m", source("capacity", "1x"))], r"capacity.name: a name like"),
        ([mapping("m", source("counter", selector=""))], r"counter.deviceSelector.cel.expression: is required"),
        ([mapping("m", source("counter", selector="no"))], "expression: 'no': CEL compilation failed: .*undeclared"),
        ([mapping("m", {"counter": {**source("counter")["counter"], "driver": "A B"}})], "driver: a DNS name"),
        ([mapping("m", {"counter": {**source("counter")["counter"], "driver": ""}})], "driver: is required"),
        (
            [mapping("m", {"counter": {**source("counter")["counter"], "set": "x"}})],
            "counter.set: there is no such field",
        ),
        (
            [mapping("m", source("counter")), mapping("n", source("counter"))],
            r'\[1\].deviceClassNames\[0\]: .* already has a counter source for counter "memory"',
        ),
        (
            [mapping("m", source("counter")), mapping("n")],
            r"\[1\].deviceClassNames\[0\]: .* already mapped to resource m",
        ),
        (
            [mapping("m"), mapping("n", source("counter"))],
            r"\[1\].deviceClassNames\[0\]: .* already mapped to resource m",
        ),
        ([mapping("m", source("capacity")), mapping("n", source("capacity"))], "already mapped to resource m"),
        ([mapping("m", *[source("counter")] * 65)], "a list of at most 64"),
    ],
)
def test_sources_that_are_refused(mappings: list[Json], words: str) -> None:
    with pytest.raises(configuration.ConfigurationError, match=words):
        configured(*mappings)


@pytest.mark.parametrize(
    ("kind", "gate"),
    [
        ("counter", "KueueDRAIntegrationPartitionableDevices"),
        ("capacity", "KueueDRAIntegrationConsumableCapacity"),
    ],
)
def test_the_gates_of_sources(kind: str, gate: str) -> None:
    with pytest.raises(configuration.ConfigurationError, match=rf"sources\[0\].{kind}: {kind} sources require {gate}"):
        configured(mapping("m", source(kind)), **{gate: False})
    assert configured(mapping("m", source(kind)), **{gate: True}).sources


@pytest.mark.parametrize(("version", "on"), [("0.18", False), ("0.19", True)])
def test_counters_count_by_default_as_in_each_version(version: str, on: bool) -> None:
    body = {
        "resources": {"deviceClassMappings": [mapping("m", source("counter"))]},
        "gangline": {"kueueCompatibility": version},
    }
    if on:
        assert configuration.load(body).resources.devices.consumed == {"m"}
    else:
        with pytest.raises(configuration.ConfigurationError, match="require KueueDRAIntegrationPartitionableDevices"):
            configuration.load(body)
