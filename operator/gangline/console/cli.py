"""The `gangline` command. Each subcommand's module is imported only when the subcommand is called, to keep start-up short."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

import gangline

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A subcommand: where its click command is, as `package.module:name` in `commands`, and a line for the list of commands.

    A group of further commands has `sections` instead of a place.
    """

    where: str
    about: str
    sections: Sections | None = None

    def load(self) -> click.Command:
        module, _, name = self.where.partition(":")
        return getattr(importlib.import_module(f"gangline.console.commands.{module}"), name)


#: heading -> subcommand -> where it is
Sections: TypeAlias = Mapping[str, Mapping[str, CommandEntry]]

_ADMIN: Final[Sections] = {
    "Install": {
        "install": CommandEntry("admin.install:install", "Install Gangline in a cluster."),
        "upgrade": CommandEntry("admin.install:upgrade", "Bring an installation to this version."),
        "uninstall": CommandEntry("admin.install:uninstall", "Remove an installation."),
        "doctor": CommandEntry(
            "admin.doctor:command", "What this machine, an installation or a move from Kueue lacks."
        ),
        "manifests": CommandEntry("admin.install:manifests", "The objects of an installation, or its Helm chart."),
        "crds": CommandEntry("admin.crds:command", "The custom resource definitions."),
        "rbac": CommandEntry("admin.rbac:command", "The rights that operator and webhooks need."),
    },
    "Change over from Kueue, and back": {
        "import": CommandEntry("admin.import_jobs:command", "Adopt running jobs into queues."),
        "to-kueue": CommandEntry("admin.to_kueue:command", "Prepare admissions for a change back to Kueue."),
    },
    "Nodes": {
        "cordon": CommandEntry("admin.cordon:cordon", "Let no new work onto nodes, or out of queues."),
        "uncordon": CommandEntry("admin.cordon:uncordon", "Use cordoned nodes and queues again."),
        "swap": CommandEntry(
            "admin.swap:command", "Which gangs lost nodes and how they recovered; `swap now` moves them."
        ),
    },
    "Policies and forecasts": {
        "forecast": CommandEntry("admin.forecast:command", "Forecasts of runtimes: history, model, evaluation."),
        "probe": CommandEntry("admin.probe:command", "Measure how jobs slow each other down on a shared card."),
        "record": CommandEntry("admin.record:command", "Write the history of a cluster."),
        "tune": CommandEntry("admin.tune:command", "Propose a QueuePolicy from a cluster's history."),
        "replay": CommandEntry(
            "admin.replay:command", "Run a trace of jobs, or a cluster's history, through the engine."
        ),
        "audit": CommandEntry("admin.audit:command", "Replay the operator's record of decisions."),
    },
    "Processes": {
        "operator": CommandEntry("admin.operator:command", "The operator's process."),
        "webhooks": CommandEntry("admin.webhooks:command", "The webhooks' process."),
    },
}
_DEV: Final[Sections] = {
    "Local clusters and images": {
        "cluster": CommandEntry("dev.cluster:command", "A local control plane without Gangline."),
        "image": CommandEntry("dev.image:command", "Container images without a container engine."),
    },
}
_TOP: Final[Sections] = {
    "See jobs and queues": {
        "status": CommandEntry(
            "see.status:command", "GPUs, queues, what waits and what needs a person, on one screen."
        ),
        "queue": CommandEntry("see.queue:command", "Running and pending jobs, and why they are pending; like squeue."),
        "why": CommandEntry("see.why:command", "Why one job waits, and what would let it start earlier."),
        "events": CommandEntry("see.events:command", "What happened to jobs lately, and with -w what happens."),
        "share": CommandEntry("see.share:share", "Quota and its use by queue and user, and who is next; like sshare."),
        "limits": CommandEntry("see.share:limits", "What bounds each queue; `limits set` changes it."),
        "nodes": CommandEntry("see.nodes:command", "Nodes: what is left on them, and who sits there; like sinfo."),
        "ui": CommandEntry("ui:command", "The dashboard, in a browser."),
    },
    "See what was": {
        "history": CommandEntry(
            "see.history:command", "Runs that have ended: durations, flavor, GPU-hours; like sacct."
        ),
        "preemptions": CommandEntry("see.preemptions:command", "Who was preempted for whom, why, and what was lost."),
        "report": CommandEntry("see.report:command", "GPU-hours: used, useful, lost, by user or day; like sreport."),
    },
    "Start and follow jobs": {
        "submit": CommandEntry("start.submit:command", "Submit a script or a command as a job; like sbatch."),
        "logs": CommandEntry("start.logs:command", "What a job's pods print, by rank; with -f until it ends."),
        "exec": CommandEntry("start.exec:command", "Run a command, or a shell, in a pod of a job that runs."),
        "usage": CommandEntry("start.usage:command", "How busy the GPUs of a job's pods are; like sstat."),
    },
    "See the future": {
        "eta": CommandEntry("future.eta:command", "When pending jobs are expected to start."),
        "plan": CommandEntry("future.plan:command", "Which jobs run and when pending ones will, drawn over time."),
        "whatif": CommandEntry("future.whatif:command", "When a job would start if it were submitted now."),
    },
    "Change jobs": {
        "hold": CommandEntry("change.hold:hold", "Keep jobs, or queues, from starting."),
        "release": CommandEntry("change.hold:release", "Queue held jobs again, let held queues start jobs."),
        "cancel": CommandEntry(
            "change.cancel:command", "Delete jobs, by name or by user, state and queue; like scancel."
        ),
        "move": CommandEntry("change.move:move", "Move a waiting job to another LocalQueue."),
        "top": CommandEntry("change.move:top", "Put a waiting job before others of its LocalQueue."),
        "preempt": CommandEntry(
            "change.preempt:command", "Show which jobs a job would preempt, and what they would lose."
        ),
        "notify": CommandEntry(
            "change.notify:command", "Choose the messages about a job and their receivers, or send a test."
        ),
    },
    "Keep nodes free": {
        "reserve": CommandEntry("change.reserve:command", "Keep nodes for a queue, or for nobody, in windows of time."),
    },
    "Give a team its queue": {
        "setup": CommandEntry(
            "admin.setup:command",
            "A team's quota, namespace, queue and rights, from the nodes there are.",
        ),
    },
    "Try Gangline on this machine": {
        "run": CommandEntry("run.run:command", "A local cluster, an example, a live table."),
        "up": CommandEntry("run.up:command", "Start a cluster with Gangline on it."),
        "down": CommandEntry("run.up:down", "End what `up --detach` started."),
    },
    "More": {
        "admin": CommandEntry("", "Install, upgrade, check and tune Gangline.", _ADMIN),
        "dev": CommandEntry("", "Local control planes and container images.", _DEV),
        "mcp": CommandEntry("assistant.mcp:command", "Answers for an assistant, by the Model Context Protocol."),
        "completion": CommandEntry("completion:command", "Completion of commands and job names for a shell."),
    },
}
#: subcommands that were at the top in 0.1 -> the group in which they are now
FORMER: Final = {
    name: group for group, sections in (("admin", _ADMIN), ("dev", _DEV)) for rows in sections.values() for name in rows
}


class LazyGroup(click.Group):
    """A group that knows its subcommands from a table and imports one only when it is called."""

    def __init__(
        self, *args: Any, sections: Sections, path: str = "", former: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._path = path
        self.sections = sections
        self.entries: Final = {name: entry for rows in sections.values() for name, entry in rows.items()}
        self._former = former or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (entry := self.entries.get(cmd_name)) is None:
            return None
        path = f"{self._path} {cmd_name}".strip()
        if entry.sections is not None:
            return LazyGroup(cmd_name, path=path, help=entry.about, sections=entry.sections)
        from gangline.console.examples import with_examples

        try:
            return with_examples(path, entry.load())
        except ImportError as error:
            if error.name is not None:  # a missing module of ours is a bug: show the traceback
                raise
            raise click.ClickException(str(error)) from error  # a library that this machine can't load

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a subcommand. The former spelling of one works too, and a line on stderr names the new one."""
        name = args[0]
        if (group := self._former.get(name)) is None:
            if name not in self.entries and not name.startswith("-") and not ctx.resilient_parsing:
                from gangline.console.output.spelling import meant

                raise click.UsageError(f"No such command {name!r}.{meant(name, self._known())}", ctx)
            return super().resolve_command(ctx, args)
        _, inner, _ = super().resolve_command(ctx, [group])
        assert isinstance(inner, LazyGroup)
        _, command, rest = inner.resolve_command(ctx, args)
        if not ctx.resilient_parsing:
            from gangline.console.output import terminal

            here = ctx.command_path
            terminal.say(f"`{here} {name}` is now `{here} {group} {name}`; the old spelling works until 0.3.", err=True)
        return f"{group} {name}", command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. The message of an error may quote texts of others. Ctrl-C ends it as it ends other programs."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as error:
            from gangline.console.output import exit_codes, terminal

            terminal.end_line()
            raise click.exceptions.Exit(exit_codes.INTERRUPTED) from error
        except click.ClickException as error:
            from gangline.console.output import terminal

            vars(error).update(message=terminal.clean(error.message))  # what it prints of itself
            raise

    def _known(self) -> list[str]:
        """The commands that a mistyped one may mean; those of groups with the group's name."""
        inner = [
            f"{group} {name}"
            for group, entry in self.entries.items()
            for rows in (entry.sections or {}).values()
            for name in rows
        ]
        return [*self.entries, *inner]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from gangline.console.examples import with_examples

        with_examples(self._path, self)
        super().format_epilog(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for, from the table: nothing is imported for it."""
        for heading, entries in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, entry.about) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands, from the table."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=entry.about)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=LazyGroup, sections=_TOP, former=FORMER, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gangline.__version__, prog_name="gangline")
def main() -> None:
    """Gangline admits a GPU gang when all its pods can run. This command shows queues and reasons, and starts clusters."""
    from gangline.console.output import terminal

    terminal.write_in_full()


if __name__ == "__main__":
    main()
