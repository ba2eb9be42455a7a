from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from bench.drain import Point, shaped
from bench.parameters import FILE, ParameterError, gate, read

from bench import objects


def test_the_baseline_is_kueues():
    load = read("baseline", "full")
    assert (len(load.queues), load.workloads, load.quota) == (30, 15_000, 600)
    assert load.capacity_bound == pytest.approx(66.0)
    assert load.schedule == pytest.approx(49 * 1.2)


def test_the_larger_loads_have_the_sizes_of_the_goal():
    large, tas, jobs = (read(name, "full") for name in ("large", "tas", "jobs"))
    assert (len(large.queues), large.workloads) == (1000, 50_000)
    assert tas.workloads == 15_000 and tas.nodes is not None
    assert tas.quota <= tas.nodes.racks * tas.nodes.per_rack * tas.nodes.cpu
    assert {kind.pods for kind in tas.classes} == {2, 4, 8}
    assert jobs.workloads == 3000


@pytest.mark.parametrize("name", ["baseline", "large", "tas", "jobs"])
@pytest.mark.parametrize("size", ["full", "half", "fifth", "tenth", "smoke", "single"])
def test_every_load_has_every_size(name: str, size: str):
    load, full = read(name, size), read(name, "full")
    assert 0 < load.workloads <= full.workloads
    assert load.capacity_bound <= full.capacity_bound * 1.5
    assert [kind.name for kind in load.classes] == [kind.name for kind in full.classes]


def test_the_shapes_of_a_deep_queue_differ_and_fill_the_cores_at_the_pace() -> None:
    load = shaped(read("drain", "full"), Point(100, 200, 50.0))
    assert load.nodes is not None and load.nodes.cores == 1300 * 96 == load.quota
    assert len({(kind.pods, kind.cpu, kind.topologies) for kind in load.classes}) == 200
    work = sum(kind.cores * kind.runtime for kind in load.classes) / 200
    assert 50.0 * work == pytest.approx(load.nodes.cores)
    assert all(0 < kind.cpu <= load.nodes.cpu and kind.pods <= load.nodes.per_rack for kind in load.classes)


def test_racks_are_in_blocks() -> None:
    load = read("drain", "full")
    assert load.nodes is not None
    made = list(objects.nodes(load.nodes))
    blocks = Counter(node["metadata"]["labels"][objects.BLOCK] for node in made)
    assert len(made) == 1300 and set(blocks.values()) == {130} and len(blocks) == 10
    topology = next(body for body in objects.setup(load) if body["kind"] == "Topology")
    assert len(topology["spec"]["levels"]) == 3


def test_a_share_scales_every_class():
    assert [kind.count for kind in read("baseline", "tenth").classes] == [35, 10, 5]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cohorts": 0}, "loads.baseline.cohorts"),
        ({"nominal_cpu": "20"}, "loads.baseline.nominal_cpu"),
        ({"nominal_cpu": True}, "loads.baseline.nominal_cpu"),
        ({"classes": {}}, "loads.baseline.classes"),
        ({"classes": {"small": {"count": 1}}}, "loads.baseline.classes.small.every_ms"),
        ({"racks": {"count": 1}}, "loads.baseline.racks.nodes"),
    ],
)
def test_a_wrong_parameter_is_named(tmp_path: Path, change: dict[str, object], field: str):
    document = yaml.safe_load(FILE.read_text())
    document["loads"]["baseline"].update(change)
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ParameterError, match=field):
        read("baseline", "full", path)


def test_an_unknown_load_or_size_says_what_there_is():
    with pytest.raises(ParameterError, match=r"no 'huge'.*baseline, large, tas, jobs"):
        read("huge", "full")
    with pytest.raises(ParameterError, match=r"no 'tiny'.*smoke"):
        read("baseline", "tiny")


def test_an_unknown_topology_is_named(tmp_path: Path):
    document = yaml.safe_load(FILE.read_text())
    document["loads"]["tas"]["classes"]["small"]["topologies"] = ["nearby"]
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ParameterError, match=r"small\.topologies: 'nearby'"):
        read("tas", "full", path)


def test_a_wrong_limit_of_the_gate_is_named(tmp_path: Path):
    path = tmp_path / "bench.yaml"
    path.write_text("gate: {writes_per_workload: 0}")
    with pytest.raises(ParameterError, match=r"gate\.writes_per_workload: a number above 0"):
        gate(path)
    path.write_text("loads: {}")
    with pytest.raises(ParameterError, match="no 'gate'"):
        gate(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ParameterError, match=r"absent\.yaml"):
        read("baseline", "full", tmp_path / "absent.yaml")
