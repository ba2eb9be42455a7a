"""How much is played to find what would let a job start earlier: as much as there are changes, not as much as there is time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import clusters

from gangline.control.answers.ahead import whatif
from gangline.control.forecasting import rehearsals
from gangline.control.forecasting.rehearsals import Rehearsal, Rehearsals, rehearse
from gangline.engine import Outlook, outlook
from gangline.engine.model import Change, Gone, Put, Workload, WorkloadPods


def rehearsed(monkeypatch: pytest.MonkeyPatch, here: Any, wanted: list[Rehearsal], best: int) -> tuple[Rehearsals, int]:
    """The outcomes while no time passes, and the number of courses that they took."""
    courses = 0

    def counted(*facts: Any, **options: Any) -> Outlook:
        nonlocal courses
        found = outlook(*facts, **options)
        courses += found.courses
        return found

    with monkeypatch.context() as patched:
        patched.setattr(rehearsals, "outlook", counted)
        patched.setattr(rehearsals.time, "perf_counter", lambda: 0.0)
        done = rehearse(here.engine.facts(), here.engine.settings, here.now, wanted, 10.0, best)
    return done, courses


def submission(here: Any) -> Rehearsal:
    """The submission of a job of 16 GPUs that has to wait."""
    return next(whatif._variants(here.answers().source, "ml", clusters.gpujob("mine", 2, "1h"))).rehearsal


def workloads(here: Any) -> list[str]:
    return [fact.item.key for fact in here.engine.facts() if isinstance(fact, Put) and isinstance(fact.item, Workload)]


def without(key: str) -> tuple[Change, ...]:
    return Gone(WorkloadPods, key), Gone(Workload, key)


def test_the_number_of_changes_bounds_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change is looked at in two courses, and only the best are played in full, however much time there is."""
    here = clusters.busy()
    job = submission(here)
    ends = [(*job.changes, *without(key)) for key in workloads(here)] * 4
    assert len(ends) >= 12
    changes = [Rehearsal(job.workload, each, f"end {number}") for number, each in enumerate(ends)]
    done, courses = rehearsed(monkeypatch, here, [job, *changes], 2)
    assert sum(each is not None for each in done.outcomes[1:]) == 2 and done.unexamined == 0
    assert courses <= rehearsals.COURSES * (1 + 2) + 2 * (1 + len(changes))


def test_of_one_kind_the_best_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    here = clusters.busy()
    job = submission(here)
    all_gone = tuple(change for key in workloads(here) for change in without(key))
    one_gone = without(workloads(here)[-1])
    changes = [Rehearsal(job.workload, (*job.changes, *gone), "end") for gone in (one_gone, all_gone, one_gone)]
    done, _ = rehearsed(monkeypatch, here, [job, *changes], 2)
    assert [each is not None for each in done.outcomes] == [True, False, True, False]


def test_the_search_ends_when_nothing_better_can_come(monkeypatch: pytest.MonkeyPatch) -> None:
    here = clusters.busy()
    job = submission(here)
    empty = (*job.changes, *(change for key in workloads(here) for change in without(key)))
    changes = [Rehearsal(job.workload, empty, f"empty {number}") for number in range(20)]
    done, courses = rehearsed(monkeypatch, here, [job, *changes], 2)
    assert [number for number, each in enumerate(done.outcomes) if each is not None] == [0, 1, 2]
    assert courses == rehearsals.COURSES * 3 + 2 * (1 + 2), "eighteen are not looked at"
    idle, courses = rehearsed(monkeypatch, here, [Rehearsal(job.workload, empty), *changes], 2)
    assert courses == rehearsals.COURSES + 2 and idle.unexamined == 0, "as it is, it starts at once"
    assert sum(each is not None for each in idle.outcomes) == 1


def test_what_never_starts_takes_the_first_change_of_each_kind_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    here = clusters.busy()
    variants = list(whatif._variants(here.answers().source, "ml", clusters.gpujob("mine", 8, "1h")))
    done, _ = rehearsed(monkeypatch, here, [each.rehearsal for each in variants], 3)
    helps = [variant.change for variant, each in zip(variants[1:], done.outcomes[1:], strict=True) if each is not None]
    assert not done.first.outlook.starts.get(variants[0].workload.key)
    assert helps == ["ask for 32 GPUs instead of 64"]
