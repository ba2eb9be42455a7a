"""`gangline admin webhooks`: runs the admission and conversion webhooks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from gangline import files
from gangline.api import names
from gangline.console.options import LogOptions, listening_at, read_configuration, with_log_options
from gangline.kube.config import own_namespace

MODES = ("url", "service", "cert-manager")


@click.command("webhooks")
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Default: as kubectl does, or in-cluster."
)
@click.option("--context", "context_name", help="Context in the kubeconfig.")
@click.option(
    "--config",
    "configuration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kueue's configuration file, the same as the operator's: which jobs are managed.",
)
@click.option(
    "--listen",
    default="0.0.0.0:9443",
    show_default=True,
    callback=listening_at,
    help="Address to listen on. Port 0: any free port.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="service",
    show_default=True,
    help="How API servers reach the webhooks: url (a local control plane), service (in the cluster), "
    "cert-manager (service, with certificates from cert-manager).",
)
@click.option("--url-host", default="127.0.0.1", show_default=True, help="Host in the registered URLs (mode url).")
@click.option("--service", default="gangline-webhooks", show_default=True, help="Name of the webhooks' Service.")
@click.option(
    "--namespace",
    default=lambda: own_namespace() or names.SYSTEM_NAMESPACE,
    help="Namespace of the Service and the Secret. [default: $POD_NAMESPACE, else that of the pod, else gangline-system]",
)
@click.option(
    "--secret", default="gangline-webhook-cert", show_default=True, help="Secret that stores the certificates."
)
@click.option(
    "--cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory with tls.crt and tls.key (mode cert-manager).",
)
@click.option(
    "--client-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CA (PEM) whose client certificates reviews of objects need: those that the API server's admission configuration "
    "gives it. Without it anybody who reaches the port may ask.",
)
@click.option("--inject-ca-from", help="NAMESPACE/NAME of the Certificate (mode cert-manager).")
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help='Written as {"port": N} once the webhooks are registered; removed at shutdown.',
)
@click.option(
    "--linger",
    type=click.FloatRange(min=0),
    default=lambda: 10.0 if os.environ.get("POD_IP") else 0.0,
    help="Seconds to keep serving after SIGTERM, until no request is sent here any more. [default: 10 if POD_IP is set, else 0]",
)
@click.option(
    "--unregister", is_flag=True, help="Remove webhooks and conversion from the cluster, and end. For uninstalling."
)
@click.option("--unregister-on-exit", is_flag=True, help="Remove the webhook configurations at shutdown.")
@click.option(
    "--track-fields",
    is_flag=True,
    help="Keep metadata.managedFields on Workloads; this costs the API server more CPU and memory.",
)
@with_log_options
def command(
    kubeconfig: Path | None,
    context_name: str | None,
    configuration: Path | None,
    listen: tuple[str, int],
    mode: str,
    url_host: str,
    service: str,
    namespace: str,
    secret: str,
    cert_dir: Path | None,
    client_ca: Path | None,
    inject_ca_from: str | None,
    ready_file: Path | None,
    linger: float,
    unregister: bool,
    unregister_on_exit: bool,
    track_fields: bool,
    log_options: LogOptions,
) -> None:
    """Serve admission and conversion webhooks for Kueue's kinds, Jobs and GPUJobs, and register them.

    On SIGTERM the server finishes the requests in flight and ends.
    """
    # imported here to keep the start-up of other commands short
    from gangline.kube.config import LoginError, load
    from gangline.kube.errors import ApiError
    from gangline.tls.certificates import CertificateError
    from gangline_webhooks import server

    if mode == "cert-manager" and (cert_dir is None or not inject_ca_from):
        raise click.UsageError("--mode cert-manager needs --cert-dir and --inject-ca-from")
    if mode != "cert-manager" and (cert_dir is not None or inject_ca_from):
        raise click.UsageError("--cert-dir and --inject-ca-from are for --mode cert-manager")
    log_options.begin()
    chosen = read_configuration(configuration, tell=False)  # the operator tells what has no effect
    options = server.WebhookOptions(
        host=listen[0],
        port=listen[1],
        url_host=url_host.strip("[]") if mode == "url" else "",
        service=service,
        namespace=namespace,
        secret=secret,
        cert_dir=cert_dir,
        client_authority=files.read_text(client_ca) if client_ca is not None else "",
        inject_from=inject_ca_from or "",
        ready_file=ready_file,
        unregister_on_exit=unregister_on_exit,
        linger=linger,
        jobs=chosen.jobs,
        tls=chosen.tls,
        track_fields=track_fields,
    )
    try:
        login = load(kubeconfig, context_name)
    except LoginError as error:
        raise click.ClickException(str(error)) from error
    try:
        asyncio.run(server.unregister(login, options) if unregister else server.run(login, options))
    except ApiError as error:
        raise click.ClickException(str(error)) from error
    except CertificateError as error:
        raise click.ClickException(f"--client-ca: {error}") from error
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from error
