"""Registries that the apps above fill: listeners of publication and of changes of the organizer, and providers of
availability and refund terms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

_publish_listeners: list[Callable[[int], None]] = []


def on_publish(listener: Callable[[int], None]) -> None:
    """Register `listener(event_id)`, which runs inside the transaction that publishes an event, after its sections and
    seats are written. Apps above register when they load, so that imports point downward only."""
    if listener not in _publish_listeners:
        _publish_listeners.append(listener)


def publish_listeners() -> Sequence[Callable[[int], None]]:
    return tuple(_publish_listeners)


_organizer_listeners: list[Callable[[int, str], str]] = []


def on_organizer_change(listener: Callable[[int, str], str]) -> None:
    """Register `listener(event_id, who)`, which runs inside the transaction in which `who` gives the event to another
    organizer. It returns a sentence for that member of staff, empty if it had nothing to do."""
    if listener not in _organizer_listeners:
        _organizer_listeners.append(listener)


def organizer_listeners() -> Sequence[Callable[[int, str], str]]:
    return tuple(_organizer_listeners)


@dataclass(frozen=True, slots=True)
class ReturnTerms:
    """The terms under which an event's buyers may return tickets."""

    until_hours: int
    """Until this many hours before the event starts."""
    keeps_fees: bool = True
    """Whether the organizer keeps the fees of returned tickets."""


class ReturnPolicies(Protocol):
    """The app above that keeps the return policies of events."""

    def read(self, event_id: int) -> ReturnTerms | None:
        """Return the event's terms; None: its buyers may not return tickets."""

    def write(self, event_id: int, terms: ReturnTerms) -> None:
        """Set the event's terms. Joins the caller's transaction. Raises ValueError if they are out of range."""


_return_policies: list[ReturnPolicies] = []


def provide_return_policies(policies: ReturnPolicies) -> None:
    """Register the app that keeps return policies. A later one replaces an earlier one."""
    _return_policies[:] = [policies]


def return_policies() -> ReturnPolicies:
    return _return_policies[0]


Availability = dict[int, dict[int, int]]
SectionSlugs = Mapping[int, Mapping[int, str]]
"""By event and section id, as `section_slugs` returns it."""
_availability_providers: list[Callable[[SectionSlugs], Availability]] = []


def provide_availability(provider: Callable[[SectionSlugs], Availability]) -> None:
    """Register `provider(slugs)`, which returns the available counts for pages and the catalog: event id to section
    id to count. Events that it leaves out are shown without counts. A later provider replaces an earlier one."""
    _availability_providers[:] = [provider]


def availability(slugs: SectionSlugs) -> Availability:
    """Return the available counts from the registered provider; empty without one. `slugs`: all sections of the
    requested events."""
    if not slugs or not _availability_providers:
        return {}
    return _availability_providers[0](slugs)


@dataclass(frozen=True, slots=True)
class RoomInterest:
    """What the waiting room knows of the interest in an event."""

    in_lobby: int
    sign_ups: int
    joined_first_hour: int
    """Entries until an hour after the opening of sales."""


_room_interest_providers: list[Callable[[int], RoomInterest | None]] = []


def provide_room_interest(provider: Callable[[int], RoomInterest | None]) -> None:
    """Register `provider(event_id)`, which returns the interest of an event that the waiting room knows of; None
    without a room. A later provider replaces an earlier one."""
    _room_interest_providers[:] = [provider]


def room_interest(event_id: int) -> RoomInterest | None:
    """Return the interest from the registered provider; None without one."""
    return _room_interest_providers[0](event_id) if _room_interest_providers else None


_refund_terms_providers: list[Callable[[int, datetime, str], str]] = []


def provide_refund_terms(provider: Callable[[int, datetime, str], str]) -> None:
    """Register `provider(event_id, at, timezone)`, which returns the sentences about returns and refunds for the
    event's page at this moment, with times in this zone. A later provider replaces an earlier one."""
    _refund_terms_providers[:] = [provider]


def refund_terms(event_id: int, at: datetime, timezone: str) -> str:
    """Return the sentences from the registered provider; empty without one."""
    return _refund_terms_providers[0](event_id, at, timezone) if _refund_terms_providers else ""
