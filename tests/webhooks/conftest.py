"""A control plane for each module that needs one: these tests take its webhooks away, and CRDs are theirs to install."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.controlplane import require_control_plane

from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane


@pytest.fixture(scope="module")
def plane() -> Iterator[LocalControlPlane]:
    require_control_plane()
    with LocalControlPlane(ControlPlaneOptions(gogc=400)) as plane:
        yield plane
