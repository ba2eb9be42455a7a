"""What changed in the mirror, by who has to look at it. Each reader subscribes to what concerns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.control.parts.changed_keys import ChangedKeys
from gangline.kube.resources import Resource

#: a job: its kind and its key
JobRef: TypeAlias = tuple[Resource, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """The sorts of changes that the mirror notes; `jobs` and `unowned` are added to by others as well."""

    #: jobs to plan again
    jobs: ChangedKeys[JobRef] = field(default_factory=ChangedKeys[JobRef])
    #: Workloads that no job plans for, or that may have lost theirs
    unowned: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads that came, or whose jobs did: pods may belong to them
    arrived: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads with placed pods
    placed: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads with a record of lost nodes
    recovering: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: nodes, also such as are gone
    nodes: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: QueuePolicies and ClusterQueues, by which policies hold for queues
    policies: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
