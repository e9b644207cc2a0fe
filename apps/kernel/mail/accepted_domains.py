"""The domains for which the mail server has accepted mails, for all processes and across restarts. Stored is a keyed
digest: a domain may be one person's."""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import DatabaseError, transaction

from apps.kernel import clock, secret_key
from apps.kernel.models import MailDomain

logger = logging.getLogger(__name__)

KEPT_DAYS = 30
_BATCH_MAX = 10_000


def load(domains: Collection[str]) -> list[str]:
    """Return those of the domains that were accepted within the last KEPT_DAYS."""
    digests = {_digest(domain): domain for domain in domains}
    since = clock.process_now() - timedelta(days=KEPT_DAYS)
    found = MailDomain.objects.filter(digest__in=digests, accepted_at__gte=since)
    return [digests[digest] for digest in found.values_list("digest", flat=True)]


def store(domains: Collection[str]) -> None:
    """Store that the server has accepted mails for these domains, and commit. The mail is sent by now: an error of the
    database is only logged."""
    now = clock.now()
    rows = [MailDomain(digest=digest, accepted_at=now) for digest in sorted(map(_digest, domains))]
    try:
        with transaction.atomic():
            MailDomain.objects.bulk_create(
                rows, update_conflicts=True, unique_fields=["digest"], update_fields=["accepted_at"]
            )
    except DatabaseError:
        logger.warning("domains that accepted a mail were not stored", exc_info=True)


def forget(domains: Collection[str]) -> None:
    """Forget that mails for these domains were accepted, and commit. An error of the database is only logged."""
    try:
        MailDomain.objects.filter(digest__in=[*map(_digest, domains)]).delete()
    except DatabaseError:
        logger.warning("a slow domain stays among those that accept mails", exc_info=True)


def delete_old(before: datetime) -> int:
    """Delete domains that accepted no mail since then, and commit. Return how many."""
    old = MailDomain.objects.filter(accepted_at__lt=before).values("digest")[:_BATCH_MAX]
    return MailDomain.objects.filter(digest__in=old).delete()[0]


def _digest(domain: str) -> str:
    return secret_key.keyed_digest("mail domain", domain).hex()
