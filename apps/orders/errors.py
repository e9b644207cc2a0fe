"""What a checkout, a cancellation or a provider can be told. Each names what happened."""

from apps.kernel.http.problems import NotFound, Problem


class OrderNotFound(NotFound):
    title = "There is no such order."


class TicketNotFound(NotFound):
    title = "There is no such ticket."


class MessageNotFound(NotFound):
    """No message of this feed key has this as its latest receipt handle."""

    title = "There is no message with this receipt handle."


class InvoiceNotFound(NotFound):
    title = "There is no such invoice."


class ProviderNotFound(NotFound):
    title = "There is no such payment provider."


class OrderNotCancelable(Problem):
    """A paid order stands; only its organizer gives the money back. `status` is the order's."""

    type, status, title = "order-not-cancelable", 409, "This order is paid; ask the organizer for a refund."


class OrderNotReturnable(Problem):
    """Nothing of it can be given back any more, or not yet. `order_status` is the order's."""

    type, status, title = "order-not-returnable", 409, "This order has nothing that could be given back."


class ReturnNotAllowed(Problem):
    """The organizer takes no tickets back from buyers, or not any more. `until`, if it was allowed once."""

    type, status, title = "return-not-allowed", 409, "The organizer does not take tickets of this event back."


class TicketsNotValid(Problem):
    """`tickets` are those that were given back or replaced before."""

    type, status, title = "tickets-not-valid", 409, "Some of these tickets are not valid any more; look again."


class TicketsCheckedIn(Problem):
    """`tickets` have opened the door."""

    type, status, title = "tickets-checked-in", 409, "Somebody is in with one of these tickets."


class CancellationNotFound(NotFound):
    title = "No cancellation of this event was begun."


class PaymentTimeExpired(Problem):
    """Too little time is left for a provider to answer in. What is held falls free at the deadline."""

    type, status, title = "reservation-expired", 410, "There is not enough time left for another try."


class CodeRefused(Problem):
    """A promo code that takes nothing off this order. What is held stays held, and can be bought without it."""


class CodeUnknown(CodeRefused):
    """Nobody may learn from the answer whether a code exists elsewhere, or was withdrawn."""

    type, status, title = "code-unknown", 422, "There is no such code for this event."


class CodeNotValid(CodeRefused):
    type, status, title = "code-not-valid", 409, "This code is not valid for what you hold, or not now."


class CodeUsedUp(CodeRefused):
    type, status, title = "code-used-up", 409, "This code has been used as often as it may be."


class CodeLimitReached(CodeRefused):
    """`cap` is how often one buyer may use it."""

    type, status, title = "code-buyer-limit", 409, "You have used this code as often as one buyer may."


class SignatureInvalid(Problem):
    """Bytes that this provider did not sign, or signed too long ago. Nothing was stored."""

    type, status, title = "signature-invalid", 400, "The signature does not fit this message."


class DifferenceNotSettled(Problem):
    """A difference is settled with a word for what was done about it."""

    type, status, title = "invalid", 422, "Say what it was and what was done about it."


class CheckInForbidden(Problem):
    """Known, and not to check tickets in at this event: no permission, or a door link that is not good (any more)."""

    type, status, title = "door-closed", 403, "You cannot check tickets in here."


class ReissueRefused(Problem):
    """No new code for this ticket: it is in, no longer valid, or had too many new codes today."""

    type, status, title = "reissue-refused", 409, "This ticket cannot have a new code."


class StaffProblem(Problem):
    """What only staff are shown, on their own pages and by commands: no part of the API."""


class RefundNotFailed(StaffProblem):
    type, status, title = "refund-not-failed", 409, "This refund has not failed, or somebody has seen to it already."


class AmountTooLarge(StaffProblem):
    """`left_minor` is what could be given back."""

    type, status, title = "amount-too-large", 409, "The order does not keep that much."


class AmountChanged(StaffProblem):
    """Something was given back since this was decided. `now_minor` is the amount as it is. Nothing was done."""

    type, status, title = "amount-changed", 409, "Something was given back meanwhile; look again."
