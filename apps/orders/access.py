"""Access to orders: for the owner, and for the holder of the signed link from the order's email.

The link, which may have been forwarded, reads and downloads. To cancel, return, reissue or transfer with it, a
browser must once open the link of a confirmation mail, which is valid for CONFIRMATION_MINUTES. The mail about a new
date has a link of its own that only returns tickets, until the return window closes.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, Signer, TimestampSigner
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse

from apps.kernel import clock, rate_limits
from apps.kernel.fastpath.request import Request
from apps.kernel.http import client_address, problems
from apps.kernel.rate_limits import mail_caps
from apps.orders.absolute_urls import absolute_url
from apps.orders.errors import MailboxNotConfirmed, OrderNotFound
from apps.orders.models import Order, is_erased_address
from apps.orders.selectors import OrderView, get_order, order_of_reservation
from apps.queue import facade as queue
from apps.reservations import facade as reservations

COOKIE = "orders"
CONFIRMED_COOKIE = "confirmed_orders"
RETURN_COOKIE = "returnable_orders"
COOKIE_SECONDS = 90 * 86_400
"""For each order since it was opened, not since another one was."""
COOKIE_ORDERS_MAX = 20
CONFIRMATION_MINUTES = 30
_END_DIGITS_MAX = 12
_links = Signer(salt="order-link")
_confirmations = TimestampSigner(salt="order-confirmation")
_return_keys = Signer(salt="order-return")
_cookies = {
    COOKIE: TimestampSigner(salt="order-cookie"),
    CONFIRMED_COOKIE: TimestampSigner(salt="order-confirmed"),
    RETURN_COOKIE: TimestampSigner(salt="order-returnable"),
}


def link_key(order_id: UUID, version: int | None = None) -> str:
    """Return the key that grants access to this order. It is valid as long as the signing key, and until the order's
    address is corrected.

    `version`, here and below: the order's `link_version` that was read with the address to which the link is sent. If
    the address is corrected meanwhile, the link grants nothing. None: the present version.
    """
    return _links.signature(_versioned(order_id, version))


def order_link(order_id: UUID, version: int | None = None) -> str:
    """Return the absolute URL with the key, for the email."""
    return absolute_url(f"{reverse('orders:order', args=[order_id])}?key={link_key(order_id, version)}")


def confirming_link(order_id: UUID, version: int | None = None) -> str:
    """Return the order's link, which for CONFIRMATION_MINUTES also confirms the mailbox, for a mail that was requested
    now. Later it only reads."""
    token = _confirmations.sign(_versioned(order_id, version))
    return f"{order_link(order_id, version)}&confirmation={token}"


def is_valid_link_key(order_id: UUID, key: str) -> bool:
    if not key:
        return False
    signed = _versioned(order_id)
    try:
        return _links.unsign(f"{signed}{_links.sep}{key}") == signed
    except BadSignature:
        return False


def _link_versions(order_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return the current version of each order's links; unknown orders are omitted."""
    return dict(Order.objects.filter(pk__in=order_ids).values_list("pk", "link_version")) if order_ids else {}


def _link_version(order_id: UUID) -> int:
    return _link_versions([order_id]).get(order_id, 0)


def _versioned(order_id: UUID, version: int | None = None) -> str:
    """Return the text that keys and cookies sign, of the present version by default. It is the id alone until the
    address is corrected."""
    if version is None:
        version = _link_version(order_id)
    return f"{order_id}~{version}" if version else str(order_id)


def confirmation_url(order_id: UUID, version: int | None = None) -> str:
    """Return the absolute URL that confirms the mailbox of the order, for the confirmation mail."""
    token = _confirmations.sign(_versioned(order_id, version))
    return absolute_url(f"{reverse('orders:confirm', args=[order_id])}?confirmation={token}")


def is_valid_confirmation(order_id: UUID, token: str) -> bool:
    if not token:
        return False
    try:
        signed = _confirmations.unsign(token, max_age=CONFIRMATION_MINUTES * 60)
    except BadSignature:
        return False
    return signed == _versioned(order_id)


def return_link(order_id: UUID, until: datetime, version: int | None = None) -> str:
    """Return the absolute URL at which the recipient of a mail may return the order's tickets until this time, without
    confirming the mailbox again. It changes nothing else; afterwards it only reads."""
    ends = int(until.timestamp())
    key = f"{ends}.{_return_keys.signature(_returnable(order_id, ends, version))}"
    path = reverse("orders:return", args=[order_id])
    return absolute_url(f"{path}?key={link_key(order_id, version)}&return_key={key}")


def is_valid_return_key(order_id: UUID, key: str) -> bool:
    ends, _, signature = key.partition(".")
    if not (ends.isascii() and ends.isdecimal() and len(ends) <= _END_DIGITS_MAX):
        return False
    signed = _returnable(order_id, int(ends))
    try:
        _return_keys.unsign(f"{signed}{_return_keys.sep}{signature}")
    except BadSignature:
        return False
    return clock.process_now().timestamp() < int(ends)


def _returnable(order_id: UUID, ends: int, version: int | None = None) -> str:
    return f"{_versioned(order_id, version)} {ends}"


def get_authorized_order(request: HttpRequest, order_id: UUID) -> OrderView:
    """Return the order if the request may read it: from its owner or a holder of its link. Raises TokenMissing without
    credentials, OrderNotFound, TokenWrongEvent, NotOwner."""
    return get_order(order_id) if _has_link(request, order_id) else _get_owned_order(request, order_id)


def get_changeable_order(request: HttpRequest, order_id: UUID) -> OrderView:
    """Return the order if the request may cancel, return, reissue or transfer it: from its owner, or from a
    holder of its link who has confirmed its mailbox. Raises the errors of `get_authorized_order`, and
    MailboxNotConfirmed."""
    confirmed = order_id in _orders_in_cookie(request, CONFIRMED_COOKIE)
    if confirmed or is_valid_confirmation(order_id, request.GET.get("confirmation", "")):
        return get_order(order_id)
    try:
        return _get_owned_order(request, order_id)
    except (problems.TokenMissing, problems.TokenWrongEvent, problems.NotOwner):
        if _has_link(request, order_id):
            raise MailboxNotConfirmed from None
        raise


def get_returnable_order(request: HttpRequest, order_id: UUID) -> OrderView:
    """Return the order if the request may return its tickets: as `get_changeable_order`, and from a browser that opened
    the return link of a mail about a new date, until the link ends."""
    if order_id in _orders_in_cookie(request, RETURN_COOKIE):
        return get_order(order_id)
    return get_changeable_order(request, order_id)


def with_confirmation(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Lead a page's request that raises MailboxNotConfirmed to the page that mails the confirmation link."""

    @wraps(view)
    def confirmed_view(request: HttpRequest, order_id: UUID, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, order_id, **kwargs)
        except MailboxNotConfirmed:
            return HttpResponseRedirect(reverse("orders:confirm", args=[order_id]), status=303)

    return confirmed_view


def _get_owned_order(request: HttpRequest, order_id: UUID) -> OrderView:
    caller = require_caller(request)
    order = get_order(order_id)
    _require_owner(caller, order.entry_id, order.event.slug, order.account_id, has_lost_owner(order))
    return order


def _has_link(request: HttpRequest | Request, order_id: UUID) -> bool:
    return is_valid_link_key(order_id, request.GET.get("key", "")) or order_id in orders_opened_by_link(request)


def require_order_access(caller: queue.Caller, request: HttpRequest | Request, order_id: UUID) -> None:
    """Check access as `get_authorized_order` does, for a caller that is already authenticated."""
    if _has_link(request, order_id):
        return
    if not caller.is_known:
        raise problems.TokenMissing
    order = Order.objects.filter(pk=order_id).select_related("event").first()
    if order is None:
        raise OrderNotFound
    _require_owner(caller, order.entry_id, order.event.slug, order.account_id, has_lost_owner(order))


def can_open_order(request: HttpRequest, order: OrderView) -> bool:
    """Return whether the request may see the whole order, not just a ticket of it."""
    try:
        get_authorized_order(request, order.id)
    except problems.Problem:
        return False
    return True


def get_authorized_reservation(request: HttpRequest, reservation_id: UUID) -> reservations.ReservationView:
    """Return the reservation if the request comes from its owner or from its order's account. Raises TokenMissing
    without credentials, ReservationNotFound, TokenWrongEvent, NotOwner."""
    return get_authorized_checkout(request, reservation_id)[0]


def get_authorized_checkout(
    request: HttpRequest, reservation_id: UUID
) -> tuple[reservations.ReservationView, OrderView | None]:
    """Return the same reservation and its order, or None if it has none. Raises the same problems."""
    caller = require_caller(request)
    reservation = reservations.get_reservation(reservation_id)
    order = order_of_reservation(reservation_id)
    account_id, is_lost = (order.account_id, has_lost_owner(order)) if order else (None, False)
    _require_owner(caller, reservation.entry_id, reservation.event_slug, account_id, is_lost)
    return reservation, order


def require_caller(request: HttpRequest) -> queue.Caller:
    """Return the request's authenticated caller. Raises TokenMissing without credentials."""
    caller = queue.authenticate(request)
    if not caller.is_known:
        raise problems.TokenMissing
    return caller


def network_of(request: HttpRequest) -> str:
    """Return a digest of the network that the client's address is in."""
    return mail_caps.origin_of(client_address.address_from_environ(request.META))


def count_code_attempt(request: HttpRequest, reservation: reservations.ReservationView) -> None:
    """Count an attempt to use a promo code, per client address and queue entry. Raises RateLimited, so that codes
    cannot be guessed."""
    wait = rate_limits.check_request(
        "code", client_address.address_from_environ(request.META), str(reservation.entry_id)
    )
    if wait is not None:
        raise problems.RateLimited(wait)


@contextmanager
def limit_cap_refusals(reservation: reservations.ReservationView) -> Iterator[None]:
    """Limit the checkouts of one queue entry that a purchase cap refuses, as attempts to use a code: each reveals that
    an address has bought. Raises RateLimited before a checkout is decided if the entry has had too many.

    Only refusals count, so a checkout that succeeds uses up nothing; they do not count for the client's address, so
    that an attacker does not stop the checkouts of neighbors."""
    subject = f"cap:{reservation.entry_id}"
    wait = rate_limits.attempt_wait("code", "", subject)
    if wait is not None:
        raise problems.RateLimited(wait)
    try:
        yield
    except reservations.PurchaseCapReached:
        rate_limits.record_attempt("code", "", subject)
        raise


def has_lost_owner(order: OrderView | Order) -> bool:
    """Return what `Order.LOST_OWNER` says about this order."""
    return order.is_handed_over or is_erased_address(order.email)


def _require_owner(
    caller: queue.Caller, entry_id: UUID, event_slug: str, account_id: int | None, is_lost: bool
) -> None:
    if caller.event_slug not in ("", event_slug):
        raise problems.TokenWrongEvent
    if is_lost:
        raise problems.NotOwner
    if account_id is not None:
        # Only the order's account counts: neither the browser's cookie nor a guest's token grants access to an
        # account's order, to another account or after a log-out.
        if caller.may_use_account(account_id):
            return
        if caller.proven_account_id is None and caller.entry_id is None:
            raise problems.TokenMissing
        raise problems.NotOwner
    entry = queue.entry_by_id(entry_id)
    if entry is None:
        raise OrderNotFound
    queue.require_owner(caller, entry)


def orders_opened_by_link(request: HttpRequest | Request) -> list[UUID]:
    """Return the orders that this browser has opened by their links, latest last."""
    return [*_orders_in_cookie(request, COOKIE)]


def set_order_cookie(request: HttpRequest, response: HttpResponse, order_id: UUID) -> None:
    """Grant this browser access to the order by a cookie, so that the link's key is not needed in the address bar."""
    _add_to_cookie(request, response, COOKIE, order_id)


def set_confirmed_cookie(request: HttpRequest, response: HttpResponse, order_id: UUID) -> None:
    """Allow this browser to read and to change the order: it has confirmed the order's mailbox."""
    set_order_cookie(request, response, order_id)
    _add_to_cookie(request, response, CONFIRMED_COOKIE, order_id)


def set_return_cookie(request: HttpRequest, response: HttpResponse, order_id: UUID, return_key: str) -> None:
    """Allow this browser to read the order, and to return its tickets for as long as this valid key of a mail's return
    link allows it."""
    set_order_cookie(request, response, order_id)
    _add_to_cookie(request, response, RETURN_COOKIE, order_id, int(return_key.partition(".")[0]))


def _orders_in_cookie(request: HttpRequest | Request, name: str) -> dict[UUID, int]:
    """Return the orders in this cookie, latest last, and when the permission ends, in seconds since 1970. Left out are
    those that have ended, and orders whose address was corrected since."""
    try:
        text = _cookies[name].unsign(request.COOKIES.get(name, ""), max_age=COOKIE_SECONDS)
        parts = [part.split("~") for part in text.split(".") if part]
        granted = {UUID(order): (int(version), int(ends)) for order, version, ends in parts}
    except (BadSignature, ValueError):
        return {}
    versions, now = _link_versions(granted), clock.process_now().timestamp()
    return {
        order_id: ends
        for order_id, (version, ends) in granted.items()
        if versions.get(order_id, 0) == version and now < ends
    }


def _add_to_cookie(request: HttpRequest, response: HttpResponse, name: str, order_id: UUID, ends: int = 0) -> None:
    known = _orders_in_cookie(request, name)
    known.pop(order_id, None)
    kept = dict([*known.items()][-(COOKIE_ORDERS_MAX - 1) :])
    kept[order_id] = ends or int(clock.process_now().timestamp()) + COOKIE_SECONDS
    versions = _link_versions(kept)
    response.set_cookie(
        name,
        _cookies[name].sign(
            ".".join(f"{known_id}~{versions.get(known_id, 0)}~{until}" for known_id, until in kept.items())
        ),
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def delete_order_cookies(response: HttpResponseBase) -> None:
    """Take this browser's access to the orders that it opened by their links or confirmed."""
    for name in _cookies:
        response.delete_cookie(name, samesite="Lax")


def account_details(account_id: int | None) -> tuple[str, str]:
    """Return the account's email address and name, as defaults of a checkout; empty without an account."""
    account = None if account_id is None else get_user_model().objects.filter(pk=account_id).first()
    return ("", "") if account is None else (account.email or "", account.get_full_name())
