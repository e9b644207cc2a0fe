"""Errors of holds, releases and payments, as problem details. Each is named for what happened."""

from apps.kernel.http.problems import NotFound, Problem


class SeatsUnavailable(Problem):
    """Requested seats are sold or held; `unavailable` lists their public ids."""

    type, status, title = "seats-unavailable", 409, "Some of these seats are no longer available."


class SoldOut(Problem):
    type, status, title = "sold-out", 409, "Sold out."


class NotEnoughLeft(Problem):
    """`available` is the number of free tickets."""

    type, status, title = "not-enough-left", 409, "Not enough tickets are left."


class ReservationExists(Problem):
    """`reservation` is the id of the live reservation."""

    type, status, title = "reservation-exists", 409, "You already have a reservation. Pay for it or release it first."


class PurchaseCapReached(Problem):
    """`cap` is the limit of tickets per buyer for this event."""

    type, status, title = "purchase-cap", 409, "This is more than one buyer may have for this event."


class AccessCodeRequired(Problem):
    """`sections` are the requested sections that require an access code."""

    type, status, title = "access-code-required", 403, "This section requires an access code."


class AccessCodeWrong(Problem):
    """The response must not reveal whether the code exists or which sections it opens."""

    type, status, title = "access-code-wrong", 403, "This access code is not valid for your selection."


class AccessCodeNotValid(Problem):
    type, status, title = "access-code-not-valid", 409, "This access code is not valid at this time."


class AccessCodeUsedUp(Problem):
    type, status, title = "access-code-used-up", 409, "This access code has reached its usage limit."


class AccessCodeLimitReached(Problem):
    """`cap` is the limit of uses per buyer."""

    type, status, title = "access-code-buyer-limit", 409, "You have reached the limit per buyer for this access code."


class ReservationExpired(Problem):
    type, status, title = "reservation-expired", 410, "Your reservation has expired and the tickets are back on sale."


class ReservationNotFound(NotFound):
    title = "This reservation does not exist."


class PaymentInProgress(Problem):
    type, status, title = "payment-in-progress", 409, "The payment has started. Cancel the order instead."


class TicketsNotReturnable(Problem):
    type, status, title = (
        "places-not-standing",
        409,
        "Some of these tickets no longer belong to this buyer. Refresh the page and try again.",
    )
