"""What a QueuePolicy's status says of delayed heads goes on from one operator to the next."""

from __future__ import annotations

from typing import Any

from tests.objects import Stored

from gangline.control.queues.queue_statuses import HeadDelays
from gangline.control.writes.status import policy_status

Json = dict[str, Any]


def policy(uid: str = "1", said: str | None = None) -> Stored:
    status = {} if said is None else {"headDelaySeconds": said}
    spec = {"clusterQueues": {"names": ["q"]}, "backfill": {}}
    return Stored({"metadata": {"name": "p", "uid": uid}, "spec": spec, "status": status})


def test_a_new_operator_goes_on_from_what_the_status_says() -> None:
    held = policy(said="1k")
    delays = HeadDelays()
    assert not delays.see({}, lambda: {"p": ["q"]})
    assert delays.of(held) == 1000
    assert delays.see({"q": {"backfill": 5.0, "early_end": 9.0}, "other": {"backfill": 7.0}}, lambda: {"p": ["q"]})
    assert delays.of(policy(said="1005")) == 1005, "its own writes are not counted again"
    assert (
        policy_status.status(held, policy_status.Selection(("q",)), now=0, head_delay=delays.of(held))[
            "headDelaySeconds"
        ]
        == "1005"
    )


def test_what_is_new_counts_for_the_policy_in_force() -> None:
    delays = HeadDelays()
    assert delays.of(policy()) == 0
    delays.see({"q": {"backfill": 5.0}}, lambda: {"p": ["q"]})
    delays.see({"q": {"backfill": 8.0}}, lambda: {"another": ["q"]})
    assert delays.of(policy()) == 5
    assert not delays.see({"q": {"backfill": 8.0}}, lambda: {"p": ["q"]})


def test_a_policy_that_is_made_anew_begins_at_nothing() -> None:
    delays = HeadDelays()
    delays.of(policy())
    delays.see({"q": {"backfill": 5.0}}, lambda: {"p": ["q"]})
    assert delays.of(policy(uid="2")) == 0
    assert delays.of(policy(uid="3", said="nonsense")) == 0
