"""Real nodes beside one local control plane: started, stopped, cut off, and removed without a trace."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gangline.devcluster.certs import Authority
from gangline.devcluster.components import SERVICE_CIDR, Layout
from gangline.devcluster.errors import DevClusterError, StartError
from gangline.devcluster.kubeconfig import write_kubeconfig
from gangline.devcluster.locks import locked
from gangline.devcluster.nodes import LEASE_NAMESPACE, POOL_LABEL, wait_ready
from gangline.devcluster.processes.supervisor import Supervisor, end_leftovers, free_of_proxies
from gangline.devcluster.real import cgroups, network, preflight, programs, settings
from gangline.devcluster.real.network import namespace_of
from gangline.devcluster.real.programs import Programs
from gangline.devcluster.real.settings import GPU, PAUSE, POOL, RealPool
from gangline.image import oci
from gangline.kube import config
from gangline.kube.client import ApiClient, ApiError, NotFound
from gangline.kube.resources import LEASES, NODES

# --- images on real nodes: the pause container's, made here, and archives that are imported without a registry --------


#: containerd's namespace for the images and containers of Kubernetes
_KUBERNETES: Final = "k8s.io"
_AT_ONCE: Final = 2
_PAUSE_USER: Final = "65535:65535"


def pause(programs: Programs) -> Path:
    """The archive of the pause container's image, made once."""
    into = programs.own / "pause.tar"
    with locked(programs.own / "pause.lock"):
        if not into.exists():
            binary = oci.LayerEntry("pause", mode=0o755, content=programs.own / "pause")
            layer = oci.write_layer([binary], programs.own / "pause.layer")
            oci.write_archive(into, PAUSE, [layer], oci.Config(entrypoint=("/pause",), user=_PAUSE_USER))
            layer.file.unlink()
    return into


def import_command(programs: Programs, archive: Path) -> list[str]:
    """The command that imports an archive, to be run on a node."""
    ctr = programs.containerd / "ctr"
    return [str(ctr), "-n", _KUBERNETES, "images", "import", "--local", "--discard-unpacked-layers", str(archive)]


def load(archive: Path, nodes: Mapping[str, int], programs: Programs) -> None:
    """Import an archive on nodes, given with their processes. Raises DevClusterError."""
    if not archive.is_file():
        raise DevClusterError(f"there is no image archive at {archive}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for trouble in pool.map(lambda each: _import(each[0], each[1], archive.resolve(), programs), nodes.items()):
            if trouble:
                raise DevClusterError(trouble)


def _import(name: str, pid: int, archive: Path, programs: Programs) -> str:
    command = on_node(pid, import_command(programs, archive))
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"node {name} can't import {archive}: {answer.stderr.strip()[-500:]}" if answer.returncode else ""


def on_node(pid: int, command: Sequence[str]) -> list[str]:
    """A command in the namespaces of a node, given by its process."""
    init = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    mounts = Path(f"/proc/{init}/ns/mnt")
    return ["nsenter", f"--net={namespace_of(pid)}", f"--mount={mounts}", "--", *command]


HUB: Final = "hub"
_SERVICES: Final = ("kube-proxy", "dns")
_SCRIPTS: Final = Path(__file__).parent
_HUB_WITHIN: Final = 15.0
_PYTHON: Final = (sys.executable, "-I", "-S")
_UNSHARE: Final = (
    *("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
)


class RealNodes:
    """The hub and the real nodes of one control plane. `supervisor` starts and knows their processes."""

    def __init__(self, layout: Layout, supervisor: Supervisor, pool: RealPool) -> None:
        self.pool = pool
        self._layout = layout
        self._supervisor = supervisor
        self._programs: Programs | None = None

    # -- the hub -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Check the machine and build what is missing. Raises StartError or BuildError."""
        preflight.check(self._layout.directory, self.pool.count)
        self._programs = programs.ensure()
        self.pool.save(self._layout.directory)

    def start_hub(self, ports: Sequence[int], inward: int) -> None:
        """Start the hub, reached from outside at these ports of 127.0.0.1, and by pods at its address and port `inward`.
        Raises StartError.
        """
        ready = self._directory / "hub.ready"
        ready.parent.mkdir(mode=0o700, exist_ok=True)
        ready.unlink(missing_ok=True)
        given = {
            "--ready": ready,
            "--address": network.HUB,
            "--prefix": network.NODES_PREFIX,
            "--bridge": network.BRIDGE,
            "--services": SERVICE_CIDR,
            "--inward": inward,
        }
        options = [str(word) for pair in given.items() for word in pair]
        command = [*_PYTHON, str(_SCRIPTS / "hub.py"), *options, *(str(port) for port in ports)]
        self._supervisor.spawn(HUB, command, os.environ)
        self._supervisor.wait(HUB, ready.exists, _HUB_WITHIN)

    @property
    def hub_runs(self) -> bool:
        return self._supervisor.process(HUB) is not None

    def enter_hub(self) -> list[str]:
        """The prefix of a command that runs in the hub. Raises DevClusterError if the hub does not run."""
        return network.enter(self._hub)

    def start_services(self, users: dict[str, Path]) -> None:
        """Start kube-proxy and DNS. `users`: the kubeconfig of each."""
        own = self._need_programs()
        proxy = self._directory / "kube-proxy.json"
        proxy.write_text(json.dumps(settings.kube_proxy(users["kube-proxy"]), indent=1))
        corefile = self._directory / "Corefile"
        corefile.write_text(settings.corefile(users["dns"]))
        first = next(iter(self.pool.addresses))  # it waits half a minute for a node of its own to appear
        commands = {
            "kube-proxy": [own.node / "kube-proxy", f"--config={proxy}", f"--hostname-override={first}"],
            "dns": [own.own / "gangline-dns", "-conf", corefile],
        }
        for name, command in commands.items():
            if self._supervisor.process(name) is None:
                words = [*self.enter_hub(), *(str(word) for word in command)]
                self._supervisor.spawn(name, words, free_of_proxies() | own.environment())

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def start_nodes(self, server: str) -> list[str]:
        """Start all nodes that don't run. Returns their names. Raises StartError."""
        todo = [name for name in self.pool.addresses if not self.running(name)]
        for name in todo:
            self.start_node(name, server)
        return todo

    def start_node(self, name: str, server: str) -> None:
        """Start a node, or reconnect one that was cut off. `server`: the API server's URL in the hub. Raises StartError."""
        address = self._address(name)
        if self.running(name):
            network.set_link(self._hub, address, up=True)
            return
        own = self._need_programs()
        files = settings.NodeFiles(self._directory / name)
        cgroup = cgroups.create(self._cgroups, name)
        for directory in cgroups.directories(self._cgroups):
            self._supervisor.guard_cgroup(directory)
        settings.write_node(files, address, own, self._layout.certificate("ca"), cgroup, self.pool.lease)
        self._issue(name, files, address.address, server)
        spec = files.directory / "node.json"
        spec.write_text(json.dumps(self._spec(name, files, own), indent=1))
        self._supervisor.spawn(
            _program(name), [*_UNSHARE, *_PYTHON, str(_SCRIPTS / "node_init.py"), str(spec)], free_of_proxies()
        )
        network.connect(self._hub, self._pid(name), address)

    def stop_node(self, name: str) -> None:
        """Switch a node off: all its processes die at once."""
        self._address(name)
        self._supervisor.stop(_program(name), patience=0.0)

    def cut_node(self, name: str) -> None:
        """Cut a node off from the network; its pods go on. Raises DevClusterError if it does not run."""
        address = self._address(name)
        self._pid(name)
        network.set_link(self._hub, address, up=False)

    def running(self, name: str) -> bool:
        return self._supervisor.process(_program(name)) is not None

    def pids(self) -> dict[str, int | None]:
        """The pids of all programs by name; None for one that does not run."""
        found = {name: self._supervisor.process(name) for name in (HUB, *_SERVICES)}
        found |= {name: self._supervisor.process(_program(name)) for name in self.pool.addresses}
        return {name: process.pid if process is not None else None for name, process in found.items()}

    def state(self, name: str) -> str:
        """The state of a node in one word or two. Raises DevClusterError if there is no such node."""
        address = self._address(name)
        if not self.running(name):
            return "off"
        return "running" if network.link_is_up(self._hub, address) else "cut off"

    def load_image(self, archive: Path, names: Iterable[str] | None = None) -> list[str]:
        """Import an image archive on nodes, by default on all that run. Returns their names. Raises DevClusterError."""
        chosen = [name for name in (self.pool.addresses if names is None else names) if self.running(name)]
        load(archive, {name: self._pid(name) for name in chosen}, self._need_programs())
        return chosen

    def stop(self) -> None:
        """End everything, and remove the cgroups."""
        end(self._layout.directory, self._supervisor)

    # -- parts ---------------------------------------------------------------------------------------------------------

    @property
    def _directory(self) -> Path:
        return self._layout.directory / "real"

    @property
    def _cgroups(self) -> str:
        return cgroups.name_of(self._layout.directory)

    @property
    def _hub(self) -> int:
        process = self._supervisor.process(HUB)
        if process is None:
            raise DevClusterError("the network of the real nodes is down; start the cluster afresh")
        return process.pid

    def _pid(self, name: str) -> int:
        process = self._supervisor.process(_program(name))
        if process is None:
            raise DevClusterError(f"node {name} does not run; `gangline dev cluster node start {name}` starts it")
        return process.pid

    def _address(self, name: str) -> network.NodeAddress:
        found = self.pool.addresses.get(name)
        if found is None:
            raise DevClusterError(f"there is no real node {name!r}; there are: {', '.join(self.pool.addresses)}")
        return found

    def _need_programs(self) -> Programs:
        if self._programs is None:
            self._programs = programs.ensure()
        return self._programs

    def _issue(self, name: str, files: settings.NodeFiles, address: str, server: str) -> None:
        """The kubelet's certificates: as a client of the API server, and as a server for it."""
        authority = Authority.load(self._layout.certificates, "ca")
        if not (files.certificates / "kubelet.crt").exists():
            files.certificates.mkdir(mode=0o700, exist_ok=True)
            authority.issue_server(name, (address, name)).save(files.certificates, "kubelet")
        user = f"system:node:{name}"
        client = authority.issue_client(user, ("system:nodes",))
        trusted = authority.pair.certificate
        write_kubeconfig(files.kubeconfig, name=name, server=server, authority=trusted, user=user, client=client)

    def _spec(self, name: str, files: settings.NodeFiles, own: Programs) -> dict[str, object]:
        """What `node_init` needs."""
        address = self._address(name)
        kubelet = {
            "--config": files.kubelet,
            "--kubeconfig": files.kubeconfig,
            "--hostname-override": name,
            "--node-ip": address.address,
            "--root-dir": "/var/lib/kubelet",
            "--cert-dir": "/var/lib/kubelet/pki",
            "--node-labels": f"{POOL_LABEL}={POOL}",
        }
        return {
            "name": name,
            "directory": str(files.directory),
            "logs": str(self._layout.directory),
            "address": address.address,
            "prefix": network.NODES_PREFIX,
            "gateway": network.HUB,
            "environment": own.environment(),
            "socket": settings.SOCKET,
            "prepare": import_command(own, pause(own)),
            "programs": {
                "containerd": [str(own.containerd / "containerd"), "--config", str(files.containerd)],
                "kubelet": [str(own.node / "kubelet"), *(f"{flag}={value}" for flag, value in kubelet.items())],
            },
        }


def end(directory: Path, supervisor: Supervisor | None = None) -> bool:
    """End what runs of real nodes in a cluster's directory, and remove their cgroups. Returns whether there was anything."""
    if RealPool.load(directory) is None:
        return False
    names = [path.stem for path in directory.glob(f"{_program('*')}.pid")]
    for name in (*names, *_SERVICES, HUB):
        if supervisor is not None:
            supervisor.stop(name, patience=0.0)
        else:
            end_leftovers(directory, [name])
    cgroups.remove(cgroups.name_of(directory))
    return True


def program_names(pool: RealPool) -> list[str]:
    """The names of the processes of such nodes, beside those of the control plane."""
    return [HUB, *_SERVICES, *(_program(name) for name in pool.addresses)]


def remove_files(directory: Path) -> None:
    """Remove a cluster's directory; the last mounts of its nodes go away a moment after their processes."""
    deadline = time.monotonic() + 10.0
    while directory.exists():
        try:
            shutil.rmtree(directory)
        except OSError as error:
            if time.monotonic() > deadline:
                raise StartError(f"{directory} can't be removed: {error}") from error
            time.sleep(0.1)
    with suppress(OSError):
        directory.rmdir()


def _program(name: str) -> str:
    return f"node-{name}"


# --- registration -----------------------------------------------------------------------------------------------------
#
# Real nodes as the cluster sees them: waited for until they are Ready, and given the GPUs that they pretend to have.


WITHIN: Final = 90.0


def await_nodes(kubeconfig: Path, pool: RealPool, names: Iterable[str]) -> None:
    """Return when these nodes have sent a heartbeat, are Ready and show their GPUs. Raises DevClusterError."""
    began = datetime.now(UTC)

    async def wait() -> None:
        async with ApiClient(config.load(kubeconfig)) as client:
            async with asyncio.TaskGroup() as group:
                for name in chosen:
                    group.create_task(_register(client, name, pool.gpus, began))
            await wait_ready(client, chosen, timeout=WITHIN)

    chosen = list(names)
    with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
        try:
            thread.submit(lambda: asyncio.run(wait())).result()
        except ExceptionGroup as group:
            raise DevClusterError(f"the real nodes did not register: {group.exceptions[0]}") from group


async def _register(client: ApiClient, name: str, gpus: int, began: datetime) -> None:
    """Wait for the kubelet to register the node, and give it GPUs; the kubelet keeps what others put there."""
    deadline = time.monotonic() + WITHIN
    while True:
        try:
            await client.patch(NODES, None, name, {"status": {"capacity": {GPU: str(gpus)}}}, subresource="status")
            node = await client.get(NODES, None, name)
            shown = node["status"].get("allocatable", {}).get(GPU) == str(gpus)
            if shown and await _heartbeat(client, name) > began:
                return
        except NotFound:
            pass
        except ApiError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise DevClusterError(f"node {name} did not register within {WITHIN:g} s")
        await asyncio.sleep(0.2)


async def _heartbeat(client: ApiClient, name: str) -> datetime:
    """When the kubelet last renewed the node's Lease: its clock is ours. Raises NotFound."""
    lease = await client.get(LEASES, LEASE_NAMESPACE, name)
    return datetime.fromisoformat(lease["spec"]["renewTime"])
