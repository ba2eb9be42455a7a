"""Kueue's configuration file, as shipped and as bent."""

import re
from pathlib import Path

import pytest
import yaml

import gangline.engine
from gangline.api.read import configuration
from gangline.api.read.configuration import metrics_settings
from gangline.api.read.configuration.manager import LeaseSettings, Manager
from gangline.api.read.configuration.metrics_settings import LONGEST_VALUE, UNTRACKED, MetricsSettings
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
    assert loaded.ignored == ("health.readinessEndpointName",)
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


def selecting(**selector: object) -> object:
    return {"metrics": {"localQueueMetrics": {"enable": True, "localQueueSelector": selector}}}


def labelling(*labels: object) -> object:
    return {"metrics": {"customLabels": list(labels)}}


def test_metrics_are_as_kueue_configures_them() -> None:
    assert configuration.load({}).metrics == MetricsSettings()
    body = {"metrics": {"enableClusterQueueResources": True, "localQueueMetrics": {}}, "integrations": None}
    chosen = configuration.load(body).metrics
    assert (chosen.cluster_queue_resources, chosen.local_queues) == (True, False), (
        "the section says itself that it is on"
    )
    selector = {
        "matchLabels": {"team": "x"},
        "matchExpressions": [{"key": "old", "operator": "NotIn", "values": ["yes"]}],
    }
    chosen = configuration.load(selecting(**selector)).metrics
    shown = [{"team": "x"}, {"team": "x", "old": "no"}, {"team": "x", "old": "yes"}, {"team": "y"}, {}]
    assert [chosen.shows({"metadata": {"labels": labels}}) for labels in shown] == [True, True, False, False, False]
    gates = dict.fromkeys(("MetricsForCohorts", "UnadmittedWorkloadsObservability"), False)
    off = configuration.load({"featureGates": {**gates, "LocalQueueMetrics": False}}).metrics
    assert (off.cohort_info, off.unadmitted, off.local_queues, off.hashes) == (False, False, False, True)


def test_labels_are_added_to_metrics_only_with_their_gate() -> None:
    rows = [
        {"name": "team", "sourceLabelKey": "example.com/team"},
        {"name": "size", "sourceKind": "Workload", "trackedValues": ["big", ""]},
        {"name": "note", "sourceKind": "Workload", "sourceAnnotationKey": "note", "trackedValues": ["x"]},
    ]
    body = {"metrics": {"customLabels": rows}, "integrations": {"labelKeysToCopy": ["a"]}}
    off = configuration.load(body)
    assert (off.metrics.custom_labels, off.labels_to_copy) == ((), ("a",))
    assert "metrics.customLabels (featureGates.CustomMetricLabels is off)" in off.ignored
    found = configuration.load({**body, "featureGates": {"CustomMetricLabels": True}})
    team, size, note = found.metrics.custom_labels
    assert found.labels_to_copy == ("a", "size"), "Workloads need the label"
    assert "metrics.customLabels[2] (annotations of jobs are not copied to Workloads)" in found.ignored
    workload = {"metadata": {"labels": {"size": "big", "example.com/team": "t" * 1000}, "annotations": {"note": "y"}}}
    assert (size.value(workload), note.value(workload)) == ("big", UNTRACKED)
    assert (len(team.value(workload)), size.value({"metadata": {}})) == (LONGEST_VALUE, "")


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
        ({"metrics": {"localQueueMetric": {}}}, "metrics.localQueueMetric"),
        ({"metrics": {"enableClusterQueueResources": "yes"}}, "metrics.enableClusterQueueResources"),
        (selecting(matchLabels={"a b": "x"}), r"localQueueSelector.matchLabels: 'a b' is no key"),
        (selecting(matchLabels={"a": 1}), r"localQueueSelector.matchLabels: a text"),
        (selecting(matchLabels={"a" * 500: "x"}), "is no key"),
        (selecting(matchExpressions=[{"key": "a", "operator": "In"}]), r"matchExpressions\[0\]: In and NotIn need"),
        (selecting(matchExpressions=[{"key": "a", "operator": "Like"}]), r"matchExpressions\[0\].operator"),
        (selecting(matchExpressions=[{"key": "a", "operator": "Exists", "values": ["b"]}]), "Exists and DoesNotExist"),
        (selecting(matchExpressions=[{}] * 101), "matchExpressions: a list of at most 100"),
        (labelling({"name": "1st"}), r"customLabels\[0\].name"),
        (labelling({"name": "a_"}), r"customLabels\[0\].name: 'a_' is no key"),
        (labelling({"name": "a", "sourceLabelKey": "b", "sourceAnnotationKey": "c"}), "exclude each other"),
        (labelling({"name": "a", "sourceKind": "Pod"}), r"customLabels\[0\].sourceKind"),
        (labelling({"name": "a"}, {"name": "a", "sourceKind": "Cohort"}), "'a' is there twice"),
        (labelling({"name": "a", "sourceKind": "Workload"}), "trackedValues: a label from Workloads lists"),
        (labelling({"name": "a", "sourceKind": "Workload", "trackedValues": list("abcdefghijklm")}), "at most 12"),
        (labelling({"name": "a", "trackedValues": ["x", "x"]}), "a value is there twice"),
        (labelling({"name": "a", "trackedValues": [["x"]]}), "trackedValues: a text"),
        (labelling(*({"name": f"a{n}"} for n in range(7))), "7 labels are from ClusterQueues, and at most 6"),
        (labelling(*({"name": f"a{n}"} for n in range(21))), "a list of at most 20"),
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


def test_the_gates_that_are_named_are_those_that_the_engine_and_metrics_read() -> None:
    sources = [path.read_text() for path in Path(gangline.engine.__file__).parent.rglob("*.py")]
    found = {name for text in sources for name in re.findall(r'(?:gates\.get|_gate)\(\s*"(\w+)"', text)}
    read_by_metrics = set(re.findall(r'\bon\("(\w+)"', Path(metrics_settings.__file__).read_text()))
    assert read_by_metrics == metrics_settings.GATES
    assert found | read_by_metrics == configuration.GATES
