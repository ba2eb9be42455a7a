"""Nodes, topologies, and pods of others that take room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.model.selection import Taint
from gangline.engine.model.units import Millis, Requests

#: Beside resources, rooms count what pods take of interfaces, in Mbit/s, under this with the interface's name. No resource has a
#: name with spaces.
INTERFACE: Final = "interface "


@dataclass(frozen=True, slots=True)
class Topology:
    """Node label keys, top level first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    allocatable: Requests = field(default_factory=dict[str, int])
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    uid: str = ""
    #: type -> (status, when it last changed); Ready=Unknown is told from Ready=False here
    conditions: Mapping[str, tuple[str, Millis]] = field(default_factory=dict[str, tuple[str, Millis]])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    #: what the hardware has (status.capacity): allocatable below it means degraded devices
    capacity: Requests = field(default_factory=dict[str, int])
    #: image, by each of its names -> bytes; empty where no policy looks at images
    images: Mapping[str, int] = field(default_factory=dict[str, int])
    #: network interface -> its Mbit/s, as the node's owner says
    interfaces: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A bound, unfinished pod that no topology places: it takes room of its node.

    On flavors without a topology one of a gang does not: there the gang's own assignment has that room (`WorkloadPods`).
    """

    key: str
    node: str
    requests: Requests
