"""Fixtures of all rooms: the real control plane, shared by modules of one pytest worker, and a kubectl for it."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from tests.controlplane import Kubectl, require_control_plane
from tests.examples import examples
from tests.minutes import Minutes
from tests.reruns import Reruns
from tests.sharing import longest, reorder, scheduler

from gangline.devcluster.building import build
from gangline.devcluster.building.build import cache_root
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane

#: lines that are shown of why a test had to run again
_SHOWN = 12
#: characters of each of them: an object with its status
_WIDTH = 1500
#: lines that are shown of an internal error
_SHOWN_OF_ERRORS = 60

settings.register_profile("gangline", examples(100))
settings.load_profile("gangline")


def pytest_configure(config: pytest.Config) -> None:
    # a shell starts what it leaves in the background with Ctrl-C ignored, and so would be all that the tests start and interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Reruns(cache_root() / "test-runs.jsonl"), "gangline-reruns")
    config.pluginmanager.register(Minutes.of_environment(), "gangline-minutes")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        reorder(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


#: of pytest or a plugin, or of a worker, which ends by it
_internal_errors: list[str] = []


def pytest_internalerror(excrepr: object) -> None:
    _internal_errors.append(str(excrepr))


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last lines of a log say what failed, however much was printed about it before."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    if config.getoption("durations"):
        reports = (row for rows in reporter.stats.values() for row in rows if isinstance(row, pytest.TestReport))
        print(*longest(reports), sep="\n")
    for text in _internal_errors[:1]:  # the second one is that a worker has ended by the first
        print("· internal error:", *text.splitlines()[-_SHOWN_OF_ERRORS:], sep="\n")
    for report in [row for kind in ("rerun", "failed", "error") for row in reporter.stats.get(kind, ())]:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message.partition("\n")[0][:300] if crash else ""
        print(f"· {report.outcome}: {report.nodeid} ({report.when}) {why}")
        if report.outcome == "rerun" and crash:  # nothing else says what its first run found
            print("\n".join(line[:_WIDTH] for line in crash.message.splitlines()[1:_SHOWN]))
    for plugin in ("gangline-reruns", "gangline-minutes"):
        for line in config.pluginmanager.get_plugin(plugin).lines:
            print(line)


class SharedPlane:
    """A control plane from the first module that asks for it to the last one in a row: one at rest takes 5 % of a CPU."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._plane: LocalControlPlane | None = None
        self._asking: set[Path] | None = None

    def plane(self) -> LocalControlPlane:
        if self._plane is None:
            require_control_plane()
            self._plane = self._running.enter_context(LocalControlPlane(ControlPlaneOptions(gogc=400)))
        return self._plane

    def end_unless_asked_for(self, item: pytest.Item, following: pytest.Item | None) -> None:
        if self._plane is None or (following is not None and following.path == item.path):
            return
        if self._asking is None:
            asking = (each for each in item.session.items if "control_plane" in getattr(each, "fixturenames", ()))
            self._asking = {each.path for each in asking}
        if following is None or following.path not in self._asking:
            self.end()

    def end(self) -> None:
        self._plane = None
        self._running.close()


_shared_plane = SharedPlane()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        return (yield)
    finally:
        _shared_plane.end_unless_asked_for(item, nextitem)


def pytest_sessionfinish() -> None:
    _shared_plane.end()


@pytest.fixture(scope="module")
def control_plane() -> LocalControlPlane:
    """A running control plane. Whoever breaks it (kills components, changes its nodes) should start one of their own."""
    return _shared_plane.plane()


@pytest.fixture(scope="module")
def kubeconfig(control_plane: LocalControlPlane) -> Path:
    return control_plane.kubeconfig


@pytest.fixture(scope="module")
def kubectl(control_plane: LocalControlPlane) -> Kubectl:
    return Kubectl(build.kubectl(), control_plane.kubeconfig)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace of the test's own, deleted in the background afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
