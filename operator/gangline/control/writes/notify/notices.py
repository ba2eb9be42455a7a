"""Makes the messages about something that happened to a job, and finds who receives them.

A policy names receivers for its queues; a job may opt out or choose (annotation `gangline.io/notify`), and give an address of its
own (`gangline.io/notify-to`) to receivers that ask for one, if the policy permits this address. `outbox` delivers.

A notice follows a write that succeeded. A restart repeats no notice, and a notice that was not delivered when the process ended
is lost: delivery is at most once, where a receiver answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline import bounded
from gangline.api import names, quantity
from gangline.control.feed.mirror import Mirror
from gangline.control.parts.messages import Messages, NoticeLimited, StartMoved
from gangline.control.parts.part import Part
from gangline.engine import span_text
from gangline.engine.model import Millis
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, Stored, WorkloadObject

#: kinds of notices, as in QueuePolicy.spec.notify.events
KINDS: Final = (
    *("Admitted", "StartMoved", "Overrun", "Idle", "Stalled"),
    *("Preempted", "Evicted", "Swapped", "Finished", "Failed", "BudgetUsed"),
)
#: kinds that are bad news
WARNINGS: Final = frozenset({"Overrun", "Idle", "Stalled", "Preempted", "Evicted", "Failed", "BudgetUsed"})
_LONGEST_ADDRESS: Final = 254
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._+#-]*@?[A-Za-z0-9._+#-]*")
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
    "BudgetUsed": "is being used up",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. `subject` names the job: `GPUJob team/llama`; `workload` is the key of its Workload."""

    kind: str
    queue: str  # ClusterQueue; "" for one that is about several
    subject: str
    text: str
    at: Millis
    workload: str = ""

    @property
    def namespace(self) -> str:
        """The namespace whose notice it is."""
        return self.workload.partition("/")[0]

    @property
    def title(self) -> str:
        return f"{self.subject} {_WORDS[self.kind]}"


@dataclass(frozen=True, slots=True)
class Receiver:
    """A Secret with the addresses, and the job's own address. Notices for which both are equal are bundled: those for an
    address of a job with other notices of its namespace only, those for the Secret alone with everybody's."""

    namespace: str
    name: str
    to: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits of messages to a receiver: how long notices are collected for one (seconds), and how many leave in an hour."""

    digest: float = 0.0
    max_per_hour: int = 60
    max_per_namespace: int = 120


#: called with the receiver, its terms, and the notice
Deliver: TypeAlias = Callable[[Receiver, Terms, Notice], None]


class Notices(Part):
    """Passes notices to the receivers of a workload's queue. Without receivers it costs one look at the policies."""

    name = "notices"
    kinds = (kube.WORKLOADS,)

    def __init__(
        self, mirror: Mirror, deliver: Deliver, *, now: Callable[[], Millis], messages: Messages | None = None
    ) -> None:
        """Notify from this mirror. `messages` publishes each expected start whose move was reported."""
        self._mirror = mirror
        self._deliver = deliver
        self._now = now
        self._messages = messages or Messages()
        #: workload -> Secret -> the expected start last reported to it, or first seen
        self._starts: dict[str, dict[tuple[str, str], Millis]] = {}
        #: workload -> the address of its job that was last reported as not permitted
        self._refused: dict[str, str] = {}

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Removed):
            self.forget(event.key)
            self._refused.pop(event.key, None)

    def notify(self, kind: str, workload: WorkloadObject, text: str) -> None:
        """Notify every receiver of the workload's queue. Never blocks, never raises for user-written text."""
        for receiver, terms, _ in self._audience(kind, workload):
            self._deliver(receiver, terms, self._notice(kind, workload, _line(text)))

    def about_policy(self, kind: str, policy: Stored, subject: str, text: str) -> None:
        """Notify every receiver of a policy of something that is about no single job."""
        for rule in policy.spec.get("notify") or ():
            if kind in rule.get("events", ()):
                secret = rule["secretRef"]
                receiver = Receiver(secret.get("namespace", names.SYSTEM_NAMESPACE), secret["name"])
                self._deliver(receiver, _terms(rule), Notice(kind, "", _line(subject), _line(text), self._now()))

    def start_expected(self, workload: WorkloadObject, start: Millis, because: str = "") -> None:
        """Report an expected start where it is far from the one reported last."""
        texts: list[str] = []
        for receiver, terms, rule in self._audience("StartMoved", workload):
            recorded = self._starts.setdefault(workload.key, {})
            secret = (receiver.namespace, receiver.name)
            known = recorded.setdefault(secret, start)
            least = round(quantity.parse_duration(rule.get("startMovedBy", "30m")) * 1000)
            if abs(start - known) < least:
                continue
            recorded[secret] = start
            texts.append(self._moved(known, start, because))
            self._deliver(receiver, terms, self._notice("StartMoved", workload, _line(texts[-1])))
        if texts:
            self._messages.publish(StartMoved(workload, texts[0]))

    def _notice(self, kind: str, workload: WorkloadObject, text: str) -> Notice:
        subject = self._subject(workload)
        return Notice(kind, self._queue_of(workload), subject, text, self._now(), workload.key)

    def _moved(self, known: Millis, start: Millis, because: str) -> str:
        text = f"{'later' if start > known else 'earlier'} by {_minutes(abs(start - known))}: now expected in "
        return text + _minutes(max(0, start - self._now())) + (f" ({because})" if because else "")

    def forget(self, workload: str) -> None:
        """Forget the expected start of a workload that started or was deleted."""
        self._starts.pop(workload, None)

    def wants(self, kind: str) -> bool:
        """Whether any policy has receivers for this kind."""
        policies = self._mirror.objects[kube.QUEUE_POLICIES].values()
        return any(kind in rule.get("events", ()) for policy in policies for rule in policy.spec.get("notify") or ())

    # --- receivers ---

    def _audience(self, kind: str, workload: WorkloadObject) -> Iterator[tuple[Receiver, Terms, Json]]:
        if not self._mirror.objects[kube.QUEUE_POLICIES]:
            return
        rules = self._rules(workload)
        if not any(kind in rule.get("events", ()) for rule in rules):
            return
        choice = self._annotation(workload, names.NOTIFY)
        if choice.lower() in NOTHING or (choice and kind not in choice.replace(",", " ").split()):
            return
        address = self._annotation(workload, names.NOTIFY_TO)
        wanted = [rule for rule in rules if kind in rule.get("events", ())]
        permitting = [rule for rule in wanted if permitted(address, rule.get("addresses") or ())]
        if address and not permitting:
            self._report_refused(workload, address)
        for rule in wanted:
            secret = rule["secretRef"]
            to = address if rule in permitting else ""
            yield Receiver(secret.get("namespace", names.SYSTEM_NAMESPACE), secret["name"], to), _terms(rule), rule

    def _report_refused(self, workload: WorkloadObject, address: str) -> None:
        """Say once of each address that nothing is sent to it."""
        shown = bounded.shown(address)
        if self._refused.get(workload.key) == shown:
            return
        self._refused[workload.key] = shown
        why = "is not permitted by spec.notify[].addresses of its queue's QueuePolicy"
        if not is_address(address):
            why = "is not an address, a channel or a number"
        self._messages.publish(NoticeLimited(workload.key, f"annotation {names.NOTIFY_TO}: {shown} {why}"))

    def _rules(self, workload: WorkloadObject) -> Sequence[Json]:
        queue = self._mirror.get(kube.CLUSTER_QUEUES, self._queue_of(workload))
        policy = self._mirror.policy_of(queue) if queue is not None else None
        return (policy.spec.get("notify") or ()) if policy is not None else ()

    def _queue_of(self, workload: WorkloadObject) -> str:
        if workload.admission:
            return workload.admitted_by
        local = self._mirror.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        return local.cluster_queue if local is not None else ""

    def _annotation(self, workload: WorkloadObject, name: str) -> str:
        """The annotation of the job or, where there is none, of the Workload."""
        job = self._job(workload)
        return (job or workload).annotations.get(name, "").strip()

    def _job(self, workload: WorkloadObject) -> JobObject | None:
        ref = self._mirror.job_of(workload)
        return self._mirror.job(ref) if ref is not None else None

    def _subject(self, workload: WorkloadObject) -> str:
        owner = workload.controller
        if owner is None:
            return f"Workload {workload.key}"
        return _line(f"{owner['kind']} {workload.namespace}/{owner['name']}")


@bounded.parser(_LONGEST_ADDRESS, instead=False, worst=("a", "@", "a@"))
def is_address(text: str) -> bool:
    """Whether the text can stand for {to}: e-mail, channel, phone number; without characters that could change
    the rest of a URL.
    """
    return bool(text) and _ADDRESS.fullmatch(text) is not None


def permitted(address: str, patterns: Collection[str]) -> bool:
    """Whether one of the patterns permits a job's own address. A pattern is an address, or `*` and how addresses end.

    >>> permitted("alice@example.org", ["*@example.org"]), permitted("alice@example.org.evil.net", ["*@example.org"])
    (True, False)
    """
    folded = address.lower()
    return is_address(address) and any(
        folded.endswith(pattern[1:].lower()) if pattern.startswith("*") else folded == pattern.lower()
        for pattern in patterns
    )


def _line(text: str) -> str:
    """The text in one line of what can be shown, cut to the length that a message shows. In a digest a line is about one job: no
    text passes for a notice about another."""
    if len(text) > MOST_SHOWN:
        text = f"{text[: MOST_SHOWN - 1]}…"
    return bounded.printable(" ".join(text.splitlines()))


def _terms(rule: Json) -> Terms:
    digest = quantity.parse_duration(rule.get("digest", "0s"))
    return Terms(digest, rule.get("maxPerHour", 60), rule.get("maxPerNamespace", 120))


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
        queue = f"\nClusterQueue: {notice.queue}" if notice.queue else ""
        return Message(notice.title, f"{notice.text}{queue}", warning)
    counts = {kind: sum(notice.kind == kind for notice in notices) for kind in KINDS}
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    lines = [f"{notice.title}: {notice.text}" for notice in _listed(notices)]
    if len(notices) > MOST_LINES:
        lines.append(f"… and {len(notices) - MOST_LINES} more")
    return Message(f"Gangline: {listed}", "\n".join(lines), warning)


def _listed(notices: Sequence[Notice]) -> list[Notice]:
    """The notices that a digest lists: the first ones of each namespace, as many of each, so that none fills the list."""
    turns: dict[str, int] = {}
    ranked: list[tuple[int, int]] = []
    for place, notice in enumerate(notices):
        turn = turns[notice.namespace] = turns.get(notice.namespace, 0) + 1
        ranked.append((turn, place))
    return [notices[place] for place in sorted(place for _, place in sorted(ranked)[:MOST_LINES])]
