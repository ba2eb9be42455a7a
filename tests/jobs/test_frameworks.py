"""The environment in which the pods of a gang find each other."""

from __future__ import annotations

import json
import subprocess
import tracemalloc
from typing import Any

import pytest
from tests.jobs.gangs import KIND, env_of, gpu_job, pod_template, role

from gangline.jobs import gpujob
from gangline.jobs.base import JobError, PodSetInfo
from gangline.jobs.gpujob import gang


def _templates(job: dict[str, Any], *counts: int) -> list[dict[str, Any]]:
    """The pod templates of the children, by role, when admitted with these counts."""
    read = gang.read(job)
    infos = [
        PodSetInfo(one.name, count)
        for one, count in zip(read.roles, counts or [r.replicas for r in read.roles], strict=True)
    ]
    return [child["spec"]["template"] for child in gpujob.role_jobs(job, read, infos, {}, "run")]


def _run(template: dict[str, Any], index: int, *show: str) -> list[str]:
    """Runs the container's command as a kubelet would start pod `index`, and returns what it sees of `show`."""
    container = template["spec"]["containers"][0]
    env = {"GANGLINE_INDEX": str(index)}
    for name, value in env_of(template).items():
        env.setdefault(name, value.replace("$(GANGLINE_INDEX)", str(index)))
    script = " ".join(f'"${name}"' for name in show)
    command = [*container["command"], "-c", f"printf '%s\\n' {script}"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_index_comes_first_because_others_refer_to_it():
    (template,) = _templates(gpu_job(framework="PyTorch"))
    first = template["spec"]["containers"][0]["env"][0]
    assert first["name"] == "GANGLINE_INDEX"
    assert first["valueFrom"] == {
        "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
    }


def test_pytorch_in_one_role():
    (template,) = _templates(gpu_job(framework="PyTorch"))
    env = env_of(template)
    assert env["MASTER_ADDR"] == env["PET_MASTER_ADDR"] == "llama-worker-0.llama"
    assert env["MASTER_PORT"] == env["PET_MASTER_PORT"] == "29500"
    assert env["WORLD_SIZE"] == env["PET_NNODES"] == "2"
    assert env["RANK"] == env["PET_NODE_RANK"] == "$(GANGLINE_INDEX)"
    assert env["PET_NPROC_PER_NODE"] == "8"
    assert "command" not in template["spec"]["containers"][0]


def test_ranks_go_on_through_the_roles():
    shell = {"template": pod_template(command=["/bin/sh"])}
    job = gpu_job(
        role("master", 1, **shell), role("worker", 3, **shell), role("extra", 2, **shell), framework="PyTorch"
    )
    templates = _templates(job, 1, 3, 2)
    seen = [
        _run(template, index, "RANK", "PET_NODE_RANK", "WORLD_SIZE", "MASTER_ADDR")
        for template, count in zip(templates, (1, 3, 2), strict=True)
        for index in range(count)
    ]
    assert seen == [[str(rank), str(rank), "6", "llama-master-0.llama"] for rank in range(6)]


def test_the_wrapper_passes_arguments_as_they_are():
    own = pod_template(command=["printf", "%s|"])
    job = gpu_job(role("master", 1), role("worker", 1, template=own), framework="PyTorch")
    command = _templates(job)[1]["spec"]["containers"][0]["command"]
    env = {"GANGLINE_INDEX": "0", "GANGLINE_RANK_OFFSET": "1"}
    done = subprocess.run([*command, "a b", "$x", "*"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "a b|$x|*|"


def test_a_later_role_needs_a_command_to_be_ranked():
    job = gpu_job(role("master", 1), role("worker", 3, template=pod_template()), framework="JAX")
    with pytest.raises(JobError) as caught:
        KIND.pod_sets(job)
    assert caught.value.field == "spec.roles[1].template.spec.containers[0].command"


@pytest.mark.parametrize("framework", ["None", "TensorFlow", "MPI"])
def test_frameworks_without_ranks_need_no_command(framework: str):
    job = gpu_job(role("master", 1), role("worker", 3, template=pod_template()), framework=framework)
    assert "command" not in _templates(job)[1]["spec"]["containers"][0]
    KIND.pod_sets(job)


def test_jax():
    shell = {"template": pod_template(command=["/bin/sh"])}
    job = gpu_job(role("a", 2, **shell), role("b", 2, **shell), framework="JAX")
    first, second = _templates(job)
    assert env_of(first)["JAX_COORDINATOR_ADDRESS"] == "llama-a-0.llama:1234"
    shown = ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_COORDINATOR_ADDRESS")
    assert _run(second, 1, *shown) == ["3", "4", "llama-a-0.llama:1234"]
    assert _run(first, 1, *shown) == ["1", "4", "llama-a-0.llama:1234"]


def test_tensorflow():
    job = gpu_job(role("chief", 1), role("worker", 2), role("evaluator", 1), framework="TensorFlow")
    _, worker, evaluator = _templates(job)
    cluster = {
        "chief": ["llama-chief-0.llama:2222"],
        "worker": ["llama-worker-0.llama:2222", "llama-worker-1.llama:2222"],
    }
    config = json.loads(env_of(worker)["TF_CONFIG"].replace("$(GANGLINE_INDEX)", "1"))
    assert config == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    config = json.loads(env_of(evaluator)["TF_CONFIG"].replace("$(GANGLINE_INDEX)", "0"))
    assert config == {"cluster": cluster, "task": {"type": "evaluator", "index": 0}}


def test_mpi():
    launcher, worker = _templates(gpu_job(role("launcher", 1), role("worker", 2, gpus=4), framework="MPI"))
    for template in (launcher, worker):
        assert env_of(template)["MPI_HOSTS"] == "llama-worker-0.llama:4,llama-worker-1.llama:4"
        assert env_of(template)["MPI_SLOTS"] == "8"


def test_no_framework_tells_who_the_pod_is_and_no_more():
    (template,) = _templates(gpu_job())
    assert list(env_of(template)) == [
        *("GANGLINE_INDEX", "GANGLINE_POD", "GANGLINE_PROGRESS_URL"),
        *("GANGLINE_JOB", "GANGLINE_ROLE", "GANGLINE_REPLICAS"),
    ]


def test_what_the_user_sets_wins():
    env = [{"name": "MASTER_PORT", "value": "1"}, {"name": "RANK", "value": "7"}]
    (template,) = _templates(gpu_job(framework="PyTorch", template=pod_template(env=env)))
    variables = template["spec"]["containers"][0]["env"]
    assert [item for item in variables if item["name"] in ("MASTER_PORT", "RANK")] == env
    assert env_of(template)["PET_MASTER_PORT"] == "1"
    assert variables[-2:] == env, "after ours, so that it can refer to them"


def test_a_gang_too_big_for_an_environment_variable_is_refused():
    with pytest.raises(JobError, match="TF_CONFIG") as caught:
        KIND.pod_sets(gpu_job(workers=9000, framework="TensorFlow"))
    assert caught.value.field == "spec.roles"


def test_a_template_that_names_its_gpus_sets_the_processes_per_node():
    template = pod_template()
    template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "4"}}
    (wired,) = _templates(gpu_job(framework="PyTorch", template=template))
    assert env_of(wired)["PET_NPROC_PER_NODE"] == "4"


@pytest.mark.parametrize("framework", ["MPI", "TensorFlow"])
def test_the_hosts_of_a_billion_pods_are_not_listed(framework: str):
    huge = gpu_job(framework=framework, workers=1_000_000_000, name="l")
    tracemalloc.start()
    try:
        with pytest.raises(JobError, match="too many pods"):
            KIND.pod_sets(huge)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
