"""manage.py who_held SEAT --at ISO: prints who held or owned a seat at a time, from the ledger."""

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
        "Prints the state of a seat at a time, from the append-only ledger: held, paying, sold, blocked or free, by "
        "whom, since when and until when. Periods include their start and exclude their end."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("seat", metavar="SEAT", help="the seat's id, such as stalls-A-1")
        parser.add_argument(
            "--at",
            default="",
            metavar="ISO",
            help="such as 2026-11-21T19:30 in the venue's time zone, or with an offset (…+01:00, …Z); default: now",
        )
        parser.add_argument(
            "--event", default="", metavar="EVENT", help="the event's slug; required if several events have this seat"
        )
        parser.add_argument("--json", action="store_true", help="print JSON, with times in UTC")

    def handle(self, *args: Any, **options: Any) -> None:
        event, seat = _find(options["seat"], options["event"])
        now = clock.now()
        try:
            moment = seat_history.parse_moment(options["at"], event.timezone, now) if options["at"] else now
        except seat_history.BadMoment as bad:
            raise CommandError(str(bad)) from bad
        timeline = seat_history.timeline(event, seat)
        write = _json if options["json"] else _text
        self.stdout.write(write(timeline, moment))


def _find(guid: str, slug: str) -> tuple[events.EventView, events.SeatView]:
    found = events.seats_across_events(guid)
    if slug:
        event = events.get_event_for_command(slug)
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


def _text(timeline: seat_history.Timeline, moment: datetime) -> str:
    zone = ZoneInfo(timeline.timezone)

    def local_time(at: datetime) -> str:
        return at.astimezone(zone).isoformat(sep=" ", timespec="microseconds")

    lines = [f"{timeline.event}: seat {timeline.guid} at {local_time(moment)} ({timeline.timezone})"]
    spans = timeline.at(moment)
    for span in spans:
        holder = f"by {span.buyer}, reservation {span.reservation_id}" if span.reservation_id else f"by {span.who}"
        order = f", order {span.order}" if span.order else ""
        end = f"until {local_time(span.until)}, then {span.ended_as}" if span.until else "until now"
        reason = f" ({span.why})" if span.why else ""
        lines.append(f"{span.state} {holder}{order}, since {local_time(span.since)}{reason}, {end}")
    if not spans:
        since = timeline.free_since(moment)
        lines.append(f"free since {local_time(since)}" if since else "free, and never held before")
    if len(spans) > 1:
        lines.append("The seat had more than one holder, which must never happen. Run manage.py audit.")
    return "\n".join(lines)


def _exact(at: datetime | None) -> str | None:
    """Return the time to the microsecond, so that it can be passed to --at."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z") if at else None


def _json(timeline: seat_history.Timeline, moment: datetime) -> str:
    free_since = timeline.free_since(moment)
    return json.dumps(
        {
            "event": timeline.event,
            "seat": timeline.guid,
            "at": _exact(moment),
            "free": not timeline.at(moment),
            "free_since": _exact(free_since) if not timeline.at(moment) else None,
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
                for span in timeline.at(moment)
            ],
        }
    )
