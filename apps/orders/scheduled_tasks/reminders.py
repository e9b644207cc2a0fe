"""Reminders to the buyers of an event: one mail to each buyer who paid and address, and one to each address with free
orders, in batches, through the outbox.

A batch locks the reminder, and writes the messages of the mails with its new position in one transaction. It names its
number, so one that is delivered twice, or again after its worker was killed, writes nothing. The next batch waits while
reminders of the same organizer are due: thousands of due messages would slow down those of the sale.
"""

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.orders import topics
from apps.orders.models import Order, Reminder

BATCH_MAX = 250
DUE_MAX = 250
"""Reminders of the organizer that are due, of all its events, before the next batch waits."""
AGAIN_AFTER_SECONDS = 2

_orders_to_remind = sql.load("apps.orders", "orders_to_remind")


def begin_reminder(run_id: int, event_id: int, text: str) -> int:
    """Write the reminder and the message of its first batch; return how many mails it will send, as of now. Joins the
    transaction of the run."""
    transactions.require_transaction()
    standing = Order.objects.filter(event_id=event_id, status__in=Order.STANDING)
    paid = standing.filter(total_minor__gt=0).values("email", "buyer").distinct()
    free = standing.filter(total_minor=0).values("email").distinct()
    count = paid.count() + free.count()
    Reminder.objects.create(run=run_id, event_id=event_id, text=text, at=clock.now())
    _publish_continuation(run_id, 0)
    return count


def continue_reminder(message: Message) -> None:
    """Outbox handler: write the messages of one batch, and one for the next. Safe to run twice. Raises RetryLater while
    earlier reminders of the organizer are due."""
    run_id, number = message.body["run"], message.body["batch"]
    event_id = Reminder.objects.values_list("event_id", flat=True).get(pk=run_id)
    organizer = topics.origin_of_organizer(events.get_event_by_id(event_id).organizer_id)
    if outbox.count_due(topics.SEND_REMINDER, organizer, DUE_MAX) >= DUE_MAX:
        raise outbox.RetryLater(AGAIN_AFTER_SECONDS, "earlier reminders are due")
    with transactions.write(), connection.cursor() as cursor:
        # The lock serializes deliveries of the same batch.
        reminder = Reminder.objects.select_for_update(no_key=True, of=("self",)).get(pk=run_id)
        if reminder.finished_at is not None or reminder.batches != number:
            return
        event = events.get_event_by_id(reminder.event_id)
        if event.status == "published" and clock.now() < event.starts_at:
            found = _orders_to_remind.rows(cursor, event_id=event.id, after=reminder.position, limit=BATCH_MAX)
        else:
            found = []
        if found:
            outbox.publish_all(
                [
                    outbox.NewMessage(
                        topics.SEND_REMINDER,
                        str(order_id),
                        {
                            "order": str(order_id),
                            "text": reminder.text,
                            "run": run_id,
                            outbox.ORIGIN_FIELD: topics.origin_of_event(event.id),
                        },
                    )
                    for order_id, _ in found
                ]
            )
            reminder.position = found[-1][1]
        reminder.batches += 1
        if len(found) < BATCH_MAX:
            reminder.finished_at = clock.now()
        else:
            _publish_continuation(run_id, reminder.batches)
        reminder.save(update_fields=["batches", "position", "finished_at"])


def _publish_continuation(run_id: int, number: int) -> None:
    outbox.publish(topics.REMIND_BUYERS, str(run_id), {"run": run_id, "batch": number})
