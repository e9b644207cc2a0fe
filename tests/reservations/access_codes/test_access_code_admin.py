"""Access codes for staff: created singly or by the thousand, limited and counted; and which sections need one."""

import csv
import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client

from apps.events import facade as events
from apps.events.models import Event, Section
from apps.kernel import clock
from apps.kernel.db.transactions import violated_constraint
from apps.reservations.access_codes.generation import set_active
from apps.reservations.models import AccessCode, InventoryChange
from tests.support.factories import assert_audit_clean, hold, make_access_code, make_event

pytestmark = pytest.mark.django_db(transaction=True)
CODES = "/admin/reservations/accesscode/"


@pytest.fixture
def concert() -> events.EventView:
    return make_event("concert", general_admission=10, needs_access=("hall",))


@pytest.fixture
def desk(admin_client: Client) -> Client:
    admin_client.defaults["HTTP_SEC_FETCH_SITE"] = "same-origin"
    return admin_client


def form(event: events.EventView, **changes: Any) -> dict[str, Any]:
    return {"event": event.id, "code": "fan club", "is_active": "on", **changes}


def created(*args: str) -> list[dict[str, str]]:
    out = io.StringIO()
    call_command("create_access_codes", "concert", *args, stdout=out)
    return list(csv.DictReader(io.StringIO(out.getvalue())))


def stock(*args: str) -> str:
    out = io.StringIO()
    call_command("stock", "concert", *args, stdout=out)
    return out.getvalue().strip()


def test_a_code_is_created_in_the_admin_and_its_uses_are_counted(concert, desk) -> None:
    (hall, _) = events.list_sections(concert.id)
    assert desk.post(f"{CODES}add/", form(concert, uses_max=2, sections=[hall.id])).status_code == 302
    code = AccessCode.objects.get()
    assert (code.code, code.uses_max, code.sections.get().slug) == ("FANCLUB", 2, "hall")
    hold(concert, seats=["hall-A-1"], access_code="FANCLUB")
    listed = desk.get(f"{CODES}?q=fan").content.decode()
    assert "Hall" in listed
    assert f'href="/admin/reservations/reservation/?access_code__id__exact={code.pk}">1</a>' in listed
    of_code = desk.get(f"/admin/reservations/reservation/?access_code__id__exact={code.pk}")
    assert of_code.context["cl"].result_count == 1
    page = desk.get(f"{CODES}{code.pk}/change/").content.decode()
    assert "/events/concert/choose?access=FANCLUB" in page


def test_a_used_code_keeps_its_terms_and_no_limit_may_be_below_its_uses(concert, desk) -> None:
    code = make_access_code(concert)
    for number in (1, 2):
        hold(concert, seats=[f"hall-A-{number}"], access_code="FANCLUB")
    address = f"{CODES}{code.pk}/change/"
    refused = desk.post(address, form(concert, uses_max=1))
    assert "It has been used 2 times already" in refused.content.decode()
    assert desk.post(address, form(concert, code="OTHER", uses_max=2, uses_per_buyer_max=1)).status_code == 302
    code.refresh_from_db()
    assert (code.code, code.uses_max, code.uses_per_buyer_max) == ("FANCLUB", 2, 1)
    assert desk.get(f"{CODES}{code.pk}/delete/").status_code == 403
    assert_audit_clean()


def test_codes_are_disabled_and_enabled_together(concert, desk) -> None:
    ids = [make_access_code(concert, code=word).pk for word in ("ONE", "TWO")]
    desk.post(CODES, {"action": "deactivate", "_selected_action": ids})
    assert not AccessCode.objects.filter(is_active=True).exists()
    set_active(ids, is_active=True)
    assert AccessCode.objects.filter(is_active=True).count() == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code": "A\N{RIGHT-TO-LEFT OVERRIDE}B"}, "printable"),
        ({"code": " "}, "required"),
        ({"uses_max": 0}, "A limit is at least 1"),
        ({"uses_per_buyer_max": 0}, "A limit is at least 1"),
    ],
)
def test_the_admin_explains_invalid_input(concert, desk, changes, words) -> None:
    response = desk.post(f"{CODES}add/", form(concert, **changes))
    assert response.status_code == 200
    assert words in response.content.decode()
    assert not AccessCode.objects.exists()


def test_sections_of_another_event_are_refused(concert, desk) -> None:
    (other, *_) = events.list_sections(make_event("other").id)
    response = desk.post(f"{CODES}add/", form(concert, sections=[other.id]))
    assert "do not belong to the chosen event" in response.content.decode()


def test_a_draft_has_no_codes_yet(concert, desk) -> None:
    Event.objects.update(status="draft")
    assert "Publish it first" in desk.post(f"{CODES}add/", form(concert)).content.decode()


def test_thousands_of_codes_are_all_different_and_have_links(concert) -> None:
    rows = created("--count", "2500", "--prefix", "fan club", "--section", "hall", "--uses", "2")
    assert len({row["code"] for row in rows}) == 2_500
    assert all(row["link"].endswith(f"/events/concert/choose?access={row['code']}") for row in rows)
    assert AccessCode.objects.filter(sections__slug="hall", uses_max=2).count() == 2_500
    hold(concert, seats=["hall-A-1"], access_code=rows[0]["code"].lower())


def test_the_command_accepts_every_term(concert) -> None:
    (row,) = created(
        "--count", "1", "--uses", "none", "--per-buyer", "1", "--valid-from", "2027-03-01T10:00+01:00",
        "--valid-until", "2027-03-02T10:00+01:00", "--note", "Fan club",
    )  # fmt: skip
    code = AccessCode.objects.get()
    assert (code.uses_max, code.uses_per_buyer_max, code.note) == (None, 1, "Fan club")
    assert not code.sections.exists()
    assert row["valid_from"] == "2027-03-01T10:00:00+01:00"


@pytest.mark.parametrize(
    "args",
    [
        ["--count", "0"],
        ["--count", "20001"],
        ["--count", "1", "--section", "cellar"],
        ["--count", "1", "--uses", "0"],
        ["--count", "1", "--prefix", "X" * 30],
        ["--count", "1", "--valid-from", "2027-03-01"],
        ["--count", "1", "--valid-from", "2027-03-02T10:00Z", "--valid-until", "2027-03-01T10:00Z"],
        ["--count", "1", "--note", "a\0b"],
    ],
)
def test_the_command_refuses_in_one_line_and_creates_nothing(concert, args) -> None:
    with pytest.raises(CommandError) as refused:
        created(*args)
    assert "\n" not in str(refused.value)
    assert not AccessCode.objects.exists()


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        ({"code": ""}, "access_code_not_empty"),
        ({"uses_max": 0}, "access_code_limits_sane"),
        ({"valid_from": clock.process_now(), "valid_until": clock.process_now()}, "access_code_valid_some_time"),
        ({"code": "TWICE"}, "access_code_once_per_event"),
    ],
)
def test_the_database_refuses_by_named_constraints(concert, changes, constraint) -> None:
    values = {"event_id": concert.id, "code": "ONCE", "created_at": clock.now()}
    AccessCode.objects.create(**values | {"code": "TWICE"})
    if "valid_until" in changes:
        changes = {"valid_from": changes["valid_from"], "valid_until": changes["valid_from"]}
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        AccessCode.objects.create(**values | changes)
    assert violated_constraint(refused.value) == constraint


# --- which sections need one -----------------------------------------------------------------------------------------


def test_the_stock_page_sets_and_clears_the_need_for_codes(concert, desk) -> None:
    address = f"/admin/reservations/seatinventory/stock/{concert.id}/"
    page = desk.get(address).content.decode()
    assert "Hall: access code required" in page
    assert "Floor: open to all buyers" in page
    sent = {"action": "guard", "section": "floor", "why": "fan club first"}
    assert "The section now needs an access code." in desk.post(address, sent, follow=True).content.decode()
    assert "The section already needed an access code." in desk.post(address, sent, follow=True).content.decode()
    assert Section.objects.get(slug="floor").needs_access
    after = desk.post(address, {"action": "open", "section": "floor"}, follow=True).content.decode()
    assert "The section is now open to all buyers." in after
    assert "floor: open to all buyers" in after
    assert not Section.objects.get(slug="floor").needs_access
    assert InventoryChange.objects.get(kind="guarded").why == "fan club first"
    assert desk.post(address, {"action": "guard", "section": "cellar"}).status_code == 422


def test_the_command_sets_and_clears_the_need_for_codes(concert) -> None:
    assert stock("guard", "floor") == "concert: floor needs an access code"
    assert stock("guard", "floor") == "concert: floor needs an access code, unchanged"
    assert "floor (with code)" in stock("show")
    assert stock("open", "floor") == "concert: floor is open to all buyers"
    with pytest.raises(CommandError, match="no section 'cellar'"):
        stock("open", "cellar")
