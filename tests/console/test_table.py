from __future__ import annotations

import pytest
from tests.console.objects import (
    GPU,
    NOW,
    cluster_queue,
    condition,
    flavor,
    local_queue,
    pending,
    running,
    workload,
)

from gangline.console.commands.see import nodes
from gangline.console.output.layout import Rows
from gangline.console.views import jobs, table
from gangline.control.answers.workloads.snapshot import Snapshot, snapshot
from gangline.control.answers.workloads.words import age
from gangline.objects import Stored

TOO_BIG = (
    f"couldn't assign flavors to pod set main: insufficient quota for {GPU} in flavor a100, previously considered "
    "podsets requests (0) + current podset request (64) > maximum capacity (48)"
)
SHORT = f"couldn't assign flavors to pod set main: insufficient unused quota for {GPU} in flavor a100, 8 more needed"


def seen() -> Snapshot:
    return snapshot(
        [
            running("resnet", pods=6, priority=100),
            pending("later", "WaitingForQuota", SHORT, ago=70),
            pending("huge", "ExceedsMaxQuota", TOO_BIG, gpus=64, kind="GPUJob"),
            workload("done", condition("Finished", True, "Succeeded")),
        ],
        [
            cluster_queue("vision", flavor("a100", 40, 48, 8), flavor("h100", 24), pending=2, admitted=1),
            cluster_queue("stopped", flavor("a100", 24), cohort="", active=False),
        ],
        [local_queue()],
    )


def rows_by_name(rows: Rows) -> dict[str, dict[str, str]]:
    return {row[1]: dict(zip(rows.header, row, strict=True)) for row in rows.cells}


def test_a_workload_row_says_who_what_where_and_why():
    rows = rows_by_name(jobs.rows(seen().workloads, NOW))
    assert rows["resnet"] == {
        "NAMESPACE": "team-vision",
        "NAME": "resnet",
        "KIND": "Job",
        "QUEUE": "vision",
        "GPUS": "48",
        "PRIO": "100",
        "STATE": "Running",
        "POS": "",
        "AGE": "30s",
        "REASON": "on a100",
    }
    assert rows["later"]["POS"] == "1"
    assert rows["later"]["REASON"] == "WaitingForQuota: a100: 8 more GPUs needed"
    assert rows["huge"]["STATE"] == "Never fits"
    assert rows["huge"]["REASON"] == "ExceedsMaxQuota: a100: asks 64 GPUs, can never get more than 48"
    assert rows["done"]["STATE"] == "Succeeded"


def test_wide_adds_columns_and_kueues_own_message():
    rows = jobs.LISTING.rows([jobs.ListedJob(seen().workloads[1])], NOW, wide=True)
    (row,) = rows.cells
    assert SHORT in row
    assert row[rows.header.index("WORKLOAD")].startswith("job-later-")


def test_a_queue_without_a_cluster_queue_is_marked():
    (lost,) = snapshot([pending("w", queue="nope")], [], []).workloads
    assert rows_by_name(jobs.rows([lost], NOW))["w"]["QUEUE"] == "nope?"


def test_queue_rows_show_each_flavor_and_the_queue_once():
    rows = table.queue_rows(seen())
    assert rows.cells == (
        ("stopped", "–", "a100", GPU, "0/24", "–", "0", "0", "Stopped"),
        ("vision", "lab", "a100", GPU, "48/40", "8", "1", "2", ""),
        ("", "", "h100", GPU, "0/24", "–", "", "", ""),
    )


def test_a_queue_without_quota_still_has_a_row():
    status = {"conditions": [condition("Active", True, "Ready")]}
    bare = Stored({"metadata": {"name": "bare"}, "spec": {}, "status": status})
    assert table.queue_rows(snapshot([], [bare], [])).cells == (("bare", "–", "–", "–", "–", "–", "0", "0", ""),)


def drawn(rows: Rows, width: int, most: int) -> list[str]:
    return [line.plain for line in table.draw(rows, width, most)]


def test_a_limited_table_says_how_much_it_leaves_out():
    rows = Rows(("A", "B"), tuple((str(i), "x") for i in range(10)))
    assert drawn(rows, 60, 5) == ["A  B", "0  x", "1  x", "2  x", "… 7 more"]
    assert drawn(rows, 60, 11)[-1] == "9  x" and drawn(rows, 60, 10)[-1] == "… 2 more"
    assert drawn(rows, 60, 2) == drawn(rows, 60, 0) == drawn(rows, 60, -3) == []
    assert drawn(Rows(("A",), ()), 60, 9) == []


def test_no_row_is_cut_from_the_text_below_it():
    rows = Rows(("NAME", "WHY"), tuple((str(i) * 50, "because of " * 8) for i in range(3)))
    assert [len(drawn(rows, 80, most)) for most in range(3, 9)] == [0, 4, 4, 6, 7, 7]
    assert drawn(rows, 80, 5)[-2:] == ["    " + ("because of " * 8)[:75] + "…", "… 2 more"]


def test_a_whole_table_leaves_nothing_out():
    text = "\n".join(drawn(jobs.rows(seen().workloads, NOW), 200, 5))
    assert "more" not in text.replace("more GPUs", "").replace("more than", "")
    assert all(name in text for name in ("resnet", "later", "huge", "done"))


def test_one_line_tells_a_change():
    line = table.change_line(seen().workloads[0], 12.34)
    assert line.split() == [
        "12.3s",
        "Running",
        "vision",
        "job/resnet",
        "(48",
        "GPUs,",
        "priority",
        "100):",
        "on",
        "a100",
    ]


def test_one_line_tells_how_all_of_it_stands():
    line = table.counts_line(seen(), 5.0)
    assert line.strip() == "5.0s  1 running, 2 waiting, 1 finished; 48/88 GPUs in use"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (59.9, "59s"),
        (119, "119s"),
        (120, "2m"),
        (192, "3m12s"),
        (47 * 60 + 5, "47m"),
        (2 * 3600, "120m"),
        (5 * 3600 + 600, "5h10m"),
        (6 * 3600, "6h"),
        (30 * 3600, "30h"),
        (76 * 3600, "3d4h"),
        (12 * 86400 + 5, "12d"),
    ],
)
def test_ages_are_as_kubectl_prints_them(seconds, text):
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("resource", "used", "total", "shown"),
    [
        ("memory", "640Mi", "24632456Ki", "0.6/23.5Gi"),
        ("memory", "0", "1Ti", "0/1024Gi"),
        ("memory", "1Mi", "64Gi", "<0.1/64Gi"),
        ("cpu", "1500m", "192", "1.5/192"),
        ("cpu", "10m", "1930m", "<0.1/1.9"),
    ],
)
def test_what_a_node_uses_and_has_is_in_one_unit(resource: str, used: str, total: str, shown: str) -> None:
    assert nodes._use({"used": {resource: used}, "capacity": {resource: total}}, resource) == shown
