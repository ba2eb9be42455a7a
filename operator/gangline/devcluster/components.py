"""The five programs of a local control plane and their flags. All of them listen on 127.0.0.1 only, unless there are real nodes:
then the API server also listens on the hub's address, in a network namespace of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from gangline.devcluster.building.build import NEWEST, OLDEST, VERSIONS
from gangline.devcluster.certs import Authority, signing_keys
from gangline.devcluster.processes.supervisor import free_of_proxies
from gangline.devcluster.real import network
from gangline.devcluster.real.settings import RealPool

# --- the files of one local control plane, and the addresses of its Services ------------------------------------------


SERVICE_CIDR = "10.96.0.0/16"


class Layout:
    """The files of one control plane."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificates = directory / "pki"
        self.etcd_data = directory / "etcd"
        self.kubeconfig = directory / "kubeconfig"
        self.ports = directory / "ports.json"
        self.version = directory / "version"

    def stored_version(self) -> str | None:
        """The version of Kubernetes that last wrote to its data; None if there are none."""
        try:
            return self.version.read_text()
        except FileNotFoundError:
            return NEWEST if self.etcd_data.exists() else None

    def component_kubeconfig(self, component: str) -> Path:
        return self.directory / f"{component}.kubeconfig"

    def certificate(self, name: str) -> Path:
        return self.certificates / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.certificates / f"{name}.key"


Component = Literal["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
COMPONENTS: tuple[Component, ...] = get_args(Component)  # in the order in which they start

STAGES = Path(__file__).parent / "stages.yaml"
POD_CIDR = "10.128.0.0/9"  # kwok gives every simulated pod an address of its own
MASTERS = "system:masters"
ADMIN = "gangline-admin"

#: controllers for things that a simulated cluster lacks: volumes, cloud load balancers, certificates, addresses
DISABLED_CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "ephemeral-volume-controller",
    "node-ipam-controller",
    "node-route-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "podcertificaterequest-cleaner-controller",
    "service-lb-controller",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "volumeattributesclass-protection-controller",
)
#: the first versions of Kubernetes that know them, of those that not all versions know: others refuse to start
SINCE = {"podcertificaterequest-cleaner-controller": "1.34", "volumeattributesclass-protection-controller": "1.32"}
#: pods of simulated nodes mount nothing
VOLUME_BINDER = "persistentvolume-binder-controller"


@dataclass(frozen=True, slots=True)
class ControlPlaneOptions:
    """Options of a local control plane. Times are in seconds."""

    directory: Path | None = None  # directory of its state; None: a temporary one, removed on stop
    detached: bool = False  # it outlives this process; needs a directory
    flags: Mapping[Component, Sequence[str]] = field(default_factory=dict)  # more: {"kube-apiserver": ["--v=4"]}
    gogc: int | None = None  # Go's GOGC for kube-apiserver: 400 trades memory for about a third of its CPU
    node_lease: int = 40  # a simulated node renews its lease every quarter of this
    node_monitor_grace: int = 50  # a node silent for this long becomes NotReady; more than node_lease / 4
    node_monitor_period: float = 5.0
    ready_timeout: float = 90.0
    real: RealPool | None = None  # real nodes beside the simulated ones
    version: str | None = (
        None  # of Kubernetes, one of VERSIONS; None: that of its data, else programs.default_version()
    )

    def __post_init__(self) -> None:
        if self.version is not None and self.version not in VERSIONS:
            raise ValueError(f"ControlPlaneOptions.version: {self.version!r} must be one of {', '.join(VERSIONS)}")


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports on 127.0.0.1."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    service: int  # of the operator, where it runs in the hub and is reached from outside


def create_certificates(layout: Layout) -> None:
    """Create all keys and certificates, from a CA made for this control plane alone; written once."""
    done = layout.certificates / "complete"
    if done.exists():
        return
    layout.certificates.mkdir(mode=0o700, exist_ok=True)
    authority, front_proxy = Authority.create("gangline-ca"), Authority.create("gangline-front-proxy-ca")
    kubernetes = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    names = ("127.0.0.1", "localhost", *kubernetes, "10.96.0.1", network.HUB)
    pairs = {
        "ca": authority.pair,
        "front-proxy-ca": front_proxy.pair,
        "etcd": authority.issue_server("etcd", ("127.0.0.1", "localhost")),
        "kubelet-client": authority.issue_client("kube-apiserver-kubelet-client", (MASTERS,)),
        "admin": authority.issue_client(ADMIN, (MASTERS,)),
        "etcd-client": authority.issue_client("kube-apiserver-etcd-client"),
        "apiserver": authority.issue_server("kube-apiserver", names),
        "front-proxy": front_proxy.issue_client("front-proxy-client"),
        "service-accounts": signing_keys(),
        "controller-manager": authority.issue_server("kube-controller-manager", ("127.0.0.1", "localhost")),
        "scheduler": authority.issue_server("kube-scheduler", ("127.0.0.1", "localhost")),
    }
    for name, pair in pairs.items():
        pair.save(layout.certificates, name)
    done.touch()


def arguments(component: Component, layout: Layout, ports: Ports, options: ControlPlaneOptions) -> list[str]:
    """The command line of a component, without the program itself; the user's extra flags come last and win."""
    own = {
        "etcd": _etcd,
        "kube-apiserver": _apiserver,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
        "kwok": _kwok,
    }[component](layout, ports, options)
    extra = options.flags.get(component, ())
    return [*(f"--{name}={value}" for name, value in own.items()), *extra]


def environment(component: Component, options: ControlPlaneOptions) -> dict[str, str]:
    """The environment of a component: ours, without variables that would change how it runs."""
    kept = {k: v for k, v in free_of_proxies().items() if not k.startswith("ETCD_")}  # etcd reads flags there too
    if component == "kube-apiserver" and options.gogc is not None:
        kept["GOGC"] = str(options.gogc)
    return kept


def _etcd(layout: Layout, ports: Ports, _: ControlPlaneOptions) -> dict[str, object]:
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"https://127.0.0.1:{ports.etcd_peer}"
    certificate, key, authority = layout.certificate("etcd"), layout.key("etcd"), layout.certificate("ca")
    return {
        "name": "gangline",
        "data-dir": layout.etcd_data,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"gangline={peer}",
        "cert-file": certificate,
        "key-file": key,
        "trusted-ca-file": authority,
        "client-cert-auth": "true",
        "peer-cert-file": certificate,
        "peer-key-file": key,
        "peer-trusted-ca-file": authority,
        "peer-client-cert-auth": "true",
        "unsafe-no-fsync": "true",  # a development cluster may lose its last writes in a power cut, not under kill -9
        "quota-backend-bytes": 4 * 1024**3,
        "log-level": "warn",
    }


def _apiserver(layout: Layout, ports: Ports, options: ControlPlaneOptions) -> dict[str, object]:
    return {
        **(_with_real_nodes(layout) if options.real is not None else _ALONE),
        "secure-port": ports.apiserver,
        "tls-cert-file": layout.certificate("apiserver"),
        "tls-private-key-file": layout.key("apiserver"),
        "client-ca-file": layout.certificate("ca"),
        "etcd-servers": f"https://127.0.0.1:{ports.etcd}",
        "etcd-cafile": layout.certificate("ca"),
        "etcd-certfile": layout.certificate("etcd-client"),
        "etcd-keyfile": layout.key("etcd-client"),
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": layout.certificate("service-accounts"),
        "service-account-signing-key-file": layout.key("service-accounts"),
        "service-cluster-ip-range": SERVICE_CIDR,
        "requestheader-client-ca-file": layout.certificate("front-proxy-ca"),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": layout.certificate("front-proxy"),
        "proxy-client-key-file": layout.key("front-proxy"),
        "allow-privileged": "true",
        "profiling": "false",
    }


#: the API server of simulated nodes, which nothing but this machine reaches
_ALONE: dict[str, object] = {
    "bind-address": "127.0.0.1",
    "advertise-address": "127.0.0.1",
    "endpoint-reconciler-type": "none",  # a loopback address can't be an endpoint
    "authorization-mode": "RBAC",
}


def _with_real_nodes(layout: Layout) -> dict[str, object]:
    """The API server that pods reach, and that reaches kubelets for logs, exec and port-forward."""
    return {
        "bind-address": "0.0.0.0",
        "advertise-address": network.HUB,
        "endpoint-reconciler-type": "lease",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-client-certificate": layout.certificate("kubelet-client"),
        "kubelet-client-key": layout.key("kubelet-client"),
        "kubelet-certificate-authority": layout.certificate("ca"),
        "kubelet-preferred-address-types": "InternalIP",
    }


def _controller_manager(layout: Layout, ports: Ports, options: ControlPlaneOptions) -> dict[str, object]:
    return {
        **_client("kube-controller-manager", layout),
        "bind-address": "127.0.0.1",
        "secure-port": ports.controller_manager,
        "tls-cert-file": layout.certificate("controller-manager"),
        "tls-private-key-file": layout.key("controller-manager"),
        "leader-elect": "false",
        "controllers": ",".join(["*", *(f"-{name}" for name in _disabled_controllers(options))]),
        "use-service-account-credentials": "true",
        "service-account-private-key-file": layout.key("service-accounts"),
        "root-ca-file": layout.certificate("ca"),
        "node-monitor-grace-period": f"{options.node_monitor_grace}s",
        "node-monitor-period": f"{options.node_monitor_period}s",
        "profiling": "false",
    }


def _disabled_controllers(options: ControlPlaneOptions) -> list[str]:
    known = VERSIONS[: VERSIONS.index(options.version or NEWEST) + 1]
    simulated = () if options.real is not None else (VOLUME_BINDER,)
    return [name for name in (*DISABLED_CONTROLLERS, *simulated) if SINCE.get(name, OLDEST) in known]


def _scheduler(layout: Layout, ports: Ports, _: ControlPlaneOptions) -> dict[str, object]:
    return {
        **_client("kube-scheduler", layout),
        "bind-address": "127.0.0.1",
        "secure-port": ports.scheduler,
        "tls-cert-file": layout.certificate("scheduler"),
        "tls-private-key-file": layout.key("scheduler"),
        "leader-elect": "false",
        "profiling": "false",
    }


def _client(component: str, layout: Layout) -> dict[str, object]:
    kubeconfig = layout.component_kubeconfig(component)
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "kube-api-qps": 500,  # the defaults (20 to 50) are for real clusters that start pods by the minute
        "kube-api-burst": 1000,
    }


def _kwok(layout: Layout, _: Ports, options: ControlPlaneOptions) -> dict[str, object]:
    return kwok_flags(layout.component_kubeconfig("kwok"), options.node_lease)


def kwok_flags(kubeconfig: Path, node_lease: int) -> dict[str, object]:
    """kwok manages the nodes annotated kwok.x-k8s.io/node=fake of the cluster that `kubeconfig` leads to."""
    return {
        "kubeconfig": kubeconfig,
        "config": STAGES,
        "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
        "node-lease-duration-seconds": node_lease,
        "node-ip": "10.0.0.1",
        "cidr": POD_CIDR,
        "v": "WARN",
    }
