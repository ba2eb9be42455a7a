"""The HTTP endpoints: two for admission, one for conversion, two for probes.

`/mutate` and `/validate` take any kind with rules; `registration` decides which kinds are sent here.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangline.api import admission, jobkinds, names
from gangline.api.admission.findings import annotations_of, text
from gangline.api.admission.of_jobs import allowed_classes, jobs
from gangline.api.convert import conversion
from gangline.api.jobkinds import own
from gangline.api.jobkinds.declaration import NoPodsError, at
from gangline.bounded import SHOWN
from gangline.jobs import kind_of, workload
from gangline.jobs.base import JobError
from gangline.kube import resources
from gangline.kube.resources import Json
from gangline.objects import JobObject
from gangline.tls.asgi import CERTIFIED
from gangline_webhooks import envelope, review
from gangline_webhooks.envelope import BadReviewError
from gangline_webhooks.facts import WARNINGS_WITHIN, Facts
from gangline_webhooks.intake import Judge, ReviewIntake, ReviewRefusedError

# --- ConversionReview v1: objects of one version in, the same objects in another version out --------------------------


Convert: TypeAlias = Callable[[Json, str], Json]

log = logging.getLogger(__name__)

API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "ConversionReview"


def answer(body: bytes, convert: Convert) -> Json:
    """The ConversionReview to return. One object that cannot be converted fails the review, as the API demands, with a message
    that names the object. Raises BadReviewError for a body that is no review.
    """
    request = envelope.request_of(body, KIND, API_VERSION, envelope.CONVERSION)
    uid, version, objects = envelope.uid_of(request), request.get("desiredAPIVersion"), request.get("objects")
    if not isinstance(version, str) or not version:
        raise BadReviewError("request.desiredAPIVersion is missing")
    if not isinstance(objects, list):
        raise BadReviewError("request.objects is missing")
    try:
        converted = [_converted(obj, version, convert) for obj in objects]
    except _FailedError as failure:
        log.warning("%s", failure)
        return failed(uid, str(failure))
    return _review({"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}})


def failed(uid: str, message: str) -> Json:
    """The answer without an object."""
    return _review({"uid": uid, "convertedObjects": [], "result": {"status": "Failure", "message": message}})


class _FailedError(Exception):
    """One object could not be converted; the text names it."""


def _converted(obj: object, version: str, convert: Convert) -> Json:
    if not isinstance(obj, dict):
        raise _FailedError("an entry of request.objects is not an object")
    try:
        return convert(obj, version)
    except Exception as error:  # an error of one object must be returned in words, not as a closed connection
        meta = obj.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        raise _FailedError(
            f"{str(obj.get('kind'))[:SHOWN]} {str(name)[:SHOWN]}: can't be converted to {version[:SHOWN]}: {str(error)[:200]}"
        ) from error


def _review(response: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


# --- JSON patches (RFC 6902): the operations between an object and its completed copy ---------------------------------


def diff(before: Json, after: Json) -> list[Json]:
    """Operations that turn `before` into `after`; empty if they are equal. Parts that both share are not looked into.

    An operation's parent always exists at its turn: missing parts are added whole, at the highest place.
    """
    operations: list[Json] = []
    _objects("", before, after, operations)
    return operations


def _objects(path: str, before: Json, after: Json, operations: list[Json]) -> None:
    for name in before.keys() - after.keys():
        operations.append({"op": "remove", "path": f"{path}/{_escaped(name)}"})
    for name, value in after.items():
        if name not in before:
            operations.append({"op": "add", "path": f"{path}/{_escaped(name)}", "value": value})
        elif before[name] is not value:
            _values(f"{path}/{_escaped(name)}", before[name], value, operations)


def _values(path: str, before: object, after: object, operations: list[Json]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        _objects(path, cast(Json, before), cast(Json, after), operations)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            if old is not new:
                _values(f"{path}/{i}", old, new, operations)
    elif not _same(before, after):
        operations.append({"op": "replace", "path": path, "value": after})


def _same(before: object, after: object) -> bool:
    """Equality of values other than two objects or equally long lists; in JSON, unlike in Python, true is not 1."""
    return type(before) is type(after) and before == after


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


@dataclass(slots=True)
class Readiness:
    """Whether requests may be sent here; `waiting_for` says what is missing until then. `ending`: no more are wanted."""

    waiting_for: list[str] = field(default_factory=list[str])
    ending: bool = False

    @property
    def ready(self) -> bool:
        return not self.waiting_for and not self.ending

    def done(self, what: str) -> None:
        if what in self.waiting_for:
            self.waiting_for.remove(what)


#: the paths that ask for one, where a CA is configured. API servers show none for conversions.
ADMISSION: Final = ("/mutate", "/validate")
_UNCERTIFIED: Final = (
    "a client certificate is wanted (--client-ca): give the API server one in the kubeConfigFile of its admission "
    "configuration\n"
)

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class _Reviews:
    """The endpoints that API servers call, without the layers that FastAPI puts around a route.

    Each write of a Workload is converted four times, and these layers cost five times what the conversion itself does.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], app: FastAPI, readiness: Readiness, certified: bool) -> None:
        self._endpoints = endpoints
        self._app = app
        self._readiness = readiness
        self._certified = certified

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._readiness.ending:
            send = _last(send)
        posted = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._endpoints.get(scope["path"]) if posted else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        if self._certified and scope["path"] in ADMISSION and not scope.get("state", {}).get(CERTIFIED):
            response = Response(_UNCERTIFIED, 403, media_type="text/plain")
        else:
            response = await endpoint(Request(scope, receive))
        await response(scope, receive, send)


def _last(send: Send) -> Send:
    """Tells the client that no further request is answered on this connection. An API server keeps its connections for minutes
    and can't send a review again that it sent just when we closed one.
    """

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return tell


def create_app(
    facts: Facts,
    readiness: Readiness,
    convert: Convert = conversion.convert,
    intake: ReviewIntake | None = None,
    *,
    certified: bool = False,
) -> ASGIApp:
    """The app. `intake`: that of the reviews, else one of its own. `certified`: reviews of objects need a client certificate."""
    app = FastAPI(title="Gangline webhooks", docs_url=None, redoc_url=None, openapi_url=None)

    def is_left_alone(asked: review.Review) -> bool:
        """Whether the object is of a job kind that is not listed in `integrations.frameworks`; or a pod, where only those of
        owners are queued.
        """
        if asked.kind == "Pod" and not facts.managed.pods:
            return text(annotations_of(asked.obj).get(names.SUSPENDED_BY_PARENT)) not in facts.managed.pods_of
        return not facts.managed.kind(str(asked.obj.get("apiVersion", "")), asked.kind)

    async def mutate(asked: review.Review) -> Json:
        if is_left_alone(asked):
            return review.allowed(asked, warnings=_unlisted(asked))
        result = await facts.run(lambda context: admission.default(asked.obj, asked.old, context))
        return review.allowed(asked, diff(asked.obj, result.obj), result.warnings)

    async def validate(asked: review.Review) -> Json:
        if is_left_alone(asked):
            return review.allowed(asked)
        errors = await facts.run(lambda context: admission.validate(asked.obj, asked.old, context))
        errors = errors or _unqueueable(asked, every=facts.managed.without_queue)
        errors = errors or await facts.run(lambda context: _class_errors(asked, context))
        if errors:
            return review.denied(asked, errors)
        try:
            async with asyncio.timeout(WARNINGS_WITHIN):
                warnings = await facts.run(lambda context: admission.warnings(asked.obj, context))
        except TimeoutError:
            warnings = []
        return review.allowed(asked, warnings=warnings)

    async def convert_all(body: bytes) -> bytes:
        return orjson.dumps(answer(body, convert))

    async def healthz() -> Response:
        return Response("ok", media_type="text/plain")

    async def readyz() -> Response:
        if readiness.ready:
            return Response("ok", media_type="text/plain")
        why = "ending" if readiness.ending else f"waiting for {', '.join(readiness.waiting_for)}"
        return Response(f"{why}\n", 503, media_type="text/plain")

    admitting = intake or ReviewIntake(envelope.ADMISSION.most_bytes)
    converting = ReviewIntake(envelope.CONVERSION.most_bytes, by_namespace=False)
    reviews = {
        "/mutate": _endpoint(admitting, _isolated(mutate), _denied),
        "/validate": _endpoint(admitting, _isolated(validate), _denied),
        "/convert": _endpoint(converting, convert_all, _unconverted),
    }
    for path, endpoint in reviews.items():
        app.add_api_route(path, endpoint, methods=["POST"])
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.add_api_route("/readyz", readyz, methods=["GET"])
    return _Reviews(reviews, app, readiness, certified)


def _isolated(judge: Callable[[review.Review], Awaitable[Json]]) -> Judge:
    """Let a failure with one object only affect that object: it is refused, with the reason."""

    async def answer(body: bytes) -> bytes:
        asked = review.parse(body)
        try:
            return orjson.dumps(await judge(asked))
        except admission.UnknownKindError:
            raise
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__, -6)).rstrip()
            log.error("a %s could not be judged: %s", asked.kind[:SHOWN], type(error).__name__, extra={"trace": where})
            return orjson.dumps(review.failed(asked, error))

    return answer


def _unlisted(asked: review.Review) -> tuple[str, ...]:
    """Tells the author of a job that names a queue, whose kind is not managed here."""
    group, _, _ = str(asked.obj.get("apiVersion", "")).rpartition("/")
    declared = jobkinds.declaration_of(group, asked.kind)
    if declared is None or not jobs.queue_name(asked.obj):
        return ()
    name = f'"{declared.framework}" is not listed in integrations.frameworks'
    return (f"this {asked.kind} names a queue and is not queued: it starts without quota, since {name}",)


def _unqueueable(asked: review.Review, *, every: bool) -> list[admission.FieldError]:
    """Errors that only the module of the job's kind finds: it could not make a gang of this job, so refuse it at once.

    `every`: also where the job names no queue.
    """
    job, kind = JobObject(asked.obj), kind_of(str(asked.obj.get("apiVersion")), asked.kind)
    if kind is None or not (every or kind.owns_children or job.queue_name):
        return []
    # another object may describe its pods, and may still come
    if kind.declaration.descriptions or kind.declaration.left_alone(job):
        return []
    try:
        if asked.old is not None and (job["spec"] == asked.old["spec"] or not kind.is_suspended(job)):
            return []
        kind.pod_sets(job)
    except NoPodsError:  # a warning says so
        return []
    except JobError as error:
        return [admission.FieldError(error.field or "spec", admission.NOTHING, error.message)]
    except (
        TypeError,
        AttributeError,
        LookupError,
        ValueError,
    ) as error:  # the API server itself refuses such a job
        what = f"is not of the shape that a {asked.kind} has ({type(error).__name__})"
        return [admission.FieldError("spec", admission.NOTHING, what)]
    return []


def _class_errors(asked: review.Review, context: admission.AdmissionFacts) -> list[admission.FieldError]:
    """The errors of a queued job that asks for a priority which its namespace does not allow. What it asked for before may stay:
    it may have been allowed then.
    """
    group = str(asked.obj.get("apiVersion", "")).rpartition("/")[0]
    if group in (names.GROUP, names.OWN_GROUP) and asked.kind != own.GPU_JOB.kind:
        return []
    if not (context.without_queue or jobs.queue_name(asked.obj)):
        return []
    wanted = _wanted(asked.obj)
    if wanted == _NOTHING_WANTED or (asked.old is not None and wanted == _wanted(asked.old)):
        return []
    allowed = allowed_classes.of_namespace(asked.obj, context)
    name, of_pods, path, boost = wanted

    def is_default() -> bool:
        found = context.look((resources.PRIORITY_CLASSES, name)) if of_pods else None
        return found is not None and found.get("globalDefault") is True

    return allowed.errors(name, path, boost, is_default=is_default)


_NOTHING_WANTED: Final = ("", False, "", "")


def _wanted(obj: Json) -> tuple[str, bool, str, str]:
    """The class that an object names, whether it may be one of pods, where it names it, and its boost."""
    job, kind = JobObject(obj), kind_of(str(obj.get("apiVersion")), str(obj.get("kind")))
    boost = text(annotations_of(obj).get(names.PRIORITY_BOOST))
    try:
        if kind is not None:
            pod_sets = kind.pod_sets(job)
        else:
            pod_sets = [{"template": obj if obj.get("kind") == "Pod" else at(obj, ("spec", "template")) or {}}]
        ref = workload.priority_source(job, pod_sets)
        if ref is None:
            return ("", False, "", boost)
        path = workload.where_class_is_named(job, pod_sets, ref["name"])
        return (text(ref["name"]), not path.endswith("]"), path, boost)
    except (JobError, TypeError, AttributeError, LookupError, ValueError):  # it is refused for that, or makes no pods
        return ("", False, "", boost)


def _denied(refused: ReviewRefusedError) -> Json:
    return review.refused(refused.uid, refused.status, str(refused), refused.retry_after)


def _unconverted(refused: ReviewRefusedError) -> Json:
    return failed(refused.uid, str(refused))


def _endpoint(intake: ReviewIntake, judge: Judge, refuse: Callable[[ReviewRefusedError], Json]) -> Endpoint:
    """JSON in, JSON out; every failure is a sentence. `refuse` makes the answer to a review that is not judged."""

    async def endpoint(request: Request) -> Response:
        try:
            address = request.client.host if request.client is not None else ""
            answer = await intake.answer(request.stream(), judge, address)
        except ReviewRefusedError as refused:
            if refused.uid:
                return Response(orjson.dumps(refuse(refused)), media_type="application/json")
            return Response(f"{refused}\n", refused.status, media_type="text/plain")
        except (BadReviewError, admission.UnknownKindError) as error:
            return Response(f"{error}\n", 400, media_type="text/plain")
        except ClientDisconnect:  # nobody reads the answer, and any client could fill the log
            return Response(status_code=400)
        except TimeoutError:
            return Response(f"the body did not come within {intake.within:g} s\n", 408, media_type="text/plain")
        except Exception:
            log.exception("%s failed", request.url.path)
            return Response("internal error; the log of the webhooks says more\n", 500, media_type="text/plain")
        return Response(answer, media_type="application/json")

    return endpoint
