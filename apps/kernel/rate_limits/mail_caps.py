"""Limits how many mails one address gets, so that orders with another person's address cannot flood it; and of mails
that anyone can request, how many one network requests and the whole site sends.

A cap delays a mail and never an order: the outbox postpones the message. The counts are in PostgreSQL, under a digest
of the address or network.
"""

from collections.abc import Callable
from datetime import datetime

from django.conf import settings
from django.db import connection

from apps.kernel import secret_key
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.rate_limits import address_caps, limits, mailboxes

KEPT_DAYS = 2
_BATCH_MAX = 10_000
_ORIGIN_LENGTH = 16
_count_mail = sql.load("apps.kernel", "count_mail")
_mail_wait = sql.load("apps.kernel", "mail_wait")
_uncount_mail = sql.load("apps.kernel", "uncount_mail")
_delete_mail_counts = sql.load("apps.kernel", "delete_mail_counts")


def send_within_cap(address: str, share: float, send: Callable[[], object], *, sender: str = "") -> None:
    """Send a mail to this address, from an outbox handler. Raises RetryLater while the address has received its cap of
    mails, of which mails of this kind may use this share. Mails of a named sender have a cap of their own."""
    wait_seconds = count_mail(address, share, sender=sender)
    if wait_seconds:
        raise outbox.RetryLater(wait_seconds, "delayed: this address has its cap of mails")
    try:
        send()
    except BaseException:  # Also a panic of a library or the process's end: the mail was not sent.
        uncount_mail(address, sender=sender)
        raise


def count_mail(address: str, share: float = 1, *, sender: str = "") -> float:
    """Count a mail to this address, commit, and return 0; or count nothing and return the seconds after which to ask
    again. `share` is the part of the caps that mails of this kind may use. Mails of a named sender count apart."""
    hour_max, day_max = settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX
    if not (hour_max or day_max):
        return 0
    with transactions.write():
        return _count(_digest(address, sender), _part_of(hour_max, share), _part_of(day_max, share))


def count_mail_of_site(kind: str, per_hour_max: int, share: float = 1) -> float:
    """`count_mail` for all mails of one kind together, with a cap of its own."""
    with transactions.write():
        return _count(_digest_of_site(kind), _part_of(per_hour_max, share), None)


def uncount_mail_of_site(kind: str) -> None:
    """Undo `count_mail_of_site`, and commit."""
    with transactions.write(), connection.cursor() as cursor:
        _uncount_mail.count(cursor, recipient=_digest_of_site(kind))


def count_mail_of_network(kind: str, address: str, per_hour_max: int, per_day_max: int) -> float:
    """Count a mail of this kind that a client at this address requests, in the caller's transaction, and return 0; or
    return the seconds after which to ask again, and the caller rolls back.

    Counted are the IPv4 address or the IPv6 /64, and the IPv6 /48 with a higher cap, as for rate limits. Exempt
    networks have no cap; those of ADDRESS_CAPS_RAISED have higher ones.
    """
    transactions.require_transaction()
    subject = limits.subject(address)
    if not subject:
        return 0
    factor = address_caps.factor_of(address)
    for network, times in ((subject, factor), (limits.site_of(subject), factor * limits.SITE_FACTOR)):
        if network:
            digest = secret_key.keyed_digest(f"mail network {kind}", network).hex()
            wait_seconds = _count(digest, per_hour_max * times, per_day_max * times)
            if wait_seconds:
                return wait_seconds
    return 0


def _count(recipient: str, hour_max: int | None, day_max: int | None) -> float:
    """Count a mail in the caller's transaction and return 0; or count nothing and return the seconds to wait."""
    given = {"recipient": recipient, "hour_max": hour_max, "day_max": day_max}
    with connection.cursor() as cursor:
        if _count_mail.rows(cursor, **given):
            return 0
        rows = _mail_wait.rows(cursor, **given)
    return max(1.0, float(rows[0][0])) if rows else 1.0


def origin_of(address: str) -> str:
    """Return a keyed digest of the network of a client that asks for a mail: of the address, or for IPv6 of its /48."""
    network = limits.network_of(address)
    return secret_key.keyed_digest("mail origin", limits.site_of(network) or network).hex()[:_ORIGIN_LENGTH]


def take_mail(purpose: str, address: str, rate: tuple[float, int], share: float = 1, *, origin: str = "") -> bool:
    """Count a mail for this purpose to this address in the caller's transaction; return False, counting nothing, if all
    processes together have sent this share of what the rate allows in an hour or a day. Counted apart from
    `count_mail`; with an origin (`origin_of`), only mails that this network has asked for."""
    per_second, burst = rate
    hour_max, day_max = (_part_of(burst + int(per_second * seconds), share) for seconds in (3_600, 86_400))
    recipient = mailboxes.mailbox_digest(purpose, address, origin).hex()
    with connection.cursor() as cursor:
        return bool(_count_mail.rows(cursor, recipient=recipient, hour_max=hour_max, day_max=day_max))


def uncount_mail(address: str, *, sender: str = "") -> None:
    """Undo `count_mail` for a mail that could not be sent, and commit."""
    if settings.MAIL_PER_HOUR_MAX or settings.MAIL_PER_DAY_MAX:
        with transactions.write(), connection.cursor() as cursor:
            _uncount_mail.count(cursor, recipient=_digest(address, sender))


def delete_counts(before: datetime) -> int:
    """Delete counts of days that began before this time, and commit. Return how many."""
    with transactions.write(), connection.cursor() as cursor:
        return _delete_mail_counts.count(cursor, before=before, limit=_BATCH_MAX)


def _part_of(cap: int, share: float) -> int | None:
    """Return the share of a cap, at least 1; None for no cap."""
    return max(1, int(cap * share)) if cap else None


def _digest_of_site(kind: str) -> str:
    return secret_key.keyed_digest("mails of the site", kind).hex()


def _digest(address: str, sender: str) -> str:
    purpose = f"mail recipient of {sender}" if sender else "mail recipient"
    return mailboxes.mailbox_digest(purpose, address).hex()
