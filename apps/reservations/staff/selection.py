"""The selection of seats for a change by staff: by public ids, by rows of a section, or a whole section."""

from dataclasses import dataclass

from apps.events import facade as events
from apps.kernel.http import problems

SEATS_MAX = 20_000
"""The most seats of one change: one transaction locks, writes and records them within a second or two."""
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class Selection:
    """Either `seats`, or a `section` with or without `rows`."""

    seats: tuple[str, ...] = ()
    section: str = ""
    rows: tuple[str, ...] = ()


def find_seats(event: events.EventView, selection: Selection) -> dict[int, str]:
    """Return the public ids of the selected seats by id. Raises Invalid, naming unknown seats, sections or rows."""
    if bool(selection.seats) == bool(selection.section) or (selection.rows and not selection.section):
        raise problems.Invalid({"seats": "give seats, or a section with or without rows"})
    guids = _of_section(event, selection) if selection.section else _by_name(event, selection.seats)
    if len(guids) > SEATS_MAX:
        raise problems.Invalid({"seats": f"{len(guids):,} seats are too many for one change; at most {SEATS_MAX:,}"})
    return guids


def find_section(event: events.EventView, slug: str, *, general_admission: bool | None = None) -> events.SectionView:
    """Return the event's section with this slug, and of this kind unless None. Raises Invalid, listing the sections."""
    sections = [one for one in events.list_sections(event.id) if general_admission in (None, one.is_general_admission)]
    for section in sections:
        if section.slug == slug:
            return section
    kinds = {True: "general-admission section", False: "section with seats", None: "section"}
    kind = kinds[general_admission]
    available = f"there are {listed([one.slug for one in sections])}" if sections else "there are none"
    raise problems.Invalid({"section": f"no {kind} {slug[:80]!r}; {available}"})


def _of_section(event: events.EventView, selection: Selection) -> dict[int, str]:
    section = find_section(event, selection.section, general_admission=False)
    if selection.rows:
        rows = events.section_rows(section.id)
        unknown = [row for row in selection.rows if row not in rows]
        if unknown:
            raise problems.Invalid({"rows": f"no row {listed(unknown)} in {section.slug}; there are {listed(rows)}"})
    return events.seat_guids_of_section(section.id, selection.rows)


def _by_name(event: events.EventView, guids: tuple[str, ...]) -> dict[int, str]:
    if len(guids) > SEATS_MAX:
        raise problems.Invalid({"seats": f"{len(guids):,} seats are too many for one change; at most {SEATS_MAX:,}"})
    ids = events.seat_ids_of_guids(event.id, guids)
    unknown = [guid for guid in dict.fromkeys(guids) if guid not in ids]
    if unknown:
        raise problems.Invalid({"seats": f"unknown seats: {listed(unknown)}"})
    return {seat_id: guid for guid, seat_id in ids.items()}


def listed(names: list[str]) -> str:
    """Return the first names and the number of the others: `A, B and 3 more`."""
    shown = ", ".join(name[:120] if name.isprintable() else repr(name[:120]) for name in names[:_NAMED_MAX])
    return f"{shown} and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else shown
