"""The person whose data is exported or erased, and what belongs to it."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.accounts import facade as accounts
from apps.orders.checkout.buyer_details import normalize_email
from apps.orders.models import Invoice, Order, OrderHistoryEntry
from apps.queue import facade as queue


class Person(NamedTuple):
    """The email addresses and accounts of one person, and whether orders belong to it that another account placed with
    one of the addresses."""

    emails: frozenset[str]
    account_ids: frozenset[int]
    has_orders_of_other_accounts: bool
    until: datetime | None = None
    """What names an address only since then does not belong to it: the address may be a new person's."""

    @property
    def own_orders(self) -> Q:
        by_address = Q(email__in=self.emails) & self.is_until("placed_at")
        if not self.has_orders_of_other_accounts:
            by_address &= Q(account=None)
        return by_address | Q(account__in=self.account_ids)

    def owns(self, order: Order) -> bool:
        """Return what `own_orders` says about this order, which the caller has locked."""
        by_address = order.email in self.emails and (self.has_orders_of_other_accounts or order.account_id is None)
        if self.until is not None:
            by_address &= order.placed_at < self.until
        return by_address or order.account_id in self.account_ids

    def is_until(self, field: str) -> Q:
        return Q() if self.until is None else Q(**{f"{field}__lt": self.until})


def person_of_email(email: str) -> Person:
    """Return the person with this email address, whose identity an operator has checked: with all its orders, and the
    accounts of this name, also if they have not confirmed the address."""
    email = normalize_email(email)
    return Person(frozenset([email]), frozenset(accounts.accounts_of_address(email)), True)


def person_of_account(account_id: int) -> Person:
    """Return the person with this account and the addresses that it has confirmed: a stranger can sign up with another
    person's address. Orders of other accounts do not belong to it: people share mailboxes."""
    emails = frozenset(map(normalize_email, accounts.confirmed_addresses(account_id)))
    return Person(emails, frozenset([account_id]), False)


def entries_of(person: Person) -> list[UUID]:
    """Return the queue entries of the person's orders and accounts."""
    orders = Order.objects.filter(person.own_orders)
    return sorted({*orders.values_list("entry_id", flat=True), *queue.entries_of_accounts(person.account_ids)})


def own_entries(person: Person) -> list[UUID]:
    """Return the queue entries of the person's accounts, and those with which they have ordered. An entry whose order
    only has one of the addresses may be another person's, who typed it or whose order staff gave to this one."""
    orders = Order.objects.filter(account__in=person.account_ids)
    return sorted({*orders.values_list("entry_id", flat=True), *queue.entries_of_accounts(person.account_ids)})


def own_documents(person: Person) -> QuerySet[Invoice]:
    """Return the invoices and credit notes of the person's orders, without those that staff gave to it: these name the
    former owner."""
    return Invoice.objects.filter(order__in=Order.objects.filter(person.own_orders, is_handed_over=False))


def documents_in_orders_of_others(person: Person) -> QuerySet[Invoice]:
    """Return the invoices and credit notes that name the person, of orders that staff gave to another one."""
    former = OrderHistoryEntry.objects.filter(
        kind=OrderHistoryEntry.Kind.CORRECTED, address__in=person.emails, order__is_handed_over=True
    )
    # The ids are read first: there are few, and with a condition on the document too, PostgreSQL would read them all.
    ids = set(former.values_list("order", flat=True))
    return Invoice.objects.filter(order__in=ids, paper__buyer__email__in=person.emails)


def history_in_orders_of_others(person: Person) -> QuerySet[OrderHistoryEntry]:
    """Return the entries with the person's addresses in the history of orders that belong to others: corrections of
    such an address to another one, mails sent before them, and mails about tickets that were passed on. Entries of an
    order that has one of the addresses belong to that order."""
    entries = OrderHistoryEntry.objects.filter(person.is_until("at"), address__in=person.emails)
    return entries.exclude(order__email__in=person.emails).exclude(order__account__in=person.account_ids)
