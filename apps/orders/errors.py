"""What a checkout, a cancellation or a provider can be told. Each names what happened."""

from ticketing.kernel.problems import NotFound, Problem


class OrderNotFound(NotFound):
    title = "There is no such order."


class TicketNotFound(NotFound):
    title = "There is no such ticket."


class ProviderNotFound(NotFound):
    title = "There is no such payment provider."


class OrderNotCancelable(Problem):
    """A paid order stands; only its organizer gives the money back. `status` is the order's."""

    type, status, title = "order-not-cancelable", 409, "This order is paid; ask the organizer for a refund."


class PaymentTimeOver(Problem):
    """Too little time is left for a provider to answer in. What is held falls free at the deadline."""

    type, status, title = "reservation-expired", 410, "There is not enough time left for another try."


class SignatureInvalid(Problem):
    """Bytes that this provider did not sign, or signed too long ago. Nothing was stored."""

    type, status, title = "signature-invalid", 400, "The signature does not fit this message."


class DifferenceNotSettled(Problem):
    """A difference is settled with a word for what was done about it."""

    type, status, title = "invalid", 422, "Say what it was and what was done about it."
