"""Models of the sale: orders, their payments and refunds, and the tickets they issue.

The constraints here are the final authority: a reservation has one order, a payment never refunds more than it
captured, a seat has one valid ticket.
"""

from apps.orders.models.checkins import DoorLink, TicketScan
from apps.orders.models.codes import CodeUse, PromoCode
from apps.orders.models.differences import ComparedDay, PaymentDifference
from apps.orders.models.event_changes import (
    CancellationFailure,
    EventCancellation,
    Reminder,
    ScheduleMail,
    ScheduleNotice,
)
from apps.orders.models.history import ChangedOrder, OrderHistoryEntry
from apps.orders.models.invoices import Invoice, InvoiceCounter, InvoiceKind
from apps.orders.models.lines import OrderLine
from apps.orders.models.messages import ProviderMessage
from apps.orders.models.orders import ERASED_DOMAIN, Order, is_erased_address
from apps.orders.models.organizers import FeedKey, FeedMessage, OrganizerMessage, WebhookDelivery, WebhookEndpoint
from apps.orders.models.payments import ATTEMPTS_MAX, Payment, ProviderStanding, Refund
from apps.orders.models.reports import NetworkTally, ReportVersion, SalesMinute, SalesTally
from apps.orders.models.returns import OrderAdjustment, ReturnPolicy
from apps.orders.models.tickets import Ticket, TicketTransfer, TransferPolicy

__all__ = [
    "ATTEMPTS_MAX",
    "ERASED_DOMAIN",
    "CancellationFailure",
    "ChangedOrder",
    "CodeUse",
    "ComparedDay",
    "DoorLink",
    "EventCancellation",
    "FeedKey",
    "FeedMessage",
    "Invoice",
    "InvoiceCounter",
    "InvoiceKind",
    "NetworkTally",
    "Order",
    "OrderAdjustment",
    "OrderHistoryEntry",
    "OrderLine",
    "OrganizerMessage",
    "Payment",
    "PaymentDifference",
    "PromoCode",
    "ProviderMessage",
    "ProviderStanding",
    "Refund",
    "Reminder",
    "ReportVersion",
    "ReturnPolicy",
    "SalesMinute",
    "SalesTally",
    "ScheduleMail",
    "ScheduleNotice",
    "Ticket",
    "TicketScan",
    "TicketTransfer",
    "TransferPolicy",
    "WebhookDelivery",
    "WebhookEndpoint",
    "is_erased_address",
]
