"""The options of `gangline submit`, wherever they are given: on the command line, as directives in a script, in a profile.

One table says of every option of sbatch whether it is acted on, ignored or refused, and why. What cannot be understood is refused
with the place where it stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from gangline import bounded
from gangline.api import names
from gangline.console.output.spelling import meant

#: the ConfigMap of a namespace that holds its profile
PROFILE: Final = names.SUBMIT_PROFILE
#: bytes of the longest script, and of the largest profile
MOST_SCRIPT: Final = 512 * 1024
MOST_PROFILE: Final = 64 * 1024
#: characters of the longest line with a directive, and of the longest value; directives of one script
LONGEST_LINE: Final = 4096
MOST_DIRECTIVES: Final = 1000

Takes: TypeAlias = Literal["value", "flag", "perhaps"]


class WishError(Exception):
    """An option or its value is not understood, or cannot be done. `of_script`: it is not on the command line."""

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(f"{source}: {message}" if source else message)
        self.of_script = bool(source)


@dataclass(frozen=True, slots=True)
class SubmitOption:
    """An option. `slurm`: its short form in `#SBATCH`; `short`: that on the command line, where -n and -q have other meanings.

    Options of one `group` say the same thing in other words: those that are given nearer to the user replace all of them.
    `own`: Slurm does not have it. `many`: it may be given again, and each counts. `why`: it is not acted on, for this reason;
    `refused`: a job without it would be another job, and is not submitted.
    """

    name: str
    about: str = ""
    metavar: str = ""
    slurm: str = ""
    short: str = ""
    takes: Takes = "value"
    group: str = ""
    own: bool = False
    many: bool = False
    why: str = ""
    refused: bool = False


def _acted() -> Iterable[SubmitOption]:
    option = SubmitOption
    yield option(
        "nodes", "Pods of the job, on a node each; 2-4: it may start with 2.", "N[-N]", "N", "N", group="nodes"
    )
    yield option("ntasks", "Processes of the whole job, a share of them for each pod.", "N", "n", group="nodes")
    yield option("ntasks-per-node", "Processes in each pod; the script starts them.", "N")
    yield option("gpus", "GPUs of the whole job.", "[TYPE:]N", "G", "G", group="gpus")
    yield option("gpus-per-node", "GPUs of each pod.", "[TYPE:]N", group="gpus")
    yield option("gpus-per-task", "GPUs of each process.", "[TYPE:]N", group="gpus")
    yield option("gres", "GPUs of each pod, as gpu:a100:8.", "gpu[:TYPE][:N]", group="gpus")
    yield option("cpus-per-task", "CPUs of each process.", "N", "c", "c", group="cpus")
    yield option("cpus-per-gpu", "CPUs for each GPU.", "N", group="cpus")
    yield option("mem", "Memory of each pod, in MB without a unit.", "SIZE", group="mem")
    yield option("mem-per-cpu", "Memory for each CPU.", "SIZE", group="mem")
    yield option("mem-per-gpu", "Memory for each GPU.", "SIZE", group="mem")
    yield option("time", "The job ends after this time: 2h, 90 (minutes), 1-12:00:00.", "TIME", "t", "t")
    yield option("queue", "The LocalQueue.", "LOCALQUEUE", short="q", group="queue", own=True)
    yield option(
        "partition", "The LocalQueue, by the profile's partitions or its own name.", "NAME", "p", "p", group="queue"
    )
    yield option("job-name", "The name, to which five letters are added.", "NAME", "J", "J")
    yield option(
        "array", "A job for each index, in GANGLINE_ARRAY_INDEX; %N: so many run at a time.", "0-9[%N]", "a", "a"
    )
    yield option("account", "The label gangline.io/account.", "NAME", "A", "A")
    yield option("qos", "The priority class, by the profile's qos-classes or its own name.", "NAME", "q")
    yield option("constraint", "Node labels, by the profile's constraints or as LABEL=VALUE.", "FEATURE[&…]", "C", "C")
    yield option("chdir", "The working directory in the image.", "DIR", "D", "D")
    yield option(
        "export", "Variables for the job, NAME=VALUE or NAME of this shell.", "NAME[=VALUE],…|NONE|ALL", many=True
    )
    yield option("requeue", "Lost nodes are replaced (so it is).", takes="flag", group="requeue")
    yield option("no-requeue", "The job fails when a node fails.", takes="flag", group="requeue")
    yield option("comment", "An annotation of the job.", "TEXT")
    yield option(
        "after",
        "Other jobs for which this one waits, and what they have to reach.",
        "KIND/NAME=STATE,…",
        own=True,
        many=True,
    )
    yield option(
        "after-failed",
        "What becomes of the job when they cannot reach that any more.",
        "Hold|Cancel",
        own=True,
        group="after-failed",
    )
    yield option("dependency", "Jobs that this one waits for, in Slurm's words, by name.", "afterok:NAME,…", "d", "d")
    yield option(
        "kill-on-invalid-dep", "The same as --after-failed: yes is Cancel, no is Hold.", "yes|no", group="after-failed"
    )
    yield option("image", "The image of the pods.", "IMAGE", own=True, group="image")
    yield option("container-image", "The image, in pyxis' words.", "IMAGE", group="image")
    yield option("name", "The job's name as it is.", "NAME", own=True)
    yield option("framework", "The variables by which the pods find each other.", "PyTorch|JAX|…", own=True)
    yield option("env", "A variable of the pods.", "NAME=VALUE", own=True, many=True)
    yield option("mount", "A PersistentVolumeClaim at a path.", "CLAIM[/DIR]:PATH[:ro]", own=True, many=True)
    yield option("shm", "The size of /dev/shm.", "SIZE", own=True)
    yield option("expected", "The expected runtime, for the forecast.", "TIME", own=True)
    yield option("checkpoint", "The interval between checkpoints.", "TIME", own=True)
    yield option("restarts", "The gang starts again so often after a failure.", "N", own=True)
    yield option("service-account", "The service account of the pods.", "NAME", own=True)
    yield option("pull-secret", "A Secret for the registry.", "NAME", own=True, many=True)
    yield option("gpu-resource", "The resource of GPUs.", "RESOURCE", own=True)


_IN_PODS: Final = "what the job prints is in its pods: `gangline logs` shows it"
_MAIL: Final = "messages are sent by `gangline notify set`"
_PLACE: Final = "Gangline places the pods by GPUs, memory and topology"
_NICE: Final = "the order of jobs is that of the queue's policy and of --qos"
_NODES: Final = "nodes are chosen by labels: --constraint LABEL=VALUE"
#: what is not acted on: the reason -> its options, with the short form of sbatch, and `!` for a flag, `?` for a value at will
_IGNORED: Final[Mapping[str, str]] = {
    _IN_PODS: "output/o error/e input/i open-mode",
    _MAIL: "mail-type mail-user",
    _NICE: "nice? priority",
    _PLACE: "distribution/m contiguous! switches hint mem-bind gpu-bind cpu-bind gres-flags ntasks-per-core ntasks-per-socket "
    "ntasks-per-gpu sockets-per-node cores-per-socket threads-per-core extra-node-info/B core-spec/S thread-spec spread-job! "
    "use-min-nodes! overcommit/O! mincpus tres-bind",
    "a pod has the GPUs, CPUs and memory that it asks for; with all GPUs of a node it shares none": "exclusive? oversubscribe/s!",
    "the GPUs' mode is the nodes' affair": "gpu-freq cpu-freq power acctg-freq profile",
    "the pods have the image's limits, and no login environment": "propagate? get-user-env?",
    "the command says what it has done": "verbose/v! quiet/Q! parsable?",
    "the job's runtime is forecast from the runs before it": "time-min",
    "the job is ended by its pods' grace period": "signal no-kill/k? wait-all-nodes",
    "a container has the disk of its image and its mounts": "tmp",
    "who submits is who is logged in to the cluster": "uid gid wckey mcs-label",
    "what is set aside for some jobs is the quota of a queue: --queue": "reservation",
    "nodes are there, or made by an autoscaler": "delay-boot reboot!",
    "the cluster is that of the kubeconfig, or one that MultiKueue chooses": "clusters/M",
    "mounts are claims of the namespace: --mount CLAIM:PATH": "container-mounts container-name container-mount-home! "
    "no-container-mount-home! container-remap-root! container-writable! container-entrypoint! no-container-entrypoint!",
}
_REFUSED: Final[Mapping[str, str]] = {
    "jobs cannot begin at a time yet; submit it then, or keep it by `gangline hold`": "begin/b deadline",
    "GPUs by socket are not known here; give --gpus-per-node": "gpus-per-socket sockets",
    "licenses are not known here; a queue's quota may count them as a resource": "licenses/L",
    _NODES: "nodelist/w nodefile/F exclude/x",
    "give the variables themselves: --export NAME=VALUE": "export-file",
    "burst buffers are not known here; use --mount": "bb bbf",
    "a command in place of a script stands after --, as in `gangline submit -- python train.py`": "wrap",
    "several jobs of unlike pods in one are GPUJobs with roles: see docs/gpujob.md": "het-group",
}


def _not_acted(table: Mapping[str, str], *, refused: bool) -> Iterable[SubmitOption]:
    for why, words in table.items():
        for word in words.split():
            takes: Takes = "flag" if word.endswith("!") else "perhaps" if word.endswith("?") else "value"
            name, _, slurm = word.rstrip("!?").partition("/")
            yield SubmitOption(name, slurm=slurm, takes=takes, why=why, refused=refused)


OPTIONS: Final[Mapping[str, SubmitOption]] = {
    each.name: each for each in (*_acted(), *_not_acted(_IGNORED, refused=False), *_not_acted(_REFUSED, refused=True))
}
_BY_SHORT: Final = {each.slurm: each for each in OPTIONS.values() if each.slurm}
#: what people's scripts call these as well
_ALIASES: Final = {"workdir": "chdir", "tasks-per-node": "ntasks-per-node", "container-workdir": "chdir"}


@dataclass(frozen=True, slots=True)
class Given:
    """An option as somebody gave it. `source`: where, "" for the command line."""

    option: SubmitOption
    value: str
    source: str = ""

    def refuse(self, problem: str) -> WishError:
        shown = f"--{self.option.name}" + (f"={bounded.shown(self.value)[1:-1]}" if self.value else "")
        return WishError(f"{shown}: {problem}", self.source)


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a namespace: options as defaults, and what names of Slurm mean there."""

    given: Sequence[Given] = ()
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    node_gpus: int = 0


def given(name: str, value: str, source: str = "") -> Given:
    """An option by its long name. Raises WishError for a value that no option can have, and for one that is refused."""
    option = OPTIONS[name]
    found = Given(option, value, source)
    if len(value) > LONGEST_LINE:
        raise Given(option, "", source).refuse(f"its value is longer than {LONGEST_LINE} characters")
    if any(ord(char) < 32 and char != "\t" for char in value):
        raise found.refuse("its value holds a control character")
    if option.takes == "value" and not value:
        raise found.refuse("a value is missing")
    if option.refused:
        raise found.refuse(option.why)
    return found


# --- directives -------------------------------------------------------------------------------------------------------

_DIRECTIVE: Final = re.compile(r"#(SBATCH|GANGLINE)(?=\s|$)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Directives:
    """What a script asks for, and remarks on what is not acted on."""

    given: Sequence[Given] = ()
    remarks: Sequence[str] = ()


def directives(text: str, name: str) -> Directives:
    """The directives of a script, as sbatch finds them: up to its first command. Raises WishError, naming the line."""
    if len(text) > MOST_SCRIPT:
        raise WishError(
            f"{name} is longer than {MOST_SCRIPT // 1024} KiB; put it into the image, or on a mounted claim"
        )
    found: list[Given] = []
    remarks: list[str] = []
    began, lines = False, 0
    for number, line in enumerate(text.split("\n"), start=1):
        source = f"{name} line {number}"
        began = began or bool(line.strip() and not line.lstrip().startswith("#"))
        if not line.startswith(("#SBATCH", "#GANGLINE")) or not (match := _DIRECTIVE.match(line)):
            continue
        lines += 1
        if lines > MOST_DIRECTIVES:
            raise WishError(f"more than {MOST_DIRECTIVES} directives", source)
        if len(line) > LONGEST_LINE:
            raise WishError(f"the directive is longer than {LONGEST_LINE} characters", source)
        if began:
            remarks.append(f"{source}: the directive is ignored, since it stands below the first command, as in Slurm")
            continue
        found += _words(match[2], source, own=match[1] == "GANGLINE")
    return Directives(found, remarks)


def _words(text: str, source: str, *, own: bool) -> Iterable[Given]:
    """The options of one directive."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise WishError(f"the directive is not understood: {str(error).lower()}", source) from None
    if not words:
        return
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = _known(_ALIASES.get(name, name), source)
        elif word.startswith("-") and len(word) > 1:
            option = _BY_SHORT.get(word[1])
            if option is None:
                raise WishError(f"-{word[1]} is no option of sbatch", source)
            equals, value = word[2:], word[2:].removeprefix("=")
            if option.takes == "flag" and value:
                raise WishError(f"{bounded.shown(word)}: -{word[1]} has no value; write each option by itself", source)
        else:
            raise WishError(f"{bounded.shown(word)} is no option", source)
        if option.own and not own:
            raise WishError(f"--{option.name} is no option of Slurm: write it in a line #GANGLINE", source)
        if option.takes == "flag" and equals:
            raise WishError(f"--{option.name} has no value", source)
        if option.takes == "value" and not equals:
            value = next(rest, "")
        yield given(option.name, value, source)


def _known(name: str, source: str) -> SubmitOption:
    if (option := OPTIONS.get(name)) is None:
        near = meant(f"--{name[:64]}", [f"--{each}" for each in OPTIONS])
        raise WishError(f"{bounded.shown('--' + name)} is no option of sbatch or of gangline submit.{near}", source)
    return option


# --- the profile ------------------------------------------------------------------------------------------------------

#: keys of a profile that say what names of Slurm mean: lines NAME=MEANING
MAPS: Final[Mapping[str, str]] = {
    "partitions": "PARTITION=LOCALQUEUE",
    "qos-classes": "QOS=PRIORITYCLASS",
    "constraints": "FEATURE=LABEL=VALUE",
    "gpu-types": "TYPE=LABEL=VALUE",
}
NODE_GPUS: Final = "node-gpus"
#: what is each job's own, and no default of a namespace
_NO_DEFAULT: Final = frozenset(
    {"array", "name", "job-name", "comment", "export", "container-image", "partition", "after", "dependency"}
)


def profile(data: Mapping[str, object]) -> Profile:
    """The profile in a ConfigMap's data. Raises WishError, naming the key."""
    found: list[Given] = []
    maps: dict[str, dict[str, str]] = {}
    node_gpus = 0
    if sum(len(key) + len(str(value)) for key, value in data.items()) > MOST_PROFILE:
        raise WishError(f"more than {MOST_PROFILE // 1024} KiB", f"ConfigMap {PROFILE}")
    for key, value in data.items():
        source = f"ConfigMap {PROFILE}, key {bounded.shown(key)[1:-1]}"
        lines = [line.strip() for line in str(value).split("\n") if line.strip() and not line.lstrip().startswith("#")]
        if key == NODE_GPUS:
            node_gpus = bounded.whole(str(value).strip()) or 0
            if not 1 <= node_gpus <= 1024:
                raise WishError(f"{bounded.shown(str(value))} is no number of GPUs of a node", source)
        elif key in MAPS:
            rows = [line.partition("=") for line in lines]
            if wrong := next((row for row in rows if not (row[0].strip() and row[2].strip())), None):
                raise WishError(f"{bounded.shown(''.join(wrong))} is not {MAPS[key]}", source)
            maps[key] = {name.strip(): meaning.strip() for name, _, meaning in rows}
        elif (option := OPTIONS.get(key)) is None or option.why or key in _NO_DEFAULT:
            allowed = [each.name for each in OPTIONS.values() if not each.why and each.name not in _NO_DEFAULT]
            raise WishError(f"no such key of a profile.{meant(key[:64], [*allowed, *MAPS, NODE_GPUS])}", source)
        elif len(lines) > 1 and not option.many:
            raise WishError("one line is expected", source)
        else:
            found += [given(key, line if option.takes != "flag" else "", source) for line in lines]
    return Profile(found, maps, node_gpus)


# --- which option counts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options that count, by name; `remarks` name what is ignored."""

    by_name: Mapping[str, Sequence[Given]]
    remarks: Sequence[str] = ()

    def one(self, *names: str) -> Given | None:
        """The option of these that is given; the first of them if there are several."""
        return next((self.by_name[name][-1] for name in names if name in self.by_name), None)

    def all(self, name: str) -> Sequence[Given]:
        return self.by_name.get(name, ())


def merged(*levels: Sequence[Given]) -> Wishes:
    """What counts of several levels, the nearest to the user last."""
    kept: dict[str, list[Given]] = {}
    remarks: dict[str, None] = {}
    for level in levels:
        groups = {each.option.group for each in level if each.option.group}
        for name in [name for name, rows in kept.items() if rows[0].option.group in groups]:
            del kept[name]
        for each in level:
            if each.option.why:
                place = f"{each.source}: " if each.source else ""
                remarks[f"{place}--{each.option.name} is ignored: {each.option.why}"] = None
            elif each.option.many:
                kept.setdefault(each.option.name, []).append(each)
            else:
                kept[each.option.name] = [each]
    return Wishes(kept, list(remarks))
