"""The fill benchmark on a small cluster: what is counted, what comes out, and what it reads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.bench import fill
from tests.bench.fill import TraceNode

from gangline.traces.trace import TraceError, TraceJob

NODES = tuple(TraceNode(f"n{number}", gpus=4, cpu_milli=32_000, memory=2**38) for number in range(10))
PODS = tuple(
    TraceJob(f"p{number}", 0, 0, gpus=gpus, gpu_milli=milli, cpu_milli=cpu, memory=2**30)
    for number, (gpus, milli, cpu) in enumerate(
        [(1, 0, 4000), (1, 600, 4000), (1, 300, 1000), (2, 0, 8000), (0, 0, 9000)] * 4
    )
)


def test_every_policy_gets_the_same_pods_and_the_default_wastes_less_than_chance() -> None:
    found = {run.policy: run for run in fill.fill(PODS, NODES, seeds=[1], load=1.3)}
    assert set(found) == set(fill.POLICIES)
    assert len({(run.pods, run.asked) for run in found.values()}) == 1
    for run in found.values():
        assert run.asked >= 1.3 * run.total == 1.3 * 40_000
        assert 0 < run.given <= run.total and run.placed < run.pods and run.reasons
    assert found["Fragmentation"].share > found["random"].share


def test_the_seed_alone_decides() -> None:
    def shares(seed: int) -> list[float]:
        return [run.share for run in fill.fill(PODS, NODES, policies=["random", "Fragmentation"], seeds=[seed])]

    assert shares(3) == shares(3)
    orders = [[pod.id for pod in fill.demanded(PODS, 40_000, 1.3, seed)] for seed in (3, 4)]
    assert orders[0] != orders[1]


def test_pods_without_gpus_fill_nothing() -> None:
    with pytest.raises(TraceError, match="no pod asks for a GPU"):
        list(fill.fill([pod for pod in PODS if not pod.gpus], NODES))


def test_pods_go_only_to_gpus_that_they_name() -> None:
    nodes = (TraceNode("a", 1, "T4", 9_000, 2**38), TraceNode("b", 1, "G2", 9_000, 2**38))
    pods = (TraceJob("p", 0, 0, gpus=1, cpu_milli=1, memory=1, flavor="G2|G3"),)
    (run,) = fill.fill(pods, nodes, policies=["Fragmentation"], load=2)
    assert (run.pods, run.placed) == (4, 1)
    assert run.reasons["the card is of another model"] == 3


def test_the_command_reads_openb_and_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    pods, nodes = tmp_path / "pods.csv.gz", tmp_path / "nodes.csv"
    rows = "p0,4000,1024,1,500,,LS,Pending,0,,\np1,4000,1024,0,0,,LS,Running,0,9,1\np2,4000,1024,2,1000,,LS,Running,0,9,1\n"
    with gzip.open(pods, "wt") as out:
        out.write(head + rows)
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\nn1,64000,262144,2,T4\n")
    read = fill.pods_of(pods)
    assert [(pod.gpus, pod.gpu_milli) for pod in read] == [(1, 500), (0, 0), (2, 0)], "those that never ran, too"
    assert fill.main([str(pods), str(nodes), "--seeds", "2", "--policies", "Fragmentation"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cluster"] == {"nodes": 2, "gpus": 4, "pods": 3, "load": 1.3}
    assert set(document["policies"]["Fragmentation"]["by_seed"]) == {"42", "43"}


@pytest.mark.parametrize("bad", [["--policies", "Best"], ["--load", "0"], ["--seeds", "0"]])
def test_the_command_refuses_what_it_does_not_know(bad: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        fill.main([str(tmp_path / "pods"), str(tmp_path / "nodes"), *bad])


def test_the_list_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,1024,2,P100\n")
    assert fill.nodes_of(path) == (TraceNode("n0", 2, "P100", 64_000, 2**30),)
