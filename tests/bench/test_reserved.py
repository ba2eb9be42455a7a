"""The benchmark of windows on months of traces asks for what a cluster would take."""

from __future__ import annotations

import pytest

from bench import reserved
from gangline.api.quota_plans import quota_plan
from gangline.api.reservations import SomeNodes, reservation


def test_a_quarter_of_the_nodes_and_of_the_quota() -> None:
    maintenance = reservation({"spec": reserved.maintenance(78, {})})
    assert maintenance.maintenance and maintenance.any_of == SomeNodes("gpu", 19)
    plan = quota_plan({"spec": reserved.calendar(624, {"startWithCheckpoints": "1h"})})
    ((change,),) = (each.changes.values() for each in plan.overrides)
    assert plan.recall is not None and change.nominal == 468 and plan.recall.shortest_run == 3_600_000


def test_odd_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--months", "pai"], ["--days", "0"], ["--load", "3"]):
        with pytest.raises(SystemExit):
            reserved.options_of(["--traces", ".", *arguments])
    assert "unknown: pai" in capsys.readouterr().err
