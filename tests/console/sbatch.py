"""Scripts as people have them for sbatch, in `tests/data/sbatch`, and what becomes of each: NAME.sh beside NAME.yaml.

`python -m tests.console.sbatch` writes the YAML anew: read what differs before you commit it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from gangline.console.submitting import gpu_job, wishes
from gangline.console.submitting.gpu_job import Work
from gangline.console.submitting.wishes import WishError

Json = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "data" / "sbatch"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.sh"))
PROFILE = {
    "image": "registry.example.com/train:1",
    "partitions": "gpu=gpus\ncpu=cpus",
    "qos-classes": "high=urgent",
    "constraints": "infiniband=example.com/interconnect=infiniband",
    "gpu-types": "a100=nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB\nv100=nvidia.com/gpu.product=Tesla-V100-SXM2-32GB",
}


def outcome(text: str) -> Json:
    """What `gangline submit` makes of a script: the directives that it refuses, one after the other, what it ignores, and the
    jobs that are left without the refused ones. The script itself stands as `…` in the jobs.
    """
    refused: list[str] = []
    while True:
        try:
            profile = wishes.profile(PROFILE)
            found = wishes.directives(text, "job.sh")
            merged = wishes.merged(profile.given, found.given)
            made = gpu_job.submission(merged, profile, Work([], text, "job.sh"), "x7k2p", {}, "gpus")
            break
        except WishError as error:
            refused.append(str(error))
            line = re.match(r"job\.sh line (\d+): ", str(error))
            assert line, error
            lines = text.split("\n")
            lines[int(line[1]) - 1] = "#"
            text = "\n".join(lines)
    job = made.jobs[0]
    main = job["spec"]["template"]["spec"]["containers"][0]
    main["args"] = ["…" if each == text.replace("$", "$$") else each for each in main["args"]]
    ignored = [*found.remarks, *made.remarks]
    return {"jobs": len(made.jobs), "refused": refused, "remarks": ignored, "job": job}


def written(name: str) -> str:
    """The YAML that is expected of a script."""
    found = outcome((FOLDER / f"{name}.sh").read_text())
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=130)


if __name__ == "__main__":
    for each in SCRIPTS:
        (FOLDER / f"{each}.yaml").write_text(written(each))
