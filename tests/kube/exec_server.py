"""An API server whose pods are processes of this machine: it serves `exec` as Kubernetes does, and some objects beside it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import struct
import termios
from contextlib import suppress
from typing import Any

from aiohttp import WSMsgType, web

from gangline.kube.config import Login

Json = dict[str, Any]


class ExecServer:
    """`protocol`: the newest that it speaks. `forbids`: the message of its refusals. `drops`: it breaks off without an end."""

    def __init__(self, protocol: str = "v5.channel.k8s.io", *, forbids: str = "", drops: bool = False) -> None:
        self._protocols = [each for each in ("v5.channel.k8s.io", "v4.channel.k8s.io") if each <= protocol]
        self._forbids, self._drops = forbids, drops
        self.asked: list[dict[str, list[str]]] = []
        self.sizes: list[tuple[int, int]] = []
        self.objects: dict[str, Json] = {}
        self.deleted: list[str] = []

    async def __aenter__(self) -> ExecServer:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/exec", self._exec)
        app.router.add_route("*", "/{tail:.*}", self._object)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def login(self) -> Login:
        return Login(self.url)

    async def _object(self, request: web.Request) -> web.Response:
        if request.method == "DELETE":
            self.deleted.append(request.path)
        found = self.objects.get(request.path)
        if found is None:
            return web.json_response(_status(404, "NotFound", "not found"), status=404)
        return web.json_response(found)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        if self._forbids:
            return web.json_response(_status(403, "Forbidden", self._forbids), status=403)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return web.json_response(_status(400, "BadRequest", "Upgrade request required"), status=400)
        if request.headers.get("Accept") != "*/*":  # an API server says no more than this status
            return web.Response(status=406)
        query = {name: request.query.getall(name) for name in request.query}
        self.asked.append(query)
        socket = web.WebSocketResponse(protocols=self._protocols)
        await socket.prepare(request)
        if "tty" in query:
            await self._with_terminal(socket, query["command"])
        else:
            await self._with_pipes(socket, query["command"], takes_input="stdin" in query)
        await socket.close()
        return socket

    async def _with_pipes(self, socket: web.WebSocketResponse, words: list[str], *, takes_input: bool) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        if not takes_input:
            process.stdin.close()

        async def pump(stream: asyncio.StreamReader, channel: int) -> None:
            while data := await stream.read(1024):
                await socket.send_bytes(bytes([channel]) + data)

        reader = asyncio.create_task(self._read(socket, lambda data: _write(process.stdin, data)))
        await asyncio.gather(pump(process.stdout, 1), pump(process.stderr, 2))
        await self._end(socket, await process.wait(), reader)

    async def _with_terminal(self, socket: web.WebSocketResponse, words: list[str]) -> None:
        master, slave = pty.openpty()

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        process = await asyncio.create_subprocess_exec(
            *words, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal
        )
        os.close(slave)

        def give(data: bytes | None) -> None:
            if data is not None:
                os.write(master, data)

        def resize(columns: int, rows: int) -> None:
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        reader = asyncio.create_task(self._read(socket, give, resize))
        with suppress(OSError):  # the last process has closed the terminal
            while data := await _written(master):
                await socket.send_bytes(b"\x01" + data)
        await self._end(socket, await process.wait(), reader)
        os.close(master)

    async def _read(self, socket: web.WebSocketResponse, give: Any, resize: Any = None) -> None:
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            channel, data = message.data[0], message.data[1:]
            if channel == 0:
                give(data)
            elif channel == 255 and data == b"\x00":
                give(None)
            elif channel == 4:
                size = json.loads(data)
                self.sizes.append((size["Width"], size["Height"]))
                if resize is not None:
                    resize(size["Width"], size["Height"])

    async def _end(self, socket: web.WebSocketResponse, code: int, reader: asyncio.Task[None]) -> None:
        if not self._drops:
            await socket.send_bytes(b"\x03" + json.dumps(ended(code)).encode())
        reader.cancel()


async def _written(master: int) -> bytes:
    """What the processes of a terminal have written to it."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(master, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(master)
    return os.read(master, 1024)


def _write(stream: asyncio.StreamWriter | None, data: bytes | None) -> None:
    if stream is not None:
        stream.close() if data is None else stream.write(data)


def ended(code: int) -> Json:
    """How a kubelet says that a command has ended."""
    if not code:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: {code}"
    return {"status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": {"causes": causes}}


def _status(code: int, reason: str, message: str) -> Json:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
