"""Budgets in the operator: who waits for one, what a new leader knows of it, and what its status says, on a real record."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders.clusters import NOW
from tests.context import a_context
from tests.control.test_answers import Reader
from tests.control.test_attempts import Leader

from gangline.api import names
from gangline.console.commands.see import share
from gangline.control.answers.sight import Everybody
from gangline.control.forecasting.history_store import History
from gangline.control.queues import budgets as module
from gangline.control.queues.budgets import Budgets
from gangline.control.writes.status import policy_status
from gangline.control.writes.status.policy_status import SelectedQueues
from gangline.engine import model
from gangline.engine.model import Gone, PastPreemption, PreemptionsUnknown, Put, SpentBudget
from gangline.forecast.errors import StoreError
from gangline.forecast.history.budgets import UsedSpan
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert
from gangline.objects import Stored, view

Json = dict[str, Any]
HOUR = 3600


class Reports:
    """The recorder, and the receivers of notices, of this test."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.notices: list[str] = []

    def record(self, regarding: Json, kind: str, reason: str, note: str) -> None:
        self.events.append((reason, note))

    def about_policy(self, kind: str, policy: Stored, subject: str, text: str) -> None:
        self.notices.append(f"{subject} {text}")


def policy(status: Json | None = None, **budget: Any) -> Stored:
    spec = {"clusterQueues": {"names": ["a"]}, "budgets": [{"name": "b", "per": "Namespace", **budget}]}
    metadata = {"name": "p", "uid": "p", "resourceVersion": "900"}
    return Stored({"kind": "QueuePolicy", "metadata": metadata, "spec": spec, "status": status or {}})


class Operator(Leader):
    """A leader with budgets. `spent`: what the engine knows."""

    def __init__(self, budget: Stored, store: Any = None, here: Any = None) -> None:
        super().__init__(store, here)
        self.reports, self.spent = Reports(), dict[str, SpentBudget]()
        self.past: list[PastPreemption] = []
        self.unknown: list[PreemptionsUnknown] = []
        if budget:
            self.here.mirror.upsert(kube.QUEUE_POLICIES, budget)
        context = a_context(
            mirror=self.here.mirror,
            messages=self.messages,
            recorder=self.reports,
            notices=self.reports,
            now=lambda: self.now * 1000,
        )
        self.budgets = Budgets(context, self._observe)
        self.budgets.read_from(self.watch)

    def _observe(self, change: model.Change) -> None:
        match change:
            case Put(SpentBudget() as fact):
                self.spent[fact.workload] = fact
            case Put(PastPreemption() as past):
                self.past.append(past)
            case Put(PreemptionsUnknown() as unknown):
                self.unknown.append(unknown)
            case Gone(kind, _) if kind is PreemptionsUnknown:
                self.unknown.clear()
            case Gone(kind, key) if kind is SpentBudget:
                del self.spent[key]
            case _:
                raise AssertionError(change)

    async def lead(self) -> Operator:
        self.budgets.lead()
        self.budgets.act(self.now * 1000)
        await super().lead()
        await self.read()
        return self

    async def read(self) -> None:
        """The history answers, if it does."""
        if self.budgets._to_read.is_set():
            self.budgets._to_read.clear()
            await self.budgets._read()
        self.act()

    def act(self) -> None:
        super().act()
        if hasattr(self, "budgets"):
            self.budgets.act(self.now * 1000)

    def later(self, seconds: int) -> None:
        self.now += seconds
        self.act()

    def held(self) -> list[str]:
        return sorted(key.partition("gpujob-")[2].rpartition("-")[0] for key in self.spent)

    def report(self) -> Json:
        found = self.budgets.report("p")
        chosen = SelectedQueues(matched=("a",))
        (raw,) = self.here.mirror.objects[kube.QUEUE_POLICIES].values()
        return policy_status.status(raw, chosen, now=self.now * 1000, budgets=found)


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    kept = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: float(NOW))
    yield kept
    await kept.close(5)


def rolling(hours: str = "16", **more: Any) -> Stored:
    """16 GPU-hours in ten hours: an hour of the job `train`."""
    return policy(gpuHours=hours, period="Rolling", window="10h", **{"at100": "HoldStarts", **more})


async def test_starts_are_held_when_the_budget_is_used_by_what_runs_and_it_goes_on(history: History) -> None:
    leader = await Operator(rolling(), history).lead()
    assert leader.held() == []
    leader.run()
    leader.act()
    assert leader.budgets.due is not None
    leader.later(HOUR - 21)
    assert leader.held() == []
    assert leader.reports.events == [
        (
            "BudgetUsed",
            "the budget 'b' of namespace ml is used to 80 %: 16 of 16 GPU-hours in the last 10h; "
            "it becomes free as what was used leaves this time",
        )
    ]
    assert leader.budgets.due == (leader.now + 1) * 1000
    leader.later(1)
    assert leader.held() == ["urgent"]
    (fact,) = leader.spent.values()
    assert fact.text.startswith("the budget 'b' of namespace ml is used: 16 of 16 GPU-hours in the last 10h")
    assert fact.holds
    leader.later(60)
    assert len(leader.reports.events) == len(leader.reports.notices) == 2
    leader.end()


async def test_a_rolling_budget_becomes_free_as_its_hours_leave_the_window(history: History) -> None:
    leader = await Operator(rolling(), history).lead()
    leader.run()
    leader.finish(after=HOUR)
    leader.act()
    assert leader.held() == ["urgent"]
    leader.later(8 * HOUR)
    assert leader.held() == ["urgent"]
    leader.later(HOUR + 300)
    assert leader.held() == []
    leader.end()


async def test_a_new_leader_holds_from_the_first_moment_and_knows_what_was_used_before(history: History) -> None:
    first = await Operator(rolling(), history).lead()
    first.run()
    first.finish(after=HOUR)
    first.act()
    assert first.held() == ["urgent"]
    first.end()
    (raw,) = first.here.mirror.objects[kube.QUEUE_POLICIES].values()
    raw["status"] = first.report()
    second = Operator(Stored({}), history, first.here)
    second.now = first.now
    second.budgets.lead()
    second.budgets.act(second.now * 1000)
    assert second.held() == ["urgent"]
    (fact,) = second.spent.values()
    assert "the history is being read" in fact.text
    await second.lead()
    assert second.held() == ["urgent"]
    (fact,) = second.spent.values()
    assert "16.1 of 16" in fact.text
    assert second.reports.events == [], "it was announced before"
    second.end()


async def test_what_runs_at_a_takeover_counts_once(history: History) -> None:
    first = await Operator(rolling(), history).lead()
    first.run()
    await history.flush()
    first.end()
    second = Operator(Stored({}), history, first.here)
    second.now = first.now + 1800
    await second.lead()
    (use,) = second.budgets.uses()
    assert use.used == pytest.approx(16 * 1820 / HOUR)
    second.finish(after=100)
    second.act()
    await history.flush()
    second.budgets._read_again()
    await second.read()
    (use,) = second.budgets.uses()
    assert use.used == pytest.approx(16 * 1920 / HOUR)
    second.end()


class Silent(History):
    """A database that does not answer."""

    async def fold_ended(
        self, cluster: str, since: float, without: Collection[str], take: Callable[[UsedSpan], None]
    ) -> None:
        raise StoreError("gone")


async def test_without_an_answer_of_the_database_starts_wait_for_a_minute_and_then_what_runs_counts(
    tmp_path: Path,
) -> None:
    history = Silent(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: float(NOW))
    leader = Operator(rolling(), history)
    with pytest.raises(StoreError):
        await leader.lead()
    leader.act()
    assert leader.held() == ["train", "urgent"]
    assert leader.budgets.due == NOW * 1000 + module.PATIENCE
    leader.later(60)
    assert leader.held() == []
    (condition,) = [row for row in leader.report()["conditions"] if row["type"] == names.BUDGETS_KNOWN]
    assert (condition["status"], condition["reason"]) == ("False", "HistoryUnknown")
    leader.run()
    leader.later(HOUR)
    assert leader.held() == ["urgent"]
    leader.end()
    await history.close(5)


async def test_without_a_history_the_status_says_so() -> None:
    leader = await Operator(rolling()).lead()
    (condition,) = [row for row in leader.report()["conditions"] if row["type"] == names.BUDGETS_KNOWN]
    assert (condition["status"], condition["reason"]) == ("False", "NoHistory")
    leader.run()
    leader.later(HOUR)
    assert leader.held() == ["urgent"]
    leader.end()


async def test_a_calendar_budget_begins_anew_and_the_fact_says_when(history: History) -> None:
    leader = await Operator(policy(gpuHours="1", period="Day", at100="HoldStarts", per="ClusterQueue"), history).lead()
    midnight = (NOW // 86_400 + 1) * 86_400
    leader.run()
    leader.finish(after=HOUR)
    leader.act()
    (fact,) = leader.spent.values()
    assert fact.until == midnight * 1000
    assert "today; it begins anew on 2023-11-15" in fact.text
    leader.later(midnight - leader.now)
    assert leader.held() == []
    leader.end()


async def test_a_clock_that_is_put_back_into_the_last_period_finds_its_use_again(history: History) -> None:
    leader = await Operator(policy(gpuHours="1", period="Day", at100="HoldStarts"), history).lead()
    midnight = (NOW // 86_400 + 1) * 86_400
    leader.run()
    leader.finish(after=HOUR)
    leader.later(midnight - leader.now)
    leader.budgets._read_again()
    await leader.read()
    assert leader.held() == []
    leader.later(-HOUR)
    await leader.read()
    assert leader.held() == ["urgent"]
    leader.end()


async def test_a_lower_order_is_a_fact_that_holds_nothing(history: History) -> None:
    leader = await Operator(rolling(at100="LowerOrder"), history).lead()
    leader.run()
    leader.later(HOUR)
    (fact,) = leader.spent.values()
    assert not fact.holds
    leader.end()


async def test_a_notice_alone_holds_nobody_and_none_is_sent_where_none_is_wanted(history: History) -> None:
    leader = await Operator(rolling(at100="Notify", at80="None"), history).lead()
    leader.run()
    leader.later(HOUR - 100)
    assert leader.reports.events == []
    leader.later(100)
    assert [reason for reason, _ in leader.reports.events] == ["BudgetUsed"]
    assert leader.spent == {}
    leader.end()


async def test_each_user_has_an_own_budget_and_jobs_without_one_share_theirs(history: History) -> None:
    leader = Operator(rolling(per="User"), history)
    for job, user in (("train", "alice"), ("urgent", "bob")):
        found = leader.here.mirror.objects[kube.GPU_JOBS][f"ml/{job}"]
        found["metadata"]["labels"] = {**found["metadata"]["labels"], names.USER: user}
    await leader.lead()
    leader.run()
    leader.later(HOUR)
    assert leader.held() == [], "bob has used nothing"
    assert [each.owner for each in leader.budgets.uses()] == ["alice"]
    assert leader.budgets.shares() == {("p", "b", "alice"): pytest.approx(1.0, abs=0.01)}
    leader.end()


async def test_a_namespace_that_gets_the_label_of_a_team_takes_from_its_budget(history: History) -> None:
    leader = await Operator(rolling(per="NamespaceLabel", label="team"), history).lead()
    leader.run()
    leader.later(HOUR)
    assert leader.held() == ["urgent"]
    assert [each.owner for each in leader.budgets.uses()] == [""]
    (fact,) = leader.spent.values()
    assert "of namespaces without the label team is used" in fact.text
    space = Stored({"kind": "Namespace", "metadata": {"name": "ml", "uid": "ml", "labels": {"team": "vision"}}})
    space["metadata"]["resourceVersion"] = "950"
    leader.here.mirror.upsert(kube.NAMESPACES, space)
    leader.budgets.observe(kube.NAMESPACES, Upsert(space))
    leader.act()
    await leader.read()
    assert [each.owner for each in leader.budgets.uses()] == ["vision"]
    (fact,) = leader.spent.values()
    assert "of namespaces with team=vision is used" in fact.text
    leader.end()


def labelled(leader: Operator, job: str, **labels: str) -> Stored:
    """The stored job, with labels, which parts learn by an event."""
    found = leader.here.mirror.objects[kube.GPU_JOBS][f"ml/{job}"]
    found["metadata"]["labels"] = {**found["metadata"]["labels"], **labels}
    leader.budgets.observe(kube.GPU_JOBS, Upsert(found))
    return found


async def test_jobs_with_one_value_of_a_label_take_from_its_budget_also_after_a_takeover(history: History) -> None:
    leader = Operator(rolling(per="JobLabel", label="project"), history)
    labelled(leader, "train", project="vision")
    labelled(leader, "urgent", project="vision")
    await leader.lead()
    leader.run()
    leader.finish(after=HOUR)
    leader.act()
    assert leader.held() == ["urgent"]
    assert "of jobs with project=vision is used" in leader.spent[leader.key("urgent")].text
    labelled(leader, "urgent", project="speech")
    leader.act()
    assert leader.held() == [], "a job that waits belongs to another project"
    labelled(leader, "urgent", project="vision")
    leader.act()
    assert leader.held() == ["urgent"]
    await history.flush()
    leader.end()
    second = Operator(Stored({}), history, leader.here)
    second.now = leader.now
    await second.lead()
    assert second.held() == ["urgent"]
    assert {each.owner: each.used for each in second.budgets.uses()} == {
        "vision": pytest.approx(16 * (HOUR + 20) / HOUR)
    }
    second.end()


async def test_what_runs_when_a_budget_by_a_label_is_created_counts_for_its_value(history: History) -> None:
    leader = Operator(policy(), history)
    labelled(leader, "train", project="vision")
    await leader.lead()
    leader.run()
    leader.later(HOUR - 20)
    created = rolling(per="JobLabel", label="project")
    created["metadata"] = {**created["metadata"], "resourceVersion": "901"}
    leader.here.mirror.upsert(kube.QUEUE_POLICIES, created)
    leader.act()
    await leader.read()
    assert leader.watch.labels == ("team", "project")
    assert [(each.owner, round(each.used)) for each in leader.budgets.uses()] == [("vision", 16)]
    leader.end()


async def test_budgets_by_more_labels_than_are_kept_are_not_in_force_and_the_status_names_them(
    history: History,
) -> None:
    """The record keeps the label `team`, and seven that budgets name."""
    budgets = [
        {"name": f"b{number}", "per": "JobLabel", "label": f"key-{number}", "gpuHours": "0", "at100": "HoldStarts"}
        for number in range(9)
    ]
    spec = {"clusterQueues": {"names": ["a"]}, "budgets": budgets}
    leader = await Operator(Stored({**policy(), "spec": spec}), history).lead()
    assert [budget.name for budget in leader.budgets._use.budgets] == [f"b{number}" for number in range(7)]
    (condition,) = [row for row in leader.report()["conditions"] if row["type"] == names.BUDGETS_KNOWN]
    assert (condition["status"], condition["reason"]) == ("False", "LabelsNotKept")
    assert condition["message"].endswith("not in force are budgets by other labels: b7 (key-7), b8 (key-8)")
    assert leader.held() == ["train", "urgent"], "the others are"
    leader.end()


async def test_a_job_without_gpus_is_not_held(history: History) -> None:
    leader = await Operator(rolling(hours="0"), history).lead()
    assert leader.held() == ["train", "urgent"]

    def without_gpus(pod_set: Json) -> Json:
        pod_set = copy.deepcopy(pod_set)
        for container in pod_set["template"]["spec"]["containers"]:
            container["resources"] = {"requests": {"cpu": "1"}}
        return pod_set

    raw = copy.deepcopy(dict(leader.here.mirror.workloads[leader.key("urgent")]))
    raw["spec"] = {**raw["spec"], "podSets": [without_gpus(each) for each in raw["spec"]["podSets"]]}
    raw["metadata"] |= {"resourceVersion": "2000"}
    leader.here.mirror.upsert(kube.WORKLOADS, view(kube.WORKLOADS, raw))
    leader.act()
    assert leader.held() == ["train"]
    leader.end()


async def test_a_policy_without_budgets_takes_everything_back(history: History) -> None:
    leader = await Operator(rolling(hours="0"), history).lead()
    assert leader.held() == ["train", "urgent"]
    without = policy()
    del without["spec"]["budgets"]
    without["metadata"] = {**without["metadata"], "resourceVersion": "901"}
    leader.here.mirror.upsert(kube.QUEUE_POLICIES, without)
    leader.act()
    await leader.read()
    assert leader.held() == []
    assert leader.budgets.report("p") is None
    leader.end()


async def test_the_status_names_those_who_have_used_most(history: History) -> None:
    leader = await Operator(rolling(), history).lead()
    leader.run()
    leader.later(HOUR)
    (row,) = leader.report()["budgets"]
    assert (row["name"], row["owner"], float(row["usedGpuHours"]), row["state"]) == (
        "b",
        "ml",
        pytest.approx(16, abs=0.1),
        "Used100",
    )
    assert "until" not in row
    leader.end()


async def test_shares_show_the_budgets_of_each_row_and_none_of_hidden_ones(history: History) -> None:
    spec = {
        "clusterQueues": {"names": ["a"]},
        "budgets": [
            *({"name": f"b-{per.lower()}", "per": per, "gpuHours": "32"} for per in ("ClusterQueue", "Namespace")),
            {"name": "b-project", "per": "JobLabel", "label": "project", "gpuHours": "20"},
        ],
    }
    leader = Operator(Stored({**policy(), "spec": spec}), history)
    labelled(leader, "train", project="vision")
    await leader.lead()
    leader.run()
    leader.later(HOUR - 20)
    answers = leader.answers()
    answers.source = replace(answers.source, budgets=leader.budgets)
    rows = {row["level"]: row for row in (await answers.shares(Everybody(), "ml")).items}
    assert [each["name"] for each in rows["ClusterQueue"]["budgets"]] == ["b-clusterqueue"]
    found, *of_labels = rows["LocalQueue"]["budgets"]
    assert {each["whose"]: each["usedGpuHours"] for each in of_labels} == {
        "jobs with project=vision": pytest.approx(16),
        "jobs without the label project": 0,
    }
    assert (found["name"], found["owner"], found["gpuHours"]) == ("b-namespace", "ml", 32)
    assert found["usedGpuHours"] == pytest.approx(16)
    assert found["until"] is not None
    lines = share.budget_lines(list(rows.values()))
    assert lines[0].startswith("budget b-project of jobs with project=vision: 16 of 20 GPU-hours used (80 %)")
    assert lines[2] == (
        "budget b-namespace of namespace ml: 16 of 32 GPU-hours used (50 %), until 2023-12-01T00:00:00Z"
    )
    stranger = await answers.shares(Reader("elsewhere"), "")
    assert [row["budgets"] for row in stranger.items if row["hidden"]] == [[]]
    leader.end()


async def test_the_engine_learns_once_what_was_preempted_before_this_leader(history: History) -> None:
    limits = policy()
    limits["spec"] = {"clusterQueues": {"names": ["a"]}, "preemptionLimits": {"causes": {"perHour": 1}}}
    first = await Operator(limits, history).lead()
    first.run()
    first.preempt(after=100)
    first.release()
    first.act()
    first.end()
    second = Operator(Stored({}), history, first.here)
    second.budgets.lead()
    assert [each.until for each in second.unknown] == [NOW * 1000 + module.PATIENCE]
    await second.lead()
    assert second.unknown == []
    (past,) = second.past
    assert (past.workload, past.queue, past.by_queue, past.lost) == (first.key(), "a", "a", 16 * 100 * 1000)
    await second.read()
    assert len(second.past) == 1
    second.end()


async def test_policies_that_change_while_the_history_is_read_are_read_for(history: History) -> None:
    leader = await Operator(rolling(), history).lead()
    leader.run()
    leader.finish(after=HOUR)
    leader.act()
    leader.budgets._read_again()
    reading = asyncio.ensure_future(leader.budgets._read())
    await asyncio.sleep(0)
    leader.budgets._read_again()
    await reading
    await leader.read()
    (use,) = leader.budgets.uses()
    assert use.used == pytest.approx(16 * (HOUR + 20) / HOUR, rel=0.01)
    leader.end()
