"""`manage.py room EVENT …`: shows and operates a waiting room."""

import sys
import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.cli import add_event_actions, get_os_username, whole_number
from apps.kernel.formatting import LOG_MINUTE, format_utc
from apps.queue.entries import vip_links
from apps.queue.errors import ActRefused
from apps.queue.models import RoomAct, VipLink, WaitingRoom
from apps.queue.room import operations, rate_control
from apps.queue.room.summary import Summary, summary_of
from apps.queue.screening import review

_State = WaitingRoom.State
STATES = {
    "open": (_State.OPEN, "admit visitors, or resume after a pause"),
    "pause": (_State.PAUSED, "admit no visitors; all keep their positions"),
    "drain": (_State.DRAINED, "close the queue; waiting visitors see that it is over (asks first)"),
    "off": (_State.OFF, "no waiting room: admit every visitor at once (asks first)"),
}
CONFIRMATIONS = {
    "drain": "All waiting visitors see that the queue is closed: {waiting} waiting.",
    "off": "All waiting visitors are admitted at once: {waiting} waiting, {active} of {active_max} slots in use.",
}
KINDS = {
    **dict.fromkeys(STATES, RoomAct.What.STATE),
    "limits": RoomAct.What.LIMITS,
    "floor": RoomAct.What.LIMITS,
    "admit": RoomAct.What.ADMIT,
    "message": RoomAct.What.MESSAGE,
    "let-through": RoomAct.What.LET_THROUGH,
    "remove": RoomAct.What.REMOVE,
    "link": RoomAct.What.LINK,
    "revoke": RoomAct.What.LINK,
    "screening": RoomAct.What.SCREENING,
    "end-review": RoomAct.What.REVIEW,
}
"""The recorded kind of each act that changes something."""
LINKS_SHOWN = 50


class Command(BaseCommand):
    help = (
        "Shows and operates an event's waiting room. Changes are recorded with operator, time and reason. A refused "
        "change prints one line, exits with status 1 and changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        act = add_event_actions(parser)

        act("show", "print the room's state and its latest changes", changes=False)
        for name, (_, words) in STATES.items():
            added = act(name, words)
            if name in CONFIRMATIONS:
                added.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        limits = act("limits", "set the rate, the cap and the time windows; others stay unchanged")
        limits.add_argument("--rate", metavar="N", help="visitors admitted per second")
        limits.add_argument("--active", metavar="N", help="visitors shopping at once")
        limits.add_argument("--claim-seconds", metavar="N", help="time to claim an admission")
        limits.add_argument("--admission-seconds", metavar="N", help="time to start a reservation after claiming it")
        floor = act("floor", "set the lowest rate that rate control may use")
        floor.add_argument("rate", metavar="N", help="per second, or `auto`: a tenth of the rate")
        act("admit", "admit the next N visitors now, within the cap and the stock").add_argument("count", metavar="N")
        screening = act("screening", "set when joins need proof of work, and from which score on they wait for review")
        screening.add_argument("when", nargs="?", choices=WaitingRoom.Screening.values)
        screening.add_argument("--review-from", metavar="N", help="a score from 1, or `never`")
        message = act("message", "set the message that waiting visitors read, at most 280 characters")
        message.add_argument("text", nargs="?", metavar="TEXT")
        message.add_argument("--clear", action="store_true", help="remove the message")
        for name, words in (
            ("let-through", "give one visitor priority over all others"),
            ("remove", "remove one visitor from the queue"),
            ("end-review", "end one visitor's review, who then waits with the same number"),
        ):
            act(name, words).add_argument("whom", metavar="WHOM", help="the queue number, or the entry's id")
        link = act("link", "create a link that gives one visitor priority, once")
        link.add_argument("--note", default="", metavar="TEXT", help="a note, for example its recipient")
        link.add_argument("--hours", default=str(vip_links.HOURS_DEFAULT), metavar="N", help="default: %(default)s")
        act("links", "print the latest links and their states", changes=False)
        act("revoke", "revoke a link").add_argument("link", metavar="LINK", help="its id, as `links` shows it")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            event = events.get_event(options["event"])
            standing = summary_of(event.id)
        except (events.EventNotFound, WaitingRoom.DoesNotExist) as error:
            raise CommandError(f"{options['event'][:80]}: there is no published event with this slug") from error
        self.by = {"who": options.get("who") or get_os_username(), "why": options.get("why", "")}
        act = options["act"]
        if not options.get("yes", True):
            self._confirm(act, event, standing)
        try:
            self.stdout.write(self._act(act, event, standing, options))
        except (ActRefused, CommandError) as refused:
            if act in KINDS:
                operations.record_refusal(event.id, KINDS[act], _wanted(options), str(refused), **self.by)
            if isinstance(refused, CommandError):
                raise
            raise CommandError(f"{event.slug}: {refused}") from refused

    def _act(self, act: str, event: events.EventView, standing: Summary, options: dict[str, Any]) -> str:
        slug = event.slug
        match act:
            case "show":
                return _format_summary(standing)
            case "limits":
                return self._limits(standing, options)
            case "floor":
                return self._floor(event, options["rate"])
            case "admit":
                count = whole_number(options["count"], "N")
                admitted = operations.admit_now(event.id, count, **self.by)
                return f"{slug}: {admitted} of {count} admitted"
            case "screening":
                return self._screening(event, options)
            case "end-review":
                is_admitted = review.end_review(operations.find_entry_id(event.id, options["whom"]), **self.by)
                return f"{slug}: {options['whom']} {'is admitted' if is_admitted else 'waits in line again'}"
            case "message":
                return self._message(event, options)
            case "let-through":
                is_admitted = operations.let_through(operations.find_entry_id(event.id, options["whom"]), **self.by)
                result = "is admitted" if is_admitted else "has priority and is admitted when a slot is free"
                return f"{slug}: {options['whom']} {result}"
            case "remove":
                removed = operations.remove(operations.find_entry_id(event.id, options["whom"]), **self.by)
                return f"{slug}: {options['whom']} {'was removed' if removed else 'had ended already'}"
            case "link":
                hours = whole_number(options["hours"], "--hours")
                link = vip_links.make_link(event.id, note=options["note"], hours=hours, **self.by)
                return f"{vip_links.address_of(link, slug)}\n{slug}: valid once, for {hours} h; its id is {link.pk}"
            case "links":
                return _format_links(event.id)
            case "revoke":
                return self._revoke(event, options["link"])
        state, _ = STATES[act]
        changed = operations.set_state(event.id, state, **self.by)
        return f"{event.slug}: {state}" if changed else f"{event.slug}: was {state} already"

    def _confirm(self, act: str, event: events.EventView, standing: Summary) -> None:
        """Ask for confirmation, unless the act would change nothing. Raises CommandError without it."""
        if standing.state == STATES[act][0]:
            return
        words = CONFIRMATIONS[act].format(
            waiting=standing.waiting_words, active=standing.active, active_max=standing.active_max
        )
        if not sys.stdin.isatty():
            raise CommandError(f"{event.slug}: {words} To confirm, repeat the command with --yes.")
        self.stdout.write(f"{event.name}: {words}")
        if input("Type yes to continue: ").strip().lower() != "yes":
            raise CommandError(f"{event.slug}: nothing was changed")

    def _limits(self, standing: Summary, options: dict[str, Any]) -> str:
        named = {
            "rate_per_second": ("rate", "--rate"),
            "active_max": ("active", "--active"),
            "claim_seconds": ("claim_seconds", "--claim-seconds"),
            "admission_seconds": ("admission_seconds", "--admission-seconds"),
        }
        limits: dict[str, Any] = {
            limit: whole_number(options[name], option)
            for limit, (name, option) in named.items()
            if options[name] is not None
        }
        if not limits:
            raise CommandError("give at least one of --rate, --active, --claim-seconds and --admission-seconds")
        changed = operations.set_limits(standing.event_id, **limits, **self.by)
        now = summary_of(standing.event_id)
        words = f"{now.rate_per_second}/s, {now.active_max} active"
        return f"{now.event_slug}: {words}{'' if changed else ', unchanged'}"

    def _floor(self, event: events.EventView, text: str) -> str:
        changed = rate_control.set_floor(event.id, None if text == "auto" else whole_number(text, "N"), **self.by)
        words = summary_of(event.id).floor_words
        return f"{event.slug}: {words[0].lower()}{words[1:]}{'' if changed else ', unchanged'}"

    def _screening(self, event: events.EventView, options: dict[str, Any]) -> str:
        when, text = options["when"], options["review_from"]
        if when is None and text is None:
            raise CommandError("give a setting or --review-from")
        score = None if text is None else 0 if text == "never" else whole_number(text, "--review-from")
        if score == 0 and text != "never":
            raise CommandError("--review-from is a score from 1, or never")
        changed = review.set_screening(event.id, when=when, review_score=score, **self.by)
        return f"{event.slug}: {_describe_screening(summary_of(event.id))}{'' if changed else ', unchanged'}"

    def _message(self, event: events.EventView, options: dict[str, Any]) -> str:
        text = (options["text"] or "").strip()
        if bool(text) == options["clear"]:
            raise CommandError("give either TEXT or --clear")
        if not operations.set_message(event.id, text, **self.by):
            return f"{event.slug}: the message is unchanged"
        return f"{event.slug}: {'waiting visitors now see the message' if text else 'the message was removed'}"

    def _revoke(self, event: events.EventView, text: str) -> str:
        try:
            link = VipLink.objects.filter(event_id=event.id, pk=uuid.UUID(text)).first()
        except ValueError as error:
            raise CommandError(f"{text[:80]!r} is not a link's id; `room {event.slug} links` prints them") from error
        if link is None:
            raise CommandError(f"{event.slug} has no link {text}; `room {event.slug} links` prints them")
        revoked = vip_links.revoke_link(link.pk, **self.by)
        return f"{event.slug}: the link {'is revoked' if revoked else 'was revoked already'}"


def _wanted(options: dict[str, Any]) -> str:
    """Return what was asked for, to record it with a refusal. A message or note is not repeated: it may be long."""
    names = (
        "rate", "active", "claim_seconds", "admission_seconds", "count", "whom", "hours", "link", "when", "review_from",
    )  # fmt: skip
    given = " ".join(f"{name}={str(options[name])[:40]}" for name in names if options.get(name) is not None)
    return f"{options['act']} {given}".strip()


def _describe_screening(room: Summary) -> str:
    return review.describe(room.screening, room.review_score)


def _format_summary(room: Summary) -> str:
    lines = [
        f"{room.event_name} ({room.event_slug}): {room.state}",
        f"  waiting    {room.waiting_words}"
        + (f", {room.marked} of them with priority" if room.marked else "")
        + (f"; {room.away} away" if room.away else ""),
        f"  shopping   {room.active:,} of {room.active_max:,}",
        f"  rate       {room.rate_words}; {room.admitted_last_minute:,} admitted during the last minute",
        f"  floor      {room.floor_words[0].lower()}{room.floor_words[1:]}",
        f"  numbers    {room.head:,} reached of {room.last_number:,}",
        f"  stock      {room.supply_words}",
        f"  windows    {room.claim_seconds} s to claim, {room.admission_seconds} s to start",
        f"  screening  {_describe_screening(room)}" + (f"; {room.in_review} in review" if room.in_review else ""),
        f"  message    {room.message.replace(chr(10), ' / ') or 'none'}",
        f"  VIP links  {room.open_links} open",
    ]
    if room.in_lobby:
        lines.insert(2, f"  lobby      {room.in_lobby:,} have entered")
    lines += [
        f"  {format_utc(act.at)}  {act.who}: {act.get_what_display()}, {' / '.join(act.detail.splitlines())}"
        + (f": refused, {act.refusal}" if act.refusal else "")
        + (f" ({act.why})" if act.why else "")
        for act in room.acts
    ]
    return "\n".join(lines)


def _format_links(event_id: int) -> str:
    now = clock.now()
    lines = [
        f"{link.pk}  {vip_links.state_of(link, now):8}  until {format_utc(link.expires_at, LOG_MINUTE)} UTC"
        f"  by {link.created_by}" + (f": {link.note}" if link.note else "")
        for link in VipLink.objects.filter(event_id=event_id).order_by("-created_at", "-pk")[:LINKS_SHOWN]
    ]
    return "\n".join(lines) or "there are no links"
