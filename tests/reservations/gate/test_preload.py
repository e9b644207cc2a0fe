"""The checked preload before the on-sale: the gate agrees with the database, or it stays shut and reports why."""

import io
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock, redis
from apps.kernel.checks import reconciler
from apps.kernel.fastpath import cache
from apps.reservations.gate import rebuild
from apps.reservations.gate.gate_reconciliation import differences
from apps.reservations.models import GeneralAdmissionInventory, SeatInventory
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.reservations.gates import disable_expiry, is_refused, read_gate_field, section_of, write_gate_fields

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_count_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_expiry(monkeypatch)


def preload(slug: str) -> list[str]:
    out = io.StringIO()
    call_command("preload_gate", slug, stdout=out)
    return out.getvalue().splitlines()


def preload_refused(slug: str) -> tuple[list[str], str]:
    out = io.StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("preload_gate", slug, stdout=out)
    return out.getvalue().splitlines(), str(raised.value)


def tickets_left(event: events.EventView, slug: str) -> int:
    return int(read_gate_field(event, f"left {section_of(event, slug)}"))


def test_every_section_is_compared_and_the_gate_is_filled() -> None:
    event = make_event(rows=1, seats_per_row=4, general_admission=10)
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3)
    SeatInventory.objects.filter(seat__guid="hall-A-4").update(status=3, blocked_for="house")
    assert preload("concert") == [
        "hall: 4 = 2 free + 1 held + 0 sold + 1 blocked; gate before: nothing, now: 2",
        "floor: 10 = 7 free + 3 held + 0 sold + 0 blocked; gate before: nothing, now: 7",
        "concert: the gate is filled",
    ]
    write_gate_fields(event, left_floor=99)
    assert preload("concert")[1].endswith("gate before: 99, now: 7")


def plant_taken() -> str:
    GeneralAdmissionInventory.objects.update(taken=5)
    return "floor: 5 tickets are taken, reservations have 3"


def plant_row_gone() -> str:
    SeatInventory.objects.filter(seat__guid="hall-A-2").delete()
    return "hall: its capacity is 4, its inventory has 3 seats"


def plant_freed() -> str:
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)
    return "hall: 0 seats are held, live reservations have 1"


def plant_resized() -> str:
    GeneralAdmissionInventory.objects.update(capacity=11)
    return "floor: its capacity is 10, its inventory has 11 tickets"


@pytest.mark.parametrize("plant", [plant_taken, plant_row_gone, plant_freed, plant_resized])
def test_an_unexplained_difference_keeps_the_gate_shut(plant: Any, caplog: pytest.LogCaptureFixture) -> None:
    event = make_event(rows=1, seats_per_row=4, general_admission=10)
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3)
    preload("concert")
    difference = plant()
    with caplog.at_level(logging.ERROR, "apps.reservations.gate.rebuild"):
        lines, error = preload_refused("concert")
        preload_refused("concert")
    assert difference in lines
    assert error.startswith("the ledger is inconsistent")
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [f"the gate of event {event.id} stays shut: {difference}"]
    assert rebuild.states() == {"open": 0, "shut": 0, "refused": 1}
    assert rebuild.reset_due() == 0, "no reset opens it"
    assert rebuild.states()["refused"] == 1


def test_while_preload_refuses_the_database_sells_and_once_both_agree_the_gate_opens_by_itself() -> None:
    event = make_event(rows=0, general_admission=2)
    GeneralAdmissionInventory.objects.update(taken=1)
    assert rebuild.reset_due() == 0
    assert rebuild.states()["refused"] == 1
    hold(event, ga_section="floor", ga_quantity=1)
    assert not is_refused(event, ga_section="floor", ga_quantity=1)
    GeneralAdmissionInventory.objects.update(taken=1)
    assert rebuild.reset_due() == 0, "it is checked every few seconds only"
    cache.clear_all()
    assert rebuild.reset_due() == 1
    assert tickets_left(event, "floor") == 1
    assert_audit_clean()


def test_the_gate_exists_ten_minutes_before_the_on_sale_and_not_sooner() -> None:
    soon = make_event("soon", rows=0, general_admission=2, opens_at=clock.now() + timedelta(minutes=9))
    later = make_event("later", rows=0, general_admission=2, opens_at=clock.now() + timedelta(minutes=11))
    assert rebuild.reset_due() == 1
    assert tickets_left(soon, "floor") == 2
    assert read_gate_field(later, "epoch") == ""
    assert "reset every second from ten minutes before" in preload("later")[-1]


def test_the_reconciler_compares_the_gate_with_the_database_and_resets_it() -> None:
    event = make_event(rows=0, general_admission=5)
    preload("concert")
    assert differences(event.id) == []
    write_gate_fields(event, left_floor=3)

    def reconciled(by: str) -> list[tuple[str, str]]:
        found = [finding for finding in reconciler.run(repair_by=by) if finding.name == "gate"]
        return [(outcome.difference.line, outcome.state) for finding in found for outcome in finding.outcomes]

    line = "concert/floor: the gate has 3 left, the ledger 5"
    assert reconciled("") == [(line, "reported")]
    assert reconciled("staff") == [(line, "repaired")]
    assert tickets_left(event, "floor") == 5
    assert reconciled("") == []


def test_the_command_reports_errors_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(rows=0, general_admission=5)
    assert "there is no published event" in preload_refused("concert\x00")[1]
    assert preload_refused("nothing")[1] == "'nothing': there is no published event with this slug"
    with monkeypatch.context() as outage:
        outage.setattr(redis, "attempt", lambda act: None)
        assert preload_refused("concert")[1].startswith("Redis is unavailable")
    Event.objects.filter(pk=event.id).update(status="canceled")
    assert preload_refused("concert")[1] == "concert is over: sales have ended"
