"""The messages that a scan shows at the door: text, icon and tone."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.formatting import DAY_TIME, TIME, WEEKDAY_DATE_TIME, format_datetime, format_duration
from apps.orders.checkin.check_in import Outcome, ScanAnswer
from apps.orders.terms.transfer_terms import TRANSFER

TICKET_FIELDS = ("label", "section", "row", "number", "category", "holder")


@dataclass(frozen=True, slots=True)
class ScanMessage:
    """`tone` is good, wrong or unsure; it also selects sound and vibration. `icon` is a name in the icon sheet."""

    tone: str
    icon: str
    say: str
    """What to do, readable at arm's length."""
    more: str


SCAN_MESSAGES = {
    Outcome.WELCOME: ("good", "check", "Let in"),
    Outcome.ALREADY_IN: ("wrong", "twice", "Already in"),
    Outcome.WRONG_EVENT: ("wrong", "calendar", "Wrong event"),
    Outcome.REPLACED: ("wrong", "swap", "Old code"),
    Outcome.NOT_VALID: ("wrong", "back", "Not valid"),
    Outcome.UNKNOWN: ("wrong", "question", "Code not recognized"),
    Outcome.TOO_EARLY: ("unsure", "clock", "Too early"),
    Outcome.TOO_LATE: ("unsure", "clock", "Event is over"),
    Outcome.CANCELED: ("wrong", "close", "Event canceled"),
    Outcome.UNDONE: ("unsure", "undo", "Undone"),
    Outcome.NOT_UNDONE: ("wrong", "alert", "Nothing to undo"),
}
"""Tone, icon and large text of every outcome."""


def build_scan_message(event: events.EventView, answer: ScanAnswer) -> ScanMessage:
    """Return the message for this answer at this event's door, with times in the venue's time zone."""
    tone, icon, say = SCAN_MESSAGES[Outcome(answer.outcome)]
    return ScanMessage(tone, icon, say, _explanation(event, answer))


def to_contract(event: events.EventView, answer: ScanAnswer) -> dict[str, Any]:
    """Return the answer in the form of the API."""
    message, ticket, other = build_scan_message(event, answer), answer.ticket, answer.event
    return {
        "scan_id": answer.scan_id,
        "outcome": answer.outcome,
        "say": message.say,
        "message": message.more,
        "is_warning": answer.is_warning,
        "at": clock.iso(answer.at),
        "ticket": None if ticket is None else {field: getattr(ticket, field) for field in TICKET_FIELDS},
        "since": None if answer.since is None else clock.iso(answer.since),
        "since_door": answer.since_door,
        "event": None
        if other is None
        else {"event_id": other.slug, "name": other.name, "starts_at": clock.iso(other.starts_at)},
    }


def _explanation(event: events.EventView, answer: ScanAnswer) -> str:
    match answer.outcome:
        case Outcome.WELCOME:
            return "Welcome."
        case Outcome.ALREADY_IN:
            assert answer.since is not None
            by = f", {answer.since_door}" if answer.since_door else ""
            return f"Checked in at {_format_time(event, answer.since, answer.at)}{by}. Do not let in again."
        case Outcome.WRONG_EVENT:
            assert answer.event is not None
            start = format_datetime(answer.event.starts_at, answer.event.timezone, with_zone_name=True)
            return f"This ticket is for {answer.event.name}, {start}."
        case Outcome.REPLACED:
            if answer.ticket is not None and answer.ticket.replaced_by == TRANSFER:
                return "This ticket was passed to another person. Only the recipient's new code is valid."
            return "This code was replaced. Ask for the ticket with the new code: the buyer has it by email."
        case Outcome.NOT_VALID:
            return "This ticket was refunded or canceled."
        case Outcome.TOO_EARLY:
            return _early(event, answer.at)
        case Outcome.TOO_LATE:
            return _late(event, answer.at)
        case Outcome.CANCELED:
            return "This event was canceled. Its tickets are being refunded."
        case Outcome.UNKNOWN:
            return "There is no ticket with this code. Scan again, or type the code under it."
        case Outcome.UNDONE:
            return "The check-in was undone. The ticket can be used again."
        case _:
            return "The ticket is not checked in, or its latest check-in is another one."


def _early(event: events.EventView, at: datetime) -> str:
    opens_at = event.starts_at if event.doors_at is None else event.doors_at
    what = "The event starts" if event.doors_at is None else "Doors open"
    when = format_datetime(opens_at, event.timezone, WEEKDAY_DATE_TIME, with_zone_name=True)
    return f"{what} on {when}, in {format_duration(opens_at - at)}. The ticket is valid but not checked in."


def _late(event: events.EventView, at: datetime) -> str:
    ended_at = event.starts_at if event.ends_at is None else event.ends_at
    what = "The event started" if event.ends_at is None else "The event ended"
    when = format_datetime(ended_at, event.timezone, WEEKDAY_DATE_TIME, with_zone_name=True)
    return f"{what} on {when}, {format_duration(at - ended_at)} ago. The ticket is valid but not checked in."


def _format_time(event: events.EventView, moment: datetime, seen: datetime) -> str:
    venue = ZoneInfo(event.timezone)
    is_same_day = moment.astimezone(venue).date() == seen.astimezone(venue).date()
    return format_datetime(moment, venue, TIME if is_same_day else DAY_TIME)
