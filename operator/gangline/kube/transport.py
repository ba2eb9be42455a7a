"""One HTTP request: credentials, timeouts, counting, and every failure as a typed error.

aiohttp is imported when a client is opened: to import it costs a tenth of a second, more than a shell has that completes a name.

No retries, except one: after a 401 the credentials are renewed and the request is sent once more. A new client certificate is
shown on new connections, so all requests from then on use a new pool; what is in progress on the old one ends there.

Measured: a PATCH of 0.5 KB over TLS costs 5 to 10 % more CPU than with bare aiohttp on the same machine.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import statistics
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias
from urllib.parse import urlencode

import orjson

import gangline
from gangline import bounded
from gangline.kube.config import Login, LoginError
from gangline.kube.errors import ApiError, Forbidden, Unauthorized, Unavailable, from_response
from gangline.kube.resources import Json, Resource

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

# --- the time of the cluster: the API server's, which nearly all times in objects come from ---------------------------
#
# A machine's own clock may be off by a minute, and the next leader's by another one in the other direction. An operator that
# compared times of the cluster with such a clock would end runs early or never, and its own times would mislead the next
# leader. So the offset is measured by the `Date` of the API server's answers, and times are reckoned in the API server's time.
# A clock that is set while the process runs changes the offset alone: its steps show beside the time since the machine started,
# and the next answer is measured at once.


log = logging.getLogger(__name__)

#: this machine's clock, in seconds since the epoch
read: Callable[[], float] = time.time


def steady() -> float:
    """Seconds that nobody sets; those count, too, in which the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


#: seconds; smaller offsets are not corrected, since `Date` has whole seconds, and an answer takes its time
TOLERANCE: Final = 2.0
#: seconds that an answer may take if its `Date` is to count
QUICK: Final = 1.0
#: seconds between two measurements
PERIOD: Final = 10.0
#: measurements of which the median counts: API servers may differ, and clocks are set
SAMPLES: Final = 5
#: characters of a `Date`
_LONGEST: Final = 64


class ClusterClock:
    """One API server's time, as far as its answers have shown it."""

    def __init__(self) -> None:
        #: seconds by which the API server's clock is ahead of ours; 0 within the tolerance
        self.offset = 0.0
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._due = 0.0
        self._set_at = read() - steady()  # by our clock

    def seconds(self) -> float:
        """The cluster's time in seconds since the epoch."""
        now = read()
        step = now - steady() - self._set_at
        if abs(step) > TOLERANCE:
            self._stepped(step)
        return now + self.offset

    def _stepped(self, step: float) -> None:
        """Go on as before, until an answer says more, although our clock was set."""
        self.offset -= step
        self._set_at += step
        self._samples.clear()
        self._due = 0.0
        log.warning("this machine's clock was set %s by %.0f s", "forward" if step > 0 else "back", abs(step))

    def millis(self) -> int:
        return round(self.seconds() * 1000)

    def utc(self) -> datetime:
        return datetime.fromtimestamp(self.seconds(), UTC)

    def heard(self, date: str, sent: float) -> None:
        """An answer with this `Date` arrived; its request was sent at `sent` (time.monotonic())."""
        self.seconds()  # notices that our clock was set
        now = time.monotonic()
        if now < self._due or now - sent > QUICK:
            return
        moment = _moment(date)
        if moment is None:
            return
        self._due = now + PERIOD
        # `Date` is cut to seconds: half a second later on average
        self._samples.append(moment + 0.5 - (read() - (now - sent) / 2))
        measured = statistics.median(self._samples)
        offset = measured if abs(measured) > TOLERANCE else 0.0
        if abs(offset - self.offset) > TOLERANCE:
            self.offset = offset
            if offset:
                where = "behind" if offset > 0 else "ahead of"
                log.warning("this machine's clock is %.0f s %s the API server's, whose time counts", abs(offset), where)
            else:
                log.info("this machine's clock agrees with the API server's again")


@bounded.parser(_LONGEST, instead=None, worst=("9", "Mon, ", "1 Jan ", ":", "-", "(", "+"))
def _moment(date: str) -> float | None:
    """Seconds since the epoch of an HTTP date; None if it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


#: a request body: JSON as text already, or a value to serialise
Body: TypeAlias = bytes | Mapping[str, Any] | list[Any]
Query: TypeAlias = Mapping[str, str]
#: called after every answer that is an error, with verb, resource and the error
Observer: TypeAlias = Callable[[str, Resource, ApiError], None]


class Call(NamedTuple):
    """One request, before headers and URL are added; `within` is its timeout in seconds, `most` the bytes of the longest answer
    that is taken (0 = as the transport's).
    """

    verb: str
    resource: Resource
    method: str
    path: str
    query: Query = MappingProxyType({})
    body: Body | None = None
    content_type: str = ""
    subresource: str = ""
    within: float | None = None
    most: int = 0

    @property
    def label(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


class Transport:
    """Async context manager; one connection pool. Safe to share between any number of tasks of one event loop.

    `connections` bounds the sockets, watches included (0 = no bound); `timeout` is seconds for a whole request unless the call
    overrides it. `most_bytes` bounds one answer, or one event, of a server that is not trusted (0 = no bound). `requests` counts
    by (verb, plural[/subresource]).
    """

    def __init__(
        self,
        login: Login,
        *,
        connections: int = 100,
        timeout: float = 30.0,
        observe: Observer | None = None,
        user_agent: str = f"gangline/{gangline.__version__}",
        most_bytes: int = 0,
    ) -> None:
        self.login = login
        self._most_bytes = most_bytes
        self.requests: Counter[tuple[str, str]] = Counter()
        #: the API server's time, by its answers
        self.clock = ClusterClock()
        self._timeout = timeout
        self._connections = connections
        self._observe = observe
        self._headers = {
            "Accept": "application/json",
            # the server would spend its CPU, which is the bottleneck, on compressing long answers
            "Accept-Encoding": "identity",
            "User-Agent": user_agent,
        }
        self._session: aiohttp.ClientSession | None = None
        self._retired: aiohttp.ClientSession | None = None
        self._certificates = 0

    async def __aenter__(self) -> Self:
        self._session = self._new_session()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        sessions, self._session, self._retired = (self._session, self._retired), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    def for_another_thread(self) -> Self:
        """A client of the same server with the same login, to be opened in another thread's event loop. It has connections of its
        own, and shares counters and clock.
        """
        login = self.login.for_another_thread(asyncio.get_running_loop())
        other = type(self)(login, timeout=self._timeout, observe=self._observe, user_agent=self._headers["User-Agent"])
        other.requests, other.clock = self.requests, self.clock
        return other

    def _new_session(self) -> aiohttp.ClientSession:
        import aiohttp

        self._certificates = self.login.certificates
        connector = aiohttp.TCPConnector(limit=self._connections, ssl=self.login.ssl_context or True)
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**18,
            auto_decompress=False,
        )

    async def _present_new_certificate(self) -> None:
        """Change the pool. The one before the old one is closed: what it still carried has had the life of a certificate."""
        outlived, self._retired, self._session = self._retired, self._session, self._new_session()
        if outlived is not None:
            await outlived.close()

    async def json(self, call: Call) -> Json:
        """The object in the server's answer."""
        answer = await self.exchange(call)
        try:
            return bounded.load_shallow(answer)
        except bounded.BadJsonError as error:  # a proxy answers in the server's place
            raise Unavailable(0, "BadAnswer", f"the answer is not JSON: {error}") from error

    async def exchange(self, call: Call) -> bytes:
        """The whole answer."""
        within = self._timeout if call.within is None else call.within
        async with await self.send(call, _total(within)) as response:
            return await _read(response, min(filter(None, (call.most, self._most_bytes)), default=0))

    async def send(self, call: Call, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:  # noqa: ASYNC109
        """An answer of 2xx with its body still to be read; any other answer is raised."""
        from yarl import URL

        url = URL(f"{self.login.server}{call.path}{'?' + urlencode(call.query) if call.query else ''}", encoded=True)
        data = call.body if call.body is None or isinstance(call.body, bytes) else orjson.dumps(call.body)
        for last_try in (False, True):
            headers = await self._authorized()
            if data is not None:
                headers = {**headers, "Content-Type": call.content_type}
            response = await self._request(call, url, data, headers, timeout)
            if response.status < 300:
                return response
            async with response:
                answer = await _read(response, self._most_bytes)
            if response.status != 401 or last_try or not self.login.reject():
                break
        asked = f"{call.method} {self.login.server}{call.path}"
        error = from_response(response.status, answer, response.headers.get("Retry-After"), asked=asked)
        if self._observe:
            self._observe(call.verb, call.resource, error)
        raise error

    async def _authorized(self) -> dict[str, str]:
        """The headers of the login, whose certificate the connections present from now on."""
        try:
            headers = await self.login.headers()
        except LoginError as error:  # an exec plugin or a token file that may return
            raise Unauthorized(0, "LoginFailed", str(error)) from error
        if self._session is not None and self.login.certificates != self._certificates:
            await self._present_new_certificate()
        return headers

    async def websocket(
        self, call: Call, protocols: Sequence[str], *, heartbeat: float, most_bytes: int
    ) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket that the server has opened, with one of these protocols. Raises ApiError."""
        import aiohttp
        from yarl import URL

        url = URL(f"{self.login.server}{call.path}", encoded=True)
        for last_try in (False, True):
            if self._session is None:
                raise RuntimeError("ApiClient is not open: use it in `async with`")
            headers = await self._authorized()
            self.requests[call.verb, call.label] += 1
            try:
                return await self._session.ws_connect(
                    url,
                    protocols=protocols,
                    headers={**headers, "Accept": "*/*"},  # all that the API server produces for a connection
                    heartbeat=heartbeat,
                    max_msg_size=most_bytes,
                    server_hostname=self.login.server_hostname,
                    proxy=self.login.proxy,
                )
            except aiohttp.WSServerHandshakeError as error:
                refused = error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise unavailable(error) from error
            if refused.status != 401 or last_try or not self.login.reject():
                break
        raise await self._why_refused(call, refused.status)

    async def _why_refused(self, call: Call, status: int) -> ApiError:
        """The error of a handshake that was answered with this status. Its body is lost: a plain request gets the same answer."""
        try:
            (await self.send(call, _total(self._timeout))).close()
        except ApiError as error:
            if error.status == status:
                return error
        return from_response(status, b"", asked=f"{call.method} {self.login.server}{call.path.partition('?')[0]}")

    async def _request(
        self,
        call: Call,
        url: URL,
        data: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> aiohttp.ClientResponse:
        import aiohttp

        if self._session is None:
            raise RuntimeError("ApiClient is not open: use it in `async with`")
        self.requests[call.verb, call.label] += 1
        sent = time.monotonic()
        try:
            response = await self._session.request(
                call.method,
                url,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self.login.server_hostname,
                proxy=self.login.proxy,
            )
            self.clock.heard(response.headers.get("Date", ""), sent)
            return response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unavailable(error) from error


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    import aiohttp

    try:
        if not most:
            return await response.read()
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise _too_long(most)
        return b"".join(parts)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise unavailable(error) from error


#: the reason of the error for an answer that is longer than it may be
TOO_LONG: Final = "TooLong"


def _too_long(most: int) -> Unavailable:
    return Unavailable(0, TOO_LONG, f"the server's answer is longer than {most} bytes")


async def lines(response: aiohttp.ClientResponse, most: int = 0) -> AsyncIterator[bytes]:
    """The lines of a stream, however long (readline() has a limit that a large object exceeds), or of at most so many bytes."""
    rest: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        head, newline, tail = chunk.rpartition(b"\n")
        size = len(tail) if newline else size + len(chunk)
        if most and size > most:
            raise _too_long(most)
        if not newline:
            rest.append(chunk)
            continue
        for line in b"".join((*rest, head)).split(b"\n"):
            if line:
                yield line
        rest = [tail] if tail else []
    if rest:
        yield b"".join(rest)


@functools.lru_cache(maxsize=64)
def _total(seconds: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=seconds)


def unavailable(error: BaseException) -> Unavailable:
    import aiohttp

    unreached = isinstance(error, aiohttp.ClientConnectorError)
    timeout = isinstance(error, TimeoutError) and not unreached
    name = "Timeout" if timeout else type(error).__name__
    return Unavailable(0, name, str(error) or name, timeout=timeout, unreached=unreached)


def tell_refusals(say: Callable[..., object]) -> Observer:
    """Reports, once for each kind and verb, what RBAC does not grant. Webhooks and quotas refuse with 403, too, but single
    objects.

    While it starts, an API server that does not know its roles yet refuses everything; that passes.
    """
    reported: set[tuple[str, Resource]] = set()

    def observe(verb: str, resource: Resource, error: ApiError) -> None:
        if isinstance(error, Forbidden) and error.lacks_right and (verb, resource) not in reported:
            reported.add((verb, resource))
            say(
                "a %s of %s was refused (403): where that lasts, `gangline admin rbac` prints what is needed",
                verb,
                resource,
            )

    return observe
