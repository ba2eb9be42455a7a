"""Who is notified of what: from something that happened to a job to the messages and their receivers.

A policy names receivers for its queues; a job may opt out or choose (annotation `gangline.io/notify`), and give an address of its
own (`gangline.io/notify-to`) to receivers that ask for one. `outbox` delivers.

A notice follows a write that succeeded. A restart repeats no notice, and a notice that was not delivered when the process ended
is lost: delivery is at most once, where a receiver answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.api import names, quantity
from gangline.control.mirror.mirror import Mirror
from gangline.control.parts.messages import Messages, StartMoved
from gangline.control.parts.part import Part
from gangline.engine import span_text
from gangline.engine.model import Millis
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed
from gangline.kube.resources import Json, Resource, controller_of, key_of

#: kinds of notices, as in QueuePolicy.spec.notify.events
KINDS: Final = (
    *("Admitted", "StartMoved", "Overrun", "Idle", "Stalled"),
    *("Preempted", "Evicted", "Swapped", "Finished", "Failed"),
)
#: kinds that are bad news
WARNINGS: Final = frozenset({"Overrun", "Idle", "Stalled", "Preempted", "Evicted", "Failed"})
#: the characters of a {to} address: e-mail, channel, phone number; none that could change the rest of a URL
ADDRESS: Final = re.compile(r"[A-Za-z0-9@._+#-]{1,254}")
#: characters of user-written text (names, reasons) in one line of a message
MOST_SHOWN: Final = 1000
#: values of the job's annotation that switch notices off
NOTHING: Final = frozenset({"none", "off", "false"})

_WORDS: Final = {
    "Admitted": "was admitted",
    "StartMoved": "starts at another time",
    "Overrun": "runs longer than forecast",
    "Idle": "does not use its GPUs",
    "Stalled": "seems to hang",
    "Preempted": "is preempted",
    "Evicted": "was evicted",
    "Swapped": "continues on other nodes",
    "Finished": "has finished",
    "Failed": "has failed",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. `subject` names the job: `GPUJob team/llama`."""

    kind: str
    queue: str  # ClusterQueue
    subject: str
    text: str
    at: Millis

    @property
    def title(self) -> str:
        return f"{self.subject} {_WORDS[self.kind]}"


@dataclass(frozen=True, slots=True)
class Receiver:
    """A Secret with the addresses, and the job's own address. Notices for which both are equal are bundled."""

    namespace: str
    name: str
    to: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """How often a receiver may be sent a message. Seconds."""

    digest: float = 0.0
    max_per_hour: int = 60


#: called with the receiver, its terms, and the notice
Deliver: TypeAlias = Callable[[Receiver, Terms, Notice], None]


class Notices(Part):
    """Passes notices to the receivers of a workload's queue. Without receivers it costs one look at the policies."""

    name = "notices"
    kinds = (kube.WORKLOADS,)

    def __init__(
        self, mirror: Mirror, deliver: Deliver, *, now: Callable[[], Millis], messages: Messages | None = None
    ) -> None:
        """`messages` publishes each expected start whose move was reported."""
        self._mirror = mirror
        self._deliver = deliver
        self._now = now
        self._messages = messages or Messages()
        #: workload -> receiver -> the expected start last reported to it, or first seen
        self._starts: dict[str, dict[Receiver, Millis]] = {}

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Removed):
            self.forget(event.key)

    def notify(self, kind: str, workload: Json, text: str) -> None:
        """Notify every receiver of the workload's queue. Never blocks, never raises for user-written text."""
        for receiver, terms, _ in self._audience(kind, workload):
            queue = self._queue_of(workload)
            self._deliver(receiver, terms, Notice(kind, queue, self._subject(workload), _cut(text), self._now()))

    def start_expected(self, workload: Json, start: Millis, because: str = "") -> None:
        """Report an expected start where it is far from the one reported last."""
        texts: list[str] = []
        for receiver, terms, rule in self._audience("StartMoved", workload):
            recorded = self._starts.setdefault(key_of(workload), {})
            known = recorded.setdefault(receiver, start)
            least = round(quantity.parse_duration(rule.get("startMovedBy", "30m")) * 1000)
            if abs(start - known) < least:
                continue
            recorded[receiver] = start
            texts.append(self._moved(known, start, because))
            notice = Notice("StartMoved", self._queue_of(workload), self._subject(workload), texts[-1], self._now())
            self._deliver(receiver, terms, notice)
        if texts:
            self._messages.publish(StartMoved(workload, texts[0]))

    def _moved(self, known: Millis, start: Millis, because: str) -> str:
        text = f"{'later' if start > known else 'earlier'} by {_minutes(abs(start - known))}: now expected in "
        return text + _minutes(max(0, start - self._now())) + (f" ({because})" if because else "")

    def forget(self, workload: str) -> None:
        """Forget the expected start of a workload that started or was deleted."""
        self._starts.pop(workload, None)

    def wants(self, kind: str) -> bool:
        """Whether any policy has receivers for this kind."""
        policies = self._mirror.objects[kube.QUEUE_POLICIES].values()
        return any(kind in rule.get("events", ()) for policy in policies for rule in policy["spec"].get("notify") or ())

    # --- receivers ---

    def _audience(self, kind: str, workload: Json) -> Iterator[tuple[Receiver, Terms, Json]]:
        if not self._mirror.objects[kube.QUEUE_POLICIES]:
            return
        rules = self._rules(workload)
        if not any(kind in rule.get("events", ()) for rule in rules):
            return
        choice = self._annotation(workload, names.NOTIFY)
        if choice.lower() in NOTHING or (choice and kind not in choice.replace(",", " ").split()):
            return
        address = self._annotation(workload, names.NOTIFY_TO)
        to = address if ADDRESS.fullmatch(address) else ""
        for rule in rules:
            if kind in rule.get("events", ()):
                secret = rule["secretRef"]
                receiver = Receiver(secret.get("namespace", names.SYSTEM_NAMESPACE), secret["name"], to)
                yield receiver, _terms(rule), rule

    def _rules(self, workload: Json) -> Sequence[Json]:
        queue = self._mirror.get(kube.CLUSTER_QUEUES, self._queue_of(workload))
        policy = self._mirror.policy_of(queue) if queue is not None else None
        return (policy["spec"].get("notify") or ()) if policy is not None else ()

    def _queue_of(self, workload: Json) -> str:
        admission = (workload.get("status") or {}).get("admission")
        if admission:
            return admission["clusterQueue"]
        key = f"{workload['metadata']['namespace']}/{workload['spec'].get('queueName', '')}"
        local = self._mirror.get(kube.LOCAL_QUEUES, key)
        return (local.get("spec") or {}).get("clusterQueue", "") if local is not None else ""

    def _annotation(self, workload: Json, name: str) -> str:
        """The annotation of the job or, where there is none, of the Workload."""
        job = self._job(workload)
        return (((job or workload)["metadata"].get("annotations")) or {}).get(name, "").strip()

    def _job(self, workload: Json) -> Json | None:
        ref = self._mirror.job_of(workload)
        return self._mirror.get(*ref) if ref is not None else None

    def _subject(self, workload: Json) -> str:
        owner = controller_of(workload)
        if owner is None:
            return f"Workload {key_of(workload)}"
        return _cut(f"{owner['kind']} {workload['metadata']['namespace']}/{owner['name']}")


def _cut(text: str) -> str:
    """The text, cut to the length that a message shows."""
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def _terms(rule: Json) -> Terms:
    return Terms(quantity.parse_duration(rule.get("digest", "0s")), rule.get("maxPerHour", 60))


def _minutes(time: Millis) -> str:
    return span_text(round(time / 60_000) * 60_000) if time >= 30_000 else "0m"


# --- messages ---------------------------------------------------------------------------------------------------------

#: A digest lists this many notices and gives the number of the others.
MOST_LINES: Final = 50


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a receiver gets it."""

    title: str
    body: str
    warning: bool


def compose(notices: Sequence[Notice]) -> Message:
    """One message for one or more notices, the oldest first."""
    warning = any(notice.kind in WARNINGS for notice in notices)
    if len(notices) == 1:
        notice = notices[0]
        return Message(notice.title, f"{notice.text}\nClusterQueue: {notice.queue}", warning)
    counts = {kind: sum(notice.kind == kind for notice in notices) for kind in KINDS}
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    lines = [f"{notice.title}: {notice.text}" for notice in notices[:MOST_LINES]]
    if len(notices) > MOST_LINES:
        lines.append(f"… and {len(notices) - MOST_LINES} more")
    return Message(f"Gangline: {listed}", "\n".join(lines), warning)
