"""A person whose address an order had before a correction, or got mail about: export and erasure find it."""

import json
from typing import Any

import pytest

from apps.accounts.models import User
from apps.events import facade as events
from apps.orders.models import Order, OrderHistoryEntry, OrganizerMessage
from apps.orders.privacy import erasure, retention
from apps.orders.privacy.person import person_of_account
from apps.orders.staff.buyer_correction import correct_buyer
from tests.orders.privacy.test_person import EMAIL, NAME, bought, concert, ends, erase_person, everything, person
from tests.support.factories import assert_audit_clean
from tests.support.orders.sale import deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["concert"]
NEW = "bob@example.org"


@pytest.fixture
def corrected(concert: events.EventView) -> Order:
    """An order for an event to come that was corrected from one person to another."""
    order = bought(concert, ["hall-A-1", "hall-A-2"])
    deliver_outbox()
    correct_buyer(order.pk, email=NEW, name="Bob", why="bought for Bob", who="staff:1")
    deliver_outbox()
    order.refresh_from_db()
    return order


def test_an_erasure_by_the_former_address_leaves_it_in_no_table(corrected: Order) -> None:
    assert EMAIL in everything()
    of_buyer = OrderHistoryEntry.objects.filter(address=NEW).count()
    assert erase_person(EMAIL).orders == (), "the order is another person's"
    left = everything()
    assert EMAIL not in left
    assert NAME not in left
    corrected.refresh_from_db()
    assert (corrected.email, corrected.name) == (NEW, "Bob")
    assert OrderHistoryEntry.objects.filter(address=NEW).count() == of_buyer > 0
    erased = set(OrderHistoryEntry.objects.exclude(address=NEW).values_list("address", flat=True))
    assert erased == {corrected.erased_email}
    assert {body["order"]["name"] for body in OrganizerMessage.objects.values_list("body", flat=True)} == {
        "Bob",
        "erased",
    }
    assert_audit_clean()


def test_the_export_lists_the_history_of_a_former_address_without_the_order(corrected: Order) -> None:
    found = json.loads(person(EMAIL, "export"))
    assert found["orders"] == []
    entries = found["history_in_orders_of_others"]
    assert {entry["kind"] for entry in entries} == {"mail", "corrected"}
    assert {entry["address"] for entry in entries} == {EMAIL}
    assert {entry["event"] for entry in entries} == {"concert"}
    assert "bob" not in json.dumps(entries).lower()
    assert str(corrected.pk) not in json.dumps(entries)
    assert json.loads(person(NEW, "export"))["history_in_orders_of_others"] == []
    erase_person(EMAIL)
    assert json.loads(person(EMAIL, "export"))["history_in_orders_of_others"] == []


def test_the_export_of_the_new_owner_does_not_have_the_former_one(corrected: Order) -> None:
    (exported,) = json.loads(person(NEW, "export"))["orders"]
    assert {(entry["kind"], entry["address"]) for entry in exported["history"]} == {("mail", NEW)}
    assert [message["body"]["order"]["name"] for message in exported["messages_to_organizers"]] == ["Bob"]
    del exported["documents"], exported["invoices"]  # They keep the buyer to whom they were issued.
    text = json.dumps(exported)
    assert EMAIL not in text
    assert NAME not in text
    assert "bought for Bob" not in text


def test_an_erasure_of_the_order_erases_its_former_addresses(corrected: Order) -> None:
    ends(events.get_event("concert"))
    assert erase_person(NEW).orders == (corrected.number,)
    assert NEW not in everything()
    assert set(OrderHistoryEntry.objects.values_list("address", flat=True)) == {corrected.erased_email}
    assert_audit_clean()


def test_retention_of_the_order_erases_its_former_addresses(corrected: Order, settings: Any) -> None:
    ends(events.get_event("concert"), days_ago=settings.RETENTION_ORDERS_DAYS + 1)
    retention.run()
    left = everything()
    assert EMAIL not in left
    assert NEW not in left


def test_the_history_of_an_order_with_the_address_stays_with_the_order(concert: events.EventView) -> None:
    """The order is needed until its event is over; another account's order with the address is another person's."""
    order = bought(concert, ["hall-A-1"])
    deliver_outbox()
    before = list(OrderHistoryEntry.objects.values_list("address", flat=True))
    erase_person(EMAIL)
    user = User.objects.create_user("lee-account", EMAIL)
    Order.objects.filter(pk=order.pk).update(account=User.objects.create_user("other").pk)
    erasure.erase_person(person_of_account(user.pk)._replace(emails=frozenset([EMAIL])))
    assert list(OrderHistoryEntry.objects.values_list("address", flat=True)) == before != []
