"""docs/concepts: the manifests of each page are accepted, and the engine decides as the page says.

The blocks of a page are followed in order. `yaml`: objects come. `<!-- ends: JOB -->` and `<!-- ready: JOB -->`: a job ends, or
all its pods are ready. `text`: what is decided then, one line for each decision.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.api.accepted import schemas
from tests.objects import JobObject

from gangline.api import admission, names
from gangline.api.admission import AdmissionFacts
from gangline.api.read import parse
from gangline.api.read.configuration import load
from gangline.control.answers.workloads.reasons import brief
from gangline.engine import Engine
from gangline.engine.model import Admit, Decision, Gone, Preempt, Put, ReportPending, Settings, Workload
from gangline.jobs import kind_of
from gangline.jobs import workload as workloads
from gangline.kube.resources import Json

FOLDER = Path(__file__).parents[1] / "docs" / "concepts"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"^```(yaml|text)\n(.*?)^```$|^<!-- (ends|ready): ([\w-]+) -->$", re.MULTILINE | re.DOTALL)
READERS = {
    "ResourceFlavor": parse.flavor,
    "ClusterQueue": parse.cluster_queue,
    "Cohort": parse.cohort,
    "LocalQueue": parse.local_queue,
    "Topology": parse.topology,
    "Node": parse.node,
    "Namespace": parse.namespace,
}
#: kinds that no webhook looks at
WITHOUT_RULES = ("WorkloadPriorityClass",)
SCHEMAS = {(kind, f"{group}/{version}"): schema for kind, group, version, schema in schemas()}
GPU = "nvidia.com/gpu"
NOW = 1_700_000_000_000


@dataclass
class Story:
    """A cluster with the facts of a page, and what was decided."""

    settings: Settings | None = None
    now: int = NOW
    classes: dict[str, int] = field(default_factory=dict[str, int])
    jobs: dict[str, Workload] = field(default_factory=dict[str, Workload])

    def __post_init__(self) -> None:
        self.engine = Engine(self.settings)

    def take(self, text: str) -> None:
        for body in yaml.safe_load_all(text):
            self.now += 1000
            kind, body = body["kind"], completed(body) if body["kind"] != "Node" else body
            if kind == "WorkloadPriorityClass":
                self.classes[body["metadata"]["name"]] = parse.priority_class(body)
            elif kind in READERS:
                self.engine.observe(Put(READERS[kind](body)))
            else:
                self._submit(body)

    def _submit(self, body: Json) -> None:
        kind = kind_of(body["apiVersion"], body["kind"])
        assert kind is not None, body["kind"]
        name = body["metadata"]["name"]
        body["metadata"] |= {"uid": name, "resourceVersion": "1"}
        job = JobObject(body)
        priority = self.classes.get(job.labels.get(names.PRIORITY_CLASS, ""), 0)
        made = workloads.build(kind, job, kind.pod_sets(job), queue=job.queue_name, priority=priority)
        made["metadata"] |= {"uid": name, "name": name}
        self.jobs[name] = replace(parse.workload(made), created=self.now)
        self.engine.observe(Put(self.jobs[name]))

    def standing(self) -> dict[str, tuple[str, int]]:
        """Of each job whether it runs or waits, and its GPUs: those that it has, or those that it wants."""
        return {
            name: (
                "waits" if job.admission is None else "runs",
                sum(
                    (pods.count if job.admission is None else job.admission.pod_sets[number].count) * pods.requests[GPU]
                    for number, pods in enumerate(job.pod_sets)
                ),
            )
            for name, job in self.jobs.items()
        }

    def ends(self, name: str) -> None:
        self.engine.observe(Gone(Workload, f"{self.jobs[name].namespace}/{name}"))

    def ready(self, name: str) -> None:
        self._observe(name, pods_ready=True, pods_ready_at=self.now)

    def _observe(self, name: str, **changes: Any) -> None:
        self.jobs[name] = replace(self.jobs[name], **changes)
        self.engine.observe(Put(self.jobs[name]))

    def decided(self) -> list[str]:
        """A line for each decision, until nothing more is decided."""
        lines: list[str] = []
        for _ in range(10):
            self.now += 1000
            decisions = self.engine.decide(self.now)
            lines += [line for each in decisions for line in self._said(each)]
            stopped = [each for each in decisions if isinstance(each, Preempt)]
            for each in stopped:
                self._observe(
                    each.workload.partition("/")[2], admission=None, evicted="Preempted", requeued=True, admitted=False
                )
            if not stopped:
                return lines
        pytest.fail(f"no end of decisions: {lines}")

    def _said(self, decision: Decision) -> Iterator[str]:
        name = decision.workload.partition("/")[2]
        match decision:
            case Admit():
                admitted = decision.admission.pod_sets
                self._observe(
                    name, admission=decision.admission, admitted=True, admitted_at=self.now, reserved_at=self.now
                )
                flavors = dict.fromkeys(flavor for each in admitted for flavor in each.flavors.values())
                less = [
                    each
                    for each, whole in zip(admitted, self.jobs[name].pod_sets, strict=True)
                    if each.count < whole.count
                ]
                places = [
                    domain.values for each in admitted if each.topology is not None for domain in each.topology.domains
                ]
                more = f", with {less[0].count} of {self.jobs[name].pod_sets[0].count} pods" if less else ""
                more += f", on {', '.join('/'.join(each) for each in places)}" if places else ""
                yield f"{name} starts on {', '.join(flavors)}{more}"
            case Preempt():
                yield f"{name} is stopped for {decision.by.partition('/')[2]}"
            case ReportPending(explanation=explanation):
                yield f"{name} waits: {brief(explanation.reason, explanation.message)}"
            case _:
                pass


def completed(body: Json) -> Json:
    """The object as the webhooks complete it, and accept it. Fields that its kind does not have fail the test."""
    assert list(unknown(body, SCHEMAS[body["kind"], body["apiVersion"]])) == []
    if body["kind"] not in WITHOUT_RULES:
        body = admission.default(body, None, AdmissionFacts()).obj
        assert admission.validate(body, None, AdmissionFacts()) == [], body
    return body


def unknown(value: Any, schema: Json, path: str = "") -> Iterator[str]:
    """Fields that a schema does not know."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or path == ".metadata":
        return
    if isinstance(value, dict) and "properties" in schema:
        for key, inner in value.items():
            if key in schema["properties"]:
                yield from unknown(inner, schema["properties"][key], f"{path}.{key}")
            elif path or key not in ("apiVersion", "kind", "metadata"):
                yield f"{path}.{key}"
    elif isinstance(value, list) and "items" in schema:
        for each in value:
            yield from unknown(each, schema["items"], f"{path}[]")


def follow(page: Path) -> list[tuple[str, list[str], dict[str, tuple[str, int]]]]:
    """Of each `text` block: its words, the lines that were decided, and how the jobs stand then."""
    blocks = [(match[1] or match[3], match[2] or match[4]) for match in BLOCK.finditer(page.read_text())]
    configured = [yaml.safe_load(text) for kind, text in blocks if kind == "yaml" and "kind: Configuration" in text]
    story = Story(load(configured[0]).settings if configured else None)
    found: list[tuple[str, list[str], dict[str, tuple[str, int]]]] = []
    for kind, text in blocks:
        if kind == "yaml" and "kind: Configuration" not in text:
            story.take(text)
        elif kind == "ends":
            story.ends(text)
        elif kind == "ready":
            story.ready(text)
        elif kind == "text":
            found.append((text, story.decided(), story.standing()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_engine_decides_as_the_page_says(page: Path) -> None:
    found = follow(page)
    assert found, "a page shows what is decided"
    for said, decided, _ in found:
        assert said.splitlines() == decided, f"{page.name}: {decided}"


# --- drawings ---------------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = {page: FOLDER.parent / "pictures" / f"{page.stem}-light.svg" for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if DRAWN[page].exists()], ids=lambda page: page.stem)
def test_a_drawing_shows_the_jobs_as_the_engine_left_them(page: Path) -> None:
    """All jobs of that moment, as wide as their GPUs, in bars that do not overlap."""
    found = follow(page)
    moments = [each for each in ET.parse(DRAWN[page]).getroot() if "data-after" in each.attrib]
    assert moments
    for moment in moments:
        bars = [each for each in moment if "data-job" in each.attrib]
        drawn = {bar.attrib["data-job"]: (bar.attrib["data-state"], int(bar.attrib["data-gpus"])) for bar in bars}
        assert drawn == found[int(moment.attrib["data-after"])][2]
        boxes = [bar.find(f"{SVG}rect") for bar in bars]
        rows = [{key: float(box.attrib[key]) for key in ("x", "y", "width")} for box in boxes if box is not None]
        assert len({row["width"] / drawn[bar.attrib["data-job"]][1] for row, bar in zip(rows, bars, strict=True)}) == 1
        rows.sort(key=lambda row: (row["y"], row["x"]))
        assert all(a["y"] != b["y"] or a["x"] + a["width"] <= b["x"] for a, b in pairwise(rows))


def test_there_is_a_page_for_each_concept() -> None:
    assert {page.stem for page in PAGES} >= {
        "queues",
        "borrowing",
        "fair-sharing",
        "preemption",
        "topology",
        "partial-admission",
        "wait-for-pods-ready",
    }


def test_a_field_that_does_not_exist_is_found() -> None:
    body = {
        "kind": "ClusterQueue",
        "apiVersion": names.V1BETA2,
        "metadata": {},
        "spec": {"cohort": "x", "cohortName": "y"},
    }
    assert list(unknown(body, SCHEMAS["ClusterQueue", names.V1BETA2])) == [".spec.cohort"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_of_concepts_are_short_and_name_no_source(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) < 900
    assert not re.search(r"`?(operator|tests)/|\.py\b|\b[0-9a-f]{8}\b|\b20\d\d\b", text)
    assert "<picture>" in text
