"""Large orders: those of many tickets.

The more tickets a list has, the longer its transaction takes, and every order in it waits for all of them. So large
orders are in no list with others: their checkouts have a queue of their own, and their charges, their provider messages
and their invoices have topics of their own, with short lists. The mails with their tickets, whose documents take up to
a second, have one, too. However many there are, others wait for none of them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from django.conf import settings

from apps.kernel.outbox.facade import ListHandler, Message
from apps.orders import topics

TICKETS_MAX = 10
"""An order of more tickets is large. A list of a hundred others has a thousand tickets at most."""
LIST_MAX = 5
"""Large orders in one transaction. They have 500 tickets at most, since a reservation has up to 100."""
_TOPICS = {
    topics.CHARGE: topics.CHARGE_LARGE,
    topics.PROVIDER_MESSAGE: topics.PROVIDER_MESSAGE_LARGE,
    topics.INVOICE: topics.INVOICE_LARGE,
    topics.SEND_TICKETS: topics.SEND_TICKETS_LARGE,
    topics.SEND_FREE_TICKETS: topics.SEND_TICKETS_LARGE,
}
Item = TypeVar("Item")


def is_large(ticket_count: int) -> bool:
    return ticket_count > TICKETS_MAX


def topic_for(topic: str, ticket_count: int) -> str:
    """Return the topic of this kind of message for an order of so many tickets."""
    return _TOPICS[topic] if is_large(ticket_count) else topic


def calls_max() -> int:
    """Return how many charges of large orders a process has under way at once, beside PAYMENT_CALLS_MAX others."""
    calls: int = settings.PAYMENT_CALLS_MAX
    return max(1, calls // 8)


def split(items: Sequence[Item], count_tickets: Callable[[Item], int]) -> list[Sequence[Item]]:
    """Return the items in the parts that share a transaction, in order: first those of orders that are not large."""
    large = [item for item in items if is_large(count_tickets(item))]
    others = [item for item in items if not is_large(count_tickets(item))]
    return [*([others] if others else []), *_short_lists(large)]


def in_short_lists(handle: ListHandler) -> ListHandler:
    """Return a list handler that gives `handle` LIST_MAX messages at once. If it fails for some of them, all messages
    are handled alone, which changes nothing for those that it has handled."""

    def handle_parts(messages: Sequence[Message]) -> Collection[int]:
        return {left for part in _short_lists(messages) for left in handle(part)}

    return handle_parts


def _short_lists(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for begin in range(0, len(items), LIST_MAX):
        yield items[begin : begin + LIST_MAX]
