"""Who may see an order: its owner, and whoever holds the signed link from its e-mail."""

from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, Signer, TimestampSigner
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.kernel import rate_limits
from apps.kernel.fastpath.request import Request
from apps.kernel.http import client_address, problems
from apps.orders.absolute_urls import absolute_url
from apps.orders.errors import OrderNotFound
from apps.orders.models import Order
from apps.orders.selectors import OrderView, get_order, order_of_reservation
from apps.queue import facade as queue
from apps.reservations import facade as reservations

COOKIE = "orders"
COOKIE_DAYS = 90
COOKIE_ORDERS_MAX = 20
_links = Signer(salt="order-link")
_cookies = TimestampSigner(salt="order-cookie")


def link_key(order_id: UUID) -> str:
    """What opens this order to whoever holds it; good as long as the signing key is."""
    return _links.signature(str(order_id))


def order_link(order_id: UUID) -> str:
    """The absolute address for the e-mail."""
    return absolute_url(f"{reverse('orders:order', args=[order_id])}?key={link_key(order_id)}")


def is_valid_link_key(order_id: UUID, key: str) -> bool:
    try:
        return _links.unsign(f"{order_id}{_links.sep}{key}") == str(order_id)
    except BadSignature:
        return False


def get_authorized_order(request: HttpRequest, order_id: UUID) -> OrderView:
    """The order, for its owner or a holder of its link. Raises TokenMissing for nobody, OrderNotFound,
    TokenWrongEvent, NotOwner."""
    if is_valid_link_key(order_id, request.GET.get("key", "")) or order_id in orders_opened_by_link(request):
        return get_order(order_id)
    caller = require_caller(request)
    order = get_order(order_id)
    _require_owner(caller, order.entry_id, order.event.slug, order.account_id)
    return order


def require_order_access(request: HttpRequest | Request, caller: queue.Caller, order_id: UUID) -> None:
    """Returns for whom `get_authorized_order` would open it, who is known already."""
    if is_valid_link_key(order_id, request.GET.get("key", "")) or order_id in orders_opened_by_link(request):
        return
    if not caller.is_known:
        raise problems.TokenMissing
    found = Order.objects.filter(pk=order_id).values_list("entry_id", "event__slug", "account_id").first()
    if found is None:
        raise OrderNotFound
    _require_owner(caller, *found)


def can_open_order(request: HttpRequest, order: OrderView) -> bool:
    """Whether the request may see the whole order, not just a ticket of it."""
    try:
        get_authorized_order(request, order.id)
    except problems.Problem:
        return False
    return True


def get_authorized_reservation(request: HttpRequest, reservation_id: UUID) -> reservations.ReservationView:
    """The reservation, for its owner or the account its order is recorded for. Raises TokenMissing for nobody,
    ReservationNotFound, TokenWrongEvent, NotOwner."""
    caller = require_caller(request)
    reservation = reservations.get_reservation(reservation_id)
    order = order_of_reservation(reservation_id)
    _require_owner(caller, reservation.entry_id, reservation.event_slug, order.account_id if order else None)
    return reservation


def require_caller(request: HttpRequest) -> queue.Caller:
    """Whom the request speaks for. Raises TokenMissing when it proves nothing."""
    caller = queue.authenticate(request)
    if not caller.is_known:
        raise problems.TokenMissing
    return caller


def count_code_attempt(request: HttpRequest, reservation: reservations.ReservationView) -> None:
    """Another promo code was tried, by whoever holds this. Raises RateLimited: codes are not to be guessed."""
    wait = rate_limits.check_request(
        "code", client_address.address_from_environ(request.META), str(reservation.entry_id)
    )
    if wait is not None:
        raise problems.RateLimited(wait)


def _require_owner(caller: queue.Caller, entry_id: UUID, event_slug: str, account_id: int | None) -> None:
    if caller.event_slug not in ("", event_slug):
        raise problems.TokenWrongEvent
    if caller.account_id is not None and account_id is not None:
        # The order's account decides alone: the browser's cookie does not open what another account bought in it.
        if caller.account_id != account_id:
            raise problems.NotOwner
        return
    entry = queue.entry_by_id(entry_id)
    if entry is None:
        raise OrderNotFound
    queue.require_owner(caller, entry)


def orders_opened_by_link(request: HttpRequest | Request) -> list[UUID]:
    """The orders this browser has opened by their links, latest last."""
    try:
        text = _cookies.unsign(request.COOKIES.get(COOKIE, ""), max_age=COOKIE_DAYS * 86_400)
        return [UUID(part) for part in text.split(".") if part]
    except (BadSignature, ValueError):
        return []


def set_order_cookie(request: HttpRequest, response: HttpResponse, order_id: UUID) -> None:
    """This browser may open the order from now on without the link, which so leaves its address bar."""
    kept = [known for known in orders_opened_by_link(request) if known != order_id][-(COOKIE_ORDERS_MAX - 1) :]
    response.set_cookie(
        COOKIE,
        _cookies.sign(".".join(str(known) for known in [*kept, order_id])),
        max_age=COOKIE_DAYS * 86_400,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def account_details(account_id: int | None) -> tuple[str, str]:
    """The account's e-mail and name, to stand in for what a checkout leaves out; empty without an account."""
    account = None if account_id is None else get_user_model().objects.filter(pk=account_id).first()
    return ("", "") if account is None else (account.email or "", account.get_full_name())
