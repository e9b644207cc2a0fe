"""Insecure direct object references: random requests by two of every kind of identity, on every route, with the ids of
all others. No response contains another buyer's data, and no request changes another buyer's order."""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken, RefreshToken
from apps.events import facade as events
from apps.kernel import clock, rate_limits
from apps.orders import access
from apps.orders.checkin import door_links
from apps.orders.models import Invoice, Order, Payment, ReturnPolicy, Ticket, TransferPolicy
from apps.queue.entries import vip_links
from apps.queue.identity.caller import VISITOR_COOKIE, visitor_id_of_secret
from apps.queue.models import QueueEntry
from apps.reservations.models import Reservation, ReservationLine
from tests.support.api_client import Api
from tests.support.factories import assert_audit_clean, make_event
from tests.support.orders.sale import SAME_ORIGIN, deliver_outbox
from tests.support.orders.webhook_endpoints import make_feed_key

pytestmark = pytest.mark.django_db(transaction=True)

LEFT_OUT = re.compile(r"log-?out|log-?in|sign-?up|password|static|updates$|^admin/|schema|docs", re.IGNORECASE)
"""Routes that end the identity itself, streams, and staff's own pages, which `test_stored_secrets` reads."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Owner:
    """A buyer with a paid order of two tickets and a canceled order, at one event."""

    name: str
    event: events.EventView
    visitor_secret: str
    account: User | None
    token: str
    order: Order
    unpaid: Order
    codes: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True)
class Identity:
    """Credentials, and whose data they may read and whose they may change."""

    name: str
    reads: frozenset[str]
    changes: frozenset[str]
    cookies: dict[str, str] = field(default_factory=dict)
    token: str = ""
    key: str = ""
    user: User | None = None


def sale(name: str, event: events.EventView, account: User | None) -> Owner:
    """Sell two tickets to a guest or an account, which also has an order that was canceled before it was paid."""
    api, secret = Api(), f"the-secret-of-{name}"
    token = str(AccessToken.for_user(account)) if account else ""

    def join() -> dict[str, Any]:
        body = None if account else {"visitor_id": secret}
        return api.post(f"/events/{event.slug}/queue", body, token=token).json()

    def order(seats: list[str], key: str, method: str) -> Order:
        admission = token or join()["admission_token"]
        path, body = f"/events/{event.slug}/reservations", {"seats": seats}
        held = api.post(path, body, token=admission, key=f"{key}-hold")
        assert held.status_code == 201, held.content
        details = {"email": f"{name}@example.org", "name": f"Name of {name}", "payment_method": method}
        path = f"/reservations/{held.json()['reservation_id']}/checkout"
        placed = api.post(path, details, token=admission, key=f"{key}-pay")
        assert placed.status_code == 202, placed.content
        deliver_outbox()
        return Order.objects.get(pk=placed.json()["order_id"])

    join()
    row = name[-1].upper()
    unpaid = order([f"hall-{row}-9"], "first", "sandbox_decline")
    mine = token or join()["queue_token"]
    assert api.post(f"/orders/{unpaid.pk}/cancel", token=mine, key="c").status_code == 200
    paid = order([f"hall-{row}-1", f"hall-{row}-2"], "second", "sandbox")
    codes = tuple(Ticket.objects.filter(order=paid).order_by("pk").values_list("code", flat=True))
    secrets = (
        f"{name}@example.org",
        f"Name of {name}",
        secret,
        visitor_id_of_secret(secret),
        paid.number,
        unpaid.number,
        access.link_key(paid.pk),
        access.link_key(unpaid.pk),
        *Invoice.objects.filter(order=paid).values_list("number", flat=True),
        str(paid.entry_id),
    )
    return Owner(name, event, secret, account, token or mine, paid, unpaid, codes, secrets)


def read_states(owners: list[Owner]) -> dict[str, list[Any]]:
    """Return what belongs to each owner, by its name."""
    orders = {order.pk: owner.name for owner in owners for order in (owner.order, owner.unpaid)}
    reservations = {order.reservation_id: owner.name for owner in owners for order in (owner.order, owner.unpaid)}
    entries = {owner.order.entry_id: owner.name for owner in owners}
    found: dict[str, list[Any]] = {owner.name: [] for owner in owners}

    def add(model: Any, key: str, names: dict[Any, str], *fields: str) -> None:
        rows = model.objects.filter(**{f"{key}__in": list(names)}).order_by("pk").values_list(key, *fields)
        for row in rows:
            found[names[row[0]]].append((model, row))

    add(Order, "pk", orders, "status", "email", "account", "buyer")
    add(Ticket, "order_id", orders, "code", "voided_at", "checked_in_at")
    add(Payment, "order_id", orders, "status", "refunded_minor")
    add(Reservation, "pk", reservations, "status", "buyer")
    add(ReservationLine, "reservation_id", reservations, "live")
    add(QueueEntry, "pk", entries, "status", "visitor_id", "account")
    return found


def cookies_after(*links: str) -> dict[str, str]:
    """Return the cookies of a browser that has opened these links of mails."""
    browser = Client(headers=SAME_ORIGIN)
    for link in links:
        parts = urlsplit(link)
        assert browser.get(f"{parts.path}?{parts.query}").status_code < 400
    return {name: morsel.value for name, morsel in browser.cookies.items()}


def identities(owners: list[Owner], shows: list[events.EventView]) -> list[Identity]:
    """Two of every kind."""
    found: list[Identity] = []
    nothing: frozenset[str] = frozenset()
    for owner in owners:
        own = frozenset({owner.name})
        if owner.account is None:
            browser = Client(headers=SAME_ORIGIN)
            path = f"/api/events/{owner.event.slug}/queue"
            browser.post(path, {"visitor_id": owner.visitor_secret}, content_type="application/json")
            found.append(
                Identity(f"browser of {owner.name}", own, own, {VISITOR_COOKIE: browser.cookies[VISITOR_COOKIE].value})
            )
        else:
            found.append(Identity(f"session of {owner.name}", own, own, user=owner.account))
        found.append(Identity(f"token of {owner.name}", own, own, token=owner.token))
        found.append(Identity(f"order key of {owner.name}", own, nothing, key=access.link_key(owner.order.pk)))
        cookie = cookies_after(access.order_link(owner.order.pk))
        found.append(Identity(f"order cookie of {owner.name}", own, nothing, cookie))
        confirmed = cookies_after(access.order_link(owner.order.pk), access.confirmation_url(owner.order.pk))
        found.append(Identity(f"confirmed mailbox of {owner.name}", own, own, confirmed))
        returnable = cookies_after(access.return_link(owner.order.pk, clock.now() + timedelta(days=1)))
        found.append(Identity(f"return link of {owner.name}", own, own, returnable))
        if owner.account is not None:
            refresh = str(RefreshToken.for_user(owner.account))
            found.append(Identity(f"refresh token of {owner.name}", nothing, nothing, token=refresh))
    for show in shows:
        buyers = frozenset(owner.name for owner in owners if owner.event.id == show.id)
        now = clock.now()
        link = door_links.make_link(
            show.id, name="Door", door="1", good_from=now, good_until=now + timedelta(days=1), who="staff:1"
        )
        key = door_links.link_url(link, show.slug).rpartition("=")[2]
        found.append(Identity(f"door of {show.slug}", buyers, buyers, {f"door-{show.id}": key}))
        vip = vip_links.make_link(show.id, note="", hours=1, who="staff:1")
        token = vip_links.address_of(vip, show.slug).rpartition("/")[2]
        found.append(Identity(f"VIP link of {show.slug}", nothing, nothing, token=token))
        feed_key, _ = make_feed_key(show)
        found.append(Identity(f"feed key of {show.slug}", buyers, nothing, token=feed_key))
        staff = User.objects.create_user(f"staff-{show.slug}", is_staff=True)
        staff.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
        found.append(Identity(f"view-only staff {show.slug}", nothing, nothing, user=staff))
    return found


def routes(patterns: Any = None, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the template of every path, as `orders/{order_id}/cancel`, with its converters by parameter."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, prefix + str(one.pattern))
        elif isinstance(one, URLPattern):
            path = prefix + str(one.pattern)
            if "(?P" not in path and "^" not in path and not LEFT_OUT.search(path):
                yield re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path), dict(one.pattern.converters)


def fill(template: str, owners: list[Owner], rng: random.Random) -> str:
    """Fill the template with ids of random owners, each parameter from another one."""

    def value(name: str) -> str:
        owner = rng.choice(owners)
        orders = [owner.order, owner.unpaid]
        values: dict[str, Callable[[], str]] = {
            "order_id": lambda: str(rng.choice(orders).pk),
            "reservation_id": lambda: str(rng.choice(orders).reservation_id),
            "slug": lambda: owner.event.slug,
            "event": lambda: owner.event.slug,
            "section": lambda: "hall",
            "code": lambda: rng.choice(owner.codes),
            "number": lambda: Invoice.objects.filter(order=owner.order).values_list("number", flat=True)[0],
            "receipt_handle": lambda: str(owner.order.pk),
            "provider": lambda: "sandbox",
        }
        return values.get(name, lambda: str(owner.order.pk))()

    return "/" + re.sub(r"{(\w+)}", lambda found: value(found[1]), template)


def body_of(owners: list[Owner], rng: random.Random, *, is_api: bool) -> dict[str, Any]:
    """Return a body or form that names what belongs to a random owner."""
    owner = rng.choice(owners)
    code = rng.choice(owner.codes)
    bodies: list[dict[str, Any]] = [
        {},
        {"tickets": [code]},
        {"ticket": code, "email": "eve@example.org"},
        {"seats": ["hall-E-10"], "replace": str(owner.order.reservation_id)},
        {"visitor_id": visitor_id_of_secret(owner.visitor_secret)},
        {"email": "eve@example.org", "name": "Eve", "payment_method": "sandbox"},
        {"scan_id": f"scan-{rng.random()}", "code": code},
        {"scans": [{"scan_id": f"scan-{rng.random()}", "code": code}]},
    ]
    if not is_api:
        key = {"idempotency_key": rng.choice(("c", "first-pay", f"new-{rng.random()}"))}
        bodies = [
            {"ticket": code, "step": "return", "email": "eve@example.org", **key},
            {"code": code, "scan_id": f"s{rng.random()}"},
            key,
            {},
        ]
    return rng.choice(bodies)


def send(identity: Identity, method: str, path: str, body: dict[str, Any], rng: random.Random) -> Any:
    client = Client(headers=SAME_ORIGIN, raise_request_exception=False)
    if identity.user is not None:
        client.force_login(identity.user)
    for name, value in identity.cookies.items():
        client.cookies[name] = value
    headers = {"idempotency-key": rng.choice(("c", "first-hold", "second-pay", f"new-{rng.random()}"))}
    if identity.token:
        headers["authorization"] = f"Bearer {identity.token}"
    target = path + (f"?key={identity.key}" if identity.key else "")
    if path.startswith("/api/"):
        content = json.dumps(body) if body and method not in ("GET", "HEAD") else ""
        return client.generic(method, target, content, content_type="application/json", headers=headers)
    if method == "POST":
        return client.post(target, body, headers=headers)
    return client.generic(method, target, headers=headers)


def leaks(response: Any, owner: Owner, sent: str) -> list[str]:
    """Return what the response says of the owner and the request did not."""
    headers = "\n".join(f"{name}: {value}" for name, value in response.headers.items())
    cookies = "\n".join(morsel.OutputString() for morsel in response.cookies.values())
    content = b"" if response.streaming else response.content
    text = headers + cookies + content.decode("utf-8", "replace")
    return [secret for secret in (*owner.secrets, *owner.codes) if secret in text and secret not in sent]


def probe(seed: int, count: int, only: str = "", methods: Sequence[str] = METHODS) -> None:
    """Send `count` random requests to the routes that contain `only`; fail with a list of every leak and every
    change."""
    rng = random.Random(seed)
    shows = [make_event(slug) for slug in ("concert", "play")]
    for show in shows:
        ReturnPolicy.objects.create(event_id=show.id, until_hours=1)
        TransferPolicy.objects.create(event_id=show.id)
    accounts = [
        User.objects.create_user(f"{name}@example.org", f"{name}@example.org") for name in ("buyer-c", "buyer-d")
    ]
    owners = [
        sale("buyer-a", shows[0], None),
        sale("buyer-b", shows[1], None),
        sale("buyer-c", shows[0], accounts[0]),
        sale("buyer-d", shows[1], accounts[1]),
    ]
    everyone, paths = identities(owners, shows), sorted({template for template, _ in routes()})
    assert len(paths) > 40
    paths = [path for path in paths if only in path]
    problems, before = [], read_states(owners)
    for _ in range(count):
        identity, method = rng.choice(everyone), rng.choice(methods)
        path = fill(rng.choice(paths), owners, rng)
        body = body_of(owners, rng, is_api=path.startswith("/api/"))
        rate_limits.forget_everything()
        response = send(identity, method, path, body, rng)
        request = f"{identity.name}: {method} {path} {json.dumps(body)}"
        if response.status_code >= 500:
            problems.append(f"{request}: {response.status_code}")
        problems += [
            f"{request}: {response.status_code} contains {found}"
            for owner in owners
            if owner.name not in identity.reads
            for found in leaks(response, owner, f"{request} {identity.key} {identity.token}")
            # A ticket's code opens its page, which names the holder.
            if not (re.match(r"/tickets/", path) and found == f"Name of {owner.name}")
        ]
        after = read_states(owners)
        changed = {name for name, state in after.items() if state != before[name]}
        problems += [f"{request}: changed {name}" for name in sorted(changed - identity.changes)]
        before = after
    assert problems == [], "\n".join(problems)
    deliver_outbox()
    assert_audit_clean()


@pytest.mark.slow
def test_no_identity_reaches_anothers_order() -> None:
    probe(seed=1, count=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 10))
def test_no_identity_reaches_anothers_order_in_many_requests(seed: int) -> None:
    probe(seed, count=400)


@pytest.mark.slow
def test_the_probe_finds_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the check of the owner, the probe fails."""
    monkeypatch.setattr(access, "_require_owner", lambda *args: None)
    with pytest.raises(AssertionError, match="contains buyer-"):
        probe(seed=1, count=100, only="orders/{order_id}", methods=["GET"])
