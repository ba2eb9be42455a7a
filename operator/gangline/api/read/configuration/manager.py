"""Fields of Kueue's configuration file about the process itself: the Lease, and the addresses of metrics and probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.read.configuration.fields import ConfigurationError, duration, flag, mapping, text
from gangline.bounded import whole
from gangline.kube.resources import Json

#: retries are spread by up to this factor
JITTER: Final = 1.2
#: an address that turns a server off
_OFF: Final = "0"


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """The Lease that the leader holds, Kueue's by default: so Kueue and Gangline never decide at once. Times in seconds."""

    namespace: str = names.KUEUE_NAMESPACE
    name: str = names.KUEUE_LEASE
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        """Raises ConfigurationError: the Lease lasts longer than the leader's deadline, and that longer than a few retries."""
        if not self.lease_duration > self.renew_deadline > self.retry_period * JITTER > 0 or self.lease_duration < 1:
            raise ConfigurationError(
                f"leaderElection: leaseDuration > renewDeadline > {JITTER} × retryPeriod > 0 and leaseDuration >= 1s must "
                f"hold, not {self.lease_duration:g} s, {self.renew_deadline:g} s, {self.retry_period:g} s"
            )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


#: the Lease of a Kueue that is installed as it is shipped
KUEUES: Final = LeaseSettings()


@dataclass(frozen=True, slots=True)
class Manager:
    """`leader_election`: None where the file does not say. Addresses are (host, port), host "" for all; None where not given."""

    lease: LeaseSettings = KUEUES
    leader_election: bool | None = None
    probes: tuple[str, int] | None = None
    metrics: tuple[str, int] | None = None


#: what holds without a configuration file
USUAL: Final = Manager()


def load(root: Json) -> tuple[Manager, list[str]]:
    """The values, and the fields that are set and have no effect. Raises ConfigurationError."""
    health, metrics = mapping(root.get("health"), "health"), mapping(root.get("metrics"), "metrics")
    named = {"readinessEndpointName": "readyz", "livenessEndpointName": "healthz"}
    ignored = [f"health.{name}" for name, fixed in named.items() if health.get(name) not in (None, "", fixed)]
    election = mapping(root.get("leaderElection"), "leaderElection")
    return (
        Manager(
            _lease(election, text(root, "namespace", names.KUEUE_NAMESPACE)),
            flag(election, "leaderElection.leaderElect") if election.get("leaderElect") is not None else None,
            _address(health, "health.healthProbeBindAddress"),
            _address(metrics, "metrics.bindAddress"),
        ),
        ignored,
    )


def _lease(election: Json, namespace: str) -> LeaseSettings:
    path, usual = "leaderElection", KUEUES
    if election.get("resourceLock") not in (None, "", "leases"):
        raise ConfigurationError(f"{path}.resourceLock: leases is wanted, not {election['resourceLock']!r}")
    return LeaseSettings(
        text(election, f"{path}.resourceNamespace", namespace),
        text(election, f"{path}.resourceName", usual.name),
        duration(election, f"{path}.leaseDuration", f"{usual.lease_duration}s"),
        duration(election, f"{path}.renewDeadline", f"{usual.renew_deadline}s"),
        duration(election, f"{path}.retryPeriod", f"{usual.retry_period}s"),
    )


def _address(section: Json, path: str) -> tuple[str, int] | None:
    """Host and port of an address such as `:8443` or `10.0.0.1:8443`; None where it is not given or turned off."""
    value = text(section, path, _OFF)
    if value == _OFF:
        return None
    host, colon, port = value.rpartition(":")
    number = whole(port)
    if not colon or number is None or number > 65535:
        raise ConfigurationError(f"{path}: an address such as :8443 is wanted, not {value!r}")
    return host.strip("[]"), number
