"""`gangline admin operator`: runs the admission controller."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import yaml

from gangline import bounded, files
from gangline.api import names
from gangline.console.options import (
    FORECAST_DIRECTORY,
    LogOptions,
    Size,
    host_and_port,
    read_configuration,
    with_log_options,
)
from gangline.kube.config import own_namespace

if TYPE_CHECKING:
    from gangline.api.read.configuration.manager import Manager
    from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
    from gangline.control.process.metrics_endpoint import MetricsEndpointOptions
    from gangline.control.process.operator_process import ForecastOptions
    from gangline.telemetry import ReadingSource


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
@click.option(
    "--leader-election/--no-leader-election",
    default=None,
    help="One replica of Kueue and Gangline leads: who holds Kueue's Lease. [default: as in --config, else on]",
)
@click.option("--identity", help="Holder name in the Lease. Default: host name and a random suffix.")
@click.option(
    "--namespace",
    default=lambda: own_namespace() or names.SYSTEM_NAMESPACE,
    help="Namespace of Gangline's own objects. [default: $POD_NAMESPACE, else that of the pod, else gangline-system]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address of /healthz, /readyz and /metrics. [default: health.healthProbeBindAddress of --config, else 0.0.0.0:8080 if "
    "POD_IP is set, else 127.0.0.1 and any port]",
)
@click.option(
    "--metrics-listen",
    metavar="HOST:PORT",
    help="Serve /metrics only here, over TLS, to users whom the API server allows it. [default: metrics.bindAddress of --config]",
)
@click.option(
    "--metrics-cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory with tls.crt and tls.key for --metrics-listen. Default: a self-signed certificate.",
)
@click.option(
    "--ready-file", type=click.Path(path_type=Path), help="Written with PID and port once the operator is ready."
)
@click.option(
    "--history",
    default=str(FORECAST_DIRECTORY / "history.db"),
    envvar="GANGLINE_HISTORY",
    show_envvar=True,
    help="History of finished runs: path of an SQLite file or any SQLAlchemy URL. Empty: no forecasts.",
)
@click.option(
    "--history-labels",
    default="",
    metavar="KEY[,…]",
    help="Keys of labels of jobs by which `gangline report --by label:KEY` can be made, 8 at most.",
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
    help="Record facts and decisions in this file, for `gangline admin audit`; at most 5 files of 64 MiB.",
)
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Write the history of the cluster in this directory, for `gangline admin replay --cluster-record` and "
    "`gangline admin tune`.",
)
@click.option(
    "--record-size",
    type=Size(),
    default="512Mi",
    show_default=True,
    help="The size of all files of --record together; the oldest are deleted.",
)
@click.option(
    "--telemetry",
    default="",
    metavar="URL|FILE",
    help="GPU and log telemetry of pods, to detect stalls: a Prometheus URL, or a file with one JSON object per line. "
    "Telemetry rules of QueuePolicies need a Prometheus.",
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
@with_log_options
def command(
    kubeconfig: Path | None,
    context: str | None,
    configuration: Path | None,
    leader_election: bool | None,
    identity: str | None,
    namespace: str,
    listen: str | None,
    metrics_listen: str | None,
    metrics_cert_dir: Path | None,
    ready_file: Path | None,
    history: str,
    history_labels: str,
    model_file: Path | None,
    forecast: bool,
    audit: Path | None,
    record: Path | None,
    record_size: int,
    telemetry: str,
    telemetry_queries: Path | None,
    progress_url: str,
    visibility_listen: str,
    visibility_host: str,
    track_fields: bool,
    log_options: LogOptions,
) -> None:
    """Run the operator until SIGTERM. Several replicas may run: one is the leader, the others are standbys."""
    from gangline.control.process import operator_process
    from gangline.control.process.lease import default_identity
    from gangline.control.recording.cluster_record import RecordOptions
    from gangline.kube.config import LoginError

    log_options.begin()
    chosen = read_configuration(configuration)
    process = chosen.process
    _check_writable(history)
    options = operator_process.OperatorOptions(
        settings=chosen.settings,
        labels_to_copy=chosen.labels_to_copy,
        annotations_to_copy=chosen.annotations_to_copy,
        resources=chosen.resources,
        retention=chosen.retention,
        jobs=chosen.jobs,
        multikueue=chosen.multikueue,
        older_words=not chosen.gates.on("UnadmittedWorkloadsObservability"),
        metrics=chosen.metrics,
        tls=chosen.tls,
        kubeconfig=kubeconfig,
        context=context,
        leader_election=leader_election if leader_election is not None else process.leader_election is not False,
        lease=process.lease,
        namespace=namespace,
        listen=_listen(listen, process),
        secured_metrics=_secured(metrics_listen, metrics_cert_dir, process),
        ready_file=ready_file,
        identity=identity or default_identity(),
        forecasts=_forecasts(history, model_file, forecast, _label_keys(history_labels)),
        audit=audit,
        record=None if record is None else RecordOptions(record, record_size),
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


def _listen(given: str | None, process: Manager) -> tuple[str, int]:
    """The host and port to listen on. A flag wins over the configuration, and that over what fits a pod or a machine."""
    if given is not None:
        return host_and_port(given, "127.0.0.1", "--listen")
    if process.probes is not None:
        return process.probes[0] or "0.0.0.0", process.probes[1]
    return ("0.0.0.0", 8080) if os.environ.get("POD_IP") else ("127.0.0.1", 0)


def _secured(given: str | None, cert_dir: Path | None, process: Manager) -> MetricsEndpointOptions | None:
    from gangline.control.process.metrics_endpoint import MetricsEndpointOptions

    if given:
        address = host_and_port(given, "127.0.0.1", "--metrics-listen")
    elif given is None and process.metrics is not None:
        address = process.metrics[0] or "0.0.0.0", process.metrics[1]
    elif cert_dir is not None:
        raise click.UsageError("--metrics-cert-dir needs --metrics-listen")
    else:
        return None
    return MetricsEndpointOptions(address, cert_dir)


def _check_writable(history: str) -> None:
    """Refuse an SQLite history in a directory that is not writable; a pod's root file system is usually read-only."""
    if not history or "://" in history:
        return
    directory = Path(history).expanduser().parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise click.ClickException(
            f"--history {history}: {error.strerror}: name a file in a writable directory or a database URL "
            "(also as $GANGLINE_HISTORY), or nothing for no forecasts"
        ) from error


def _visibility(listen: str, host: str) -> AggregatedApiOptions | None:
    from gangline.control.answers.api.aggregated_api import AggregatedApiOptions

    if not listen:
        return None
    address = host_and_port(listen, "127.0.0.1", "--visibility-listen")
    if not host and address[0] in ("0.0.0.0", "::"):
        raise click.UsageError(
            f"--visibility-listen {listen} needs --visibility-host: the address at which API servers reach it"
        )
    return AggregatedApiOptions(address, host.strip("[]") or address[0])


def _label_keys(text: str) -> tuple[str, ...]:
    """The keys of labels that attempts keep. Raises click.UsageError."""
    from gangline.api import label_syntax
    from gangline.forecast.history.attempts import LONGEST_LABEL_KEY, MOST_LABELS

    keys = tuple(dict.fromkeys(key.strip() for key in text.split(",") if key.strip()))
    if len(keys) > MOST_LABELS:
        raise click.UsageError(f"--history-labels: {len(keys)} keys are given, and {MOST_LABELS} are kept at most")
    for key in keys:
        if not label_syntax.is_key(key) or len(key) > LONGEST_LABEL_KEY:
            raise click.UsageError(f"--history-labels: {bounded.shown(key)} is no key of a label that can be kept")
    return keys


def _forecasts(
    history: str, model_file: Path | None, use_model: bool, labels: tuple[str, ...] = ()
) -> ForecastOptions | None:
    from gangline.control.process.operator_process import ForecastOptions

    if not history:
        return None
    beside = FORECAST_DIRECTORY if "://" in history else Path(history).expanduser().parent
    return ForecastOptions(history, model_file or beside / "model.gz", use_model, labels)


def _telemetry(where: str, queries: Path | None) -> ReadingSource | None:
    from gangline.telemetry import open_source

    if not where:
        return None
    try:
        chosen = yaml.safe_load(files.read_text(queries)) if queries else None
        if chosen is not None and not (isinstance(chosen, dict) and all(isinstance(q, str) for q in chosen.values())):
            raise click.ClickException(f"{queries}: must map names to queries")
        return open_source(where, chosen)
    except (ValueError, yaml.YAMLError) as error:
        raise click.ClickException(f"{queries}: {error}") from error
