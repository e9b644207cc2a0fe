"""What a hold, a release or a payment can be told. Each names what happened."""

from apps.kernel.http.problems import NotFound, Problem


class SeatsUnavailable(Problem):
    """Named seats that are sold or held. `unavailable` lists their public ids."""

    type, status, title = "seats-unavailable", 409, "Some of these seats are gone."


class SoldOut(Problem):
    type, status, title = "sold-out", 409, "Sold out."


class NotEnoughLeft(Problem):
    """`available` says how many are."""

    type, status, title = "not-enough-left", 409, "There are not that many left."


class ReservationExists(Problem):
    """`reservation` is the id of the live one."""

    type, status, title = "reservation-exists", 409, "You already hold a reservation; finish or release it first."


class PurchaseCapReached(Problem):
    """`cap` is how many one buyer may have for this event."""

    type, status, title = "purchase-cap", 409, "This is more than one buyer may have for this event."


class AccessCodeRequired(Problem):
    """`sections` are those that nobody holds in without an access code."""

    type, status, title = "access-code-required", 403, "This part of the house is for those who have an access code."


class AccessCodeWrong(Problem):
    """Nobody may learn from the answer whether there is such a code, or what it would open."""

    type, status, title = "access-code-wrong", 403, "This access code does not open what you chose."


class AccessCodeNotValid(Problem):
    type, status, title = "access-code-not-valid", 409, "This access code is not valid now."


class AccessCodeUsedUp(Problem):
    type, status, title = "access-code-used-up", 409, "This access code has been used as often as it may be."


class AccessCodeLimitReached(Problem):
    """`cap` is how often one buyer may use it."""

    type, status, title = "access-code-buyer-limit", 409, "You have used this access code as often as one buyer may."


class ReservationExpired(Problem):
    type, status, title = "reservation-expired", 410, "The time to pay is over and the seats are on sale again."


class ReservationNotFound(NotFound):
    title = "There is no such reservation."


class PaymentInProgress(Problem):
    type, status, title = "payment-in-progress", 409, "The payment has begun; cancel the order instead."


class PlacesNotReturnable(Problem):
    type, status, title = "places-not-standing", 409, "Not all of these places are this buyer's any more; look again."
