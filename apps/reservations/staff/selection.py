"""Which seats staff mean: by their public ids, by the rows of a section, or a whole section."""

from dataclasses import dataclass

from apps.events import facade as events
from apps.kernel.http import problems

SEATS_MAX = 20_000
"""Of one change: what one transaction locks, writes and puts on record within a second or two."""
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class Selection:
    """Either `seats`, or a `section` with or without `rows`."""

    seats: tuple[str, ...] = ()
    section: str = ""
    rows: tuple[str, ...] = ()


def find_seats(event: events.EventView, selection: Selection) -> dict[int, str]:
    """The public ids of the chosen seats by id. Raises Invalid, naming what there is not."""
    if bool(selection.seats) == bool(selection.section) or (selection.rows and not selection.section):
        raise problems.Invalid({"seats": "name seats, or a section with or without rows of it"})
    found = _of_section(event, selection) if selection.section else _by_name(event, selection.seats)
    if len(found) > SEATS_MAX:
        raise problems.Invalid({"seats": f"{len(found):,} at once are too many; at most {SEATS_MAX:,}"})
    return found


def find_section(event: events.EventView, slug: str, *, general_admission: bool | None = None) -> events.SectionView:
    """The event's section of this name and kind, of any kind unless said. Raises Invalid naming those there are."""
    sections = [one for one in events.list_sections(event.id) if general_admission in (None, one.is_general_admission)]
    for section in sections:
        if section.slug == slug:
            return section
    kinds = {True: "general-admission section", False: "section with seats", None: "section"}
    kind = kinds[general_admission]
    there = f"there are {listed([one.slug for one in sections])}" if sections else "there are none"
    raise problems.Invalid({"section": f"no {kind} {slug[:80]!r}; {there}"})


def _of_section(event: events.EventView, selection: Selection) -> dict[int, str]:
    section = find_section(event, selection.section, general_admission=False)
    if selection.rows:
        there = events.section_rows(section.id)
        unknown = [row for row in selection.rows if row not in there]
        if unknown:
            raise problems.Invalid({"rows": f"no row {listed(unknown)} in {section.slug}; there are {listed(there)}"})
    return events.seat_guids_of_section(section.id, selection.rows)


def _by_name(event: events.EventView, guids: tuple[str, ...]) -> dict[int, str]:
    if len(guids) > SEATS_MAX:
        raise problems.Invalid({"seats": f"{len(guids):,} at once are too many; at most {SEATS_MAX:,}"})
    found = events.seat_ids_of_guids(event.id, guids)
    unknown = [guid for guid in dict.fromkeys(guids) if guid not in found]
    if unknown:
        raise problems.Invalid({"seats": f"no such seat: {listed(unknown)}"})
    return {seat_id: guid for guid, seat_id in found.items()}


def listed(names: list[str]) -> str:
    """The first few, and how many more: `A, B and 3 more`."""
    shown = ", ".join(name[:120] if name.isprintable() else repr(name[:120]) for name in names[:_NAMED_MAX])
    return f"{shown} and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else shown
