"""Where apps above register what this app calls: at publication, and to ask what is free."""

from collections.abc import Callable, Mapping, Sequence

_publish_listeners: list[Callable[[int], None]] = []


def on_publish(listener: Callable[[int], None]) -> None:
    """From now on `listener(event_id)` runs inside the transaction that publishes an event, after its sections and
    seats are written. Apps above register here when they load, so that the arrows keep pointing down."""
    if listener not in _publish_listeners:
        _publish_listeners.append(listener)


def publish_listeners() -> Sequence[Callable[[int], None]]:
    return tuple(_publish_listeners)


Availability = dict[int, dict[int, int]]
SectionSlugs = Mapping[int, Mapping[int, str]]
"""By event and section id, as `section_slugs` has it."""
_availability_providers: list[Callable[[SectionSlugs], Availability]] = []


def provide_availability(provider: Callable[[SectionSlugs], Availability]) -> None:
    """From now on pages and the catalogue ask `provider(slugs)` what is free: event id to section id to count.
    An event it leaves out is shown without counts. The last one to register answers."""
    _availability_providers[:] = [provider]


def availability(slugs: SectionSlugs) -> Availability:
    """What is free now, as the app above knows it; empty while none has registered. `slugs`: of all sections of the
    events that are asked about."""
    if not slugs or not _availability_providers:
        return {}
    return _availability_providers[0](slugs)
