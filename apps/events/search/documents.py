"""What the index has of an event: its words with their weights, and the facts that filters and the order need."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from apps.events import event_views
from apps.events.models import Category, Event
from apps.events.models.catalog import lines_of
from apps.events.search.words.text import tokenize
from apps.kernel.formatting import minor_digits

NAME, NAMED, SHORT, LONG = 10, 5, 3, 1
"""The weights: the name; performers, venue and tags; short description and city; the long text."""
WEIGHTS = (NAME, NAMED, SHORT, LONG)
WORDS_MAX = 600
"""Of one event; the words of a long text beyond them are not indexed."""
DESCRIPTION_CHARACTERS_MAX = 20_000
"""The part of a long text that is read for its words."""
PRICE_MAX = 2**28 - 1
OVER = timedelta(days=1)
"""So long after its start an event is left out of the index."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The columns of SearchDocument that come from the event itself."""

    event_id: int
    is_live: bool
    starts_at: datetime
    starts_local: datetime
    ends_sale_at: datetime
    opens_at: datetime
    is_canceled: bool
    city: str
    price_minor: int | None


@dataclass(frozen=True, slots=True)
class Document:
    facts: Facts
    language: str
    weights: dict[str, int]
    """By folded word."""
    written: dict[str, str]
    """The same words with their diacritics."""

    @property
    def digest(self) -> str:
        """Changes if the postings do."""
        text = f"{self.language} {sorted(self.weights.items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


_COLUMNS = (
    "pk", "status", "language", "name", "performers", "venue__name", "tags", "summary", "venue__city", "description",
    "venue__timezone", "starts_at", "currency", "on_sale__opens_at", "on_sale__closes_at", "on_sale__ticket_fee_minor",
    "on_sale__ticket_fee_rate", "on_sale__order_fee_minor", "on_sale__waives_fees_when_free", "on_sale__tax_rate",
    "on_sale__tax_included",
)  # fmt: skip


def read_documents(event_ids: Iterable[int]) -> Iterator[Document]:
    """Yield the documents of these events, in the order of their dates. A draft and an unknown event have none."""
    wanted = list(event_ids)
    prices: dict[int, list[tuple[int, int | None]]] = {}
    for event_id, price_minor, tax_rate in Category.objects.filter(event_id__in=wanted).values_list(
        "event_id", "price_minor", "tax_rate"
    ):
        prices.setdefault(event_id, []).append((price_minor, tax_rate))
    events = Event.objects.exclude(status=Event.Status.DRAFT).filter(pk__in=wanted, on_sale__isnull=False)
    for row in events.order_by("starts_at", "pk").values_list(*_COLUMNS):
        yield _document(row, prices.get(row[0], []))


def _document(row: tuple[Any, ...], prices: list[tuple[int, int | None]]) -> Document:
    event_id, status, language, name, performers, venue, tags, summary, city, description, *rest = row
    timezone, starts_at, currency, opens_at, closes_at, *policy = rest
    full = [event_views.policy_of(*policy).place_total_minor(price, rate) for price, rate in prices]
    digits = minor_digits(currency)
    price = None if not full else min(min(full) * 100 // 10**digits, PRICE_MAX)
    local = starts_at.astimezone(ZoneInfo(timezone)).replace(tzinfo=UTC)
    facts = Facts(
        event_id, True, starts_at, local, min(closes_at or starts_at, starts_at), opens_at,
        status == Event.Status.CANCELED, city, price,
    )  # fmt: skip
    texts = (
        (NAME, name),
        (NAMED, " · ".join((*lines_of(performers), venue, tags))),
        (SHORT, f"{summary} · {city}"),
        (LONG, description[:DESCRIPTION_CHARACTERS_MAX]),
    )
    weights: dict[str, int] = {}
    written: dict[str, str] = {}
    for weight, text in texts:
        for token in tokenize(text):
            if token.word not in weights:
                if len(weights) >= WORDS_MAX:
                    break
                weights[token.word], written[token.word] = weight, token.written
    return Document(facts, language, weights, written)
