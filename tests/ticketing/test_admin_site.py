"""The admin site: every list opens, recorded data is read-only, and actions call the services."""

from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.models import AuditRun
from apps.kernel.outbox.models import OutboxMessage
from apps.queue.models import QueueEntry
from apps.reservations.models import Reservation, ReservationTransition
from tests.support import factories

OURS = ("events", "queue", "reservations", "orders", "kernel", "outbox")
READ_ONLY = [
    "reservations_reservation", "reservations_reservationtransition", "reservations_seatinventory",
    "reservations_generaladmissioninventory", "reservations_cleanuplog", "queue_queueentry", "kernel_auditrun",
    "kernel_idempotentanswer", "outbox_outboxmessage",
]  # fmt: skip


@pytest.fixture
def staff(browser: Client) -> Client:
    browser.force_login(User.objects.create_superuser("admin"))
    return browser


def act(staff: Client, table: str, action: str, *keys: Any, confirmed: str = "yes") -> Any:
    form = {"action": action, "_selected_action": [str(key) for key in keys], "confirmed": confirmed}
    return staff.post(f"/admin/{table}/", form, follow=True)


def pages() -> list[str]:
    return [
        f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        for model in admin.site._registry
        if model._meta.app_label in OURS
    ]


@pytest.mark.slow
def test_every_list_opens_filters_and_searches(staff: Client, concert: events.EventView) -> None:
    factories.hold(concert, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    factories.backdate_deadline(factories.hold(concert, seats=["hall-A-2"]).id)
    auditor.run_and_record()
    found = pages()
    assert len(found) > 12
    for page in found:
        for query in ("", "?q=hall-A-1", "?q=7", "?o=1", "?q=%00"):
            assert staff.get(f"{page}{query}").status_code == 200, f"{page}{query}"


@pytest.mark.parametrize("table", READ_ONLY)
def test_rows_written_by_services_are_read_only(staff: Client, concert: events.EventView, table: str) -> None:
    factories.hold(concert, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    auditor.run_and_record()
    address = table.replace("_", "/", 1)
    assert staff.get(f"/admin/{address}/add/").status_code == 403
    for model in admin.site._registry:
        if model._meta.db_table == table:
            for row in model._default_manager.all()[:1]:
                path = f"/admin/{address}/{row.pk}"
                assert staff.get(f"{path}/change/").status_code == 200
                assert staff.post(f"{path}/change/", {}).status_code == 403
                assert staff.post(f"{path}/delete/", {"post": "yes"}).status_code == 403


def test_the_release_action_uses_the_service_and_records_the_user(staff: Client, concert: events.EventView) -> None:
    first, second = factories.hold(concert, seats=["hall-A-1"]), factories.hold(concert, seats=["hall-A-2"])
    Reservation.objects.filter(pk=second.id).update(status="paying", pay_deadline=second.expires_at)
    page = act(staff, "reservations/reservation", "release", first.id, second.id).content.decode()
    assert "1 reservation ended; the tickets are available again" in page
    assert "The payment has started" in page
    assert Reservation.objects.get(pk=first.id).status == "canceled"
    who = ReservationTransition.objects.get(reservation=first.id, to_status="canceled").who
    assert who == f"staff:{User.objects.get().pk}"


def test_the_cancel_action_cancels_paying_reservations_and_keeps_sold_ones(
    staff: Client, concert: events.EventView
) -> None:
    paying, sold = factories.hold(concert, seats=["hall-A-1"]), factories.hold(concert, seats=["hall-A-2"])
    Reservation.objects.filter(pk=paying.id).update(status="paying", pay_deadline=paying.expires_at)
    Reservation.objects.filter(pk=sold.id).update(status="confirmed", confirmed_at=clock.now())
    page = act(staff, "reservations/reservation", "cancel", paying.id, sold.id).content.decode()
    assert "cancel the order instead" in page
    assert "1 reservation ended" in page
    again = act(staff, "reservations/reservation", "cancel", paying.id).content.decode()
    assert "No reservation was ended" in again
    assert Reservation.objects.get(pk=paying.id).status == "canceled"
    assert Reservation.objects.get(pk=sold.id).status == "confirmed"


@pytest.mark.parametrize(
    ("action", "question"), [("release", "Release these reservations?"), ("cancel", "Cancel these reservations?")]
)
def test_staff_must_confirm_before_reservations_are_released(
    staff: Client, concert: events.EventView, action: str, question: str
) -> None:
    held, sold = factories.hold(concert, seats=["hall-A-1"]), factories.hold(concert, seats=["hall-A-2"])
    Reservation.objects.filter(pk=sold.id).update(status="confirmed", confirmed_at=clock.now())
    page = act(staff, "reservations/reservation", action, held.id, sold.id, confirmed="").content.decode()
    assert question in page
    assert "1 ticket for $50.00" in page
    assert "tickets become available" in page
    assert "stays: " in page
    for key in (held.id, sold.id):
        assert f'name="_selected_action" value="{key}"' in page
    assert Reservation.objects.get(pk=held.id).status == "pending_payment"


def test_a_selection_that_is_too_long_to_confirm_is_refused(
    staff: Client, concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.kernel.admin_lists.ACTION_ROWS_MAX", 1)
    held = [factories.hold(concert, seats=[f"hall-A-{seat}"]).id for seat in (1, 2)]
    page = act(staff, "reservations/reservation", "release", *held, confirmed="").content.decode()
    assert "Choose at most 1 at a time" in page
    assert Reservation.objects.filter(status="pending_payment").count() == 2


def test_the_remove_action_removes_a_visitor_from_the_queue(staff: Client, concert: events.EventView) -> None:
    entry = factories.join(concert)
    for message in ("1 visitor removed", "0 visitors removed"):
        assert message in act(staff, "queue/queueentry", "remove", entry.id).content.decode()
    assert QueueEntry.objects.get(pk=entry.id).status == "left"


def test_the_form_of_a_room_does_not_change_its_numbers(staff: Client, concert: events.EventView) -> None:
    form = staff.get(f"/admin/queue/waitingroom/{concert.id}/change/")
    assert form.status_code == 200
    factories.join(concert)
    fields = {
        "rate_per_second": 7,
        "active_max": 500,
        "claim_seconds": 120,
        "admission_seconds": 300,
        "screening": "off",
        "next_number": 1,
    }
    assert staff.post(f"/admin/queue/waitingroom/{concert.id}/change/", fields).status_code == 302
    assert factories.join(concert).number == 2


def test_a_message_that_was_given_up_can_be_delivered_again(staff: Client) -> None:
    now = clock.now()
    dead = OutboxMessage.objects.create(
        topic="t", key="k", body={}, created_at=now, available_at=now, attempts=10, dead_at=now
    )
    page = act(staff, "outbox/outboxmessage", "deliver_again", dead.pk).content.decode()
    assert "1 given-up message will be delivered again." in page
    dead.refresh_from_db()
    assert (dead.dead_at, dead.attempts) == (None, 0)


def test_the_index_shows_the_latest_audit(staff: Client) -> None:
    assert "No audit has run yet" in staff.get("/admin/").content.decode()
    run = auditor.run_and_record()
    page = staff.get("/admin/").content.decode()
    assert "The latest audit is clean" in page
    assert f"{run.started_at:%Y-%m-%d %H:%M:%S}" in page
    AuditRun.objects.update(breach_count=2, report=[
        {"invariant": "I1", "promise": "<b>sums</b>", "breach_count": 2, "breaches": ["section <3>", "x"]}
    ])  # fmt: skip
    assert "found 2 breaches" in staff.get("/admin/").content.decode()
    shown = staff.get(f"/admin/kernel/auditrun/{run.pk}/change/").content.decode()
    assert "section &lt;3&gt;" in shown


def test_the_admin_is_for_staff_only(browser: Client, db: None) -> None:
    browser.force_login(User.objects.create_user("ann@example.org"))
    for page in pages():
        assert browser.get(page).status_code == 302
