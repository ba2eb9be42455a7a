"""Answers of writes and events of the watch come in any order; what is taken last must be the newest."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.control.tracking import Tracking
from gangline.kube.resources import WORKLOADS, ObjectKey

KEY = ObjectKey(WORKLOADS, "ns", "w")


def version(number: int) -> dict[str, object]:
    return {"metadata": {"resourceVersion": str(number)}, "n": number}


def test_without_a_write_everything_is_taken() -> None:
    tracking = Tracking()
    assert tracking.seen(KEY, version(1))
    assert not tracking.in_doubt(KEY)


def test_an_old_event_is_held_back_while_in_doubt() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base="1", doubt=True)
    assert not tracking.seen(KEY, version(2))  # somebody else's change, before ours
    assert tracking.end(KEY, version(3), doubt=True) == version(3)
    assert tracking.seen(KEY, version(4))


def test_an_event_after_the_echo_is_newer_than_the_answer() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base="1", doubt=True)
    assert not tracking.seen(KEY, version(2))  # the echo of our write
    assert not tracking.seen(KEY, version(3))  # a foreign change on top of it
    assert tracking.end(KEY, version(2), doubt=True) == version(3)


def test_a_write_that_changes_nothing_is_no_news() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base="5", doubt=False)
    assert tracking.seen(KEY, version(6))
    assert tracking.end(KEY, version(5), doubt=False) is None


def test_deleted_while_held() -> None:
    tracking = Tracking()
    tracking.begin(KEY, base="1", doubt=True)
    tracking.seen(KEY, version(2))
    tracking.gone(KEY)
    assert tracking.end(KEY, None, doubt=True) is None
    assert not tracking.in_doubt(KEY)


@given(st.data())
def test_the_last_version_taken_is_the_newest(data: st.DataObject) -> None:
    """Versions 2..n happen on the server; some are ours. Each answer comes at some time after its version; events in order."""
    count = data.draw(st.integers(2, 8))
    ours = data.draw(st.sets(st.integers(2, count), max_size=3))
    doubtful = data.draw(st.booleans())
    tracking = Tracking()
    taken = 1
    pending = sorted(ours)
    unanswered: list[int] = []
    next_event = 2
    for number in pending:
        tracking.begin(KEY, base="1", doubt=doubtful)
        unanswered.append(number)
    while next_event <= count or unanswered:
        answer = unanswered and (next_event > count or data.draw(st.booleans()))
        if answer:
            # an answer may overtake the watch, but only the watch can show what came before it
            number = unanswered.pop(0)
            if number >= next_event and any(other < number and other >= next_event for other in unanswered):
                unanswered.insert(0, number)
                continue
            newest = tracking.end(KEY, version(number), doubt=doubtful)
            if newest is not None:
                taken = newest["n"]
        elif tracking.seen(KEY, version(next_event)):
            taken = next_event
            next_event += 1
        else:
            next_event += 1
    assert taken == count
