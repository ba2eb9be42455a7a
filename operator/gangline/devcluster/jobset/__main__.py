"""`python -m gangline.devcluster.jobset`: the stand-in for JobSet as a process, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.jobset import controller
from gangline.devcluster.jobset.controller import StandIn, install
from gangline.kube import config
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gangline.devcluster.jobset", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="default: as kubectl")
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument("--ready-file", type=Path, help='written once it works: {"pid"}')
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        asyncio.run(_serve(arguments.kubeconfig, arguments.context, arguments.ready_file))
    except (DevClusterError, ApiError, config.LoginError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(kubeconfig: Path | None, context: str | None, ready_file: Path | None) -> None:
    def ready() -> None:
        if ready_file is not None:
            ready_file.write_text(json.dumps({"pid": os.getpid()}))

    async with ApiClient(config.load(kubeconfig, context)) as client:
        working = asyncio.ensure_future(work(client, ready))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        try:
            await working
        except asyncio.CancelledError:
            return


async def work(client: ApiClient, ready: Callable[[], None]) -> None:
    """Act as JobSet until JobSet itself is installed; then do nothing until the end."""
    seen = await controller.look(client)
    if not seen:
        try:
            await install(client)
        except DevClusterError:  # it was installed at this very moment
            seen = await controller.look(client)
            if not seen:
                raise
    if not seen:
        playing = asyncio.ensure_future(StandIn(client).run(ready))
        watching = asyncio.ensure_future(controller.appears(client))
        try:
            await asyncio.wait((playing, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            playing.cancel()
            watching.cancel()
            ended = await asyncio.gather(playing, watching, return_exceptions=True)
        failure = next((end for end in ended if isinstance(end, Exception)), None)
        if failure is not None:
            raise failure
        seen = watching.result()
    logging.info("JobSet itself is in this cluster (%s): the stand-in steps aside", seen)
    ready()
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
