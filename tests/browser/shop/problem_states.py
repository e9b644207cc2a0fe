"""Pages that refuse a request."""

from apps.kernel import rate_limits
from apps.kernel.http import problems
from apps.reservations.errors import ReservationExpired
from tests.browser.shop.shop import Shop, States
from tests.support.factories import hold, make_event

STATES = States()


@STATES.add()
def malformed(shop: Shop) -> None:
    shop.refuse(problems.Malformed())


@STATES.add()
def another_buyers_reservation(shop: Shop) -> None:
    event = make_event("others", general_admission=5)
    held = hold(event, ga_section="floor", ga_quantity=1)
    shop.join(event)
    shop.open(f"/reservations/{held.id}/", 403)


@STATES.add(tablet=True)
def unknown_page(shop: Shop) -> None:
    shop.open("/nothing/", 404)


@STATES.add()
def request_in_progress(shop: Shop) -> None:
    shop.refuse(problems.IdempotencyInProgress())


@STATES.add()
def too_late(shop: Shop) -> None:
    shop.refuse(ReservationExpired())


@STATES.add()
def too_many_requests(shop: Shop) -> None:
    shop.patches.setattr(rate_limits, "check_request", lambda *_: 5.0)
    shop.open("/tickets/", 429)


@STATES.add()
def too_many_attempts(shop: Shop) -> None:
    shop.refuse(problems.RateLimited(5))


@STATES.add()
def fault(shop: Shop) -> None:
    shop.refuse(RuntimeError("a fault"))


@STATES.add()
def busy(shop: Shop) -> None:
    shop.refuse(problems.Busy())


@STATES.add()
def database_away(shop: Shop) -> None:
    shop.refuse(problems.DatabaseUnavailable())
