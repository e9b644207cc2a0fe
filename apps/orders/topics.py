"""The outbox topics of this app. A message's key is its order's id, so that an order's messages stay in order. The key
of ASK is the payment's id: ASK is retried for a long time, and the order's other messages must not wait for it. INVOICE
has a key of its own for the same reason, and so do further mails with an order's tickets (`tickets_key`). Large orders
have topics of their own, so that no list with others contains them (`payments.large_orders`)."""

from uuid import UUID

from apps.events import facade as events

CHARGE = "orders.charge"
CHARGE_LARGE = "orders.charge_large"
ASK = "orders.ask"
REFUND = "orders.refund"
RECONCILE_PAYMENT = "orders.reconcile_payment"
RECONCILE_REFUND = "orders.reconcile_refund"
COMPARE_DAY = "orders.compare_day"
PROVIDER_MESSAGE = "orders.provider_message"
PROVIDER_MESSAGE_LARGE = "orders.provider_message_large"
SEND_TICKETS = "orders.send_tickets"
SEND_FREE_TICKETS = "orders.send_free_tickets"
"""Of orders that cost nothing, which strangers can place for any address."""
SEND_TICKETS_LARGE = "orders.send_tickets_large"
"""Of large orders, paid or not. Their documents take up to a second."""
SEND_TICKETS_AGAIN = "orders.send_tickets_again"
"""At the request of staff or of the order's owner, perhaps for thousands of orders at once."""
SEND_FAILURE_NOTICE = "orders.send_failure_notice"
SEND_CONFIRMATION = "orders.send_confirmation"
SEND_ORDER_LIST = "orders.send_order_list"
"""Its key is the email address."""
SEND_REFUND_NOTICE = "orders.send_refund_notice"
WEBHOOK = "orders.webhook"
"""A delivery to an organizer's endpoint. Its key is the endpoint's and the order's id, see `webhooks.messages`."""
SEND_RETURN_NOTICE = "orders.send_return_notice"
SEND_CANCELLATION_NOTICE = "orders.send_cancellation_notice"
SEND_CORRECTION_NOTICE = "orders.send_correction_notice"
SEND_DISPUTE_NOTICE = "orders.send_dispute_notice"
SEND_TRANSFER = "orders.send_transfer"
"""Its key is the transfer's id, or the order's for the notice to its buyer: a delayed mail to one recipient delays none
to another."""
CANCEL_EVENT = "orders.cancel_event"
"""Its key is the event's id."""
NOTIFY_OF_SCHEDULE = "orders.notify_of_schedule"
"""Its key is the change's id."""
SEND_SCHEDULE_NOTICE = "orders.send_schedule_notice"
"""Its key is the order's id, or the transfer's."""
REMIND_BUYERS = "orders.remind_buyers"
"""Its key is the id of the scheduled task's run."""
SEND_REMINDER = "orders.send_reminder"
"""Its key is the order's id."""
ERASE_PERSON = "orders.erase_person"
"""Its key is the account's id."""
SEND_FIGURES = "orders.send_figures"
"""Its key is the id of the scheduled task's run."""
INVOICE = "orders.invoice"
INVOICE_LARGE = "orders.invoice_large"


def tickets_key(order_id: UUID, link_version: int, *, is_of_staff: bool) -> str:
    """Return the key of another mail with the order's tickets. Staff's mails have one of their own: they wait for no
    delayed mail of the order's owner. After each correction of the address the keys are others: a mail to the new
    address waits for no delayed mail to the former one."""
    return f"{'staff' if is_of_staff else 'owner'}:{order_id}:{link_version}"


def origin_of(event: events.EventView) -> str:
    """Return the origin (`outbox.ORIGIN_FIELD`) of mails about an event that no client asked for: they have turns with
    those of other organizers."""
    return f"{origin_of_organizer(event.organizer_id)}event {event.id}"


def origin_of_organizer(organizer_id: int) -> str:
    """Return how the origins of all events of the organizer begin."""
    return f"organizer {organizer_id}/"


def origin_of_event(event_id: int) -> str:
    """Return `origin_of` for the event with this id."""
    return origin_of(events.get_event_by_id(event_id))
