"""An organizer's terms: shown, accepted at checkout in their current version, and recorded with the order."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client

from apps.events import facade as events
from apps.events.models import LegalPage, Organizer
from apps.events.organizers import legal_pages
from apps.kernel import clock
from apps.orders.errors import TermsNotAccepted
from apps.orders.models import Order
from apps.reservations.models import Reservation
from tests.support import factories
from tests.support.api_client import Api
from tests.support.orders.sale import SAME_ORIGIN, buy, checkout_body, place_order

pytestmark = pytest.mark.django_db
TEXT = "Tickets are personal.\n\nSee https://example.org/rules and <script>alert(1)</script>."


def publish(text: str = TEXT, url: str = "", kind: str = "terms") -> bool:
    organizer = Organizer.objects.get(slug="default")
    with transaction.atomic():
        return legal_pages.publish_page(organizer, kind, text=text, url=url, who="test")


def current_version() -> str:
    terms = events.current_terms(Organizer.objects.get(slug="default").pk)
    assert terms is not None
    return terms.version


def held_by(browser: Client) -> Reservation:
    headers = SAME_ORIGIN | {"idempotency-key": "hold"}
    body = {"seats": ["hall-A-1"]}
    browser.post("/api/events/concert/reservations", body, content_type="application/json", headers=headers)
    return Reservation.objects.get(status="pending_payment")


def test_without_terms_nothing_is_asked_or_recorded(concert: events.EventView) -> None:
    order = buy(factories.hold(concert, seats=["hall-A-1"]))
    assert (order.terms_version, order.terms_accepted_at) == ("", None)


def test_a_new_order_needs_the_current_version(concert: events.EventView) -> None:
    publish()
    reservation = factories.hold(concert, seats=["hall-A-1"])
    old = current_version()
    for terms in ("", "x", None):
        with pytest.raises(TermsNotAccepted) as caught:
            place_order(reservation, terms=terms)
        assert caught.value.extra["terms"]["version"] == old
        assert not Order.objects.exists()
        assert Reservation.objects.get().status == "pending_payment"
    publish("Changed.")
    with pytest.raises(TermsNotAccepted):
        place_order(reservation, terms=old)
    before = clock.now()
    order = place_order(reservation, terms=current_version())
    assert order.terms_version == current_version()
    assert order.terms_accepted_at is not None
    assert order.terms_accepted_at >= before
    assert LegalPage.objects.get(pk=order.terms_version.removeprefix("terms-")).text == "Changed."


def test_the_api_names_the_terms_in_the_quote_and_in_its_refusal(concert: events.EventView) -> None:
    api = Api()
    token = api.admission("concert")
    held = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=token, key="h").json()
    path = f"/reservations/{held['reservation_id']}"
    assert api.post(f"{path}/quote", {}, token=token).json()["terms"] is None
    publish()
    terms = api.post(f"{path}/quote", {}, token=token).json()["terms"]
    assert terms["version"] == current_version()
    assert [page["kind"] for page in terms["pages"]] == ["terms"]
    assert terms["pages"][0]["url"].endswith("/organizers/default/terms")
    refused = api.post(f"{path}/checkout", checkout_body(), token=token, key="first")
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (422, "terms-not-accepted")
    assert refused.json()["terms"] == terms
    for value in (1, [], {"a": 1}, "\x00", "ü" * 500):
        response = api.post(f"{path}/checkout", checkout_body(terms=value), token=token, key="first")
        assert response.status_code == 422, value
    placed = api.post(f"{path}/checkout", checkout_body(terms=terms["version"]), token=token, key="first")
    assert placed.status_code == 202
    assert Order.objects.get().terms_version == terms["version"]


def test_a_second_checkout_of_an_order_needs_no_terms(concert: events.EventView) -> None:
    reservation = factories.hold(concert, seats=["hall-A-1"])
    order = place_order(reservation)
    publish()
    assert place_order(reservation).pk == order.pk


def test_the_page_shows_the_tick_and_refuses_an_order_without_it(shopper: Client, concert: events.EventView) -> None:
    publish()
    publish("", "https://example.org/privacy", "privacy")
    reservation = held_by(shopper)
    url = f"/reservations/{reservation.pk}/checkout"
    page = shopper.get(url).content.decode()
    assert f'name="terms" id="id_terms" value="{current_version()}" required' in page
    assert '/organizers/default/terms"' in page
    assert '/organizers/default/privacy"' in page
    form = checkout_body(payment_method="", idempotency_key="k" * 24)
    refused = shopper.post(url, form, headers=SAME_ORIGIN)
    assert refused.status_code == 422
    assert "Accept this to place the order." in refused.content.decode()
    assert not Order.objects.exists()
    accepted = shopper.post(url, form | {"terms": current_version()}, headers=SAME_ORIGIN)
    assert accepted.status_code == 303
    order = Order.objects.get()
    assert order.terms_version == current_version()
    assert '/organizers/default/terms"' in shopper.get(f"/orders/{order.pk}/").content.decode()


def test_a_privacy_notice_alone_is_accepted_too(concert: events.EventView) -> None:
    publish(kind="imprint")
    assert events.current_terms(Organizer.objects.get(slug="default").pk) is None
    publish(kind="privacy")
    reservation = factories.hold(concert, seats=["hall-A-1"])
    with pytest.raises(TermsNotAccepted):
        place_order(reservation)
    publish()
    privacy, terms = LegalPage.objects.get(kind="privacy"), LegalPage.objects.get(kind="terms")
    assert current_version() == f"terms-{terms.pk}.privacy-{privacy.pk}"
    publish("", kind="terms")
    order = place_order(reservation, terms=f"privacy-{privacy.pk}")
    assert order.terms_version == f"privacy-{privacy.pk}"


def test_the_pages_of_an_organizer(browser: Client, concert: events.EventView) -> None:
    assert browser.get("/organizers/default/terms").status_code == 404
    assert "/organizers/default/" not in browser.get("/events/concert/").content.decode()
    assert publish()
    assert not publish()
    page = browser.get("/organizers/default/terms").content.decode()
    assert "<p>Tickets are personal.</p>" in page
    assert 'href="https://example.org/rules" rel="nofollow"' in page
    assert "<script>alert" not in page
    assert '/organizers/default/terms"' in browser.get("/events/concert/").content.decode()
    publish("", "https://example.org/imprint", "imprint")
    assert browser.get("/organizers/default/imprint")["Location"] == "https://example.org/imprint"
    for path in ("default/root", "unknown/terms", "default/privacy", "DEFAULT/terms"):
        assert browser.get(f"/organizers/{path}").status_code == 404
    publish("", "")
    assert browser.get("/organizers/default/terms").status_code == 404


def test_members_publish_the_pages_in_the_admin(concert: events.EventView) -> None:
    organizer = Organizer.objects.get(slug="default")
    client = Client(headers=SAME_ORIGIN)
    client.force_login(factories.make_member(organizer))
    url = f"/admin/events/organizer/{organizer.pk}/change/"
    form = {
        "name": "Opera",
        "contact_email": "",
        "terms_text": " One.\r\n\r\nTwo. ",
        "privacy_url": "https://x.example/",
    }
    assert client.post(url, form | {"terms_url": "https://x.example/"}).status_code == 200
    assert client.post(url, form | {"privacy_url": "javascript:alert(1)"}).status_code == 200
    assert not LegalPage.objects.exists()
    for _ in range(2):
        assert client.post(url, form).status_code == 302
    stored: Any = LegalPage.objects.order_by("kind").values_list("kind", "text", "url", "published_by")
    who = get_user_model().objects.get().get_username()
    assert list(stored) == [("privacy", "", "https://x.example/", who), ("terms", "One.\n\nTwo.", "", who)]
    assert "One." in client.get(url).content.decode()


def test_staff_see_the_accepted_version(concert: events.EventView) -> None:
    publish()
    order = place_order(factories.hold(concert, seats=["hall-A-1"]), terms=current_version())
    client = Client(headers=SAME_ORIGIN)
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert current_version() in client.get(f"/admin/orders/order/{order.pk}/change/").content.decode()
