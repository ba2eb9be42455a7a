"""`gangline admin probe`: from a file of measured pairs, and from pods on a node, whose API and clock are simulated here."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.forecast.test_pairs import SIMULATION

from gangline.api.profiles import profile
from gangline.console.cli import main
from gangline.console.probing.pod_prober import LABEL, PodProber, ReportReceiver, Times, Use, manifests_of
from gangline.console.probing.probes import FileProber, ProbeError, manifest, measure, name_of
from gangline.engine.model import CompanySpeed, JobProfile, SpeedAlone
from gangline.forecast.pairs import pair_file

Json = dict[str, Any]


def test_from_a_file_the_profiles_say_what_the_file_says() -> None:
    words = ["admin", "probe", "A3C", "CycleGAN", "--gpu", "v100", "--file", str(SIMULATION)]
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0, shown.output
    found = {(facts := profile(each)).profile.name: facts for each in yaml.safe_load_all(shown.stdout)}
    assert found.keys() == {"A3C", "CycleGAN"}
    file = pair_file.read(SIMULATION)
    for name, facts in found.items():
        expected = {pair.beside: pair.speed for pair in file.profiles[name].pairs if pair.gpu == "v100"}
        got = {pair.beside: pair.speed for pair in facts.profile.pairs}
        assert got == {other: pytest.approx(expected[other], rel=1e-3) for other in ("A3C", "CycleGAN")}


def test_pairs_that_do_not_fit_are_said_to_run_out_of_memory() -> None:
    file = pair_file.read(SIMULATION)
    prober = FileProber(file.profiles, "k80")
    one, other = next(
        (name, pair.beside)
        for name, each in file.profiles.items()
        for pair in each.pairs
        if pair.gpu == "k80" and pair.out_of_memory and prober.alone(pair.beside)
    )
    found = {each.name: each for each in measure((one, other), prober)}
    assert next(pair for pair in found[one].pairs if pair.beside == other).out_of_memory
    written = {each["beside"]: each for each in manifest(found[one])["spec"]["pairs"]}
    assert written[other]["outOfMemory"] is True and "slowdown" not in written[other]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["A3C"], "give --file, or --pods and --node"),
        (["A3C", "--pods", str(SIMULATION)], "--pods needs --node"),
        (["B4D", "--file", str(SIMULATION)], "B4D: the file has no such class on v100"),
        ([f"a{number}" for number in range(41)], "at most 40 classes"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str) -> None:
    shown = CliRunner().invoke(main, ["admin", "probe", "--gpu", "v100", *words])
    assert shown.exit_code != 0 and said in shown.output


@pytest.mark.parametrize("kind", ["lammps", "ResNet-50/batch-32", "A", "a..b", "x" * 253, "-".join("ab" * 126)])
def test_names_of_profiles_can_be_names_of_objects(kind: str) -> None:
    import re

    name = name_of(kind)
    assert len(name) <= 253 and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)
    assert name_of("lammps") == "lammps" and name_of("Lammps") != "lammps"


# --- pods on a node ---------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """A node with one shared card: pods make steps by the law of their classes, and report them."""

    rates: dict[tuple[str, ...], float]
    receiver: ReportReceiver
    by_annotation: bool = False
    #: pairs of which one pod dies
    deadly: frozenset[str] = frozenset()
    now: float = 1000.0
    pods: dict[str, Json] = field(default_factory=dict[str, Json])
    begun: dict[str, float] = field(default_factory=dict[str, float])
    most: int = 0

    # the API, as the official client has it

    def create_namespaced_pod(self, namespace: str, body: Json, **_: Any) -> None:
        assert namespace == "probes" and json.dumps(body)
        self.pods[body["metadata"]["name"]] = body
        self.begun[body["metadata"]["name"]] = self.now + 5
        self.most = max(self.most, len(self.pods))

    def delete_collection_namespaced_pod(self, namespace: str, *, label_selector: str, **_: Any) -> None:
        assert label_selector == LABEL
        self.pods.clear()

    def list_namespaced_pod(self, namespace: str, *, label_selector: str, **_: Any) -> Any:
        return SimpleNamespace(items=[each for each in self.pods.values() if LABEL in each["metadata"]["labels"]])

    def read_namespaced_pod(self, name: str, namespace: str, **_: Any) -> Any:
        body, kind = self.pods[name], self._kind(name)
        others = sorted(self._kind(each) for each in self.pods if each != name)
        ended = None
        if others and kind in self.deadly and self.now > self.begun[name] + 3:
            ended = SimpleNamespace(reason="OOMKilled", exit_code=137)
        annotations: dict[str, str] = {}
        steps = int(max(0.0, self.now - self.begun[name]) * self.rates.get((kind, *others), 0.0))
        if steps and self.by_annotation:
            annotations["gangline.io/progress"] = f"step={steps}"
        elif steps:
            (env,) = (e["value"] for e in body["spec"]["containers"][0]["env"] if e["name"] == "GANGLINE_PROGRESS_URL")
            self.receiver.take("/" + env.rpartition("/")[2], json.dumps({"step": steps}).encode())
        state = SimpleNamespace(terminated=ended)
        status = SimpleNamespace(
            phase="Failed" if ended else "Running", reason=None, container_statuses=[SimpleNamespace(state=state)]
        )
        return SimpleNamespace(status=status, metadata=SimpleNamespace(annotations=annotations))

    def _kind(self, name: str) -> str:
        return self.pods[name]["metadata"]["annotations"]["gangline.io/class"]

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pod(kind: str, **spec: Any) -> Json:
    meta = {"name": "x", "labels": {"kueue.x-k8s.io/queue-name": "q"}, "annotations": {"gangline.io/class": kind}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}}


def prober(node: Node, **more: Any) -> PodProber:
    given = {"times": Times(60, 10, 40), "usage": lambda _: Use(47, 3 << 30), **more}
    manifests = manifests_of([pod("a"), pod("b", nodeSelector={"x": "y"})])
    return PodProber(
        node, manifests, "probes", "n1", "V100", "MPS", receiver=node.receiver, address="http://10.0.0.1:1/",
        clock=lambda: node.now, sleep=node.sleep, **given,
    )  # fmt: skip


RATES = {("a",): 10.0, ("b",): 4.0, ("a", "a"): 5.0, ("a", "b"): 8.0, ("b", "a"): 2.0, ("b", "b"): 2.0}


@pytest.fixture
def receiver() -> Any:
    found = ReportReceiver("127.0.0.1")
    yield found
    found.close()


@pytest.mark.parametrize("by_annotation", [False, True])
def test_each_class_runs_alone_and_in_pairs_on_the_node(receiver: ReportReceiver, by_annotation: bool) -> None:
    node = Node(RATES, receiver, by_annotation)
    found = list(measure(("a", "b"), prober(node)))
    assert found == [
        JobProfile(
            "a",
            (
                CompanySpeed("a", "V100", "MPS", speed=pytest.approx(0.5, rel=0.03), samples=2),
                CompanySpeed("b", "V100", "MPS", speed=pytest.approx(0.8, rel=0.03)),
            ),
            (SpeedAlone("V100", pytest.approx(10, rel=0.03), 3 * 1024, 47),),
        ),
        JobProfile(
            "b",
            (
                CompanySpeed("a", "V100", "MPS", speed=pytest.approx(0.5, rel=0.06)),
                CompanySpeed("b", "V100", "MPS", speed=pytest.approx(0.5, rel=0.06), samples=2),
            ),
            (SpeedAlone("V100", pytest.approx(4, rel=0.06), 3 * 1024, 47),),
        ),
    ]
    assert node.most == 2 and not node.pods, "nothing is left"
    for each in found:
        profile({**manifest(each)})


def test_a_pod_that_dies_beside_another_one_ran_out_of_memory(receiver: ReportReceiver) -> None:
    node = Node(RATES, receiver, deadly=frozenset({"b"}))
    found = {
        each.name: {pair.beside: pair.out_of_memory for pair in each.pairs}
        for each in measure(("a", "b"), prober(node))
    }
    assert found == {"a": {"a": False, "b": True}, "b": {"a": True, "b": True}} and not node.pods


def test_pods_go_to_the_node_wait_in_no_queue_and_end_by_themselves(receiver: ReportReceiver) -> None:
    node = Node(RATES, receiver)
    made: list[Json] = []
    create = node.create_namespaced_pod

    def spy(namespace: str, body: Json, **more: Any) -> None:
        made.append(body)
        create(namespace, body, **more)

    node.create_namespaced_pod = spy  # type: ignore[method-assign]
    prober(node).together("b", "b")
    for each in made:
        spec, meta = each["spec"], each["metadata"]
        assert spec["nodeSelector"] == {"x": "y", "kubernetes.io/hostname": "n1"} and spec["restartPolicy"] == "Never"
        assert spec["activeDeadlineSeconds"] == 170 and meta["labels"] == {LABEL: "true"}
        (url,) = (env["value"] for env in spec["containers"][0]["env"] if env["name"] == "GANGLINE_PROGRESS_URL")
        assert url.startswith("http://10.0.0.1:1/")


def test_a_class_that_makes_no_steps_or_fails_alone_is_named_and_nothing_is_left(receiver: ReportReceiver) -> None:
    node = Node({}, receiver)
    with pytest.raises(ProbeError, match="a: reported too few steps on node n1"):
        list(measure(("a",), prober(node)))
    assert not node.pods
    with pytest.raises(ProbeError, match="c: no manifest of a pod has this class"):
        list(measure(("c",), prober(node)))


def test_pods_that_an_earlier_probe_left_are_deleted_first(receiver: ReportReceiver) -> None:
    node = Node(RATES, receiver)
    node.pods["old"] = {"metadata": {"labels": {LABEL: "true"}, "annotations": {"gangline.io/class": "a"}}, "spec": {}}
    assert prober(node).alone("a").rate == pytest.approx(10, rel=0.03) and node.most == 1


@pytest.mark.parametrize("documents", [[{}], [7], [{"kind": "Job"}], [pod("a"), pod("a")]])
def test_only_pods_with_a_class_of_their_own_are_run(documents: list[Any]) -> None:
    with pytest.raises(ProbeError, match=r"document [12]:"):
        manifests_of(documents)


def test_reports_are_received_and_others_are_refused(receiver: ReportReceiver) -> None:
    path = receiver.path_for("p")

    def post(where: str, body: bytes) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{receiver.port}{where}", body)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert post(path, b'{"step": 7}') == 204 and receiver.step("p") == 7
    assert post(path, b'{"step": -1}') == 404 and post("/guess", b'{"step": 9}') == 404
    assert post(path, b"x" * 5000) == 413 and receiver.step("p") == 7


def test_the_command_reads_pods_and_names_what_is_wrong_with_them(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text("kind: Job")
    (tmp_path / "kubeconfig").write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    words = ["admin", "probe", "a", "--gpu", "x", "--node", "n", "--pods", str(tmp_path / "pods.yaml"), "--listen"]
    more = ["127.0.0.1:0", "--kubeconfig", str(tmp_path / "kubeconfig")]
    shown = CliRunner().invoke(main, [*words, *more])
    assert shown.exit_code == 1 and "document 1: is no Pod with the annotation gangline.io/class" in shown.output
