"""What `gangline admin operator` makes of its options before it starts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gangline.api.read.configuration.manager import LeaseSettings
from gangline.console.cli import main
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.process import operator_process
from gangline.tls.listening import bound


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[operator_process.OperatorOptions]:
    """The options with which the operator would have been run."""
    seen: list[operator_process.OperatorOptions] = []

    async def serve(options: operator_process.OperatorOptions, **_: Any) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(operator_process, "serve", serve)
    for name in ("POD_IP", "POD_NAMESPACE", "GANGLINE_HISTORY"):
        monkeypatch.delenv(name, raising=False)
    return seen


@pytest.mark.parametrize(
    ("words", "pod_ip", "expected"),
    [
        ([], "", None),
        ([], "10.1.2.3", AggregatedApiOptions(("0.0.0.0", 8082), "10.1.2.3")),
        (["--visibility-listen", ""], "10.1.2.3", None),
        (["--visibility-listen", "127.0.0.1:0"], "", AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")),
        (
            ["--visibility-listen", "[::]:9", "--visibility-host", "[fd00::1]"],
            "",
            AggregatedApiOptions(("::", 9), "fd00::1"),
        ),
    ],
)
def test_the_visibility_api_is_served_where_it_is_known_how_to_be_reached(
    started: list[operator_process.OperatorOptions],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    pod_ip: str,
    expected: AggregatedApiOptions | None,
) -> None:
    if pod_ip:
        monkeypatch.setenv("POD_IP", pod_ip)
    result = CliRunner().invoke(main, ["admin", "operator", "--history", "", *words])
    assert result.exit_code == 0, result.output
    assert [options.visibility for options in started] == [expected]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--visibility-listen", "0.0.0.0:8082"], "needs --visibility-host"),
        (["--visibility-listen", "here"], "'here' is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "is not HOST:PORT"),
        (["--metrics-listen", "here:https"], "'here:https' is not HOST:PORT"),
        (["--metrics-cert-dir", "/certs"], "needs --metrics-listen"),
        (["--log-format", "xml"], "'xml' is not one of"),
    ],
)
def test_what_makes_no_sense_names_the_option(
    started: list[operator_process.OperatorOptions], words: list[str], said: str
) -> None:
    result = CliRunner().invoke(main, ["admin", "operator", "--history", "", *words])
    assert result.exit_code == 2 and said in result.output and not started


def test_an_address_that_is_taken_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(options: operator_process.OperatorOptions, **_: Any) -> int:
        assert options.visibility is not None
        bound(*options.visibility.listen).close()
        return 0

    monkeypatch.setattr(operator_process, "serve", serve)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(main, ["admin", "operator", "--history", "", "--visibility-listen", where])
    assert result.exit_code == 1 and result.output.startswith(f"Error: can't listen on {where}: ")


KUEUES = """
namespace: queueing
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
leaderElection: {leaderElect: false, leaseDuration: 30s}
"""


@pytest.mark.parametrize(
    ("words", "configured", "pod", "listen", "metrics", "leads_alone"),
    [
        ([], False, False, ("127.0.0.1", 0), None, False),
        ([], False, True, ("0.0.0.0", 8080), None, False),
        ([], True, True, ("0.0.0.0", 8081), ("0.0.0.0", 8443), True),
        (["--listen", "[::]:80", "--metrics-listen", ""], True, True, ("::", 80), None, True),
        (
            ["--metrics-listen", "127.0.0.1:0", "--leader-election"],
            True,
            False,
            ("0.0.0.0", 8081),
            ("127.0.0.1", 0),
            False,
        ),
    ],
)
def test_a_flag_wins_over_the_configuration_and_that_over_the_place(
    started: list[operator_process.OperatorOptions],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    configured: bool,
    pod: bool,
    listen: tuple[str, int],
    metrics: tuple[str, int] | None,
    leads_alone: bool,
) -> None:
    if pod:
        monkeypatch.setenv("POD_IP", "10.1.2.3")
        monkeypatch.setenv("POD_NAMESPACE", "gpu-queueing")
    if configured:
        (tmp_path / "config.yaml").write_text(KUEUES)
        words = [*words, "--config", str(tmp_path / "config.yaml")]
    result = CliRunner().invoke(main, ["admin", "operator", "--history", "", *words])
    assert result.exit_code == 0, result.output
    [options] = started
    assert options.listen == listen
    assert (options.secured_metrics and options.secured_metrics.listen) == metrics
    assert options.leader_election is not leads_alone
    assert options.namespace == ("gpu-queueing" if pod else "gangline-system")
    lease = LeaseSettings("queueing", lease_duration=30.0) if configured else LeaseSettings()
    assert options.lease == lease


def test_a_history_that_cannot_be_written_is_refused(
    started: list[operator_process.OperatorOptions], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(
        main, ["admin", "operator", "--history", str(tmp_path / "file" / "deep" / "history.db")]
    )
    assert result.exit_code == 1 and not started
    assert "Not a directory" in result.output and "$GANGLINE_HISTORY" in result.output


@pytest.mark.parametrize(
    ("given", "kept", "problem"),
    [
        ("", (), ""),
        ("team, example.com/project,team", ("team", "example.com/project"), ""),
        ("a b", (), "'a b' is no key of a label"),
        ("/x", (), "'/x' is no key of a label"),
        ("k" * 64, (), "is no key of a label"),
        (f"{'d' * 60}.{'d' * 60}.{'d' * 60}.{'d' * 60}/x", (), "is no key of a label that can be kept"),
        (",".join(f"k{number}" for number in range(9)), (), "9 keys are given, and 8 are kept at most"),
    ],
)
def test_labels_of_the_history(
    given: str, kept: tuple[str, ...], problem: str, started: list[operator_process.OperatorOptions], tmp_path: Path
) -> None:
    words = ["--history", str(tmp_path / "h.db"), "--history-labels", given]
    result = CliRunner().invoke(main, ["admin", "operator", *words])
    if problem:
        assert result.exit_code == 2 and problem in result.output and not started
        return
    assert started[0].forecasts is not None and started[0].forecasts.labels == kept


def test_the_default_history_is_beside_the_models(
    started: list[operator_process.OperatorOptions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the image, HOME is /tmp."""
    monkeypatch.setenv("GANGLINE_HISTORY", str(tmp_path / "new" / "history.db"))
    assert CliRunner().invoke(main, ["admin", "operator"]).exit_code == 0
    [options] = started
    assert options.forecasts is not None
    assert options.forecasts.model_file == tmp_path / "new" / "model.gz" and (tmp_path / "new").is_dir()
