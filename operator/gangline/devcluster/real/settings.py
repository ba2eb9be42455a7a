"""The configuration files of a real node and of the hub: containerd, CNI, kubelet, kube-proxy, DNS."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gangline import files
from gangline.devcluster.real import cgroups
from gangline.devcluster.real.network import HUB, MOST_NODES, NodeAddress
from gangline.devcluster.real.programs import Programs

PAUSE: Final = "gangline.local/pause:1"
SOCKET: Final = "/run/containerd/containerd.sock"
DOMAIN: Final = "cluster.local"


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of one node, below a directory of its own."""

    directory: Path

    @property
    def containerd(self) -> Path:
        return self.directory / "containerd.toml"

    @property
    def kubelet(self) -> Path:
        return self.directory / "kubelet.json"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def certificates(self) -> Path:
        return self.directory / "pki"

    @property
    def cni(self) -> Path:
        """The node's /etc/cni."""
        return self.directory / "cni"

    @property
    def resolv(self) -> Path:
        return self.directory / "resolv.conf"


def write_node(
    files: NodeFiles, address: NodeAddress, programs: Programs, authority: Path, cgroup: str, lease: int
) -> None:
    """Write a node's files. `authority`: the cluster's CA; `cgroup`: its path; `lease`: seconds for which its Lease lasts."""
    files.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.containerd.write_text(_toml(_containerd(programs)))
    files.kubelet.write_text(json.dumps(_kubelet(files, authority, cgroup, lease), indent=1))
    files.resolv.write_text("")  # names of the machine's own network mean nothing in a pod
    network = files.cni / "net.d"
    network.mkdir(parents=True, exist_ok=True)
    (network / "10-gangline.conflist").write_text(json.dumps(_cni(address), indent=1))


def _containerd(programs: Programs) -> dict[str, Any]:
    cri = "io.containerd.cri.v1"
    return {
        "version": 3,
        "root": "/var/lib/containerd",
        "state": "/run/containerd",
        "disabled_plugins": [f"io.containerd.{name}" for name in ("tracing.processor.v1.otlp", "nri.v1.nri")],
        "plugins": {
            f"{cri}.images": {"pinned_images": {"sandbox": PAUSE}},
            f"{cri}.runtime": {
                "disable_apparmor": True,
                "restrict_oom_score_adj": True,  # else no sandbox starts where CAP_SYS_RESOURCE is missing
                "cni": {"bin_dirs": [str(programs.cni)], "conf_dir": "/etc/cni/net.d"},
                "containerd": {
                    "default_runtime_name": "runc",
                    "runtimes": {
                        "runc": {
                            "runtime_type": "io.containerd.runc.v2",
                            "options": {"BinaryName": str(programs.runc / "runc"), "SystemdCgroup": False},
                        }
                    },
                },
            },
        },
    }


def _kubelet(files: NodeFiles, authority: Path, cgroup: str, lease: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(files.certificates / "kubelet.crt"),
        "tlsPrivateKeyFile": str(files.certificates / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        **({"failCgroupV1": False} if cgroups.version_1() else {}),
        "clusterDNS": [HUB],
        "clusterDomain": DOMAIN,
        "resolvConf": str(files.resolv),
        "makeIPTablesUtilChains": False,  # the hub's nftables do it
        "failSwapOn": False,
        "nodeLeaseDurationSeconds": lease,
        # the disk and the images are the machine's, not the node's
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "registryPullQPS": 0,
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    }


def _cni(address: NodeAddress) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": "gangline",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": address.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def kube_proxy(kubeconfig: Path) -> dict[str, Any]:
    """kube-proxy of the hub: one for all nodes, since every packet to a Service passes there."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "nftables",
        "bindAddress": HUB,
        "healthzBindAddress": f"{HUB}:10256",
        "metricsBindAddress": f"{HUB}:10249",
        "nftables": {"masqueradeAll": True},  # the answer of a pod on the caller's own node comes back through the hub
        # the machine's connection tracking is left as it is
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def corefile(kubeconfig: Path) -> str:
    """DNS of the cluster's own names; all others are answered at once: there is no other network. Answers are not cached, as on
    kubeadm's clusters: a gang that starts again on other nodes asks for names that just changed.
    """
    return f"""\
.:53 {{
    bind {HUB}
    health {HUB}:8080
    ready {HUB}:8181
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def _toml(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """A nested mapping as TOML (the standard library only reads it)."""
    plain = [f"{json.dumps(key)} = {json.dumps(each)}" for key, each in value.items() if not isinstance(each, Mapping)]
    head = [f"[{'.'.join(json.dumps(part) for part in path)}]"] if path and plain else []
    tables = [_toml(each, (*path, key)) for key, each in value.items() if isinstance(each, Mapping)]
    return "\n".join([*head, *plain, "", *tables])


# --- how many real nodes a cluster has, and what they show ------------------------------------------------------------


GPU: Final = "nvidia.com/gpu"
#: the value of the label of node pools on real nodes
POOL: Final = "real"
#: that a node pretends to have unless the settings say otherwise
GPUS: Final = 8
_DEVICES: Final = re.compile(r"^nvidia\d+$")
_FILE: Final = "real.json"


@dataclass(frozen=True, slots=True)
class RealPool:
    """`count` real nodes, real-1 and so on, each showing `gpus` GPUs. `lease`: seconds for which a node's Lease lasts; the
    kubelet renews it every quarter of that.
    """

    count: int
    gpus: int = GPUS
    lease: int = 40

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_NODES:
            raise ValueError(f"RealPool.count: {self.count} must be between 1 and {MOST_NODES}")

    @property
    def addresses(self) -> dict[str, NodeAddress]:
        """The addresses of the nodes by their names."""
        return {f"real-{number}": NodeAddress(number) for number in range(1, self.count + 1)}

    def save(self, directory: Path) -> None:
        files.write(directory / _FILE, json.dumps(asdict(self)))

    @classmethod
    def load(cls, directory: Path) -> RealPool | None:
        """The pool of the cluster in this directory; None if it has none."""
        try:
            return cls(**json.loads((directory / _FILE).read_text()))
        except (OSError, ValueError, TypeError):
            return None


def machine_gpus(devices: Path = Path("/dev")) -> int:
    """The GPUs of this machine."""
    return sum(1 for each in devices.iterdir() if _DEVICES.match(each.name)) if devices.is_dir() else 0
