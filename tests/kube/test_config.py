"""Logins: kubeconfigs as they are found in the wild, and the service account of a pod."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.kube.kubeconfigs import kubeconfig

from gangline.kube import config
from gangline.kube.config import LoginError


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


async def test_token(tmp_path: Path) -> None:
    login = config.load(kubeconfig(tmp_path, {"token": "abc"}))
    assert login.server == "https://example.test:6443"
    assert login.namespace == "team"
    assert await login.headers() == {"Authorization": "Bearer abc"}
    assert login.ssl_context is not None and login.ssl_context.verify_mode is ssl.CERT_REQUIRED


async def test_certificates_inline_and_in_relative_files(tmp_path: Path, pair: tuple[bytes, bytes]) -> None:
    certificate, key = pair
    (tmp_path / "ca.pem").write_bytes(certificate)
    (tmp_path / "me.pem").write_bytes(certificate)
    (tmp_path / "me.key").write_bytes(key)
    files = {"client-certificate": "me.pem", "client-key": "me.key"}
    encoded = {
        f"{name}-data": base64.b64encode((tmp_path / file).read_bytes()).decode() for name, file in files.items()
    }
    for user in (files, encoded):
        path = kubeconfig(tmp_path, user, **{"certificate-authority": "ca.pem", "tls-server-name": "other"})
        login = config.load(path)
        assert login.ssl_context is not None and login.ssl_context.cert_store_stats()["x509"] == 1
        assert login.server_hostname == "other"
        assert login.tokens is None


async def test_context_by_name_and_basic_auth(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"username": "a", "password": "b", "as": "boss"})
    login = config.load(path)
    assert await login.headers() == {"Authorization": "Basic YTpi", "Impersonate-User": "boss"}
    one = config.load(kubeconfig(tmp_path, {"as": "boss", "as-uid": "7", "as-groups": ["staff"]}))
    assert await one.headers() == {
        "Impersonate-User": "boss",
        "Impersonate-Uid": "7",
        "Impersonate-Group": "staff",
    }
    for more in ({"as-groups": ["a", "b"]}, {"as-groups": "staff"}, {"as-user-extra": {"reason": ["x"]}}):
        with pytest.raises(LoginError, match=next(iter(more))):
            config.load(kubeconfig(tmp_path, {"as": "boss", **more}))
    path = kubeconfig(tmp_path, {"username": "a", "password": "b", "as": "boss"})
    bare = config.load(path, "bare")
    assert bare.namespace == "default"
    assert await bare.headers() == {}
    assert not bare.reject()


def test_insecure_is_only_on_request(tmp_path: Path) -> None:
    login = config.load(kubeconfig(tmp_path, {}, **{"insecure-skip-tls-verify": True}))
    assert login.ssl_context is not None and login.ssl_context.verify_mode is ssl.CERT_NONE


def test_several_files_are_merged_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "first"
    first.write_text(yaml.safe_dump({"current-context": "bare", "users": [{"name": "u", "user": {"token": "first"}}]}))
    second = kubeconfig(tmp_path, {"token": "second"})
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'absent'}:{second}")
    assert config.load().tokens is None
    assert config.load(context="main").tokens == config.FixedToken("first")


async def test_a_token_file_comes_before_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("rotated")
    login = config.load(kubeconfig(tmp_path, {"token": "old", "tokenFile": "token"}))
    assert await login.headers() == {"Authorization": "Bearer rotated"}


V1 = "client.authentication.k8s.io/v1"
BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"exec": {}}, {}, "exec.command"),
    ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, {}, "exec.apiVersion"),
    ({"client-certificate": "absent.pem", "client-key": "absent.key"}, {}, "client-certificate: .*absent.pem"),
    ({"token": 5}, {}, "token: a string is wanted"),
    ({}, {"certificate-authority-data": "%%%"}, "certificate-authority-data"),
    ({}, {"certificate-authority-data": base64.b64encode(b"nonsense").decode()}, "certificate-authority"),
    ({"auth-provider": {"name": "gcp", "config": {}}}, {}, "auth-provider gcp is gone"),
    ({"auth-provider": {"name": "oidc"}}, {}, "auth-provider: name and config"),
    ({"auth-provider": {"name": "oidc", "config": {"client-id": "c"}}}, {}, "u: auth-provider oidc: idp-issuer-url"),
    ({"exec": {"command": "x", "apiVersion": V1, "env": [{"name": "A"}]}}, {}, "exec.env"),
    ({}, {"server": "example.test"}, "server: a https:// address"),
]


@pytest.mark.parametrize(("user", "cluster", "message"), BAD)
def test_what_is_wrong_is_named(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(LoginError, match=message):
        config.load(kubeconfig(tmp_path, user, **cluster))


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path, {})
    with pytest.raises(LoginError, match=r"contexts: there is no 'x' \(there is: main, bare, lost\)"):
        config.load(path, "x")
    with pytest.raises(LoginError, match="clusters: there is no 'nowhere'"):
        config.load(path, "lost")
    with pytest.raises(LoginError, match="No such file"):
        config.load(tmp_path / "absent")
    path.write_text("a: [")
    with pytest.raises(LoginError, match="not YAML"):
        config.load(path)
    path.write_text("- 1")
    with pytest.raises(LoginError, match="not a kubeconfig"):
        config.load(path)
    path.write_text("clusters: [{name: c, cluster: 5}]")
    with pytest.raises(LoginError, match=r"clusters\[0\]"):
        config.load(path)
    path.write_text("users: 5")
    with pytest.raises(LoginError, match="users: a list"):
        config.load(path)
    path.write_text("{}")
    with pytest.raises(LoginError, match="current-context"):
        config.load(path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(LoginError, match="KUBECONFIG"):
        config.load()
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LoginError, match="no cluster"):
        config.load()


# --- inside a pod -----------------------------------------------------------------------------------------------------


async def test_in_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[bytes, bytes]) -> None:
    for name, content in (("ca.crt", pair[0]), ("token", b"one\n"), ("namespace", b"gangline-system")):
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert config.in_cluster_available(tmp_path)
    login = config.in_cluster(tmp_path)
    assert login.server == "https://[fd00::1]:443"
    assert login.namespace == "gangline-system"
    assert await login.headers() == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two")
    assert await login.headers() == {"Authorization": "Bearer one"}
    login.reject()
    assert await login.headers() == {"Authorization": "Bearer two"}
    (tmp_path / "token").unlink()
    login.reject()
    assert await login.headers() == {"Authorization": "Bearer two"}, "an old token beats none"


def test_in_cluster_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LoginError, match="KUBERNETES_SERVICE_HOST"):
        config.in_cluster(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(LoginError, match=str(tmp_path)):
        config.in_cluster(tmp_path)
