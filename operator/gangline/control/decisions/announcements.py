"""Records events and sends notices in response to the messages that parts publish."""

from __future__ import annotations

from collections.abc import Callable

from gangline.api import names
from gangline.control.mirror.mirror import Mirror
from gangline.control.notify.notices import Notices
from gangline.control.parts.messages import (
    DeliveryFailed,
    Messages,
    NoticeLimited,
    Recovered,
    StartExpected,
    StartMoved,
)
from gangline.control.writes.events import EventRecorder
from gangline.kube import resources as kube


class Announcements:
    """A listener without state of its own. `leading` says whether this process may notify users."""

    def __init__(
        self,
        mirror: Mirror,
        notices: Notices,
        recorder: EventRecorder,
        messages: Messages,
        *,
        leading: Callable[[], bool],
    ) -> None:
        self._mirror = mirror
        self._notices = notices
        self._recorder = recorder
        self._leading = leading
        messages.subscribe(Recovered, self._recovered)
        messages.subscribe(StartExpected, self._start_expected)
        messages.subscribe(StartMoved, self._start_moved)
        messages.subscribe(NoticeLimited, self._notice_limited)
        messages.subscribe(DeliveryFailed, self._delivery_failed)

    def _recovered(self, message: Recovered) -> None:
        self._notices.notify("Swapped", message.workload, message.text)

    def _start_expected(self, message: StartExpected) -> None:
        """Notify users who were given another expected start."""
        raw = self._mirror.workloads.get(message.workload)
        if raw is not None and self._leading():
            self._notices.start_expected(raw, message.start.p50, message.start.because)

    def _start_moved(self, message: StartMoved) -> None:
        self._recorder.record(message.workload, "Normal", "StartMoved", message.text)

    def _notice_limited(self, message: NoticeLimited) -> None:
        raw = self._mirror.workloads.get(message.workload)
        if raw is not None:
            self._recorder.record(raw, "Warning", "NotificationLimited", message.why)

    def _delivery_failed(self, message: DeliveryFailed) -> None:
        """Record an event on every policy that names the receiver."""
        receiver = (message.namespace, message.name)
        for policy in self._mirror.objects[kube.QUEUE_POLICIES].values():
            secrets = [rule["secretRef"] for rule in policy.spec.get("notify") or ()]
            if any((ref.get("namespace", names.SYSTEM_NAMESPACE), ref["name"]) == receiver for ref in secrets):
                self._recorder.record(policy, "Warning", "NotificationFailed", message.why)
