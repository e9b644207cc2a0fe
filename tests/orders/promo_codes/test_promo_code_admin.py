"""Promo codes for staff: created in the admin or by command, and counted."""

import csv
import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.db.transactions import violated_constraint
from apps.kernel.form_fields.amounts import write_money
from apps.orders.models import PromoCode
from tests.support.factories import make_event

pytestmark = pytest.mark.django_db(transaction=True)
ADD = "/admin/orders/promocode/add/"


@pytest.fixture
def concert() -> events.EventView:
    return make_event("concert", general_admission=10)


@pytest.fixture
def staff(admin_client: Client) -> Client:
    admin_client.defaults["HTTP_SEC_FETCH_SITE"] = "same-origin"
    return admin_client


def form(of: events.EventView, /, **changes: Any) -> dict[str, Any]:
    sent = {"event": of.id, "code": "early bird", "kind": "percent", "rate": "10", "amount_minor": ""}
    return sent | {"is_active": "on"} | changes


def created(*args: str) -> list[dict[str, str]]:
    out = io.StringIO()
    call_command("create_codes", "concert", *args, stdout=out)
    return list(csv.DictReader(io.StringIO(out.getvalue())))


def test_a_code_created_in_the_admin_is_normalized(concert, staff) -> None:
    assert staff.post(ADD, form(concert, uses_max=10)).status_code == 302
    code = PromoCode.objects.get()
    assert (code.code, code.rate, code.uses_max) == ("EARLYBIRD", 1_000, 10)
    listed = staff.get("/admin/orders/promocode/?q=early").content.decode()
    assert "10% of each ticket" in listed
    assert staff.get(f"/admin/orders/promocode/{code.pk}/change/").status_code == 200
    again = staff.post(ADD, form(concert, code="EARLYBIRD "))
    assert again.status_code == 200
    assert "already exists" in again.content.decode()


@pytest.mark.parametrize(
    ("currency", "typed", "minor"), [("JPY", "500", 500), ("GBP", "5", 500), ("KWD", "5.5", 5_500)]
)
def test_an_amount_off_is_read_in_the_currency_of_the_event(concert, staff, currency, typed, minor) -> None:
    Event.objects.update(currency=currency)
    sent = form(concert, kind="per_order", rate="", amount_minor=typed)
    assert staff.post(ADD, sent).status_code == 302
    code = PromoCode.objects.get()
    assert code.amount_minor == minor
    page = staff.get(f"/admin/orders/promocode/{code.pk}/change/").content.decode()
    assert f'value="{write_money(minor, currency)}"' in page


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code": "A\N{RIGHT-TO-LEFT OVERRIDE}B"}, "printable"),
        ({"rate": 0}, "Enter what this kind of discount takes off."),
        ({"rate": "100.01"}, "Enter at most 100%."),
        ({"rate": "12,5"}, "“12,5” can mean 12.50 or 125.00."),
        ({"kind": "per_order"}, "Enter what this kind of discount takes off."),
        ({"amount_minor": "5"}, "Leave this empty, or choose the other kind of discount."),
        ({"kind": "per_order", "rate": "", "amount_minor": "5,00"}, "“5,00” can mean 5.00 or 500.00."),
        ({"event": ""}, "This field is required."),
        ({"uses_max": 0}, "A limit is at least 1"),
    ],
)
def test_the_admin_form_reports_errors(concert, staff, changes, words) -> None:
    response = staff.post(ADD, form(concert, **changes))
    assert response.status_code == 200
    assert words in response.content.decode()
    assert not PromoCode.objects.exists()


def test_categories_of_another_event_are_refused(concert, staff) -> None:
    (other, *_) = events.list_categories(make_event("other").id)
    response = staff.post(ADD, form(concert, categories=[other.id]))
    assert "do not belong to the chosen event" in response.content.decode()


def test_a_draft_has_no_codes_yet(concert, staff) -> None:
    Event.objects.update(status="draft")
    assert "Publish it first" in staff.post(ADD, form(concert)).content.decode()


def test_codes_by_the_thousand_are_all_different(concert) -> None:
    rows = created(
        "--count", "2500", "--prefix", "fan club", "--percent", "1500", "--category", "Standard", "--uses", "2"
    )
    assert len({row["code"] for row in rows}) == 2_500
    assert all(row["code"].startswith("FANCLUB-") and row["uses"] == "2" for row in rows)
    assert {code.code for code in PromoCode.objects.all()} == {row["code"] for row in rows}
    assert PromoCode.objects.filter(categories__key="Standard", rate=1_500, uses_max=2).count() == 2_500


def test_the_command_accepts_every_term(concert) -> None:
    (row,) = created(
        "--count", "1", "--per-order", "500", "--tickets", "2", "--uses", "none", "--per-buyer", "1",
        "--valid-from", "2027-03-01T10:00+01:00", "--valid-until", "2027-03-02T10:00+01:00", "--note", "Radio",
    )  # fmt: skip
    code = PromoCode.objects.get()
    assert (code.kind, code.amount_minor, code.places_max) == ("per_order", 500, 2)
    assert (code.uses_max, code.uses_per_buyer_max, code.note) == (None, 1, "Radio")
    assert row["valid_from"] == "2027-03-01T10:00:00+01:00"


@pytest.mark.parametrize(
    "args",
    [
        ["--count", "0", "--percent", "100"],
        ["--count", "20001", "--percent", "100"],
        ["--count", "1"],
        ["--count", "1", "--percent", "10001"],
        ["--count", "1", "--percent", "100", "--per-order", "5"],
        ["--count", "1", "--percent", "100", "--category", "Nowhere"],
        ["--count", "1", "--percent", "100", "--prefix", "X" * 30],
        ["--count", "1", "--percent", "100", "--valid-from", "2027-03-01"],
        ["--count", "1", "--percent", "100", "--valid-from", "2027-13-01T10:00+01:00"],
        ["--count", "1", "--percent", "100", "--valid-from", "2027-03-02T10:00Z", "--valid-until", "2027-03-01T10:00Z"],
        ["--count", "1", "--percent", "100", "--valid-until", "0001-01-01T00:00-23:59"],
        ["--count", "1", "--percent", "100", "--valid-until", "2027-03-01T10:00-23:59"],
        ["--count", "1", "--percent", "100", "--note", "a\0b"],
    ],
)
def test_the_command_reports_an_error_in_one_line_and_creates_nothing(concert, args) -> None:
    with pytest.raises(CommandError) as refused:
        created(*args)
    assert "\n" not in str(refused.value)
    assert not PromoCode.objects.exists()


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        ({"code": ""}, "promo_code_not_empty"),
        ({"rate": 0}, "promo_code_takes_something_off"),
        ({"amount_minor": 1}, "promo_code_takes_something_off"),
        ({"uses_max": 0}, "promo_code_limits_sane"),
        ({"code": "TWICE"}, "promo_code_once_per_event"),
    ],
)
def test_a_named_constraint_refuses(concert, changes, constraint) -> None:
    values = {"event_id": concert.id, "code": "ONCE", "rate": 100, "created_at": clock.now()}
    PromoCode.objects.create(**values | {"code": "TWICE"})
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        PromoCode.objects.create(**values | changes)
    assert violated_constraint(refused.value) == constraint
