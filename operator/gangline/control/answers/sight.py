"""The part of the cluster that one asker may read: jobs of some namespaces in full, all others reduced to size, times and an
opaque label.

Labels are keyed hashes with a secret of the process: the same job has the same label in every answer of one leader, and nobody
can tell from it which job that is.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from gangline import bounded
from gangline.control.answers.workloads.snapshot import QueueView, WorkloadView

_SECRET: Final = secrets.token_bytes(32)
#: bytes of a label's hash: two of 5,000 jobs share a label once in 300 answers
_DIGEST: Final = 4
#: characters of the longest message of an object, as the API limits it
LONGEST: Final = 32_768
#: the key of a Workload in a text; the name before a resource's slash has a dot, as in nvidia.com/gpu, and a namespace none
_KEY: Final = re.compile(r"(?<![\w./-])[a-z0-9][-a-z0-9]{0,62}/[a-z0-9][-.a-z0-9]{0,252}")
#: in Kueue's message about a preemption: a ClusterQueue, after its cohorts
_PATH: Final = re.compile(r"(preempt(?:or|ee) path: )(/[^;\s]*)")


@dataclass(frozen=True, slots=True)
class Sight:
    """The namespaces and queues that one asker may see. `everything`: all namespaces. `queues`: ClusterQueues that the asker
    knows of, because LocalQueues of hers lead there.
    """

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    secret: bytes = field(default=_SECRET, repr=False)

    def sees(self, namespace: str) -> bool:
        return self.everything or namespace in self.namespaces

    def workload(self, view: WorkloadView) -> WorkloadView:
        """The workload as the asker may see it. A hidden one is made anew from what may be seen, so that nothing else comes
        along.
        """
        queue = self.queue_name(view.cluster_queue)
        if self.sees(view.namespace):
            return replace(
                view,
                cluster_queue=queue,
                message=self.text(view.message),
                evicted=self.text(view.evicted),
                warnings=tuple(map(self.text, view.warnings)),
            )
        label = self.label(view.key)
        return WorkloadView(
            namespace="",
            name=label,
            uid=label,
            job_kind="",
            job_name=label,
            job_uid="",
            queue="",
            cluster_queue=queue,
            priority=0,
            pods=view.pods,
            amounts=view.amounts,
            flavors=view.flavors,
            held=view.held,
            created=view.created,
            since=view.since,
            state=view.state,
            reason="",
            message="",
            position=view.position,
            end=view.end,
            latest_end=view.latest_end,
            hidden=True,
        )

    def queue(self, view: QueueView) -> QueueView:
        """The queue as the asker may see it. Its quota and use belong to the whole cohort's arithmetic; its
        name may be hidden.
        """
        name = self.queue_name(view.name)
        return view if name == view.name else replace(view, name=name, reason="", message="", plan="")

    def queue_name(self, name: str) -> str:
        return name if not name or self.everything or name in self.queues else f"queue-{self._hash(name)}"

    def label(self, key: str) -> str:
        """The label that stands for the job whose Workload has this key."""
        return f"hidden-{self._hash(key)}"

    def _hash(self, name: str) -> str:
        return hashlib.blake2b(name.encode(), key=self.secret, digest_size=_DIGEST).hexdigest()

    def name(self, key: str, jobs: Mapping[str, str]) -> str:
        """The name of a workload for the asker: its job's name in `jobs`, else its key, or its label if it may not be seen."""
        if not self.sees(key.partition("/")[0]):
            return self.label(key)
        return jobs.get(key, key)

    def text(self, text: str, jobs: Mapping[str, str] | None = None) -> str:
        """A text with the names of jobs in place of the keys of their Workloads, and labels in place of hidden ones."""
        return _with_names(text[:LONGEST], lambda key: self.name(key, jobs or {}), self.queue_name)


#: sees everything: an administrator
ALL: Final = Sight(everything=True)


class Asker(Protocol):
    """The user who asks, with that user's rights."""

    async def sight(self, namespaces: Collection[str], queues: Collection[str]) -> Sight:
        """The asker's sight of the jobs of these namespaces; `queues` are known to the asker."""
        ...


class Everybody:
    """An asker who sees everything: a command that could read all of it."""

    async def sight(self, namespaces: Collection[str], queues: Collection[str]) -> Sight:
        return ALL


@bounded.parser(LONGEST, worst=("a", "a/", "/a", "a-/a.", "preemptor path: /"))
def _with_names(text: str, name: Callable[[str], str] = str, queue_name: Callable[[str], str] = str) -> str:
    def named(found: re.Match[str]) -> str:
        key = found[0].rstrip(".")
        return found[0] if _is_fraction(key) else name(key) + found[0][len(key) :]

    def led(found: re.Match[str]) -> str:
        queue = found[2].rpartition("/")[2]
        return found[0] if queue_name(queue) == queue else f"{found[1]}/{queue_name(queue)}"

    return _PATH.sub(led, _KEY.sub(named, text))


def _is_fraction(key: str) -> bool:
    """Whether a text such as `5/8` (of `5/8 nodes`) is a fraction and no key. Namespaces of digits alone are hidden as all others
    are, in objects.
    """
    return key.replace("/", "").isdigit()
