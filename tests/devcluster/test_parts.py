"""The parts of a control plane that need none: processes, locks, ports, certificates, kubeconfigs, progress."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from tests.controlplane import eventually

from gangline import files
from gangline.devcluster import locks
from gangline.devcluster.certs import Authority, signing_keys
from gangline.devcluster.components import (
    COMPONENTS,
    Component,
    ControlPlaneOptions,
    Layout,
    Ports,
    arguments,
    create_certificates,
    environment,
)
from gangline.devcluster.errors import DevClusterError, StartError
from gangline.devcluster.kubeconfig import read_contexts, users_kubeconfig, write_kubeconfig
from gangline.devcluster.locks import FileLock, PortReservation, private_directory
from gangline.devcluster.processes.process import ProcessId
from gangline.devcluster.processes.supervisor import PortTakenError, Supervisor, end_leftovers
from gangline.devcluster.progress import narrate

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


# -- processes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper():
    process = subprocess.Popen(SLEEP)
    yield process
    process.kill()
    process.wait()


def identify(process: subprocess.Popen[bytes]) -> ProcessId:
    known = ProcessId.of(process.pid)
    assert known is not None
    return known


def test_a_process_is_recognised_by_its_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    ours = identify(sleeper)
    somebody_elses = ProcessId(ours.pid, "another boot/12345")
    assert ours.alive()
    assert not somebody_elses.alive()
    somebody_elses.end(patience=0.0)  # must not touch the process that has the pid now
    assert sleeper.poll() is None


def test_a_zombie_is_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    ours = identify(sleeper)
    sleeper.kill()
    assert eventually(lambda: not ours.alive()), "dead, though nobody has waited for it yet"


def test_ends_a_process_that_ignores_sigterm() -> None:
    code = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready',flush=True); time.sleep(300)"
    )
    stubborn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    identify(stubborn).end(patience=0.2)
    assert stubborn.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("content", ["", "123", "[]", '{"pid": "x", "started": "y"}', '{"pid": 1}', "\x00"])
def test_a_broken_pid_file_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "etcd.pid").write_text(content)
    assert ProcessId.read(tmp_path / "etcd.pid") is None
    assert end_leftovers(tmp_path, ["etcd"]) == []


def test_leftovers_are_ended_and_strangers_are_not(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    identify(sleeper).write(tmp_path / "etcd.pid")
    (tmp_path / "kwok.pid").write_text(json.dumps({"pid": os.getpid(), "started": "long ago"}))
    assert end_leftovers(tmp_path, ["kwok", "etcd"]) == ["etcd"]
    assert sleeper.wait(5) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


# -- the supervisor ----------------------------------------------------------------------------------------------------


def test_a_program_that_ends_is_an_error_with_its_log(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.spawn("etcd", ["/bin/sh", "-c", "echo bad flag >&2; exit 3"], dict(os.environ))
    with pytest.raises(StartError, match=r"(?s)etcd ended with status 3.*bad flag"):
        supervisor.wait("etcd", lambda: False, 10)
    supervisor.close()


def test_a_taken_port_is_told_apart(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.spawn("etcd", ["/bin/sh", "-c", "echo listen: bind: address already in use; exit 1"], dict(os.environ))
    with pytest.raises(PortTakenError):
        supervisor.wait("etcd", lambda: False, 10)
    supervisor.close()


def test_a_program_that_is_never_ready_is_an_error(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.spawn("etcd", SLEEP, dict(os.environ))
    with pytest.raises(StartError, match=r"etcd was not ready after 0.2 s"):
        supervisor.wait("etcd", lambda: False, 0.2)
    supervisor.stop("etcd", patience=0)
    assert supervisor.process("etcd") is None
    supervisor.close()


def test_children_follow_a_killed_parent(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from gangline.devcluster.processes.supervisor import Supervisor
supervisor = Supervisor(Path({str(tmp_path)!r}))
supervisor.spawn("a", {SLEEP!r}, dict(os.environ))
supervisor.spawn("b", {SLEEP!r}, dict(os.environ))
print("ready", flush=True)
time.sleep(300)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    children = [ProcessId.read(tmp_path / f"{name}.pid") for name in "ab"]
    assert all(child is not None and child.alive() for child in children)
    parent.kill()
    assert eventually(lambda: not any(child is not None and child.alive() for child in children))
    parent.wait()


def test_detached_children_live_on(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from gangline.devcluster.processes.supervisor import Supervisor
Supervisor(Path({str(tmp_path)!r}), detached=True).spawn("a", {SLEEP!r}, dict(os.environ))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    child = ProcessId.read(tmp_path / "a.pid")
    assert child is not None
    assert child.alive()
    assert end_leftovers(tmp_path, ["a"]) == ["a"]
    assert not child.alive()


# -- locks and ports ---------------------------------------------------------------------------------------------------


def test_the_kernel_frees_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    code = "import sys,time;from pathlib import Path;from gangline.devcluster.locks import FileLock\n"
    code += f"lock=FileLock(Path({str(tmp_path / 'lock')!r}));lock.acquire();print('held',flush=True);time.sleep(300)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    lock = FileLock(tmp_path / "lock")
    assert not lock.try_acquire()
    holder.kill()
    holder.wait()
    assert lock.try_acquire()
    lock.release()


def test_a_reserved_port_is_nobody_elses_even_while_unused() -> None:
    mine, other = PortReservation(), PortReservation()
    port = mine.take()
    assert not other.take_exactly(port)
    mine.release()
    assert other.take_exactly(port)
    other.release()


def test_a_port_in_use_is_not_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reservation = PortReservation()
        assert not reservation.take_exactly(server.getsockname()[1])
        reservation.release()


def test_refuses_a_temporary_directory_of_somebody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    assert stat.S_IMODE(private_directory("planes").stat().st_mode) == 0o700
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"gangline-{os.getuid()}" / "ports").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="belongs to another user"):
        private_directory("ports")


# -- certificates and kubeconfigs --------------------------------------------------------------------------------------


def handshake(authority: Path, server: tuple[Path, Path], client: tuple[Path, Path] | None, hostname: str) -> dict:
    """The client's certificate as the server saw it, after a mutual TLS handshake. Raises ssl.SSLError."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    server_context.load_cert_chain(*server)
    server_context.verify_mode = ssl.CERT_REQUIRED
    client_context = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        client_context.load_cert_chain(*client)
    left, right = socket.socketpair()
    seen: dict = {}

    def serve() -> None:
        try:
            with server_context.wrap_socket(left, server_side=True) as tls:
                seen.update(tls.getpeercert() or {})
                tls.send(b"x")
        except OSError:
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client_context.wrap_socket(right, server_hostname=hostname) as tls:
            tls.recv(1)
    finally:
        right.close()
        thread.join()
    return seen


def test_certificates_work_both_ways(tmp_path: Path) -> None:
    authority = Authority.create("test-ca")
    ca, _ = authority.pair.save(tmp_path, "ca")
    server = authority.issue_server("server", ("127.0.0.1", "localhost")).save(tmp_path, "server")
    client = authority.issue_client("alice", ("dev", "ops")).save(tmp_path, "alice")
    subject = [field for part in handshake(ca, server, client, "127.0.0.1")["subject"] for field in part]
    assert ("commonName", "alice") in subject
    assert [value for name, value in subject if name == "organizationName"] == ["dev", "ops"]

    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(ca, server, client, "10.1.2.3")
    stranger = Authority.create("test-ca").issue_client("alice").save(tmp_path, "stranger")
    with pytest.raises(ssl.SSLError, match="unknown ca"):
        handshake(ca, server, stranger, "localhost")
    with pytest.raises(ssl.SSLError, match="certificate required"):
        handshake(ca, server, None, "localhost")


def test_a_saved_authority_issues_more(tmp_path: Path) -> None:
    created = Authority.create("test-ca")
    ca, _ = created.pair.save(tmp_path, "ca")
    loaded = Authority.load(tmp_path, "ca")
    server = created.issue_server("server", ("localhost",)).save(tmp_path, "server")
    client = loaded.issue_client("bob").save(tmp_path, "bob")
    assert handshake(ca, server, client, "localhost")["subject"] == ((("commonName", "bob"),),)


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    for path in signing_keys().save(tmp_path, "keys"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "open").write_text("old")
    (tmp_path / "open").chmod(0o644)
    files.write(tmp_path / "open", b"new")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o600


def test_a_written_kubeconfig_embeds_everything(tmp_path: Path) -> None:
    authority = Authority.create("ca")
    path = tmp_path / "kubeconfig"
    write_kubeconfig(
        path,
        name="here",
        server="https://127.0.0.1:1",
        authority=authority.pair.certificate,
        user="me",
        client=authority.issue_client("me"),
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = yaml.safe_load(path.read_text())
    assert content["clusters"][0]["cluster"].keys() == {"server", "certificate-authority-data"}
    assert content["users"][0]["user"].keys() == {"client-certificate-data", "client-key-data"}
    assert read_contexts(path).current == "here"
    assert read_contexts(path).names == ("here",)


@pytest.mark.parametrize("content", ["- a", "{", "contexts: 5", "\udcff"])
def test_a_broken_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DevClusterError, match=str(path)):
        read_contexts(path)


def test_the_users_kubeconfig_is_kubectls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a{os.pathsep}{tmp_path}/b")
    assert users_kubeconfig() == tmp_path / "b"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert users_kubeconfig() == tmp_path / ".kube" / "config"


# -- command lines -----------------------------------------------------------------------------------------------------

PORTS = Ports(20001, 20002, 20003, 20004, 20005, 20006)


def test_everything_listens_on_loopback_with_tls(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    create_certificates(layout)
    for component in COMPONENTS:
        for flag in arguments(component, layout, PORTS, ControlPlaneOptions()):
            name, _, value = flag.partition("=")
            assert "http://" not in value
            assert "0.0.0.0" not in value
            assert "insecure" not in name
            if name.endswith(("-file", "cafile", "certfile", "keyfile")):
                assert Path(value).exists(), flag


def test_the_users_flags_come_last(tmp_path: Path) -> None:
    options = ControlPlaneOptions(flags={"kube-apiserver": ["--profiling=true"]})
    assert arguments("kube-apiserver", Layout(tmp_path), PORTS, options)[-1] == "--profiling=true"
    assert "--profiling=true" not in arguments("kube-scheduler", Layout(tmp_path), PORTS, options)


@pytest.mark.parametrize(("component", "gogc"), [("kube-apiserver", "400"), ("etcd", None)])
def test_the_environment_is_clean(monkeypatch: pytest.MonkeyPatch, component: Component, gogc: str | None) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("ETCD_DATA_DIR", "/elsewhere")
    monkeypatch.delenv("GOGC", raising=False)
    variables = environment(component, ControlPlaneOptions(gogc=400))
    assert "HTTPS_PROXY" not in variables
    assert "ETCD_DATA_DIR" not in variables
    assert variables.get("GOGC") == gogc


def test_certificates_are_made_once(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    create_certificates(layout)
    first = layout.certificate("ca").read_bytes()
    create_certificates(layout)
    assert layout.certificate("ca").read_bytes() == first


# -- progress ----------------------------------------------------------------------------------------------------------


def test_quick_work_is_silent() -> None:
    out = io.StringIO()
    with narrate("Building", stream=out, quiet=5):
        pass
    assert out.getvalue() == ""


def test_slow_work_is_told_with_its_detail() -> None:
    out = io.StringIO()
    with narrate("Building", lambda: "12 packages", stream=out, quiet=0.05):
        time.sleep(0.3)
    assert out.getvalue() == "Building … 0 s (12 packages)\nBuilding: done after 0 s\n"


def test_failed_work_is_told_as_failed() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="broken"), narrate("Building", stream=out, quiet=0.0):
        time.sleep(0.05)
        raise ValueError("broken")
    assert out.getvalue().endswith("Building: failed after 0 s\n")
