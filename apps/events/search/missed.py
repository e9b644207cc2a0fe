"""Searches that find nothing, counted by day, so that organizers see what people look for.

Each process counts in memory and writes now and then; a process that ends loses what it has not written. Caches in
front answer repeated searches, so the counts are lower bounds. Only folded words are kept.

All organizers see the list, and any visitor may search for anything, a name or an insult. So a text is shown only once
it was searched from ADDRESSES_MIN addresses on one day; until then the day's row has their digests. A process counts a
text once a day from one address, and ADDRESS_TEXTS_MAX texts of it.
"""

import logging
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

from django.db import DatabaseError, connection
from django.db.models import Sum

from apps.events.models import MissedSearch
from apps.events.search.words.vocabulary import words_of
from apps.kernel import clock, secret_key
from apps.kernel.db import sql, transactions
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.kernel.rate_limits.limits import network_of

logger = logging.getLogger(__name__)

TEXTS_MAX = 500
"""Texts that a process counts between two writes; further ones are not counted."""
TEXTS_A_DAY_MAX = 5_000
WRITE_SECONDS = 10.0
TEXT_CHARACTERS_MAX = 80
ADDRESSES_MIN = 3
"""Addresses (IPv6: networks) from which a text was searched on one day before it is shown."""
ADDRESS_TEXTS_MAX = 50
"""Texts of one address that a process counts in a day."""
ADDRESSES_REMEMBERED_MAX = 20_000
_FAILING = "searches without results were not written"

_add_missed = sql.load("apps.events", "add_missed_searches")


class MissedSearches:
    """The counts of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, list[str]] = {}
        """The digests of the addresses from which each text was searched since the last write, one for each search."""
        self._texts: dict[str, set[str]] = {}
        """Today's texts by the digest of the address."""
        self._written_at = time.monotonic()
        self._errors = RepeatedErrors(logger)

    def record(self, text: str, address: str) -> None:
        """Count a search from this address that has found nothing. Writes the counts if the last ones are old; never
        raises for the database."""
        words = " ".join(words_of(text))[:TEXT_CHARACTERS_MAX].strip()
        if not words:
            return
        digest = _digest(address)
        with self._lock:
            if self._is_new(words, digest):
                self._addresses.setdefault(words, []).append(digest)
            is_due = time.monotonic() - self._written_at >= WRITE_SECONDS
        if is_due:
            try:
                self.write()
                self._errors.over(_FAILING)
            except DatabaseError as error:
                self._errors.record_failure(_FAILING, error)

    def _is_new(self, words: str, digest: str) -> bool:
        """Return whether the text counts now from this address, and remember it."""
        if digest not in self._texts and len(self._texts) >= ADDRESSES_REMEMBERED_MAX:
            self._texts.clear()
        # The digests of another day are others, so what is remembered of it matches none.
        known = self._texts.setdefault(digest, set())
        has_room = words in self._addresses or len(self._addresses) < TEXTS_MAX
        if words in known or len(known) >= ADDRESS_TEXTS_MAX or not has_room:
            return False
        known.add(words)
        return True

    def write(self) -> None:
        """Add the counts to those of the day (UTC)."""
        with self._lock:
            addresses, self._addresses = self._addresses, {}
            self._written_at = time.monotonic()
        if not addresses:
            return
        texts = sorted(addresses)
        with transactions.write(), connection.cursor() as cursor:
            _add_missed.count(
                cursor,
                texts=texts,
                counts=[len(addresses[text]) for text in texts],
                addresses=[",".join(sorted(set(addresses[text]))[:ADDRESSES_MIN]) for text in texts],
                addresses_min=ADDRESSES_MIN,
                texts_max=TEXTS_A_DAY_MAX,
            )


def _digest(address: str) -> str:
    """Return a digest of the address, for IPv6 of its /64 network, that is another one each day."""
    day = clock.process_now().date()
    return secret_key.keyed_digest("searches without results", f"{day} {network_of(address)}")[:8].hex()


missed_searches = MissedSearches()


@dataclass(frozen=True, slots=True)
class Missed:
    text: str
    count: int


def most_missed(days: int, limit: int) -> list[Missed]:
    """Return the texts that were searched most in the last days without a result, of those that several addresses have
    searched on a day."""
    since = clock.process_now().date() - timedelta(days=days)
    rows = MissedSearch.objects.filter(day__gt=since)
    common = rows.filter(is_common=True).values("text")
    sums = rows.filter(text__in=common).values("text").annotate(sum=Sum("count"))
    found = sums.order_by("-sum", "text").values_list("text", "sum")[:limit]
    return [Missed(*row) for row in found]
