"""What a share takes of a card."""

from __future__ import annotations

import pytest

from gangline.engine.model import Device, Part, Profile, Share

A100 = Device("n1", "GPU-1", model="NVIDIA-A100", memory=80_000, profiles=(Profile("1g.10gb", 1, 9_856, 7),))
SLICED = Device("n1", "GPU-3", memory=80_000, slots=10, mode="TimeSlice")
UNKNOWN = Device("n1", "GPU-2")


@pytest.mark.parametrize(
    ("share", "device", "taken"),
    [
        (Share(milli=500, memory=8192), A100, Part(500, 8192)),
        (Share(milli=500, memory_milli=500), A100, Part(500, 40_000)),
        (Share(milli=500, memory_milli=333), Device("n", "u", memory=1000), Part(500, 333)),
        (Share(milli=500, memory_milli=1), Device("n", "u", memory=1001), Part(500, 2)),  # rounded up
        (Share(milli=0, memory=8192), A100, Part(0, 8192)),
        (Share(by_memory=True, memory=20_000), A100, Part(250, 20_000)),
        (Share(by_memory=True, memory=20_000), UNKNOWN, None),
        (Share(milli=500), UNKNOWN, Part(500, 0)),
        (Share(milli=500, memory=1), UNKNOWN, None),
        (Share(memory=80_001), A100, None),
        (Share(milli=1001), A100, None),
        (Share(exclusive=True), A100, Part(1000, 80_000)),
        (Share(exclusive=True), UNKNOWN, Part(1000, 0)),
        (Share(exclusive=True, memory=80_001), A100, None),
        (Share(unit=True), A100, Part(1000, 80_000)),
        (Share(unit=True), UNKNOWN, Part(1000, 0)),
        (Share(unit=True, memory=1), UNKNOWN, None),
        (Share(unit=True), SLICED, Part(100, 8_000)),
        (Share(unit=True, memory=8_001), SLICED, None),
        (Share(profile="1g.10gb"), A100, Part(143, 9_856)),
        (Share(profile="7g.80gb"), A100, None),
    ],
)
def test_what_a_share_takes_of_a_card(share: Share, device: Device, taken: Part | None) -> None:
    assert share.of(device) == taken


def test_a_unit_is_alone_on_a_card_that_is_not_offered_in_slices() -> None:
    assert Share(unit=True).alone_on(A100)
    assert not Share(unit=True).alone_on(SLICED)
    assert Share(exclusive=True).alone_on(SLICED)
    assert not Share(milli=500).alone_on(A100)
