"""docs/setup.md, followed literally on a live cluster: a team gets its queue by `gangline setup`, and its first job runs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tests.cluster.test_first_hour import PATIENCE, member, steps
from tests.cluster.test_first_steps import Shell, shell

__all__ = ["shell"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "setup.md"
JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: first
  labels: {kueue.x-k8s.io/queue-name: gpus}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          resources: {requests: {cpu: 8, memory: 64Gi}, limits: {nvidia.com/gpu: 8}}
"""


def test_a_team_gets_its_queue_and_runs_its_first_job(shell: Shell, tmp_path: Path) -> None:
    found = re.search(r"export KUBECONFIG=(\S+)", shell.run("gangline up --local --detach"))
    assert found
    admin = tmp_path / "admin.kubeconfig"
    admin.write_text(Path(found[1]).read_text())
    as_admin = f"set -euo pipefail; export KUBECONFIG={admin}; cd {tmp_path}; "

    scripts = [step.script for step in steps(PAGE)]
    assert len(scripts) == 2
    printed, applied = (shell.run(as_admin + script) for script in scripts)
    assert not printed.strip() and "kind: ClusterQueue" in (tmp_path / "vision.yaml").read_text()
    assert "✓ doctor finds nothing wrong with it" in applied, applied
    assert "would start at once" in applied, applied
    assert "Nothing changes." in shell.run(as_admin + scripts[1])
    assert "Nothing changes." in shell.run(as_admin + "gangline setup vision --apply -y")
    report = shell.run(as_admin + "gangline admin doctor --cluster || true")
    assert "✗" not in report, report

    mira = member(Path(found[1]), "mira", "vision-researchers", tmp_path)
    as_mira = f"set -euo pipefail; export KUBECONFIG={mira}; "
    (tmp_path / "job.yaml").write_text(JOB)
    shell.run(f"{as_mira} kubectl create -n vision -f {tmp_path}/job.yaml")
    deadline = time.monotonic() + PATIENCE
    while "Running" not in (said := shell.run(f"{as_mira} gangline queue -n vision")):
        assert time.monotonic() < deadline, said
        time.sleep(1)
    assert "yes" in shell.run(f"{as_mira} kubectl auth can-i get pods --subresource log -n vision")
    refused = shell.run(f"{as_mira} gangline hold job/first --stop -n vision 2>&1", status=1)
    assert "gangline-team-lead-role" in refused, refused
