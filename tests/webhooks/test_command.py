"""`gangline admin webhooks`: what it says when it can't."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from gangline.console.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "9443"], "is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "is not HOST:PORT"),
        (["--mode", "cert-manager"], "needs --cert-dir and --inject-ca-from"),
        (["--cert-dir", "/certs"], "are for --mode cert-manager"),
        (["--mode", "proxy"], "'proxy' is not one of 'url', 'service', 'cert-manager'"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], said: str):
    outcome = CliRunner().invoke(main, ["admin", "webhooks", *arguments])
    assert outcome.exit_code == 2
    assert said in outcome.output


def test_a_missing_kubeconfig_is_named(tmp_path: Path):
    missing = tmp_path / "nowhere"
    outcome = CliRunner().invoke(main, ["admin", "webhooks", "--kubeconfig", str(missing)])
    assert outcome.exit_code == 1
    assert str(missing) in outcome.output


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
"""


def test_a_port_that_is_taken_is_named(tmp_path: Path):
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = CliRunner().invoke(main, ["admin", "webhooks", "--kubeconfig", str(file), "--listen", address])
    assert outcome.exit_code == 1
    assert f"can't listen on {address}: " in outcome.output
