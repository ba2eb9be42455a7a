"""The first process of a real node, in namespaces of its own: it mounts the node's own directories and runs its programs.

Run as a script, with the standard library only: `node_init.py SPEC`, a JSON file (`RealNodes._spec`). When it dies, the kernel
ends every process of the node and removes its mounts.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 0x1000, 0x4000, 1 << 18, 1 << 20
#: what kubelet would set on the whole machine: it reads files of ours instead
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
NETWORK_WITHIN = 20.0
SOCKET_WITHIN = 60.0
RESTART_AFTER = 1.0
libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(spec["name"])
    make_directories_own(Path(spec["directory"]))
    join_network(spec)
    programs = {name: NodeProgram(name, command, spec) for name, command in spec["programs"].items()}
    programs["containerd"].start()
    wait_for(Path(spec["socket"]))
    subprocess.run(spec["prepare"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    programs["kubelet"].start()
    look_after(programs)


class NodeProgram:
    """One program of the node, started again when it ends, as systemd would."""

    def __init__(self, name: str, command: list[str], spec: dict) -> None:
        self.name = name
        self.command = command
        self.log = Path(spec["logs"]) / f"{spec['name']}-{name}.log"
        self.environment = {**os.environ, **spec["environment"]}
        self.pid = 0
        self.due = 0.0

    def start(self) -> None:
        with self.log.open("ab") as log:
            log.write(f"\n=== {' '.join(self.command)}\n".encode())
            log.flush()
            child = subprocess.Popen(
                self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        child.returncode = 0  # it is waited for below, not by its destructor
        self.pid = child.pid


def look_after(programs: dict[str, NodeProgram]) -> None:
    """Reap whatever ends, orphans included, and start a program again that ended."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pid = 0
        for program in programs.values():
            if pid and program.pid == pid:
                program.pid, program.due = 0, time.monotonic() + RESTART_AFTER
            if not program.pid and time.monotonic() >= program.due:
                program.start()
        if not pid:
            time.sleep(0.1)


def make_directories_own(directory: Path) -> None:
    """/var/lib, /var/log, /etc/cni and /run of the node's own; pods' mounts are passed on to the programs (rshared)."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    for own, place in (("lib", "/var/lib"), ("log", "/var/log"), ("cni", "/etc/cni")):
        source = directory / own
        source.mkdir(parents=True, exist_ok=True)
        Path(place).mkdir(parents=True, exist_ok=True)
        mount(str(source), place, "", MS_BIND)
    mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    settings = Path("/run/settings")
    settings.mkdir()
    for name, value in KERNEL_SETTINGS.items():
        place = Path("/proc/sys") / name
        if place.exists():
            own_file = settings / name.replace("/", "-")
            own_file.write_text(f"{value}\n")
            mount(str(own_file), str(place), "", MS_BIND)
    mount("none", "/", "", MS_REC | MS_SHARED)


def join_network(spec: dict) -> None:
    """Wait for the link that the hub gives this node, and configure it."""
    deadline = time.monotonic() + NETWORK_WITHIN
    while "eth0" not in (name for _, name in socket.if_nameindex()):
        if time.monotonic() > deadline:
            sys.exit("no network came")
        time.sleep(0.01)
    for command in (
        "link set lo up",
        f"addr add {spec['address']}/{spec['prefix']} dev eth0",
        "link set eth0 up",
        f"route add default via {spec['gateway']}",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    for name, value in {"ip_forward": "1", "conf/all/rp_filter": "0", "conf/default/rp_filter": "0"}.items():
        (Path("/proc/sys/net/ipv4") / name).write_text(value)


def wait_for(path: Path) -> None:
    """Wait until a program has made its socket, and listens."""
    deadline = time.monotonic() + SOCKET_WITHIN
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                return
        if time.monotonic() > deadline:
            sys.exit(f"{path} was not there in time")
        time.sleep(0.02)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode() or None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
