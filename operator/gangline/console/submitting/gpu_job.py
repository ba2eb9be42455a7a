"""The GPUJobs that options, a profile and a script or command describe: what one would write by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from gangline import bounded
from gangline.api import label_syntax, names, quantity
from gangline.console.output.spelling import meant
from gangline.console.submitting import other_jobs
from gangline.console.submitting.wishes import MAPS, MOST_SCRIPT, PROFILE, Given, Profile, WishError, Wishes
from gangline.kube.resources import GPU_JOBS, Json

FRAMEWORKS: Final = ("PyTorch", "TensorFlow", "JAX", "MPI", "None")
#: bytes of the longest script that stands in the job itself; a longer one is in a ConfigMap that the job owns
MOST_INLINE: Final = 32 * 1024
#: indices of the largest array, and the largest index
MOST_INDICES: Final = 1000
LARGEST_INDEX: Final = 999_999
#: pods of the largest job; GPUs, CPUs and processes of one
MOST_PODS: Final = 10_000
MOST_PER_POD: Final = 100_000
#: GPUs of a node of which the profile does not say how many it has
NODE_GPUS: Final = 8
#: characters of the name that --job-name gives at most: a dash, five letters, an index, and the pod's own part follow
_LONGEST_NAME: Final = 36
#: values of --time that mean no limit
UNLIMITED: Final = ("UNLIMITED", "INFINITE", "-1", "0")
_SCRIPT_FOLDER: Final = "/etc/gangline"
SCRIPT_VOLUME: Final = "gangline-script"
_ARRAY_INDEX: Final = "GANGLINE_ARRAY_INDEX"
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "python", "python3"})


@dataclass(frozen=True, slots=True)
class Work:
    """What runs in each pod: a script with arguments, or a command. `script`: its text, None for a command."""

    words: Sequence[str]
    script: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """The GPUJobs to create, without a namespace, and remarks. `script`: the text that a ConfigMap of each job's name holds."""

    jobs: Sequence[Json]
    remarks: Sequence[str] = ()
    script: str | None = None


@dataclass(frozen=True, slots=True)
class _Shape:
    """Pods, and what each has; 0: nothing is asked for."""

    pods: int
    least: int
    gpus: int
    cpus: int
    processes: int
    remarks: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class _ArrayOfJob:
    """The array that a job is a task of, and how many of its tasks may run at a time, 0 = all."""

    name: str
    limit: int


def submission(
    wishes: Wishes, profile: Profile, work: Work, suffix: str, environment: Mapping[str, str], queue: str
) -> Submission:
    """The GPUJobs of one call. `suffix`: letters after the name; `queue`: where no option names one. Raises WishError."""
    shape = _shape(wishes, profile)
    indices, limit = _indices(wishes)
    remarks = [*wishes.remarks, *shape.remarks, *_script_remarks(work)]
    name = _name(wishes, work, suffix)
    variables = _variables(wishes, shape, environment, remarks)
    in_config_map = work.script is not None and not _is_inline(work)
    jobs: list[Json] = []
    for index in indices or (None,):
        title = name if index is None else f"{name}-{index}"
        own = dict(variables)
        if index is not None:
            about = {"COUNT": len(indices), "MIN": min(indices), "MAX": max(indices), "ID": index}
            own |= {_ARRAY_INDEX: str(index), **{f"SLURM_ARRAY_TASK_{key}": str(value) for key, value in about.items()}}
        spec = _spec(wishes, profile, shape, _container(wishes, shape, work, own), title if in_config_map else "")
        array = _ArrayOfJob(name, limit) if index is not None else None
        jobs.append({**_head(wishes, profile, title, queue, array), "spec": spec})
    return Submission(jobs, remarks, work.script if in_config_map else None)


# --- pods, GPUs, CPUs, memory -----------------------------------------------------------------------------------------


def _shape(wishes: Wishes, profile: Profile) -> _Shape:
    """How many pods, and what each has: a pod for each node that Slurm would give. Raises WishError."""
    remarks: list[str] = []
    least, pods = _nodes(wishes.one("nodes"))
    tasks_given, per_pod_given = wishes.one("ntasks"), wishes.one("ntasks-per-node")
    tasks, tasks_per_pod = _number(tasks_given, MOST_PODS * 64), _number(per_pod_given, MOST_PER_POD)
    total_given, per_pod_gpus_given, per_task_given = _gpu_options(wishes)
    total, gpus, per_task = map(_gpus, (total_given, per_pod_gpus_given, per_task_given))
    if per_task and tasks and not total:
        total, total_given = per_task * tasks, per_task_given
    if not pods and tasks and tasks_per_pod and tasks_given:
        pods = _divided(tasks, tasks_per_pod, tasks_given, "processes per pod")
    if not pods and total and total_given:
        size = gpus or profile.node_gpus or NODE_GPUS
        pods = _divided(total, size, total_given, "GPUs per pod") if total > size or gpus else 1
        if pods > 1 and not gpus:
            remarks.append(f"{total} GPUs are {pods} pods of {size}: --nodes N says another number")
    pods = pods or 1
    if pods > MOST_PODS:
        raise WishError(f"a job of {pods} pods is larger than {MOST_PODS}")
    if tasks and tasks_given:
        tasks_per_pod = _divided(tasks, pods, tasks_given, "pods")
        if per_pod_given and tasks_per_pod > _number(per_pod_given, MOST_PER_POD):
            raise tasks_given.refuse(
                f"these are {tasks_per_pod} processes in each of {pods} pods, more than --ntasks-per-node"
            )
    processes = tasks_per_pod or 1
    amounts = {
        **({total_given: _divided(total, pods, total_given, "pods")} if total and total_given else {}),
        **({per_pod_gpus_given: gpus} if per_pod_gpus_given else {}),
        **({per_task_given: per_task * processes} if per_task_given else {}),
    }
    if len(set(amounts.values())) > 1:
        ways = " and ".join(f"--{each.option.name} {amount}" for each, amount in amounts.items())
        raise [*amounts][-1].refuse(f"the options differ on the GPUs of each pod: {ways}")
    gpus = next(iter(amounts.values()), 0)
    per_gpu = wishes.one("cpus-per-gpu")
    if per_gpu and not gpus:
        raise per_gpu.refuse("the job has no GPUs")
    cpus = _number(wishes.one("cpus-per-task"), MOST_PER_POD) * processes or _number(per_gpu, MOST_PER_POD) * gpus
    if processes > 1:
        remarks.append(
            f"the script runs once in each of {pods} pods, and starts its {processes} processes itself, as torchrun and "
            "mpirun do"
        )
    return _Shape(pods, least, gpus, cpus, processes, remarks)


def _nodes(each: Given | None) -> tuple[int, int]:
    if each is None:
        return 0, 0
    first, dash, last = each.value.partition("-")
    least, most = bounded.whole(first), bounded.whole(last if dash else first)
    if not least or not most or least > most or most > MOST_PODS:
        raise each.refuse(f"a number of nodes is expected, 1 to {MOST_PODS}, or two as in 2-4")
    return (least if least < most else 0), most


def _gpu_options(wishes: Wishes) -> tuple[Given | None, Given | None, Given | None]:
    return wishes.one("gpus"), wishes.one("gpus-per-node", "gres"), wishes.one("gpus-per-task")


def _gpus(each: Given | None) -> int:
    return _typed_gpus(each)[1] if each is not None else 0


def _typed_gpus(each: Given) -> tuple[str, int]:
    """Type and number in `8`, `a100:8`, and in `gpu:a100:8` of --gres."""
    parts = each.value.split(":")
    if each.option.name == "gres":
        if "," in each.value:
            raise each.refuse("one kind of resource is expected, gpu:TYPE:N")
        if parts[0] != "gpu":
            raise each.refuse("the only generic resource here is gpu; others are requests of the GPUJob's template")
        parts = parts[1:] or ["1"]
        if len(parts) == 1 and bounded.whole(parts[0]) is None:
            parts.append("1")
    number = bounded.whole(parts[-1])
    if number is None or len(parts) > 2 or number > MOST_PODS * 64 or (len(parts) == 2 and not parts[0]):
        raise each.refuse("a number of GPUs is expected, as 8, a100:8 or gpu:a100:8")
    return parts[0] if len(parts) == 2 else "", number


def _divided(amount: int, by: int, each: Given, of: str) -> int:
    if not by or amount % by:
        raise each.refuse(f"{amount} can't be divided by {by} {of}")
    return amount // by


def _number(each: Given | None, most: int) -> int:
    if each is None:
        return 0
    number = bounded.whole(each.value)
    if not number or number > most:
        raise each.refuse(f"a whole number is expected, 1 to {most}")
    return number


_SIZE: Final = re.compile(r"(\d{1,15})([KMGTP]?)(i?)B?", re.IGNORECASE | re.ASCII)


def _bytes(each: Given) -> str:
    """A size in Slurm's words (64G, 64000) or Kubernetes' (64Gi), as a quantity. Slurm's units are powers of two."""
    match = _SIZE.fullmatch(each.value)
    if match is None or not int(match[1]):
        raise each.refuse("a size is expected, as 64G, or 64000 (MB)")
    unit = (match[2] or "M").upper()
    return quantity.format(int(match[1]) << {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50}[unit], "memory")


def _memory(wishes: Wishes, shape: _Shape) -> str:
    each = wishes.one("mem", "mem-per-cpu", "mem-per-gpu")
    if each is None:
        return ""
    if each.option.name == "mem" and each.value == "0":
        raise each.refuse("all memory of a node is not known here; give a size")
    times = {"mem-per-cpu": shape.cpus or shape.processes, "mem-per-gpu": shape.gpus}.get(each.option.name, 1)
    if not times:
        raise each.refuse("the job has no GPUs")
    return quantity.format(quantity.parse(_bytes(each), "memory") * times, "memory")


# --- times ------------------------------------------------------------------------------------------------------------

_SLURM_TIME: Final = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?P<first>\d{1,9})(?::(?P<second>\d{1,4}))?(?::(?P<third>\d{1,4}))?", re.ASCII
)
_OUR_TIME: Final = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)


def seconds(each: Given) -> int:
    """A time in Slurm's words (90, 1:30:00, 1-12) or ours (1h30m). Raises WishError."""
    if match := _SLURM_TIME.fullmatch(each.value):
        first, second, third = (int(match[part]) if match[part] else None for part in ("first", "second", "third"))
        assert first is not None
        if match["days"] is not None:
            found = int(match["days"]) * 86400 + first * 3600 + (second or 0) * 60 + (third or 0)
        elif third is not None:
            found = first * 3600 + (second or 0) * 60 + third
        else:
            found = first * 60 + (second or 0)
    elif each.value and (match := _OUR_TIME.fullmatch(each.value)):
        found = sum(int(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
    else:
        raise each.refuse("a time is expected, as 2h, 90 (minutes), 1:30:00 or 1-12")
    if not 0 < found < 2**31:
        raise each.refuse("a time above zero is expected, and below 68 years")
    return found


def _duration(each: Given) -> str:
    left = seconds(each)
    parts = [(left // 3600, "h"), (left // 60 % 60, "m"), (left % 60, "s")]
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount)


# --- arrays -----------------------------------------------------------------------------------------------------------

_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", re.ASCII)


def _indices(wishes: Wishes) -> tuple[list[int], int]:
    """The indices of --array, ascending, none without it; and how many of its jobs may run at a time, 0 = all."""
    each = wishes.one("array")
    if each is None:
        return [], 0
    text, percent, most = each.value.partition("%")
    limit = bounded.whole(most) or 0
    if percent and not 1 <= limit <= MOST_INDICES:
        raise each.refuse(f"how many run at a time is expected after %, 1 to {MOST_INDICES}, as in 0-99%10")
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise each.refuse("indices are expected, as 0-9, 0-15:4 or 1,3,5")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step or last > LARGEST_INDEX:
            raise each.refuse(f"{part} is no range of indices, from 0 to {LARGEST_INDEX}")
        if len(range(first, last + 1, step)) + len(found) > 2 * MOST_INDICES:
            raise each.refuse(f"more than {MOST_INDICES} indices")
        found.update(range(first, last + 1, step))
    if len(found) > MOST_INDICES:
        raise each.refuse(f"more than {MOST_INDICES} indices")
    return sorted(found), limit


# --- the object -------------------------------------------------------------------------------------------------------


def _head(wishes: Wishes, profile: Profile, name: str, queue: str, array: _ArrayOfJob | None) -> Json:
    labels = {names.QUEUE_NAME: queue_name(wishes, profile) or queue}
    if qos := wishes.one("qos"):
        labels[names.PRIORITY_CLASS] = _object_name(qos, profile.maps.get("qos-classes", {}).get(qos.value, qos.value))
    if account := wishes.one("account"):
        if not label_syntax.is_value(account.value):
            raise account.refuse("it becomes a label: at most 63 letters, digits, '-', '_' and '.'")
        labels[names.ACCOUNT] = account.value
    annotations: dict[str, str] = {}
    if array is not None:
        labels[names.ARRAY] = array.name
        annotations |= {names.ARRAY_LIMIT: str(array.limit)} if array.limit else {}
    if comment := wishes.one("comment"):
        annotations[names.COMMENT] = comment.value
    annotations |= other_jobs.dependency_annotations(wishes)
    meta: Json = {"name": name, "labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": GPU_JOBS.api_version, "kind": GPU_JOBS.kind, "metadata": meta}


def queue_name(wishes: Wishes, profile: Profile) -> str:
    """The LocalQueue that the options name; "" for none."""
    each = wishes.one("queue", "partition")
    if each is None:
        return ""
    partitions = profile.maps.get("partitions", {}) if each.option.name == "partition" else {}
    return _object_name(each, partitions.get(each.value, each.value))


def _object_name(each: Given, name: str) -> str:
    if label_syntax.dns_subdomain_faults(name) or len(name) > 63:
        raise each.refuse(f"{bounded.shown(name)} is no name of an object")
    return name


def exact_name(wishes: Wishes) -> str:
    """The name that --name gives; "" without it. Raises WishError."""
    exact = wishes.one("name")
    if exact is None:
        return ""
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,42}[a-z0-9])?", exact.value):
        raise exact.refuse("at most 44 lower-case letters, digits and dashes are expected, the first a letter")
    return exact.value


def _name(wishes: Wishes, work: Work, suffix: str) -> str:
    if exact := exact_name(wishes):
        return exact
    given = wishes.one("job-name")
    wanted = given.value if given else PurePosixPath(work.name or work.words[0]).name.partition(".")[0]
    slug = re.sub("[^a-z0-9]+", "-", wanted[:256].lower()).strip("-")[:_LONGEST_NAME].strip("-")
    slug = slug if slug[:1].isalpha() else f"job-{slug}".strip("-")
    return f"{slug}-{suffix}"


def _spec(wishes: Wishes, profile: Profile, shape: _Shape, container: Json, config_map: str) -> Json:
    framework = wishes.one("framework")
    kind = framework.value if framework else "PyTorch" if shape.pods > 1 else "None"
    chosen = next((each for each in FRAMEWORKS if each.lower() == kind.lower()), "")
    if framework and not chosen:
        raise framework.refuse(f"one of {', '.join(FRAMEWORKS)} is expected.{meant(kind, FRAMEWORKS)}")
    spec: Json = {"framework": chosen} if chosen != "None" else {}
    spec["workers"] = shape.pods
    if shape.least:
        spec["minWorkers"] = shape.least
    if shape.gpus:
        spec["gpusPerWorker"] = shape.gpus
    if resource := wishes.one("gpu-resource"):
        if not label_syntax.is_key(resource.value):
            raise resource.refuse("a resource is expected, as amd.com/gpu")
        spec["gpuResource"] = resource.value
    runtime: Json = {}
    limit = wishes.one("time")
    if limit and limit.value.upper() not in UNLIMITED:
        runtime["limit"] = _duration(limit)
    for name, key in (("expected", "expected"), ("checkpoint", "checkpointInterval")):
        if each := wishes.one(name):
            runtime[key] = _duration(each)
    if runtime:
        spec["runtime"] = runtime
    spec["restart"] = _restart(wishes)
    pod: Json = {}
    if selector := _selector(wishes, profile):
        pod["nodeSelector"] = selector
    if account := wishes.one("service-account"):
        pod["serviceAccountName"] = _object_name(account, account.value)
    if secrets := wishes.all("pull-secret"):
        pod["imagePullSecrets"] = [{"name": _object_name(each, each.value)} for each in secrets]
    volumes, mounts = _volumes(wishes)
    if config_map:
        volumes.append({"name": SCRIPT_VOLUME, "configMap": {"name": config_map, "defaultMode": 0o555}})
        mounts.append({"name": SCRIPT_VOLUME, "mountPath": _SCRIPT_FOLDER, "readOnly": True})
    memory = _memory(wishes, shape)
    requests = {**({"cpu": str(shape.cpus)} if shape.cpus else {}), **({"memory": memory} if memory else {})}
    if requests:
        container["resources"] = {"requests": requests, **({"limits": {"memory": memory}} if memory else {})}
    if mounts:
        container["volumeMounts"] = mounts
    if volumes:
        pod["volumes"] = volumes
    spec["template"] = {"spec": {**pod, "containers": [container]}}
    return spec


def _restart(wishes: Wishes) -> Json:
    """As in Slurm, a script that fails ends the job, and the loss of a node does not."""
    found: Json = {"onPodFailure": "Fail"}
    if restarts := wishes.one("restarts"):
        number = bounded.whole(restarts.value)
        if number is None or number > 1000:
            raise restarts.refuse("a whole number is expected, 0 to 1000")
        found = {"maxRestarts": number}
    if wishes.one("no-requeue"):
        found["onNodeFailure"] = "Fail"
    return found


_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}")


def _container(wishes: Wishes, shape: _Shape, work: Work, variables: Mapping[str, str]) -> Json:
    image = wishes.one("image", "container-image")
    if image is None:
        raise WishError(
            "the job has no image. Give --image IMAGE, a line `#GANGLINE --image=IMAGE` in the script, or one for the "
            f"namespace:\n  kubectl create configmap {PROFILE} --from-literal=image=IMAGE"
        )
    if not _IMAGE.fullmatch(image.value):
        raise image.refuse("an image is expected, as registry.example.com/train:1")
    container: Json = {"name": "main", "image": image.value, **_command(work)}
    if folder := wishes.one("chdir"):
        container["workingDir"] = _path(folder, folder.value)
    if variables:
        container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return container


def _command(work: Work) -> Json:
    """Command and arguments. No shell of ours reads them, and Kubernetes puts no variables into them: `$$` is its `$`."""
    if work.script is None:
        return {"command": [_literal(word) for word in work.words]}
    interpreter = _interpreter(work)
    if _is_inline(work):
        # a shell has a name before the arguments, its $0; Python has "-c" there
        named = [] if PurePosixPath(interpreter[0]).name.startswith("python") else [_literal(work.name)]
        args = [_literal(work.script), *named, *map(_literal, work.words)]
        return {"command": [*interpreter, "-c"], "args": args}
    return {"command": interpreter, "args": [f"{_SCRIPT_FOLDER}/script", *map(_literal, work.words)]}


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _interpreter(work: Work) -> list[str]:
    """The program of the script's first line. Raises WishError where there is none, as sbatch does."""
    first = (work.script or "").split("\n", 1)[0]
    words = first[2:].split() if first.startswith("#!") else []
    if words and PurePosixPath(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    if not words or len(first) > 256:
        raise WishError(f"{work.name}: the first line must name the program that reads the script, as #!/bin/bash")
    return [_literal(word) for word in words]


def _is_inline(work: Work) -> bool:
    script = work.script or ""
    fits = len(script.encode(errors="surrogatepass")) <= MOST_INLINE
    return fits and PurePosixPath(_interpreter(work)[0]).name in _SHELLS


def _script_remarks(work: Work) -> list[str]:
    if work.script is None:
        return []
    if "\0" in work.script or "\r" in work.script:
        raise WishError(
            f"{work.name} is no text of Unix lines: it holds {'zero bytes' if chr(0) in work.script else 'carriage returns'}"
        )
    if len(work.script.encode(errors="surrogatepass")) > MOST_SCRIPT:
        raise WishError(
            f"{work.name} is longer than {MOST_SCRIPT // 1024} KiB; put it into the image, or on a mounted claim"
        )
    for number, line in enumerate(work.script.split("\n"), start=1):
        if re.match(r"\s*srun(\s|$)", line[:256]):
            return [
                f"{work.name} line {number}: the image needs an srun. Each pod runs the script itself, so leave the word out"
            ]
    return []


# --- environment, volumes, nodes --------------------------------------------------------------------------------------

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


def _variables(wishes: Wishes, shape: _Shape, environment: Mapping[str, str], remarks: list[str]) -> dict[str, str]:
    """The pods' variables: those of Slurm whose value is true here, then the user's."""
    found = {"SLURM_JOB_NAME": "$(GANGLINE_JOB)", "SLURM_NNODES": "$(GANGLINE_REPLICAS)"}
    found |= {"SLURM_JOB_NUM_NODES": "$(GANGLINE_REPLICAS)", "SLURM_NODEID": "$(GANGLINE_INDEX)"}
    if shape.processes == 1:  # the pod is the process
        found |= {"SLURM_PROCID": "$(GANGLINE_INDEX)", "SLURM_LOCALID": "0", "SLURM_NTASKS": "$(GANGLINE_REPLICAS)"}
    else:
        found["SLURM_NTASKS_PER_NODE"] = str(shape.processes)
        if not shape.least:
            found["SLURM_NTASKS"] = str(shape.pods * shape.processes)
    if shape.gpus:
        found["SLURM_GPUS_ON_NODE"] = str(shape.gpus)
    if cpus := wishes.one("cpus-per-task"):
        found["SLURM_CPUS_PER_TASK"] = cpus.value
    if name := wishes.one("job-name"):
        found["SLURM_JOB_NAME"] = _literal(name.value)
    for each in wishes.all("env"):
        name, equals, value = each.value.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise each.refuse("a variable is expected, NAME=VALUE")
        found[name] = _literal(value)
    for each in wishes.all("export"):
        for part in each.value.split(","):
            name, equals, value = part.partition("=")
            if not equals and name.upper() in ("ALL", "NONE", "NIL"):
                if name.upper() == "ALL":
                    remarks.append("--export=ALL: the pods get no variables of this shell but those that are named")
                continue
            if not _VARIABLE.fullmatch(name):
                raise each.refuse(f"{bounded.shown(part)} is no variable")
            if not equals and name not in environment:
                remarks.append(f"--export={name}: this shell has no such variable")
                continue
            found[name] = _literal(value if equals else environment[name])
    return found


def _path(each: Given, path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/") or ":" in path:
        raise each.refuse(f"{bounded.shown(path)} is no absolute path")
    return path


def _volumes(wishes: Wishes) -> tuple[list[Json], list[Json]]:
    volumes: dict[str, Json] = {}
    mounts: dict[str, Json] = {}
    for each in wishes.all("mount"):
        source, _, rest = each.value.partition(":")
        path, _, mode = rest.partition(":")
        claim, _, folder = source.partition("/")
        if mode not in ("", "ro", "rw") or not path or ".." in folder.split("/"):
            raise each.refuse("a claim and a path are expected, CLAIM[/DIR]:PATH[:ro]")
        _object_name(each, claim)
        volume = next(
            (name for name, body in volumes.items() if body["persistentVolumeClaim"]["claimName"] == claim), ""
        )
        if not volume:
            volume = f"claim-{len(volumes)}"
            volumes[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        mount = {"name": volume, "mountPath": _path(each, path), **({"subPath": folder} if folder else {})}
        mounts[path] = {**mount, "readOnly": True} if mode == "ro" else mount
    found = [*volumes.values()]
    if shm := wishes.one("shm"):
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _bytes(shm)}})
        mounts["/dev/shm"] = {"name": "shm", "mountPath": "/dev/shm"}
    return found, [*mounts.values()]


def _selector(wishes: Wishes, profile: Profile) -> dict[str, str]:
    """Node labels for types of GPUs and for features."""
    wanted: list[tuple[Given, str, str]] = []
    for each in filter(None, _gpu_options(wishes)):
        if kind := _typed_gpus(each)[0]:
            wanted.append((each, kind, "gpu-types"))
    if features := wishes.one("constraint"):
        if any(char in features.value for char in "|[]*()"):
            raise features.refuse(
                "alternatives and counts of nodes can't be chosen; give features that all nodes have, a&b"
            )
        wanted += [(features, part.strip(), "constraints") for part in re.split("[&,]", features.value)]
    found: dict[str, str] = {}
    for each, word, key in wanted:
        known = profile.maps.get(key, {})
        label, equals, value = (known.get(word) or (word if key == "constraints" else "")).partition("=")
        if not equals:
            raise each.refuse(
                f"what {bounded.shown(word)} means is not known here: ConfigMap {PROFILE} has no line {MAPS[key]} for it in "
                f"the key {key}.{meant(word[:64], known)}"
            )
        if not label_syntax.is_key(label) or not label_syntax.is_value(value):
            raise each.refuse(f"{bounded.shown(f'{label}={value}')} is no label of nodes")
        if found.setdefault(label, value) != value:
            raise each.refuse(f"no node has {label} {found[label]} and {value}")
    return found
