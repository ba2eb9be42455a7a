"""The ResourceClaims of pods that get their share of cards by DRA and wait for their place (`gangline.api.sharing`).

The claim of each is for the cards of its seat, and is there before its gate is taken off. It is named after all that it asks for,
and says for which cards it is: whoever looks after a crash finds it, and gives the pod the same cards. One for other cards, of a
seat that the pod had before, is deleted first; nothing is allocated to it while its pod waits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from gangline.api import names
from gangline.api.sharing import share_annotations
from gangline.control.feed.mirror import Mirror
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority, Verb
from gangline.control.writes.writes import Writes
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import PodObject, Stored

#: by it the controller of claims knows which claim of its pod a claim is
_OF: Final = "resource.kubernetes.io/pod-claim-name"
_DIGEST_LENGTH: Final = 16
_LONGEST_NAME: Final = 200


class PodClaims:
    """Writes the ResourceClaims of pods. `again` and `later` have the pods of a Workload looked at again, at
    once or in a while.
    """

    def __init__(
        self,
        mirror: Mirror,
        writes: Writes,
        recorder: EventRecorder,
        *,
        again: Callable[[str], None],
        later: Callable[[str], None],
    ) -> None:
        self._mirror = mirror
        self._writes = writes
        self._recorder = recorder
        self._again = again
        self._later = later

    def cards_of(self, pod: PodObject) -> str:
        """The cards for which a pod that waits has a claim; "" = it has none."""
        there = (claim for claim in self._of(pod) if not claim.deleting) if _claims(pod) else ()
        return next((claim.annotations.get(names.CARDS) or "" for claim in there), "")

    def are_there(self, workload: str, pod: PodObject, asked: Mapping[str, Any], cards: str) -> bool:
        """Whether the claims of a pod that starts on these cards exist; if not, the next write for that is sent. `asked`:
        annotations of its template, as admitted.
        """
        wanted = claim_of(pod, asked, cards)
        if wanted is None:
            return True
        name, there = wanted["metadata"]["name"], self._of(pod)
        outdated = [claim for claim in there if claim.name != name or claim.deleting]
        for claim in outdated:
            if claim.deleting:
                self._later(workload)
            else:
                self._send(workload, pod, claim, "delete", {"uid": claim.uid})
        if not there:
            self._send(workload, pod, wanted, "create", wanted)
        return bool(there) and not outdated

    def _of(self, pod: PodObject) -> list[Stored]:
        owned = self._mirror.controlled_by(pod, kube.RESOURCE_CLAIMS)
        return [claim for claim in owned if claim.annotations.get(_OF) == share_annotations.CLAIM]

    def _send(self, workload: str, pod: PodObject, claim: Json, verb: Verb, body: Json) -> None:
        key = ObjectKey.of(kube.RESOURCE_CLAIMS, claim)
        if self._writes.pending(kube.RESOURCE_CLAIMS, key.text):
            return

        def failed(error: ApiError) -> None:
            if isinstance(error, Conflict) or (verb == "delete" and isinstance(error, NotFound)):
                self._again(workload)  # it is as it should be, or is looked at anew
                return
            note = f"ResourceClaim {key.name}: {error.message}"
            self._recorder.record({"apiVersion": "v1", "kind": "Pod", **pod}, "Warning", "ClaimRefused", note)
            self._later(workload)

        done = lambda answer: self._again(workload)  # noqa: E731
        self._writes.send(key, verb, body, priority=Priority.START_STOP, done=done, failed=failed)


def claim_of(pod: PodObject, asked: Mapping[str, Any], cards: str) -> Json | None:
    """The claim of a pod for these cards; None for a pod whose claim the operator does not write."""
    spec = share_annotations.spec(asked, cards.split(",") if cards else ()) if _claims(pod) else None
    if spec is None:
        return None
    digest = hashlib.sha256(json.dumps([pod.uid, cards, spec], sort_keys=True).encode()).hexdigest()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    return {
        "apiVersion": kube.RESOURCE_CLAIMS.api_version,
        "kind": kube.RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": f"{pod.name[:_LONGEST_NAME].rstrip('-.')}-{digest[:_DIGEST_LENGTH]}",
            "namespace": pod.namespace,
            "annotations": {_OF: share_annotations.CLAIM, names.CARDS: cards},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _claims(pod: PodObject) -> bool:
    """Whether the pod names the ResourceClaimTemplate for which the operator makes claims itself: no such template exists."""
    return any(
        row.get("name") == share_annotations.CLAIM
        and row.get("resourceClaimTemplateName") == share_annotations.BY_OPERATOR
        for row in pod.spec.get("resourceClaims") or ()
    )
