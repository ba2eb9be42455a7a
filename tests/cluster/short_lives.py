"""Certificates that live for seconds, and webhooks that serve with them behind one address."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.cluster import harness
from tests.controlplane import PATIENCE

_CERTIFICATES = "gangline.tls.certificates"
#: seconds between two looks at what is due
LOOK = 0.3
#: A CA is renewed after 9 s, signs 2 s later, and the one before leaves after another 2 s; what it signs is renewed after 5 s.
#: All of it `PATIENCE` times over, so that a slow machine has time to load what it is given.
LIVES: harness.Replaced = {
    f"{_CERTIFICATES}:BACKDATE": timedelta(seconds=PATIENCE * 1),
    f"{_CERTIFICATES}:SERVING_LIFE": timedelta(seconds=PATIENCE * 8),
    f"{_CERTIFICATES}:CA_LIFE": timedelta(seconds=PATIENCE * 14),
    f"{_CERTIFICATES}:SETTLE": timedelta(seconds=PATIENCE * 2),
    f"{_CERTIFICATES}:GRACE": timedelta(seconds=PATIENCE * 2),
}


def _run_webhooks(kubeconfig: str, directory: str, name: str, front: int) -> None:
    """The body of a webhook process that is registered as port `front`, through which it is reached."""
    import logging

    from gangline.kube.config import load
    from gangline_webhooks import server
    from gangline_webhooks.registration import Endpoint

    harness.redirect_output(f"{directory}/{name}.log")
    endpoint = Endpoint(url=f"https://127.0.0.1:{front}")
    harness.replace_all(
        {**LIVES, "gangline_webhooks.server:PERIOD": LOOK, "gangline_webhooks.server:_endpoint": lambda *_: endpoint}
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    options = server.WebhookOptions("127.0.0.1", 0, url_host="127.0.0.1", ready_file=Path(directory) / f"{name}.ready")
    asyncio.run(server.run(load(kubeconfig), options))
    os._exit(0)


@dataclass
class Replica:
    """One webhook process."""

    kubeconfig: Path
    directory: Path
    name: str
    front: int
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        self.ready_file.unlink(missing_ok=True)
        arguments = (str(self.kubeconfig), str(self.directory), self.name, self.front)
        self.process = harness.FORKS.Process(target=_run_webhooks, args=arguments, daemon=True)
        self.process.start()

    @property
    def ready_file(self) -> Path:
        return self.directory / f"{self.name}.ready"

    @property
    def log(self) -> str:
        return (self.directory / f"{self.name}.log").read_text()

    @property
    def port(self) -> int:
        return harness.json.loads(self.ready_file.read_text())["port"]

    def stop(self) -> None:
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGTERM)
            self.process.join(20)


class Front:
    """A port that leads each connection to the next of several others, as a Service does."""

    def __init__(self) -> None:
        self.targets: list[int] = []
        self.port = 0
        self._turns = itertools.count()

    async def __aenter__(self) -> Front:
        self._server = await asyncio.start_server(self._lead, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = self.targets[next(self._turns) % len(self.targets)]
        there, back = await asyncio.open_connection("127.0.0.1", target)
        with contextlib.suppress(OSError):
            await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def replicas(kubeconfig: Path, directory: Path) -> AsyncIterator[tuple[Front, list[Replica]]]:
    """Two webhook processes behind one port. Until both are ready, nothing reaches them."""
    async with Front() as front:
        running = [Replica(kubeconfig, directory, f"short-lived-{number}", front.port) for number in (1, 2)]
        try:
            front.targets = [await asyncio.to_thread(_port_of, replica) for replica in running]
            yield front, running
        finally:
            for replica in running:
                await asyncio.to_thread(replica.stop)


def _port_of(replica: Replica) -> int:
    harness.wait_until(lambda: replica.ready_file.exists() or not replica.process.is_alive(), 30, replica.name)
    assert replica.process.is_alive(), replica.log
    return replica.port
