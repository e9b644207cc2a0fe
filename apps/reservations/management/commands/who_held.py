"""manage.py who_held SEAT --at ISO: who had a seat at a moment, from the ledger."""

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.cli import report_errors_in_one_line
from apps.reservations.checks import seat_history


class Command(BaseCommand):
    help = (
        "Tells who had a seat at a moment: held, paying, sold, blocked or free, since when and until when, as the "
        "append-only ledger has it. What begins at the moment counts, what ends at it does not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("seat", metavar="SEAT", help="the seat's id, such as stalls-A-1")
        parser.add_argument(
            "--at",
            default="",
            metavar="ISO",
            help="such as 2026-11-21T19:30, the venue's time, or with an offset (…+01:00, …Z); default: now",
        )
        parser.add_argument("--event", default="", metavar="EVENT", help="needed where several events have such a seat")
        parser.add_argument("--json", action="store_true", help="print JSON, times in UTC")

    def handle(self, *args: Any, **options: Any) -> None:
        event, seat = _find(options["seat"], options["event"])
        now = clock.now()
        try:
            moment = seat_history.parse_moment(options["at"], event.timezone, now) if options["at"] else now
        except seat_history.BadMoment as bad:
            raise CommandError(str(bad)) from bad
        story = seat_history.timeline(event, seat)
        write = _json if options["json"] else _text
        self.stdout.write(write(story, moment))


def _find(guid: str, slug: str) -> tuple[events.EventView, events.SeatView]:
    found = events.seats_across_events(guid)
    if slug:
        try:
            event = events.get_event(slug)
        except events.EventNotFound as error:
            raise CommandError(f"{slug[:80]}: no published event of this name") from error
        if event.id not in found:
            raise CommandError(f"{slug}: no seat {guid[:120]!r}")
        return event, found[event.id]
    if not found:
        raise CommandError(f"no event has a seat {guid[:120]!r}")
    if len(found) > 1:
        slugs = sorted(events.get_event_by_id(event_id).slug for event_id in found)
        raise CommandError(f"{len(found)} events have a seat {guid[:120]!r}; name one with --event: {', '.join(slugs)}")
    ((event_id, seat),) = found.items()
    return events.get_event_by_id(event_id), seat


def _text(story: seat_history.Timeline, moment: datetime) -> str:
    zone = ZoneInfo(story.timezone)

    def clock_there(at: datetime) -> str:
        return at.astimezone(zone).isoformat(sep=" ", timespec="microseconds")

    lines = [f"{story.event}: seat {story.guid} at {clock_there(moment)} ({story.timezone})"]
    holders = story.at(moment)
    for span in holders:
        whose = f"by {span.buyer}, reservation {span.reservation_id}" if span.reservation_id else f"by {span.who}"
        order = f", order {span.order}" if span.order else ""
        end = f"until {clock_there(span.until)}, then {span.ended_as}" if span.until else "to this day"
        why = f" ({span.why})" if span.why else ""
        lines.append(f"{span.state} {whose}{order}, since {clock_there(span.since)}{why}, {end}")
    if not holders:
        since = story.free_since(moment)
        lines.append(f"free since {clock_there(since)}" if since else "free; nobody had had it before")
    if len(holders) > 1:
        lines.append("More than one had it: this must never happen. Run manage.py audit.")
    return "\n".join(lines)


def _exact(at: datetime | None) -> str | None:
    """To the microsecond: what it prints can be asked for again."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z") if at else None


def _json(story: seat_history.Timeline, moment: datetime) -> str:
    free_since = story.free_since(moment)
    return json.dumps(
        {
            "event": story.event,
            "seat": story.guid,
            "at": _exact(moment),
            "free": not story.at(moment),
            "free_since": _exact(free_since) if not story.at(moment) else None,
            "held_by": [
                {
                    "state": span.state,
                    "reservation": str(span.reservation_id) if span.reservation_id else None,
                    "buyer": span.buyer or None,
                    "order": span.order or None,
                    "since": _exact(span.since),
                    "until": _exact(span.until),
                    "ended_as": span.ended_as or None,
                    "who": span.who,
                    "why": span.why,
                }
                for span in story.at(moment)
            ],
        }
    )
