"""Kueue's configuration file, as shipped and as bent."""

import re
from pathlib import Path

import pytest
import yaml

import gangline.control
import gangline.engine
from gangline.api.read import configuration
from gangline.api.read.configuration import resources
from gangline.api.read.configuration.manager import LeaseSettings, Manager
from gangline.engine import model

SHIPPED = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
controller: {groupKindConcurrency: {Job.batch: 5}}
clientConnection: {qps: 50, burst: 100}
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset], labelKeysToCopy: [team]}
"""


def test_the_shipped_file_means_the_defaults() -> None:
    loaded = configuration.load(yaml.safe_load(SHIPPED))
    assert loaded.settings == model.Settings()
    assert loaded.labels_to_copy == ("team",)
    assert "controller" in loaded.ignored
    assert loaded.process == Manager(leader_election=True, probes=("", 8081), metrics=("", 8443))
    assert str(loaded.process.lease) == "kueue-system/c1f6bfd2.kueue.x-k8s.io"
    assert "webhook" not in loaded.ignored


def test_nothing_is_a_configuration_too() -> None:
    assert configuration.load(None).settings == model.Settings()


def test_everything_that_decides() -> None:
    settings = configuration.load(
        yaml.safe_load("""
        fairSharing: {preemptionStrategies: [LessThanInitialShare]}
        admissionFairSharing: {usageHalfLifeTime: 168h, resourceWeights: {nvidia.com/gpu: 2}}
        waitForPodsReady:
          timeout: 5m
          blockAdmission: true
          requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3, backoffBaseSeconds: 10}
        resources: {quotaCheckStrategy: IgnoreUndeclared}
        featureGates: {PartialAdmission: false}
        """)
    ).settings
    assert settings.fair_sharing == model.FairSharing(("LessThanInitialShare",))
    assert settings.admission_fair_sharing == model.AdmissionFairSharing(604800.0, 300.0, {"nvidia.com/gpu": 2.0})
    assert settings.pods_ready == model.PodsReadyPolicy(
        timeout_seconds=300.0, block_admission=True, timestamp="Creation", backoff_limit=3, backoff_base_seconds=10
    )
    assert settings.ignore_undeclared_resources
    assert settings.gates == {"PartialAdmission": False}


def test_the_process() -> None:
    loaded = configuration.load(
        yaml.safe_load("""
        namespace: queueing
        leaderElection:
          {leaderElect: false, resourceLock: leases, resourceName: l, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 4s}
        health: {healthProbeBindAddress: "[::1]:81", readinessEndpointName: ready}
        metrics: {bindAddress: "0", enableClusterQueueResources: true}
        """)
    )
    lease = LeaseSettings("queueing", "l", 30.0, 20.0, 4.0)
    assert loaded.process == Manager(lease, leader_election=False, probes=("::1", 81), metrics=None)
    assert loaded.ignored == ("health.readinessEndpointName", "metrics.enableClusterQueueResources")
    other = configuration.load({"namespace": "queueing", "leaderElection": {"resourceNamespace": "elsewhere"}})
    assert str(other.process.lease) == "elsewhere/c1f6bfd2.kueue.x-k8s.io"
    assert configuration.load(None).process == Manager()


def test_v1beta1_switches() -> None:
    body = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "fairSharing": {"enable": False},
        "waitForPodsReady": {"enable": False},
    }
    settings = configuration.load(body).settings
    assert settings.fair_sharing is None
    assert settings.pods_ready is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"waitForPodReady": {}}, "waitForPodReady"),
        ({"apiVersion": "v1"}, "apiVersion"),
        ({"waitForPodsReady": {"timeout": "soon"}}, "waitForPodsReady.timeout"),
        ({"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Never"}}}, "requeuingStrategy.timestamp"),
        ({"fairSharing": {"preemptionStrategies": ["Random"]}}, "fairSharing.preemptionStrategies"),
        ({"featureGates": {"PartialAdmission": "yes"}}, "featureGates.PartialAdmission"),
        ({"admissionFairSharing": {"resourceWeights": {"cpu": -1}}}, "resourceWeights.cpu"),
        ({"resources": {"quotaCheckStrategy": "Maybe"}}, "resources.quotaCheckStrategy"),
        ([1], "the configuration"),
        ({"leaderElection": {"resourceLock": "endpoints"}}, "leaderElection.resourceLock"),
        ({"leaderElection": {"leaderElect": "yes"}}, "leaderElection.leaderElect"),
        ({"leaderElection": {"renewDeadline": "20s"}}, "leaderElection: leaseDuration > renewDeadline"),
        ({"leaderElection": {"resourcename": "l"}}, "leaderElection.resourcename"),
        ({"leaderElection": {"resourceName": ["l"]}}, "leaderElection.resourceName"),
        ({"metrics": {"bindAddress": "8443"}}, "metrics.bindAddress"),
        ({"metrics": {"bindAddress": ":99999"}}, "metrics.bindAddress"),
        ({"health": {"healthProbeBindAddress": 8081}}, "health.healthProbeBindAddress"),
        ({"health": {"bindAddress": ":8081"}}, "health.bindAddress"),
        ({"namespace": "n" * 1000}, "namespace"),
    ],
)
def test_what_is_wrong_is_named(body: object, field: str) -> None:
    with pytest.raises(configuration.ConfigurationError, match=field):
        configuration.load(body)


def test_what_node_conditions_mean_can_be_said():
    said = {
        "conditions": {"NvLinkDegraded": "DegradedDevice", "KernelDeadlock": "Ignore"},
        "grace": {"NotReady": "10s"},
    }
    found = configuration.load({"gangline": {"nodeHealth": said}}).settings.health
    assert found.conditions == said["conditions"]
    assert found.grace_seconds == {"NotReady": 10.0}
    assert configuration.load({}).settings.health == model.HealthPolicy()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"nodes": {}}, "gangline.nodes: there is no such field"),
        ({"nodeHealth": {"conditions": {"X": "Broken"}}}, "gangline.nodeHealth.conditions.X: Lost or Suspect"),
        ({"nodeHealth": {"grace": {"NotThere": "1s"}}}, "gangline.nodeHealth.grace.NotThere: there is no such signal"),
        ({"nodeHealth": {"grace": {"NotReady": "soon"}}}, "gangline.nodeHealth.grace.NotReady"),
    ],
)
def test_a_mistake_in_it_is_named(section, words):
    with pytest.raises(configuration.ConfigurationError, match=words):
        configuration.load({"gangline": section})


def test_the_gates_that_are_named_are_those_that_are_read() -> None:
    rooms = (gangline.engine, gangline.control)
    sources = [path.read_text() for room in rooms for path in Path(str(room.__file__)).parent.rglob("*.py")]
    found = {name for text in sources for name in re.findall(r'(?:gates\.get|_gate)\(\s*"(\w+)"', text)}
    assert found | resources.GATES.keys() == configuration.GATES


@pytest.mark.parametrize(
    ("written", "finished", "deactivated"),
    [
        ("{}", None, None),
        ("{workloads: {}}", None, None),
        ("{workloads: {afterFinished: 1h30m}}", 5400.0, None),
        ("{workloads: {afterFinished: 0s, afterDeactivatedByKueue: 10m}}", 0.0, 600.0),
    ],
)
def test_how_long_workloads_are_kept(written: str, finished: float | None, deactivated: float | None) -> None:
    loaded = configuration.load(yaml.safe_load(f"objectRetentionPolicies: {written}"))
    assert (loaded.retention.after_finished, loaded.retention.after_deactivated) == (finished, deactivated)
    assert loaded.ignored == ()


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("{workloads: {afterFinished: -1s}}", "objectRetentionPolicies.workloads.afterFinished: '-1s' is negative"),
        ("{workloads: {afterFinished: soon}}", "objectRetentionPolicies.workloads.afterFinished: "),
        ("{workloads: {afterFinished: 5}}", "objectRetentionPolicies.workloads.afterFinished: "),
        ("{workloads: {afterDone: 1s}}", "objectRetentionPolicies.workloads.afterDone: there is no such field"),
        ("{jobs: {}}", "objectRetentionPolicies.jobs: there is no such field"),
        ("{workloads: [1]}", "objectRetentionPolicies.workloads: a mapping is wanted"),
    ],
)
def test_retention_that_makes_no_sense_names_its_field(written: str, complaint: str) -> None:
    with pytest.raises(configuration.ConfigurationError) as caught:
        configuration.load(yaml.safe_load(f"objectRetentionPolicies: {written}"))
    assert str(caught.value).startswith(complaint)
