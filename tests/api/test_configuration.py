"""Kueue's configuration file, as shipped and as bent."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import gangline.control
import gangline.engine
from gangline.api.read import configuration
from gangline.api.read.configuration import ManagedJobs, gate_table, metrics_settings, multikueue, resources, sections
from gangline.api.read.configuration.gates import Gates
from gangline.api.read.configuration.managed_jobs import FRAMEWORKS
from gangline.api.read.configuration.manager import LeaseSettings, Manager
from gangline.api.read.configuration.metrics_settings import LONGEST_VALUE, UNTRACKED, MetricsSettings
from gangline.api.read.configuration.versions import VERSIONS
from gangline.control.nodes.recovery import stuck_pods, unhealthy_nodes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Resource

Json = dict[str, Any]
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


V1BETA1 = {"apiVersion": "config.kueue.x-k8s.io/v1beta1"}


def settings(**body: object) -> model.Settings:
    return configuration.load(body).settings


def as_of(version: str, **body: object) -> configuration.Configuration:
    return configuration.load({**body, "gangline": {"kueueCompatibility": version}})


def test_v1beta1_needs_its_switches() -> None:
    for body in ({}, {"fairSharing": {}, "waitForPodsReady": {"timeout": "1m"}}, {"fairSharing": {"enable": False}}):
        assert settings(**V1BETA1, **body).fair_sharing is None
        assert settings(**V1BETA1, **body).pods_ready is None
    on = settings(**V1BETA1, fairSharing={"enable": True}, waitForPodsReady={"enable": True})
    assert on.fair_sharing == model.FairSharing()
    assert on.pods_ready == model.PodsReadyPolicy(timeout_seconds=300.0, block_admission=True)
    open_door = settings(**V1BETA1, waitForPodsReady={"enable": True, "blockAdmission": False, "timeout": "1m"})
    assert open_door.pods_ready == model.PodsReadyPolicy(timeout_seconds=60.0)


def test_v1beta2_is_switched_by_its_sections() -> None:
    assert settings(fairSharing={}).fair_sharing == model.FairSharing()
    assert settings().fair_sharing is None
    assert settings().pods_ready == model.PodsReadyPolicy()
    assert settings(featureGates={"DisableWaitForPodsReady": True}, waitForPodsReady={}).pods_ready is None
    # of earlier versions of Gangline
    taken = configuration.load({"waitForPodsReady": {"enable": False}})
    assert taken.settings.pods_ready is None
    assert "which Kueue refuses in v1beta2" in taken.warnings[0]


def test_the_limit_for_unscheduled_pods_is_off_unless_it_is_given_and_within_the_timeout() -> None:
    def limit(given: Any) -> float | None:
        ready = settings(waitForPodsReady={"timeout": "10m", **given}).pods_ready
        assert ready is not None
        return ready.unscheduled_seconds

    assert [limit({}), limit({"unscheduledTimeout": "0s"}), limit({"unscheduledTimeout": "5m"})] == [None, None, 300]
    with pytest.raises(configuration.ConfigurationError, match=r"unscheduledTimeout: must not exceed"):
        limit({"unscheduledTimeout": "11m"})


def test_what_holds_without_a_section_depends_on_the_version() -> None:
    assert [as_of(version).settings.pods_ready is not None for version in VERSIONS] == [False] * 4 + [True] * 2
    old = as_of("0.15", waitForPodsReady={"timeout": "5m"}).settings.pods_ready
    assert old is not None
    assert old.recovery_timeout_seconds is not None
    assert old.recovery_timeout_seconds > 1e8, "Kueue 0.15 waits for ever"
    assert as_of("0.16", waitForPodsReady={"timeout": "5m"}).settings.pods_ready == model.PodsReadyPolicy(300.0)
    with pytest.raises(configuration.ConfigurationError, match=r"waitForPodsReady\.timeout: must be specified"):
        as_of("0.18", waitForPodsReady={})
    assert as_of("0.20").settings == model.Settings()
    assert not as_of("0.17").settings.gates["SchedulingEquivalenceHashing"]
    assert [as_of(version).jobs.priority_by_default for version in VERSIONS] == [False] * 5 + [True]
    assert as_of("0.18", featureGates={"WorkloadPriorityClassDefaulting": True}).jobs.priority_by_default
    assert [as_of(version).gates.on("UnadmittedWorkloadsObservability") for version in VERSIONS] == [False] * 5 + [True]


def test_gates_that_gangline_cannot_follow_are_told() -> None:
    wanted = {
        "ShortWorkloadNames": True,
        "VisibilityOnDemand": False,
        "TASCacheTopologyTree": False,
        "PriorityBoost": True,
    }
    chosen = configuration.load({"featureGates": wanted})
    assert chosen.warnings == (
        "featureGates.ShortWorkloadNames=true has no effect: Gangline does not have what it switches on",
        "featureGates.VisibilityOnDemand=false has no effect: what it switches off is always on in Gangline",
    )
    assert chosen.settings.gates == {"PriorityBoost": True}
    assert (
        configuration.load({"featureGates": {"ShortWorkloadNames": False, "VisibilityOnDemand": True}}).warnings == ()
    )
    all_alpha = configuration.load({"featureGates": {"AllAlpha": True, "TASBalancedPlacement": False}})
    assert all_alpha.gates.on("PriorityBoost")
    assert not all_alpha.gates.on("TASBalancedPlacement")
    assert all_alpha.warnings == ("featureGates.AllAlpha: holds for the gates that Gangline reads",)


def test_gates_that_are_off_take_their_section_along() -> None:
    off = settings(
        featureGates={"AdmissionFairSharing": False, "QuotaCheckStrategy": False},
        admissionFairSharing={"usageHalfLifeTime": "1h"},
        resources={"quotaCheckStrategy": "IgnoreUndeclared"},
    )
    assert off.admission_fair_sharing is None
    assert not off.ignore_undeclared_resources


def test_the_table_of_gates() -> None:
    for name, (states, does) in gate_table.GATES.items():
        assert re.fullmatch(r"(?:(?:\.|[abgd][+-]!?) ){5}(?:\.|[abgd][+-]!?)", states), name
        assert does in (gate_table.READ, gate_table.ON, gate_table.OFF, gate_table.NEITHER)
    required = {other for others in gate_table.REQUIRES.values() for other in others}
    assert {*gate_table.REQUIRES, *required, *configuration.GATES} <= gate_table.GATES.keys()
    assert all(gate_table.GATES[name][1] == gate_table.READ for name in configuration.GATES)
    assert {name for name in configuration.GATES if Gates().on(name) != (name not in OFF_WITHOUT_SETTINGS)} == set()


#: as the engine and the metrics take them without settings
OFF_WITHOUT_SETTINGS = {
    "ConcurrentAdmission",
    "ElasticJobsViaWorkloadSlicesWithTAS",
    "FailureRecoveryPolicy",
    "CustomMetricLabels",
    "MultiKueueAllowInsecureKubeconfigs",
    "MultiKueueClusterProfile",
    "MultiKueueManagerQuotaAutomation",
    "MultiKueueOrchestratedPreemption",
    "PrioritizePreemptorWorkloads",
    "PriorityBoost",
    "TASBalancedPlacement",
    "TASReplaceNodeDueToNotReadyOverFixedTime",
    "TASRespectNodeAffinityPreferred",
    "UnadmittedWorkloadsExplicitStatus",
}


def test_which_jobs_are_managed() -> None:
    usual = configuration.load(None).jobs
    assert usual.unlisted == frozenset(FRAMEWORKS.values()) - {("batch", "Job"), ("jobset.x-k8s.io", "JobSet")}
    assert usual == ManagedJobs(unlisted=usual.unlisted)
    assert usual.kind("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert not usual.asks_namespace(queued=False)
    chosen = configuration.load(
        {
            "manageJobsWithoutQueueName": True,
            "managedJobsNamespaceSelector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["dev"]}],
            },
            "integrations": {
                "frameworks": ["batch/job", "ray.io/rayjob", "sparkoperator.k8s.io/sparkapplication", "statefulset"]
            },
        }
    )
    jobs = chosen.jobs
    assert jobs.without_queue
    assert jobs.namespace({"team": "a"})
    assert not jobs.namespace({"team": "a", "stage": "dev"})
    assert not jobs.namespace({})
    assert jobs.asks_namespace(queued=True)
    assert not jobs.kind("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert jobs.kind("batch/v1", "Job")
    assert jobs.kind("ray.io/v1", "RayJob")
    assert not jobs.kind("ray.io/v1", "RayCluster")
    assert jobs.kind("gangline.io/v1alpha1", "GPUJob")
    assert jobs.kind("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    assert chosen.warnings == ()
    assert (jobs.pods, jobs.pods_of) == (False, {"statefulset"})
    assert chosen.ignored == ()
    gate = {"ManagedJobsNamespaceSelectorAlwaysRespected": False}
    selector = {"managedJobsNamespaceSelector": {"matchLabels": {"team": "a"}}}
    older = as_of("0.18", **selector, featureGates=gate).jobs
    assert not older.asks_namespace(queued=True)
    assert older.asks_namespace(queued=False)


def test_fields_that_are_as_usual_need_no_effect() -> None:
    usual = {"webhook": {"port": 9443}, "internalCertManagement": {"enable": True}}
    assert configuration.load(usual).ignored == ()
    other = {"webhook": {"port": 443}, "internalCertManagement": {"enable": False}, "pprofBindAddress": ":6060"}
    assert configuration.load(other).ignored == ("internalCertManagement.enable", "pprofBindAddress", "webhook.port")


def test_texts_are_parsed_as_kueue_does() -> None:
    assert configuration.parse("a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}
    for text, words in (
        ("a: 1\nb: 2\na: 3", "line 3: the field 'a' is there twice"),
        ("a: [", "it cannot be read"),
        ("- " * 20_000, "it cannot be read"),
        ("x" * 2_000_000, "longer than"),
    ):
        with pytest.raises(configuration.ConfigurationError, match=words):
            configuration.parse(text)


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
    assert found.annotations_to_copy == ("note",), "and the annotation"
    assert (off.annotations_to_copy, found.ignored) == ((), ())
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
        ({"kind": "Deployment"}, "kind"),
        ({"multiKueue": {"origins": "x"}}, "multiKueue.origins: there is no such field"),
        ({"tls": {"minVersion": 3}}, "tls.minVersion: a text"),
        (
            {"controller": {"groupKindConcurrency": {"Job.batch": "5"}}},
            "groupKindConcurrency.Job.batch: a whole number",
        ),
        ({"clientConnection": {"qps": float("nan")}}, "clientConnection.qps: a number"),
        ({"clientConnection": {"burst": 10**30}}, "clientConnection.burst: a whole number"),
        ({"integrations": {"labelKeysToCopy": ["team", "-x"]}}, r"integrations.labelKeysToCopy\[1\]"),
        ({"integrations": {"labelKeysToCopy": "team"}}, "integrations.labelKeysToCopy: a list"),
        ({"integrations": {"frameworks": ["batch/jobs"]}}, r"integrations.frameworks\[0\]: 'batch/jobs' is not one of"),
        ({"integrations": {"frameworks": ["pod", "pod"]}}, r"integrations.frameworks\[1\]: pod is listed twice"),
        ({"integrations": {"frameworks": ["kubeflow.org/mxjob"]}}, "Kueue has had no MXJob since 0.11.*Take it out"),
        ({"integrations": {"podOptions": {}}}, "integrations.podOptions: there is no such field"),
        ({"managedJobsNamespaceSelector": {}}, 'should not match the "kube-system" namespace'),
        ({"managedJobsNamespaceSelector": {"matchLabels": {"a b": "c"}}}, "matchLabels: a label's key"),
        ({"managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "values: must be"),
        ({"manageJobsWithoutQueueName": "yes"}, "manageJobsWithoutQueueName: true or false"),
        ({"featureGates": {"Foo": True}}, "unrecognized feature gate: Foo"),
        ({"featureGates": {"LendingLimit": True}}, 'Kueue had it up to 0.18.*kueueCompatibility: "0.18"'),
        ({"featureGates": {"TLSOptions": False}}, "cannot set feature gate TLSOptions to false.* locked to true"),
        ({"featureGates": {"TopologyAwareScheduling": False}}, "requires TopologyAwareScheduling to be enabled"),
        ({"gangline": {"kueueCompatibility": 0.19}}, 'gangline.kueueCompatibility: one of "0.15"'),
        ({"gangline": {"kueueCompatibility": "0.14"}}, "gangline.kueueCompatibility"),
        ({**V1BETA1, "waitForPodsReady": {"enable": True, "timeout": "0s"}}, "waitForPodsReady.timeout: must be"),
        ({"metrics": {"localQueueMetric": {}}}, "metrics.localQueueMetric"),
        ({"metrics": {"enableClusterQueueResources": "yes"}}, "metrics.enableClusterQueueResources"),
        (selecting(matchLabels={"a b": "x"}), r"localQueueSelector.matchLabels: a label's key is wanted, not 'a b'"),
        (selecting(matchLabels={"a": 1}), r"localQueueSelector.matchLabels.a: a text"),
        (selecting(matchLabels={"a" * 500: "x"}), "a label's key is wanted"),
        (
            selecting(matchExpressions=[{"key": "a", "operator": "In"}]),
            r"matchExpressions\[0\].values: must be specified",
        ),
        (selecting(matchExpressions=[{"key": "a", "operator": "Like"}]), r"matchExpressions\[0\].operator"),
        (selecting(matchExpressions=[{"key": "a", "operator": "Exists", "values": ["b"]}]), "may not be specified"),
        (selecting(matchExpressions=[{}]), r"matchExpressions\[0\].key"),
        (labelling({"name": "1st"}), r"customLabels\[0\].name"),
        (labelling({"name": "a_"}), r"customLabels\[0\].name: 'a_' is no key"),
        (labelling({"name": "a", "sourceLabelKey": "b", "sourceAnnotationKey": "c"}), "exclude each other"),
        (labelling({"name": "a", "sourceKind": "Pod"}), r"customLabels\[0\].sourceKind"),
        (labelling({"name": "a"}, {"name": "a", "sourceKind": "Cohort"}), "'a' is there twice"),
        (labelling({"name": "a", "sourceKind": "Workload"}), "trackedValues: a label from Workloads lists"),
        (labelling({"name": "a", "sourceKind": "Workload", "trackedValues": list("abcdefghijklm")}), "at most 12"),
        (labelling({"name": "a", "trackedValues": ["x", "x"]}), "a value is there twice"),
        (labelling({"name": "a", "trackedValues": [["x"]]}), r"trackedValues\[0\]: a text"),
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


def test_the_gates_that_are_named_are_those_that_are_read() -> None:
    rooms = (gangline.engine, gangline.control)
    sources = [path.read_text() for room in rooms for path in Path(str(room.__file__)).parent.rglob("*.py")]
    found = {name for text in sources for name in re.findall(r'(?:gates\.get|_gate)\(\s*"(\w+)"', text)}
    by_metrics = set(re.findall(r'\bon\("(\w+)"', Path(metrics_settings.__file__).read_text()))
    assert by_metrics == metrics_settings.GATES
    named = {*resources.GATES, stuck_pods.GATE, unhealthy_nodes.GATE, sections.GATE, *multikueue.GATES}
    assert found | named | by_metrics == configuration.GATES


def test_how_workloads_are_sent_to_other_clusters() -> None:
    assert configuration.load({}).multikueue == multikueue.USUAL
    section = {
        "gcInterval": "0s",
        "origin": "east",
        "workerLostTimeout": "1m",
        "dispatcherName": multikueue.INCREMENTAL,
        "incrementalDispatcherConfig": {"stepSize": 5},
        "externalFrameworks": [{"name": "Policy.v1beta1.example.com"}],
    }
    gates = {"MultiKueueKubeConfigPathValidation": False, "MultiKueueIncrementalDispatcherRespectConfigOrder": False}
    chosen = configuration.load({"namespace": "kueue", "multiKueue": section, "featureGates": gates})
    assert chosen.ignored == chosen.warnings == ()
    assert chosen.multikueue == multikueue.MultiKueueSettings(
        gc_interval=0.0,
        origin="east",
        worker_lost_timeout=60.0,
        dispatcher=multikueue.INCREMENTAL,
        step=5,
        in_listed_order=False,
        paths_checked=False,
        external=(Resource("example.com", "v1beta1", "policies", kind="Policy"),),
        namespace="kueue",
    )
    assert not configuration.load({"featureGates": {"MultiKueue": False}}).multikueue.enabled
    older = {"multiKueue": section, "gangline": {"kueueCompatibility": "0.18"}}
    assert configuration.load(older).multikueue.step == multikueue.STEP, "before the gate there was no field"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"origin": "a b"}, r"multiKueue\.origin: 'a b' cannot be the value of a label"),
        ({"workerLostTimeout": "-1s"}, r"multiKueue\.workerLostTimeout: .*is negative"),
        ({"incrementalDispatcherConfig": {"stepSize": 2}}, "is only for multiKueue.dispatcherName"),
        (
            {"dispatcherName": multikueue.INCREMENTAL, "incrementalDispatcherConfig": {"stepSize": 0}},
            "stepSize: a whole number from 1",
        ),
    ],
)
def test_mistakes_about_other_clusters_are_named(section, words):
    with pytest.raises(configuration.ConfigurationError, match=words):
        configuration.load({"multiKueue": section})


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


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["TrainingRun"], r"externalFrameworks\[0\].name: 'TrainingRun' is not of the form Kind.version.group"),
        (["Deployment.v1.apps"], "a Deployment of apps runs in its own cluster only"),
        (["Run.v1.example.com", "Run.v1.example.com"], r"\[1\].name: Run.v1.example.com is named twice"),
        (["GPUJob.v1alpha1.gangline.io"], "a GPUJob of gangline.io runs in its own cluster only"),
        (["Workload.v1beta2.kueue.x-k8s.io"], "runs in its own cluster only"),
        (["A" * 400], "is longer than 384 characters"),
        ([f"Run{i}.v1.example.com" for i in range(33)], "at most 32 kinds"),
    ],
)
def test_kinds_that_cannot_be_sent_are_refused_by_name(names: list[str], words: str) -> None:
    with pytest.raises(configuration.ConfigurationError, match=words):
        configuration.load({"multiKueue": {"externalFrameworks": [{"name": name} for name in names]}})


def test_a_named_kind_that_is_declared_can_be_sent() -> None:
    kind = {
        "group": "example.com",
        "version": "v1",
        "kind": "Run",
        "plural": "running",
        "pods": [{"template": "spec.template"}],
        "ready": {"condition": "Ready"},
        "running": {"condition": "Running"},
    }
    root = {"integrations": {"declared": [kind]}}
    assert multikueue.sent(*_managed(root)) == [kube.JOBS, kube.JOB_SETS]
    root["multiKueue"] = {"externalFrameworks": [{"name": "Run.v1.example.com"}, {"name": "Other.v1.example.com"}]}
    chosen = configuration.load(root)
    [declared] = chosen.jobs.declared
    assert declared.managed_by == ("spec", "managedBy")
    other = Resource("example.com", "v1", "others", kind="Other")
    assert chosen.multikueue.external == (declared.resource, other)
    assert multikueue.sent(*_managed(root)) == [kube.JOBS, kube.JOB_SETS, declared.resource, other]


def test_kinds_that_are_managed_and_name_their_controller_are_sent() -> None:
    listed = {"integrations": {"frameworks": ["ray.io/rayjob", "kubeflow.org/pytorchjob", "pod"]}}
    assert {each.kind for each in multikueue.sent(*_managed(listed))} == {"RayJob", "PyTorchJob", "Pod"}
    named = {"multiKueue": {"externalFrameworks": [{"name": "RayJob.v1.ray.io"}]}}
    assert [each.kind for each in multikueue.sent(*_managed(named))] == ["Job", "JobSet", "RayJob"]
    serving = {"integrations": {"frameworks": ["deployment", "statefulset"]}}
    assert [each.kind for each in multikueue.sent(*_managed(serving))] == ["Pod", "StatefulSet"], "pods of Deployments"


def test_without_its_gate_no_other_kind_is_sent_and_that_is_said() -> None:
    root = {
        "multiKueue": {"externalFrameworks": [{"name": "Run.v1.example.com"}]},
        "featureGates": {"MultiKueueAdaptersForCustomJobs": False},
    }
    chosen = configuration.load(root)
    assert chosen.multikueue.external == ()
    [warning] = chosen.warnings
    assert "multiKueue.externalFrameworks has no effect" in warning


def _managed(root: Json) -> tuple[configuration.ManagedJobs, multikueue.MultiKueueSettings]:
    chosen = configuration.load(root)
    return chosen.jobs, chosen.multikueue


def test_resources_in_place_of_kinds_are_taken_with_a_warning() -> None:
    """A distribution's operator writes them so; Kueue takes them for kinds that no object has."""
    names = ["pipelineruns.v1.tekton.dev", "pipelineruns.tekton.dev", "PipelineRun.v1.tekton.dev"]
    chosen = configuration.load(
        {
            "integrations": {"externalFrameworks": names},
            "multiKueue": {"externalFrameworks": [{"name": names[0]}]},
        }
    )
    assert [each.kind for each in chosen.jobs.external] == ["PipelineRun"]
    assert chosen.multikueue.external == ()
    warned = [text for text in chosen.warnings if "has no effect: write the kind" in text]
    assert [text.partition(":")[0] for text in warned] == [
        "integrations.externalFrameworks[0]",
        "integrations.externalFrameworks[1]",
        "multiKueue.externalFrameworks[0].name",
    ]


def test_a_kueue_in_a_namespace_of_another_name_excludes_its_own() -> None:
    """Kueue takes its pod's namespace for `namespace`: its file does not name kueue-system."""

    def load(*excluded: str, **more: str) -> configuration.Configuration:
        row = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(excluded)}
        return configuration.load({"managedJobsNamespaceSelector": {"matchExpressions": [row]}, **more})

    chosen = load("kube-system", "gpustack-system")
    assert not chosen.jobs.namespace({"kubernetes.io/metadata.name": "gpustack-system"})
    assert any("selects kueue-system" in text and "write that one as `namespace`" in text for text in chosen.warnings)
    assert load("kube-system", "kueue-system").warnings == ()
    with pytest.raises(configuration.ConfigurationError, match='should not match the "mine" namespace'):
        load("kube-system", "kueue-system", namespace="mine")


def test_a_block_string_is_the_file_itself() -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {}\n"
    assert configuration.parse(yaml.safe_dump(text)) == configuration.parse(text)
