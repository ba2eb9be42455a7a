"""`gangline admin probe`: measures how jobs of some classes slow each other down on a shared card, and prints JobProfiles."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast, get_args

import click
import yaml

from gangline import files, telemetry
from gangline.api.profiles import SHARING
from gangline.console.options import Span
from gangline.console.output import terminal
from gangline.console.probing.pod_prober import PodApi, PodProber, ReportReceiver, Times, Use, manifests_of
from gangline.console.probing.probes import MOST_CLASSES, FileProber, Json, ProbeError, Prober, manifest, measure
from gangline.engine.model import Mode
from gangline.forecast.pairs import pair_file
from gangline.forecast.pairs.pair_file import PairFileError

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
#: bytes of a file of pods
_MOST_PODS: Final = 1 << 20


@click.command("probe")
@click.argument("classes", metavar="CLASS…", nargs=-1, required=True)
@click.option("--gpu", required=True, help="The model of the card, as JobProfiles name it.")
@click.option("--file", "file", type=_FILE, help="Take what was measured before from this file, and run nothing.")
@click.option("--pods", type=_FILE, help="Pods to run, as YAML: each with the annotation gangline.io/class.")
@click.option("--node", help="The node on which they run; its cards must be shared, one card free of others.")
@click.option(
    "--sharing", type=click.Choice([each for each in SHARING if each]), default="TimeSlice", show_default=True,
    help="How the node's cards are shared.",
)  # fmt: skip
@click.option("-n", "--namespace", default="default", show_default=True, help="The namespace of the pods.")
@click.option("--kubeconfig", type=_FILE, help="The kubeconfig.")
@click.option("--context", help="The context of the kubeconfig.")
@click.option("--listen", default="0.0.0.0:0", show_default=True, help="Where progress reports are received.")
@click.option("--address", help="The host under which pods reach this machine. [default: its own address]")
@click.option("--telemetry", "source", help="A Prometheus, or a file: use of GPU and memory by pod.")
@click.option(
    "--warm-up", type=Span(), default="30s", show_default=True, help="How long a pod warms up, from its first step on."
)
@click.option("--measure", "measured", type=Span(), default="60s", show_default=True, help="Then, of each run.")
def command(
    classes: tuple[str, ...],
    gpu: str,
    file: Path | None,
    pods: Path | None,
    node: str | None,
    sharing: str,
    namespace: str,
    kubeconfig: Path | None,
    context: str | None,
    listen: str,
    address: str | None,
    source: str | None,
    warm_up: float,
    measured: float,
) -> None:
    """Measure each CLASS alone on a card and beside each other, and print JobProfiles as YAML.

    Each class runs alone, then with each other class and with itself. A job that runs alone and fails beside another one is taken
    for out of memory. What is printed can be applied: gangline admin probe … | kubectl apply -f -
    """
    if len(set(classes)) > MOST_CLASSES:
        raise click.UsageError(f"at most {MOST_CLASSES} classes are measured at a time")
    if (file is None) == (pods is None):
        raise click.UsageError("give --file, or --pods and --node")
    if pods is not None and not node:
        raise click.UsageError("--pods needs --node")
    if sharing not in get_args(Mode):
        raise click.UsageError(f"--sharing: {sharing} is not known")
    kinds = tuple(dict.fromkeys(classes))
    families: dict[str, str] = {}
    try:
        if file is not None:
            found = pair_file.read(file)
            families.update(found.families)
            _print(kinds, FileProber(found.profiles, gpu), families)
            return
        assert pods is not None and node is not None
        with _receiver(listen) as receiver:
            where = address or socket.gethostbyname(socket.gethostname())
            prober = PodProber(
                _official(kubeconfig, context),
                manifests_of(list(yaml.safe_load_all(files.read_text(pods, most=_MOST_PODS)))),
                namespace,
                node,
                gpu,
                cast(Mode, sharing),
                receiver=receiver,
                address=f"http://{where}:{receiver.port}",
                times=Times(warm_up=warm_up, measure=measured),
                usage=_Telemetry(source, namespace) if source else lambda _: Use(),
            )
            _print(kinds, prober, families)
    except (ProbeError, PairFileError) as error:
        raise click.ClickException(str(error)) from error
    except (OSError, yaml.YAMLError) as error:
        raise click.ClickException(f"{pods or listen}: {error}") from error


def _print(kinds: Sequence[str], prober: Prober, families: dict[str, str]) -> None:
    profiles = list(measure(kinds, prober, lambda words: terminal.say(f"· {words}", err=True)))
    documents: list[Json] = [manifest(each, families.get(each.name, "")) for each in profiles]
    terminal.say(yaml.safe_dump_all(documents, sort_keys=False).rstrip())


@contextmanager
def _receiver(listen: str) -> Iterator[ReportReceiver]:
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise click.UsageError("--listen must be HOST:PORT")
    receiver = ReportReceiver(host, int(port))
    try:
        yield receiver
    finally:
        receiver.close()


def _official(kubeconfig: Path | None, context: str | None) -> PodApi:
    """The official client, by the kubeconfig, or in a pod by its service account."""
    from kubernetes import client, config  # 0.12 s, which other commands need not wait
    from kubernetes.config.config_exception import ConfigException

    configuration = client.Configuration()
    try:
        config.load_kube_config(str(kubeconfig) if kubeconfig else None, context, configuration)
    except ConfigException as error:
        if kubeconfig or context:
            raise click.ClickException(str(error)) from error
        try:
            config.load_incluster_config(configuration)
        except ConfigException:
            raise click.ClickException(str(error)) from error
    return cast(PodApi, client.CoreV1Api(client.ApiClient(configuration)))


class _Telemetry:
    """The use of a pod's GPU as Prometheus or a file says."""

    def __init__(self, source: str, namespace: str) -> None:
        self._source, self._namespace = source, namespace

    def __call__(self, pod: str) -> Use:
        try:
            readings = asyncio.run(self._read())
        except telemetry.SourceError as error:
            raise ProbeError(f"{self._source}: {error}") from error
        for each in readings:
            if each.namespace == self._namespace and each.pod == pod:
                return Use(round(100 * (each.gpu or 0.0)), round(each.gpu_memory or 0.0))
        return Use()

    async def _read(self) -> list[telemetry.Reading]:
        source = telemetry.open_source(self._source)
        try:
            return await source.read()
        finally:
            await source.close()
