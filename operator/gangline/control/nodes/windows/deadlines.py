"""Writes on pods by when their workload should save its work, and takes it off again where it need not any more."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.writes.outgoing import Priority, Write
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey

log = logging.getLogger(__name__)


class Deadlines:
    """The deadlines of all pods. Several parts may set one for the same pod: the first of them counts."""

    def __init__(self, context: Context) -> None:
        self._pods = context.pods
        self._writer = context.writer
        #: part -> key of a pod -> the deadline that it sets
        self._wanted: dict[str, Mapping[str, str]] = {}
        #: key of a pod -> the deadline that was written on it
        self._written: dict[str, str] = {}

    def lead(self) -> None:
        """Write all of them again: another process may have written others."""
        self._written.clear()

    def put(self, part: str, deadlines: Mapping[str, str]) -> None:
        """All deadlines that a part sets, by pod."""
        if not deadlines and part not in self._wanted:
            return
        self._wanted[part] = deadlines
        wanted: dict[str, str] = {}
        for each in self._wanted.values():
            for key, deadline in each.items():
                wanted[key] = min(deadline, wanted.get(key, deadline))
        for key in sorted(wanted.keys() | self._written.keys()):
            deadline = wanted.get(key)
            if deadline == self._written.get(key):
                continue
            if deadline is None:
                del self._written[key]
            else:
                self._written[key] = deadline
            if self._pods.pod(key) is not None:
                self._write(key, deadline)

    def _write(self, key: str, deadline: str | None) -> None:
        body: Json = {"metadata": {"annotations": {names.SAVE_BY: deadline}}}
        self._writer.submit(
            Write(
                ObjectKey.parse(kube.PODS, key),
                "patch",
                body,
                priority=Priority.STATUS,
                slot="save-by",
                on_error=lambda error: log.info("the deadline of a pod could not be written: %s", error),
            )
        )
