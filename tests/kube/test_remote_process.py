"""Commands in containers: streams, exit codes, both versions of the protocol, and what servers do that nobody expects."""

from __future__ import annotations

import json

import pytest
from tests.kube.exec_server import ExecServer, ended

from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden, Unavailable
from gangline.kube.remote_process import CommandError, RemoteCommand, exit_code, running

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


async def run(server: ExecServer, *words: str, given: bytes | None = None) -> tuple[bytes, bytes, int]:
    """What a command writes to its two streams, and its exit code."""
    written = {False: b"", True: b""}
    async with ApiClient(server.login()) as api:
        command = RemoteCommand("ml", "train-0", "main", words, takes_input=given is not None)
        async with running(api, command) as process:
            if given is not None:
                await process.write(given)
                await process.end_input()
            async for piece in process.output():
                written[piece.err] += piece.data
    return written[False], written[True], process.exit_code


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_streams_and_exit_code_are_the_commands(protocol: str) -> None:
    async with ExecServer(protocol) as server:
        words = ("sh", "-c", 'echo "$1"; echo oops >&2; exit 3', "x", "a b&c=d +é")
        assert await run(server, *words) == ("a b&c=d +é\n".encode(), b"oops\n", 3)
        assert await run(server, "true") == (b"", b"", 0)
        [asked, _] = server.asked
        assert asked == {"container": ["main"], "command": [*words], "stdout": ["true"], "stderr": ["true"]}


async def test_the_input_ends_where_the_protocol_can_say_so() -> None:
    async with ExecServer() as server:
        assert await run(server, "cat", given=b"one\ntwo") == (b"one\ntwo", b"", 0)
    async with ExecServer(PROTOCOLS[1]) as server:
        assert await run(server, "head", "-n", "1", given=b"one\ntwo\n") == (b"one\n", b"", 0)


async def test_much_output_arrives_whole() -> None:
    async with ExecServer() as server:
        out, _, code = await run(server, "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done")
        assert code == 0 and out.splitlines()[-1] == b"line 2999" and out.count(b"\n") == 3000


async def test_a_refusal_says_what_the_server_says() -> None:
    said = (
        'pods "train-0" is forbidden: User "mira" cannot get resource "pods/exec" in API group "" in the namespace "ml"'
    )
    async with ExecServer(forbids=said) as server:
        with pytest.raises(Forbidden) as refused:
            await run(server, "true")
    assert refused.value.message == said


async def test_a_connection_that_breaks_off_is_no_success() -> None:
    async with ExecServer(drops=True) as server:
        with pytest.raises(Unavailable, match="connection to the container is lost"):
            await run(server, "true")
    with pytest.raises(Unavailable):
        await run(server, "true")


async def test_a_command_that_is_too_long_is_not_sent() -> None:
    async with ExecServer() as server:
        with pytest.raises(ValueError, match="longer than 32 KiB"):
            await run(server, "echo", "x" * 40_000)
        assert server.asked == []


@pytest.mark.parametrize("code", [0, 1, 137])
def test_exit_codes(code: int) -> None:
    assert exit_code(json.dumps(ended(code)).encode()) == code


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (b"", "not known"),
        (b"{", "not known"),
        (b"[]", "not known"),
        (b"[" * 5000, "not known"),
        (b'{"status": "Failure", "details": 7}', "not known"),
        (b'{"status": "Failure", "details": {"causes": [3, {"reason": "ExitCode", "message": "-1"}]}}', "not known"),
        (b'{"status": "Failure", "message": "no such executable: bash"}', "no such executable"),
        (b'{"details": {"causes": [{"reason": "ExitCode", "message": "' + b"9" * 30 + b'"}]}}', "not known"),
    ],
)
def test_an_end_that_is_none_is_an_error(end: bytes, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        exit_code(end)
