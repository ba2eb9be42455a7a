"""Cards: what fits on one, what is given back, and the ledger of all of them."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.examples import examples

from gangline.engine.cards.card_amounts import (
    FAILED,
    IN_USE,
    NO_COMPUTE,
    NO_MEMORY,
    NO_SLICES,
    NO_SLOT,
    NOT_CHOSEN,
    OTHER_MODE,
    OTHER_MODEL,
    OTHER_NAME,
    OTHER_RESOURCE,
    SAME_NAME,
    TAKEN_WHOLE,
    TOO_SMALL,
    CardRoom,
    Resident,
    capacity,
    of_seats,
    rooms_of,
)
from gangline.engine.cards.card_seating import cheapest, cost, how_many, why_not
from gangline.engine.model import CardSeat, CardUse, Device, NodeCards, Part, Share
from gangline.engine.model.devices import NVLINK, PIX, Profile
from gangline.engine.occupancy.fitting import add
from gangline.engine.occupancy.node_ledger import HOSTS, NodeLedger

GIB = 1024


def card(number: int = 0, **fields: object) -> Device:
    return Device("n", f"c{number}", number, **{"memory": 12 * GIB, **fields})  # type: ignore[arg-type]


def with_pods(device: Device, *shares: Share) -> CardRoom:
    return CardRoom(device, (Resident.of(f"p{number}", share, device) for number, share in enumerate(shares)))


@pytest.mark.parametrize(
    ("device", "there", "share", "reason"),
    [
        (card(), [], Share(milli=500), ""),
        (card(healthy=False), [], Share(milli=500), FAILED),
        (card(resource="nvidia.com/gpu"), [], Share(resource="amd.com/gpu"), OTHER_RESOURCE),
        (card(), [], Share(cards=frozenset({"c1"})), NOT_CHOSEN),
        (card(), [], Share(not_cards=frozenset({"c0"})), NOT_CHOSEN),
        (card(model="NVIDIA-A100"), [], Share(models=("h100", "a100")), ""),
        (card(model="NVIDIA-A100"), [], Share(models=("H100",)), OTHER_MODEL),
        (card(model="NVIDIA-A100"), [], Share(not_models=("a100",)), OTHER_MODEL),
        (card(mode="MPS"), [], Share(mode="TimeSlice"), OTHER_MODE),
        (card(), [], Share(memory=13 * GIB), TOO_SMALL),
        (card(), [Share(milli=100)], Share(exclusive=True), IN_USE),
        (card(), [Share(exclusive=True)], Share(milli=100), TAKEN_WHOLE),
        (card(slots=2), [Share(milli=1)] * 2, Share(milli=1), NO_SLOT),
        (card(), [Share(milli=600), Share(milli=300)], Share(milli=100), ""),
        (card(), [Share(milli=600), Share(milli=300)], Share(milli=101), NO_COMPUTE),
        (card(), [Share(milli=1, memory=7 * GIB)], Share(milli=1, memory=5 * GIB), ""),
        (card(), [Share(milli=1, memory=7 * GIB)], Share(milli=1, memory=5 * GIB + 1), NO_MEMORY),
        (card(), [Share(milli=1, anti_affinity="a")], Share(milli=1, anti_affinity="a"), SAME_NAME),
        (card(), [Share(milli=1, anti_affinity="a")], Share(milli=1, anti_affinity="b"), ""),
        (card(), [Share(milli=1, exclusion="a")], Share(milli=1, exclusion="a"), ""),
        (card(), [Share(milli=1, exclusion="a")], Share(milli=1), OTHER_NAME),
        (card(), [Share(milli=1)], Share(milli=1, exclusion="a"), OTHER_NAME),
    ],
)
def test_why_a_share_may_not_sit_on_a_card(device: Device, there: list[Share], share: Share, reason: str) -> None:
    assert with_pods(device, *there).refuses(share) == reason


def test_i1_qos_classes_what_is_guaranteed_is_bounded_and_what_bursts_is_not() -> None:
    """1000 thousandths: 600 of 600, 300 up to 800 and 0 up to 1000 fit (900), 200 more do not (1100)."""
    room = CardRoom(card())
    for share in (Share(milli=600, limit=600), Share(milli=300, limit=800), Share(milli=0, limit=1000)):
        assert room.refuses(share) == ""
        room.seat(Resident.of("p", share, room.device))
    assert room.refuses(Share(milli=200)) == NO_COMPUTE
    assert room.refuses(Share(milli=100)) == ""


def test_g2_gpushare_one_card_has_to_have_the_memory() -> None:
    """6 and 5 GiB free: 8 are rejected though the node has 11; the card with 5 takes 5."""
    cards = [with_pods(card(0), Share(milli=0, memory=6 * GIB)), with_pods(card(1), Share(milli=0, memory=7 * GIB))]
    assert why_not(cards, Share(milli=0, memory=8 * GIB)) == NO_MEMORY
    assert why_not(cards, Share(milli=0, memory=5 * GIB)) == ""
    assert how_many(cards, Share(milli=0, memory=5 * GIB)) == 2


def test_mig_instances_share_the_slices_of_their_card() -> None:
    """3g takes four of eight memory slices: two of them leave one compute slice stranded."""
    profiles = (
        Profile("1g.10gb", 1, 9728, 7, 1),
        Profile("2g.20gb", 2, 19968, 3, 2),
        Profile("3g.40gb", 3, 40192, 2, 4),
        Profile("7g.80gb", 7, 80896, 1, 8),
    )
    device = card(memory=81559, profiles=profiles, mode="MIG")
    room = CardRoom(device)
    one, three = (Share(milli=0, profile=name, mode="MIG") for name in ("1g.10gb", "3g.40gb"))
    assert room.how_many(one) == 7 and room.how_many(three) == 2
    room.seat(Resident.of("a", three, device))
    assert room.how_many(one) == 4, "four compute slices and four memory slices are left"
    room.seat(Resident.of("b", three, device))
    assert room.refuses(one) in {NO_SLICES, NO_MEMORY}


def test_g1_gaia_the_closest_cards_and_a_pair_stays_whole() -> None:
    """(0, 1) and (2, 3) on one PCIe switch each; 0, 2 and 3 are free: two are 2 and 3 at cost 2, one is 0."""
    links = {0: {"c1": PIX}, 1: {"c0": PIX}, 2: {"c3": PIX}, 3: {"c2": PIX}}
    devices = [card(number, links=links[number]) for number in range(4)]
    free = [devices[0], devices[2], devices[3]]
    assert cheapest(free, 2) == (1, 2) and cost([free[1], free[2]]) == 2
    assert cost([free[0], free[1]]) == 6
    assert cheapest(free, 1) == (0,)


def test_many_cards_are_grown_from_each_card() -> None:
    devices = [
        card(
            number, links={f"c{other}": NVLINK for other in range(16) if other // 8 == number // 8 and other != number}
        )
        for number in range(16)
    ]
    rest = devices[3:]
    assert cheapest(rest, 6) == tuple(range(5, 11)), "all six of the full half, which costs the other half nothing"


def test_a_pod_that_asks_for_two_cards_gets_two_different_ones() -> None:
    half = Share(count=2, milli=500)
    cards = [CardRoom(card(0)), with_pods(card(1), Share(milli=500)), with_pods(card(2), Share(milli=1000))]
    assert how_many(cards, half) == 1, "2 + 1 halves are free, but a second pod would take two on one card"
    assert how_many(cards, Share(count=1, milli=500)) == 3
    assert how_many(cards, Share(count=3, milli=1)) == 0


# --- the ledger ---------------------------------------------------------------------------------------------------------


class Cards(RuleBasedStateMachine):
    """Any sequence of inventories, holders and simulations: the cards are as a recount finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms = NodeLedger()
        self.mirror = NodeLedger()
        self.rooms.mirror_to(self.mirror)
        self.devices: dict[str, tuple[Device, ...]] = {}
        self.uses: dict[str, tuple[CardUse, ...]] = {}
        self.held: dict[str, dict[str, list[int]]] = {}
        self.lifted: set[str] = set()

    @rule(node=st.sampled_from("mn"), size=st.integers(0, 3), owner=st.sampled_from(["", "x", "y"]))
    def put(self, node: str, size: int, owner: str) -> None:
        devices = tuple(Device(node, f"{node}{number}", number) for number in range(size))
        uses = (CardUse("pod", f"{node}0", Part(200), owner),)
        self.devices[node], self.uses[node] = devices, uses
        self.rooms.put_cards(NodeCards(node, devices, uses))

    @rule(node=st.sampled_from("mn"))
    def remove(self, node: str) -> None:
        self.devices.pop(node, None)
        self.uses.pop(node, None)
        self.rooms.put_cards(NodeCards(node))

    @rule(key=st.sampled_from("xyz"), at=st.lists(st.tuples(st.sampled_from("mn"), st.integers(0, 2)), max_size=4))
    def place(self, key: str, at: list[tuple[str, int]]) -> None:
        held: dict[str, list[int]] = {}
        for node, number in at:
            held.setdefault(node, []).append(number)
        self.rooms.place(
            key,
            tuple(
                ((HOSTS, (node,)), of_seats([(CardSeat(f"{node}{number}", 300),) for number in numbers]))
                for node, numbers in held.items()
            ),
        )
        if held or key in self.lifted:
            self.held[key] = held
        else:
            self.held.pop(key, None)

    @rule(key=st.sampled_from("xyz"))
    def release(self, key: str) -> None:
        self.rooms.release(key)
        self.held.pop(key, None)
        self.lifted.discard(key)

    @rule(key=st.sampled_from("xyz"))
    def lift(self, key: str) -> None:
        self.rooms.lift(key)
        if key in self.held:
            self.lifted.add(key)

    @rule(key=st.sampled_from("xyz"))
    def restore(self, key: str) -> None:
        self.rooms.restore(key)
        self.lifted.discard(key)
        if not self.held.get(key):
            self.held.pop(key, None)

    @invariant()
    def is_as_recounted(self) -> None:
        seated: Counter[str] = Counter()
        others: Counter[str] = Counter()
        for key, held in self.held.items():
            for node, numbers in held.items() if key not in self.lifted else ():
                seated.update({f"{node}{number}": 300 * numbers.count(number) for number in set(numbers)})
        for node, uses in self.uses.items():
            for use in uses if self.devices.get(node) else ():
                seats = self.held.get(use.workload, {}).get(node, [])
                if seats and 0 not in seats:  # it sits on another card than planned
                    others[f"{node}{min(seats)}"] -= 300
                if 0 not in seats:
                    others[use.uuid] += 200
        for node in "mn":
            devices = self.devices.get(node, ())
            assert self.milli_left(self.rooms, node) == {
                each.uuid: min(1000, 1000 - seated[each.uuid] - others[each.uuid]) for each in devices
            }
            assert self.milli_left(self.mirror, node) == {
                each.uuid: min(1000, 1000 - others[each.uuid]) for each in devices
            }, "another ledger has its own holders"

    @staticmethod
    def milli_left(rooms: NodeLedger, node: str) -> dict[str, int]:
        devices = rooms.cards.devices(node)
        free = capacity(devices)
        add(free, rooms.foreign_on(node), -1)
        add(free, rooms.on_spot((HOSTS, (node,))), -1)
        return {room.device.uuid: room.milli for room in rooms_of(devices, free)}


TestCards = Cards.TestCase
TestCards.settings = examples(60)
