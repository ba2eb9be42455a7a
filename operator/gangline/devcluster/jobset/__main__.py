"""`python -m gangline.devcluster.jobset`: the stand-in for JobSet as a process, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from gangline.devcluster.errors import DevClusterError
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
        logging.info("the stand-in for JobSet is at work")
        if ready_file is not None:
            ready_file.write_text(json.dumps({"pid": os.getpid()}))

    async with ApiClient(config.load(kubeconfig, context)) as client:
        await install(client)
        work = asyncio.ensure_future(StandIn(client).run(ready))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            return


if __name__ == "__main__":
    sys.exit(main())
