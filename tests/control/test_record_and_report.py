"""One story twice: as the audit record has the engine's decisions and facts, and as the report has GPU-hours.

The record is counted here line by line, without anything that makes reports.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.clusters import NOW
from tests.control.test_attempts import Leader

from gangline.console.views.own_answers import ClusterInstant
from gangline.control.audit import audit_log
from gangline.control.audit.audit_log import AuditLog, RecordedEngine
from gangline.control.writes.status import status_changes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert

Json = dict[str, Any]
SECONDS = 400
GPUS_PER_WORKER = 8


class Story(Leader):
    """A leader whose engine decides and writes its record, while jobs come, run, fail, are cancelled and preempt each other."""

    def __init__(self, file: Path) -> None:
        self.log = AuditLog(file)
        here = ClusterInstant(now=NOW * 1000, engine=RecordedEngine(model.Settings(), self.log, at=NOW * 1000))
        objects: dict[kube.Resource, list[Json]] = {}
        for resource, obj in (clusters.flavor("h100"), *clusters.queue("a", 48), *clusters.queue("b", 16)):
            obj["metadata"]["resourceVersion"] = "1"
            objects.setdefault(resource, []).append(obj)
        for queue in objects[kube.CLUSTER_QUEUES]:
            queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
        here.fill(objects)
        here.forecast(None)
        super().__init__(here=here)
        self.decided: Counter[str] = Counter()
        self.names: dict[str, str] = {}  # key of a Workload -> its job

    def submit(self, name: str, workers: int, queue: str, priority: int) -> None:
        for resource, obj in clusters.submitted(name, workers, "1h", ago=NOW - self.now, queue=queue):
            obj["metadata"]["resourceVersion"] = "1"
            if resource == kube.WORKLOADS:
                obj["spec"]["priority"] = priority
            self.here.mirror.upsert(resource, obj)
            if resource == kube.WORKLOADS:
                self.watch.observe(resource, Upsert(obj))
                self.names[f"ml/{obj['metadata']['name']}"] = name

    def decide(self) -> list[str]:
        """Carry out what the engine decides now. Returns the jobs that are to stop."""
        stopping: list[str] = []
        for decision in self.here.engine.decide(self.now * 1000):
            self.decided[type(decision).__name__] += 1
            match decision:
                case model.Admit(key):
                    self.change(status_changes.admit(decision, pods_follow=True), self.names[key])
                case model.Preempt(key):
                    self.change(status_changes.preempt(decision), self.names[key])
                    stopping.append(self.names[key])
                case model.Requeue(key):
                    self.change(status_changes.requeue(decision), self.names[key])
                case _:
                    pass
        return stopping

    def status(self, job: str) -> Json:
        return copy.deepcopy(dict(self.here.mirror.workloads[self.key(job)]))["status"]


async def play(story: Story, draw: random.Random) -> None:
    await story.lead()
    waits_for_stop: dict[str, int] = {}
    jobs: set[str] = set()
    for number in range(SECONDS):
        story.now = NOW + number
        if draw.random() < 0.06:
            name = f"j{number}"
            jobs.add(name)
            story.submit(name, draw.choice([1, 2, 4]), draw.choice("aab"), draw.choice([0, 0, 5, 9]))
        for name in [name for name, at in waits_for_stop.items() if at <= number]:
            del waits_for_stop[name]
            story.release(job=name)
        for name in sorted(jobs - waits_for_stop.keys()):
            rows = {row["type"]: row["status"] for row in story.status(name).get("conditions", [])}
            if rows.get("QuotaReserved") != "True" or draw.random() > 0.02:
                continue
            if draw.random() < 0.2:
                story.delete(after=0, job=name)
                jobs.discard(name)
            elif rows.get("PodsReady") != "True":
                story.ready(job=name)
            else:
                story.finish(draw.random() < 0.7, after=0, job=name)
                jobs.discard(name)
        for name in story.decide():
            waits_for_stop[name] = number + draw.randint(1, 12)
    story.now = NOW + SECONDS
    story.here.engine.decide(story.now * 1000)


def counted(file: Path, until: int) -> dict[str, int]:
    """GPU-seconds by ClusterQueue, of the lines of a record: a gang holds from its Admit until a fact shows it without quota,
    finished or gone. A fact is of the time of the round that follows it.
    """
    held: dict[str, tuple[int, str, int]] = {}
    over: list[str] = []
    found: Counter[str] = Counter()

    def close(key: str, at: int) -> None:
        since, queue, gpus = held.pop(key)
        found[queue] += (at - since) * gpus

    for line in file.read_text().splitlines():
        entry = json.loads(line) if line else {}
        if "fact" in entry:
            what, kind, item = entry["fact"]
            if kind != "Workload":
                continue
            gone = what == "Gone" or isinstance(item, str)
            key = item if gone else f"{item['namespace']}/{item['name']}"
            if key in held and (gone or item.get("finished") or not item.get("admission")):
                over.append(key)
        elif "decided" in entry:
            now = entry["now"] // 1000
            for key in over:
                if key in held:
                    close(key, now)
            over.clear()
            for name, decision in entry["decided"]:
                if name == "Admit":
                    gpus = sum(sum(each["usage"].values()) for each in decision["admission"]["pod_sets"])
                    assert decision["workload"] not in held
                    held[decision["workload"]] = now, decision["admission"]["cluster_queue"], gpus
    for key in [*held]:
        close(key, until)
    return dict(found)


@pytest.mark.parametrize("seed", range(4))
async def test_the_report_has_the_gpu_seconds_of_the_recorded_decisions(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "FLUSH_EVERY", 0.01)
    story = Story(tmp_path / "audit.jsonl")
    try:
        await play(story, random.Random(seed))
        rows = await story.sums(namespace="")
        attempts = await story.rows(namespace="")
    finally:
        story.end()
        await asyncio.to_thread(story.log.close)
    expected = counted(tmp_path / "audit.jsonl", story.now)
    seconds = {row["name"]: round(row["gpuHours"] * 3600) for row in rows}
    assert seconds == expected and sum(expected.values()) > 10_000
    assert story.decided["Admit"] == len(attempts) > 5, "each Admit is one attempt"
    assert sum(row["end"] == "Preempted" for row in attempts) <= story.decided["Preempt"]
    assert sum(row["preemptions"] for row in rows) == sum(row["end"] == "Preempted" for row in attempts)


async def test_the_stories_have_what_a_report_is_about(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    for seed in range(4):
        story = Story(tmp_path / f"{seed}.jsonl")
        try:
            await play(story, random.Random(seed))
            ends.update(row["end"] for row in await story.rows(namespace=""))
        finally:
            story.end()
            await asyncio.to_thread(story.log.close)
    assert set(ends) >= {"", "Succeeded", "Failed", "Cancelled", "Preempted"}, ends
