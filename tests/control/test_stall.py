"""Evidence of hangs: what is enough, what outweighs it, and how a run gets from suspicion to action and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangline.api.read.policy_reader import StallPolicy
from gangline.control.nodes.stall.stall_verdict import RUNNING, STALLED, SUSPECT, StallEvidence, StallState, judge
from gangline.control.nodes.stall.stall_watch import PodTelemetry, with_telemetry
from gangline.telemetry import Reading

MINUTE = 60_000
SECOND = 1000
POLICY = StallPolicy()
#: a gang of 8 pods that has run for two hours
GANG = StallEvidence(running_for=120 * MINUTE, pods=8)


def idle(minutes: int, pods: int = 8) -> tuple[int, ...]:
    return (minutes * MINUTE,) * pods


# --- the four cases that the design names -----------------------------------------------------------------------------


def test_idle_for_16_minutes_with_a_heartbeat_is_no_stall() -> None:
    verdict = judge(replace(GANG, idle=idle(16), log_silence=16 * MINUTE, silence=MINUTE), POLICY)
    assert not verdict.suspect
    assert verdict.idle, "but somebody pays for idle GPUs"


def test_idle_for_16_minutes_without_heartbeat_or_log_is_acted_on() -> None:
    evidence = replace(GANG, idle=idle(16), log_silence=16 * MINUTE)
    verdict = judge(evidence, POLICY)
    assert verdict.suspect
    assert verdict.says == "the GPUs of all 8 pods idle for 16m, nothing in the logs for 16m"
    watch, now = StallState(), 0
    watch.follow(verdict, POLICY, now)
    assert watch.state == SUSPECT
    watch.follow(verdict, POLICY, now + POLICY.grace - 1)
    assert watch.state == SUSPECT
    watch.follow(verdict, POLICY, now + POLICY.grace)
    assert watch.state == STALLED


def test_a_frozen_step_counter_is_suspect_after_five_steps_however_busy_the_gpus_are() -> None:
    busy = replace(GANG, idle=(0,) * 8, median_step=4.0 * MINUTE)
    assert not judge(replace(busy, silence=19 * MINUTE), POLICY).suspect
    verdict = judge(replace(busy, silence=20 * MINUTE), POLICY)
    assert verdict.suspect
    assert verdict.signs == ("NoProgress",)


def test_one_idle_rank_of_eight_is_a_straggler() -> None:
    verdict = judge(replace(GANG, idle=(*idle(60, 1), *(0,) * 7), log_silence=16 * MINUTE), POLICY)
    assert not verdict.suspect
    assert verdict.stragglers == 1


# --- what is enough ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weak",
    [
        {"idle": idle(90)},
        {"log_silence": 90 * MINUTE},
        {"overdue": True},
        {"idle": idle(90), "kernel_age": idle(90), "low_power": idle(90)},
    ],
    ids=["idle", "logs", "overdue", "three of one kind"],
)
def test_one_kind_of_weak_evidence_is_never_enough(weak: dict[str, object]) -> None:
    assert not judge(replace(GANG, **weak), POLICY).suspect  # type: ignore[arg-type]


def test_two_kinds_of_weak_evidence_are() -> None:
    assert judge(replace(GANG, low_power=idle(15), overdue=True), POLICY).suspect


def test_a_dead_gpu_is_enough_and_a_harmless_error_is_not() -> None:
    assert judge(replace(GANG, xids=(79,)), POLICY).suspect
    assert not judge(replace(GANG, xids=(13,)), POLICY).suspect


def test_pods_that_are_not_measured_are_not_taken_for_idle() -> None:
    assert not judge(replace(GANG, idle=idle(60, 7), log_silence=60 * MINUTE), POLICY).suspect


def test_the_start_is_exempt() -> None:
    young = replace(GANG, running_for=POLICY.startup - 1, idle=idle(60), log_silence=60 * MINUTE)
    assert not judge(young, POLICY).suspect
    assert judge(replace(young, running_for=POLICY.startup), POLICY).suspect


def test_who_promised_a_heartbeat_and_never_gave_one_is_silent_from_the_start() -> None:
    promised = replace(GANG, heartbeat=20 * MINUTE, unreported=19 * MINUTE)
    assert not judge(promised, POLICY).suspect, "a process that has just begun has not listened for long"
    assert judge(replace(promised, unreported=20 * MINUTE), POLICY).suspect
    assert not judge(replace(GANG, silence=None), POLICY).suspect, "who promised nothing is not silent"


def test_silence_is_weak_evidence_while_the_pace_is_unknown() -> None:
    slow = replace(GANG, silence=25 * MINUTE)
    assert not judge(slow, POLICY).suspect, "its steps may be long"
    verdict = judge(replace(slow, log_silence=25 * MINUTE), POLICY)
    assert verdict.suspect
    assert verdict.signs == ("NoReport", "SilentLogs")


def test_a_phase_without_steps_is_no_silence_while_it_is_reported() -> None:
    evaluating = replace(GANG, quiet=True, silence=2 * MINUTE, idle=idle(60), log_silence=60 * MINUTE)
    assert not judge(evaluating, POLICY).suspect


# --- there and back ---------------------------------------------------------------------------------------------------


def test_a_sign_of_life_ends_the_suspicion_and_the_stall() -> None:
    hangs = judge(replace(GANG, silence=60 * MINUTE, median_step=1.0 * SECOND), POLICY)
    lives = judge(replace(GANG, silence=SECOND), POLICY)
    watch = StallState()
    assert watch.follow(hangs, POLICY, 0)
    assert watch.follow(lives, POLICY, MINUTE)
    assert watch.state == RUNNING
    for now in (2, 2 + POLICY.grace):
        watch.follow(hangs, POLICY, now)
    assert watch.state == STALLED
    assert not watch.follow(hangs, POLICY, 9**9)
    assert watch.follow(lives, POLICY, 9**9)
    assert watch.state == RUNNING


def test_telemetry_that_fails_is_no_sign_of_life() -> None:
    watch = StallState(STALLED)
    assert not watch.follow(judge(GANG, POLICY), POLICY, MINUTE)
    assert watch.follow(judge(replace(GANG, idle=(0,) * 8), POLICY), POLICY, MINUTE)


# --- from readings to evidence ----------------------------------------------------------------------------------------


def read(pod: PodTelemetry, minutes: float, **values: float | int) -> PodTelemetry:
    pod.take(Reading("team", "p", minutes * 60, **values))  # type: ignore[arg-type]
    return pod


def test_idleness_is_counted_from_the_first_idle_reading() -> None:
    pod = PodTelemetry()
    for minute in range(1, 20):
        read(pod, minute, gpu=0.6 if minute < 4 else 0.0, power=1.0, kernel_age=30.0)
    found = with_telemetry(replace(GANG, pods=1), [pod], 20 * MINUTE)
    assert found.idle == (16 * MINUTE,)
    assert found.low_power == (19 * MINUTE,)
    assert found.kernel_age == (30 * SECOND,)


def test_a_busy_reading_begins_anew() -> None:
    pod = read(read(read(PodTelemetry(), 1, gpu=0.0), 2, gpu=0.5), 3, gpu=0.0)
    assert with_telemetry(GANG, [pod], 4 * MINUTE).idle == (MINUTE,)


def test_a_gap_is_no_evidence() -> None:
    pod = read(read(PodTelemetry(), 1, gpu=0.0, log_bytes=5.0), 60, gpu=0.0, log_bytes=5.0)
    found = with_telemetry(replace(GANG, pods=1), [pod], 61 * MINUTE)
    assert (found.idle, found.log_silence) == ((MINUTE,), MINUTE)


def test_old_readings_say_nothing_of_now() -> None:
    pod = read(PodTelemetry(), 1, gpu=0.0, log_bytes=5.0, xid=0)
    assert with_telemetry(GANG, [pod], 10 * MINUTE) == GANG


def test_logs_of_all_pods_are_looked_at() -> None:
    quiet, noisy = PodTelemetry(), PodTelemetry()
    for minute in range(1, 11):
        read(quiet, minute, log_bytes=100.0)
        read(noisy, minute, log_bytes=100.0 * min(minute, 8))
    two = replace(GANG, pods=2)
    assert with_telemetry(two, [quiet, noisy], 11 * MINUTE).log_silence == 3 * MINUTE
    assert with_telemetry(two, [quiet], 11 * MINUTE).log_silence is None, "of the other nothing is known"


def test_an_error_from_before_the_pod_is_not_the_pods() -> None:
    pod = read(PodTelemetry(), 1, xid=79)
    assert with_telemetry(GANG, [pod], 2 * MINUTE).xids == ()
    read(pod, 2, xid=48)
    assert with_telemetry(GANG, [pod], 3 * MINUTE).xids == (48,)


def test_readings_that_come_late_change_nothing() -> None:
    pod = read(read(PodTelemetry(), 5, gpu=0.0), 4, gpu=0.9)
    assert with_telemetry(GANG, [pod], 6 * MINUTE).idle == (MINUTE,)
