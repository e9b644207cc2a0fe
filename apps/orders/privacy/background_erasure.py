"""Erasure of the rest of a person's data after the account was closed: in a request much data would take too long, and
a guest's order with the person's address may be needed until its event is over."""

from typing import Any

from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.privacy import erasure
from apps.orders.privacy.person import Person

RETRY_SECONDS = 3600
"""What is still needed is looked at again after this time."""


def publish(person: Person) -> None:
    """Write the message that erases this person, whose account is being closed. Joins the caller's transaction, which
    deletes the addresses: the message is where they are still stored."""
    (account_id,) = person.account_ids
    body: dict[str, Any] = {"account": account_id, "emails": sorted(person.emails)}
    outbox.publish(topics.ERASE_PERSON, f"account:{account_id}", body)


def continue_erasure(message: outbox.Message) -> None:
    """Outbox handler: erase the person, one transaction for each batch. Safe to run twice; what is erased already no
    longer belongs to the person. If some data is needed, the message is postponed until it is not."""

    def extend_claim() -> None:
        if not outbox.prolong(message):
            raise outbox.RetryLater(0, "another worker has the claim")

    emails, account_ids = frozenset(message.body["emails"]), frozenset([message.body["account"]])
    person = Person(emails, account_ids, False, until=message.created_at)
    erasure.erase_person(person, extend_claim)
    if erasure.find_needed(person):
        raise outbox.RetryLater(RETRY_SECONDS, "some data is still needed")
