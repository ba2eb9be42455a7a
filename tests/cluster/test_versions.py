"""The main path and the crash test on older versions of Kubernetes; all other tests run on the newest.

They are the tests of those modules, with a control plane of another version. `make test-kubernetes VERSION=1.31` runs all tests
on one version.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster import test_crash
from tests.cluster.conftest import System, standing
from tests.cluster.harness import Api
from tests.cluster.test_main_path import (  # collected here, too
    test_a_gpujob_runs_with_its_rendezvous,
    test_a_job_is_admitted_runs_and_finishes,
    test_preemption_stops_the_victim_and_it_resumes,
)
from tests.controlplane import require_control_plane

from gangline.devcluster.building.build import OLDEST

__all__ = [
    "test_a_gpujob_runs_with_its_rendezvous",
    "test_a_job_is_admitted_runs_and_finishes",
    "test_preemption_stops_the_victim_and_it_resumes",
]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

#: `make test` compiles them
VERSIONS = (OLDEST, "1.33")


@pytest.fixture(scope="module", params=VERSIONS)
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    require_control_plane(request.param)
    with standing(tmp_path_factory.mktemp("gangline"), version=request.param) as system:
        yield system


@pytest.mark.parametrize("first", [4, 9])
async def test_killed_before_every_write(system: System, api: Api, first: int) -> None:
    await test_crash.test_killed_before_every_write(system, api, first)
