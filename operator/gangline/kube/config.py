"""Logins to an API server: from a kubeconfig, or from the service account of the pod.

docs/architecture.md says what the loader of the official client lacks for exec plugins, and where it is used.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from gangline import files
from gangline.kube.client_tls import ClientTls, TlsFiles
from gangline.kube.tokens import ExecToken, FileToken, FixedToken, LentToken, LoginError, OidcToken, TokenSource

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: characters and brackets of a kubeconfig that is in no file, and characters of an error in it that a message quotes
LONGEST = 65_536
MOST_BRACKETS = 1000
SHOWN = 200
EXEC_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))


class NoClusterError(LoginError):
    """Nothing says where a cluster is."""


@dataclass(slots=True)
class Login:
    """What a client needs to connect to one API server."""

    server: str
    tls: ClientTls | None = None
    namespace: str = "default"
    tokens: TokenSource | None = None
    #: where CA and client certificate are read again
    files: TlsFiles | None = None
    #: the expected name in the server's certificate if it differs from the host in `server`
    server_hostname: str | None = None
    #: URL of an HTTP proxy on the way to the server
    proxy: str | None = None
    #: sent with every request: basic auth, impersonation
    fixed_headers: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        return self.tls.context if self.tls else None

    @property
    def certificates(self) -> int:
        """Counts the client certificates so far: connections older than the last one don't show it."""
        return self.tls.changes if self.tls else 0

    async def headers(self) -> dict[str, str]:
        if self.files:
            self.files.look()
        token = await self.tokens.token() if self.tokens else ""
        return {**self.fixed_headers, "Authorization": f"Bearer {token}"} if token else self.fixed_headers

    def for_another_thread(self, loop: asyncio.AbstractEventLoop) -> Login:
        """The same login for a client in another thread. Tokens and certificates are still renewed in `loop`."""
        tokens = self.tokens
        if not (tokens is None or isinstance(tokens, (FixedToken, FileToken))):
            tokens = LentToken(tokens, loop)
        return replace(self, tokens=tokens, files=None)

    def reject(self) -> bool:
        """The server answered 401. True if a second attempt with fresh credentials makes sense."""
        for source in (self.files, self.tokens):
            if source:
                source.reject()
        return bool(self.files or self.tokens)


def load(kubeconfig: str | Path | None = None, context: str | None = None, *, as_user: bool = True) -> Login:
    """The login that kubectl would use: the given file, else $KUBECONFIG, else ~/.kube/config, else in-cluster. Without
    `as_user` the server alone, with nobody's credentials.

    Raises LoginError with the file and field that is wrong or missing.
    """
    paths = [Path(kubeconfig).expanduser()] if kubeconfig else _default_paths()
    if not paths:
        if as_user and in_cluster_available():
            return in_cluster()
        if not as_user and in_pod():
            return cluster_server()
        raise NoClusterError("no cluster: no --kubeconfig, no $KUBECONFIG, no ~/.kube/config, and not inside a pod")
    return _from_kubeconfig(_Kubeconfig.read(paths), context, as_user=as_user)


def is_configured() -> bool:
    """Whether there is any cluster without a file given: $KUBECONFIG, ~/.kube/config, or this pod's."""
    return bool(_default_paths()) or in_cluster_available()


def document(text: str) -> dict[str, Any]:
    """A kubeconfig as it is written, of bounded size. Raises LoginError."""
    if len(text) > LONGEST:
        raise LoginError(f"it is longer than {LONGEST} characters")
    if text.count("[") + text.count("{") > MOST_BRACKETS:  # YAML's reader takes quadratic time for open ones
        raise LoginError(f"it has more than {MOST_BRACKETS} brackets")
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise LoginError(f"not YAML: {str(error)[:SHOWN]}") from error
    if not isinstance(found, dict):
        raise LoginError("not a kubeconfig")
    return found


def of_document(found: dict[str, Any], name: str) -> Login:
    """The login of a kubeconfig that is in no file; `name` stands for it in messages. Raises LoginError."""
    config = _Kubeconfig()
    config.add(Path(name), found)
    return _from_kubeconfig(config, None)


def in_pod(account: Path = SERVICE_ACCOUNT) -> bool:
    """Whether this process is in a pod that knows its cluster's API server, with or without a token."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (account / "ca.crt").exists()


def in_cluster_available(account: Path = SERVICE_ACCOUNT) -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (account / "token").exists()


def own_namespace(account: Path = SERVICE_ACCOUNT) -> str:
    """The namespace of this pod, from `$POD_NAMESPACE` (the downward API) or its service account; "" outside of a cluster."""
    if given := os.environ.get("POD_NAMESPACE"):
        return given
    try:
        return files.read_text(account / "namespace").strip()
    except OSError:
        return ""


def in_cluster(account: Path = SERVICE_ACCOUNT) -> Login:
    """The login of the pod's service account; its token and CA are read again every minute, and the token after a 401."""
    server = cluster_server(account)
    try:
        namespace = files.read_text(account / "namespace").strip()
    except OSError as error:
        raise LoginError(f"in-cluster login: {account}: {error}") from error
    return replace(server, namespace=namespace, tokens=FileToken(account / "token"))


def cluster_server(account: Path = SERVICE_ACCOUNT) -> Login:
    """The API server of the cluster that this pod is in, without credentials. Its CA is read again every minute."""
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        tls = ClientTls(ssl.create_default_context(cafile=str(account / "ca.crt")))
        certificates = TlsFiles(tls, account / "ca.crt")
    except KeyError as error:
        raise LoginError(f"in-cluster login: environment variable {error.args[0]} is not set") from error
    except OSError as error:
        raise LoginError(f"in-cluster login: {account}: {error}") from error
    host = f"[{host}]" if ":" in host else host
    return Login(f"https://{host}:{port}", tls, files=certificates)


def _default_paths() -> list[Path]:
    listed = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = listed or [Path("~/.kube/config").expanduser()]
    found = [path for path in candidates if path.is_file()]
    if listed and not found:
        raise LoginError(f"$KUBECONFIG names no file that exists: {os.environ['KUBECONFIG']}")
    return found


@dataclass(slots=True)
class _Entry:
    """A named cluster, user or context, and the file to which its relative paths refer."""

    value: dict[str, Any]
    file: Path
    name: str = ""

    def text(self, name: str) -> str:
        value = self.value.get(name)
        if value is not None and not isinstance(value, str):
            raise LoginError(f"{self.file}: {name}: a string is wanted, not {value!r}")
        return value or ""

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return self.file.parent / Path(text).expanduser() if text else None

    def own_path(self, name: str) -> Path | None:
        """The file named by `name`, unless `name`-data takes its place."""
        return None if self.text(f"{name}-data") else self.path(name)

    def content(self, name: str) -> bytes:
        """The bytes of `name`-data (base64), else of the file named by `name`, else nothing."""
        if data := self.text(f"{name}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise LoginError(f"{self.file}: {name}-data: {error}") from error
        path = self.path(name)
        try:
            return files.read_bytes(path) if path else b""
        except OSError as error:
            raise LoginError(f"{self.file}: {name}: {path}: {error.strerror}") from error


class _Kubeconfig:
    """One or several files, merged as in kubectl: the first one to name an entry wins."""

    def __init__(self) -> None:
        self.current = ""
        self.files: list[Path] = []
        self.sections: dict[str, dict[str, _Entry]] = {"clusters": {}, "users": {}, "contexts": {}}

    @classmethod
    def read(cls, paths: list[Path]) -> _Kubeconfig:
        merged = cls()
        for path in paths:
            try:
                document = yaml.safe_load(files.read_text(path)) or {}
            except OSError as error:
                raise LoginError(f"{path}: {error.strerror}") from error
            except yaml.YAMLError as error:
                raise LoginError(f"{path}: not YAML: {error}") from error
            if not isinstance(document, dict):
                raise LoginError(f"{path}: not a kubeconfig")
            merged.add(path.absolute(), document)
        return merged

    def add(self, path: Path, document: dict[str, Any]) -> None:
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
                entries.setdefault(item["name"], _Entry(value or {}, path, item["name"]))

    def entry(self, section: str, name: str) -> _Entry:
        if name in self.sections[section]:
            return self.sections[section][name]
        where = ", ".join(map(str, self.files))
        known = ", ".join(self.sections[section]) or "none"
        raise LoginError(f"{where}: {section}: there is no {name!r} (there is: {known})")


def _from_kubeconfig(config: _Kubeconfig, context_name: str | None, *, as_user: bool = True) -> Login:
    name = context_name or config.current
    if not name:
        raise LoginError(f"{config.files[0]}: current-context is not set and no context was named")
    context = config.entry("contexts", name)
    cluster = config.entry("clusters", context.text("cluster"))
    named = context.text("user") if as_user else ""
    user = config.entry("users", named) if named else _Entry({}, context.file)
    server = cluster.text("server").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise LoginError(f"{cluster.file}: clusters: server: a https:// address is wanted, not {server!r}")
    tls = _tls(cluster, user) if server.startswith("https://") else None
    return Login(
        server=server,
        tls=tls,
        namespace=context.text("namespace") or "default",
        tokens=_token_source(cluster, user, tls),
        files=_tls_files(tls, cluster, user),
        server_hostname=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or None,
        fixed_headers=_fixed_headers(user),
    )


def _tls(cluster: _Entry, user: _Entry) -> ClientTls:
    authority = cluster.content("certificate-authority").decode()
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError as error:
        raise LoginError(f"{cluster.file}: certificate-authority: {error}") from error
    if cluster.value.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    tls = ClientTls(context)
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if certificate and key:
        try:
            tls.present(certificate, key)
        except ssl.SSLError as error:
            raise LoginError(f"{user.file}: client-certificate and client-key don't fit: {error}") from error
    return tls


def _tls_files(tls: ClientTls | None, cluster: _Entry, user: _Entry) -> TlsFiles | None:
    """The files that a kubeconfig names; what it contains itself never changes."""
    if tls is None:
        return None
    authority = cluster.own_path("certificate-authority")
    certificate, key = user.own_path("client-certificate"), user.own_path("client-key")
    return TlsFiles(tls, authority, certificate, key) if authority or (certificate and key) else None


def _token_source(cluster: _Entry, user: _Entry, tls: ClientTls | None) -> TokenSource | None:
    if path := user.path("tokenFile"):
        return FileToken(path)
    if token := user.text("token"):
        return FixedToken(token)
    if (provider := user.value.get("auth-provider")) is not None:
        return _auth_provider(user, provider)
    spec = user.value.get("exec")
    if spec is None:
        return None
    if not isinstance(spec, dict) or not spec.get("command"):
        raise LoginError(f"{user.file}: users: exec.command is not set")
    if spec.get("apiVersion") not in EXEC_VERSIONS:
        raise LoginError(f"{user.file}: users: exec.apiVersion: one of {', '.join(EXEC_VERSIONS)} is wanted")
    for item in spec.get("env") or []:
        if (
            not isinstance(item, dict)
            or not isinstance(item.get("name"), str)
            or not isinstance(item.get("value"), str)
        ):
            raise LoginError(f"{user.file}: users: exec.env: pairs of name and value are wanted, not {item!r}")
    if "/" in spec["command"]:  # a path is relative to the file, a bare name is looked up in $PATH
        spec = {**spec, "command": str(user.file.parent / spec["command"])}
    return ExecToken(spec, cluster.value, tls)


def _auth_provider(user: _Entry, provider: Any) -> TokenSource:
    settings = provider.get("config") if isinstance(provider, dict) else None
    if not isinstance(settings, dict):
        raise LoginError(f"{user.file}: users: auth-provider: name and config are wanted")
    if provider.get("name") != "oidc":
        raise LoginError(f"{user.file}: users: auth-provider {provider.get('name')} is gone; use an exec plugin")
    return OidcToken(settings, user.file, user.name)


def _fixed_headers(user: _Entry) -> dict[str, str]:
    headers: dict[str, str] = {}
    if user.text("username") and user.text("password"):
        pair = f"{user.text('username')}:{user.text('password')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if user.text("as"):
        headers["Impersonate-User"] = user.text("as")
    if user.text("as-uid"):
        headers["Impersonate-Uid"] = user.text("as-uid")
    groups = user.value.get("as-groups") or []
    if groups and (not isinstance(groups, list) or len(groups) > 1 or not isinstance(groups[0], str)):
        raise LoginError(f"{user.file}: users: as-groups: one group can be impersonated, not several")
    if groups:
        headers["Impersonate-Group"] = groups[0]
    if user.value.get("as-user-extra"):
        raise LoginError(f"{user.file}: users: as-user-extra cannot be impersonated")
    return headers
