"""The errors of this app. Those that are Problems become API responses and page messages."""

from typing import Any

from apps.kernel.http.problems import Invalid, NotFound, Problem, StaffProblem


class OrderNotFound(NotFound):
    title = "Order not found."


class MailboxNotConfirmed(Problem):
    """The request has the order's link only, which may have been forwarded. It reads and downloads; to cancel, return
    or reissue, the browser must open the link of a confirmation mail once."""

    type, status = "mailbox-not-confirmed", 403
    title = "Confirm first that you receive this order's emails. We can email you a link."


class TicketNotFound(NotFound):
    title = "Ticket not found."


class MessageNotFound(NotFound):
    """The receipt handle is not the latest one of any message of this feed key."""

    title = "No message has this receipt handle."


class ScopeMissing(Problem):
    """`scopes`: one of these is needed. A new key with it is made in the admin."""

    type, status, title = "scope-missing", 403, "This key may not do that."


class InvoiceNotFound(NotFound):
    title = "Invoice not found."


class ProviderNotFound(NotFound):
    title = "Payment provider not found."


class TermsNotAccepted(Invalid):
    """The organizer has terms or a privacy notice, and the checkout does not accept their current version. `terms` has
    the version and the pages."""

    type, title = "terms-not-accepted", "Accept the organizer's terms to place the order."

    def __init__(self, terms: dict[str, Any]) -> None:
        super().__init__({"terms": "must be accepted: send the version of the terms that the buyer has accepted"})
        self.extra["terms"] = terms


class OrderNotCancelable(Problem):
    """The order is paid; only its organizer can refund it. `order_status` is its status."""

    type, status = "order-not-cancelable", 409
    title = "This order is paid and cannot be canceled. Contact the organizer for a refund."


class OrderNotReturnable(Problem):
    """The order is not paid yet or has ended. `order_status` is its status."""

    type, status, title = "order-not-returnable", 409, "This order has no tickets to return."


class ReturnNotAllowed(Problem):
    """The event allows no returns by buyers, or its return period ended at `until`."""

    type, status, title = "return-not-allowed", 409, "The organizer does not accept returns for this event."


class TicketsNotValid(Problem):
    """`tickets` are the codes of tickets that were returned or replaced before."""

    type, status = "tickets-not-valid", 409
    title = "Some of these tickets are no longer valid. Refresh the page and try again."


class TicketsCheckedIn(Problem):
    """`tickets` are the codes of checked-in tickets."""

    type, status, title = "tickets-checked-in", 409, "One of these tickets is already checked in."


class CancellationNotFound(NotFound):
    title = "This event's cancellation was not started."


class PaymentTimeExpired(Problem):
    """Too little time is left for a call to the provider. The seats are released at the deadline."""

    type, status, title = "reservation-expired", 410, "There is not enough time left to try the payment again."


class CodeRefused(Problem):
    """A promo code that does not apply to this order. The seats stay held and can be bought without it."""


class CodeUnknown(CodeRefused):
    """The response must not reveal whether a code exists at another event or was deactivated."""

    type, status, title = "code-unknown", 422, "That code isn't valid for this event."


class CodeNotValid(CodeRefused):
    type, status, title = "code-not-valid", 409, "This code does not apply to your tickets, or not at this time."


class CodeUsedUp(CodeRefused):
    type, status, title = "code-used-up", 409, "This code has reached its usage limit."


class CodeLimitReached(CodeRefused):
    """`cap` is how often one buyer may use the code."""

    type, status, title = "code-buyer-limit", 409, "You have used this code the maximum number of times."


class SignatureInvalid(Problem):
    """The provider did not sign these bytes, or signed them too long ago. Nothing was stored."""

    type, status, title = "signature-invalid", 400, "The signature does not match this message."


class DifferenceNotSettled(Problem):
    """Settling a difference requires a note."""

    type, status, title = "invalid", 422, "Enter the cause and the solution."


class CheckInForbidden(Problem):
    """The caller is authenticated, but has neither the permission nor a valid door link for this event."""

    type, status, title = "door-closed", 403, "You cannot check in tickets at this event."


class ReissueRefused(Problem):
    """The ticket is checked in or no longer valid, or its buyer has requested too many new codes within a day."""

    type, status, title = "reissue-refused", 409, "This ticket's code cannot be replaced."


class TransferNotFound(NotFound):
    title = "Transfer not found."


class TransferRefused(Problem):
    """The event allows no transfers or no longer allows them, or a limit of the event is reached."""

    type, status, title = "transfer-refused", 409, "This ticket cannot be transferred."


class TransferPending(Problem):
    """The ticket is offered to another address. `transfer` is the id of that offer."""

    type, status, title = (
        "transfer-pending",
        409,
        "This ticket is already offered. Withdraw that offer first.",
    )


class TransferEnded(Problem):
    """The offer was withdrawn or has expired, or its ticket ended before it was accepted."""

    type, status, title = "transfer-ended", 409, "This offer has ended. Ask the sender for a new one."


class TransferAccepted(Problem):
    """An accepted transfer cannot be withdrawn."""

    type, status, title = "transfer-accepted", 409, "The recipient has accepted this ticket."


class RefundNotFailed(StaffProblem):
    type, status, title = "refund-not-failed", 409, "This refund has not failed, or was handled already."


class AmountTooLarge(StaffProblem):
    """`left_minor` is the largest possible refund."""

    type, status, title = "amount-too-large", 409, "The amount exceeds what the order keeps."


class AmountChanged(StaffProblem):
    """The amount has changed since staff saw it, and is now `now_minor`. Nothing was refunded."""

    type, status, title = "amount-changed", 409, "The amount has changed since you opened this page. Check it again."
