"""How many real nodes a cluster has, and what they show."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from gangline import files
from gangline.devcluster.real.network import MOST_NODES, NodeAddress

GPU: Final = "nvidia.com/gpu"
#: the value of the label of node pools on real nodes
POOL: Final = "real"
#: that a node pretends to have unless told otherwise
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
