"""`gangline submit` and `gangline logs` on a real API server: exit codes of jobs, the answer of a dry run, the ranks of a job."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, Person

from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=2 --time=1:00:00\n#SBATCH --output=x.out\npython train.py\n"


async def pods_of(api: harness.Api, job: str, count: int) -> list[Json]:
    async def there() -> bool:
        return len(await api.all(kube.PODS, "default", f"gangline.io/gpujob={job}")) == count

    await api.until(there, f"{job} has {count} pods")
    return await api.all(kube.PODS, "default", f"gangline.io/gpujob={job}")


async def end(api: harness.Api, job: str, count: int, code: int) -> None:
    """Let the simulated pods of a job end with this exit code."""
    for pod in await pods_of(api, job, count):
        body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": str(code)}}}
        await api.client.patch(kube.PODS, "default", pod["metadata"]["name"], body)


async def test_a_script_is_submitted_and_its_exit_code_is_the_jobs(
    system: System, api: harness.Api, tmp_path: Path
) -> None:
    system.operator("submit", visibility=HERE).wait_ready()
    me = Person(system.kubeconfig)
    await api.apply(harness.flavor(), harness.cluster_queue("shared", 8), harness.local_queue("mine", "shared"))
    profile = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gangline-submit", "namespace": "default"}}
    data = {"image": "python:3.12-slim", "queue": "mine"}
    await api.client.create(kube.CONFIG_MAPS, "default", {**profile, "data": data})
    (tmp_path / "train.sh").write_text(SCRIPT)
    script = str(tmp_path / "train.sh")

    try:
        # options stand before the script: what follows it is the script's own
        at = ("submit", "--kubeconfig", str(system.kubeconfig), "-n", "default")

        async def submit(*words: str) -> Any:
            from click.testing import CliRunner

            from gangline.console.cli import main

            return await asyncio.to_thread(CliRunner().invoke, main, [*at, *words])

        dry = await submit("--dry-run", script)
        assert dry.exit_code == 0, dry.output
        (tmp_path / "job.yaml").write_text(dry.stdout)
        assert yaml.safe_load(dry.stdout)["spec"]["workers"] == 2 and "--output is ignored" in dry.stderr
        whatif = await me.run("whatif", "-f", str(tmp_path / "job.yaml"), "-o", "json")
        assert json.loads(whatif.stdout)["startsInSeconds"] is not None and "it would start at once" in dry.stderr
        assert await api.all(kube.GPU_JOBS) == []

        for name, code in (("good", 0), ("bad", 7)):
            waiting = asyncio.create_task(submit("--name", name, "--wait", script))
            pods = await pods_of(api, name, 2)
            assert {pod["spec"]["containers"][0]["args"][0] for pod in pods} == {SCRIPT}
            ranks = await me.run("logs", name, "-n", "default", "--rank", "5")
            assert "ranks are 0 to 1" in ranks.stderr, ranks.output
            await end(api, name, 2, code)
            done = await waiting
            assert done.exit_code == code, done.output
            assert f"Submitted gpujob/{name} to LocalQueue mine" in done.stdout

        again = await submit("--from", "gpujob/good")
        assert again.exit_code == 0, again.output
        [repeated] = [job for job in await api.all(kube.GPU_JOBS) if job["metadata"]["name"] not in ("good", "bad")]
        assert repeated["spec"]["template"] == (await api.get(kube.GPU_JOBS, "good"))["spec"]["template"]
    finally:
        await api.client.delete(kube.CONFIG_MAPS, "default", "gangline-submit")
