"""Objects that can't be handled are set aside one by one, and everything else goes on."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from gangline.child_process import environment
from gangline.control.isolation import time_limit
from gangline.control.isolation.quarantine import Quarantine, Subject
from gangline.kube import resources as kube

Json = dict[str, Any]


def quarantine() -> tuple[Quarantine, list[tuple[str, str]]]:
    reports: list[tuple[str, str]] = []

    def tell(subject: Subject, obj: Json | None, what: str) -> None:
        reports.append((subject[1], what))

    return Quarantine(tell), reports


def failing(error: Exception) -> Any:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("spec.podSets[0].count: must be a whole number"), "spec.podSets[0].count: must be a whole number"),
        (KeyError("spec"), "internal error: KeyError: 'spec'"),
        (RecursionError("maximum recursion depth exceeded"), "internal error: RecursionError: maximum recursion depth"),
        (MemoryError(), "internal error: MemoryError"),
        (time_limit.TookTooLongError("too long"), "too long"),
    ],
)
def test_any_exception_costs_its_object_alone(error: Exception, said: str) -> None:
    subject, reports = quarantine()
    assert not subject.attempt("reading it", kube.WORKLOADS, "ns/bad", failing(error))
    assert subject.attempt("reading it", kube.WORKLOADS, "ns/good", lambda: None)
    [(key, what)] = reports
    assert key == "ns/bad" and what.startswith(said)
    assert (kube.WORKLOADS, "ns/bad") in subject
    assert subject.count() == {("Workload",): 1}


def test_the_same_trouble_is_told_once_and_another_one_again() -> None:
    subject, reports = quarantine()
    for _ in range(3):
        subject.attempt("reading it", kube.WORKLOADS, "ns/w", failing(ValueError("a")))
    subject.attempt("reading it", kube.WORKLOADS, "ns/w", failing(ValueError("b")))
    assert [what for _, what in reports] == ["a", "b"]
    assert subject.failures == {("reading it", "Workload"): 4}


def test_an_object_that_is_handled_again_is_set_aside_no_more() -> None:
    subject, _ = quarantine()
    subject.attempt("reading it", kube.WORKLOADS, "ns/w", failing(ValueError("a")))
    subject.attempt("planning it", kube.WORKLOADS, "ns/w", failing(ValueError("a")))
    subject.attempt("reading it", kube.WORKLOADS, "ns/w", lambda: None)
    assert (kube.WORKLOADS, "ns/w") in subject
    subject.attempt("planning it", kube.WORKLOADS, "ns/w", lambda: None)
    assert (kube.WORKLOADS, "ns/w") not in subject
    subject.attempt("planning it", kube.WORKLOADS, "ns/w", failing(ValueError("a")))
    subject.forget(kube.WORKLOADS, "ns/w")
    assert not subject.count()


def test_messages_logs_and_memory_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.control.isolation.quarantine.MOST", 100)
    subject, reports = quarantine()
    for number in range(150):
        subject.attempt("reading it", kube.PODS, f"ns/p{number}", failing(ValueError("x" * 100_000)))
    assert subject.count() == {("Pod",): 100}
    assert max(len(what) for _, what in reports) < 500
    assert len(caplog.text) < 150 * 5_000


def test_one_that_cannot_be_told_does_not_stop_the_others() -> None:
    def tell(subject: Subject, obj: Json | None, what: str) -> None:
        raise RuntimeError("no events today")

    assert not Quarantine(tell).attempt("reading it", kube.PODS, "ns/p", failing(ValueError("a")))


def test_reading_that_takes_for_ever_is_interrupted() -> None:
    def forever() -> None:
        while True:
            pass

    with pytest.raises(time_limit.TookTooLongError):
        time_limit.limited(forever, 0.05)
    assert time_limit.limited(lambda: 5, 0.05) == 5


def test_the_timer_is_set_once_for_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting it costs more than most work, and a limit still holds for work that begins just before the timer rings."""
    sets: list[float] = []
    setitimer = signal.setitimer
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: sets.append(seconds) or setitimer(which, seconds))
    setitimer(signal.ITIMER_REAL, 0)
    for _ in range(100):
        assert time_limit.limited(lambda: 5, 30.0) == 5
    assert sets == [30.0]

    def forever() -> None:
        while True:
            pass

    setitimer(signal.ITIMER_REAL, 0.001)
    with pytest.raises(time_limit.TookTooLongError):
        time_limit.limited(forever, 0.05)
    assert len(sets) > 1, "it rang before the limit was reached, and was set again"


def test_a_timer_that_rings_late_or_for_nobody_is_set_anew() -> None:
    def forever() -> None:
        while True:
            pass

    for left in (0.0, 100.0):
        signal.setitimer(signal.ITIMER_REAL, left)
        with pytest.raises(time_limit.TookTooLongError):
            time_limit.limited(forever, 0.05)
    assert time_limit.limited(lambda: 5, 0.05) == 5
    time.sleep(0.1)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0, "nothing is timed: it rings no more"


def test_the_timer_is_stopped_before_a_process_ends() -> None:
    """Python takes its handlers back then, and the signal would kill the process."""
    body = "import atexit, signal; atexit.register(lambda: print(signal.getitimer(signal.ITIMER_REAL)[0]))\n"
    body += "from gangline.control.isolation.time_limit import limited; limited(int, 30.0)"
    ended = subprocess.run([sys.executable, "-c", body], check=True, stdout=subprocess.PIPE, env=environment())
    assert ended.stdout == b"0.0\n"


def test_work_that_swallows_its_interruption_is_interrupted_again() -> None:
    """As Python does in callbacks of weak references, in which the first signal may come."""
    end = time.monotonic() + 30

    def busy() -> None:
        while time.monotonic() < end:
            pass

    def work() -> None:
        for _ in range(3):
            try:
                busy()
            except time_limit.TookTooLongError:
                continue
        busy()

    with pytest.raises(time_limit.TookTooLongError):
        time_limit.limited(work, 0.05)
    assert time_limit.limited(lambda: 5, 0.05) == 5


def test_work_on_the_same_versions_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "MOST", 2)
    tried: list[str] = []

    def forever(version: str) -> None:
        tried.append(version)
        while True:
            pass

    def attempt(version: str) -> None:
        job = {"metadata": {"uid": "only here", "resourceVersion": version}}
        with pytest.raises(time_limit.TookTooLongError, match="tried again when it changes"):
            time_limit.limited(lambda: forever(version), 0.02, of=[job])

    for version in ("1", "1", "2", "2", "3", "1"):
        attempt(version)
    assert tried == ["1", "2", "3", "1"], "and no more of them are remembered than may be"


def test_a_collection_of_all_garbage_does_not_count() -> None:
    """It looks through every object of the process: with a large cluster it takes longer than one object may."""
    gc.freeze()  # what earlier tests have left in this process would be looked through hundreds of times
    kept = [[{}] for _ in range(300_000)]
    before = time.thread_time()
    gc.collect()
    limit = (time.thread_time() - before) / 3
    assert time_limit.limited(lambda: gc.collect() or len(kept), limit) is not None

    def forever() -> None:
        while True:
            gc.collect()
            for _ in range(300_000):
                pass

    try:
        with pytest.raises(time_limit.TookTooLongError):
            time_limit.limited(forever, limit)
    finally:
        gc.unfreeze()


def test_time_in_which_others_had_the_cpu_does_not_count() -> None:
    assert time_limit.limited(lambda: time.sleep(0.2) or 5, 0.05) == 5  # type: ignore[func-returns-value]
