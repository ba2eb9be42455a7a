"""Compiles programs from their Go modules, once, into a cache that later runs reuse.

Every finished program is kept, so that an interrupted build continues where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from gangline.devcluster.building.toolchain import Go, Version, ensure_go
from gangline.devcluster.errors import BuildError, StartError
from gangline.devcluster.locks import locked
from gangline.devcluster.progress import narrate

# --- go module --------------------------------------------------------------------------------------------------------
#
# Go modules whose programs are compiled here: what each go.mod pins, how it is built, and where the result is kept.


#: from the versions that go.mod pins: the values of Go variables, set by the linker
LinkedValues = Callable[[Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class GoProgram:
    """One program: its main package, and how it prints its version."""

    name: str
    package: str
    module: str  # the module whose version in go.mod it must report; "": it reports none
    ask_version: tuple[str, ...] = ("--version",)
    tags: tuple[str, ...] = ()  # Go build tags


@dataclass(frozen=True, slots=True)
class GoModule:
    """A directory with go.mod and go.sum (and perhaps main packages of our own), and the programs compiled from it.

    `shown`: the pinned modules whose versions name its directory in the cache, each with a short name. `environment`: more
    variables for `go build`. `static`: C libraries are linked into the programs.
    """

    directory: Path
    programs: tuple[GoProgram, ...]
    shown: tuple[tuple[str, str], ...]
    linked: LinkedValues = lambda _: {}
    cgo: bool = False
    static: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def pinned_versions(self) -> dict[str, str]:
        """Module path -> version pinned by go.mod (`v1.36.3`)."""
        text = (self.directory / "go.mod").read_text()
        return dict(re.findall(r"^(?:require)?\s+(\S+) (v\S+)", text, flags=re.MULTILINE))

    def needed_go(self) -> Version:
        """The Go version that go.mod asks for."""
        text = (self.directory / "go.mod").read_text()
        match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", text, flags=re.MULTILINE)
        if match is None:
            raise BuildError(f"{self.directory / 'go.mod'} names no Go version")
        return tuple(int(part or 0) for part in match.groups())

    def build_flags(self) -> list[str]:
        """The flags of `go build` that all programs share."""
        values = self.linked(self.pinned_versions())
        linker = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])
        if self.static:
            linker += " -extldflags -static"
        return ["-v", "-trimpath", "-buildvcs=false", "-ldflags", linker]

    def go_environment(self, of_toolchain: Mapping[str, str]) -> dict[str, str]:
        """The environment of `go build`, from the toolchain's own."""
        return {**of_toolchain, **self.environment, **({"CGO_ENABLED": "1"} if self.cgo else {})}

    def binaries_directory(self) -> Path:
        """The directory of the module's programs: ~/.cache/gangline/<versions and digest>/bin. Another pin or flag, another
        directory.
        """
        return cache_root() / self._cache_key() / "bin"

    def _cache_key(self) -> str:
        pinned = self.pinned_versions()
        versions = "_".join(f"{short}-{pinned[module]}" for short, module in self.shown)
        digest = hashlib.sha256(f"{platform.system()}/{platform.machine()}/{self.build_flags()}".encode())
        tags = [program.tags for program in self.programs if program.tags]
        if self.cgo or self.environment or tags:
            digest.update(repr((self.cgo, dict(self.environment), tags)).encode())
        for name in ("go.mod", "go.sum"):
            digest.update((self.directory / name).read_bytes())
        for source in sorted(self.directory.rglob("*.go")):
            digest.update(source.read_bytes())
        return f"{versions}_{digest.hexdigest()[:12]}"


def cache_root() -> Path:
    """$XDG_CACHE_HOME/gangline, by default ~/.cache/gangline."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "gangline"


# --- the programs of a development cluster, by the Go module that pins them -------------------------------------------
#
# `gomod` pins the newest Kubernetes, with etcd, kwok and kubectl, which control planes of all versions share; `gomod/1.31` and
# so on pin the API server, controller manager and scheduler of an older one.


KUBERNETES: Final = "k8s.io/kubernetes"
_ETCD: Final = "go.etcd.io/etcd/server/v3"
_KWOK: Final = "sigs.k8s.io/kwok"
_HELM: Final = "helm.sh/helm/v4"

_GOMOD: Final = Path(__file__).parent / "gomod"

#: the version of a local control plane unless another one is asked for
NEWEST: Final = "1.36"
OLDER: Final = ("1.31", "1.32", "1.33", "1.34", "1.35")
OLDEST: Final = OLDER[0]
VERSIONS: Final = (*OLDER, NEWEST)
#: the environment variable that names the version where no option does
VERSION_VARIABLE: Final = "GANGLINE_KUBERNETES"

KUBECTL: Final = GoProgram("kubectl", f"{KUBERNETES}/cmd/kubectl", KUBERNETES, ("version", "--client"))
KWOK: Final = GoProgram("kwok", f"{_KWOK}/cmd/kwok", _KWOK)
_ETCD_SERVER: Final = GoProgram("etcd", _ETCD, _ETCD)
#: of the control plane, those that are Kubernetes' own
KUBERNETES_SERVERS: Final = (
    GoProgram("kube-apiserver", f"{KUBERNETES}/cmd/kube-apiserver", KUBERNETES),
    GoProgram("kube-controller-manager", f"{KUBERNETES}/cmd/kube-controller-manager", KUBERNETES),
    GoProgram("kube-scheduler", f"{KUBERNETES}/cmd/kube-scheduler", KUBERNETES),
)
#: what a local control plane with simulated nodes runs
SERVERS: Final = (_ETCD_SERVER, *KUBERNETES_SERVERS, KWOK)


def kubernetes_version(pinned: Mapping[str, str]) -> dict[str, str]:
    """The Go variables with Kubernetes' version. kube-scheduler refuses to start without them."""
    version = pinned[KUBERNETES]
    major, minor, _ = version.removeprefix("v").split(".", 2)
    component = "k8s.io/component-base/version"
    return {
        f"{component}.gitVersion": version,
        f"{component}.gitMajor": major,
        f"{component}.gitMinor": minor,
    }


def _control_plane_values(pinned: Mapping[str, str]) -> dict[str, str]:
    return {**kubernetes_version(pinned), f"{_KWOK}/pkg/consts.Version": pinned[_KWOK]}


CONTROL_PLANE: Final = GoModule(
    _GOMOD,
    (*SERVERS, KUBECTL),
    shown=(("k8s", KUBERNETES), ("etcd", _ETCD), ("kwok", _KWOK)),
    linked=_control_plane_values,
)


#: lints and renders the chart in tests
HELM: Final = GoModule(
    _GOMOD / "helm",
    (GoProgram("helm", f"{_HELM}/cmd/helm", _HELM, ("version", "--short")),),
    shown=(("helm", _HELM),),
    linked=lambda pinned: {f"{_HELM}/internal/version.version": pinned[_HELM]},
)


def default_version() -> str:
    """The version of control planes for which none is chosen. Raises StartError."""
    version = os.environ.get(VERSION_VARIABLE) or NEWEST
    if version not in VERSIONS:
        raise StartError(f"{VERSION_VARIABLE}={version}: must be one of {', '.join(VERSIONS)}")
    return version


def older(version: str) -> GoModule:
    """The module of an older Kubernetes (`1.31`)."""
    return GoModule(
        _GOMOD / version, KUBERNETES_SERVERS, shown=(("control-plane", KUBERNETES),), linked=kubernetes_version
    )


def servers(version: str = NEWEST) -> tuple[tuple[GoModule, tuple[GoProgram, ...]], ...]:
    """What a local control plane of one of VERSIONS runs, each time with the module that builds it."""
    if version == NEWEST:
        return ((CONTROL_PLANE, SERVERS),)
    return (CONTROL_PLANE, (_ETCD_SERVER, KWOK)), (older(version), KUBERNETES_SERVERS)


NETWORK_TROUBLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|TLS handshake|proxyconnect|network is unreachable"
    r"|module lookup disabled|connection reset"
)

Compile = Callable[[GoProgram, Path], None]


def ensure_servers(version: str | None = None, *, stream: TextIO | None = None) -> dict[str, Path]:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, by name: those of the cache, else those that the
    machine has, else built now. Raises BuildError.
    """
    found: dict[str, Path] = {}
    for module, programs in servers(version or default_version()):
        there = found_on_machine(module, programs)
        for name, path in there.items():
            _say(stream if stream is not None else sys.stderr, f"Using {name} of this machine: {path}")
        rest = [program for program in programs if program.name not in there]
        built = ensure(module, rest, stream=stream)
        found |= {program.name: there.get(program.name, built / program.name) for program in programs}
    return found


def servers_are_built(version: str | None = None) -> bool:
    """Whether nothing is left to compile for a control plane of this version."""
    return not left_to_compile(version)


def left_to_compile(version: str | None = None) -> list[GoProgram]:
    """The programs of a control plane of this version that neither the cache nor the machine has."""
    return [
        program
        for module, programs in servers(version or default_version())
        for there in [found_on_machine(module, programs)]
        for program in missing(programs, module.binaries_directory())
        if program.name not in there
    ]


#: names a directory with programs of a control plane, as Kubernetes' own test tools use it
ASSETS: Final = "KUBEBUILDER_ASSETS"
_VERSION: Final = re.compile(r"\bv?(\d{1,4}\.\d{1,4})\.\d")
#: characters of what a program says of its version
_SAID: Final = 4096


def found_on_machine(module: GoModule, programs: Iterable[GoProgram]) -> dict[str, Path]:
    """Programs that the cache lacks and that KUBEBUILDER_ASSETS or PATH has, by name: of the same minor version, and such as run
    here.
    """
    todo, pinned = missing(programs, module.binaries_directory()), module.pinned_versions()
    return {
        program.name: path
        for program in todo
        if program.module and (path := _of_machine(program, pinned[program.module])) is not None
    }


def _of_machine(program: GoProgram, wanted: str) -> Path | None:
    assets = os.environ.get(ASSETS, "")
    candidates = [Path(assets).absolute() / program.name] if assets else []
    if (on_path := shutil.which(program.name)) is not None:
        candidates.append(Path(on_path))
    return next(
        (path for path in candidates if os.access(path, os.X_OK) and _minor_of(program, path) == _minor(wanted)), None
    )


def _minor_of(program: GoProgram, binary: Path) -> str:
    """The minor version that a program says of itself; "" where it does not run here."""
    try:
        answer = subprocess.run([binary, *program.ask_version], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return _minor(answer.stdout) if answer.returncode == 0 else ""


def _minor(text: str) -> str:
    """The first version in a text as `1.36`; "" without one."""
    found = _VERSION.search(text[:_SAID])
    return found[1] if found else ""


#: minutes of CPU that compiling all programs of a control plane took, their modules and kubectl included, as it was measured
CPU_MINUTES: Final = 20


def minutes_to_compile(todo: int) -> int:
    """The minutes that this machine takes for so many of the programs, about, from its cores."""
    return max(1, round(CPU_MINUTES * min(todo, len(SERVERS)) / len(SERVERS) / cores()))


def time_to_compile(todo: int) -> str:
    """The same in words: `about 10 minutes on 2 cores`."""
    minutes, on = minutes_to_compile(todo), cores()
    return f"about {minutes} minute{'' if minutes == 1 else 's'} on {on} core{'' if on == 1 else 's'}"


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kubectl(*, stream: TextIO | None = None) -> Path:
    """The machine's kubectl, or one built like the servers. Raises BuildError."""
    there = shutil.which("kubectl")
    return Path(there) if there else ensure(CONTROL_PLANE, (KUBECTL,), stream=stream) / KUBECTL.name


def is_built(module: GoModule = CONTROL_PLANE, programs: Iterable[GoProgram] = SERVERS) -> bool:
    """Whether nothing is left to compile."""
    return not missing(programs, module.binaries_directory())


def missing(programs: Iterable[GoProgram], directory: Path) -> list[GoProgram]:
    return [program for program in programs if not (directory / program.name).exists()]


def ensure(
    module: GoModule,
    programs: Sequence[GoProgram] | None = None,
    *,
    directory: Path | None = None,
    compile_with: Compile | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Build those of `programs` (default: all of the module) that `directory` (default: in the user's cache) lacks. Returns
    the directory.

    Safe to call from several processes at once: one builds, the others wait for it and say so.
    """
    wanted = module.programs if programs is None else programs
    into = directory if directory is not None else module.binaries_directory()
    if not missing(wanted, into):
        return into
    out = stream if stream is not None else sys.stderr
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"can't write to {into}: {error}; set XDG_CACHE_HOME to a directory of your own") from error
    with locked(into.parent / f"{into.name}.lock", lambda pid: _say(out, f"Waiting for process {pid}, which builds …")):
        todo = missing(wanted, into)
        if todo:
            _sweep_unfinished(into)
            _build_all(module, todo, into, compile_with, out)
    return into


def verify(module: GoModule, program: GoProgram, binary: Path) -> None:
    """Check that the binary runs on this machine and is the pinned version. Raises BuildError if not."""
    if not program.module:
        return
    wanted = module.pinned_versions()[program.module].removeprefix("v")
    try:
        answer = subprocess.run([binary, *program.ask_version], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the {program.name} just built does not run: {error}") from error
    if answer.returncode != 0 or wanted not in answer.stdout:
        raise BuildError(f"the {program.name} just built should be {wanted}, but says: {answer.stdout + answer.stderr}")


def _build_all(
    module: GoModule, todo: Sequence[GoProgram], into: Path, compile_with: Compile | None, out: TextIO
) -> None:
    if compile_with is None:
        go = ensure_go(module.needed_go(), cache_root())
        compile_with = GoCompiler(go, module).compile
        names = ", ".join(program.name for program in todo)
        _say(out, f"Compiling {names} with Go into {into} ({time_to_compile(len(todo))}, once)")
    for number, program in enumerate(todo, start=1):
        unfinished = into / f".{program.name}.unfinished"
        try:
            with narrate(f"Compiling {program.name} ({number} of {len(todo)})", _detail_of(compile_with), stream=out):
                compile_with(program, unfinished)
            unfinished.replace(into / program.name)
        finally:
            unfinished.unlink(missing_ok=True)


def _detail_of(compile_with: Compile) -> Callable[[], str] | None:
    compiler = getattr(compile_with, "__self__", None)
    return compiler.progress if isinstance(compiler, GoCompiler) else None


def _sweep_unfinished(directory: Path) -> None:
    """Remove what a killed build left behind (this process holds the lock, so no other one is writing it)."""
    for leftover in directory.glob(".*.unfinished"):
        leftover.unlink(missing_ok=True)


def _say(out: TextIO, text: str) -> None:
    print(text, file=out, flush=True)


class GoCompiler:
    """Runs `go build` for one program of a module after the other, and reports progress."""

    def __init__(self, go: Go, module: GoModule) -> None:
        self._go = go
        self._module = module
        self._packages = 0
        self._downloads = 0

    def progress(self) -> str:
        parts = [f"{self._downloads} modules fetched" if self._downloads else ""]
        parts.append(f"{self._packages} packages compiled" if self._packages else "")
        return ", ".join(part for part in parts if part)

    def compile(self, program: GoProgram, output: Path) -> None:
        """Build and check one program. Raises BuildError; on any other exit, go and its children are ended."""
        self._packages = self._downloads = 0
        tags = ["-tags", ",".join(program.tags)] if program.tags else []
        command = [str(self._go.path), "build", *self._module.build_flags(), *tags, "-o", str(output), program.package]
        with _interrupts_held() as interrupts:
            process = subprocess.Popen(
                command,
                cwd=self._module.directory,
                env=self._module.go_environment(self._go.environment()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C only reaches this process, which ends the whole group
            )
        try:
            if interrupts:
                raise KeyboardInterrupt
            tail = self._follow(process)
            if process.wait() != 0:
                raise _build_error(program, "".join(tail))
        finally:
            _end_group(process)
        verify(self._module, program, output)

    def _follow(self, process: subprocess.Popen[str]) -> deque[str]:
        tail: deque[str] = deque(maxlen=25)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("go: downloading"):
                self._downloads += 1
            elif re.fullmatch(r"[\w.\-/~]+\n", line):  # -v prints every package as it is compiled
                self._packages += 1
            else:
                tail.append(line)
        return tail


@contextmanager
def _interrupts_held() -> Iterator[list[int]]:
    """Record a Ctrl-C in the list within the block, instead of raising it: a starting process must be known before it can be
    ended.
    """
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):  # e.g. ignored, under nohup
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _build_error(program: GoProgram, tail: str) -> BuildError:
    if "no space left on device" in tail:
        return BuildError(f"the disk is full; compiling {program.name} needs about 5 GB for Go's caches:\n{tail}")
    if NETWORK_TROUBLE.search(tail):
        return BuildError(
            f"the Go modules of {program.name} could not be fetched; the first build needs the network "
            f"(GOPROXY is honoured):\n{tail}"
        )
    return BuildError(f"compiling {program.name} failed:\n{tail}")


def _end_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stderr is not None:
        process.stderr.close()


if __name__ == "__main__":
    print(ensure_servers())
