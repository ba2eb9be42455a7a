"""Every row of the tables of systems in docs/placement.md has tests that are named here, and there are such tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
HEAD: Final = "| system | its part here is played by |"

#: how the first cell of a row begins -> file and tests
TESTS: Final[dict[str, tuple[str, ...]]] = {
    # placing
    "topology awareness for edge": ("engine/test_placement_rows.py::test_n4_topology_awareness",),
    "same-image batch scheduling": (
        "engine/test_placement_rows.py::test_c1_same_image",
        "engine/test_placing.py::test_c1",
    ),
    "Coscheduling plugin": ("engine/test_placement_rows.py::test_c2_coscheduling",),
    "kube-batch": ("engine/test_placement_rows.py::test_c3_kube_batch",),
    "whole GPUs, the device": ("engine/test_placement_rows.py::test_k9_whole_gpus",),
    "JobSet's exclusive": ("engine/test_placement_rows.py::test_exclusive_domains",),
    "FGD": ("engine/test_placing.py::test_fgd", "engine/test_placement_policy.py::test_fragmentation"),
    "YuniKorn": ("engine/test_placing.py::test_c7_yunikorn", "engine/test_placement_policy.py::test_pack_fills"),
    "NAS and network": ("engine/test_placing.py::test_n3_nas",),
    "NBWGuard": ("engine/test_placing.py::test_n1_nbwguard",),
    "RDMA bandwidth": ("engine/test_room_filters.py::test_n2_rdma", "engine/test_placement_filters.py::test_rdma_is"),
    "data locality": ("engine/test_placing.py::test_c9", "engine/test_placement_filters.py::test_c9"),
    "image locality": ("engine/test_placing.py::test_c1_image", "engine/test_placement_filters.py::test_c1_image"),
    "policies measured by Kim and Kim (KNOM 2020): Binpacking": (
        "control/test_knom2020.py::test_k1_binpacking",
        "control/test_knom2020.py::test_k1_by_the_scorer_cardpack",
    ),
    "policies measured by Kim and Kim (KNOM 2020): Standalone": (
        "control/test_knom2020.py::test_k2_standalone",
        "engine/test_room_filters.py::test_k2_memsafe",
    ),
    "policies measured by Kim and Kim (KNOM 2020): Load": ("control/test_knom2020.py::test_k3_load_balancing",),
    "pinning cards": ("control/test_knom2020.py::test_k4_card_pinning", "engine/test_share_names.py::test_k4"),
    "GAIA": ("engine/test_cards.py::test_g1_gaia", "engine/test_card_admission.py::test_g1_gaia"),
    "gpushare: one card": ("engine/test_cards.py::test_g2_gpushare", "engine/test_placing.py::test_g2_gpushare"),
    "KubeShare": ("engine/test_share_names.py::test_g3_kubeshare", "control/test_knom2020.py::test_g3_kubeshare"),
    "QoS classes": ("engine/test_cards.py::test_i1_qos", "engine/test_card_admission.py::test_i1_qos"),
    "scheduler extenders": (
        "control/test_placing.py::test_filter_says_whom",
        "control/test_placing.py::test_prioritize_orders_as_the_engine_does",
    ),
    "scheduling-framework plugins": (
        "control/test_placing.py::test_an_installed_package_is_found",
        "engine/test_placement_filters.py::test_scorers_of_users_decide",
    ),
    "an edited kube-scheduler": (
        "jobs/test_podspec.py::test_e3_the_scheduler_of_a_job_is_the_one_that_its_author_chose",
    ),
    "labels, affinity and annotations": ("cluster/test_placement_policy.py::test_pods_go_where_the_policy_says",),
    "edge context": ("engine/test_placement_filters.py::test_l1_edge",),
    "Trimaran's TargetLoadPacking": ("engine/test_placement_filters.py::test_l3",),
    "Trimaran's LoadVariation": ("engine/test_placement_filters.py::test_l4",),
    "Intel TAS": ("engine/test_placement_filters.py::test_l5_intel_tas", "control/test_telemetry_rules.py::test_l5"),
    "Co-scheML": (
        "engine/test_interference.py::test_known_good_pairs",
        "engine/test_pair_speeds.py::test_a_few_samples_are_drawn_to_the_prior",
        "console/test_probe.py::test_each_class_runs_alone_and_in_pairs",
    ),
    "power and heat": ("engine/test_power.py::test_a_rack_takes_pods", "engine/test_power.py::test_thermal"),
    "fewer watts": ("engine/test_power.py::test_green_wakes_no_node",),
    "users by demand": (
        "engine/test_demand.py::test_whose_local_queue_asks_for_more",
        "engine/test_order_changes.py::test_c4",
    ),
    "sorting in busy hours": ("engine/test_order_changes.py::test_c5", "api/test_order_fields.py::test_c5"),
    "priority by waiting time": ("engine/test_order_changes.py::test_the_response_ratio_rises",),
    "phases of a training": ("control/test_phases.py::test_g6", "engine/test_victim_choice.py::test_g6"),
    "CPU or GPU": ("engine/test_flavor_choice.py::test_g4_kubcg", "cluster/test_flavor_choice.py::test_a_job_waits"),
    "runtimes by device": ("forecast/test_flavor_runs.py::test_many_runs_of_the_same_work_show_its_speed",),
    "swarm search": ("engine/test_placement_search.py::test_l2",),
    # sharing
    "whole GPUs": ("api/test_sharing.py::test_row_whole",),
    "HAMi": ("api/test_sharing.py::test_row_hami",),
    "KAI": ("api/test_sharing.py::test_row_kai",),
    "several virtual servers": ("api/test_sharing.py::test_row_time_slices",),
    "MIG": ("api/test_sharing.py::test_row_mig", "engine/test_cards.py::test_mig_instances"),
    "Tencent": ("api/test_sharing.py::test_row_tencent",),
    "DRA: capacity": ("api/test_sharing.py::test_row_dra",),
    "any kind of job": ("api/test_sharing.py::test_own_annotations",),
    "gpushare: a card": ("control/test_inventory.py::test_row_g2_a_pod",),
    "parts of GPUs": ("jobs/test_gpu_shares.py::test_hami_divides", "jobs/test_gpu_shares.py::test_kais_pods"),
    "two gangs share a card": (
        "cluster/test_cards.py::test_two_gangs_share",
        "cluster/test_cards.py::test_cards_decide",
    ),
    "the same with claims": ("cluster/test_card_crash.py::test_killed_before_every_write",),
    "a claim for the chosen card": ("cluster/test_gpujob_claims.py::test_each_pod_gets_the_card",),
    "a driver replaces": ("control/test_inventory.py::test_a_driver_that_starts_again",),
    "cards and who sits": ("control/test_inventory.py::test_nodes_show_their_cards",),
}


def rows() -> Iterator[str]:
    """The rows of the tables of systems."""
    inside = False
    for line in (ROOT / "docs" / "placement.md").read_text().splitlines():
        inside = line.startswith(HEAD) or (inside and line.startswith("|"))
        if inside and not line.startswith((HEAD, "|---")):
            yield line


def beginning(row: str) -> str | None:
    """The longest of the beginnings that a row has."""
    name = row.removeprefix("| ")
    return max((each for each in TESTS if name.startswith(each)), key=len, default=None)


def test_every_row_has_tests_and_no_cell_is_empty() -> None:
    found = list(rows())
    assert len(found) > 50
    assert [row for row in found if beginning(row) is None] == [], "name its tests above"
    assert [row for row in found if any(not cell.strip() for cell in row.strip("|").split("|"))] == []
    assert {beginning(row) for row in found} == set(TESTS), "a row is gone"


@pytest.mark.parametrize("test", sorted({test for tests in TESTS.values() for test in tests}))
def test_there_is_such_a_test(test: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / "tests" / file).read_text()
    assert re.search(rf"^(async )?def {name}", text, re.MULTILINE), test
