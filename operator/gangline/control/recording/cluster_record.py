"""The leader writes the history of its cluster, as `gangline admin record` does beside a plain Kueue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangline.control.feed.mirror import Mirror
from gangline.control.parts.part import Part
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import Resource
from gangline.record.entries import RECORDED
from gangline.record.folder import MOST_BYTES
from gangline.record.following import watched
from gangline.record.recorder import Recorder

log = logging.getLogger(__name__)

#: a folder that can't be used is tried again after this time, in milliseconds
RETRY: Final = 60_000
#: milliseconds between two signs of life
TICK: Final = 60_000


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The folder to which the history of the cluster is written, and how many bytes of it are kept."""

    folder: Path
    most_bytes: int = MOST_BYTES


class ClusterRecord(Part):
    """Writes the record while leading. A standby writes nothing: it may share the folder with the leader, and begins with what it
    knows when it leads.
    """

    name = "record"

    def __init__(self, mirror: Mirror, options: RecordOptions, now: Callable[[], int]) -> None:
        self.kinds = watched()
        self._mirror = mirror
        self._folder = options.folder
        self._most = options.most_bytes
        self._now = now
        self._recorder: Recorder | None = None
        self._reported_error = ""

    def observe(self, resource: Resource, event: Event) -> None:
        if self._recorder is not None:
            self._recorder.observe(resource, event)

    def lead(self) -> None:
        self._open()

    def act(self, now: int) -> None:
        if self.due is not None and now < self.due:
            return
        if self._recorder is None:
            self._open()
        else:
            self._recorder.tick()
        self.due = now + (TICK if self._recorder is not None else RETRY)

    def _open(self) -> None:
        """Take the folder, and show it the cluster as it is: only what has changed since is written."""
        try:
            recorder = Recorder(self._folder, self._now, self._most)
        except OSError as error:
            if self._reported_error != str(error):
                log.error("the cluster is not recorded: %s", error)
            self._reported_error = str(error)
            return
        jobs = [resource for resource in self.kinds if resource not in RECORDED]
        for resource in (*jobs, *RECORDED):  # jobs first: their hints are kept with their Workloads
            for obj in self._mirror.objects.get(resource, {}).values():
                recorder.observe(resource, Upsert(obj))
            recorder.listed(resource)
        self._recorder, self._reported_error = recorder, ""
        log.info("recording the cluster in %s", self._folder)

    async def close(self) -> None:
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)
