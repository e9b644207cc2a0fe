"""The networks that entries joined from, as keyed digests, for the shares in the report of a sale.

Only for events that allow a report. A network is an IPv4 /24 or an IPv6 /48. An entry keeps a kind and an HMAC of its
network; the key is random, of one event, and in the room's row. Both are deleted when the report is published, when the
event no longer allows one, or some time after the event. From then on no network of the event is recorded again.

Digests are written and the key is deleted under the room's lock, so no digest is written after its key was deleted.
"""

import hmac
import secrets
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.functions import Length

from apps.events import facade as events
from apps.kernel import clock, rate_limits
from apps.kernel.db import sql, transactions
from apps.queue.models import WaitingRoom
from apps.queue.room_row import lock_room, save_room

KEPT_DAYS = 90
"""After the event's start. Later no report with shares of networks can be published."""
BATCH_MAX = 1_000
KEY_BYTES = 32
IPV4, IPV6, OTHER = b"\x04", b"\x06", b"\x00"
"""The kinds, each the first byte of a digest. OTHER: an exempt, loopback or unknown address; the digest has no more."""
_KIND_NAMES = {IPV4: "ipv4", IPV6: "ipv6", OTHER: "other"}
_DIGEST_BYTES = 11
_PREFIXES = {8: (IPV4, 6), 16: (IPV6, 12)}
"""By the hexadecimal digits of a rate limit's subject, which is an IPv4 address or an IPv6 /64: kind, and the digits of
the network."""
_LOOPBACK = {8: "7f", 16: "0" * 16}
_blank_networks = sql.load("apps.queue", "blank_networks")


def recorded_network(event: events.EventView, address: Callable[[], str]) -> bytes | None:
    """Return the network of a join, if the event allows a report; else None, without evaluating the address."""
    return network_of(address()) if event.publishes_report else None


def network_of(address: str) -> bytes:
    """Return the kind and the prefix of the address's network. An IPv4-mapped IPv6 address is its IPv4 address."""
    subject = rate_limits.subject(address)
    kind, digits = _PREFIXES.get(len(subject), (OTHER, 0))
    if kind == OTHER or subject.startswith(_LOOPBACK[len(subject)]):
        return OTHER
    try:
        return kind + bytes.fromhex(subject[:digits])
    except ValueError:  # A subject that is not an address is the text itself.
        return OTHER


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def digest(key: bytes, network: bytes) -> bytes:
    """Return what an entry keeps of the network."""
    return network if network == OTHER else network[:1] + hmac.digest(key, network, "sha256")[:_DIGEST_BYTES]


def kind_of(digest: bytes | None) -> str:
    """Return the kind of network in a digest: ipv4, ipv6, other, or unrecorded."""
    return "unrecorded" if digest is None else _KIND_NAMES[digest[:1]]


def has_key(event_id: int) -> bool:
    """Return whether networks of the event's entries were recorded, and their digests are still complete."""
    return _rooms_with_key().filter(pk=event_id).exists()


def delete_key(event_id: int) -> bool:
    """Delete the key; from now on no network of this event is recorded. Return whether there was a key. Joins the
    caller's transaction and locks the room, the first of its locks."""
    with connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        had_key, room.network_key = bool(room.network_key), None
        save_room(cursor, room)
    return had_key


def blank_digests(event_id: int) -> int:
    """Blank the digests of an event whose key was deleted, in short transactions; return how many. It can be repeated,
    and continues where it was interrupted."""
    count, after = 0, UUID(int=0)
    while True:
        with transactions.write(), connection.cursor() as cursor:
            rows = _blank_networks.rows(cursor, event_id=event_id, after=after, limit=BATCH_MAX)
        if not rows:
            break
        count, after = count + len(rows), max(row[0] for row in rows)
    with transactions.write():
        WaitingRoom.objects.filter(pk=event_id, network_key=None).update(networks_erased_at=clock.now())
    return count


def erase_networks(before: datetime) -> int:
    """Delete the keys and digests of events that began before this time or no longer allow a report, and what is left
    of others. Return how many digests were blanked."""
    is_due = Q(event__starts_at__lt=before) | Q(event__publishes_report=False)
    for event_id in list(_rooms_with_key().filter(is_due).order_by("pk").values_list("pk", flat=True)):
        with transactions.write():
            delete_key(event_id)
    unfinished = WaitingRoom.objects.filter(network_key=None, networks_erased_at=None).order_by("pk")
    return sum(blank_digests(event_id) for event_id in list(unfinished.values_list("pk", flat=True)))


def _rooms_with_key() -> QuerySet[WaitingRoom]:
    return WaitingRoom.objects.annotate(key_length=Length("network_key")).filter(key_length__gt=0)
