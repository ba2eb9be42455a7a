"""JobProfiles in the operator: what the engine gets, what is learned from them, and what their statuses say."""

from __future__ import annotations

import time
from typing import Any

from tests.builders.objects import T
from tests.builders.parts import PartWorld
from tests.forecast.test_pairs import SIMULATION
from tests.objects import Stored

from gangline.api.profiles import MOST_PROFILES, written_pair
from gangline.api.read.conditions import timestamp
from gangline.control.nodes.company.profiling import PERIOD, POLL, Profiling
from gangline.control.parts.messages import FactObserved, StepReported
from gangline.engine import model
from gangline.forecast.pairs import pair_file
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert

Json = dict[str, Any]


def job_profile(name: str, *, age: int = 0, status: Json | None = None, **spec: Any) -> Stored:
    meta = {
        "name": name,
        "uid": name,
        "resourceVersion": "1",
        "generation": 3,
        "creationTimestamp": timestamp(T - 1000 * age),
    }
    return Stored({"kind": "JobProfile", "metadata": meta, "spec": spec, "status": status or {}})


class ProfilingWorld(PartWorld):
    def __init__(self, *profiles: Stored) -> None:
        super().__init__()
        self.facts: list[model.Change] = []
        self.part_context = self.context()
        self.part = Profiling(self.part_context, self.facts.append)
        self.apply(*profiles)
        self.part.lead()

    def apply(self, *profiles: Stored) -> None:
        for each in profiles:
            self.mirror.upsert(kube.JOB_PROFILES, each)
            self.part.observe(kube.JOB_PROFILES, Upsert(each))

    def at(self, now: int) -> dict[str, Json]:
        """A round of the loop. Returns the statuses that were written, by JobProfile."""
        self.now = now
        self.part.settle()
        self.part.act(now)
        writes, self.writer.writes = self.writer.writes, []
        found: dict[str, Json] = {}
        for write in writes:
            assert write.verb == "status" and isinstance(write.body, dict)
            found[write.key.name] = write.body["status"]
            obj = self.mirror.objects[kube.JOB_PROFILES][write.key.name]
            meta = {**obj.metadata, "resourceVersion": str(int(obj.resource_version) + 1)}
            status = {**obj.status, **write.body["status"]}
            self.mirror.upsert(kube.JOB_PROFILES, Stored({**obj, "metadata": meta, "status": status}))
        return found

    def learned(self, now: int) -> dict[str, Json]:
        """Rounds until the thread is done."""
        deadline = time.monotonic() + 60
        while self.part._learning is not None and time.monotonic() < deadline:
            time.sleep(0.01)
            if self.part._learning.done():
                return self.at(now)
        return {}


def said(status: Json) -> dict[str, tuple[str, str, str]]:
    return {row["type"]: (row["status"], row["reason"], row["message"]) for row in status["conditions"]}


def test_the_engine_gets_profiles_with_what_was_learned_and_loses_them() -> None:
    learned = {"pairs": [{"beside": "b", "slowdown": "2"}]}
    world = ProfilingWorld(job_profile("a", status=learned, pairs=[{"beside": "a", "slowdown": "1.25"}]))
    written = world.at(T)
    wanted = model.JobProfile("a", (model.CompanySpeed("a", speed=0.8), model.CompanySpeed("b", speed=0.5)))
    assert world.facts == [model.Put(wanted)]
    assert said(written["a"])["Active"][:2] == ("True", "Ready") and written["a"]["observedGeneration"] == 3
    world.mirror.remove(kube.JOB_PROFILES, "a")
    world.part.observe(kube.JOB_PROFILES, Removed("a", "a"))
    world.at(T + 1)
    assert world.facts[1:] == [model.Gone(model.JobProfile, "a")]


def test_one_that_cannot_be_read_costs_itself_alone_and_of_one_class_the_oldest_counts() -> None:
    world = ProfilingWorld(
        job_profile("broken", pairs=[{"beside": "a"}]),
        job_profile("new", age=1, **{"class": "x"}, family="new"),
        job_profile("old", age=2, **{"class": "x"}, family="old"),
    )
    written = world.at(T)
    assert world.facts == [model.Put(model.JobProfile("x"))]
    assert said(written["broken"])["Active"][1:] == (
        "NotRead",
        "spec.pairs[0].slowdown: give slowdown, or outOfMemory: true",
    )
    assert said(written["new"])["Active"][2] == "JobProfile old is older and of the same class"
    assert said(written["old"])["Active"][0] == "True"


def test_only_so_many_are_read() -> None:
    world = ProfilingWorld(*(job_profile(f"p{number:04}") for number in range(MOST_PROFILES + 1)))
    written = world.at(T)
    assert len(world.facts) == MOST_PROFILES
    assert "no more are read" in said(written[f"p{MOST_PROFILES:04}"])["Active"][2]


def measured() -> list[Stored]:
    """Gavel's pairs on V100."""
    file = pair_file.read(SIMULATION)
    return [
        job_profile(
            f"p{number}",
            **{"class": name},
            family=file.families[name],
            pairs=[written_pair(pair) for pair in each.pairs if pair.gpu == "v100"],
        )
        for number, (name, each) in enumerate(sorted(file.profiles.items()))
    ]


def test_what_to_expect_of_other_pairs_is_learned_and_the_status_says_how_good_it_is() -> None:
    world = ProfilingWorld(*measured())
    assert said(world.at(T)["p0"])["PriorUsed"][:2] == ("False", "NotBetter")
    world.at(T)
    written = world.learned(T + POLL)
    (prior,) = (fact.item for fact in world.facts if isinstance(fact, model.Put) and fact.item.name == "v100/")
    assert isinstance(prior, model.CompanyPrior) and prior.gpu == "v100"
    status, reason, message = said(written["p0"])["PriorUsed"]
    assert (status, reason) == ("True", "BetterThanConstant")
    assert message.startswith("v100: the prior is used: its error on unseen families is 0.1")


def test_a_prior_goes_with_the_pairs_that_it_came_from_but_not_at_once() -> None:
    profiles = measured()
    world = ProfilingWorld(*profiles)
    world.at(T)
    world.at(T)
    world.learned(T + POLL)
    for each in profiles[1:]:
        world.mirror.remove(kube.JOB_PROFILES, each.name)
        world.part.observe(kube.JOB_PROFILES, Removed(each.name, each.name))
    world.at(T + 2 * POLL)
    assert model.Gone(model.CompanyPrior, "v100/") not in world.facts
    world.at(T + 2 * POLL + PERIOD)
    written = world.learned(T + 3 * POLL + PERIOD)
    assert model.Gone(model.CompanyPrior, "v100/") in world.facts
    assert said(written["p0"])["PriorUsed"][0] == "False"


def test_nothing_is_done_where_there_are_none() -> None:
    world = ProfilingWorld()
    assert world.at(T) == {} and world.facts == [] and world.part.due is None


# --- learned from running jobs ----------------------------------------------------------------------------------------


def cards() -> model.Put:
    device = model.Device("n0", "GPU-0", model="Tesla V100", mode="MPS", slots=4)
    return model.Put(model.NodeCards("n0", (device,)))


def running(name: str, kind: str, *, finished: bool = False) -> model.Put:
    domain = model.Domain(("n0",), 1, ((model.CardSeat("GPU-0"),),))
    topology = model.TopologyAssignment(("kubernetes.io/hostname",), (domain,))
    assigned = model.PodSetAssignment("main", flavors={"gpu": "f"}, usage={"gpu": 1}, count=1, topology=topology)
    pod_set = model.PodSet("main", 1, {"gpu": 1}, traits=model.Traits(kind=kind))
    admission = model.Admission("q", (assigned,))
    return model.Put(
        model.Workload(
            name, "ns", name, "q", (pod_set,), created=1, admission=admission, admitted=True, finished=finished,
            pods_ready=True,
        )
    )  # fmt: skip


def test_pairs_are_learned_as_neighbours_come_and_are_written_into_the_status() -> None:
    declared = [{"beside": "c", "slowdown": "1.5"}]
    world = ProfilingWorld(job_profile("a", pairs=declared), job_profile("b"))
    context = world.part_context
    world.at(T)

    def report(key: str, seconds: int, rate: float, begin: int) -> int:
        for number in range(seconds // 10 + 1):
            at = begin + 10_000 * number
            context.messages.publish(StepReported(f"ns/{key}", at, round(10 * rate * number) + begin // 1000))
        return begin + 1000 * seconds

    context.messages.publish(FactObserved(cards()))
    context.messages.publish(FactObserved(running("wa", "a")))
    now = report("wa", 120, 10, 0)
    context.messages.publish(FactObserved(running("wb", "b")))
    report("wa", 120, 8, now + 10_000)
    context.messages.publish(FactObserved(running("wb", "b", finished=True)))
    written = world.at(T + 1)
    assert written["a"]["pairs"] == [
        {"beside": "b", "gpu": "Tesla V100", "sharing": "MPS", "slowdown": "1.250", "samples": 1}
    ]
    assert "pairs" not in written.get("b", {}), "nothing is known of it alone"
    world.apply(world.mirror.objects[kube.JOB_PROFILES]["a"])
    world.at(T + 2)
    profile = [fact.item for fact in world.facts if isinstance(fact, model.Put) and fact.item.name == "a"][-1]
    assert isinstance(profile, model.JobProfile)
    assert [(pair.beside, round(pair.speed, 3)) for pair in profile.pairs] == [("c", 0.667), ("b", 0.8)]


def test_without_profiles_nothing_is_watched() -> None:
    world = ProfilingWorld()
    world.at(T)
    world.part_context.messages.publish(FactObserved(cards()))
    world.part_context.messages.publish(FactObserved(running("wa", "a")))
    world.part_context.messages.publish(StepReported("ns/wa", 1, 1))
    world.at(T + 1)
    assert not world.part._seats and not world.part._watch
