"""What `gangline operator` makes of its options before it starts."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from click.testing import CliRunner

from gangline.console.cli import main
from gangline.control.process import operator_process
from gangline.control.visibility.aggregated_api import Options
from gangline.tls.listening import bound


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[operator_process.Options]:
    """The options with which the operator would have been run."""
    seen: list[operator_process.Options] = []

    async def serve(options: operator_process.Options, **_: Any) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(operator_process, "serve", serve)
    monkeypatch.delenv("POD_IP", raising=False)
    return seen


@pytest.mark.parametrize(
    ("words", "pod_ip", "expected"),
    [
        ([], "", None),
        ([], "10.1.2.3", Options(("0.0.0.0", 8082), "10.1.2.3")),
        (["--visibility-listen", ""], "10.1.2.3", None),
        (["--visibility-listen", "127.0.0.1:0"], "", Options(("127.0.0.1", 0), "127.0.0.1")),
        (["--visibility-listen", "[::]:9", "--visibility-host", "[fd00::1]"], "", Options(("::", 9), "fd00::1")),
    ],
)
def test_the_visibility_api_is_served_where_it_is_known_how_to_be_reached(
    started: list[operator_process.Options],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    pod_ip: str,
    expected: Options | None,
) -> None:
    if pod_ip:
        monkeypatch.setenv("POD_IP", pod_ip)
    result = CliRunner().invoke(main, ["operator", "--history", "", *words])
    assert result.exit_code == 0, result.output
    assert [options.visibility for options in started] == [expected]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--visibility-listen", "0.0.0.0:8082"], "needs --visibility-host"),
        (["--visibility-listen", "here"], "'here' is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "is not HOST:PORT"),
    ],
)
def test_what_makes_no_sense_names_the_option(
    started: list[operator_process.Options], words: list[str], said: str
) -> None:
    result = CliRunner().invoke(main, ["operator", "--history", "", *words])
    assert result.exit_code == 2 and said in result.output and not started


def test_an_address_that_is_taken_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(options: operator_process.Options, **_: Any) -> int:
        assert options.visibility is not None
        bound(*options.visibility.listen).close()
        return 0

    monkeypatch.setattr(operator_process, "serve", serve)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(main, ["operator", "--history", "", "--visibility-listen", where])
    assert result.exit_code == 1 and result.output.startswith(f"Error: can't listen on {where}: ")
