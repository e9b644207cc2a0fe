"""An event that is given to another organizer is no longer open to the systems and door staff of the former one."""

from datetime import timedelta

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events.models import Event
from apps.kernel import clock
from apps.orders.checkin import door_links
from apps.orders.models import DoorLink, OrganizerMessage, WebhookDelivery
from tests.events.admin_pages.test_event_form import shown_fields
from tests.support.factories import hold, make_event, make_organizer
from tests.support.orders.sale import buy
from tests.support.orders.webhook_endpoints import make_endpoint, make_feed_key

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_event_given_to_another_organizer_ends_the_access_of_the_former_one() -> None:
    make_organizer("former")
    event, other = (make_event(slug, organizer="former", venue=slug) for slug in ("moved", "other"))
    successor = make_organizer("successor")
    own, kept = make_endpoint(event=event), make_endpoint(event=other)
    (_, key), (_, kept_key) = make_feed_key(event), make_feed_key(other)
    now = clock.now()
    for of in (event, other):
        door_links.make_link(
            of.id, name="North", door="", good_from=now, good_until=now + timedelta(days=1), who="former"
        )
    staff = Client(headers={"Sec-Fetch-Site": "same-origin"})
    chief = User.objects.create_superuser("chief", "chief@example.org", "secret")
    staff.force_login(chief)
    address = reverse("admin:events_event_change", args=[event.id])
    fields = shown_fields(staff.get(address))
    for organizer_id in (event.organizer_id, successor.pk):
        response = staff.post(address, fields | {"organizer": organizer_id})
        assert response.status_code == 302
        own.refresh_from_db()
        assert own.is_active == (organizer_id == event.organizer_id)
    assert Event.objects.get(pk=event.id).organizer == successor
    warnings = [str(message) for message in get_messages(response.wsgi_request) if message.level_tag == "warning"]
    assert warnings == ["Ended, because they were the former organizer's: 1 webhook endpoint, 1 feed key, 1 door link."]
    for row in (kept, key, kept_key):
        row.refresh_from_db()
    assert (key.revoked_at is not None, kept.is_active, kept_key.revoked_at) == (True, True, None)
    assert list(DoorLink.objects.order_by("pk").values_list("event", "revoked_by").order_by("event")) == [
        (event.id, f"staff:{chief.pk}"),
        (other.id, ""),
    ]
    buy(hold(event, seats=["hall-A-1"]))
    assert not WebhookDelivery.objects.exists()
    assert not OrganizerMessage.objects.exists()
