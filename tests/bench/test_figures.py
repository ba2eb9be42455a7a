"""The arithmetic of the benchmark: what /metrics, /proc, samples and records are turned into."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.load import Record, quantile, summary
from bench.parameters import gate, read
from bench.report import beyond, combine
from bench.usage import requests, total, usage

from bench import sampler

METRICS = """\
# HELP apiserver_request_total Counter of requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="workloads",subresource="",verb="POST",version="v1beta2"} 10
apiserver_request_total{code="409",resource="workloads",subresource="",verb="POST",version="v1beta2"} 2
apiserver_request_total{code="200",resource="workloads",subresource="status",verb="PATCH",version="v1beta2"} 7
apiserver_request_total_other{verb="PATCH",resource="workloads"} 5
plain 2.5
"""


def test_requests_are_counted_by_verb_and_resource():
    assert requests(METRICS, "apiserver_request_total") == {"create workloads": 12, "patch workloads/status": 7}


def test_totals_select_by_label():
    assert total(METRICS, "apiserver_request_total", verb="POST") == 12
    assert total(METRICS, "apiserver_request_total", verb="POST", code="409") == 2
    assert total(METRICS, "absent") == 0


def test_usage_of_a_process_that_is_gone():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(OSError):
        usage(child.pid)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 5), (0.95, 10), (1.0, 10)])
def test_quantiles_are_observed_values(share: float, value: int):
    assert quantile(range(1, 11), share) == value


def test_summary_of_records():
    load = read("baseline", "single")
    small, _, large = load.classes
    records = [
        Record(small, seen=0.0, first_admitted=1.0, admitted=5.0, finished=6.0, evictions=1, held=2.0),
        Record(large, seen=1.0, first_admitted=3.0, admitted=3.0, finished=9.0, held=6.0),
        Record(large, seen=1.0),
    ]
    result = summary(load, records, wall=10.0)
    assert (result["finished"], result["evictions"]) == (2, 1)
    assert result["quota_use"] == pytest.approx((2.0 * 1 + 6.0 * 20) / (20 * 10.0))
    waits = result["time_to_admission_seconds"]
    assert waits["small"]["mean"] == 5.0 and waits["small"]["first_mean"] == 1.0
    assert waits["large"]["count"] == 1 and waits["large"]["p95"] == 2.0
    assert waits["medium"] == {"count": 0}


def test_both_bounds_stand_beside_the_run():
    load = read("baseline", "full")
    run = {"wall_seconds": 120.0, "finished": 15_000, "workloads": 15_000, "cpu_seconds": {"operator": 30.0}}
    result = combine(load, run, {"wall_seconds": 100.0})
    assert result["capacity_bound_seconds"] == 66.0
    assert result["api_floor_seconds"] == 100.0
    assert result["wall_over_api_floor"] == 1.2
    assert result["quota_use_at_api_floor"] == 0.66
    assert result["operator_cpu_ms_per_workload"] == 2.0
    assert result["complete"] is True
    assert combine(load, {**run, "finished": 14_999}, None)["complete"] is False


def test_kueue_stands_beside_the_run():
    load = read("baseline", "full")
    run = {"wall_seconds": 120.0, "finished": 15_000, "workloads": 15_000, "cpu_seconds": {"operator": 30.0}}
    result = combine(load, run, kueue={"wall_seconds": 400.0})
    assert result["wall_over_kueue"] == 0.3
    assert "wall_over_api_floor" not in result


def test_the_gate_names_each_figure_that_is_beyond_its_limit_or_missing():
    limits = gate()
    run = {
        "wall_seconds": 20.0,
        "finished": 1500,
        "workloads": 1500,
        "cpu_seconds": {"operator": 3.0, "kube-apiserver": 20.0},
        "writes_per_workload": 1.2,
    }
    good = combine(read("baseline", "tenth"), run, {"wall_seconds": 14.0})
    assert good["operator_over_apiserver_cpu"] == 0.15
    assert beyond(good, limits) == []
    slow = combine(read("baseline", "tenth"), {**run, "writes_per_workload": 4.2}, {"wall_seconds": 8.0})
    assert beyond(slow, limits) == [
        "wall_over_api_floor: 2.5; the limit is 2",
        "writes_per_workload: 4.2; the limit is 3.2",
    ]
    without = combine(read("baseline", "tenth"), run)
    assert beyond(without, limits) == ["wall_over_api_floor: not measured; the limit is 2"]


def test_shares_and_top_of_samples(tmp_path: Path):
    stacks = tmp_path / "stacks"
    stacks.write_text(
        "a.py:main:1;gangline/engine/cycle/tree_cycle.py:run:3 30\n"
        "a.py:main:1;gangline/control/x.py:act:9;gangline/engine/quota/quota_ledger.py:fit:2 10\n"
        "a.py:main:2 60\n"
    )
    assert sampler.shares(stacks, "gangline/engine/") == pytest.approx(0.4)
    first, second, *_ = sampler.top(stacks)
    assert first.split() == ["60.0%", "100.0%", "a.py:main"]
    assert second.split() == ["30.0%", "30.0%", "gangline/engine/cycle/tree_cycle.py:run"]


def test_the_sampler_sees_who_computes(tmp_path: Path):
    out = tmp_path / "stacks"
    program = (
        "import sys, pathlib\n"
        "from bench.sampler import Sampler\n"
        "def burn():\n"
        "    return sum(i * i for i in range(3_000_000))\n"
        f"Sampler(pathlib.Path({str(out)!r})).start()\n"
        "burn()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
    assert ":burn" in out.read_text()
    assert any("burn" in line for line in sampler.top(out))
