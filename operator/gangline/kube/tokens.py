"""Bearer tokens: their sources, their expiry, and their renewal.

A token in a file is read again, an exec plugin is run again, and an OIDC id-token is refreshed: before it expires and after the
server answers 401. The output of a plugin or an issuer is never logged and never part of an error.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol, cast

import yaml

from gangline import child_process, files
from gangline.kube.client_tls import ClientTls

#: seconds between two reads of a token file; the kubelet rotates it well before it expires
TOKEN_FILE_PERIOD = 60.0
#: seconds before its expiry at which a token is renewed
EARLY = 60.0
#: seconds that an exec plugin may take, and one that asks a person at a terminal
EXEC_TIMEOUT = 60.0
INTERACTIVE_TIMEOUT = 300.0
#: bytes that an exec plugin may answer: certificates with long chains are a tenth of it
MOST_OUTPUT = 262_144
#: what an exec plugin gets of its cluster: these fields of it, and in `config` what this extension holds
CLUSTER_FIELDS = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data"),
    *("proxy-url", "disable-compression"),
)
CONFIG_EXTENSION = "client.authentication.k8s.io/exec"
#: seconds that the issuer of an OIDC token may take
OIDC_TIMEOUT = 60.0
#: seconds for which a failure is repeated before the plugin or the issuer is tried again
PAUSE = 1.0


class LoginError(Exception):
    """The configuration does not lead to a login; the message names the file and the field."""


class TokenSource(Protocol):
    """The source of a bearer token. `token()` is cheap while the last one is valid; empty means: send none."""

    async def token(self) -> str: ...

    def reject(self) -> None:
        """The server did not accept the last token: fetch a new one next time."""
        ...


@dataclass(slots=True)
class FixedToken:
    value: str

    async def token(self) -> str:
        return self.value

    def reject(self) -> None:
        return


class FileToken:
    """A token in a file that another process rotates."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at = -TOKEN_FILE_PERIOD

    async def token(self) -> str:
        if time.monotonic() - self._read_at >= TOKEN_FILE_PERIOD:
            try:
                self._value = files.read_text(self._path).strip()
            except OSError as error:
                if not self._value:  # a rotation in progress must not discard a token that may still be valid
                    raise LoginError(f"token file {self._path}: {error.strerror}") from error
            self._read_at = time.monotonic()
        return self._value

    def reject(self) -> None:
        self._read_at = -TOKEN_FILE_PERIOD


class LentToken:
    """Tokens of a source that belongs to another thread's event loop. That loop may be busy when a token is wanted, or take long
    to renew it: then the last one is used, which holds for `EARLY` seconds more when it is received.
    """

    #: seconds for which a token is used without asking
    FRESH: Final = EARLY / 2
    #: seconds that the other loop has for its answer before the last token is used
    PATIENCE: Final = 1.0

    def __init__(self, source: TokenSource, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._value: str | None = None
        self._ask_at = 0.0  # time.monotonic()
        self._asked: asyncio.Future[str] | None = None

    async def token(self) -> str:
        if self._value is not None and time.monotonic() < self._ask_at:
            return self._value
        if self._asked is None:
            self._asked = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._source.token(), self._loop))
        asked = self._asked
        # it is not cancelled when time is up: a plugin that takes longer would never come to its end
        await asyncio.wait((asked,), timeout=self.PATIENCE if self._value is not None else None)
        if asked.done():
            self._asked = None
            self._value = asked.result()
            self._ask_at = time.monotonic() + self.FRESH
        return self._value or ""

    def reject(self) -> None:
        self._ask_at = 0.0
        self._loop.call_soon_threadsafe(self._source.reject)


class _Renewed:
    """A token that `_renew` fetches with its expiry. Tasks that need it at the same time wait for one renewal."""

    def __init__(self) -> None:
        self._value = ""
        self._renew_at = 0.0  # seconds since the epoch: plugins and issuers give wall-clock expiry
        self._lock = asyncio.Lock()
        self._failure: tuple[float, str] | None = None

    async def token(self) -> str:
        if time.time() >= self._renew_at:
            async with self._lock:
                if time.time() >= self._renew_at:
                    await self._try()
        return self._value

    def reject(self) -> None:
        self._renew_at = 0.0

    async def _try(self) -> None:
        if self._failure is not None and time.monotonic() - self._failure[0] < PAUSE:
            raise LoginError(self._failure[1])
        try:
            self._value, expiry = await self._renew()
        except LoginError as error:
            self._failure = (time.monotonic(), str(error))
            raise
        self._failure = None
        self._renew_at = expiry - EARLY

    async def _renew(self) -> tuple[str, float]:
        """The token, empty if the login is by certificate, and its expiry in seconds since the epoch."""
        raise NotImplementedError


class ExecToken(_Renewed):
    """Credentials from an exec plugin (gke-gcloud-auth-plugin, aws eks get-token, …), renewed before they expire."""

    def __init__(self, spec: Mapping[str, Any], cluster: Mapping[str, Any], tls: ClientTls | None) -> None:
        super().__init__()
        self._spec = spec
        self._cluster = cluster
        self._tls = tls
        self._name = f"exec plugin {spec['command']}"

    async def _renew(self) -> tuple[str, float]:
        status = _object(_object(await self._run_plugin(), self._name).get("status") or {}, self._name)
        token = status.get("token") or ""
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise LoginError(f"{self._name}: its status.token can't be sent in a header")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if certificate and key and self._tls:
            try:
                self._tls.present(str(certificate).encode(), str(key).encode())
            except ssl.SSLError as error:
                raise LoginError(f"{self._name}: its client certificate and key don't fit") from error
        elif not token:
            raise LoginError(f"{self._name}: its answer has no status.token")
        expiry = status.get("expirationTimestamp")
        try:
            return token, _epoch(expiry) if expiry else float("inf")
        except (ValueError, AttributeError) as error:
            raise LoginError(f"{self._name}: its status.expirationTimestamp is not a time") from error

    async def _run_plugin(self) -> Any:
        environment = dict(os.environ)
        environment.update({item["name"]: item["value"] for item in self._spec.get("env") or ()})
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(self._exec_info())
        command = [self._spec["command"], *(self._spec.get("args") or ())]
        try:
            if self._interactive():
                output = await _run(self._name, command, environment, INTERACTIVE_TIMEOUT)
            else:
                output = await _run(self._name, command, environment, EXEC_TIMEOUT, b"")
        except OSError as error:
            hint = self._spec.get("installHint") or ""
            raise LoginError(f"{self._name}: {error.strerror}. {hint}".rstrip(". ")) from error
        except ValueError as error:  # a zero byte
            raise LoginError(f"{self._name}: its arguments and variables can't be passed on") from error
        try:
            return json.loads(output)
        except (ValueError, RecursionError):
            raise LoginError(f"{self._name}: its answer is not JSON") from None

    def _interactive(self) -> bool:
        return self._spec.get("interactiveMode", "IfAvailable") != "Never" and sys.stdin.isatty()

    def _exec_info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": self._interactive()}
        if self._spec.get("provideClusterInfo"):
            spec["cluster"] = {name: self._cluster[name] for name in CLUSTER_FIELDS if name in self._cluster}
            spec["cluster"] |= self._own_config()
        return {"apiVersion": self._spec["apiVersion"], "kind": "ExecCredential", "spec": spec}

    def _own_config(self) -> dict[str, Any]:
        """What the cluster says for its plugin."""
        rows = self._cluster.get("extensions")
        for row in cast("list[Any]", rows) if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("name") == CONFIG_EXTENSION:
                return {"config": cast("dict[str, Any]", row).get("extension")}
        return {}


class OidcToken(_Renewed):
    """The id-token of `auth-provider: oidc`, refreshed at its issuer and stored in the kubeconfig, as in kubectl.

    The official client connects to the issuer, in a process of its own (`gangline.kube.oidc`), which a time limit can end.
    `user` is the name of the user in `file`.
    """

    def __init__(self, settings: Mapping[str, Any], file: Path, user: str) -> None:
        super().__init__()
        self._settings = dict(settings)
        self._file = file
        self._user = user
        self._name = f"{file}: users: {user}: auth-provider oidc"
        for name in ("idp-issuer-url", "client-id"):
            if not isinstance(settings.get(name), str):
                raise LoginError(f"{self._name}: {name} is not set")

    async def _renew(self) -> tuple[str, float]:
        self._settings |= self._stored()
        token = self._settings.get("id-token")
        # kubectl or another process of ours may have refreshed it
        if isinstance(token, str) and token != self._value and _jwt_expiry(token) - EARLY > time.time():
            return token, _jwt_expiry(token)
        if not self._settings.get("refresh-token"):
            raise LoginError(f"{self._name}: the id-token holds no longer, and there is no refresh-token")
        new = await self._refresh()
        self._settings |= new
        self._store(new)
        return new["id-token"], _jwt_expiry(new["id-token"])

    async def _refresh(self) -> dict[str, str]:
        # `-m` finds modules where this process finds them, `-P` none in the current directory
        command = [sys.executable, "-P", "-m", "gangline.kube.oidc"]
        answer = json.loads(await _run(self._name, command, child_process.environment(), OIDC_TIMEOUT, self._given()))
        if "error" in answer:
            raise LoginError(f"{self._name}: {self._settings['idp-issuer-url']}: {answer['error']}")
        return answer

    def _given(self) -> bytes:
        settings = dict(self._settings)
        if authority := settings.get("idp-certificate-authority"):
            settings["idp-certificate-authority"] = str(self._file.parent / Path(str(authority)).expanduser())
        return json.dumps(settings, default=str).encode()

    def _stored(self) -> dict[str, Any]:
        """The present content of the kubeconfig; nothing if it cannot be read."""
        try:
            return self._section(yaml.safe_load(files.read_text(self._file)))
        except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError):
            return {}

    def _store(self, new: Mapping[str, str]) -> None:
        """An issuer may revoke the refresh token that was used, so the file needs the new one; it may be read-only."""
        with suppress(OSError, yaml.YAMLError, LookupError, TypeError, ValueError):
            document = yaml.safe_load(files.read_text(self._file))
            self._section(document).update(new)
            files.write(self._file.resolve(), yaml.safe_dump(document, sort_keys=False))

    def _section(self, document: Any) -> dict[str, Any]:
        """The settings of this user within a kubeconfig."""
        user = next((item["user"] for item in document["users"] if item["name"] == self._user), {})
        return user["auth-provider"]["config"]


async def _run(
    name: str,
    command: list[str],
    environment: Mapping[str, str],
    seconds: float,
    given: bytes | None = None,
) -> bytes:
    """The output of a program for this input; None: it shares the terminal. Its stderr is for people only.

    Raises LoginError for a failure, or when it takes longer or says more than it may, OSError if it cannot be started. The
    program ends with this call.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=None if given is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if sys.stderr.isatty() else asyncio.subprocess.DEVNULL,  # without a terminal it would be logged
        start_new_session=given is not None,  # to end its children as well
    )
    try:
        async with asyncio.timeout(seconds):
            output = await _answer(process, given)
            await process.wait()
    except OutputTooLongError:
        raise LoginError(f"{name}: its answer is longer than {MOST_OUTPUT} bytes") from None
    except TimeoutError:
        raise LoginError(f"{name}: no answer within {seconds:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill() if given is None else os.killpg(process.pid, signal.SIGKILL)
            await _gone(process)
    if process.returncode:
        raise LoginError(f"{name}: exit status {process.returncode}")
    return output


class OutputTooLongError(Exception):
    """A program says more than it may."""


async def _answer(process: asyncio.subprocess.Process, given: bytes | None) -> bytes:
    """The output of the process, which gets `given`. Raises OutputTooLongError."""
    if process.stdin is not None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not read
            process.stdin.write(given or b"")
            await process.stdin.drain()
        process.stdin.close()
    if process.stdout is None:
        return b""
    try:
        await process.stdout.readexactly(MOST_OUTPUT + 1)
    except asyncio.IncompleteReadError as end:
        return end.partial
    raise OutputTooLongError


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Waits a moment for one that was killed, and empties its pipe, which is closed then."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while process.stdout is not None and await process.stdout.read(MOST_OUTPUT):
                pass
            await process.wait()


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise LoginError(f"{name}: its answer is not an ExecCredential")
    return cast("dict[str, Any]", value)


def _epoch(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def _jwt_expiry(token: str) -> float:
    """The token's expiry in seconds since the epoch; now if it cannot be read, never if it has none."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims.get("exp", "inf"))
    except (ValueError, IndexError, AttributeError, TypeError, RecursionError):
        return 0.0
