"""A month of a public trace, played into the record of attempts at speed: the report has the trace's GPU-hours.

The trace is no part of this repository. GANGLINE_TRACES names the folder in which it is.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from gangline.console.commands.see.report import Report
from gangline.control.answers.sight import ALL
from gangline.control.answers.usage import attempts as attempt_rows
from gangline.forecast.history.attempts import JobAttempt
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.usage import Window

FOLDER = Path(os.environ.get("GANGLINE_TRACES") or Path(__file__).parents[3] / "shared" / "data" / "traces")
VENUS = FOLDER / "helios-venus-gpu-2020-mar-aug.csv.gz"
MONTH = 30 * 86_400
#: seconds of the trace after which what began and ended is written
STEP = 6 * 3600


def rows(first: float, last: float) -> Iterator[tuple[str, float, float, int]]:
    """Name, start, end and GPUs of what ran between two instants; the trace has no waits."""
    with gzip.open(VENUS, "rt", newline="") as file:
        for row in csv.DictReader(file):
            start, gpus = float(row["submit_s"]), int(row["gpu_num"])
            end = start + float(row["duration_s"])
            if gpus and start < last and end > first:
                yield row["job_id"], start, end, gpus


@pytest.mark.skipif(not VENUS.exists(), reason=f"there is no {VENUS}: the trace is not part of this repository")
def test_a_month_of_venus_has_the_gpu_hours_of_the_trace(tmp_path: Path) -> None:
    with gzip.open(VENUS, "rt", newline="") as file:
        begin = float(next(csv.DictReader(file))["submit_s"]) + MONTH
    end = begin + MONTH
    jobs = sorted(rows(begin, end), key=lambda row: row[1])
    assert len(jobs) > 10_000
    at = 1_790_000_000 - begin  # the trace's clock begins at 0
    running: list[tuple[float, int, JobAttempt]] = []
    number = 0
    with HistoryStore(str(tmp_path / "h.db")) as store:
        written: dict[str, JobAttempt] = {}
        for step in range(int(begin) - MONTH, int(end) + STEP, STEP):
            while number < len(jobs) and jobs[number][1] < step:
                name, start, stop, gpus = jobs[number]
                queue = f"vc{number % 7}"
                each = JobAttempt(
                    f"w-{name}", start + at, start + at, start + at, namespace="venus", workload=name, cluster_queue=queue,
                    gpus=gpus, flavor="v100", started=start + at, ready=start + at,
                )  # fmt: skip
                written[each.key] = each
                heapq.heappush(running, (stop, number, each))
                number += 1
            while running and running[0][0] < step:
                stop, _, each = heapq.heappop(running)
                written[each.key] = _ended(each, stop + at)
            store.put_attempts("here", written.values())
            written.clear()
        day = 86_400
        for since, until in (
            (begin, end),
            (begin + 3.5 * day, begin + 11.25 * day),
            (begin + 20 * day, begin + 20 * day + 1800),
        ):
            expected = Counter[str]()
            for place, (_, start, stop, gpus) in enumerate(jobs):
                expected[f"vc{place % 7}"] += gpus * max(0.0, min(stop, until) - max(start, since)) / 3600
            window = Window(since + at, until + at, cluster="here")
            sums = attempt_rows.sums(store.usage(window, ()), window, ALL)
            answer = {"items": sums.rows, "total": sums.total, "start": window.since, "end": window.until}
            report = Report.of("queue", UTC, answer).as_json()
            assert report["total"]["gpuHours"] == pytest.approx(sum(expected.values()), rel=0.001)
            assert report["total"]["usefulGpuHours"] == pytest.approx(report["total"]["gpuHours"])
            assert {row["name"]: row["gpuHours"] for row in report["items"]} == {
                name: pytest.approx(hours, rel=0.001) for name, hours in expected.items() if hours
            }


def _ended(each: JobAttempt, at: float) -> JobAttempt:
    return replace(each, ended=at, end="Succeeded")
