"""What the study of liars changes in a trace, and how it compares."""

from __future__ import annotations

from bench.liars import LIAR, LIES, change, lying, with_authors

from gangline.replay.replayed import TRUTH, replayed
from gangline.traces import Trace, TraceJob

TRACE = Trace("made", tuple(TraceJob(f"j{i}", float(i), 3600.0, 8) for i in range(2000)))


def test_authors_are_honestly_wrong_and_a_share_of_the_jobs_is_the_liars() -> None:
    told = with_authors(TRACE, 0.1, everyone=True, spread=0.5, seed=1)
    hints = sorted(job.hint or 0.0 for job in told.jobs)
    assert 3200 < hints[1000] < 4000
    assert hints[320] < 2600 < 5000 < hints[1680]
    assert 150 < sum(job.user == LIAR for job in told.jobs) < 250
    assert told == with_authors(TRACE, 0.1, everyone=True, spread=0.5, seed=1)
    assert all(job.hint is None for job in with_authors(TRACE, 0.1, everyone=False, spread=0.5, seed=1).jobs)


def test_a_lie_changes_what_is_said_and_not_what_is_done() -> None:
    [job] = replayed(with_authors(Trace("made", TRACE.jobs[:1]), 1.0, everyone=True, spread=0.5, seed=1).jobs)
    for name, lie in LIES.items():
        told = lying(job, lie)
        assert (told.duration, told.submit, told.gpus) == (job.duration, job.submit, job.gpus), name
        assert told != job, name
    assert lying(job, LIES["minute-unsaved"]).checkpoint is None
    assert lying(job, LIES["tenth"]).checkpoint == TRUTH


def test_changes_are_in_percent_of_the_honest_mean() -> None:
    found = change([(100.0, 110.0), (300.0, 310.0)])
    assert (found["honest"], found["lying"], found["percent"], found["error"]) == (200.0, 210.0, 5.0, 0.0)
    assert change([(100.0, 90.0)])["error"] is None
