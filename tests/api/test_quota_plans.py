"""QuotaPlans: what is refused, and which quotas they give over time, over changes of the clocks too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api import admission
from gangline.api.quota_plans import HORIZON, MOST_STEPS, PAST, QuotaChange, quota_plan, stages, steps
from gangline.api.spec_fields import SpecError
from gangline.engine.model import Deadline, FlavorQuotas, Quota, ResourceGroup

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
GPU = "nvidia.com/gpu"
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
WRITTEN = (ResourceGroup((GPU,), (FlavorQuotas("h100", {GPU: Quota(8, 4, 6)}),)),)


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def quota(flavor: str = "h100", **fields: Any) -> dict[str, Any]:
    return {"flavor": flavor, "resource": GPU, **fields}


def override(name: str, start: str, end: str, *quotas: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "window": {"start": start, "end": end}, "quotas": list(quotas)}


def weekly(
    name: str, time: str, duration: str, gpus: int, zone: str = "UTC", days: list[str] = WEEKDAYS
) -> dict[str, Any]:
    schedule = {"days": days, "time": time, "duration": duration, "timeZone": zone}
    return {"name": name, "window": {"schedule": schedule}, "quotas": [quota(nominalQuota=gpus)]}


def resource(*overrides: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "QuotaPlan",
        "metadata": {"name": "plan"},
        "spec": {"clusterQueue": "a", "overrides": list(overrides), **spec},
    }


def nominal(plan: dict[str, Any], now: str) -> list[tuple[str, int]]:
    """When quotas change, from now on, and the nominal quota from then on."""
    found = steps(WRITTEN, stages(quota_plan(plan), instant(now)))
    return [
        (f"{datetime.fromtimestamp(step.at / 1000, UTC):%m-%d %H:%M}", step.groups[0].flavors[0].resources[GPU].nominal)
        for step in found
    ]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_plan_is_read_with_its_defaults() -> None:
    read = quota_plan(
        resource(override("day", "2026-12-01T08:00:00Z", "2026-12-01T20:00:00Z", quota(nominalQuota="2")))
    )
    assert (read.cluster_queue, read.recall) == ("a", None)
    assert read.overrides[0].changes == {("h100", GPU): QuotaChange(2)}
    assert quota_plan(resource(recall={})).recall == Deadline(30 * MINUTE, MINUTE)


DAYTIME = override("day", "2026-12-01T08:00:00Z", "2026-12-01T20:00:00Z", quota(nominalQuota=1))


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        (resource(), "spec"),
        (resource(DAYTIME, clusterQueue=""), "spec.clusterQueue"),
        (resource(DAYTIME, DAYTIME), "spec.overrides[1].name"),
        (resource({**DAYTIME, "window": {}}), "spec.overrides[0].window"),
        (
            resource({**DAYTIME, "window": {"schedule": {"days": ["Monday"], "time": "25:00", "duration": "1h"}}}),
            "spec.overrides[0].window.schedule.time",
        ),
        (resource({**DAYTIME, "quotas": []}), "spec.overrides[0].quotas"),
        (resource({**DAYTIME, "quotas": [quota()]}), "spec.overrides[0].quotas[0]"),
        (
            resource({**DAYTIME, "quotas": [quota(nominalQuota=1), quota(nominalQuota=2)]}),
            "spec.overrides[0].quotas[1]",
        ),
        (resource({**DAYTIME, "quotas": [quota(nominalQuota="-1")]}), "spec.overrides[0].quotas[0].nominalQuota"),
        (resource({**DAYTIME, "quotas": [quota(lendingLimit="many")]}), "spec.overrides[0].quotas[0].lendingLimit"),
        (resource({**DAYTIME, "quotas": [quota("", nominalQuota=1)]}), "spec.overrides[0].quotas[0].flavor"),
        (resource(DAYTIME, recall={"notice": "8d"}), "spec.recall.notice"),
        (resource(DAYTIME, recall={"stopBefore": "25h"}), "spec.recall.stopBefore"),
        (resource(DAYTIME, recall={"startWithCheckpoints": "soon"}), "spec.recall.startWithCheckpoints"),
        (resource(*[{**DAYTIME, "name": f"n{number}"} for number in range(33)]), "spec.overrides"),
    ],
)
def test_what_cannot_be_honoured_is_refused_naming_the_field(plan: dict[str, Any], field: str) -> None:
    context = admission.AdmissionFacts()
    assert [error.path for error in admission.validate(plan, None, context)] == [field]


# --- over time --------------------------------------------------------------------------------------------------------


def test_later_overrides_win_field_by_field() -> None:
    long = override("long", "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z", quota(nominalQuota=2, borrowingLimit=1))
    short = override("short", "2026-12-01T08:00:00Z", "2026-12-01T10:00:00Z", quota(nominalQuota=5))
    found = stages(quota_plan(resource(long, short)), instant("2026-12-01T01:00:00Z"))
    assert [stage.active for stage in found] == [("long",), ("long", "short"), ("long",), ()]
    assert found[1].changes == {("h100", GPU): QuotaChange(5, 1)}
    quotas = [step.groups[0].flavors[0].resources[GPU] for step in steps(WRITTEN, found)]
    assert quotas == [Quota(2, 1, 2), Quota(5, 1, 5), Quota(2, 1, 2), Quota(8, 4, 6)]


def test_the_present_begins_where_it_last_changed() -> None:
    plan = resource(DAYTIME)
    assert nominal(plan, "2026-12-01T09:00:00Z") == [("12-01 08:00", 1), ("12-01 20:00", 8)]
    assert nominal(plan, "2026-12-01T21:00:00Z") == [("12-01 20:00", 8)]


def test_days_and_nights_follow_the_clocks_of_the_zone() -> None:
    plan = resource(weekly("day", "08:00", "12h", 2, "Europe/Berlin", [*WEEKDAYS, "Saturday", "Sunday"]))
    assert nominal(plan, "2026-10-23T20:00:00Z")[1:5] == [
        ("10-24 06:00", 2),
        ("10-24 18:00", 8),
        ("10-25 07:00", 2),  # clocks were put back in the night
        ("10-25 19:00", 8),
    ]
    assert nominal(plan, "2026-03-27T20:00:00Z")[1:4] == [("03-28 07:00", 2), ("03-28 19:00", 8), ("03-29 06:00", 2)]


def test_windows_that_touch_change_nothing_between() -> None:
    plan = resource(weekly("a", "00:00", "12h", 2), weekly("b", "12:00", "12h", 2))
    assert nominal(plan, "2026-12-07T01:00:00Z")[1] == ("12-12 00:00", 8)


def test_a_plan_is_known_only_so_far_ahead() -> None:
    far = override("far", "2027-12-01T08:00:00Z", "2027-12-01T20:00:00Z", quota(nominalQuota=1))
    assert nominal(resource(far), "2026-12-01T00:00:00Z") == [("11-30 00:00", 8)]
    hours = [weekly(f"h{hour}", f"{hour:02}:00", "30m", hour) for hour in range(24)]
    found = stages(quota_plan(resource(*hours)), instant("2026-12-07T00:10:00Z"))
    assert len(found) == MOST_STEPS + 1


WINDOWS = st.tuples(st.integers(-48, 24 * 20), st.integers(1, 100), st.integers(0, 9))


@settings(max_examples=100, deadline=None)
@given(st.lists(WINDOWS, max_size=6), st.integers(0, 24 * 14 * 60))
def test_stages_agree_with_the_overrides_at_every_instant(windows: list[tuple[int, int, int]], minutes: int) -> None:
    now = instant("2026-12-01T00:00:00Z")

    def text(hours: int) -> str:
        return datetime.fromtimestamp(now / 1000 + hours * 3600, UTC).isoformat()

    plan = quota_plan(
        resource(
            *(
                override(f"n{i}", text(start), text(start + hours), quota(nominalQuota=gpus))
                for i, (start, hours, gpus) in enumerate(windows)
            )
        )
    )
    found = stages(plan, now)
    assert found[0].at <= now < (found[1].at if len(found) > 1 else now + 1)
    assert [stage.at for stage in found] == sorted({stage.at for stage in found})
    moment = now + minutes * MINUTE
    if moment >= now + HORIZON or (len(found) > MOST_STEPS and moment > found[-1].at):
        return
    last = [stage for stage in found if stage.at <= moment][-1]
    active = [i for i, (start, hours, _) in enumerate(windows) if start * HOUR <= moment - now < (start + hours) * HOUR]
    expected = {("h100", GPU): QuotaChange(windows[active[-1]][2])} if active else {}
    assert last.changes == expected
    assert found[0].at >= now - PAST


def test_garbage_is_refused() -> None:
    for spec in (
        None,
        [],
        {"clusterQueue": 1},
        {"clusterQueue": "a", "overrides": {}},
        {"clusterQueue": "a", "recall": []},
    ):
        with pytest.raises(SpecError):
            quota_plan({"spec": spec})


# --- warnings ---------------------------------------------------------------------------------------------------------


def warnings_of(*overrides: dict[str, Any], **facts: Any) -> list[str]:
    spec = {"clusterQueue": "a", "overrides": list(overrides)}
    plan = {"apiVersion": "gangline.io/v1alpha1", "kind": "QuotaPlan", "metadata": {"name": "p"}, "spec": spec}
    return admission.warnings(plan, admission.AdmissionFacts(**facts))


def test_a_window_that_is_over_is_said() -> None:
    sprint = override("sprint", "2026-12-01T08:00:00Z", "2026-12-01T10:00:00Z", quota(nominalQuota=1))
    night = weekly("night", "20:00", "8h", 16)
    assert warnings_of(night, sprint, now=instant("2026-12-01T09:59:00+00:00")) == []
    assert warnings_of(night, sprint, now=instant("2026-12-01T10:00:00+00:00")) == [
        "spec.overrides[1].window: the window is over, so it has no effect"
    ]


def test_a_queue_and_quotas_that_are_not_there_are_said() -> None:
    night = weekly("night", "20:00", "8h", 16)
    assert warnings_of(night) == [], "nothing is known"
    [missing] = warnings_of(night, cluster_queue_is_missing=lambda name: name == "a")
    assert missing == "spec.clusterQueue: there is no ClusterQueue a yet, so the plan has no effect"

    def offering(*flavors: object) -> Any:
        return lambda reference: {"spec": {"resourceGroups": [{"flavors": list(flavors)}]}}

    h100 = {"name": "h100", "resources": [{"name": GPU, "nominalQuota": 8}]}
    assert warnings_of(night, look=offering({"name": "a100"}, h100)) == []
    for queue in (offering({**h100, "name": "a100"}), offering(7), lambda reference: {}):
        assert warnings_of(night, look=queue) == [f"spec: ClusterQueue a has no quota of {GPU} in flavor h100"]
