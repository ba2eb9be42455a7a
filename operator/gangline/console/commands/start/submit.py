"""`gangline submit`: a script or a command becomes a GPUJob, as Slurm's sbatch makes a job of it."""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gangline import files
from gangline.api import names
from gangline.console.output import presenting, terminal
from gangline.console.output.formats import document
from gangline.console.output.spelling import meant
from gangline.console.submitting import gpu_job, wishes
from gangline.console.submitting.gpu_job import Submission, Work
from gangline.console.submitting.wishes import OPTIONS, PROFILE, Given, Profile, WishError
from gangline.console.views import access, completing, denied, targets
from gangline.kube import own_access
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Forbidden, NotFound
from gangline.kube.resources import CONFIG_MAPS, GPU_JOBS, JOBS, LOCAL_QUEUES, PODS, WORKLOADS, Json, Resource

#: what stands after a name, letters that no two look alike
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
#: options that a repeated job may have anew
_OF_REPEATS: Final = frozenset({"queue", "name"})
#: keys of labels and annotations that a system has set, and that no copy has
_SET_BY_SYSTEMS: Final = (
    "controller-uid",
    "job-name",
    "kubectl.kubernetes.io/",
    "batch.kubernetes.io/",
    "kueue.x-k8s.io/stopping",
)


class _WordsCommand(click.Command):
    """Remembers whether `--` stands before the words: then they are a command, and no script. Options of a script are its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [*args]
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        begin = len(given) - len(words)
        ctx.params["is_command"] = bool(words) and begin > 0 and given[begin - 1] == "--"
        return rest


def _wish_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the table; the command gets those that are given as `given`. What is ignored is not in the help."""

    @functools.wraps(command)
    def gathered(**values: Any) -> Any:
        found: list[Given] = []
        for option in OPTIONS.values():
            value = values.pop(_parameter(option.name))
            many = value if isinstance(value, tuple) else (value,) if value not in (None, False) else ()
            try:
                found += [wishes.given(option.name, "" if each is True else each) for each in many]
            except WishError as error:
                raise click.UsageError(str(error)) from error
        return command(given=found, **values)

    for option in reversed([*OPTIONS.values()]):
        shorts = [f"-{option.short}"] if option.short else []
        hidden = bool(option.why) or option.name == "container-image"
        more: dict[str, Any] = {"help": option.about, "hidden": hidden}
        if option.takes == "flag":
            more |= {"is_flag": True}
        elif option.takes == "perhaps":
            more |= {"is_flag": False, "flag_value": "", "default": None}
        else:
            more |= {"metavar": option.metavar or "VALUE", "multiple": option.many}
        if option.name == "queue":
            more["shell_complete"] = completing.local_queues
        gathered = click.option(f"--{option.name}", *shorts, _parameter(option.name), **more)(gathered)
    return gathered


def _parameter(name: str) -> str:
    return f"wish_{name.replace('-', '_')}"


@click.command(
    "submit", cls=_WordsCommand, context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]"
)
@click.argument("words", metavar="SCRIPT [ARG…] | -- COMMAND [ARG…]", nargs=-1, type=click.UNPROCESSED)
@_wish_options
@click.option("--from", "repeated", metavar="JOB", default="", help="Submit this GPUJob or Job once more.")
@click.option("--dry-run", is_flag=True, help="Only print the GPUJob, and when it would start.")
@click.option("-i", "--interactive", is_flag=True, help="Open a terminal in the job, which ends with it; like salloc.")
@click.option("-W", "--wait", is_flag=True, help="Wait for the job to end; the exit code is the job's.")
@click.option("-f", "--follow", is_flag=True, help="Show what the job prints until it ends, as --wait.")
@access.cluster_options
def command(
    words: tuple[str, ...],
    given: Sequence[Given],
    repeated: str,
    dry_run: bool,
    interactive: bool,
    wait: bool,
    follow: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    is_command: bool = False,
) -> None:
    """Submit SCRIPT, or a COMMAND after --, as a GPUJob, which runs it once in each of its pods; or with -i a terminal in one.

    Lines #SBATCH and #GANGLINE in the script are options, too. The command line has precedence over them, and they over the
    profile of the namespace, the ConfigMap gangline-submit. What is ignored is named on stderr.
    """
    if interactive and (repeated or wait or follow or (words and not is_command)):
        raise click.UsageError(
            "--interactive opens a terminal for a shell, or for a command after --: it goes with no script, nor with --from, "
            "--wait or --follow"
        )
    if interactive and not dry_run and not terminal.is_here():
        raise click.UsageError("--interactive needs a terminal; `gangline submit --wait -- COMMAND` needs none")
    if bool(words) == bool(repeated) and not interactive:
        raise click.UsageError("name a script, a command after --, or a job that is to be repeated (--from)")
    if repeated and (wrong := next((each for each in given if each.option.name not in _OF_REPEATS), None)):
        raise click.UsageError(
            f"--{wrong.option.name} changes the job: with --from only --queue and --name can be given"
        )
    if follow and any(each.option.name == "array" for each in given):
        raise click.UsageError(
            "--follow is for one job, and --array makes many: `gangline logs JOB -f` follows one of them"
        )
    try:
        work = None if repeated else _work(words, is_command=is_command, interactive=interactive)
    except WishError as error:
        raise _refusal(error) from error

    async def submit() -> int:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            resource: Resource = GPU_JOBS
            if work is None:
                resource, made = await _again(api, where, repeated, given)
            else:
                made = await prepared_jobs(api, where, work, given, interactive=interactive)
            for remark in made.remarks:
                terminal.say(remark, err=True)
            if dry_run:
                await show_jobs(api, where, resource, made)
                return 0
            if interactive:
                await _check_terminals(api, where)
            stored = await create_jobs(api, where, resource, made)
            if interactive:
                return await _session(api, where, stored[0], words)
            jobs = [job["metadata"]["name"] for job in made.jobs]
            return await _awaited(api, where, resource, jobs, follow=follow) if wait or follow else 0

    if code := access.run(submit()):
        raise click.exceptions.Exit(code)


async def _awaited(api: ApiClient, namespace: str, resource: Resource, jobs: Sequence[str], *, follow: bool) -> int:
    """Wait for the end of the jobs. Returns their exit code. With `follow`, show what the first one prints."""
    from gangline.console.views import follow_job, job_end, pod_logs  # what only those need who wait

    if follow:
        await follow_job.follow(api, namespace, f"{resource.kind.lower()}/{jobs[0]}", pod_logs.LogQuery())
    return await job_end.awaited(api, namespace, resource, jobs)


async def _check_terminals(api: ApiClient, namespace: str) -> None:
    """Check before there is a job that waits that its terminal may be opened. Raises click.ClickException."""
    if not await own_access.may(api, "get", PODS, namespace, "exec"):
        missing = denied.MissingRight(await own_access.who_is(api), "get", "pods/exec", "", namespace)
        raise click.ClickException(str(missing))


async def _session(api: ApiClient, namespace: str, job: Json, words: Sequence[str]) -> int:
    """Open a terminal in a job that waits for one. Returns its exit code."""
    from gangline.console.submitting.session import guard, in_terminal  # what only sessions need
    from gangline.console.views.remote_terminal import OwnStreams
    from gangline.console.views.session import hold

    return await hold(api, namespace, job, in_terminal(words), guard(), OwnStreams())


def _work(words: Sequence[str], *, is_command: bool, interactive: bool) -> Work:
    """What is to run. Raises WishError, and click.ClickException for a script that can't be read."""
    if interactive:
        from gangline.console.submitting.session import keeper  # as above

        return keeper()
    if is_command:
        return Work(words)
    path = Path(words[0])
    try:
        text = files.read_text(path, most=wishes.MOST_SCRIPT)
    except UnicodeDecodeError as error:
        raise WishError(f"{path.name} is no text in UTF-8; a program is a command, after --") from error
    except OSError as error:
        advice = "; a command stands after --, as in `gangline submit -- python train.py`"
        raise click.ClickException(f"{path}: {error.strerror or error}{advice}") from error
    return Work(words[1:], text, path.name)


def _refusal(error: WishError) -> click.ClickException:
    return click.ClickException(str(error)) if error.of_script else click.UsageError(str(error))


async def prepared_jobs(
    api: ApiClient,
    namespace: str,
    work: Work,
    given: Sequence[Given],
    environment: Mapping[str, str] = os.environ,
    *,
    interactive: bool = False,
) -> Submission:
    """The GPUJobs, with what the namespace adds to them. `environment`: from which --export takes variables."""
    try:
        found = wishes.directives(work.script, work.name) if work.script is not None else wishes.Directives()
        profile, remarks = await _profile(api, namespace)
        merged = wishes.merged(profile.given, found.given, given)
        if interactive:
            from gangline.console.submitting.session import of_session  # as above

            merged = of_session(merged)
        queue = await _queue(api, namespace, gpu_job.queue_name(merged, profile))
        made = gpu_job.submission(merged, profile, work, _suffix(), environment, queue)
    except WishError as error:
        raise _refusal(error) from error
    for job in made.jobs:
        job["metadata"]["namespace"] = namespace
    return Submission(made.jobs, [*found.remarks, *remarks, *made.remarks], made.script)


def _suffix() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(5))


async def _profile(api: ApiClient, namespace: str) -> tuple[Profile, list[str]]:
    """The profile of the namespace, and a remark where it can't be read. Raises WishError for one that is wrong."""
    try:
        data = (await api.get(CONFIG_MAPS, namespace, PROFILE)).get("data") or {}
    except NotFound:
        return Profile(), []
    except Forbidden:
        return Profile(), [f"(without the profile of namespace {namespace}: you may not read its ConfigMap {PROFILE})"]
    return wishes.profile(data), []


async def _queue(api: ApiClient, namespace: str, named: str) -> str:
    """The LocalQueue: the named one if it exists, or the only one, or `default`. Raises click.ClickException."""
    try:
        known = sorted(each["metadata"]["name"] for each in (await api.list(LOCAL_QUEUES, namespace)).items)
    except Forbidden as error:
        if named:
            return named
        raise click.ClickException(denied.said(error)) from error
    if named in known or (not named and (len(known) == 1 or "default" in known)):
        return named or (known[0] if len(known) == 1 else "default")
    there = ", ".join(known[:20]) or "none"
    if not named:
        raise click.UsageError(f"name the LocalQueue, -q NAME: namespace {namespace} has {there}")
    raise click.ClickException(
        f"namespace {namespace} has no LocalQueue {named!r} (there is: {there}).{meant(named, known)}"
    )


async def show_jobs(api: ApiClient, namespace: str, resource: Resource, made: Submission) -> None:
    """Print the jobs as YAML, and on stderr when the first would start."""
    from gangline.console.views import what_if  # as above

    bodies = [*made.jobs, *(_config_map(job, made.script, "") for job in made.jobs if made.script is not None)]
    terminal.say("\n---\n".join(document("yaml", body) for body in bodies))
    if len(made.jobs) > 1:
        terminal.say(f"(of {len(made.jobs)} jobs the first, {made.jobs[0]['metadata']['name']}:)", err=True)
    answer = await what_if.submitted(api, made.jobs[0], resource)
    terminal.say("", *what_if.answer_lines(answer, presenting.width()), err=True)


async def create_jobs(api: ApiClient, namespace: str, resource: Resource, made: Submission) -> list[Json]:
    """Create the jobs, each with the ConfigMap that it owns, and return them as they are stored. Says on stdout which there are,
    also where a later one fails.
    """
    created: list[Json] = []
    for number, job in enumerate(made.jobs):
        try:
            stored = await api.create(resource, namespace, job, query={"fieldValidation": "Strict"})
            if made.script is not None:
                await _create_script(api, namespace, resource, stored, made.script)
        except ApiError as error:
            done = f" ({number} of {len(made.jobs)} jobs are submitted)" if number else ""
            if isinstance(error, Forbidden):
                raise click.ClickException(denied.said(error) + done) from error
            raise click.ClickException(f"the job is not submitted: {error.message}{done}") from error
        queue = stored["metadata"].get("labels", {}).get(names.QUEUE_NAME, "")
        terminal.say(f"Submitted {resource.kind.lower()}/{stored['metadata']['name']} to LocalQueue {queue}")
        created.append(stored)
    return created


async def _create_script(api: ApiClient, namespace: str, resource: Resource, job: Json, script: str) -> None:
    """The ConfigMap with the script, which goes with the job. Without it the job can't run, and is deleted."""
    meta = job["metadata"]
    try:
        await api.create(CONFIG_MAPS, namespace, _config_map(job, script, meta["uid"]))
    except ApiError:
        await api.delete(resource, namespace, meta["name"], propagation="Background", uid=meta["uid"])
        raise


def _config_map(job: Json, script: str | None, uid: str) -> Json:
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": uid}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {names.GPUJOB_LABEL: meta["name"]},
            **({"ownerReferences": [owner]} if uid else {}),
        },
        "data": {"script": script},
    }


# --- once more --------------------------------------------------------------------------------------------------------


async def _again(api: ApiClient, namespace: str, job: str, given: Sequence[Given]) -> tuple[Resource, Submission]:
    """A copy of a GPUJob or a Job under another name, as its author wrote it."""
    target = await targets.find(api, namespace, job)
    if target.job is None or target.resource is None or target.resource not in (GPU_JOBS, JOBS):
        raise click.ClickException(f"{target.title}: only a GPUJob or a Job can be repeated")
    resource, body = target.resource, target.job
    merged = wishes.merged(given)
    try:
        if queue := gpu_job.queue_name(merged, Profile()):
            queue = await _queue(api, namespace, queue)
        exact = gpu_job.exact_name(merged)
    except WishError as error:
        raise _refusal(error) from error
    old = body["metadata"]["name"]
    name = exact or f"{_stem(old)}-{_suffix()}"
    labels = _kept(body["metadata"].get("labels") or {}, names.ARRAY)
    meta: Json = {"name": name, "namespace": namespace, "labels": labels | ({names.QUEUE_NAME: queue} if queue else {})}
    if annotations := _kept(body["metadata"].get("annotations") or {}, names.ARRAY_LIMIT, names.HOLD):
        meta["annotations"] = annotations
    spec = {key: value for key, value in body["spec"].items() if key not in ("suspend", "selector", "manualSelector")}
    if resource == JOBS:
        spec |= await _before_admission(api, target.workload, spec)
        spec["suspend"] = True
    script = await _script(api, namespace, old, name, spec)
    return resource, Submission(
        [{"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}], (), script
    )


def _stem(name: str) -> str:
    """The name without the letters that an earlier submission has added."""
    stem, _, last = name.rpartition("-")
    return (stem if stem and len(last) == 5 and set(last) <= set(_LETTERS) else name)[:44].rstrip("-")


def _kept(values: Mapping[str, str], *but: str) -> dict[str, str]:
    return {key: value for key, value in values.items() if not key.startswith(_SET_BY_SYSTEMS) and key not in but}


async def _before_admission(api: ApiClient, workload: Json | None, spec: Json) -> Json:
    """The Job's template as it was before it was admitted, which its Workload has kept; and its parallelism, where it may have
    been admitted with fewer pods.
    """
    template, parallelism = spec["template"], {}
    if workload is not None:
        meta = workload["metadata"]
        pod_set = (await api.get(WORKLOADS, meta["namespace"], meta["name"]))["spec"]["podSets"][0]
        template = pod_set["template"]
        parallelism = {"parallelism": pod_set["count"]} if pod_set.get("minCount") is not None else {}
    meta = template.get("metadata") or {}
    kept = {**meta, "labels": _kept(meta.get("labels") or {})}
    named = {key: value for key, value in kept.items() if value and key != "creationTimestamp"}
    return {"template": {**template, "metadata": named}, **parallelism}


async def _script(api: ApiClient, namespace: str, old: str, new: str, spec: Json) -> str | None:
    """The script of the old job's ConfigMap, which the new one gets anew; None if it stands in the job."""
    volumes = ((spec.get("template") or {}).get("spec") or {}).get("volumes") or []
    for volume in volumes:
        source = volume.get("configMap") or {}
        if volume.get("name") == gpu_job.SCRIPT_VOLUME and source.get("name") == old:
            text = ((await api.get(CONFIG_MAPS, namespace, old)).get("data") or {}).get("script") or ""
            source["name"] = new
            return text
    return None
