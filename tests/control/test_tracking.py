"""Answers of writes and events of the watch come in any order; what is taken last must be the newest."""

from hypothesis import given
from hypothesis import strategies as st
from tests.objects import Stored

from gangline.control.feed.tracking import Tracking
from gangline.kube.resources import WORKLOADS, ObjectKey

KEY = ObjectKey(WORKLOADS, "ns", "w")


UID = "u"


def version(number: int, uid: str = UID) -> Stored:
    return Stored({"metadata": {"resourceVersion": str(number), "uid": uid}, "n": number})


def test_without_a_write_everything_is_taken() -> None:
    tracking = Tracking()
    assert tracking.seen(KEY, version(1))
    assert not tracking.in_doubt(KEY)


def test_an_old_event_is_held_back_while_in_doubt() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base=1, doubt=True)
    assert not tracking.seen(KEY, version(2))  # somebody else's change, before ours
    assert tracking.end(KEY, version(3), doubt=True) == version(3)
    assert tracking.seen(KEY, version(4))


def test_an_event_after_the_echo_is_newer_than_the_answer() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base=1, doubt=True)
    assert not tracking.seen(KEY, version(2))  # the echo of our write
    assert not tracking.seen(KEY, version(3))  # a foreign change on top of it
    assert tracking.end(KEY, version(2), doubt=True) == version(3)


def test_a_write_that_changes_nothing_is_no_news() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base=5, doubt=False)
    assert tracking.seen(KEY, version(6))
    assert tracking.end(KEY, version(5), doubt=False) is None


def test_the_echo_of_an_earlier_write_is_old_news() -> None:
    tracking = Tracking()
    for number in (2, 3):
        tracking.begin(KEY, base=number - 1, doubt=True)
        assert tracking.end(KEY, version(number), doubt=True) == version(number)
    assert not tracking.seen(KEY, version(2))
    assert tracking.seen(KEY, version(3))
    assert tracking.seen(KEY, version(4))


def test_only_what_came_after_it_is_news_to_a_write() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base=2, doubt=True)
    tracking.seen(KEY, version(2))
    assert not tracking.has_news(KEY, 2)
    tracking.seen(KEY, version(3))
    assert tracking.has_news(KEY, 2)
    assert not tracking.has_news(KEY, 3)


def test_deleted_while_held() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base=1, doubt=True)
    tracking.seen(KEY, version(2))
    tracking.gone(KEY, UID)
    assert tracking.has_news(KEY, 2)
    assert tracking.end(KEY, None, doubt=True) is None
    assert not tracking.in_doubt(KEY)


def test_an_answer_does_not_bring_back_what_is_gone() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base=1, doubt=False)
    tracking.begin(KEY, base=1, doubt=False)
    tracking.gone(KEY, UID)
    assert tracking.end(KEY, version(2), doubt=False) is None
    assert tracking.end(KEY, version(4, uid="its successor"), doubt=False) == version(4, uid="its successor")


def test_versions_that_are_no_numbers_are_never_old() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base=1, doubt=False)
    tracking.end(KEY, version(2), doubt=False)
    odd = Stored({"metadata": {"resourceVersion": "x-1", "uid": UID}})
    assert tracking.seen(KEY, odd)


@given(st.data())
def test_what_is_taken_never_grows_older_and_is_the_newest_at_the_end(data: st.DataObject) -> None:
    """One write at a time, as the writer sends them; the server takes it (or refuses it), answers later, the watch shows all
    versions in order, later still. Others write too."""
    tracking = Tracking()
    newest = taken = shown = 1  # on the server; by us; by the watch
    under_way = applied = 0  # the version that our write was based on; the one that it made
    doubtful = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(1, 30))):
        moves = ["foreign"] * (newest < 12) + ["event"] * (shown < newest)
        moves += (["answer"] if applied else ["arrive", "lose"]) if under_way else ["send"]
        move = data.draw(st.sampled_from(moves))
        if move == "send":
            under_way = taken
            tracking.begin(KEY, base=taken, doubt=doubtful)
        elif move == "foreign":
            newest += 1
        elif move == "arrive" and under_way == newest:
            newest += 1
            applied = newest
        elif move in ("arrive", "lose"):  # refused: what was held, or an answer to a read, says what is true
            read = version(newest) if not tracking.has_news(KEY, under_way) else None
            got = tracking.end(KEY, read, doubt=doubtful)
            assert got is None or got["n"] >= taken
            taken, under_way = got["n"] if got else taken, 0
        elif move == "answer":
            got = tracking.end(KEY, version(applied), doubt=doubtful)
            assert got is None or got["n"] >= taken
            assert got is not None or taken >= applied
            taken, under_way, applied = got["n"] if got else taken, 0, 0
        elif move == "event":
            shown += 1
            if tracking.seen(KEY, version(shown)):
                assert shown >= taken
                taken = shown
    if under_way:
        got = tracking.end(KEY, version(applied) if applied else None, doubt=doubtful)
        taken = got["n"] if got else taken
    while shown < newest:
        shown += 1
        taken = shown if tracking.seen(KEY, version(shown)) else taken
    assert taken == newest
