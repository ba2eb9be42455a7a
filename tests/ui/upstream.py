"""In place of an API server with an operator behind it: a few persons with tokens, their rights, and the real answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from gangline.control.answers.api.access_review import ResourceAttributes, Reviews
from gangline.control.answers.api.answers_api import AnswersApi
from gangline.control.answers.api.front_proxy import User
from gangline.kube.config import Login

Json = dict[str, Any]
USER: web.RequestKey[User] = web.RequestKey("user", User)


class Cluster:
    """`tokens`: of whom; `lists`: the namespaces in which each person may list Workloads ("" = all)."""

    def __init__(self, answers: Any) -> None:
        self.tokens = {"admin-token": "admin", "jane-token": "jane"}
        self.lists: dict[str, set[str]] = {"admin": {""}, "jane": {"ml"}}
        self.namespaces = ["ml", "other"]
        self.may_watch = True
        #: no operator leads
        self.away = False
        self.requests: Counter[str] = Counter()
        self.login = Login("")
        self.api = AnswersApi(answers, _Rights(self), None)
        self.api._live._period = 0.05

    def may(self, user: str, attributes: Json) -> bool:
        if attributes.get("resource") == "workloads" and attributes.get("verb") == "list":
            return bool({"", attributes.get("namespace", "")} & self.lists.get(user, set()))
        return user == "admin" or attributes.get("resource") not in ("nodes", "namespaces", "recordchecks")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Cluster]:
        app = web.Application(middlewares=[self._known])
        app.router.add_post("/apis/authentication.k8s.io/v1/selfsubjectreviews", self._who)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._access)
        app.router.add_get("/api/v1/namespaces", self._namespaces)
        self.api.add_to(app, USER)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.login = Login(f"http://127.0.0.1:{runner.addresses[0][1]}")
        try:
            yield self
        finally:
            self.api.end()
            await runner.cleanup()

    @web.middleware
    async def _known(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests[request.path] += 1
        name = self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if name is None:
            return _status(401, "Unauthorized", "Unauthorized")
        request[USER] = User(name)
        if self.away and "answers.gangline.io" in request.path:
            return _status(503, "ServiceUnavailable", "error trying to reach service")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _status(error.status, error.reason, error.text or "")

    async def _who(self, request: web.Request) -> web.Response:
        return web.json_response({"status": {"userInfo": {"username": request[USER].name}}})

    async def _access(self, request: web.Request) -> web.Response:
        asked = (await request.json())["spec"]["resourceAttributes"]
        return web.json_response({"status": {"allowed": self.may(request[USER].name, asked)}})

    async def _namespaces(self, request: web.Request) -> web.Response:
        if request[USER].name != "admin":
            return _status(403, "Forbidden", 'namespaces is forbidden: User "jane" cannot list')
        return web.json_response(
            {
                "apiVersion": "v1",
                "kind": "NamespaceList",
                "metadata": {"resourceVersion": "1"},
                "items": [{"metadata": {"name": name}} for name in self.namespaces],
            }
        )


class _Rights(Reviews):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def allowed(self, user: User, access: object) -> bool:
        assert isinstance(access, ResourceAttributes)
        if access.resource == "liverows":
            return self._cluster.may_watch
        asked = {"resource": access.resource, "verb": access.verb, "namespace": access.namespace}
        return self._cluster.may(user.name, asked)


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return web.json_response(body, status=code)
