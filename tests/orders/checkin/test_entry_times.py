"""Warnings of check-in about the time: long before doors open, and long after the event."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.checkin import check_in
from apps.orders.checkin.check_in import Outcome, Scan, scan
from apps.orders.checkin.entry_times import find_warning
from apps.orders.checkin.scan_messages import build_scan_message
from apps.orders.models import Order, TicketScan
from apps.orders.webhooks import messages
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy

pytestmark = pytest.mark.django_db(transaction=True)
SECOND = timedelta(seconds=1)
API = "/api/events/concert/check-in"


def on_clock(zone: str, *parts: int) -> datetime:
    return datetime(*parts, tzinfo=ZoneInfo(zone))


def sell(**spec: Any) -> Order:
    return buy(hold(make_event("concert", **spec), seats=["hall-A-1", "hall-A-2"]))


def show(code: str, **more: Any) -> check_in.ScanAnswer:
    return scan(events.get_event("concert"), Scan(uuid.uuid4().hex, code, **more), "staff:1")


def staff() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("boss@example.org", password="the boss's own"))
    return client


@pytest.mark.parametrize(
    ("zone", "times", "from_", "until"),
    [
        pytest.param(
            "America/Chicago",
            {"doors_at": (2030, 6, 1, 18), "starts_at": (2030, 6, 1, 20), "ends_at": (2030, 6, 1, 23)},
            (2030, 6, 1, 16), (2030, 6, 2, 5),
            id="two hours before doors, six after the end",
        ),
        pytest.param(
            "Asia/Tokyo", {"starts_at": (2030, 6, 1, 2)}, (2030, 5, 31, 22), (2030, 6, 2, 2),
            id="four hours before the start, a day after it",
        ),
        pytest.param(
            "Europe/Berlin", {"doors_at": (2030, 3, 31, 4), "starts_at": (2030, 3, 31, 5)}, (2030, 3, 31, 1),
            (2030, 4, 1, 5), id="the night in which clocks go forward has an hour less",
        ),
        pytest.param(
            "America/Chicago", {"starts_at": (2030, 11, 3, 3), "ends_at": (2030, 11, 3, 5)}, (2030, 11, 3, 0),
            (2030, 11, 3, 11), id="the night in which clocks go back has an hour more",
        ),
    ],
)  # fmt: skip
def test_the_limits_hold_to_the_second_on_the_venues_clock(zone, times, from_, until) -> None:
    event = make_event("concert", timezone=zone, **{name: on_clock(zone, *at) for name, at in times.items()})
    begin, end = on_clock(zone, *from_).astimezone(UTC), on_clock(zone, *until).astimezone(UTC)
    assert find_warning(event, begin - SECOND) == Outcome.TOO_EARLY
    assert find_warning(event, begin) is None
    assert find_warning(event, end - SECOND) is None
    assert find_warning(event, end) == Outcome.TOO_LATE


def test_an_early_ticket_gets_a_warning_and_is_let_in_by_a_confirmation() -> None:
    order = sell(starts_at=clock.now() + timedelta(days=26, hours=3, minutes=30))
    code = order.tickets.first().code
    warned = show(code)
    assert (warned.outcome, warned.is_warning) == (Outcome.TOO_EARLY, True)
    words = build_scan_message(events.get_event("concert"), warned)
    assert (words.tone, words.say) == ("unsure", "Too early")
    assert "in 26 days 3 hours" in words.more
    assert not order.tickets.filter(checked_in_at__isnull=False).exists()
    assert show(code, anyway=True).outcome == Outcome.WELCOME
    assert show(code).outcome == Outcome.ALREADY_IN
    assert list(TicketScan.objects.order_by("id").values_list("outcome", "anyway", "who")) == [
        ("too_early", False, "staff:1"),
        ("welcome", True, "staff:1"),
        ("already_in", False, "staff:1"),
    ]
    assert_audit_clean()


def test_the_message_gives_the_doors_time_on_the_venues_clock() -> None:
    zone = "America/Chicago"
    doors_at = datetime.now(ZoneInfo(zone)).replace(hour=19, minute=0, second=0, microsecond=0) + timedelta(days=26)
    order = sell(timezone=zone, doors_at=doors_at, starts_at=doors_at + timedelta(hours=1))
    more = build_scan_message(events.get_event("concert"), show(order.tickets.first().code)).more
    assert f"Doors open on {doors_at:%A} {doors_at.day} {doors_at:%B} {doors_at.year}, 19:00 ({doors_at:%Z})" in more


def test_a_ticket_of_an_event_that_is_long_over_gets_a_warning() -> None:
    order = sell(starts_at=clock.now() + timedelta(hours=1))
    # An update: a sale cannot take place after its event.
    ended_at = clock.now() - timedelta(days=3)
    Event.objects.update(starts_at=ended_at - timedelta(hours=2), ends_at=ended_at, doors_at=None)
    warned = show(order.tickets.first().code)
    assert (warned.outcome, warned.is_warning) == (Outcome.TOO_LATE, True)
    assert "3 days ago" in build_scan_message(events.get_event("concert"), warned).more
    assert show(order.tickets.first().code, anyway=True).outcome == Outcome.WELCOME


def test_a_postponed_event_warns_by_its_new_date() -> None:
    order = sell(starts_at=clock.now() + timedelta(hours=1))
    assert show(order.tickets.first().code).outcome == Outcome.WELCOME
    Event.objects.update(starts_at=clock.now() + timedelta(days=60))
    assert show(order.tickets.last().code).outcome == Outcome.TOO_EARLY


def test_a_canceled_event_admits_no_ticket_also_before_its_refund() -> None:
    order = sell(starts_at=clock.now() + timedelta(hours=1))
    Event.objects.update(status=Event.Status.CANCELED)
    for anyway in (False, True):
        refused = show(order.tickets.first().code, anyway=anyway)
        assert (refused.outcome, refused.is_warning) == (Outcome.CANCELED, False)
    assert not order.tickets.filter(checked_in_at__isnull=False).exists()


def test_a_confirmation_overrides_no_other_refusal() -> None:
    order = sell()
    code = order.tickets.first().code
    assert show(code, anyway=True).outcome == Outcome.WELCOME
    assert show(code, anyway=True).outcome == Outcome.ALREADY_IN
    assert show("A" * 28, anyway=True).outcome == Outcome.UNKNOWN


def test_a_confirmation_is_a_scan_of_its_own() -> None:
    """With the id of the warned scan it would get the stored warning, and the phone would wait for a "welcome"."""
    code = sell().tickets.first().code
    event = events.get_event("concert")
    scan(event, Scan("scan-0001", code), "staff:1")
    with pytest.raises(problems.IdempotencyMismatch):
        scan(event, Scan("scan-0001", code, anyway=True), "staff:1")
    assert scan(event, Scan("scan-0001", code), "staff:1").outcome == Outcome.TOO_EARLY
    assert TicketScan.objects.count() == 1


def test_a_warning_is_not_published_to_the_organizer(monkeypatch) -> None:
    published = []
    code = sell().tickets.first().code
    monkeypatch.setattr(messages, "publish_message", lambda order, kind, tickets: published.append(kind))
    show(code)
    assert published == []
    show(code, anyway=True)
    assert published == [messages.Kind.TICKET_CHECKED_IN]


def test_the_api_and_a_batch_warn_and_take_confirmations() -> None:
    one, other = sell().tickets.order_by("id").values_list("code", flat=True)
    client = staff()

    def send(path: str, body: dict[str, Any]):
        return client.post(path, body, content_type="application/json", headers=SAME_ORIGIN)

    warned = send(API, {"scan_id": "scan-0001", "code": one}).json()
    assert (warned["outcome"], warned["is_warning"], warned["say"]) == ("too_early", True, "Too early")
    scans = [
        {"scan_id": "scan-0002", "code": one, "anyway": True},
        {"scan_id": "scan-0003", "code": other},
        {"scan_id": "scan-0004", "code": other, "anyway": True},
        {"scan_id": "scan-0005", "code": other, "anyway": "yes"},
        {"scan_id": "scan-0006", "undo": "scan-0004", "anyway": True},
    ]
    answers = send(f"{API}/batch", {"scans": scans}).json()["answers"]
    outcomes = [each["answer"] and each["answer"]["outcome"] for each in answers]
    assert outcomes == ["welcome", "too_early", "welcome", None, None]
    assert [each["problem"]["type"] for each in answers[3:]] == ["invalid", "invalid"]
    assert TicketScan.objects.filter(outcome="welcome", anyway=True).count() == 2


def test_the_plain_form_offers_a_confirmation() -> None:
    code = sell().tickets.first().code
    client, path = staff(), "/check-in/concert/"
    form = {"scan_id": "scan-0001", "code": code, "door": "North"}
    page = client.post(path, form, headers=SAME_ORIGIN).content.decode()
    assert "Too early" in page
    assert "Let in anyway" in page
    assert f'name="code" value="{code}"' in page
    confirmed = client.post(path, form | {"scan_id": "scan-0001-a", "anyway": "yes"}, headers=SAME_ORIGIN)
    assert "Let in anyway" not in confirmed.content.decode()
    assert "Hall, row A, seat 1" in confirmed.content.decode()
    row = TicketScan.objects.get(outcome="welcome")
    assert (row.anyway, row.door) == (True, "North")
    log = client.get("/admin/orders/ticketscan/?anyway__exact=1").content.decode()
    assert "North" in log


def test_the_command_warns_and_takes_a_confirmation(capsys) -> None:
    code = sell().tickets.first().code
    with pytest.raises(CommandError, match="1 refused"):
        call_command("check_in", "concert", code)
    assert capsys.readouterr().out.startswith("too_early")
    call_command("check_in", "concert", code, "--anyway")
    assert capsys.readouterr().out.startswith("welcome")
    call_command("check_in", "concert", code, "--undo")
    assert capsys.readouterr().out.startswith("undone")
