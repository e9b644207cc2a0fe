"""The one door into the orders app: what the composition root connects to the outbox and to log-in."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from apps.orders import (
    attaching,
    charging,
    circuit,
    comparing,
    differences,
    event_canceling,
    inbox,
    invoices,
    mail,
    refunds,
    topics,
    unsettled,
    watching,
)
from apps.orders.organizers import webhooks
from apps.orders.providers import sandbox
from ticketing.kernel.outbox import facade as outbox
from ticketing.kernel.outbox.facade import Message

attach_orders = attaching.attach_orders
providers_resting = circuit.resting
count_open_differences = differences.count_open
authorize_listener = watching.authorize
read_for_listeners = watching.read
LISTENED_AS = watching.KIND


@dataclass(frozen=True, slots=True)
class TopicHandler:
    """What a topic's delivery does; safe to run twice. The rest is as `outbox.handle` says."""

    topic: str
    handle: Callable[[Message], None]
    visibility: timedelta
    attempts_max: int = outbox.ATTEMPTS_MAX
    backoff: outbox.Backoff | None = None
    together_max: int | None = None


def handlers() -> list[TopicHandler]:
    """Every outbox topic of a sale. Where a provider is asked, a claim lasts its time-out and 15 s more (rule 27)."""
    asked = timedelta(seconds=settings.PAYMENT_TIMEOUT_SECONDS + 15)
    short = timedelta(minutes=1)
    return [
        TopicHandler(topics.CHARGE, charging.charge, asked),
        TopicHandler(topics.ASK, charging.ask, asked),
        TopicHandler(topics.REFUND, refunds.send, asked),
        TopicHandler(topics.RECONCILE_PAYMENT, unsettled.handle_payment, asked, attempts_max=3),
        TopicHandler(topics.RECONCILE_REFUND, unsettled.handle_refund, asked, attempts_max=3),
        # Prolonged with each piece. What fails is asked for anew, later.
        TopicHandler(topics.COMPARE_DAY, comparing.handle, timedelta(minutes=10), attempts_max=3),
        TopicHandler(topics.PROVIDER_MESSAGE, inbox.process, short),
        TopicHandler(topics.INVOICE, invoices.write_papers, short),
        TopicHandler(topics.SEND_TICKETS, mail.send_tickets, short),
        TopicHandler(topics.SEND_FAILURE_NOTICE, mail.send_failure_notice, short),
        TopicHandler(topics.SEND_REFUND_NOTICE, mail.send_refund_notice, short),
        TopicHandler(
            topics.WEBHOOK,
            webhooks.deliver,
            short,
            attempts_max=webhooks.ATTEMPTS_MAX,
            backoff=webhooks.BACKOFF,
            together_max=webhooks.TOGETHER_MAX,
        ),
        TopicHandler(topics.SEND_RETURN_NOTICE, mail.send_return_notice, short),
        TopicHandler(topics.SEND_CANCELLATION_NOTICE, mail.send_cancellation_notice, short),
        TopicHandler(topics.SEND_DISPUTE_NOTICE, mail.send_dispute_notice, short),
        TopicHandler(topics.CANCEL_EVENT, event_canceling.go_on, timedelta(minutes=2)),
        TopicHandler(sandbox.WEBHOOK_TOPIC, inbox.deliver_sandbox_webhook, short),
    ]
