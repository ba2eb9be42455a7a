"""The promise ledger: the first promise, each move and its cause, what came true, and the sums by queue."""

from __future__ import annotations

import math

import orjson

from gangline.control.forecasting.promises import (
    ERRORS,
    LEAST_OUTCOMES,
    MOST_MARGIN,
    MOST_MOVES,
    MOST_OPEN,
    Ledger,
    PromiseRecord,
)
from gangline.engine import ExpectedStart, Outlook
from gangline.engine.model import Admission
from gangline.engine.simulation.outlook import Stretch

MINUTE = 60_000


def start(p50: int, p90: int | None = None, because: str = "after team/a ends", key: str = "team/w") -> ExpectedStart:
    """In minutes."""
    return ExpectedStart(key, p50 * MINUTE, None if p90 is None else p90 * MINUTE, because)


def at(now: int, p50: int, p90: int, key: str) -> ExpectedStart:
    """So many minutes from now."""
    return ExpectedStart(key, now + p50 * MINUTE, now + p90 * MINUTE, "")


def test_a_move_is_kept_with_its_cause_and_what_hardly_moves_is_not() -> None:
    ledger = Ledger()
    for minute, said in enumerate(
        (
            start(60, 120),
            start(62, 125),
            start(90, 125),
            start(90, 125, "after team/b ends"),
            start(20, 30, "after team/b ends"),
            start(20, None, "after team/b ends"),
            start(60, 80, "after team/c ends"),
        )
    ):
        ledger.promise_starts([said], minute * MINUTE)
    wait = ledger.of("team/w")
    assert wait is not None
    assert [(each.p50 // MINUTE, each.cause) for each in wait.promises] == [
        (60, ""),
        (90, "team/a: expected to last longer than before"),
        (20, "before: after team/a ends; now: after team/b ends"),
        (20, "how late it may be has changed"),
        (60, "before: after team/b ends; now: after team/c ends"),
    ]


def test_the_first_promise_is_what_counts() -> None:
    ledger = Ledger()
    ledger.promise_starts([start(60, 120)], 0)
    ledger.promise_starts([start(100, 110)], 30 * MINUTE)
    ledger.started("team/w", "q", 80 * MINUTE)
    wait = ledger.of("team/w")
    assert wait is not None and wait.started == 80 * MINUTE and wait.first.p50 == 60 * MINUTE
    assert ledger.records["q"].as_json() == {"starts": 1, "withinP50": 0.0, "withinP90": 1.0, "medianError": 0.25}
    ledger.started("team/w", "q", 90 * MINUTE)
    ledger.started("team/unknown", "q", 90 * MINUTE)
    assert ledger.records["q"].starts == 1, "nothing was promised"
    ledger.promise_starts([start(200, 300)], 100 * MINUTE)
    again = ledger.of("team/w")
    assert again is not None and not again.started, "a preempted job waits anew"
    ledger.forget("team/w")
    assert ledger.of("team/w") is None


def test_p90_follows_what_came_true_and_p50_stays_with_the_plan() -> None:
    ledger, now = Ledger(), 0
    for number in range(LEAST_OUTCOMES):  # each takes three times as long as its p90 says
        key, now = f"team/{number}", now + 100 * MINUTE
        ledger.promise_starts([at(now, 10, 20, key)], now, {key: "q"})
        ledger.started(key, "q", now + 60 * MINUTE)
    now += 100 * MINUTE
    promised = ledger.promise_starts(
        [at(now, 10, 20, "team/w"), at(now, 10, 20, "team/x")], now, {"team/w": "q", "team/x": "other"}
    )
    assert (promised["team/w"].p50 - now, promised["team/w"].p90) == (10 * MINUTE, now + 60 * MINUTE)
    assert promised["team/x"].p90 == now + 20 * MINUTE, "another queue has a record of its own"
    nowhere = Admission("q", ())
    stretch = Stretch("team/v", "q", now + 10 * MINUTE, now + 90 * MINUTE, nowhere)
    seen = ledger.moved(Outlook(now, {"team/v": at(now, 10, 20, "team/v")}, (stretch,), 20))
    assert seen.starts["team/v"].p90 == now + 60 * MINUTE and ledger.of("team/v") is None, "as for what is only asked"
    assert ledger.promise_starts([start(10, None, key="team/y")], now, {"team/y": "q"})["team/y"].p90 is None
    # what is promised with the margin comes true; it is the courses' p90 that is judged, so the margin stays
    for number in range(LEAST_OUTCOMES):
        key, now = f"team/again-{number}", now + 100 * MINUTE
        ledger.promise_starts([at(now, 10, 20, key)], now, {key: "q"})
        ledger.started(key, "q", now + 60 * MINUTE)
    promised = ledger.promise_starts([at(now := now + 100 * MINUTE, 10, 20, "team/z")], now, {"team/z": "q"})
    assert promised["team/z"].p90 == now + 60 * MINUTE
    assert ledger.records["q"].within_p90 == LEAST_OUTCOMES
    saved = PromiseRecord.of(orjson.loads(orjson.dumps(ledger.records["q"].saved())))
    assert len(saved.outcomes) == 2 * LEAST_OUTCOMES
    assert not PromiseRecord.of({"starts": 1, "within_p50": 1, "within_p90": 1, "errors": []}).outcomes, (
        "of an older version"
    )


def test_who_waits_beyond_its_p90_counts_and_who_started_early_not_yet() -> None:
    ledger = Ledger()
    keys = [f"team/{number}" for number in range(LEAST_OUTCOMES)]
    ledger.promise_starts([at(0, 10, 20, key) for key in keys], 0, dict.fromkeys(keys, "q"))
    for key in keys[5:]:
        ledger.started(key, "q", 5 * MINUTE)
    assert ledger.margins(15 * MINUTE, {"q"}) == {}, "it is not known yet who will wait longer"
    (margin,) = ledger.margins(40 * MINUTE, {"q"}).values()
    assert round(math.exp(margin), 2) == 2.0, "five wait on, twice as long as p90 said by now"
    assert set(ledger.margins(4000 * MINUTE, {"q"}).values()) == {math.log(MOST_MARGIN)}, "bounded"


def test_memory_is_bounded() -> None:
    ledger = Ledger()
    for number in range(3 * MOST_MOVES):
        ledger.promise_starts([start(10_000 * (1 + number % 2))], number)
    wait = ledger.of("team/w")
    assert wait is not None and len(wait.promises) == MOST_MOVES and wait.first.at == 0
    assert wait.promises[-1].at == 3 * MOST_MOVES - 1
    ledger.promise_starts((start(1, key=f"team/{n}") for n in range(MOST_OPEN + 5)), 0)
    assert len(ledger._open) == MOST_OPEN  # pyright: ignore[reportPrivateUsage]


def test_records_outlive_a_process() -> None:
    ledger = Ledger()
    for number in range(ERRORS + 10):
        ledger.promise_starts([start(10, 20)], 0)
        ledger.started("team/w", "q", (5 + number % 20) * MINUTE)
    record = ledger.records["q"]
    again = PromiseRecord.of(orjson.loads(orjson.dumps(record.saved())))
    assert again.as_json() == {**record.as_json(), "medianError": round(record.as_json()["medianError"], 4)}
    assert len(again.errors) == ERRORS


def test_promises_to_many_workloads_of_one_namespace_make_those_to_others_forgotten_no_more() -> None:
    ledger = Ledger()
    ledger.promise_starts([start(60, 120, key="quiet/w"), start(60, 120, key="quiet/ran")], 0)
    ledger.started("quiet/ran", "cq", MINUTE)
    ledger.promise_starts([start(60, 120, key=f"loud/w{number}") for number in range(MOST_OPEN + 100)], MINUTE)
    for number in range(6000):
        ledger.started(f"loud/w{MOST_OPEN + 99 - number}", "cq", 2 * MINUTE)
    assert ledger.of("quiet/w") is not None and ledger.of("quiet/ran") is not None
    assert ledger.of("loud/w0") is None
