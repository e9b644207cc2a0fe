"""What a hold, a release or a payment can be told. Each names what happened."""

from apps.kernel.http.problems import NotFound, Problem


class SeatsUnavailable(Problem):
    """Named seats that are sold or held. `unavailable` lists their public ids."""

    type, status, title = "seats-unavailable", 409, "Some of these seats are no longer available."


class SoldOut(Problem):
    type, status, title = "sold-out", 409, "Sold out."


class NotEnoughLeft(Problem):
    """`available` says how many are."""

    type, status, title = "not-enough-left", 409, "Not enough tickets are left."


class ReservationExists(Problem):
    """`reservation` is the id of the live one."""

    type, status, title = "reservation-exists", 409, "You already have a reservation. Pay for it or release it first."


class PurchaseCapReached(Problem):
    """`cap` is how many one buyer may have for this event."""

    type, status, title = "purchase-cap", 409, "This exceeds the ticket limit per buyer for this event."


class AccessCodeRequired(Problem):
    """`sections` are those that nobody holds in without an access code."""

    type, status, title = "access-code-required", 403, "This section requires an access code."


class AccessCodeWrong(Problem):
    """Nobody may learn from the answer whether there is such a code, or what it would open."""

    type, status, title = "access-code-wrong", 403, "This access code is not valid for your selection."


class AccessCodeNotValid(Problem):
    type, status, title = "access-code-not-valid", 409, "This access code is not valid at this time."


class AccessCodeUsedUp(Problem):
    type, status, title = "access-code-used-up", 409, "This access code has reached its usage limit."


class AccessCodeLimitReached(Problem):
    """`cap` is how often one buyer may use it."""

    type, status, title = "access-code-buyer-limit", 409, "You have reached the limit per buyer for this access code."


class ReservationExpired(Problem):
    type, status, title = "reservation-expired", 410, "Your hold has expired and the tickets are back on sale."


class ReservationNotFound(NotFound):
    title = "This reservation does not exist."


class PaymentInProgress(Problem):
    type, status, title = "payment-in-progress", 409, "The payment has started. Cancel the order instead."


class PlacesNotReturnable(Problem):
    type, status, title = (
        "places-not-standing",
        409,
        "Some of these tickets no longer belong to this buyer. Reload and try again.",
    )
