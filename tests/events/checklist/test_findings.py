"""The checklist of a draft names everything that is missing or unsafe, each with a link, and publication refuses it."""

import io
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.events.checklist import findings as checklist
from apps.events.checklist.draft import Draft, DraftOnSale, read_draft
from apps.events.checklist.registry import Level
from apps.events.creation import create_event
from apps.events.models import Category, Event, OnSale
from apps.events.publication import EventRefused, publish_event
from apps.kernel import clock
from apps.orders.models import ReturnPolicy
from tests.support.events.factories import in_days, spec

pytestmark = pytest.mark.django_db


def make_draft(**changes: Any) -> Event:
    values: dict[str, Any] = {"timezone": "Europe/London", "opens_at": in_days(1), "address": "1 Stage Road"}
    created = create_event(spec(draft=True, **values | changes))
    return Event.objects.select_related("venue", "organizer", "plan").get(pk=created.event_id)


def findings(draft: Draft, level: Level = Level.MISSING) -> list[str]:
    return [found.text for found in checklist.list_findings(draft, clock.now()) if found.level == level]


def on_sale_of(draft: Draft) -> DraftOnSale:
    assert draft.on_sale is not None
    return draft.on_sale


def test_a_complete_draft_has_nothing_missing_and_only_the_known_warnings() -> None:
    draft = read_draft(make_draft())
    assert findings(draft) == []
    assert findings(draft, Level.WARNING) == [
        "Default organizer has no terms of sale, privacy notice or imprint.",
        "Buyers cannot return tickets: the event has no return policy.",
    ]
    ReturnPolicy.objects.create(event_id=draft.event_id, until_hours=24)
    draft = replace(draft, legal_kinds=frozenset({"terms", "privacy", "imprint"}))
    assert findings(draft, Level.WARNING) == []


def test_everything_that_is_missing_is_listed_at_once_with_a_link_to_its_place() -> None:
    event = make_draft()
    Category.objects.filter(event=event, key="Stalls").delete()
    OnSale.objects.filter(event=event).delete()
    Event.objects.filter(pk=event.pk).update(starts_at=in_days(-1))
    event.refresh_from_db()
    found = [one for one in checklist.list_findings(read_draft(event), clock.now()) if one.level == Level.MISSING]
    form = f"/admin/events/event/{event.pk}/change/"
    assert [(one.text.partition(",")[0], one.link) for one in found] == [
        ("The event starts in the past", f"{form}#id_starts_at"),
        ("Enter when sales open.", f"{form}#on_sale-group"),
        ("There is no price for “Stalls”.", f"/admin/events/event/{event.pk}/prices/"),
    ]
    with pytest.raises(EventRefused, match=r"starts in the past.* Enter when sales open.* no price for “Stalls”"):
        publish_event(event.pk)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"room_rate_per_second": 20}, "The waiting room would stay off: it has a rate, but no cap."),
        ({"room_active_max": 20}, "The waiting room would stay off: it has a cap, but no rate."),
        ({"lobby_opens_at": in_days}, "There is a lobby without a waiting room"),
        ({"opens_at": in_days}, "Sales open only after the event has started."),
        ({"closes_at": in_days}, "Sales end after the event has started."),
        ({"presale_condition": "code", "presale_until": in_days}, "The presale ends after all sales do."),
    ],
)
def test_an_on_sale_that_contradicts_itself_cannot_be_published(changes: dict[str, Any], text: str) -> None:
    draft = read_draft(make_draft())
    values = {name: value(31) if value is in_days else value for name, value in changes.items()}
    (found,) = findings(replace(draft, on_sale=replace(on_sale_of(draft), **values)))
    assert found.startswith(text)


def test_unsafe_prices_and_limits_are_warnings() -> None:
    draft = read_draft(make_draft())
    stalls, floor = draft.prices
    prices = (replace(stalls, price_minor=45, color="#111111"), replace(floor, price_minor=0, color="#111111"))
    on_sale = replace(on_sale_of(draft), per_buyer_max=4, opens_at=in_days(-1))
    found = findings(replace(draft, prices=prices, on_sale=on_sale), Level.WARNING)
    assert [text for text in found if "organizer" not in text and "return" not in text] == [
        found[0],
        "“Stalls” costs only $0.45.",
        "“Floor” is free.",
        "“Stalls” and “Floor” have the same color on the seat map.",
        "A buyer may have 4, but the page offers up to 8 at a time: lower that limit, too.",
    ]
    assert found[0].startswith("Sales open as soon as you publish:")


def test_a_hold_longer_than_the_admission_and_a_draw_without_a_beacon_are_warnings() -> None:
    draft = read_draft(make_draft())
    on_sale = replace(on_sale_of(draft), room_rate_per_second=5, room_active_max=50, lobby_opens_at=in_days(0.5))
    text = "\n".join(findings(replace(draft, on_sale=on_sale), Level.WARNING))
    assert "Seats stay reserved for 10 minutes, longer than the 5 minutes of an admission" in text
    assert "no public beacon" in text
    short = replace(on_sale, hold_seconds=300)
    assert "longer than" not in "\n".join(findings(replace(draft, on_sale=short), Level.WARNING))


def test_a_presale_by_code_without_codes_is_a_warning() -> None:
    draft = read_draft(make_draft())
    on_sale = replace(on_sale_of(draft), presale_condition="code", presale_until=in_days(2))
    assert any("has none yet" in text for text in findings(replace(draft, on_sale=on_sale), Level.WARNING))


def test_test_payments_and_mails_that_are_not_sent_are_warnings_in_production_only(settings: Any) -> None:
    draft = read_draft(make_draft())
    settings.EMAIL_BACKEND = "ticketing.devserver.console_mail.TextBackend"
    assert not any("test mode" in text or "No email" in text for text in findings(draft, Level.WARNING))
    settings.SITE_URL = "https://tickets.example"
    found = findings(draft, Level.WARNING)
    assert any("PAYMENT_PROVIDER is sandbox" in text for text in found)
    assert any("No email is sent" in text for text in found)
    free = replace(draft, prices=tuple(replace(price, price_minor=0) for price in draft.prices))
    assert not any("test mode" in text for text in findings(free, Level.WARNING))
    settings.PAYMENT_PROVIDER, settings.STRIPE_SECRET_KEY = "stripe", "sk_test_x"
    assert any("STRIPE_SECRET_KEY is a test key" in text for text in findings(draft, Level.WARNING))
    refused = findings(replace(draft, currency="IRR"), Level.WARNING)
    assert any("Stripe takes no payments in IRR" in text for text in refused)
    assert not any("Stripe takes no payments" in text for text in findings(draft, Level.WARNING))


def test_the_command_prints_the_checklist_and_fails_while_something_is_missing() -> None:
    event = make_draft()
    out = io.StringIO()
    call_command("check_event", "hamlet", stdout=out)
    assert out.getvalue().startswith("warning: ")
    assert "hamlet: can be published" in out.getvalue()
    Category.objects.filter(event=event, key="Stalls").delete()
    out = io.StringIO()
    with pytest.raises(CommandError, match="1 missing"):
        call_command("check_event", "hamlet", stdout=out)
    assert out.getvalue().startswith("missing: There is no price for “Stalls”. http")
    with pytest.raises(CommandError, match="no event with this slug"):
        call_command("check_event", "\x00")


def test_the_digest_changes_with_the_findings() -> None:
    draft = read_draft(make_draft())
    now = clock.now()
    before = checklist.digest(checklist.list_findings(draft, now))
    assert before == checklist.digest(checklist.list_findings(draft, now + timedelta(seconds=5)))
    assert before != checklist.digest(checklist.list_findings(replace(draft, venue_address=""), now))
