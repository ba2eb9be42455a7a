"""A command that runs in a container, over a WebSocket to the API server: Kubernetes' protocol for `exec`.

Each message begins with the number of its channel: 0 to 2 are the standard streams, 3 says at the end how the command has ended,
4 carries the size of the terminal. Version 5 of the protocol can end the input alone, by channel 255; servers before Kubernetes
1.30 speak version 4.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

import orjson

from gangline import bounded
from gangline.kube.errors import Unavailable
from gangline.kube.resources import PODS
from gangline.kube.transport import Call, Transport, unavailable

if TYPE_CHECKING:
    import aiohttp

VERSIONS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
#: bytes of the longest command, with its arguments
LONGEST_COMMAND: Final = 32 * 1024
#: bytes of the longest message: what a container writes arrives in pieces of 32 KiB
_LONGEST_MESSAGE: Final = 4 << 20
#: bytes of the longest description of an end
_LONGEST_END: Final = 64 * 1024
#: seconds between two signs of life
_HEARTBEAT: Final = 30.0
_STDIN, _STDOUT, _STDERR, _END, _SIZE, _CLOSE = 0, 1, 2, 3, 4, 255


class RemoteCommand(NamedTuple):
    """What is to run in which container. `tty`: in a terminal; `takes_input`: it gets a standard input."""

    namespace: str
    pod: str
    container: str
    words: Sequence[str]
    tty: bool = False
    takes_input: bool = False


class Output(NamedTuple):
    """A piece of what a command writes. `err`: to its standard error."""

    data: bytes
    err: bool


class CommandError(Exception):
    """The command was not run, or its end is not known."""


class RemoteProcess:
    """A command that runs. `output` gives what it writes, until it ends; `exit_code` is known afterwards."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._end: bytes | None = None

    async def output(self) -> AsyncGenerator[Output]:
        """What the command writes, until it ends. Raises Unavailable when the connection breaks."""
        import aiohttp

        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.ERROR:
                break
            data: bytes = message.data if isinstance(message.data, bytes) else str(message.data).encode()
            channel, data = data[:1], data[1:]
            if channel == bytes([_END]):
                self._end = ((self._end or b"") + data)[:_LONGEST_END]
            elif data and channel in (bytes([_STDOUT]), bytes([_STDERR])):
                yield Output(data, err=channel == bytes([_STDERR]))
        if self._end is None:
            broken = self._socket.exception()
            why = str(broken) if broken is not None else "it ended before the command did"
            raise Unavailable(0, "ConnectionLost", f"the connection to the container is lost: {why}")

    async def write(self, data: bytes) -> None:
        """Give the command input. Raises Unavailable when the connection is broken."""
        await self._send(_STDIN, data)

    async def end_input(self) -> None:
        """Say that there is no more input, as far as the protocol can."""
        if self._socket.protocol == VERSIONS[0]:
            await self._send(_CLOSE, bytes([_STDIN]))

    async def resize(self, columns: int, rows: int) -> None:
        """Tell a terminal its size."""
        await self._send(_SIZE, orjson.dumps({"Width": columns, "Height": rows}))

    async def _send(self, channel: int, data: bytes) -> None:
        import aiohttp

        try:
            await self._socket.send_bytes(bytes([channel]) + data)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise unavailable(error) from error

    @property
    def exit_code(self) -> int:
        """The exit code of the command that has ended. Raises CommandError where it was not run."""
        return exit_code(self._end or b"")


def exit_code(end: bytes) -> int:
    """The exit code that the description of an end gives. Raises CommandError for a command that was not run."""
    try:
        status = bounded.load_json(end, most_bytes=_LONGEST_END, most_depth=8)
    except bounded.BadJsonError as error:
        raise CommandError(f"how the command ended is not known: {error}") from error
    status = status if isinstance(status, dict) else {}
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        code = bounded.whole(str(cause.get("message"))) if isinstance(cause, dict) else None
        if code and isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            return min(code, 255)
    raise CommandError(str(status.get("message") or "how the command ended is not known")[:1024])


@asynccontextmanager
async def running(api: Transport, command: RemoteCommand) -> AsyncIterator[RemoteProcess]:
    """Run a command in a container; leaving the block ends the connection. Raises ApiError, and ValueError for one too long."""
    if sum(len(word.encode(errors="surrogatepass")) for word in command.words) > LONGEST_COMMAND:
        raise ValueError(f"the command is longer than {LONGEST_COMMAND // 1024} KiB")
    asked = [("container", command.container)] + [("command", word) for word in command.words]
    streams = {"stdin": command.takes_input, "stdout": True, "stderr": not command.tty, "tty": command.tty}
    asked += [(name, "true") for name, wanted in streams.items() if wanted]
    path = PODS.path(command.namespace, command.pod, "exec")
    call = Call("get", PODS, "GET", f"{path}?{urlencode(asked, errors='surrogatepass')}", subresource="exec")
    socket = await api.websocket(call, VERSIONS, heartbeat=_HEARTBEAT, most_bytes=_LONGEST_MESSAGE)
    try:
        yield RemoteProcess(socket)
    finally:
        await socket.close()
