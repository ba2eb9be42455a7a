"""Measures classes of jobs by running pods of them on one node, with the official client.

Of each class there is a manifest of a pod, with the annotation gangline.io/class. Pods go to the node by a node selector, and
report their steps as `gangline.progress` does, to an address of this process, or by the annotation gangline.io/progress. A pod
counts from its first step on, less a time to warm up. Pods that a killed probe left behind end by their deadline, and the next
probe of the namespace deletes them first.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

from gangline import bounded
from gangline.api import names
from gangline.console.probing.probes import ProbeError
from gangline.control.nodes.stall.progress_reports import LONGEST, BadReportError, load, read, read_annotation
from gangline.engine.model import Mode, SpeedAlone

Json = dict[str, Any]

#: label of pods of probes
LABEL: Final = f"{names.OWN_GROUP}/probe"
#: seconds between two looks at pods
LOOK: Final = 1.0
#: seconds until pods are gone
_GONE: Final = 120.0
#: connections that send nothing are closed after so many seconds
_SILENCE: Final = 5.0
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: until a pod makes its first step, at most; then to warm up; then to measure."""

    start: float = 600.0
    warm_up: float = 30.0
    measure: float = 60.0


@dataclass(frozen=True, slots=True)
class Use:
    """What telemetry says of a pod: percent of its GPU, and bytes of memory; 0 = not known."""

    utilisation: int = 0
    memory: int = 0


#: the present use of a pod by its name
Usage = Callable[[str], Use]


class PodApi(Protocol):
    """What is used of `kubernetes.client.CoreV1Api`."""

    def create_namespaced_pod(self, namespace: str, body: Json, **options: Any) -> Any: ...
    def read_namespaced_pod(self, name: str, namespace: str, **options: Any) -> Any: ...
    def list_namespaced_pod(self, namespace: str, **options: Any) -> Any: ...
    def delete_collection_namespaced_pod(self, namespace: str, **options: Any) -> Any: ...


class ReportReceiver:
    """Receives progress reports of pods: their last step by pod. Each pod has an address of its own, which nobody can guess."""

    def __init__(self, host: str = "0.0.0.0", port: int = 0) -> None:
        self._steps: dict[str, int] = {}
        self._paths: dict[str, str] = {}
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _SILENCE

            def do_POST(self) -> None:
                length = bounded.whole(self.headers.get("Content-Length") or "")
                if length is None or length > LONGEST:
                    self.send_error(413)
                    return
                self.send_response(204 if receiver.take(self.path, self.rfile.read(length)) else 404)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="gangline-probe", daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def path_for(self, pod: str) -> str:
        """The path of a pod's address."""
        path = f"/{secrets.token_urlsafe(16)}"
        with self._lock:
            self._paths[path] = pod
        return path

    def take(self, path: str, body: bytes) -> bool:
        """Take a report; False if it is none of a pod."""
        with self._lock:
            pod = self._paths.get(path)
        if pod is None:
            return False
        try:
            step = read(load(body), 0).step
        except BadReportError:
            return False
        if step is not None:
            with self._lock:
                self._steps[pod] = step
        return True

    def step(self, pod: str) -> int | None:
        with self._lock:
            return self._steps.get(pod)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(slots=True)
class _Running:
    """A pod of the probe, and the steps that it made: (seconds, step)."""

    name: str
    steps: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    failed: str = ""
    memory: int = 0
    utilisation: list[int] = field(default_factory=list[int])

    def rate(self, since: float) -> float | None:
        """Steps per second from the first that was made after `since`; None before there are two."""
        counted = [each for each in self.steps if each[0] >= since]
        if len(counted) < 2 or counted[-1][0] <= counted[0][0]:
            return None
        return (counted[-1][1] - counted[0][1]) / (counted[-1][0] - counted[0][0])


class PodProber:
    """Runs pods on a node. `address`: the URL under which pods reach `receiver`, without a path."""

    def __init__(
        self,
        api: PodApi,
        manifests: Mapping[str, Json],
        namespace: str,
        node: str,
        gpu: str,
        sharing: Mode,
        *,
        receiver: ReportReceiver,
        address: str,
        times: Times = Times(),
        usage: Usage = lambda _: Use(),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api, self._manifests, self._namespace, self._node = api, manifests, namespace, node
        self.gpu = gpu
        self.sharing: Mode = sharing
        self._receiver, self._address, self._times, self._usage = receiver, address.rstrip("/"), times, usage
        self._clock, self._sleep = clock, sleep

    def alone(self, kind: str) -> SpeedAlone:
        (run,), rates = self._run([kind])
        if rates is None:
            raise ProbeError(f"{kind}: {run.failed}")
        utilisation = round(sum(run.utilisation) / len(run.utilisation)) if run.utilisation else 0
        return SpeedAlone(self.gpu, rates[0], -(-run.memory // _MIB), min(100, utilisation))

    def together(self, one: str, other: str) -> tuple[float, float] | None:
        """A pod that runs alone and fails beside another one is taken for out of memory."""
        _, rates = self._run([one, other])
        return None if rates is None else (rates[0], rates[1])

    def clear(self) -> None:
        """Delete what probes have left in the namespace, and wait until it is gone. Raises ProbeError."""
        self._api.delete_collection_namespaced_pod(
            self._namespace, label_selector=LABEL, grace_period_seconds=0, _request_timeout=30
        )
        deadline = self._clock() + _GONE
        while self._api.list_namespaced_pod(self._namespace, label_selector=LABEL, _request_timeout=30).items:
            if self._clock() > deadline:
                raise ProbeError(f"pods of a probe in namespace {self._namespace} do not end")
            self._sleep(LOOK)

    # --- a run --------------------------------------------------------------------------------------------------------

    def _run(self, kinds: Sequence[str]) -> tuple[list[_Running], list[float] | None]:
        """The pods, and their rates while all run; None where one of them failed. Raises ProbeError."""
        self.clear()
        try:
            runs = [self._create(kind) for kind in kinds]
            return runs, self._watch(kinds, runs)
        finally:
            self.clear()

    def _create(self, kind: str) -> _Running:
        manifest = self._manifests.get(kind)
        if manifest is None:
            raise ProbeError(f"{kind}: no manifest of a pod has this class")
        name = f"gangline-probe-{secrets.token_hex(5)}"
        url = f"{self._address}{self._receiver.path_for(name)}"
        self._api.create_namespaced_pod(self._namespace, self._pod(manifest, name, url), _request_timeout=30)
        return _Running(name)

    def _pod(self, manifest: Json, name: str, url: str) -> Json:
        """The pod of a manifest, on the node, with an end."""
        pod: Json = copy.deepcopy({key: manifest.get(key) for key in ("apiVersion", "kind")})
        spec: Json = copy.deepcopy(manifest.get("spec") or {})
        meta = manifest.get("metadata") or {}
        pod["metadata"] = {
            "name": name,
            "labels": {**(meta.get("labels") or {}), LABEL: "true"},
            "annotations": dict(meta.get("annotations") or {}),
        }
        pod["metadata"]["labels"].pop(names.QUEUE_NAME, None)  # it waits for nobody
        pod["spec"] = spec
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), "kubernetes.io/hostname": self._node}
        spec["restartPolicy"] = "Never"
        spec["activeDeadlineSeconds"] = round(self._times.start + self._times.warm_up + self._times.measure + 60)
        variables = [
            {"name": "GANGLINE_PROGRESS_URL", "value": url},
            {"name": "GANGLINE_PROGRESS_INTERVAL", "value": "1"},
        ]
        for container in spec.get("containers") or []:
            kept = [
                each for each in container.get("env") or [] if each.get("name") not in {t["name"] for t in variables}
            ]
            container["env"] = [*kept, *variables]
        return pod

    def _watch(self, kinds: Sequence[str], runs: Sequence[_Running]) -> list[float] | None:
        begun = self._clock()
        since: float | None = None
        while True:
            now = self._clock()
            for run in runs:
                self._look(run, now)
                if run.failed:
                    return None
            if since is None and all(run.steps for run in runs):
                since = now + self._times.warm_up
            if since is not None and now >= since + self._times.measure:
                rates = [run.rate(since) for run in runs]
                if all(rate is not None for rate in rates):
                    return [rate for rate in rates if rate is not None]
            if now > begun + self._times.start + self._times.warm_up + self._times.measure:
                late = next((kind for kind, run in zip(kinds, runs, strict=True) if not run.steps), kinds[0])
                raise ProbeError(f"{late}: reported too few steps on node {self._node} to be measured")
            self._sleep(LOOK)

    def _look(self, run: _Running, now: float) -> None:
        pod = self._api.read_namespaced_pod(run.name, self._namespace, _request_timeout=30)
        if pod.status.phase in ("Failed", "Succeeded"):
            run.failed = _why(pod)
            return
        step = self._receiver.step(run.name)
        if step is None:
            written = (pod.metadata.annotations or {}).get(names.PROGRESS)
            try:
                step = read_annotation(written, 0).step if written else None
            except BadReportError:
                step = None
        if step is not None and (not run.steps or step > run.steps[-1][1]):
            run.steps.append((now, step))
        use = self._usage(run.name)
        run.memory = max(run.memory, use.memory)
        if use.utilisation:
            run.utilisation.append(use.utilisation)


def _why(pod: Any) -> str:
    """Why a pod ended, in the words of its status."""
    if pod.status.phase == "Succeeded":
        return "the pod ended before it was measured"
    for container in pod.status.container_statuses or ():
        ended = container.state.terminated if container.state is not None else None
        if ended is not None:
            return f"the pod failed: {ended.reason or 'Error'}, exit code {ended.exit_code}"
    return f"the pod failed: {pod.status.reason or 'its containers did not start'}"


def manifests_of(documents: Sequence[Any]) -> dict[str, Json]:
    """Pods by class. Raises ProbeError for what is no pod with a class, or a class that comes twice."""
    found: dict[str, Json] = {}
    for place, each in enumerate(documents, 1):
        kind = each.get("kind") if isinstance(each, dict) else None
        annotations = ((each.get("metadata") or {}).get("annotations") or {}) if kind == "Pod" else {}
        name = annotations.get(names.CLASS)
        if not isinstance(name, str) or not name:
            raise ProbeError(f"document {place}: is no Pod with the annotation {names.CLASS}")
        if name in found:
            raise ProbeError(f"document {place}: there is another pod of class {name}")
        found[name] = each
    return found
