"""`gangline submit`: what directives, options and profiles become, what is refused, and what is written to the API server."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import clusters

from gangline.api import names
from gangline.console import cli
from gangline.console.output import terminal
from gangline.console.submitting import gpu_job, wishes
from gangline.console.submitting.gpu_job import Submission, Work
from gangline.console.submitting.wishes import OPTIONS, Profile, WishError
from gangline.console.views import access, asking, job_end
from gangline.control.answers.sight import Everybody
from gangline.jobs.gpujob import GPUJobKind
from gangline.kube.client import ObjectList
from gangline.kube.errors import Forbidden, Invalid, NotFound, Unavailable
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject

IMAGE = "registry.example.com/train:1"


def made(
    text: str,
    *words: str,
    profile: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    **options: str,
) -> Submission:
    """What a script's text becomes, with these options on the command line (`ntasks_per_node="8"`)."""
    given_here = [wishes.given(name.replace("_", "-"), value) for name, value in options.items()]
    default = wishes.profile({"image": IMAGE} if profile is None else profile)
    found = wishes.directives(text, "train.sh")
    merged = wishes.merged(default.given, found.given, given_here)
    work = Work(words, text, "train.sh")
    built = gpu_job.submission(merged, default, work, "x7k2p", environment or {}, "team")
    return Submission(built.jobs, [*found.remarks, *built.remarks], built.script)


def script(*directives: str, body: str = "python train.py") -> str:
    return "\n".join(["#!/bin/bash", *directives, "", body, ""])


def spec(text: str, **more: Any) -> Json:
    return made(text, **more).jobs[0]["spec"]


def container(found: Json) -> Json:
    return found["template"]["spec"]["containers"][0]


# --- scripts as people have them --------------------------------------------------------------------------------------

#: name -> directives, and what of the GPUJob they decide
SCRIPTS: dict[str, tuple[list[str], Json]] = {
    "one GPU": (
        ["#SBATCH --job-name=mnist", "#SBATCH --gres=gpu:1", "#SBATCH --time=00:30:00", "#SBATCH --mem=16G"],
        {"workers": 1, "gpus": 1, "limit": "30m", "memory": "16Gi", "framework": None, "name": "mnist-x7k2p"},
    ),
    "eight GPUs of a node, by type": (
        ["#SBATCH -J big", "#SBATCH -N 1", "#SBATCH --gpus-per-node=a100:8", "#SBATCH -c 16", "#SBATCH -t 1-12"],
        {"workers": 1, "gpus": 8, "cpu": "16", "limit": "36h", "selector": {"gpu.product": "A100"}},
    ),
    "four nodes with a launcher on each": (
        ["#SBATCH --nodes=4", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=8", "#SBATCH --cpus-per-task=96"],
        {"workers": 4, "gpus": 8, "cpu": "96", "framework": "PyTorch", "SLURM_NTASKS": "$(GANGLINE_REPLICAS)"},
    ),
    "a process per GPU": (
        ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=8", "#SBATCH --gpus-per-task=1", "#SBATCH --cpus-per-task=12"],
        {
            "workers": 2,
            "gpus": 8,
            "cpu": "96",
            "SLURM_NTASKS": "16",
            "SLURM_NTASKS_PER_NODE": "8",
            "SLURM_PROCID": None,
        },
    ),
    "processes without nodes": (
        ["#SBATCH -n 32", "#SBATCH --ntasks-per-node=16", "#SBATCH --mem-per-cpu=4000", "#SBATCH -p long"],
        {"workers": 2, "gpus": None, "memory": "64000Mi", "queue": "patient"},
    ),
    "GPUs of the whole job over nodes": (
        ["#SBATCH -N4 -G16", "#SBATCH --mem-per-gpu=100G --cpus-per-gpu=8"],
        {"workers": 4, "gpus": 4, "cpu": "32", "memory": "400Gi"},
    ),
    "more GPUs than a node has": (["#SBATCH --gpus=16", "#SBATCH -t 90"], {"workers": 4, "gpus": 4, "limit": "1h30m"}),
    "may start smaller": (["#SBATCH --nodes=2-8 --gpus-per-node=8"], {"workers": 8, "minWorkers": 2, "gpus": 8}),
    "mail, output and account": (
        [
            "#SBATCH --output=%x-%j.out",
            "#SBATCH --error=%x-%j.err",
            "#SBATCH --mail-type=END,FAIL --mail-user=mira@example.com",
            '#SBATCH --account=vision --qos=high --comment="a run"',
            "#SBATCH -C nvlink --no-requeue --chdir=/work",
        ],
        {
            "account": "vision",
            "priority": "urgent",
            "selector": {"link": "nvl"},
            "workdir": "/work",
            "restart": {"onPodFailure": "Fail", "onNodeFailure": "Fail"},
        },
    ),
    "an array with words of our own": (
        ["#SBATCH --array=0-6:3,9", "#SBATCH --gpus=1", "#GANGLINE --image=other:2 --mount=data/set:/data:ro --shm=8G"],
        {"workers": 1, "gpus": 1, "image": "other:2", "GANGLINE_ARRAY_INDEX": "0", "SLURM_ARRAY_TASK_COUNT": "4"},
    ),
}
PROFILE = {
    "image": IMAGE,
    "node-gpus": "4",
    "partitions": "long=patient\nshort=quick",
    "qos-classes": "high=urgent",
    "constraints": "# features\nnvlink=link=nvl",
    "gpu-types": "a100=gpu.product=A100",
}


def decided(job: Json) -> Json:
    """What of a GPUJob a table looks at."""
    found = job["spec"]
    main = container(found)
    resources = main.get("resources") or {}
    requests = resources.get("requests") or {}
    assert (resources.get("limits") or {}).get("memory") == requests.get("memory")
    return {
        **{each["name"]: each["value"] for each in main["env"]},
        "workers": found["workers"],
        "minWorkers": found.get("minWorkers"),
        "gpus": found.get("gpusPerWorker"),
        "limit": (found.get("runtime") or {}).get("limit"),
        "cpu": requests.get("cpu"),
        "memory": requests.get("memory"),
        "framework": found.get("framework"),
        "restart": found["restart"],
        "name": job["metadata"]["name"],
        "selector": found["template"]["spec"].get("nodeSelector"),
        "queue": job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"],
        "priority": job["metadata"]["labels"].get("kueue.x-k8s.io/priority-class"),
        "account": job["metadata"]["labels"].get("gangline.io/account"),
        "image": main["image"],
        "workdir": main.get("workingDir"),
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_becomes_the_job_that_one_expects(name: str) -> None:
    directives, expected = SCRIPTS[name]
    job = made(script(*directives), profile=PROFILE).jobs[0]
    found = decided(job)
    assert {key: found.get(key) for key in expected} == expected
    [pod_set, *rest] = GPUJobKind().pod_sets(JobObject({**job, "metadata": {**job["metadata"], "namespace": "ml"}}))
    assert pod_set["count"] == found["workers"] and not rest


def test_what_is_ignored_is_named_with_line_and_reason() -> None:
    remarks = made(script(*SCRIPTS["mail, output and account"][0]), profile=PROFILE).remarks
    assert remarks[0].startswith("train.sh line 2: --output is ignored: what the job prints is in its pods")
    assert [line.split(" is ignored")[0] for line in remarks] == [
        "train.sh line 2: --output",
        "train.sh line 3: --error",
        "train.sh line 4: --mail-type",
        "train.sh line 4: --mail-user",
    ]


def test_directives_end_at_the_first_command_as_in_slurm() -> None:
    text = script("#SBATCH --gpus=1", "# a comment", "", "module load cuda", "#SBATCH --gpus=8", "##SBATCH --gpus=9")
    found = made(text)
    assert found.jobs[0]["spec"]["gpusPerWorker"] == 1
    assert [line for line in found.remarks if "line 6" in line and "below the first command" in line]


def test_the_command_line_wins_over_the_script_and_that_over_the_profile() -> None:
    profile = {"image": IMAGE, "time": "8h", "cpus-per-gpu": "4", "mem": "64G"}
    text = script("#SBATCH --gpus-per-node=8 --nodes=4 --time=4h")
    assert decided(made(text, profile=profile).jobs[0]) | {"limit": "4h", "cpu": "32", "memory": "64Gi"} == decided(
        made(text, profile=profile).jobs[0]
    )
    found = decided(made(text, profile=profile, gpus="4", mem_per_gpu="10G", time="1h").jobs[0])
    assert (found["workers"], found["gpus"], found["memory"], found["limit"]) == (4, 1, "10Gi", "1h")
    assert decided(made(text, profile=profile, nodes="2").jobs[0])["gpus"] == 8


def test_an_array_says_how_many_of_its_jobs_run_at_a_time() -> None:
    jobs = made(script("#SBATCH --array=0-99%10 --comment=sweep")).jobs
    assert len(jobs) == 100
    assert {each["metadata"]["annotations"]["gangline.io/array-limit"] for each in jobs} == {"10"}
    assert jobs[0]["metadata"]["annotations"]["gangline.io/comment"] == "sweep"
    assert "annotations" not in made(script(), array="0-9").jobs[0]["metadata"]


def test_an_array_is_a_job_for_each_index() -> None:
    jobs = made(script(*SCRIPTS["an array with words of our own"][0])).jobs
    assert [job["metadata"]["name"] for job in jobs] == [f"train-x7k2p-{index}" for index in (0, 3, 6, 9)]
    assert {job["metadata"]["labels"]["gangline.io/array"] for job in jobs} == {"train-x7k2p"}
    assert [decided(job)["SLURM_ARRAY_TASK_ID"] for job in jobs] == ["0", "3", "6", "9"]
    pod = jobs[0]["spec"]["template"]["spec"]
    assert pod["volumes"][0] == {"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}}
    assert container(jobs[0]["spec"])["volumeMounts"][0] == {
        "name": "claim-0",
        "mountPath": "/data",
        "subPath": "set",
        "readOnly": True,
    }
    with pytest.raises(WishError, match="more than 1000 indices"):
        made(script(), array="0-1000")
    assert len(made(script(), array="0-999").jobs) == 1000


REFUSED = {
    "--gpus=eight": "a number of GPUs is expected",
    "--gpus=" + "9" * 40: "a number of GPUs is expected",
    "--time=yesterday": "a time is expected",
    "--time=0:00": "above zero",
    "--mem=lots": "a size is expected",
    "--mem=0": "all memory of a node is not known",
    "--nodes=0": "a number of nodes is expected",
    "--nodes=4-2": "a number of nodes is expected",
    "--nodes=99999999": "a number of nodes is expected",
    "--nodes=3 --gpus=8": "8 can't be divided by 3 pods",
    "--gpus-per-node=4 --nodes=2 --gpus=16": "differ on the GPUs of each pod",
    "--gres=gpu:2,shard:1": "one kind of resource",
    "--gres=license:1": "only generic resource here is gpu",
    "--gpus=h900:8": "has no line TYPE=LABEL=VALUE",
    "--constraint=a|b": "alternatives",
    "--array=1-": "indices are expected",
    "--array=0-9%": "how many run at a time is expected",
    "--array=0-9%0": "how many run at a time is expected",
    "--array=0-9%1001": "how many run at a time is expected",
    "--array=0-9%2%2": "how many run at a time is expected",
    "--array=1-5:0": "no range",
    "--dependency=afterok:12": "a job has no number here",
    "--dependency=afterok:a?afterok:b": "one of several (?) is not known",
    "--dependency=singleton": "singleton is not known here",
    "--dependency=after:a+5": "a time after a start",
    "--dependency=afterok": "is expected",
    "--dependency=afterok:A": "names no job",
    "--kill-on-invalid-dep=often": "yes or no is expected",
    "--kill-on-invalid-dep=perhaps --dependency=afterok:a": "yes or no is expected",
    "--begin=16:00": "jobs cannot begin at a time yet",
    "--nodelist=gpu-1": "chosen by labels",
    "--gpuss=8": "Did you mean '--gpus'",
    "--image=x": "write it in a line #GANGLINE",
    "-Z": "-Z is no option of sbatch",
    "gpus=8": "is no option",
    "--time": "a value is missing",
    "--comment='open": "no closing quotation",
    "--chdir=work": "no absolute path",
    "--account=../x": "at most 63 letters",
    "--partition=UPPER_case": "no name of an object",
}


@pytest.mark.parametrize("directive", REFUSED)
def test_what_cannot_be_done_or_understood_is_refused_with_its_line(directive: str) -> None:
    with pytest.raises(WishError) as refused:
        made(script("#SBATCH --job-name=x", f"#SBATCH {directive}"))
    assert REFUSED[directive] in str(refused.value)
    assert str(refused.value).startswith("train.sh line 3: ") and refused.value.of_script


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("90", 5400), ("90:30", 5430), ("2:00:00", 7200), ("1-0", 86400), ("1-2:03", 93780), ("1-2:03:04", 93784)),
        *(("2h", 7200), ("1h30m", 5400), ("2d", 172800), ("45s", 45)),
    ],
)
def test_times_are_slurms_and_ours(text: str, expected: int) -> None:
    assert gpu_job.seconds(wishes.given("time", text)) == expected


@pytest.mark.parametrize(
    ("directives", "after", "failed"),
    [
        (["#SBATCH --dependency=afterok:a:job/b"], "gpujob/a=Succeeded,job/b=Succeeded", None),
        (["#SBATCH -d afterany:a,after:b"], "gpujob/a=Finished,gpujob/b=Running", None),
        (
            ["#SBATCH --dependency=afternotok:a", "#SBATCH --kill-on-invalid-dep=yes"],
            "gpujob/a=Failed",
            "Cancel",
        ),
        (["#GANGLINE --after job/a=Succeeded --after jobset/b=Running"], "job/a=Succeeded,jobset/b=Running", None),
        (
            ["#SBATCH -d afterok:a", "#GANGLINE --after=job/b=Failed --after-failed=hold"],
            "job/b=Failed,gpujob/a=Succeeded",
            "Hold",
        ),
    ],
)
def test_a_job_waits_for_others(directives: list[str], after: str, failed: str | None) -> None:
    annotations = made(script(*directives)).jobs[0]["metadata"]["annotations"]
    assert (annotations.pop(names.AFTER), annotations.pop(names.AFTER_FAILED, None)) == (after, failed)
    assert not annotations


def test_no_image_says_how_to_give_one() -> None:
    with pytest.raises(WishError, match=r"--image IMAGE.*\n.*kubectl create configmap gangline-submit"):
        made(script(), profile={})


# --- scripts as text that nobody interprets ---------------------------------------------------------------------------

HOSTILE = "echo '$(rm -rf /)' `id` $$ $(GANGLINE_POD) \"; exit 3 #\n\x1b[2J€ $"


def expanded(text: str) -> str:
    """What Kubernetes makes of an argument whose references are all escaped."""
    found, rest = "", text
    while rest:
        pair, rest = (rest[:2], rest[2:]) if rest.startswith("$") else (rest[:1], rest[1:])
        assert pair[0] != "$" or pair == "$$", "a reference that Kubernetes would expand"
        found += pair[-1]
    return found


def test_a_script_reaches_its_interpreter_as_it_is() -> None:
    text = script(body=HOSTILE)
    main = container(spec(text))
    assert main["command"] == ["/bin/bash", "-c"]
    given_here = made(text, "$(GANGLINE_POD)", "; reboot").jobs[0]["spec"]
    assert [expanded(each) for each in container(given_here)["args"]] == [
        text,
        "train.sh",
        "$(GANGLINE_POD)",
        "; reboot",
    ]


def test_a_command_is_no_text_for_a_shell() -> None:
    merged = wishes.merged([wishes.given("image", IMAGE)])
    built = gpu_job.submission(merged, Profile(), Work(["python", "-c", "print('$HOME;')"]), "x7k2p", {}, "team")
    main = container(built.jobs[0]["spec"])
    assert [expanded(each) for each in main["command"]] == ["python", "-c", "print('$HOME;')"] and "args" not in main


@pytest.mark.parametrize("first", ["#!/usr/bin/env perl", "#!/bin/bash"])
def test_a_long_script_and_one_of_another_program_is_in_a_config_map(first: str) -> None:
    text = f"{first}\n{'# x' * (12000 if 'bash' in first else 1)}\n"
    found = made(text, "a b")
    assert found.script == text
    main, pod = container(found.jobs[0]["spec"]), found.jobs[0]["spec"]["template"]["spec"]
    assert main["args"] == ["/etc/gangline/script", "a b"] and main["command"] == [
        first.rpartition(" ")[2].removeprefix("#!")
    ]
    assert pod["volumes"][0]["configMap"] == {"name": "train-x7k2p", "defaultMode": 0o555}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("python train.py\n", "first line must name the program"),
        ("#!/bin/bash\r\necho\r\n", "carriage returns"),
        ("#!/bin/bash\n\0", "zero bytes"),
        ("#!/bin/bash\n" + "x" * wishes.MOST_SCRIPT, "longer than 512 KiB"),
        ("#!/bin/bash\n" + "#SBATCH --gpus=1\n" * 1001, "more than 1000 directives"),
        ("#!/bin/bash\n#SBATCH --comment=" + "x" * 5000, "longer than 4096 characters"),
    ],
)
def test_a_script_that_is_none_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(WishError, match=complaint):
        made(text)


def test_variables_are_named_and_stay_as_they_are() -> None:
    text = script("#SBATCH --export=A=1,HOME,GONE,ALL", "#GANGLINE --env='B=$(GANGLINE_POD) x'")
    found = made(text, environment={"HOME": "/home/mira"})
    variables = decided(found.jobs[0])
    assert (variables["A"], variables["HOME"], expanded(variables["B"])) == ("1", "/home/mira", "$(GANGLINE_POD) x")
    assert "GONE" not in variables and any("GONE" in line for line in found.remarks)
    with pytest.raises(WishError, match="no variable"):
        made(script("#SBATCH --export='A-B=1'"))


def test_a_script_that_calls_srun_is_told_so() -> None:
    assert "line 3: the image needs an srun" in made("#!/bin/bash\n\nsrun python train.py\n").remarks[0]


@given(
    st.lists(
        st.one_of(
            st.text(max_size=200),
            st.builds("#SBATCH {}".format, st.text(max_size=80)),
            st.builds(
                "#GANGLINE --{}={}".format,
                st.sampled_from(sorted(OPTIONS)),
                st.one_of(st.text(max_size=40), st.text("0123456789:-%,/=kMGi", max_size=40)),
            ),
        ),
        max_size=12,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_script_becomes_a_job_or_is_refused(lines: list[str]) -> None:
    try:
        found = made("\n".join(["#!/bin/bash", *lines]))
    except WishError as error:
        assert len(str(error)) < 2000
        return
    assert 1 <= len(found.jobs) <= gpu_job.MOST_INDICES
    for job in found.jobs[:3]:
        GPUJobKind().pod_sets(JobObject({**job, "metadata": {**job["metadata"], "namespace": "ml"}}))


# --- the profile ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"imag": IMAGE}, "key imag: no such key of a profile. Did you mean 'image'"),
        ({"array": "0-9"}, "key array: no such key"),
        ({"output": "x"}, "key output: no such key"),
        ({"image": "a\nb"}, "key image: one line is expected"),
        ({"image": "a b; reboot"}, "key image: --image=a b; reboot: an image is expected"),
        ({"image": "a\x1b[2J"}, "control character"),
        ({"mount": "data"}, "key mount: --mount=data: a claim and a path"),
        ({"mount": "data/../x:/data"}, "a claim and a path"),
        ({"env": "A B=1"}, "key env: --env=A B=1: a variable"),
        ({"node-gpus": "9" * 30}, "no number of GPUs"),
        ({"partitions": "long"}, "key partitions: 'long' is not PARTITION=LOCALQUEUE"),
        ({"image": "x" * 70_000}, "more than 64 KiB"),
    ],
)
def test_a_profile_that_is_wrong_is_refused_by_its_key(data: dict[str, str], complaint: str) -> None:
    with pytest.raises(WishError, match="ConfigMap gangline-submit") as refused:
        made(script(), profile={"image": IMAGE, **data})
    assert complaint in str(refused.value)


# --- the command ------------------------------------------------------------------------------------------------------


class Api:
    """An API server of dictionaries, by plural and name. `refuses`: plural -> the error of a create."""

    def __init__(self) -> None:
        self.login = SimpleNamespace(namespace="ml", server="https://server")
        self.objects: dict[tuple[str, str], Json] = {
            ("localqueues", "team"): {"metadata": {"name": "team"}},
            ("configmaps", "gangline-submit"): {"metadata": {"name": "gangline-submit"}, "data": {"image": IMAGE}},
        }
        self.created: list[tuple[str, Json]] = []
        self.deleted: list[str] = []
        self.refuses: dict[str, Exception] = {}

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        if (resource.plural, name) not in self.objects:
            raise NotFound(404, "NotFound", f"{name} not found")
        return copy.deepcopy(self.objects[resource.plural, name])

    async def list(self, resource: Resource, namespace: str | None = None, *, label_selector: str = "") -> ObjectList:
        return ObjectList(
            [copy.deepcopy(each) for (plural, _), each in self.objects.items() if plural == resource.plural], "1"
        )

    async def create(self, resource: Resource, namespace: str | None, body: Json, *, query: Any = None) -> Json:
        if error := self.refuses.get(resource.plural):
            raise error
        stored = {**body, "metadata": {**body["metadata"], "uid": "u1"}}
        if "dryRun" not in (query or {}):
            self.created.append((resource.plural, copy.deepcopy(body)))
            self.objects[resource.plural, body["metadata"]["name"]] = stored
        return copy.deepcopy(stored)

    async def delete(self, resource: Resource, namespace: str | None, name: str, **_: Any) -> Json:
        self.deleted.append(f"{resource.plural}/{name}")
        return {}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    here = Api()

    @asynccontextmanager
    async def client(kubeconfig: Any, context: Any) -> AsyncIterator[Api]:
        yield here

    monkeypatch.setattr(access, "client", client)
    return here


def submit(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["submit", *words])


def test_a_script_with_arguments_is_submitted(api: Api, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(script("#SBATCH --gpus=8"))
    done = submit("--nodes", "2", str(tmp_path / "train.sh"), "--epochs", "3", "--", "-q")
    assert done.exit_code == 0, done.output
    [(plural, job)] = api.created
    name = job["metadata"]["name"]
    assert plural == "gpujobs" and done.stdout == f"Submitted gpujob/{name} to LocalQueue team\n"
    assert container(job["spec"])["args"][1:] == ["train.sh", "--epochs", "3", "--", "-q"]
    assert (job["spec"]["workers"], job["spec"]["gpusPerWorker"]) == (2, 4)


def test_a_command_stands_after_two_dashes(api: Api) -> None:
    done = submit("--gpus", "1", "--", "python", "train.py", "--gpus", "9")
    assert done.exit_code == 0, done.output
    assert container(api.created[0][1]["spec"])["command"] == ["python", "train.py", "--gpus", "9"]
    missing = submit("python", "train.py")
    assert missing.exit_code == 1 and "a command stands after --" in missing.output


@pytest.mark.parametrize("allowed", [False, True])
def test_a_session_whose_terminal_may_not_be_opened_is_not_submitted(
    api: Api, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    asked: list[Json] = []
    create = api.create

    async def answered(resource: Resource, namespace: str | None, body: Json, *, query: Any = None) -> Json:
        if resource.plural == "selfsubjectaccessreviews":
            asked.append(body["spec"]["resourceAttributes"])
            return {"status": {"allowed": allowed}}
        if resource.plural == "selfsubjectreviews":
            return {"status": {"userInfo": {"username": "mira"}}}
        return await create(resource, namespace, body, query=query)

    async def hold(*_: Any) -> int:
        return 3

    monkeypatch.setattr(api, "create", answered)
    monkeypatch.setattr("gangline.console.views.session.hold", hold)
    monkeypatch.setattr(terminal, "is_here", lambda: True)
    done = submit("-i", "--gpus", "1")
    attributes = {
        "verb": "get",
        "group": "",
        "version": "v1",
        "resource": "pods",
        "subresource": "exec",
        "namespace": "ml",
    }
    assert asked == [attributes]
    if allowed:
        assert done.exit_code == 3 and [plural for plural, _ in api.created] == ["gpujobs"], done.output
        return
    assert done.exit_code == 1 and not api.created
    assert "mira may not get pods/exec in namespace ml" in done.stderr
    assert "kubectl create rolebinding NAME -n ml --clusterrole gangline-terminal-user-role --user mira" in done.stderr


def test_a_long_script_is_in_a_config_map_that_the_job_owns(api: Api, tmp_path: Path) -> None:
    (tmp_path / "long.sh").write_text(script(body="# x\n" * 10000))
    assert submit(str(tmp_path / "long.sh")).exit_code == 0
    [(_, job), (plural, config_map)] = api.created
    [owner] = config_map["metadata"]["ownerReferences"]
    assert plural == "configmaps" and owner["uid"] == "u1" and owner["name"] == job["metadata"]["name"]
    api.refuses["configmaps"] = Forbidden(403, "Forbidden", "no")
    done = submit(str(tmp_path / "long.sh"))
    assert done.exit_code == 1 and api.deleted == [f"gpujobs/{api.created[-1][1]['metadata']['name']}"]


def test_a_refusal_of_the_api_server_says_how_many_of_an_array_are_there(api: Api) -> None:
    api.refuses["gpujobs"] = Invalid(422, "Invalid", "spec.workers: wrong")
    done = submit("--array", "0-2", "--", "true")
    assert done.exit_code == 1 and "the job is not submitted: spec.workers: wrong" in done.stderr


def test_the_queue_is_one_that_there_is(api: Api) -> None:
    done = submit("-q", "taem", "--", "true")
    assert done.exit_code == 1 and "has no LocalQueue 'taem' (there is: team). Did you mean 'team'?" in done.stderr
    api.objects["localqueues", "other"] = {"metadata": {"name": "other"}}
    unnamed = submit("--", "true")
    assert unnamed.exit_code == 2 and "-q NAME: namespace ml has other, team" in unnamed.stderr
    assert not api.created


@pytest.mark.parametrize(
    "line",
    [
        "--gpus x -- true",
        "--dependency afterok:1 -- true",
        "--after job/a -- true",
        "--after-failed no --after job/a=Failed -- true",
        "--after-failed Hold -- true",
        "--from a -- true",
        "",
        "--from a --gpus 1",
    ],
)
def test_a_wrong_command_line_ends_with_2(api: Api, line: str) -> None:
    done = submit(*line.split())
    assert done.exit_code == 2 and not api.created, done.output


async def test_a_dry_run_prints_the_job_and_the_answer_of_whatif(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await clusters.busy().answers().what_if(Everybody(), "ml", clusters.gpujob("mine", 2, "1h"))
    asked: list[Json] = []

    async def create(_: Any, path: str, body: Json) -> Json:
        asked.append(body["spec"]["job"])
        return {"status": answer}

    monkeypatch.setattr(asking, "create", create)
    import asyncio

    done = await asyncio.to_thread(submit, "--gpus", "2", "--dry-run", "--", "true")
    assert done.exit_code == 0, done.output
    printed = yaml.safe_load(done.stdout)
    assert not api.created and printed["spec"] == asked[0]["spec"] and printed["metadata"]["namespace"] == "ml"
    assert "Submitted now to queue a, it would start in " in done.stderr


def test_a_job_is_repeated_under_another_name(api: Api) -> None:
    assert submit("--gpus", "1", "--name", "train", "--", "true").exit_code == 0
    first = api.objects["gpujobs", "train"]
    first["spec"]["suspend"] = False
    first["status"] = {"phase": "Failed"}
    api.objects["localqueues", "other"] = {"metadata": {"name": "other"}}
    done = submit("--from", "gpujob/train", "-q", "other")
    assert done.exit_code == 0, done.output
    again = api.created[-1][1]
    assert again["metadata"]["name"].startswith("train-") and "status" not in again
    assert again["spec"] == {key: value for key, value in first["spec"].items() if key != "suspend"}
    assert again["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "other"


def test_a_job_is_repeated_as_its_author_wrote_it(api: Api) -> None:
    """Not as it was admitted: with a node selector and fewer pods, held meanwhile, with the labels of its controller."""
    written = {"containers": [{"name": "main", "image": IMAGE}], "restartPolicy": "Never"}
    admitted = {**written, "nodeSelector": {"gpu": "a100"}}
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "fit", "uid": "j1", "controller": True}
    own = {"controller-uid": "j1", "batch.kubernetes.io/job-name": "fit", "team": "vision"}
    api.objects["jobs", "fit"] = {
        "metadata": {
            "name": "fit",
            "namespace": "ml",
            "uid": "j1",
            "labels": {**own, "kueue.x-k8s.io/queue-name": "team", "gangline.io/array": "fit"},
            "annotations": {"gangline.io/hold": "true", "gangline.io/array-limit": "2", "note": "kept"},
        },
        "spec": {
            "parallelism": 2,
            "completions": 8,
            "selector": {"matchLabels": {"controller-uid": "j1"}},
            "suspend": False,
            "template": {"metadata": {"labels": own, "creationTimestamp": None}, "spec": admitted},
        },
    }
    pod_set = {"name": "main", "count": 4, "minCount": 2, "template": {"metadata": {"labels": own}, "spec": written}}
    api.objects["workloads", "job-fit"] = {
        "metadata": {
            "name": "job-fit",
            "namespace": "ml",
            "uid": "w1",
            "ownerReferences": [reference],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"queueName": "team", "podSets": [pod_set]},
        "status": {},
    }
    done = submit("--from", "job/fit")
    assert done.exit_code == 0, done.output
    [(plural, again)] = api.created
    assert plural == "jobs" and again["metadata"]["name"].startswith("fit-")
    assert again["metadata"]["labels"] == {"team": "vision", "kueue.x-k8s.io/queue-name": "team"}
    assert again["metadata"]["annotations"] == {"note": "kept"}
    assert again["spec"] == {
        "parallelism": 4,
        "completions": 8,
        "suspend": True,
        "template": {"metadata": {"labels": {"team": "vision"}}, "spec": written},
    }


# --- the end of a job -------------------------------------------------------------------------------------------------


def ended(kind: str, message: str = "") -> Json:
    return {
        "metadata": {"name": "train"},
        "status": {"conditions": [{"type": kind, "status": "True", "message": message}]},
    }


async def test_waiting_ends_with_the_exit_code_of_the_pod_that_failed_first(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    from gangline.kube.resources import GPU_JOBS

    looks: list[Any] = [{"metadata": {}}, Unavailable(0, "Gone", "away"), ended("Failed", "a pod failed")]

    async def get(*_: Any) -> Json:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def pod(code: int, at: str) -> Json:
        return {
            "metadata": {},
            "status": {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "finishedAt": at}}}]},
        }

    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    api.get = get  # type: ignore[method-assign]
    api.objects |= {("pods", "a"): pod(143, "2026-01-01T00:00:02Z"), ("pods", "b"): pod(7, "2026-01-01T00:00:01Z")}
    code = await job_end.awaited(api, "ml", GPU_JOBS, ["train"], pause)  # type: ignore[arg-type]
    assert code == 7 and len(paused) == 2 and paused == sorted(paused)
    printed = capsys.readouterr().err
    assert "gpujob/train has failed: a pod failed" in printed and "away" in printed
    looks.append(ended("Complete"))
    assert await job_end.awaited(api, "ml", GPU_JOBS, ["train"], pause) == 0  # type: ignore[arg-type]
