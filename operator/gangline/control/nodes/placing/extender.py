"""A scheduler extender for pods outside of gangs: the `filter` and `prioritize` of kube-scheduler's extender protocol.

`/extender/<QueuePolicy>/filter` says which of the given nodes the policy's filters allow a pod, and `…/prioritize` how good each
is by its scorers, from 0 to 10. The engine decides which nodes a gang gets: its pods are allowed all of them.

kube-scheduler sends no token to an extender. A policy with the annotation `gangline.io/extender-key` answers only where the path
has the key of which that is the digest: `/extender/<QueuePolicy>/<key>/filter`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.requests import ClientDisconnect

from gangline import bounded
from gangline.api import names
from gangline.api.read import parse, policy_reader
from gangline.api.unchecked import mapping
from gangline.control.feed.mirror import Mirror
from gangline.engine import Engine
from gangline.engine.model import PlacementPolicy
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import PodObject
from gangline.tls.apps import REFUSED, address_of
from gangline.tls.requests import Bodies, BusyError, TooLargeError, Turnstile

#: bytes and values of the largest request: the names of 5,000 nodes and any pod, or some 150 whole nodes
LONGEST: Final = 4 * 2**20
MOST_VALUES: Final = 50_000
MOST_NODES: Final = 5000
#: seconds in which a request must have arrived
WITHIN: Final = 5.0
#: bytes of all requests together, and of those of one address
TOGETHER: Final = 16 * 2**20
PER_ADDRESS: Final = 8 * 2**20
#: requests that wait while one is answered, and of one address in all
WAITING: Final = 3
AT_ONCE: Final = 2
#: the highest priority in the protocol
BEST: Final = 10
#: labels and annotations of pods whose nodes follow from their Workload
_OF_GANGS: Final = (names.QUEUE_NAME, names.MANAGED, names.WORKLOAD_ANNOTATION)

_VERBS: Final = {
    "filter": "Which nodes a QueuePolicy allows a pod, as kube-scheduler asks an extender",
    "prioritize": "How good each node is for a pod by a QueuePolicy, as kube-scheduler asks an extender",
}
_ADVICE: Final = ": send the names of the nodes alone (nodeCacheCapable: true)"


class BadRequestError(ValueError):
    """A request that is not of the protocol."""


class ExtenderArgs:
    """A request: a pod and the names of nodes; `objects` if kube-scheduler sent whole nodes."""

    def __init__(self, body: Any) -> None:
        fields = {key.lower(): value for key, value in body.items()} if isinstance(body, dict) else {}
        pod, listed, named = fields.get("pod"), fields.get("nodes"), fields.get("nodenames")
        if not isinstance(pod, dict) or not isinstance(pod.get("metadata"), dict):
            raise BadRequestError("Pod is missing")
        self.pod = PodObject({**pod, "spec": pod.get("spec") or {}})
        self.objects: dict[str, Json] | None = None
        if isinstance(named, list) and named:
            self.names = [name for name in named if isinstance(name, str)]
        elif isinstance(listed, dict) and isinstance(listed.get("items"), list):
            self.objects = {}
            for each in listed["items"]:
                head = each.get("metadata") if isinstance(each, dict) else None
                if isinstance(head, dict) and isinstance(head.get("name"), str):
                    self.objects[head["name"]] = each
            self.names = list(self.objects)
        else:
            raise BadRequestError("NodeNames or Nodes.items is missing")
        if len(self.names) > MOST_NODES:
            raise BadRequestError(f"more than {MOST_NODES} nodes")

    @property
    def of_gang(self) -> bool:
        metadata = self.pod["metadata"]
        said = {**mapping(metadata.get("labels")), **mapping(metadata.get("annotations"))}
        return any(key in said for key in _OF_GANGS)


class Extender:
    """Answers for the policies of the mirror, on the nodes that the engine knows."""

    def __init__(self, mirror: Mirror, engine: Engine) -> None:
        self._mirror = mirror
        self._engine = engine
        self._bodies = Bodies(LONGEST, WITHIN, TOGETHER, PER_ADDRESS)
        self._turns = Turnstile(1, WAITING, AT_ONCE)

    def add_to(self, app: FastAPI) -> None:
        for verb, summary in _VERBS.items():
            for path in ("/extender/{policy}/", "/extender/{policy}/{key:path}/"):
                app.add_api_route(
                    path + verb, partial(self._post, verb), methods=["POST"], summary=summary, responses=REFUSED
                )

    async def _post(self, verb: str, request: Request) -> Response:
        address = address_of(request)
        policy, key = request.path_params["policy"], request.path_params.get("key", "")
        try:
            self._placement(policy)  # no policy, no reading
            self._check_key(policy, key)
            async with self._bodies.read(request.stream(), address) as body, self._turns.turn(address):
                answer = orjson.dumps(await self._answered(policy, verb, body))
            return Response(answer, media_type="application/json")
        except (BadRequestError, bounded.TooLongError, parse.ParseError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        except bounded.BadJsonError as error:
            return PlainTextResponse(f"the body is {error}{_ADVICE}\n", 400)
        except PermissionError as error:
            return PlainTextResponse(f"{error}\n", 403)
        except LookupError as error:
            return PlainTextResponse(f"{error.args[0]}\n", 404)
        except TimeoutError:
            return PlainTextResponse(f"the request did not arrive within {WITHIN:g} s\n", 408)
        except TooLargeError as error:
            return PlainTextResponse(f"{error}{_ADVICE}\n", 413)
        except BusyError as error:
            return PlainTextResponse(f"{error}\n", 429, error.headers)
        except ClientDisconnect:  # nobody reads the answer
            return Response(status_code=400)

    async def _answered(self, policy: str, verb: str, body: bytes) -> Any:
        """Answer a request. Whoever asks without a pause gets half of the time of this process: the rest is for admission."""
        before = time.thread_time()
        try:
            document = bounded.load_json(body, most_bytes=LONGEST, most_values=MOST_VALUES)
            return self.answer(policy, verb, ExtenderArgs(document))
        finally:
            await asyncio.sleep(time.thread_time() - before)

    def answer(self, policy: str, verb: str, asked: ExtenderArgs) -> Any:
        """The answer to a request. Raises LookupError without such a policy, and ParseError for a pod that cannot be read."""
        placement = self._placement(policy)
        if asked.of_gang:
            found: Mapping[str, str | tuple[int, ...]] = dict.fromkeys(asked.names, (0,))
        else:
            pod_set = parse.lone_pod(asked.pod, images=self._mirror.rules.images)
            found = self._engine.rank_nodes(placement, pod_set, asked.names)
        return filtered(asked, found) if verb == "filter" else prioritized(asked.names, found)

    def _check_key(self, policy: str, key: str) -> None:
        """Check the key in the path. Raises PermissionError where the path has not the policy's key, or one where the policy has
        none.
        """
        obj = self._mirror.objects[kube.QUEUE_POLICIES][policy]
        wanted = obj.annotations.get(names.EXTENDER_KEY)
        if wanted is None and not key:
            return
        given = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
        if not isinstance(wanted, str) or not hmac.compare_digest(given.encode(), wanted.lower().encode()):
            raise PermissionError(f"the key in the path is not that of the annotation {names.EXTENDER_KEY}")

    def _placement(self, policy: str) -> PlacementPolicy:
        """The placement of the QueuePolicy of this name. Raises LookupError."""
        obj = self._mirror.objects[kube.QUEUE_POLICIES].get(policy)
        placement = policy_reader.placement(obj) if obj is not None else None
        if placement is None:
            raise LookupError(f"there is no QueuePolicy {policy!r:.80} with spec.placement")
        return placement


def filtered(asked: ExtenderArgs, found: Mapping[str, str | tuple[int, ...]]) -> Json:
    """The ExtenderFilterResult of a request. A node that is not known here is allowed: kube-scheduler knows better."""
    failed = {name: reason for name in asked.names if isinstance(reason := found.get(name, ()), str)}
    allowed = [name for name in asked.names if name not in failed]
    if asked.objects is None:
        answer: Json = {"Nodes": None, "NodeNames": allowed}
    else:
        answer = {"Nodes": {"items": [asked.objects[name] for name in allowed]}, "NodeNames": None}
    return {**answer, "FailedNodes": failed, "FailedAndUnresolvableNodes": {}, "Error": ""}


def prioritized(names_: Sequence[str], found: Mapping[str, str | tuple[int, ...]]) -> list[Json]:
    """The HostPriorityList of a request: only the best nodes have the highest number, and an excluded one has 0."""
    ranks = sorted({rank for rank in found.values() if isinstance(rank, tuple)})
    order = {rank: BEST * (number + 1) // len(ranks) for number, rank in enumerate(ranks)}
    priority = {name: order[rank] if isinstance(rank, tuple) else 0 for name, rank in found.items()}
    return [{"Host": name, "Score": priority.get(name, 0)} for name in names_]
