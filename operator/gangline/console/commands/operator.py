"""`gangline operator`: runs the admission controller."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import yaml

if TYPE_CHECKING:
    from gangline.api.read.configuration import Configuration
    from gangline.control.process.operator_process import ForecastOptions
    from gangline.control.visibility.aggregated_api import Options as VisibilityOptions
    from gangline.telemetry import Source

#: default directory of the history and the model, the same as in `gangline forecast`
DIRECTORY = Path("~/.local/share/gangline/forecast").expanduser()


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Default: as kubectl does, or in-cluster."
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--config",
    "configuration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kueue's configuration file.",
)
@click.option("--leader-election/--no-leader-election", default=True, show_default=True)
@click.option("--identity", help="Holder name in the Lease. Default: host name and a random suffix.")
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Address of /metrics, /healthz and /readyz.")
@click.option(
    "--ready-file", type=click.Path(path_type=Path), help="Written with PID and port once the operator is ready."
)
@click.option(
    "--history",
    default=str(DIRECTORY / "history.db"),
    envvar="GANGLINE_HISTORY",
    show_envvar=True,
    help="History of finished runs: path of an SQLite file or any SQLAlchemy URL. Empty: no forecasts.",
)
@click.option(
    "--model",
    "model_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    envvar="GANGLINE_MODEL",
    show_envvar=True,
    help="The trained model. Default: model.gz beside an SQLite history.",
)
@click.option(
    "--forecast",
    type=bool,
    default=True,
    show_default=True,
    help="false: forecast from hints, limits and history only, without the model.",
)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Record facts and decisions in this file, for `gangline audit`; at most 5 files of 64 MiB.",
)
@click.option(
    "--telemetry",
    default="",
    metavar="URL|FILE",
    help="GPU and log telemetry of pods, to detect stalls: a Prometheus URL, or a file with one JSON object per line.",
)
@click.option(
    "--telemetry-queries",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with Prometheus queries that replace built-in ones, by name (gpu, kernelAge, power, logBytes, xid).",
)
@click.option(
    "--progress-url",
    default="",
    metavar="URL",
    help="URL at which pods reach --listen to report progress, such as http://gangline-operator.gangline-system:8080.",
)
@click.option(
    "--visibility-listen",
    metavar="HOST:PORT",
    default=lambda: "0.0.0.0:8082" if os.environ.get("POD_IP") else "",
    help="Serve Kueue's visibility API here over TLS, for the API server's aggregation layer. [default: 0.0.0.0:8082 if "
    "POD_IP is set, else not served]",
)
@click.option(
    "--visibility-host",
    metavar="ADDRESS",
    envvar="POD_IP",
    default="",
    help="Host at which API servers reach --visibility-listen. [default: $POD_IP, else the host in --visibility-listen]",
)
@click.option(
    "--track-fields",
    is_flag=True,
    help="Keep metadata.managedFields on Workloads; this costs the API server more CPU and memory.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log at debug level.")
def command(
    kubeconfig: Path | None,
    context: str | None,
    configuration: Path | None,
    leader_election: bool,
    identity: str | None,
    listen: str,
    ready_file: Path | None,
    history: str,
    model_file: Path | None,
    forecast: bool,
    audit: Path | None,
    telemetry: str,
    telemetry_queries: Path | None,
    progress_url: str,
    visibility_listen: str,
    visibility_host: str,
    track_fields: bool,
    verbose: bool,
) -> None:
    """Run the operator until SIGTERM. Several replicas may run: one is the leader, the others are standbys."""
    from gangline.control.process import operator_process
    from gangline.kube.config import LoginError

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    chosen = _configuration(configuration)
    options = operator_process.Options(
        settings=chosen.settings,
        labels_to_copy=chosen.labels_to_copy,
        kubeconfig=kubeconfig,
        context=context,
        leader_election=leader_election,
        listen=_address(listen, "--listen"),
        ready_file=ready_file,
        identity=identity or operator_process.default_identity(),
        forecasts=_forecasts(history, model_file, forecast),
        audit=audit,
        telemetry=_telemetry(telemetry, telemetry_queries),
        progress_url=progress_url,
        visibility=_visibility(visibility_listen, visibility_host),
        track_fields=track_fields,
    )
    try:
        raise SystemExit(asyncio.run(operator_process.serve(options)))
    except LoginError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:  # the address is already in use
        raise click.ClickException(error.strerror or str(error)) from error


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return host.strip("[]") or "127.0.0.1", int(port)


def _visibility(listen: str, host: str) -> VisibilityOptions | None:
    from gangline.control.visibility.aggregated_api import Options

    if not listen:
        return None
    address = _address(listen, "--visibility-listen")
    if not host and address[0] in ("0.0.0.0", "::"):
        raise click.UsageError(
            f"--visibility-listen {listen} needs --visibility-host: the address at which API servers reach it"
        )
    return Options(address, host.strip("[]") or address[0])


def _forecasts(history: str, model_file: Path | None, use_model: bool) -> ForecastOptions | None:
    from gangline.control.process.operator_process import ForecastOptions

    if not history:
        return None
    beside = DIRECTORY if "://" in history else Path(history).expanduser().parent
    return ForecastOptions(history, model_file or beside / "model.gz", use_model)


def _telemetry(where: str, queries: Path | None) -> Source | None:
    from gangline.telemetry import open_source

    if not where:
        return None
    try:
        chosen = yaml.safe_load(queries.read_text()) if queries else None
        if chosen is not None and not (isinstance(chosen, dict) and all(isinstance(q, str) for q in chosen.values())):
            raise click.ClickException(f"{queries}: must map names to queries")
        return open_source(where, chosen)
    except (ValueError, yaml.YAMLError) as error:
        raise click.ClickException(f"{queries}: {error}") from error


def _configuration(path: Path | None) -> Configuration:
    """The configuration in the file, or the defaults without a file. Logs a warning for fields that have no effect."""
    from gangline.api.read.configuration import ConfigurationError, load

    try:
        chosen = load(yaml.safe_load(path.read_text()) if path else None)
    except (ConfigurationError, yaml.YAMLError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    if chosen.ignored:
        logging.getLogger(__name__).warning(
            "%s: these fields have no effect in Gangline: %s", path, ", ".join(chosen.ignored)
        )
    return chosen
