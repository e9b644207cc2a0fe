"""The public interface of the orders app. The composition root connects it to the outbox and to log-in."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.topic_groups import TopicGroup
from apps.orders import access, mail, topics
from apps.orders.cancellation import event_cancellation
from apps.orders.checkin import door_links
from apps.orders.checkout import guest_orders
from apps.orders.invoices import invoice_lists, invoices
from apps.orders.lookup import order_lookup
from apps.orders.order_pages import live
from apps.orders.payments import circuit_breaker, large_orders, refunds
from apps.orders.payments.providers import sandbox, signatures
from apps.orders.privacy import background_erasure
from apps.orders.provider_sync import charge_lists, charges, daily_comparison, discrepancies, inbox, status_inquiries
from apps.orders.schedule import notices
from apps.orders.scheduled_tasks import mails as task_mails
from apps.orders.scheduled_tasks import reminders
from apps.orders.transfers import transfer_mail
from apps.orders.webhooks import delivery

attach_orders = guest_orders.attach_orders
list_unavailable_providers = circuit_breaker.list_unavailable
count_open_differences = discrepancies.count_open
authorize_subscriber = access.require_order_access
read_order_updates = live.read_order_updates
UPDATE_KIND = live.UPDATE_KIND
TICKET_THREADS_LEFT = 2
"""Threads of `mailer` that a burst of tickets leaves to other mails."""
BULK_THREADS = 2
"""Threads of `mailer` for each kind of mail that one act of staff can cause by the thousand."""
STRANGER_THREADS = 2
"""Threads of `mailer` for each kind of mail that strangers can cause."""
is_signed_webhook = signatures.is_signed


def dashboards() -> Any:
    """Return the module with the staff's home page and the dashboards of events. Imported here because the fast path
    needs none of it."""
    from apps.orders.dashboard import pages

    return pages


def delete_access_cookies(request: HttpRequest, response: HttpResponseBase) -> None:
    """Take the access to orders and doors that this browser has by their links."""
    access.delete_order_cookies(response)
    door_links.delete_link_cookies(request, response)


class TopicHandler(NamedTuple):
    """The handler of an outbox topic; safe to run twice. `options` are arguments of `outbox.register_handler`."""

    topic: str
    handle: Callable[[outbox.Message], None]
    visibility: timedelta
    options: Mapping[str, Any] = MappingProxyType({})


def handlers() -> list[TopicHandler]:
    """Return the handlers of all outbox topics of this app.

    If a handler calls a provider, its claim lasts the provider's timeout plus 15 s, so that the message is not
    delivered again during the call.
    """
    provider_call = timedelta(seconds=settings.PAYMENT_TIMEOUT_SECONDS + 15)
    short = timedelta(minutes=1)
    mail_options = {"group": TopicGroup.MAIL}
    # Threads are left to what one person waits for.
    few_options = {**mail_options, "together_max": notices.SENDING_MAX}
    # Strangers can cause these for any address.
    stranger_options = {**mail_options, "together_max": STRANGER_THREADS}
    # One act of staff can cause thousands of these.
    bulk_options = {**mail_options, "together_max": BULK_THREADS}
    ticket_options = {
        **mail_options,
        "together_max": max(1, settings.MAIL_DELIVERERS - TICKET_THREADS_LEFT),
        "is_preferred": True,
    }
    webhook_options = {
        "attempts_max": delivery.ATTEMPTS_MAX,
        "backoff": delivery.BACKOFF,
        "together_max": delivery.CONCURRENT_MAX,
    }
    return [
        TopicHandler(
            topics.CHARGE,
            charges.handle_charge,
            provider_call,
            {"list_starter": charge_lists.start_charges, "together_max": settings.PAYMENT_CALLS_MAX},
        ),
        TopicHandler(
            topics.CHARGE_LARGE,
            charges.handle_charge,
            provider_call,
            {"list_starter": charge_lists.start_charges, "together_max": large_orders.calls_max()},
        ),
        TopicHandler(topics.ASK, charges.handle_inquiry, provider_call, {"list_handler": charges.handle_inquiries}),
        # A canceled event has thousands.
        TopicHandler(
            topics.REFUND, refunds.send, provider_call, {"together_max": max(1, settings.OUTBOX_DELIVERERS // 2)}
        ),
        TopicHandler(topics.RECONCILE_PAYMENT, status_inquiries.handle_payment, provider_call, {"attempts_max": 3}),
        TopicHandler(topics.RECONCILE_REFUND, status_inquiries.handle_refund, provider_call, {"attempts_max": 3}),
        # The claim is extended after each batch. A failed comparison is scheduled again later.
        TopicHandler(topics.COMPARE_DAY, daily_comparison.handle, timedelta(minutes=10), {"attempts_max": 3}),
        TopicHandler(topics.PROVIDER_MESSAGE, inbox.process, short, {"list_handler": inbox.process_list}),
        TopicHandler(
            topics.PROVIDER_MESSAGE_LARGE,
            inbox.process,
            short,
            {"list_handler": large_orders.in_short_lists(inbox.process_list)},
        ),
        TopicHandler(
            topics.INVOICE,
            invoices.handle_invoice_message,
            short,
            {"list_handler": invoice_lists.handle_invoice_messages},
        ),
        TopicHandler(
            topics.INVOICE_LARGE,
            invoices.handle_invoice_message,
            short,
            {"list_handler": large_orders.in_short_lists(invoice_lists.handle_invoice_messages)},
        ),
        TopicHandler(topics.SEND_TICKETS, mail.send_tickets, short, ticket_options),
        TopicHandler(topics.SEND_FREE_TICKETS, mail.send_tickets, short, few_options),
        TopicHandler(topics.SEND_TICKETS_LARGE, mail.send_tickets, short, stranger_options),
        TopicHandler(topics.SEND_TICKETS_AGAIN, mail.send_tickets, short, bulk_options),
        TopicHandler(topics.SEND_FAILURE_NOTICE, mail.send_failure_notice, short, stranger_options),
        TopicHandler(topics.SEND_CONFIRMATION, mail.send_confirmation, short, stranger_options),
        TopicHandler(topics.SEND_ORDER_LIST, order_lookup.send_order_list, short, stranger_options),
        TopicHandler(topics.SEND_REFUND_NOTICE, mail.send_refund_notice, short, bulk_options),
        TopicHandler(topics.WEBHOOK, delivery.deliver, short, webhook_options),
        TopicHandler(topics.SEND_RETURN_NOTICE, mail.send_return_notice, short, bulk_options),
        TopicHandler(topics.SEND_TRANSFER, transfer_mail.send_transfer, short, stranger_options),
        TopicHandler(topics.SEND_CANCELLATION_NOTICE, mail.send_cancellation_notice, short, bulk_options),
        TopicHandler(topics.SEND_CORRECTION_NOTICE, mail.send_correction_notice, short, bulk_options),
        TopicHandler(topics.SEND_DISPUTE_NOTICE, mail.send_dispute_notice, short, bulk_options),
        TopicHandler(topics.REMIND_BUYERS, reminders.continue_reminder, short, mail_options),
        TopicHandler(topics.SEND_REMINDER, task_mails.send_reminder, short, few_options),
        TopicHandler(topics.SEND_FIGURES, task_mails.send_figures, short, bulk_options),
        # Each works for up to 20 s, and a member may cancel many events at once.
        TopicHandler(
            topics.CANCEL_EVENT, event_cancellation.continue_cancellation, timedelta(minutes=2), {"together_max": 2}
        ),
        # One takes minutes at most, and the claim is extended after each batch. A person can cause it at will.
        TopicHandler(topics.ERASE_PERSON, background_erasure.continue_erasure, short, {"together_max": 1}),
        TopicHandler(topics.NOTIFY_OF_SCHEDULE, notices.continue_notice, short, mail_options),
        TopicHandler(topics.SEND_SCHEDULE_NOTICE, notices.send_notice, short, few_options),
        TopicHandler(
            sandbox.WEBHOOK_TOPIC,
            inbox.deliver_sandbox_webhook,
            short,
            {"list_handler": inbox.deliver_sandbox_webhooks},
        ),
    ]
