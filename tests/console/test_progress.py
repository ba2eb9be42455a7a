from __future__ import annotations

from tests.console.objects import cluster_queue, condition, flavor, local_queue, pending, running, workload

from gangline.console.run.progress import RunProgress
from gangline.console.views.watch import changes, in_use
from gangline.control.answers.workloads.snapshot import Snapshot, snapshot

QUEUES = [cluster_queue("vision", flavor("a100", 64))]


def see(*objects) -> Snapshot:
    return snapshot(objects, QUEUES, [local_queue()])


def job(name: str, kind: str = "Job") -> tuple[str, str, str]:
    return kind, "team-vision", name


def done(name: str, ok: bool = True):
    return workload(name, condition("Finished", True, "Succeeded" if ok else "Failed", "Job finished"))


def never(name: str):
    return pending(name, "ExceedsMaxQuota", "too much")


def test_a_run_is_settled_when_all_have_ended_or_never_will():
    tally = RunProgress(frozenset({job("a"), job("b")}))
    assert not tally.settled(see(done("a")))  # b has no Workload yet
    assert not tally.settled(see(done("a"), pending("b", "WaitingForQuota")))
    assert not tally.settled(see(done("a"), running("b")))
    assert tally.settled(see(done("a"), never("b")))
    assert tally.settled(see(done("a"), done("b", ok=False)))


def test_a_job_of_the_same_name_and_another_kind_does_not_count():
    tally = RunProgress(frozenset({job("a", "GPUJob")}))
    assert not tally.settled(see(done("a")))


def test_what_never_fits_is_no_problem_but_failures_and_missing_ones_are():
    tally = RunProgress(frozenset({job("a"), job("b"), job("c"), job("d")}))
    problems = tally.problems(see(done("a"), never("b"), done("c", ok=False)))
    assert problems == [
        "Job team-vision/d: it has no Workload",
        "job/c in team-vision: Failed: Failed: Job finished",
    ]


def test_the_summary_counts_jobs_preemptions_and_use():
    tally = RunProgress(frozenset({job("a"), job("b"), job("huge")}))
    evicted = running("b", gpus=16)
    evicted["status"]["conditions"].append(condition("Evicted", True, "Preempted"))
    tally.update(see(running("a", gpus=16), evicted, never("huge")), 0.0)
    tally.update(see(running("a", gpus=16), never("huge")), 10.0)
    end = see(done("a"), done("b"), never("huge"))
    tally.update(end, 20.0)
    assert tally.summary(end, 20.0) == [
        "2 of 3 jobs finished in 20 s; 1 were preempted and ran again; GPUs were in use 38% of the time",
        "job/huge never fits: ExceedsMaxQuota: too much",
    ]


def test_news_are_new_workloads_new_states_and_new_reasons_to_wait():
    before = see(running("steady"), pending("waits", "WaitingForQuota", "8 more needed"), running("ends"))
    after = see(running("steady"), pending("waits", "WaitingForQuota", "4 more needed"), done("ends"), pending("new"))
    assert [v.job_name for v in changes(before, after)] == ["ends", "new"]
    other = see(running("steady"), pending("waits", "WaitingForPreemptedWorkloads", "soon"), running("ends"))
    assert [v.job_name for v in changes(before, other)] == ["waits"]
    assert len(changes(None, before)) == 3


def test_gpus_in_use_are_those_that_are_held():
    assert in_use(see(running("a", gpus=16), pending("b", gpus=8), done("c"))) == 16
