"""Choosing: four equivalent ways, errors that keep the choice, and the way back into the queue."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.inventory import seat_pages
from apps.reservations.models import Reservation
from tests.support import factories

CHOOSE = "/events/concert/choose"
BEST = {"view": "best", "best_section": "hall"}


def hold(browser: Client, **fields: Any) -> Any:
    return browser.post(CHOOSE, {"idempotency_key": uuid.uuid4().hex, **fields})


@pytest.mark.parametrize(
    ("query", "view"),
    [("", "map"), ("?view=map", "map"), ("?view=list", "list"), ("?view=best", "best"), ("?view=quantity", "quantity"),
     ("?view=nonsense", "map"), ("?view=%00", "map")],
)  # fmt: skip
def test_each_way_to_choose_has_its_page(shopper: Client, query: str, view: str) -> None:
    response = shopper.get(f"{CHOOSE}{query}")
    assert response.status_code == 200
    assert "no-store" in response.headers["Cache-Control"]
    assert response.context["view"] == view
    assert f'name="view" value="{view}"' in response.content.decode()


def test_each_page_has_its_own_key(shopper: Client) -> None:
    keys = {shopper.get(CHOOSE).context["idempotency_key"] for _ in range(3)}
    assert len(keys) == 3


def test_an_event_without_seats_offers_a_quantity_only(browser: Client, db: None) -> None:
    factories.make_event("concert", rows=0, general_admission=5)
    browser.post("/events/concert/join", follow=True)
    for query in ("", "?view=map", "?view=list"):
        assert browser.get(f"{CHOOSE}{query}").context["view"] == "quantity"


def test_of_several_unreserved_sections_none_is_selected_for_the_visitor(browser: Client, db: None) -> None:
    """The only one is; and the one that the map links to."""
    factories.make_event("concert", rows=0, general_admission=5)
    browser.post("/events/concert/join", follow=True)
    assert 'value="floor" checked' in browser.get(CHOOSE).content.decode()
    factories.make_event("show", rows=0, general_admission=5, further=(("Terrace", 10, 1_000),))
    browser.post("/events/show/join", follow=True)
    assert "checked" not in browser.get("/events/show/choose").content.decode()
    assert 'value="terrace" checked' in browser.get("/events/show/choose?ga_section=terrace").content.decode()


def test_a_lone_way_to_choose_has_no_tabs(browser: Client, shopper: Client) -> None:
    assert 'class="tabs"' in shopper.get(CHOOSE).content.decode()
    factories.make_event("standing", rows=0, general_admission=5)
    browser.post("/events/standing/join", follow=True)
    assert 'class="tabs"' not in browser.get("/events/standing/choose").content.decode()


def test_the_page_shows_one_limit_which_counts_what_the_buyer_has(browser: Client, db: None) -> None:
    event = factories.make_event("concert", per_buyer_max=4)
    assert "at a time" not in browser.get("/events/concert/").content.decode()
    browser.post("/events/concert/join", follow=True)
    assert browser.get(CHOOSE).context["limit"] == 4
    held = hold(browser, seats=["hall-A-1", "hall-A-2", "hall-A-3"]).url
    assert browser.get(f"{CHOOSE}?change=1&view=list").context["limit"] == 4
    buyer = Reservation.objects.get().buyer
    assert reservations.ticket_limit(event, buyer, None) == 1
    browser.post(f"{held}release")
    assert reservations.ticket_limit(event, buyer, None) == 4


def test_enter_in_the_list_never_changes_the_section(shopper: Client) -> None:
    """The form's first button is the one that Enter presses."""
    page = shopper.get(f"{CHOOSE}?view=list").content.decode()
    form = page[page.index('id="choose-form"') :]
    assert form.index('<button type="submit" hidden') < form.index('formmethod="get"')


def test_the_list_shows_the_status_of_every_seat(shopper: Client, concert: events.EventView) -> None:
    factories.hold(concert, seats=["hall-A-2"])
    rows = shopper.get(f"{CHOOSE}?view=list&section=hall&seats=hall-B-1&seats=elsewhere-1").context["list_rows"]
    assert [row["row"] for row in rows] == ["A", "B", "C", "D", "E"]
    assert [seat["status"] for seat in rows[0]["seats"][:3]] == ["available", "held", "available"]
    page = shopper.get(f"{CHOOSE}?view=list&seats=hall-B-1&seats=elsewhere-1")
    assert page.context["selected_elsewhere"] == ["elsewhere-1"]
    assert b'value="hall-B-1" data-price="5000" checked' in page.content


def test_the_list_shows_a_large_section_in_pages_and_keeps_the_selection(
    shopper: Client, concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seat_pages, "SEATS_MAX", 20)
    first = shopper.get(f"{CHOOSE}?view=list&section=hall")
    assert sum(len(row["seats"]) for row in first.context["list_rows"]) == 20
    assert b"Seats 1 to 20 of 50" in first.content
    url = f"{CHOOSE}?view=list&section=hall&page=hall.2&seats=hall-A-1"
    second = shopper.get(f"{url}&page={first.context['list_page'].next}")
    assert second.context["selected_elsewhere"] == ["hall-A-1"]
    assert [row["row"] for row in second.context["list_rows"]] == ["C", "D"]
    last = shopper.get(f"{CHOOSE}?view=list&section=hall&page=hall.999")
    assert b"Seats 41 to 50 of 50" in last.content
    assert not last.context["list_page"].next
    for page in ("hall", "hall.0", "hall.-1", "hall.²", "floor.2", "hall.99999999999"):
        named = shopper.get(CHOOSE, {"view": "list", "section": "hall", "page": page})
        assert named.context["list_page"].number == 1
    fields = {"view": "list", "page": "hall.2", "seats": ["hall-A-1", "hall-C-1"], "idempotency_key": str(uuid.uuid4())}
    held = shopper.post(CHOOSE, fields)
    assert held.status_code == 303


@pytest.mark.parametrize(
    ("fields", "seats", "tickets"),
    [
        ({"view": "list", "seats": ["hall-A-1", "hall-A-2"]}, 2, 0),
        ({"view": "map", "seats": ["hall-C-5"]}, 1, 0),
        ({"view": "quantity", "ga_section": "floor", "ga_quantity": "4"}, 0, 4),
        (BEST | {"best_quantity": "3", "best_wheelchairs": "0"}, 3, 0),
        ({"view": "best", "best_section": "hall", "best_quantity": "2", "best_category": "Standard"}, 2, 0),
    ],
)
def test_chosen_seats_are_held_and_lead_to_the_reservation(
    shopper: Client, fields: dict[str, Any], seats: int, tickets: int
) -> None:
    response = hold(shopper, **fields)
    reservation = Reservation.objects.get()
    assert (response.status_code, response.url) == (303, f"/reservations/{reservation.pk}/")
    lines = list(reservation.lines.all())
    assert sum(line.quantity for line in lines if line.seat_id) == seats
    assert sum(line.quantity for line in lines if not line.seat_id) == tickets
    page = shopper.get(response.url)
    assert page.status_code == 200
    assert " reserved</h1>" in page.content.decode()


def test_a_form_sent_twice_holds_once(shopper: Client) -> None:
    fields = {"idempotency_key": "page-1", "seats": ["hall-A-1"]}
    assert shopper.post(CHOOSE, fields).url == shopper.post(CHOOSE, fields).url
    assert Reservation.objects.count() == 1


def test_unavailable_seats_are_named_and_the_others_stay_chosen(shopper: Client, concert: events.EventView) -> None:
    factories.hold(concert, seats=["hall-A-1"])
    response = hold(shopper, view="list", seats=["hall-A-1", "hall-A-2", "hall-B-7"])
    assert response.status_code == 409
    assert response.context["taken_seats"] == [{"section": "Hall", "row": "A", "number": "1"}]
    assert response.context["selected"] == ["hall-A-2", "hall-B-7"]
    page = response.content.decode()
    assert "Just taken:" in page
    assert 'value="hall-A-2" data-price="5000" checked' in page
    again = response.context
    held = hold(shopper, view="list", seats=again["selected"], idempotency_key=again["idempotency_key"])
    assert held.status_code == 303


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"view": "list"}, 422, "Nothing is selected"),
        ({"view": "quantity", "ga_section": "floor", "ga_quantity": "0"}, 422, "a whole number of at least 1"),
        ({"view": "quantity", "ga_section": "floor", "ga_quantity": "٣"}, 422, "a whole number of at least 1"),
        ({"view": "quantity", "ga_section": "floor", "ga_quantity": "9" * 5_000}, 422, "a whole number of at least 1"),
        ({"view": "quantity", "ga_section": "floor", "ga_quantity": "two"}, 422, "a whole number of at least 1"),
        ({"view": "quantity", "ga_quantity": "2"}, 422, "Choose a section"),
        ({"view": "quantity", "ga_section": "floor", "ga_quantity": "9"}, 422, "at most 8"),
        ({"view": "quantity", "ga_section": "nowhere", "ga_quantity": "1"}, 422, "no such general-admission section"),
        ({"view": "best", "best_quantity": "2", "best_price_max": "x"}, 422, "Choose a price from the list"),
        ({"view": "best", "best_quantity": "2", "best_price_max": "1"}, 422, "no seats cost that little"),
        ({"view": "best", "best_section": "hall", "best_quantity": "-1"}, 422, "a whole number of at least 1"),
        ({"view": "best", "best_section": "hall", "best_quantity": "1", "best_category": "Royal"}, 422, "category"),
        (BEST | {"best_quantity": "2", "best_wheelchairs": "3"}, 422, "includes everyone"),
        (BEST | {"best_quantity": "2", "best_wheelchairs": "some"}, 422, "a whole number of at least 1"),
        (BEST | {"best_quantity": "2", "best_wheelchairs": "1"}, 409, "No wheelchair space is left"),
        ({"view": "list", "seats": ["nowhere-1"]}, 422, "no such seat"),
        ({"view": "list", "seats": ["hall-A-1\x00"]}, 422, "no such seat"),
        ({"view": "list", "seats": [f"hall-A-{n}" for n in range(1, 10)]}, 422, "at most 8"),
    ],
)
def test_a_refused_choice_is_explained_on_its_own_page(
    shopper: Client, fields: dict[str, Any], status: int, sentence: str
) -> None:
    response = hold(shopper, **fields)
    assert response.status_code == status
    assert response.context["view"] == fields["view"]
    assert sentence in " ".join(response.context["form_errors"])
    assert not Reservation.objects.exists()


def test_a_form_with_errors_keeps_its_input(shopper: Client) -> None:
    page = hold(shopper, view="quantity", ga_section="floor", ga_quantity="99").content.decode()
    assert 'value="99"' in page
    best = hold(shopper, view="best", best_section="hall", best_quantity="77", best_wheelchairs="2").content.decode()
    assert 'value="77"' in best
    assert 'value="2" aria-describedby="best_wheelchairs_help"' in best


def test_a_companion_of_a_wheelchair_user_gets_the_seat_beside_it(browser: Client, db: None) -> None:
    factories.make_event("concert", accessible=frozenset({"hall-C-1"}))
    browser.post("/events/concert/join", follow=True)
    assert hold(browser, **BEST, best_quantity="3", best_wheelchairs="1").status_code == 303
    held = Reservation.objects.get().lines.values_list("seat__seat__guid", flat=True)
    assert sorted(held) == ["hall-C-1", "hall-C-2", "hall-C-3"]


def test_with_too_few_tickets_left_the_page_shows_how_many(browser: Client, db: None) -> None:
    event = factories.make_event("concert", rows=0, general_admission=5)
    factories.hold(event, ga_section="floor", ga_quantity=3)
    browser.post("/events/concert/join", follow=True)
    response = hold(browser, view="quantity", ga_section="floor", ga_quantity="3")
    assert response.status_code == 409
    assert "Only 2 left" in " ".join(response.context["form_errors"])


def test_a_visitor_with_a_hold_is_redirected_to_it(shopper: Client) -> None:
    held = hold(shopper, seats=["hall-A-1"]).url
    for response in (shopper.get(CHOOSE, follow=True), shopper.post(CHOOSE, {"seats": ["hall-A-2"]}, follow=True)):
        assert response.redirect_chain[-1][0] == held
        assert "You already have these tickets reserved" in response.content.decode()
    assert Reservation.objects.count() == 1


def test_an_old_page_with_a_new_choice_is_a_new_request(shopper: Client) -> None:
    held = hold(shopper, idempotency_key="page-1", seats=["hall-A-1"])
    shopper.post(f"{held.url}release")
    second = shopper.post(CHOOSE, {"idempotency_key": "page-1", "seats": ["hall-A-2"]})
    assert second.status_code == 303
    assert second.url != held.url


def test_when_the_admission_is_over_and_no_visitor_waits_the_visitor_goes_on(shopper: Client) -> None:
    for act in (lambda: shopper.get(CHOOSE), lambda: hold(shopper, seats=["hall-A-1"])):
        QueueEntry.objects.update(admission_expires_at=clock.now() - timedelta(seconds=1))
        assert act().status_code in (200, 303)
    assert Reservation.objects.get().status == "pending_payment"


def test_a_visitor_who_never_joined_gets_the_form_to_join(browser: Client, concert: events.EventView) -> None:
    response = browser.get(CHOOSE)
    assert response.status_code == 200
    assert 'action="/events/concert/join"' in response.content.decode()
    assert hold(browser, seats=["hall-A-1"]).status_code == 429


def test_when_everything_is_sold_the_page_shows_it(shopper: Client, browser: Client) -> None:
    event = factories.make_event("tiny", rows=0, general_admission=2)
    factories.hold(event, ga_section="floor", ga_quantity=2)
    page = browser.post("/events/tiny/join", follow=True)
    assert page.status_code == 200
    assert "Sold out" in page.content.decode()


def test_after_the_end_of_sales_choosing_redirects_to_the_events_page(shopper: Client) -> None:
    now = clock.now()
    OnSale.objects.update(opens_at=now - timedelta(hours=1), closes_at=now - timedelta(seconds=1))
    assert shopper.get(CHOOSE).url == "/events/concert/"
    assert hold(shopper, seats=["hall-A-1"]).url == "/events/concert/"


def test_an_unknown_event_is_not_found(browser: Client, db: None) -> None:
    assert browser.get("/events/nowhere/choose").status_code == 404
    assert browser.get("/events/nowhere/choose/status.json").status_code == 404


def test_the_maps_status_is_for_admitted_visitors_only(browser: Client, concert: events.EventView) -> None:
    status = f"{CHOOSE}/status.json"
    assert browser.get(status).status_code == 401
    browser.post("/events/concert/join", follow=True)
    factories.hold(concert, seats=["hall-A-2", "hall-B-1"], ga_section="floor", ga_quantity=3)
    response = browser.get(status)
    state = response.json()
    assert state["taken"] == [1, 10]
    assert state["general_admission"] == {"floor": 17}
    assert state["as_of"].endswith("Z")
    plan = browser.get("/events/concert/plan.json").json()
    assert [plan["seats"]["id"][index] for index in state["taken"]] == ["hall-A-2", "hall-B-1"]
    unchanged = browser.get(status, headers={"if-none-match": response.headers["ETag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    factories.hold(concert, seats=["hall-E-10"])
    assert browser.get(status, headers={"if-none-match": response.headers["ETag"]}).json()["taken"] == [1, 10, 49]
    QueueEntry.objects.update(admission_expires_at=clock.now() - timedelta(seconds=1))
    assert browser.get(status).status_code == 410
