"""Waits are estimated as intervals that are right 8 times of 10, in simulated sales and in a recorded one."""

import itertools
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.kernel import clock
from apps.queue.calibration import recorded_runs
from apps.queue.calibration.report import StageReport, report_of
from apps.queue.calibration.runs import estimates_of
from apps.queue.calibration.simulated_runs import simulate_run
from apps.queue.models import AdmissionBatch, QueueEntry
from apps.queue.snapshot import room_snapshot
from apps.queue.status.wait_model import WaitModel
from tests.support.queue.rooms import make_room


def reports_of_seeds(seeds: range) -> dict[str, StageReport]:
    estimates = itertools.chain.from_iterable(estimates_of(simulate_run(seed)) for seed in seeds)
    return {report.name: report for report in report_of(estimates)}


def test_intervals_are_right_eight_times_of_ten_and_no_wider_than_a_factor_of_three() -> None:
    reports = reports_of_seeds(range(8))
    everything = reports["after the first minute"]
    assert everything.count > 1_000
    assert 0.7 <= everything.right_share <= 0.92
    assert everything.widest <= 3.05, "rounded to whole seconds"
    assert reports["first minute"].right_share >= 0.75


@pytest.mark.slow
def test_intervals_are_calibrated_at_every_stage_of_other_sales() -> None:
    """The sales with these numbers were not used to choose the widths."""
    reports = reports_of_seeds(range(1_000, 1_150))
    for report in reports.values():
        assert 0.72 <= report.right_share <= 0.95, report
        assert 0.8 <= report.median_error <= 1.35, report
    assert 0.77 <= reports["after the first minute"].right_share <= 0.87


def test_the_model_is_continuous_and_never_falls_with_the_position() -> None:
    run = simulate_run(3)
    for at in range(0, 300, 20):
        model = WaitModel.of(run.snapshot_at(run.batches[0].at + at))
        waits = [model.likely_seconds(ahead) for ahead in range(1, 2_000)]
        assert all(later >= earlier for earlier, later in itertools.pairwise(waits))
        assert max(later - earlier for earlier, later in itertools.pairwise(waits)) <= (
            max(model.slow_seconds, model.fast_seconds) * 1.01
        )


@pytest.mark.django_db
def test_a_recorded_sale_is_read_as_it_was_snapshotted() -> None:
    """Three batches of two fill four slots; two slots are freed before the third."""
    event = make_room(rate=10, active=4)
    now = clock.now()
    begin = now - timedelta(seconds=300)

    def moment(seconds: float) -> object:
        return begin + timedelta(seconds=seconds)

    for number in range(1, 9):
        admitted = {1: 0, 2: 0, 3: 10, 4: 10, 5: 200, 6: 200}.get(number)
        QueueEntry.objects.create(
            event_id=event.id,
            number=number,
            visitor_id=f"visitor-{number}",
            status="completed" if number <= 2 else "ready" if number <= 6 else "waiting",
            joined_at=moment(-5),
            ready_at=None if admitted is None else moment(admitted),
            admission_expires_at=None if admitted is None else moment(1_000),
            ended_at=moment(100) if number <= 2 else None,
        )
    for at, to_number, active in ((0, 2, 2), (10, 4, 4), (200, 6, 4)):
        AdmissionBatch.objects.create(
            event_id=event.id, at=moment(at), reason="their turn", from_number=to_number - 1, to_number=to_number,
            count=2, active_count=active, active_max=4, epoch=0,
        )  # fmt: skip
    from apps.queue.models import WaitingRoom

    WaitingRoom.objects.filter(event_id=event.id).update(head=6, next_number=9)
    snapshot = room_snapshot.read_snapshot(event.id)
    recorded = recorded_runs.read_run(event.id).snapshot_at(300)
    for field in (
        "head",
        "rate",
        "active",
        "freed_count",
        "active_before",
        "admitted_count",
        "passed_count",
        "active_max",
    ):
        assert getattr(snapshot, field) == getattr(recorded, field), field
    assert (snapshot.freed_count, snapshot.admitted_count, snapshot.active) == (2, 2, 4)
    assert snapshot.observed_seconds == pytest.approx(recorded.observed_seconds, abs=5)
    assert snapshot.observed_seconds == pytest.approx(290, abs=5), "the room was full two minutes ago"
    assert snapshot.open_seconds == pytest.approx(recorded.open_seconds, abs=5)


def measured(*arguments: str) -> str:
    out = StringIO()
    call_command("measure_wait_estimates", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_prints_one_line_for_each_stage() -> None:
    assert "after the first minute" in measured("--simulated", "2")


@pytest.mark.django_db
def test_the_command_refuses_what_it_cannot_measure() -> None:
    event = make_room(rate=10, active=4)
    for arguments, words in ((["nowhere"], "no published event"), ([event.slug], "nothing was estimated")):
        with pytest.raises(CommandError, match=words):
            measured(*arguments)
    for count in ("x", "-1", "1000000"):
        with pytest.raises(CommandError):
            measured("--simulated", count)
