"""The `gangline` command. Each subcommand's module is imported only when the subcommand is called, to keep start-up short."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

import gangline

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class Entry:
    """A subcommand: where its click command is, as `package.module:name` in `commands`, and a line for the list of commands."""

    where: str
    about: str

    def load(self) -> click.Command:
        module, _, name = self.where.partition(":")
        return getattr(importlib.import_module(f"gangline.console.commands.{module}"), name)


#: heading -> subcommand -> where it is
SECTIONS: Final[dict[str, dict[str, Entry]]] = {
    "See jobs and queues": {
        "queue": Entry("see.queue:command", "Running and pending jobs, and why they are pending; like squeue."),
        "why": Entry("see.why:command", "Why one job waits, and what would let it start earlier."),
        "events": Entry("see.events:command", "What happened to jobs lately, and with -w what happens."),
        "share": Entry("see.share:share", "Quota and its use by queue and user, and who is next; like sshare."),
        "limits": Entry("see.share:limits", "What bounds each queue; `limits set` changes it."),
        "history": Entry("see.history:command", "Runs that have ended: durations, flavor, GPU-hours; like sacct."),
        "nodes": Entry("see.nodes:command", "Nodes: what is left on them, and who sits there; like sinfo."),
        "swap": Entry("see.swap:command", "Which gangs lost nodes and how they recovered; `swap now` moves them."),
    },
    "See the future": {
        "eta": Entry("future.eta:command", "When pending jobs are expected to start."),
        "plan": Entry("future.plan:command", "Which jobs run and when pending ones will, drawn over time."),
        "whatif": Entry("future.whatif:command", "When a job would start if it were submitted now."),
        "forecast": Entry("future.forecast:command", "Forecasts of runtimes: history, model, evaluation."),
    },
    "Change jobs": {
        "hold": Entry("change.hold:hold", "Keep jobs, or queues, from starting."),
        "release": Entry("change.hold:release", "Queue held jobs again, let held queues start jobs."),
        "cordon": Entry("change.cordon:cordon", "Let no new work onto nodes, or out of queues."),
        "uncordon": Entry("change.cordon:uncordon", "Use cordoned nodes and queues again."),
        "move": Entry("change.move:move", "Move a waiting job to another LocalQueue."),
        "top": Entry("change.move:top", "Put a waiting job before others of its LocalQueue."),
        "cancel": Entry("change.cancel:command", "Delete jobs, by name or by user, state and queue; like scancel."),
        "notify": Entry(
            "change.notify:command",
            "Choose what a job notifies whom of, or send a test notification.",
        ),
        "preempt": Entry("change.preempt:command", "Whom a job would preempt (--dry-run), and what they would lose."),
    },
    "Run Gangline": {
        "run": Entry("run.run:command", "A local cluster, an example, a live table."),
        "up": Entry("run.up:command", "Start a cluster with Gangline on it."),
        "down": Entry("run.up:down", "End what `up --detach` started."),
        "cluster": Entry("run.cluster:command", "A local control plane without Gangline."),
        "image": Entry("run.image:command", "Container images without a container engine."),
        "operator": Entry("run.operator:command", "The operator's process."),
        "webhooks": Entry("run.webhooks:command", "The webhooks' process."),
    },
    "Administer an installation": {
        "install": Entry("administer.install:install", "Install Gangline in a cluster."),
        "upgrade": Entry("administer.install:upgrade", "Bring an installation to this version."),
        "uninstall": Entry("administer.install:uninstall", "Remove an installation."),
        "doctor": Entry("administer.doctor:command", "What this machine, an installation or a move from Kueue lacks."),
        "import": Entry("administer.import_jobs:command", "Adopt running jobs into queues."),
        "to-kueue": Entry("administer.to_kueue:command", "Prepare admissions for a change back to Kueue."),
        "manifests": Entry("administer.install:manifests", "The objects of an installation, or its Helm chart."),
        "crds": Entry("administer.crds:command", "The custom resource definitions."),
        "rbac": Entry("administer.rbac:command", "The rights that operator and webhooks need."),
    },
    "Examine decisions": {
        "audit": Entry("examine.audit:command", "Replay the operator's record of decisions."),
        "record": Entry("examine.record:command", "Write the history of a cluster."),
        "replay": Entry("examine.replay:command", "Run a trace of jobs, or a cluster's history, through the engine."),
        "tune": Entry("examine.tune:command", "Propose a QueuePolicy from a cluster's history."),
        "vectors": Entry("examine.vectors:command", "Run recorded scenarios of Kueue through the engine."),
    },
    "This command": {
        "completion": Entry("completion:command", "Completion of commands and job names for a shell."),
    },
}
COMMANDS: Final = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            return COMMANDS[cmd_name].load()
        except ImportError as error:
            if error.name is not None:  # a missing module of ours is a bug: show the traceback
                raise
            raise click.ClickException(str(error)) from error  # a library that this machine can't load

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. The message of an error may quote texts of others."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            from gangline.console.output import terminal

            vars(error).update(message=terminal.clean(error.message))  # what it prints of itself
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for, from the table: nothing is imported for it."""
        for heading, entries in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, entry.about) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands, from the table."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=entry.about) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gangline.__version__, prog_name="gangline")
def main() -> None:
    """Gangline admits a GPU gang when all its pods can run. This command shows queues and reasons, and starts clusters."""


if __name__ == "__main__":
    main()
