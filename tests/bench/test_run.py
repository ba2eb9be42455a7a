"""The benchmark itself, at its smallest, on a real control plane."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from bench.parameters import FILE

from bench import admission, curve, drain, gangs, soak
from gangline.kube.reflector import Upsert

CLASSES = {
    "small": {"count": 6, "every_ms": 20, "cpu": 1, "runtime_ms": 100, "priority": 50},
    "large": {"count": 2, "every_ms": 50, "cpu": 20, "runtime_ms": 200, "priority": 200},
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    document = yaml.safe_load(FILE.read_text())
    for load in ("baseline", "soak"):
        document["loads"][load] |= {"cohorts": 1, "queues_per_cohort": 2, "classes": CLASSES}
    document["loads"]["drain"] |= {
        "queues_per_cohort": 3,
        "racks": {"count": 4, "nodes": 13, "node_cpu": 96, "blocks": 2},
    }
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.cluster
def test_a_run_reports_all_figures(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    profile = tmp_path / "stacks"
    assert admission.main(["--parameters", str(tiny), "--profile", str(profile)]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert (result["workloads"], result["finished"], result["unfinished"]) == (16, 16, [])
    assert result["wall_seconds"] >= result["capacity_bound_seconds"] == pytest.approx(0.43)
    assert result["floor"]["finished"] == 16
    assert 0 < result["quota_use"] <= 2.0
    assert result["writes_per_workload"] >= 1.0
    assert result["floor"]["api_requests_per_workload"]["create workloads"] == pytest.approx(1.0)
    for name in ("operator", "kube-apiserver", "etcd", "load"):
        assert result["cpu_seconds"][name] > 0, name
        assert result["peak_memory_mb"][name] > 10, name
    for name in CLASSES:
        wait = result["time_to_admission_seconds"][name]
        assert 0 <= wait["mean"] <= wait["max"] and wait["p95"] <= wait["max"], name
    assert "gangline/control/controller.py" in profile.read_text()
    assert "API requests per workload" in captured.err


@pytest.mark.cluster
def test_a_short_soak_keeps_the_rules(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--minutes", "0.05", "--parameters", str(tiny)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["violations"] == []
    assert result["created"] == result["finished"] <= result["admissions"]
    assert result["created"] > 0 and result["checks_at_rest"] > 0


@pytest.mark.cluster
def test_a_queue_that_stays_deep_is_drained(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(drain, "WARM", 1.0)
    wanted = ["--depth", "20", "--shapes", "5", "--pace", "10", "--seconds", "3", "--parameters", str(tiny)]
    assert drain.main(wanted) == 0
    captured = capsys.readouterr()
    (point,) = json.loads(captured.out)["points"]
    assert (point["depth"], point["shapes"], point["violations"]) == (20, 5, [])
    assert point["admitted_per_second"] > 0 and point["requests"]["patch workloads/status"] >= 1
    assert "admitted/s" in captured.err


@pytest.mark.cluster
def test_gangs_get_their_nodes_from_kubernetes_and_from_gangline(
    capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr(gangs, "SETTLED", 3.0)
    assert gangs.main(["--gangs", "3", "--size", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["contender"] for each in found["contenders"]] == ["kubernetes", "gangline"]
    assert [(each["bound"], each["whole_gangs"]) for each in found["contenders"]] == [(6, 3), (6, 3)]


def test_a_gang_is_whole_when_its_last_pod_is_bound() -> None:
    seen = gangs.Bindings(gangs.Gangs(2, 2))
    seen.created |= {"g0": 0.0, "g1": 0.0}
    for name, node in (("g0-0", "n"), ("g1-0", "n"), ("g0-1", None), ("g0-0", "n"), ("g0-1", "n")):
        seen.take(Upsert({"metadata": {"name": name}, "spec": {"nodeName": node}}))
    assert (list(seen.complete), seen.bound, seen.done.is_set()) == (["g0"], 3, False)
    seen.take(Upsert({"metadata": {"name": "g1-1"}, "spec": {"nodeName": "n"}}))
    assert (len(seen.waits()), seen.done.is_set()) == (2, True)


@pytest.mark.parametrize(
    "given", [["--volcano", "/bin/true"], ["--kai", "/bin/true", "--kai-crds", "/"], ["--gangs", "0"]]
)
def test_a_peer_without_its_parts_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit):
        gangs.main(given)


@pytest.mark.parametrize(
    "option", [["--kueue", "/nowhere"], ["--load", "huge"], ["--size", "tiny"], ["--parameters", "/nowhere.yaml"]]
)
def test_a_wrong_choice_is_an_error_in_one_line(option: list[str], capsys: pytest.CaptureFixture[str]):
    assert admission.main(option) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_curve_without_a_point_is_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert curve.main(["--to", "1", "--parameters", str(tiny)]) == 2
    assert "--to 1" in capsys.readouterr().err


def test_more_shapes_than_there_are_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert drain.main(["--shapes", "1000"]) == 2
    assert "--shapes" in capsys.readouterr().err
