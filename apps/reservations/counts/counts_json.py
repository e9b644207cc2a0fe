"""The public JSON document with the available tickets of each section."""

import gzip
import hashlib
from dataclasses import dataclass

import msgspec

from apps.events import facade as events
from apps.reservations.inventory.availability import latest_free_counts

COMPRESSED_FROM_BYTES = 500
_COMPRESSION = 6


@dataclass(frozen=True, slots=True)
class CountFrame:
    body: bytes
    compressed: bytes | None
    """`body` compressed with gzip; None if it is short."""
    etag: str
    """Quoted; the same for both encodings."""


def count_frame(slug: str) -> CountFrame:
    """Return the event's sections with the current free counts. Raises EventNotFound."""
    event = events.get_event(slug)
    sections = events.list_sections(event.id)
    free = latest_free_counts(event.id, {section.id: section.slug for section in sections})
    body = msgspec.json.encode(
        {
            "sections": [
                {
                    "section_id": section.slug,
                    "name": section.name,
                    "type": section.kind,
                    "total_seats": section.capacity,
                    "available_seats": free[section.id],
                    "needs_access": section.needs_access,
                    "prices": [
                        {"category": price.category, "price_minor": price.price_minor} for price in section.prices
                    ],
                    "currency": event.currency,
                }
                for section in sections
            ]
        }
    )
    packed = gzip.compress(body, _COMPRESSION, mtime=0) if len(body) >= COMPRESSED_FROM_BYTES else None
    return CountFrame(body, packed, f'W/"{hashlib.sha256(body).hexdigest()[:24]}"')
