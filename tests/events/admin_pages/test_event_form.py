"""The event's form in the admin: values are typed and shown as people write them, and wrong ones are refused at their
field."""

from datetime import datetime
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.creation import GeneralAdmission, create_event
from apps.events.models import Category, Event, OnSale, Role, Section
from apps.events.pricing import PricePolicy
from apps.events.publication import publish_event
from apps.events.registries import ReturnTerms, return_policies
from apps.kernel.db.transactions import violated_constraint
from tests.support.events.factories import block, encoded, in_days, make_event, plan, spec
from tests.support.factories import make_member, make_organizer

pytestmark = pytest.mark.django_db
FEES = PricePolicy(ticket_fee_rate=500, order_fee_minor=100, tax_rate=2_000, tax_included=True)


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    return client


@pytest.fixture
def draft() -> int:
    return create_event(spec(draft=True, currency="GBP", price_policy=FEES)).event_id


def address(event_id: int) -> str:
    return reverse("admin:events_event_change", args=[event_id])


def shown_fields(response: Any) -> dict[str, Any]:
    """Return the values of the shown form, as a browser would send them."""
    context = response.context
    sets = [inline.formset for inline in context["inline_admin_formsets"]]
    inlines = [form for formset in sets for form in (formset.management_form, *formset.initial_forms)]
    fields: dict[str, Any] = {}
    for form in (context["adminform"].form, *inlines):
        for bound in form:
            value = bound.value()
            if value is None or value is False:
                continue
            widget = bound.field.widget
            if hasattr(widget, "decompress"):
                parts = widget.decompress(value)
                fields |= {f"{bound.html_name}_{index}": part for index, part in enumerate(parts) if part is not None}
            else:
                fields[bound.html_name] = "on" if value is True else value
    return fields


def test_prices_fees_and_taxes_are_shown_as_money_and_percentages(staff: Client, draft: int) -> None:
    page = staff.get(address(draft))
    fields = shown_fields(page)
    assert (fields["categories-0-price_minor"], fields["on_sale-0-order_fee_minor"]) == ("45.00", "1.00")
    assert (fields["on_sale-0-ticket_fee_rate"], fields["on_sale-0-tax_rate"]) == ("5", "20")
    assert "Buyer pays £47.25 incl. fees, plus £1.00 per order" in page.content.decode()
    assert staff.post(address(draft), fields).status_code == 302
    assert Category.objects.get(key="Stalls").price_minor == 4_500
    assert OnSale.objects.get().price_policy == FEES


def time_fields(name: str, moment: datetime) -> dict[str, str]:
    """Return the fields of a time, as a browser would send them."""
    return {name: f"{moment:%Y-%m-%dT%H:%M:%S}"}


def errors_of(response: Any) -> dict[str, list[str]]:
    """Return the errors of the shown form by the names of its fields."""
    forms = [response.context["adminform"].form]
    for inline in response.context["inline_admin_formsets"]:
        forms += inline.formset.forms
    return {form.add_prefix(name): list(errors) for form in forms for name, errors in form.errors.items()}


@pytest.mark.parametrize(
    ("name", "typed", "error"),
    [
        ("categories-0-price_minor", "45,00", "“45,00” can mean 45.00 or 4,500.00. Write one of these."),
        ("categories-0-price_minor", "45.01234", "“45.01234” is too precise: GBP has 2 decimals."),
        ("on_sale-0-ticket_fee_rate", "7,5", "“7,5” can mean 7.50 or 75.00. Write one of these."),
    ],
)
def test_a_wrong_amount_is_an_error_at_its_field(staff: Client, draft: int, name: str, typed: str, error: str) -> None:
    response = staff.post(address(draft), shown_fields(staff.get(address(draft))) | {name: typed})
    assert errors_of(response) == {name: [error]}
    assert Category.objects.get(key="Stalls").price_minor == 4_500


@pytest.mark.parametrize(("currency", "typed", "minor"), [("JPY", "4500", 4_500), ("KWD", "45.00", 45_000)])
def test_amounts_are_read_in_the_currency_that_is_chosen_with_them(
    staff: Client, draft: int, currency: str, typed: str, minor: int
) -> None:
    fields = shown_fields(staff.get(address(draft))) | {"currency": currency}
    fields |= {name: typed for name in fields if name.startswith("categories") and name.endswith("price_minor")}
    assert staff.post(address(draft), fields | {"on_sale-0-order_fee_minor": "1"}).status_code == 302
    event = Event.objects.get()
    assert (event.currency, set(event.categories.values_list("price_minor", flat=True))) == (currency, {minor})
    assert event.on_sale.order_fee_minor == {"JPY": 1, "KWD": 1_000}[currency]


RATE, CAP, LOBBY = (f"on_sale-0-{name}" for name in ("room_rate_per_second", "room_active_max", "room_lobby_opens_at"))
NEEDS_ROOM = {RATE: "Enter how many visitors are admitted", CAP: "Enter how many visitors may shop at the same time."}


@pytest.mark.parametrize(
    ("typed", "errors"),
    [
        ({RATE: "5"}, {RATE: "A rate needs a cap as well", CAP: "Enter how many visitors may shop at the same time."}),
        ({CAP: "5"}, {CAP: "A cap needs a rate as well", RATE: "Enter how many visitors are admitted per second."}),
        ({RATE: "0", CAP: "5"}, {RATE: "Enter 1 to 100,000"}),
        ({RATE: "5", CAP: "0"}, {CAP: "Enter 1 to 1,000,000"}),
        ({RATE: "5", CAP: "x"}, {CAP: "Enter a whole number."}),
        ({LOBBY: 1}, {LOBBY: "A lobby needs a waiting room: enter its rate and its cap.", **NEEDS_ROOM}),
        ({LOBBY: 3, RATE: "5", CAP: "5"}, {LOBBY: "The lobby must open before sales do."}),
        ({"on_sale-0-sign_up_closes_at": 1}, {"on_sale-0-sign_up_closes_at": "Only a presale by sign-up has this"}),
        (
            {"on_sale-0-presale_condition": "sign_up"},
            {
                "on_sale-0-presale_until": "Enter when the presale ends.",
                LOBBY: "A presale by sign-up needs a lobby",
                "on_sale-0-sign_up_closes_at": "Enter when sign-up closes.",
            },
        ),
        ({"on_sale-0-presale_until": 3}, {"on_sale-0-presale_condition": "Choose who may buy during the presale."}),
        ({"on_sale-0-closes_at": 1}, {"on_sale-0-closes_at": "Sales must end after they open."}),
    ],
)
def test_a_waiting_room_that_is_asked_for_is_complete_or_the_form_is_refused(
    staff: Client, typed: dict[str, Any], errors: dict[str, str]
) -> None:
    event_id = create_event(spec(draft=True, opens_at=in_days(2))).event_id
    fields = shown_fields(staff.get(address(event_id)))
    for name, value in typed.items():
        fields |= time_fields(name, in_days(value)) if isinstance(value, int) else {name: value}
    found = errors_of(staff.post(address(event_id), fields))
    assert found.keys() == errors.keys()
    assert all(found[name][0].startswith(start) for name, start in errors.items()), found
    on_sale = OnSale.objects.get()
    assert (on_sale.room_rate_per_second, on_sale.room_active_max) == (None, None)


def test_a_complete_waiting_room_is_saved_and_on(staff: Client) -> None:
    event_id = create_event(spec(draft=True, opens_at=in_days(2))).event_id
    fields = shown_fields(staff.get(address(event_id))) | {RATE: "5", CAP: "50"}
    assert staff.post(address(event_id), fields | time_fields(LOBBY, in_days(1))).status_code == 302
    publish_event(event_id)
    room = events.get_event("hamlet").policy.room
    assert room is not None
    assert (room.rate_per_second, room.active_max) == (5, 50)
    assert room.lobby_opens_at is not None


@pytest.mark.parametrize("half", [{"room_rate_per_second": 5}, {"room_active_max": 5}])
def test_the_database_refuses_half_a_waiting_room(draft: int, half: dict[str, int]) -> None:
    """A comparison with null is no violation, so the constraint has to ask for null itself."""
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        OnSale.objects.filter(event=draft).update(**half)
    assert violated_constraint(refused.value) == "on_sale_room_has_rate_and_cap"


@pytest.mark.parametrize(
    ("typed", "seconds"), [("90", 90), ("1:30", 90), ("1 min 30 s", 90), ("30", 30), ("4 h", 14_400)]
)
def test_times_to_pay_are_typed_in_seconds_from_30_on(staff: Client, draft: int, typed: str, seconds: int) -> None:
    page = staff.get(address(draft))
    fields = shown_fields(page)
    assert (fields["on_sale-0-hold_seconds"], fields["on_sale-0-payment_seconds"]) == ("600", "180")
    assert ">10 min</output>" in page.content.decode()
    fields |= {"on_sale-0-hold_seconds": typed, "on_sale-0-payment_seconds": "30"}
    assert staff.post(address(draft), fields).status_code == 302
    on_sale = OnSale.objects.get()
    assert (on_sale.hold_seconds, on_sale.payment_seconds) == (seconds, 30)


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ("29", "Enter at least 30 s."),
        ("4 h 1 s", "Enter at most 4 h."),
        ("soon", "Enter seconds, such as 90"),
        ("", "This"),
    ],
)
def test_an_impossible_time_to_pay_is_refused(staff: Client, draft: int, typed: str, error: str) -> None:
    name = "on_sale-0-hold_seconds"
    (found,) = errors_of(staff.post(address(draft), shown_fields(staff.get(address(draft))) | {name: typed}))[name]
    assert found.startswith(error)


@pytest.mark.parametrize(
    ("field", "typed", "error"),
    [
        ("description", "x" * 10_001, "Enter at most 10,000 characters."),
        ("performers", "x" * 121, "Enter at most 100 performers, each with at most 120 characters."),
        ("performers", "\n".join(map(str, range(101))), "Enter at most 100 performers"),
    ],
)
def test_texts_have_the_limits_of_the_command(staff: Client, draft: int, field: str, typed: str, error: str) -> None:
    (found,) = errors_of(staff.post(address(draft), shown_fields(staff.get(address(draft))) | {field: typed}))[field]
    assert found.startswith(error)


def test_the_form_sets_the_return_policy(staff: Client, draft: int) -> None:
    fields = shown_fields(staff.get(address(draft)))
    assert staff.post(address(draft), fields).status_code == 302
    assert return_policies().read(draft) is None
    fields |= {"returns-TOTAL_FORMS": 1, "returns-0-until_hours": "48", "returns-0-event": draft}
    assert staff.post(address(draft), fields).status_code == 302
    assert return_policies().read(draft) == ReturnTerms(48, keeps_fees=False)


def test_a_published_event_shows_its_amounts_as_money(staff: Client) -> None:
    event = make_event(currency="GBP", price_policy=FEES)
    page = staff.get(address(event.pk)).content.decode()
    assert "£45.00" in page
    assert "£1.00" in page
    assert "5%" in page
    assert ">4500<" not in page


def note(client: Client, event: str = "", **fields: str) -> Any:
    return client.post(reverse("admin:events_buyer_price") + event, fields)


def test_the_price_for_the_buyer_is_the_price_of_the_checkout(staff: Client, draft: int) -> None:
    fields = shown_fields(staff.get(address(draft)))
    fields |= {"categories-0-price_minor": "19.99", "on_sale-0-tax_included": "", "on_sale-0-tax_rate": "7.7"}
    fields.pop("on_sale-0-tax_included")
    notes = note(staff, **{name: str(value) for name, value in fields.items()}).json()
    policy = PricePolicy(ticket_fee_rate=500, order_fee_minor=100, tax_rate=770, tax_included=False)
    total = f"£{policy.place_total_minor(1_999) / 100:.2f}"
    assert notes["texts"]["categories-0-price_minor"] == f"Buyer pays {total} incl. fees and tax, plus £1.08 per order"
    assert notes["errors"] == []
    wrong = note(staff, currency="GBP", **{"categories-0-price_minor": "19,99"}).json()
    assert wrong["errors"] == ["categories-0-price_minor"]
    assert note(staff, currency="XX", **{"categories-0-price_minor": "1"}).json() == {"texts": {}, "errors": []}


def test_the_new_price_of_a_published_event_has_its_fees(staff: Client) -> None:
    event = make_event(currency="GBP", price_policy=FEES)
    answer = note(staff, f"?event={event.pk}", price="10", category="Stalls").json()
    assert answer["texts"] == {"price": "Buyer pays £10.50 incl. fees, plus £1.00 per order"}
    assert note(staff, f"?event={event.pk}", price="1,0", category="\x00").json()["errors"] == ["price"]
    for wrong in ("0", "x", "9" * 30, "٤"):
        assert note(staff, f"?event={wrong}", price="1").status_code == 404
    assert staff.get(reverse("admin:events_buyer_price")).status_code == 405


def test_only_staff_who_may_set_prices_ask_for_them_and_members_for_their_organizers_only() -> None:
    theirs, other = make_organizer("theirs"), make_organizer("other")
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    user = make_member(theirs, Role.ORGANIZER)
    client.force_login(user)
    own, foreign = make_event("own", organizer="theirs"), make_event("foreign", organizer="other")
    assert other.pk == foreign.organizer_id
    assert note(client, f"?event={own.pk}", price="1").status_code == 200
    assert note(client, f"?event={foreign.pk}", price="1").status_code == 403
    clerk = User.objects.create_user("clerk", is_staff=True)
    client.force_login(clerk)
    assert note(client, price="1").status_code == 403
    assert events.is_member(clerk) is False


@pytest.mark.parametrize("is_draft", [True, False], ids=["draft", "published"])
def test_long_lists_of_sections_and_categories_are_left_out(
    staff: Client, is_draft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To render thousands of them took the site seconds."""
    stands = tuple(GeneralAdmission(name, 10, 2_000) for name in ("Floor", "Balcony"))
    event = Event.objects.get(pk=create_event(spec(draft=is_draft, general_admission=stands)).event_id)
    page = address(event.pk)

    def parts() -> set[str]:
        return {one.formset.model.__name__ for one in staff.get(page).context["inline_admin_formsets"]}

    assert {"Category", "Section"} <= parts()
    monkeypatch.setattr("apps.events.admin.INLINE_ROWS_MAX", 1)
    assert Section.objects.filter(event=event).count() > 1
    assert Category.objects.filter(event=event).count() > 1
    assert not {"Category", "Section"} & parts()
    assert "are left out here" in staff.get(page).content.decode()


@pytest.mark.parametrize(("most", "shown"), [(2, 2), (1, 0)])
def test_a_draft_has_rows_for_few_missing_prices(
    staff: Client, most: int, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [block("Stalls", 1, 2), block("Circle", 1, 2, category="Circle", y=900)]
    seats = encoded(plan(blocks, ("Stalls", "Circle")))
    event = Event.objects.get(pk=create_event(spec(draft=True, plan=seats, prices={"Stalls": 1, "Circle": 2})).event_id)
    Section.objects.filter(event=event).delete()
    Category.objects.filter(event=event).delete()
    monkeypatch.setattr("apps.events.admin.INLINE_ROWS_MAX", most)
    formsets = staff.get(address(event.pk)).context["inline_admin_formsets"]
    (prices,) = [one.formset for one in formsets if one.formset.model is Category]
    assert len(prices.forms) == shown
