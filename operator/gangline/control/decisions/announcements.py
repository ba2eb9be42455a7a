"""Records events and sends notices in response to the messages that parts publish."""

from __future__ import annotations

from collections.abc import Callable

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.parts.messages import (
    DeliveryFailed,
    NoticeLimited,
    Recovered,
    StartExpected,
    StartMoved,
)
from gangline.kube import resources as kube


class Announcements:
    """A listener without state of its own. `leading` says whether this process may notify users."""

    def __init__(self, context: Context, *, leading: Callable[[], bool]) -> None:
        self._mirror = context.mirror
        self._notices = context.notices
        self._recorder = context.recorder
        self._leading = leading
        context.messages.subscribe(Recovered, self._recovered)
        context.messages.subscribe(StartExpected, self._start_expected)
        context.messages.subscribe(StartMoved, self._start_moved)
        context.messages.subscribe(NoticeLimited, self._notice_limited)
        context.messages.subscribe(DeliveryFailed, self._delivery_failed)

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
