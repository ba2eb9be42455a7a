"""How to log in to an API server: from a kubeconfig, or from the service account of the pod that we run in.

Own code rather than lightkube's loader, because that one knows neither `client.authentication.k8s.io/v1` nor the expiry
of exec credentials nor client certificates from them, no `tls-server-name`, no merged `KUBECONFIG`, and costs the
import of a second HTTP stack.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: seconds between two looks at a token file; the kubelet rotates it well before it expires
TOKEN_FILE_PERIOD = 60.0
#: seconds before its expiry at which an exec credential is renewed
EXEC_EARLY = 60.0
EXEC_TIMEOUT = 60.0
_EXEC_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))


class LoginError(Exception):
    """The configuration does not lead to a login; the message names the file and the field."""


class TokenSource(Protocol):
    """Where a bearer token comes from. `token()` is cheap while the last one holds; empty means: send none."""

    async def token(self) -> str: ...

    def reject(self) -> None:
        """The server did not accept the last token: fetch a new one next time."""
        ...


@dataclass(slots=True)
class Login:
    """All that a client needs to talk to one API server."""

    server: str
    ssl_context: ssl.SSLContext | None = None
    namespace: str = "default"
    tokens: TokenSource | None = None
    #: the name to expect in the server's certificate where it differs from the host in `server`
    server_hostname: str | None = None
    #: URL of an HTTP proxy on the way to the server
    proxy: str | None = None
    #: sent with every request: basic auth, impersonation
    fixed_headers: dict[str, str] = field(default_factory=dict[str, str])

    async def headers(self) -> dict[str, str]:
        token = await self.tokens.token() if self.tokens else ""
        return {**self.fixed_headers, "Authorization": f"Bearer {token}"} if token else self.fixed_headers

    def reject(self) -> bool:
        """The server said 401. True where a second try with fresh credentials makes sense."""
        if self.tokens is None:
            return False
        self.tokens.reject()
        return True


@dataclass(slots=True)
class FixedToken:
    value: str

    async def token(self) -> str:
        return self.value

    def reject(self) -> None:
        return


class FileToken:
    """A token in a file that someone else rotates."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at = -TOKEN_FILE_PERIOD

    async def token(self) -> str:
        if time.monotonic() - self._read_at >= TOKEN_FILE_PERIOD:
            try:
                self._value = self._path.read_text().strip()
            except OSError as error:
                if not self._value:  # a rotation in progress must not throw away a token that may still hold
                    raise LoginError(f"token file {self._path}: {error.strerror}") from error
            self._read_at = time.monotonic()
        return self._value

    def reject(self) -> None:
        self._read_at = -TOKEN_FILE_PERIOD


class ExecToken:
    """Credentials from an exec plugin (gke-gcloud-auth-plugin, aws eks get-token, …), renewed before they expire."""

    def __init__(self, spec: Mapping[str, Any], cluster: Mapping[str, Any], ssl_context: ssl.SSLContext | None) -> None:
        self._spec = spec
        self._cluster = cluster
        self._ssl_context = ssl_context
        self._value = ""
        self._renew_at = 0.0  # seconds since the epoch: plugins give wall-clock expiry
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        if time.time() >= self._renew_at:
            async with self._lock:
                if time.time() >= self._renew_at:
                    await self._renew()
        return self._value

    def reject(self) -> None:
        self._renew_at = 0.0

    async def _renew(self) -> None:
        status = (await self._run_plugin()).get("status") or {}
        self._value = str(status.get("token") or "")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if certificate and key and self._ssl_context:
            _load_certificate(self._ssl_context, certificate.encode(), key.encode())
        elif not self._value:
            raise LoginError(f"exec plugin {self._spec['command']}: its answer has no status.token")
        expiry = status.get("expirationTimestamp")
        self._renew_at = _epoch(expiry) - EXEC_EARLY if expiry else float("inf")

    async def _run_plugin(self) -> dict[str, Any]:
        command = self._spec["command"]
        environment = dict(os.environ)
        environment.update({item["name"]: item["value"] for item in self._spec.get("env") or ()})
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(self._exec_info())
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *(self._spec.get("args") or ()),
                env=environment,
                stdin=None if self._interactive() else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = self._spec.get("installHint") or ""
            raise LoginError(f"exec plugin {command}: {error.strerror}. {hint}".rstrip(". ")) from error
        try:
            output, _ = await asyncio.wait_for(process.communicate(), EXEC_TIMEOUT)
        except TimeoutError:
            process.kill()
            raise LoginError(f"exec plugin {command}: no answer within {EXEC_TIMEOUT:g} s") from None
        if process.returncode:
            raise LoginError(f"exec plugin {command}: exit status {process.returncode}")
        try:
            return json.loads(output)
        except ValueError as error:
            raise LoginError(f"exec plugin {command}: its answer is not JSON: {error}") from error

    def _interactive(self) -> bool:
        return self._spec.get("interactiveMode", "IfAvailable") != "Never" and sys.stdin.isatty()

    def _exec_info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": self._interactive()}
        if self._spec.get("provideClusterInfo"):
            spec["cluster"] = {k: v for k, v in self._cluster.items() if k != "certificate-authority"}
        return {"apiVersion": self._spec["apiVersion"], "kind": "ExecCredential", "spec": spec}


def load(kubeconfig: str | Path | None = None, context: str | None = None) -> Login:
    """The login that kubectl would use: the given file, else $KUBECONFIG, else ~/.kube/config, else in-cluster.

    Raises LoginError with the file and field that is wrong or missing.
    """
    paths = [Path(kubeconfig).expanduser()] if kubeconfig else _default_paths()
    if not paths:
        if in_cluster_available():
            return in_cluster()
        raise LoginError("no cluster: no --kubeconfig, no $KUBECONFIG, no ~/.kube/config, and not inside a pod")
    return _from_kubeconfig(_Kubeconfig.read(paths), context)


def in_cluster_available(account: Path = SERVICE_ACCOUNT) -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (account / "token").exists()


def in_cluster(account: Path = SERVICE_ACCOUNT) -> Login:
    """The login of the pod's service account; its token is read again every minute and after a 401."""
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        namespace = (account / "namespace").read_text().strip()
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except KeyError as error:
        raise LoginError(f"in-cluster login: environment variable {error.args[0]} is not set") from error
    except OSError as error:
        raise LoginError(f"in-cluster login: {account}: {error}") from error
    host = f"[{host}]" if ":" in host else host
    return Login(f"https://{host}:{port}", context, namespace, FileToken(account / "token"))


def _default_paths() -> list[Path]:
    listed = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = listed or [Path("~/.kube/config").expanduser()]
    found = [path for path in candidates if path.is_file()]
    if listed and not found:
        raise LoginError(f"$KUBECONFIG names no file that exists: {os.environ['KUBECONFIG']}")
    return found


@dataclass(slots=True)
class _Entry:
    """A named cluster, user or context, and the file that its relative paths start from."""

    value: dict[str, Any]
    file: Path

    def text(self, name: str) -> str:
        value = self.value.get(name)
        if value is not None and not isinstance(value, str):
            raise LoginError(f"{self.file}: {name}: a string is wanted, not {value!r}")
        return value or ""

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return self.file.parent / Path(text).expanduser() if text else None

    def content(self, name: str) -> bytes:
        """The bytes of `name`-data (base64), else of the file that `name` points at, else nothing."""
        if data := self.text(f"{name}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise LoginError(f"{self.file}: {name}-data: {error}") from error
        path = self.path(name)
        try:
            return path.read_bytes() if path else b""
        except OSError as error:
            raise LoginError(f"{self.file}: {name}: {path}: {error.strerror}") from error


class _Kubeconfig:
    """One or several files, merged as kubectl does: the first to name something wins."""

    def __init__(self) -> None:
        self.current = ""
        self.files: list[Path] = []
        self.sections: dict[str, dict[str, _Entry]] = {"clusters": {}, "users": {}, "contexts": {}}

    @classmethod
    def read(cls, paths: list[Path]) -> _Kubeconfig:
        merged = cls()
        for path in paths:
            try:
                document = yaml.safe_load(path.read_text()) or {}
            except OSError as error:
                raise LoginError(f"{path}: {error.strerror}") from error
            except yaml.YAMLError as error:
                raise LoginError(f"{path}: not YAML: {error}") from error
            if not isinstance(document, dict):
                raise LoginError(f"{path}: not a kubeconfig")
            merged._add(path.absolute(), document)
        return merged

    def _add(self, path: Path, document: dict[str, Any]) -> None:
        self.files.append(path)
        self.current = self.current or document.get("current-context") or ""
        for section, entries in self.sections.items():
            items = document.get(section) or []
            if not isinstance(items, list):
                raise LoginError(f"{path}: {section}: a list is wanted")
            for index, item in enumerate(items):
                value = item.get(section[:-1]) if isinstance(item, dict) else None
                if not isinstance(item, dict) or "name" not in item or not isinstance(value or {}, dict):
                    raise LoginError(f"{path}: {section}[{index}]: name and {section[:-1]} are wanted")
                entries.setdefault(item["name"], _Entry(value or {}, path))

    def entry(self, section: str, name: str) -> _Entry:
        if name in self.sections[section]:
            return self.sections[section][name]
        where = ", ".join(map(str, self.files))
        known = ", ".join(self.sections[section]) or "none"
        raise LoginError(f"{where}: {section}: there is no {name!r} (there is: {known})")


def _from_kubeconfig(config: _Kubeconfig, context_name: str | None) -> Login:
    name = context_name or config.current
    if not name:
        raise LoginError(f"{config.files[0]}: current-context is not set and no context was named")
    context = config.entry("contexts", name)
    cluster = config.entry("clusters", context.text("cluster"))
    user = config.entry("users", context.text("user")) if context.text("user") else _Entry({}, context.file)
    server = cluster.text("server").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise LoginError(f"{cluster.file}: clusters: server: a https:// address is wanted, not {server!r}")
    ssl_context = _ssl_context(cluster, user) if server.startswith("https://") else None
    return Login(
        server=server,
        ssl_context=ssl_context,
        namespace=context.text("namespace") or "default",
        tokens=_token_source(cluster, user, ssl_context),
        server_hostname=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or None,
        fixed_headers=_fixed_headers(user),
    )


def _ssl_context(cluster: _Entry, user: _Entry) -> ssl.SSLContext:
    authority = cluster.content("certificate-authority").decode()
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError as error:
        raise LoginError(f"{cluster.file}: certificate-authority: {error}") from error
    if cluster.value.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if certificate and key:
        try:
            _load_certificate(context, certificate, key)
        except ssl.SSLError as error:
            raise LoginError(f"{user.file}: client-certificate and client-key don't fit: {error}") from error
    return context


def _token_source(cluster: _Entry, user: _Entry, ssl_context: ssl.SSLContext | None) -> TokenSource | None:
    if token := user.text("token"):
        return FixedToken(token)
    if path := user.path("tokenFile"):
        return FileToken(path)
    if user.value.get("auth-provider"):
        raise LoginError(f"{user.file}: users: auth-provider is gone from Kubernetes; use an exec plugin")
    spec = user.value.get("exec")
    if spec is None:
        return None
    if not isinstance(spec, dict) or not spec.get("command"):
        raise LoginError(f"{user.file}: users: exec.command is not set")
    if spec.get("apiVersion") not in _EXEC_VERSIONS:
        raise LoginError(f"{user.file}: users: exec.apiVersion: one of {', '.join(_EXEC_VERSIONS)} is wanted")
    for item in spec.get("env") or []:
        if (
            not isinstance(item, dict)
            or not isinstance(item.get("name"), str)
            or not isinstance(item.get("value"), str)
        ):
            raise LoginError(f"{user.file}: users: exec.env: pairs of name and value are wanted, not {item!r}")
    if "/" in spec["command"]:  # a path is relative to the file, a bare name is looked up in $PATH
        spec = {**spec, "command": str(user.file.parent / spec["command"])}
    return ExecToken(spec, cluster.value, ssl_context)


def _fixed_headers(user: _Entry) -> dict[str, str]:
    headers: dict[str, str] = {}
    if user.text("username") and user.text("password"):
        pair = f"{user.text('username')}:{user.text('password')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if user.text("as"):
        headers["Impersonate-User"] = user.text("as")
    return headers


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # the ssl module only reads files; this one is private to us and gone at once
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


def _epoch(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
