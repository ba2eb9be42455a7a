"""Filters, scorers and profiles: systems of placement with the numbers of their descriptions, and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.examples import examples

from gangline.engine.cards.card_amounts import CardRoom
from gangline.engine.model import Device, Share
from gangline.engine.placing.hosts import Host, PodRequest, fits
from gangline.engine.placing.own_scorers import Fragments, TypicalPod
from gangline.engine.placing.pipeline import PROFILES, Pipeline, PlacingProfile, Score
from gangline.engine.placing.scorers import Field, run_seconds
from gangline.engine.topology.node_filter import NodeSelection

#: Kim and Kim, KNOM 2020, table 3: MiB and mean utilisation of LAMMPS, GROMACS, Tensorflow and QMCPACK, on cards of 12 GB
MEMORY = {"L": 8300, "G": 600, "T": 3500, "Q": 5300}
UTILISATION = {"L": 23, "G": 72, "T": 88, "Q": 47}
CARD = 12_000
#: table 2: seconds of two GROMACS, on cards of their own (716 and 721) and on one card (1505 and 1507)
APART, TOGETHER = (716 + 721) / 2, (1505 + 1507) / 2
#: the cards that the device plugin chose in 30 trials
TRIALS = {(0, 0): 3, (0, 1): 5, (0, 2): 2, (0, 3): 5, (1, 1): 1, (1, 2): 2, (1, 3): 3, (2, 3): 5, (3, 3): 4}


def machine(cards: int = 4, memory: int = CARD, name: str = "n") -> Host:
    rooms = [CardRoom(Device(name, f"{name}/{number}", number, memory=memory)) for number in range(cards)]
    return Host(name, {"cpu": 64_000, "pods": 110}, {"cpu": 64_000, "pods": 110}, {}, rooms)


def plain(name: str, free: dict[str, int], total: dict[str, int] | None = None, **labels: str) -> Host:
    return Host(name, {"pods": 110, **(total or free)}, {"pods": 110, **free}, labels)


def job(kind: str, share: Share | None = None) -> PodRequest:
    wanted = share if share is not None else Share(milli=0, memory=MEMORY[kind])
    return PodRequest((("pods", 1),), (wanted,), kind=kind, utilisation=UTILISATION[kind])


def placed(profile: str | PlacingProfile, asks: Sequence[PodRequest], host: Host) -> list[str]:
    """The kinds of pods on each card, after all of them were placed in this order."""
    pipeline = Pipeline(PROFILES[profile] if isinstance(profile, str) else profile, [host])
    for number, ask in enumerate(asks):
        choice = pipeline.best(ask)
        assert choice is not None, f"{ask.kind} finds no card"
        for room, resident in choice.place.residents(ask, f"{ask.kind}{number}"):
            room.seat(resident)
        pipeline.changed(0)
    return ["".join(sorted(resident.kind for resident in room.residents)) for room in host.cards]


def scores(
    profile: PlacingProfile, ask: PodRequest, hosts: Sequence[Host], known: Field | None = None
) -> list[int | None]:
    """The points of every host in the first tier; None = excluded."""
    return [rank[0] // 10_000 if rank else None for rank in Pipeline(profile, hosts, known).ranks(ask)]


def only(name: str, **args: object) -> PlacingProfile:
    return PlacingProfile(("Fits",), (Score(name, args=args),))


ANY = PodRequest((("pods", 1),))

# --- the policies of that study ---------------------------------------------------------------------------------------


def test_k1_binpacking_largest_memory_first_each_on_the_card_with_the_least_free_memory() -> None:
    """L+T, L+T, QQGG, and one card stays empty."""
    by_memory = [job(kind) for kind in "LLQQTTGG"]
    assert placed("Pack", by_memory, machine()) == ["LT", "LT", "GGQQ", ""]


def test_k2_standalone_puts_the_same_kind_of_work_together() -> None:
    """LAMMPS twice on one card ran; with the memory that it declares, it may not."""
    ran = MEMORY | {"L": 5_600}  # what two of them use at most on a card of 12 GB
    measured = [job(kind, Share(milli=0, memory=ran[kind], headroom=50)) for kind in "LGTQLGTQ"]
    assert placed("Standalone", measured, machine()) == ["LL", "GG", "TT", "QQ"]
    assert placed("Standalone", [job("L"), job("L")], machine()) == ["L", "L", "", ""]


def test_k3_load_balancing_largest_utilisation_first_each_on_the_card_that_is_used_least() -> None:
    """L+T, L+T, G+Q, G+Q."""
    by_utilisation = [job(kind) for kind in "TTGGQQLL"]
    assert placed("Balance", by_utilisation, machine()) == ["LT", "LT", "GQ", "GQ"]


def test_k4_card_pinning_keeps_two_gromacs_apart() -> None:
    """718.5 s against 928.5 s, the mean of the 30 trials of the plugin that chooses cards at random."""
    apart = Share(milli=0, memory=MEMORY["G"], anti_affinity="gromacs")
    cards = placed("Pack", [job("G", apart), job("G", apart)], machine())
    ours = TOGETHER if "GG" in cards else APART
    assert sum(TRIALS.values()) == 30
    random = sum(count * (TOGETHER if one == other else APART) for (one, other), count in TRIALS.items()) / 30
    assert (ours, random) == (718.5, 928.5)
    assert placed("Pack", [job("G"), job("G")], machine())[0] == "GG", "without the anti-affinity they share a card"


# --- sharing ------------------------------------------------------------------------------------------------------------


def test_g2_gpushare_the_card_with_the_least_free_memory_that_fits() -> None:
    host = machine(2)
    for room, used in zip(host.cards, (6_000, 7_000), strict=True):
        ask = job("L", Share(milli=0, memory=used))
        room.seat(Pipeline(PROFILES["Pack"], [host]).best(ask).place.residents(ask, "p")[0][1])  # type: ignore[union-attr]
    assert "memory" in fits(job("L", Share(milli=0, memory=8_000)), host)
    choice = Pipeline(PROFILES["Pack"], [host]).best(job("T", Share(milli=0, memory=5_000)))
    assert choice is not None and choice.place.cards == (1,)


def test_g3_kubeshare_affinity_anti_affinity_and_exclusion() -> None:
    host = machine()
    near = Share(milli=100, affinity="a")
    assert placed("Spread", [job("G"), job("T"), job("L", near), job("L", near)], host) == ["G", "T", "LL", ""]
    alone = Share(milli=100, exclusion="mine")
    assert placed("Pack", [job("Q", alone), job("T"), job("Q", alone)], machine()) == ["QQ", "T", "", ""]


def test_g3_kubeshare_opportunistic_pods_fill_up_and_guaranteed_ones_spread() -> None:
    """X has half a card and a whole one, Y two whole ones."""
    x, y = machine(2, name="x"), machine(2, name="y")
    half = job("G", Share(milli=500))
    x.cards[0].seat(Pipeline(PROFILES["Pack"], [x]).best(half).place.residents(half, "p")[0][1])  # type: ignore[union-attr]
    ask = job("T", Share(milli=500))
    for profile, wanted in (("Pack", "x"), ("Spread", "y")):
        choice = Pipeline(PROFILES[profile], [x, y]).best(ask)
        assert choice is not None and choice.place.host.name == wanted


def test_g1_gaia_two_cards_on_one_switch() -> None:
    links = {0: {"n/1": 2}, 1: {"n/0": 2}, 2: {"n/3": 2}, 3: {"n/2": 2}}
    rooms = [CardRoom(Device("n", f"n/{number}", number, links=links[number])) for number in range(4)]
    host = Host("n", {"pods": 9}, {"pods": 9}, {}, rooms)
    taken = job("L", Share(exclusive=True, cards=frozenset({"n/1"})))
    pair, single = job("G", Share(count=2, exclusive=True)), job("T", Share(exclusive=True))
    assert placed("Pack", [taken, single], host) == ["T", "L", "", ""], "the single card leaves the pair whole"
    assert placed("Pack", [pair], host) == ["T", "L", "G", "G"]


# --- what is near, and networks -----------------------------------------------------------------------------------------


def test_n1_nbwguard_bandwidth_is_counted_by_requests() -> None:
    """25 Gbit/s: with 12 + 8 in use, 6 do not fit; with 10 in use they do. Who asks for none always fits."""
    six, none = PodRequest((("net/a-mbps", 6_000), ("pods", 1))), ANY
    for used, fitting in ((20_000, False), (10_000, True)):
        host = plain("n", {"net/a-mbps": 25_000 - used}, {"net/a-mbps": 25_000})
        assert (fits(six, host) == "") is fitting
        assert fits(none, host) == ""
    assert fits(six, plain("n", {"net/a-mbps": 5_000})) == 'resource "net/a-mbps"'


def test_n3_nas_the_round_trip_by_label() -> None:
    """5, 20 and 50 ms have 100, 66 and 0 points; who has no label is behind all of them."""
    hosts = [plain(f"n{rtt}", {"cpu": 1}, **{"rtt.city": str(rtt)}) for rtt in (20, 5, 50)]
    assert scores(only("NetworkCost", label="rtt.city"), ANY, hosts) == [66, 100, 0]


def test_c9_data_locality_the_download_against_the_faster_node() -> None:
    """800 GB are in rack 1; rack 2 is 5 % faster. At 10 Gbit/s rack 1 is better (3600 s to 4068), at 100 rack 2 (3492)."""
    ask = PodRequest((("pods", 1),), data=(("set", 800 * 10**9),), seconds=3600)
    for speed, wanted, seconds in ((10_000, "rack1", 4068), (100_000, "rack2", 3492)):
        here = Host("rack1", {}, {"pods": 1}, data={"set": 800 * 10**9}, download=speed)
        there = Host("rack2", {}, {"pods": 1}, {"gangline.io/speed": "105"}, download=speed)
        assert (run_seconds(ask, here), run_seconds(ask, there)) == (3600, seconds)
        choice = Pipeline(only("DataLocality"), [there, here]).best(ask)
        assert choice is not None and choice.place.host.name == wanted


def test_c1_image_locality_by_the_bytes_that_are_there() -> None:
    ask = PodRequest((("pods", 1),), images=(("a", 300), ("b", 100)))
    hosts = [
        Host(f"n{number}", {}, {"pods": 1}, images=images) for number, images in enumerate(({}, {"a": 300}, {"b": 100}))
    ]
    assert scores(only("ImageLocality"), ask, hosts) == [0, 75, 25]


def test_c1_same_image_batches_cost_one_look_at_each_host() -> None:
    """64 pods on 100 hosts: 100 looks and one more for each host that changed, not 6,400."""
    hosts = [plain(f"n{number}", {"gpu": 4}) for number in range(100)]
    pipeline, ask = Pipeline(PROFILES["Pack"], hosts), PodRequest((("gpu", 1), ("pods", 1)))
    for _ in range(64):
        choice = pipeline.best(ask)
        assert choice is not None
        host = hosts[choice.position]
        host.free = {**host.free, "gpu": host.free["gpu"] - 1}
        pipeline.changed(choice.position)
    assert pipeline.looks == 100 + 63
    assert sum(host.free["gpu"] == 0 for host in hosts) == 16


def test_c7_yunikorn_binpacking_weighs_resources() -> None:
    """Weights 1, 1 and 4. A uses .5, .5 and .75, B .9, .2 and .25: A is fuller (.667 to .35)."""
    total = {"cpu": 1000, "memory": 1000, "gpu": 1000}
    a = plain("a", {"cpu": 500, "memory": 500, "gpu": 250}, total)
    b = plain("b", {"cpu": 100, "memory": 800, "gpu": 750}, total)
    weights = {"cpu": 1, "memory": 1, "gpu": 4}
    assert scores(only("Pack", weights=weights), ANY, [a, b]) == [66, 35]
    assert scores(only("Spread", weights=weights), ANY, [a, b]) == [33, 65]


def test_node_labels_rank_nodes() -> None:
    hosts = [plain("a", {}), plain("b", {}, rdma="true"), plain("c", {}, rdma="false")]
    assert scores(only("NodeLabel", label="rdma", value="true"), ANY, hosts) == [0, 100, 0]
    assert scores(only("NodeLabel", label="rdma"), ANY, hosts) == [0, 100, 100]


# --- fragmentation ------------------------------------------------------------------------------------------------------


def test_fgd_fragments_of_a_node_for_a_mix_of_pods() -> None:
    """Half of all pods ask for a whole GPU, a quarter for 0.4 of one, a quarter for none."""
    mix = Fragments({TypicalPod(4, 1, 1000): 2, TypicalPod(4, 1, 400): 1, TypicalPod(4, 0, 1000): 1})
    everything = 1000 + 300
    assert mix.on(8, (300, 1000)) == 0.5 * 300 + 0.25 * 300 + 0.25 * everything
    assert mix.on(8, (300, 500)) == 0.5 * 800 + 0.25 * 300 + 0.25 * 800
    assert mix.on(3, (300, 1000)) == everything, "CPU suffices for none of them"


def test_the_default_profile_places_where_fragments_grow_least() -> None:
    known = Field(fragments=Fragments({TypicalPod(0, 1, 1000): 9, TypicalPod(0, 1, 400): 1}))
    whole, broken = machine(1, name="whole"), machine(1, name="broken")
    first = job("G", Share(milli=500))
    broken.cards[0].seat(Pipeline(PROFILES["Pack"], [broken]).best(first).place.residents(first, "p")[0][1])  # type: ignore[union-attr]
    choice = Pipeline(PROFILES["Fragmentation"], [whole, broken], known).best(job("T", Share(milli=400)))
    assert choice is not None and choice.place.host.name == "broken"


# --- the pipeline -------------------------------------------------------------------------------------------------------


def test_filters_are_counted_by_their_reasons() -> None:
    hosts = [
        plain("small", {"cpu": 1}),
        plain("other", {"cpu": 9}),
        plain("good", {"cpu": 9}, disk="ssd"),
        plain("full", {"cpu": 9, "pods": 0}, disk="ssd"),
    ]
    ask = PodRequest((("cpu", 4), ("pods", 1)), selection=NodeSelection(selector=(("disk", "ssd"),)))
    pipeline = Pipeline(PROFILES["Pack"], hosts)
    assert pipeline.reasons(ask) == Counter({'resource "cpu"': 1, "nodeSelector": 1, 'resource "pods"': 1})
    hosts[0].free = {"cpu": 4, "pods": 1}
    pipeline.changed(0)
    assert pipeline.reasons(ask) == Counter({"nodeSelector": 2, 'resource "pods"': 1})


def test_a_later_tier_decides_between_equals_and_weights_inside_a_tier() -> None:
    hosts = [
        plain("a", {"cpu": 10}, fast="1"),
        plain("b", {"cpu": 10}, near="1"),
        plain("c", {"cpu": 10}, near="1", ssd="1"),
    ]
    near, fast, ssd = (Score("NodeLabel", 0, 1, {"label": label}) for label in ("near", "fast", "ssd"))
    tiers = PlacingProfile(
        ("Fits",), (near, Score("NodeLabel", 1, 1, {"label": "fast"}), Score("NodeLabel", 2, 1, ssd.args))
    )
    choice = Pipeline(tiers, hosts).best(ANY)
    assert choice is not None and choice.place.host.name == "c" and choice.points == (100, 0, 100)
    heavy = PlacingProfile(("Fits",), (near, Score("NodeLabel", 0, 3, fast.args)))
    choice = Pipeline(heavy, hosts).best(ANY)
    assert choice is not None and choice.place.host.name == "a" and choice.points == (300,)


@pytest.mark.parametrize("what", [("Filters",), ()])
def test_names_that_are_not_known_are_refused(what: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="not known"):
        PlacingProfile(what, () if what else (Score("Best"),))


@given(
    st.sampled_from(sorted(PROFILES)),
    st.lists(st.sampled_from([0, 100, 300, 500, 1000]), min_size=1, max_size=30),
    st.integers(1, 4),
)
@examples(80)
def test_tables_find_what_a_fresh_look_finds_and_no_card_is_over_full(
    profile: str, sizes: list[int], cards: int
) -> None:
    hosts = [machine(cards, name=f"n{number}") for number in range(3)]
    known = Field(fragments=Fragments({TypicalPod(0, 1, 300): 2, TypicalPod(0, 1, 1000): 1}))
    kept = Pipeline(PROFILES[profile], hosts, known)
    for number, size in enumerate(sizes):
        share = Share(exclusive=True) if size == 1000 else Share(milli=size, memory=size)
        ask = job("LGTQ"[number % 4], share)
        choice, fresh = kept.best(ask), Pipeline(PROFILES[profile], hosts, known).best(ask)
        assert choice == fresh
        if choice is not None:
            for room, resident in choice.place.residents(ask, str(number)):
                room.seat(resident)
            kept.changed(choice.position)
    for host in hosts:
        for room in host.cards:
            assert room.milli >= 0 and room.memory >= 0
            assert len(room.residents) == 1 or not any(each.exclusive for each in room.residents)
