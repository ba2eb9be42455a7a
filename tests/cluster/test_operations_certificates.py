"""docs/operations.md: certificates and tokens end while everything runs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.cluster import short_lives
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, flavor, job, local_queue

from gangline.control.answers.api import aggregated_api, api_service
from gangline.devcluster.certs import Authority, Pair
from gangline.devcluster.components import Layout
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.tls import certificates

pytestmark = pytest.mark.cluster
SECRET = ("gangline-system", "gangline-webhook-cert")


async def _queue(api: Api) -> None:
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))


class Asked:
    """Asks the same question all the time, and counts the answers."""

    def __init__(self, question: Callable[[], Awaitable[object]], period: float = 0.05) -> None:
        self.answers = 0
        self.troubles: list[str] = []
        self._question = question
        self._period = period

    async def __aenter__(self) -> Asked:
        self._task = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _ask(self) -> None:
        while True:
            try:
                await self._question()
                self.answers += 1
            except (ApiError, OSError) as error:
                self.troubles.append(f"{datetime.now(UTC):%X} {error!r}")
            await asyncio.sleep(self._period)


async def test_webhooks_change_certificates_and_cas_without_a_refused_request(system: System, api: Api) -> None:
    """Two replicas serve certificates of seconds; the CA changes, too, under a constant load of jobs."""
    await _queue(api)
    system.webhooks.stop()
    await api.client.delete(kube.SECRETS, *SECRET)
    served: set[bytes] = set()
    trusted: set[bytes] = set()

    async def create() -> None:
        found = await api.client.create(kube.JOBS, "default", job("load", "lq"), query={"dryRun": "All"})
        assert found["spec"]["suspend"]

    try:
        async with short_lives.replicas(system.webhooks.kubeconfig, system.directory) as (front, replicas):

            async def shake_hands() -> None:
                """As an API server does, which knows what is registered."""
                live = await api.client.get(kube.MUTATING_WEBHOOKS, None, "gangline")
                bundle = base64.b64decode(live["webhooks"][0]["clientConfig"]["caBundle"])
                context = ssl.create_default_context(cadata=bundle.decode())
                _, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=context)
                served.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
                trusted.add(bundle)
                writer.close()

            await api.until(lambda: _succeeds(create), "the API server calls the new registration")
            async with Asked(create) as created, Asked(shake_hands) as shaken:
                await api.until(lambda: _is(lambda: len(_alone(trusted)) >= 2), "a new CA is left alone", 60)
            assert not created.troubles and created.answers > 50, created.troubles[:5]
            assert not shaken.troubles and shaken.answers > 50, shaken.troubles[:5]
            assert len(served) >= 3
            assert len(trusted) > len(_alone(trusted)), "old and new CA at the same time"
            assert all(replica.log.count("serving certificate loaded") >= 3 for replica in replicas)
    finally:
        await api.client.delete(kube.SECRETS, *SECRET)
        await asyncio.to_thread(system.webhooks.start)
        await api.until(lambda: _succeeds(create), "the API server calls the former ones again")


def _alone(bundles: set[bytes]) -> set[bytes]:
    """The CAs that are trusted without another one."""
    return {bundle for bundle in bundles if bundle.count(b"BEGIN CERTIFICATE") == 1}


async def test_the_operators_login_is_renewed_while_it_works(system: System, api: Api, tmp_path: Path) -> None:
    """It logs in with a client certificate in files that another program renews. The first one lasts for 8 s."""
    account = "system:serviceaccount:gangline-system:gangline-operator"
    groups = ("system:serviceaccounts", "system:serviceaccounts:gangline-system", "system:authenticated")
    authority = Authority.load(Layout(system.plane.directory).certificates, "ca")
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, account)])

    def issue(seconds: float) -> None:
        now = datetime.now(UTC)
        life = certificates.Life(now - timedelta(minutes=1), now + timedelta(seconds=seconds))
        made = certificates.signed(authority.pair, subject, life, [ExtendedKeyUsageOID.CLIENT_AUTH])
        Pair(made.certificate, made.key).save(tmp_path, "client")

    issue(8)
    first_ends = datetime.now(UTC) + timedelta(seconds=8)
    asyncio.get_running_loop().call_later(5, issue, 600)  # whatever the operator does then
    config = yaml.safe_load(system.kubeconfig.read_text())
    config["users"][0]["user"] = {"client-certificate": "client.crt", "client-key": "client.key"}
    login = tmp_path / "kubeconfig"
    login.write_text(yaml.safe_dump(config))
    operator = system.operator("renewed", leader_election=True, login=login).wait_ready()
    await _queue(api)
    await api.create(job("before", "lq", runtime="300ms"))
    await api.finished("before")
    await asyncio.sleep(max(0.0, (first_ends - datetime.now(UTC)).total_seconds() + 1))
    await api.create(*(job(f"after-{number}", "lq", runtime="300ms") for number in range(4)))
    await api.finished(*(f"after-{number}" for number in range(4)))
    assert operator.process.is_alive()
    log = operator.log.read_text()
    assert "the certificates of the login have changed" in log
    assert "the operator ended" not in log


async def test_the_visibility_api_changes_certificates_and_the_aggregators_ca(system: System, api: Api) -> None:
    """Its own certificates last for seconds. Then the API server's front proxy gets one of another CA."""
    replaced = {**short_lives.LIVES, "gangline.control.answers.api.aggregated_api:PERIOD": short_lives.LOOK}
    visibility = aggregated_api.AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
    operator = system.operator("seen", replaced=replaced, visibility=visibility).wait_ready()
    await _queue(api)
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"
    bundles: set[str] = set()

    async def look() -> None:
        assert orjson.loads(await api.client.raw(path))["kind"] == "PendingWorkloadsSummary"
        service = await api.client.get(api_service.API_SERVICES, None, "v1beta2.visibility.kueue.x-k8s.io")
        bundles.add(service["spec"]["caBundle"])

    await api.until(lambda: _succeeds(look), "it is served")
    async with Asked(look) as looked:
        await api.until(lambda: _is(lambda: len(bundles) >= 3), "a new CA beside the old one, then alone", 60)
        await _change_front_proxy(system, api)
        answers = looked.answers
        await api.until(lambda: _is(lambda: looked.answers > answers + 20), "it is served to the new front proxy")
    assert not looked.troubles, looked.troubles[:5]
    assert operator.process.is_alive()


async def _change_front_proxy(system: System, api: Api) -> None:
    """As an administrator does it: both CAs are trusted first, then the API server gets the certificate of the new one."""
    layout = Layout(system.plane.directory)
    ca = layout.certificate("front-proxy-ca")
    new = Authority.create("gangline-new-front-proxy-ca")
    ca.write_bytes(ca.read_bytes() + new.pair.certificate)

    async def published() -> bool:
        found = await api.client.get(kube.CONFIG_MAPS, "kube-system", "extension-apiserver-authentication")
        return new.pair.certificate.decode().strip() in found["data"]["requestheader-client-ca-file"]

    await api.until(published, "the API server publishes both", 90)
    await asyncio.sleep(4 * short_lives.LOOK)
    new.issue_client("front-proxy-client").save(layout.certificates, "front-proxy")
    await asyncio.sleep(2)


async def _succeeds(question: Callable[[], Awaitable[object]]) -> bool:
    await question()
    return True


async def _is(what: Callable[[], bool]) -> bool:
    return what()
