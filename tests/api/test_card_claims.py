"""The claims of pods that say by annotations what they use of cards."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.sharing import asking, share_annotations
from gangline.engine.model import Share

Json = dict[str, Any]
ASKED = {
    "gangline.io/gpu-share": "500m",
    "gangline.io/gpu-memory": "8192Mi",
    "gangline.io/gpu-device-class": "gpu.example.com",
}


def rows(annotations: Json, *cards: str) -> list[Json]:
    spec = share_annotations.spec(annotations, cards)
    assert spec is not None and spec.keys() == {"devices"} and spec["devices"].keys() == {"requests"}
    return spec["devices"]["requests"]


def test_capacity_is_asked_for_and_no_card_chosen() -> None:
    wanted = {"milli": "500", "memory": "8192Mi"}
    exactly = {"deviceClassName": "gpu.example.com", "capacity": {"requests": wanted}, "count": 1}
    assert rows(ASKED) == [{"name": "gpu", "exactly": exactly}]
    assert rows({**ASKED, "gangline.io/gpu-count": "3"})[0]["exactly"]["count"] == 3


@pytest.mark.parametrize(
    ("compute", "share", "wanted"),
    [
        ("cores", "500m", {"cores": "50", "memory": "8192Mi"}),
        ("cores", "5m", {"cores": "1", "memory": "8192Mi"}),
        ("example.com/milli", "10m", {"example.com/milli": "10", "example.com/memory": "8192Mi"}),
    ],
)
def test_capacities_have_the_names_of_their_driver(compute: str, share: str, wanted: Json) -> None:
    asked = {**ASKED, "gangline.io/gpu-compute": compute, "gangline.io/gpu-share": share}
    assert rows(asked)[0]["exactly"]["capacity"]["requests"] == wanted


def test_each_chosen_card_has_a_request_of_its_own() -> None:
    """One request for two of two cards may be given the same card twice, where cards may be allocated more than once."""
    found = rows({**ASKED, "gangline.io/gpu-count": "2"}, "GPU-a", "GPU-b")
    assert [row["name"] for row in found] == ["gpu-0", "gpu-1"]
    for row, card in zip(found, ("GPU-a", "GPU-b"), strict=True):
        (selector,) = row["exactly"]["selectors"]
        assert selector["cel"]["expression"].endswith(f'.uuid == "{card}"')
        assert row["exactly"]["capacity"] == rows(ASKED)[0]["exactly"]["capacity"]
        assert "count" not in row["exactly"]


@pytest.mark.parametrize(
    "cards", [(), ("GPU-a", "GPU-b"), ("~0f3a",), ("driver/pool/gpu-0",), ('x" || true || "',), ("",)]
)
def test_cards_that_cannot_be_named_are_not(cards: tuple[str, ...]) -> None:
    assert rows(ASKED, *cards) == rows(ASKED)


@pytest.mark.parametrize(
    "change",
    [
        {"gangline.io/gpu-device-class": ""},
        {"gangline.io/gpu-device-class": "x" * 300},
        {"gangline.io/gpu-share": "2"},
        {"gangline.io/gpu-memory": "all"},
        {"gangline.io/gpu-compute": "flops"},
        {"gangline.io/gpu-count": "33"},
        {"gangline.io/gpu-share": 1},
    ],
)
def test_what_cannot_be_read_claims_nothing(change: Json) -> None:
    assert share_annotations.spec({**ASKED, **change}) is None


def test_its_cards_are_those_that_claims_are_given() -> None:
    (share,) = asking.shares(asking.PodAsk([{}], ASKED))
    assert share == Share(milli=500, memory=8192, mode="Claim")


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ({**ASKED, "gangline.io/gpu-device-class": "A!"}, "gangline.io/gpu-device-class"),
        ({**ASKED, "gangline.io/gpu-compute": "flops"}, "gangline.io/gpu-compute"),
        ({key: ASKED[key] for key in list(ASKED)[::2]}, "gangline.io/gpu-device-class"),
        ({"gangline.io/gpu-share": "1", "gangline.io/gpu-compute": "milli"}, "gangline.io/gpu-compute"),
    ],
    ids=["class", "compute", "no memory", "no class"],
)
def test_annotations_that_make_no_claim_are_refused(written: Json, key: str) -> None:
    assert [fault.key for fault in asking.faults(asking.PodAsk([{}], written))] == [key]
    assert not asking.faults(asking.PodAsk([{}], ASKED))
