"""Examples of each command, which its help ends with. A test parses every one of them with the command's own options.

A group without examples of its own shows the first one of each of its commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

#: command -> what follows it on the line, and what that does
EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "": (
        ("queue", "your namespace's jobs, and why they wait"),
        ("why train", "why one job waits, and what would let it start"),
        ("admin doctor --cluster", "whether an installation is in order"),
    ),
    # --- see jobs and queues ---
    "status": (("", "what your queues use, on one screen"), ("-A", "of the whole cluster")),
    "queue": (
        ("", "running and waiting jobs of your namespace"),
        ("-A -u mira -s pending", "one user's waiting jobs, in all namespaces"),
        ("-q vision -t -w", "a ClusterQueue with expected starts, redrawn"),
        ("-s pending -o name", "names, for other commands"),
    ),
    "why": (
        ("train", "why it waits, and what would let it start"),
        ("gpujob/train --history", "each change of its state"),
    ),
    "events": (("--since 2h", "what happened lately"), ("-w -o json", "what happens, a document per event")),
    "history": (("--since 7d", "runs of the last week"), ("-u mira -s failed", "a user's runs that failed")),
    "preemptions": (
        ("train", "who preempted this job, and what it lost"),
        ("-q vision --since 30d", "who was preempted in a ClusterQueue"),
        ("train --caused", "whom this job had preempted"),
    ),
    "report": (
        ("--by user", "what each user used in the last 30 days, and what was lost"),
        ("--from 2026-11-01 --to 2026-12-01 --by day -o csv", "each day of a month, for a spreadsheet"),
        ("-q vision --by flavor -o html", "a ClusterQueue's flavors, as a page"),
    ),
    "share": (("", "who uses what, and who is next"), ("-q vision", "of one queue and those that share with it")),
    "limits": (("", "quota, and what may be borrowed and lent"),),
    "limits set": (
        ("vision --flavor a100 --nominal 64", "give the queue 64 GPUs"),
        ("vision --flavor a100 --borrowing none --dry-run", "check: all that others lend"),
    ),
    "nodes": (("", "nodes of your queues, and who sits there"), ("--cards -o wide", "each card, and its users")),
    "setup": (
        ("vision --gpus a100=40 --group vision", "print what a team needs"),
        ("vision --gpus a100=40 --cohort research --apply", "write it"),
    ),
    "ui": (("", "the dashboard in a browser, with your rights"), ("--listen 127.0.0.1:8080", "at this address")),
    # --- start jobs ---
    "submit": (
        ("--gpus 8 --nodes 2 --time 2h -q team train.sh", "a script, with its #SBATCH and #GANGLINE lines"),
        ("--gpus 1 --wait -- python train.py --lr 0.1", "a command; the exit code is the job's"),
        ("--dry-run train.sh", "the GPUJob, and when it would start"),
        ("--from gpujob/train-x7k2p", "once more"),
        ("--array 0-99%10 eval.sh", "a job for each index, ten at a time"),
        ("-i --gpus 1 --time 2h", "a shell on a GPU, which ends with the terminal"),
    ),
    "exec": (
        ("train -- nvidia-smi", "in the pod of rank 0"),
        ("train:3", "a shell in the pod of rank 3"),
    ),
    "usage": (("train", "of each pod: how busy its GPUs are, and since when they are idle"),),
    "logs": (
        ("train -f", "what all of its pods print, until it ends"),
        ("train --rank 0 --tail 100", "the last lines of one rank"),
    ),
    # --- see the future ---
    "eta": (("", "when waiting jobs start"), ("train --history", "which starts a job was promised")),
    "plan": (("--horizon 8h", "runs of the next hours as bars"), ("-q vision -o wide", "one queue, as a table")),
    "whatif": (
        ("-f job.yaml", "when it would start if it were submitted now"),
        ("train --time 2h --gpus 16", "a waiting job, shorter and smaller"),
        ("--quota vision --flavor a100 --gpus 64", "another quota"),
    ),
    # --- change jobs ---
    "hold": (
        ("train", "it waits until it is released"),
        ("-u mira -s pending -y", "all of a user, without a question"),
    ),
    "release": (("train", "it is queued again"), ("lq/gpus", "the queue starts jobs again")),
    "cancel": (("train", "delete one job"), ("-u mira -s pending --dry-run", "which of a user it would delete")),
    "move": (("train spare", "to the LocalQueue spare"),),
    "top": (("train", "before all others of its LocalQueue"), ("train --class urgent", "with this class")),
    "preempt": (("--dry-run train", "whom it would preempt, and what they lose"),),
    "notify set": (
        ("train --events Started,Finished --to mira@example.com", "messages about a job"),
        ("train --events none", "no messages"),
    ),
    "notify test": (("team --to mira@example.com", "to the receivers of the QueuePolicy team"),),
    # --- keep nodes free ---
    "reserve create": (("w --days Sun --time 02:00 --duration 6h -l r=1 -m", "a maintenance of a rack, every week"),),
    "reserve list": (("", "windows, nodes, and what keeps a Reservation from being honoured"),),
    "reserve delete": (("weekly", "other jobs may use its nodes at once"),),
    # --- try Gangline on this machine ---
    "run": (("", "the quickstart, as a live table"), ("--example backfill --end", "another example")),
    "up": (
        ("--local", "a local control plane"),
        ("--local --name test --detach", "in the background, with data that stay"),
    ),
    "down": (("--name test --keep-data", "end it, and keep its data"),),
    "mcp": (
        ("", "what an assistant starts to ask with your rights"),
        ("--allow-changes", "it may also hold, release, cancel and submit, after a preview"),
    ),
    "completion": (("bash", "a script to source: source <(gangline completion bash)"),),
    # --- for administrators ---
    "admin": (
        ("install", "Gangline in the cluster of your kubeconfig"),
        ("doctor --cluster", "whether an installation is in order"),
    ),
    "admin install": (("--dry-run", "what would be created"), ("-f values.yaml -y", "with values, without a question")),
    "admin upgrade": (("--dry-run", "what would change"),),
    "admin uninstall": (("", "kinds, queues and workloads stay"), ("--all --dry-run", "what the removal of all takes")),
    "admin doctor": (
        ("", "what this machine lacks"),
        ("--cluster", "whether an installation is in order"),
        ("--from-kueue", "what changes for a cluster with Kueue"),
    ),
    "admin manifests": (
        ("--image registry.example.com/gangline:0.2", "YAML for kubectl apply"),
        ("--helm chart", "the chart"),
    ),
    "admin crds": (("", "YAML of the kinds"), ("--out crds", "as files")),
    "admin rbac": (("--notify-secret team/slack", "roles, with the right to read a Secret"),),
    "admin import": (
        ("-n ml --queuemapping team-a=gpus --queuelabel team", "check only"),
        ("-n ml --queuemapping-file rules.yaml --dry-run=false", "import"),
    ),
    "admin to-kueue": (("--dry-run", "what would change"),),
    "admin cordon": (("gpu-1", "no new pods there"), ("cq/vision", "the queue starts nothing")),
    "admin uncordon": (("gpu-1 cq/vision", "use both again"),),
    "admin swap list": (("-A --open", "gangs that have not recovered yet"),),
    "admin swap show": (("train", "each failure of one gang"),),
    "admin swap now": (("gpu-1 gpu-2", "move gangs off two nodes"),),
    "admin swap dry-run": (("gpu-1", "which gangs would leave"),),
    "admin forecast import": (("jobs.csv", "add a trace to the history"),),
    "admin forecast train": (("--until 2026-01-01", "train the model on runs before this day"),),
    "admin forecast eval": (("--train-until 2026-01-01", "compare the model with the runs after this day"),),
    "admin forecast pairs": (("pairs.json.gz", "how near expected speeds of pairs come"),),
    "admin probe": (
        ("resnet a3c --gpu V100 --pods pods.yaml --node gpu-7", "measure two classes of jobs on a node"),
        ("A3C CycleGAN --gpu v100 --file pairs.json.gz", "what was measured before, as JobProfiles"),
    ),
    "admin forecast show": (("train", "how long a job will run, and why"),),
    "admin record": (("/var/lib/gangline/record", "write the history of the cluster there"),),
    "admin tune": (("/var/lib/gangline/record -f policy.yaml", "propose a QueuePolicy"),),
    "admin replay": (("jobs.csv --gpus 512 --policy fifo --out replayed", "play a trace"),),
    "admin audit": (("", "whether reservations were kept"), ("audit.jsonl", "replay a record")),
    "admin operator": (("--no-leader-election --log-format json", "one operator, beside the cluster"),),
    "admin webhooks": (("--listen 0.0.0.0:9443", "serve at this address"), ("--unregister", "take registrations back")),
    # --- for developers ---
    "dev": (("cluster up", "a local control plane"), ("image build", "the image of this checkout")),
    "dev cluster up": (("--nodes 4 --gpus 8", "with simulated nodes"), ("--version 1.31", "an older Kubernetes")),
    "dev cluster down": (("--keep-data", "end it, and keep its data"),),
    "dev cluster status": (("", "what runs, and since when"),),
    "dev cluster kubeconfig": (("", "the path of its kubeconfig"),),
    "dev cluster build": (("--version 1.31", "compile another version"),),
    "dev cluster node list": (("", "the real nodes"),),
    "dev cluster node stop": (("real-1", "end its programs"),),
    "dev cluster node start": (("real-1", "start them again"),),
    "dev cluster node cut": (("real-1", "cut its network"),),
    "dev cluster node drain": (("real-1", "evict its pods"),),
    "dev cluster image load": (("image.tar", "onto every real node"),),
    "dev image build": (("--tag gangline:test -f image.tar", "an archive with this name in it"),),
    "dev image pack": (("--tag train:1 --package numpy -- python -m train", "an image of packages"),),
    "dev image lock": (("", "resolve the base anew"),),
}


def with_examples(path: str, command: click.Command) -> click.Command:
    """The command with examples at the end of its help, and of that of its own commands."""
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            with_examples(f"{path} {name}", each)
    known = EXAMPLES.get(path)
    if known is None and isinstance(command, click.Group):
        inner = [(name, EXAMPLES.get(f"{path} {name}")) for name in command.commands]
        known = tuple((f"{name} {found[0][0]}".strip(), found[0][1]) for name, found in inner if found)
    if known:
        lines = "\n".join(f"  {' '.join(filter(None, ('gangline', path, line)))}\n      {what}" for line, what in known)
        command.epilog = f"\b\nExamples:\n{lines}"
    return command
