"""`gangline admin record`: writes the history of a cluster, beside Kueue or Gangline, with no right but to read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

import click

from gangline.console.options import LogOptions, Size, read_configuration, with_log_options
from gangline.console.output import terminal


@click.command("record")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Default: as kubectl does, or in-cluster."
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--config",
    "configuration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kueue's configuration file: the hints of the job kinds in `integrations.declared` are recorded, too.",
)
@click.option(
    "--size",
    type=Size(),
    default="512Mi",
    show_default=True,
    help="The size of all files together; the oldest are deleted.",
)
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written with the PID once everything was listed.")
@with_log_options
def command(
    directory: Path,
    kubeconfig: Path | None,
    context: str | None,
    configuration: Path | None,
    size: int,
    ready_file: Path | None,
    log_options: LogOptions,
) -> None:
    """Write the history of a cluster in DIRECTORY until SIGTERM, for `gangline admin tune` and `gangline admin replay`.

    It lists and watches Workloads, queues, cohorts, flavors, topologies, QueuePolicies, nodes and jobs, and changes nothing:
    `gangline admin rbac --record` prints the account for it. No pod template, image, command, environment or Secret is recorded.
    A restart goes on where the record ended.
    """
    from gangline.jobs import declare
    from gangline.kube import config

    log_options.begin()
    declare(read_configuration(configuration, tell=False).jobs.declared)
    try:
        asyncio.run(_record(directory, config.load(kubeconfig, context), size, ready_file))
    except config.LoginError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror or error}") from error


async def _record(directory: Path, login: object, size: int, ready_file: Path | None) -> None:
    import gangline
    from gangline import files
    from gangline.kube.client import ApiClient
    from gangline.kube.config import Login
    from gangline.record.following import follow, watched
    from gangline.record.recorder import Recorder

    assert isinstance(login, Login)

    def ready() -> None:
        terminal.say(f"recording in {directory}", err=True)
        if ready_file is not None:
            files.write(ready_file, json.dumps({"pid": os.getpid()}))

    agent = f"gangline/{gangline.__version__} (record)"
    async with ApiClient(login, connections=len(watched()) + 4, user_agent=agent) as client:
        recorder = Recorder(directory, client.clock.millis, size)
        following = asyncio.ensure_future(follow(client, recorder, ready))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, following.cancel)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await following
        finally:
            await asyncio.to_thread(recorder.close)
