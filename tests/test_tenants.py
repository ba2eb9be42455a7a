"""Room and turns that namespaces share."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from gangline.tenants import InTurn, SharedRoom, Sizes, fair_limit

NAMESPACES = st.sampled_from("abcd")


@given(st.lists(st.tuples(NAMESPACES, st.booleans())))
def test_the_largest_is_always_known(steps: list[tuple[str, bool]]) -> None:
    sizes, expected = Sizes(), Counter[str]()
    for namespace, adds in steps:
        if adds:
            sizes.add(namespace)
            expected[namespace] += 1
        elif expected[namespace]:
            sizes.remove(namespace)
            expected[namespace] -= 1
        assert sizes.total == expected.total()
        if sizes.total:
            assert expected[sizes.largest()] == max(expected.values())


@given(st.lists(st.tuples(NAMESPACES, st.integers(0, 9))), st.integers(1, 12))
def test_room_is_never_taken_from_a_namespace_with_less_than_its_share(steps: list[tuple[str, int]], most: int) -> None:
    room, seen = SharedRoom[int, tuple[str, int]](most), dict[str, set[int]]()
    for namespace, key in steps:
        assert room.use(namespace, key, lambda namespace=namespace, key=key: (namespace, key)) == (namespace, key)
        seen.setdefault(namespace, set()).add(key)
        assert room.get(namespace, key) is not None or most < len(seen)
    kept = Counter(namespace for namespace, _ in room.values())
    assert len(room) == kept.total() <= most
    for namespace, keys in seen.items():
        assert kept[namespace] >= min(len(keys), most // len(seen))


def test_an_entry_that_is_put_again_is_one_and_the_newest() -> None:
    room = SharedRoom[str, int](2)
    room.put("a", "x", 1)
    room.put("a", "y", 2)
    room.put("a", "x", 3)
    assert len(room) == 2
    room.put("a", "z", 4)
    assert [room.get("a", key) for key in "xyz"] == [3, None, 4]


@given(st.lists(st.tuples(NAMESPACES, st.booleans())))
def test_each_namespace_has_its_turn(steps: list[tuple[str, bool]]) -> None:
    waiting, expected = InTurn[int](), dict[str, deque[tuple[int, int]]]()
    taken, since = 0, Counter[str]()
    for number, (namespace, puts) in enumerate(steps):
        if puts:
            assert waiting.put(namespace, number) is None
            if not expected.setdefault(namespace, deque()):
                since[namespace] = taken
            expected[namespace].append((number, taken))
        elif len(waiting):
            item = waiting.take()
            owner = next(name for name, queue in expected.items() if queue and queue[0][0] == item)
            expected[owner].popleft()
            assert taken - since[owner] < 4  # one of each other namespace at most
            taken += 1
            since[owner] = taken
        assert len(waiting) == sum(map(len, expected.values()))


def test_what_is_dropped_is_the_oldest_of_the_namespace_with_most() -> None:
    waiting = InTurn[str](most=3)
    assert [waiting.put(namespace, name) for namespace, name in ("a1", "b1", "b2", "b3", "b4")] == [
        None, None, None, "1", "2"
    ]  # fmt: skip
    assert [waiting.take() for _ in range(3)] == ["1", "3", "4"]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 200))
def test_a_fair_limit_uses_the_room_and_no_more(sizes: list[int], room: int) -> None:
    limit = fair_limit(sizes, room)
    kept = sum(min(size, limit) for size in sizes)
    assert kept <= room
    assert kept == sum(sizes) or sum(min(size, limit + 1) for size in sizes) > room
