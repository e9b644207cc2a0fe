"""`manage.py room EVENT …`: everything an operator does to a waiting room, one short line each."""

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
from apps.queue.models import VipLink, WaitingRoom
from apps.queue.room import operations, rate_control
from apps.queue.room.summary import Summary, summary_of

_State = WaitingRoom.State
STATES = {
    "open": (_State.OPEN, "let people in, or go on after a pause"),
    "pause": (_State.PAUSED, "let nobody in; everybody keeps the place"),
    "drain": (_State.DRAINED, "tell everybody waiting that it is over (asks first)"),
    "off": (_State.OFF, "no waiting room: everybody is let in at once (asks first)"),
}
CONFIRMATIONS = {
    "drain": "All who wait are told that the line is closed: {waiting} waiting.",
    "off": "All who wait are let in at once, without a cap: {waiting} waiting, {active} of {active_max} slots in use.",
}
LINKS_SHOWN = 50


class Command(BaseCommand):
    help = (
        "Shows and runs the waiting room of an event. Every act is kept with who, when and why. A refusal is one line "
        "and exit 1, and then nothing has changed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        act = add_event_actions(parser)

        act("show", "how the room stands, and what was done to it last", changes=False)
        for name, (_, words) in STATES.items():
            added = act(name, words)
            if name in CONFIRMATIONS:
                added.add_argument("--yes", action="store_true", help="do not ask")
        limits = act("limits", "set the rate, the cap and the time windows; what is not named stays")
        limits.add_argument("--rate", metavar="N", help="people let in per second")
        limits.add_argument("--active", metavar="N", help="people shopping at once")
        limits.add_argument("--claim-seconds", metavar="N", help="time to come when it is one's turn")
        limits.add_argument("--admission-seconds", metavar="N", help="time to start a reservation once in")
        floor = act("floor", "how far the rate may fall by itself while the shop complains")
        floor.add_argument("rate", metavar="N", help="per second, or `auto`: a tenth of the rate")
        act("admit", "let in the next N now, within the cap and the stock").add_argument("count", metavar="N")
        message = act("message", "what everybody waiting reads, at most 280 characters")
        message.add_argument("text", nargs="?", metavar="TEXT")
        message.add_argument("--clear", action="store_true", help="no message any more")
        for name, words in (
            ("let-through", "one person goes ahead of all others"),
            ("remove", "take one person out of the line"),
        ):
            act(name, words).add_argument("whom", metavar="WHOM", help="the number in line, or the place's id")
        link = act("link", "make a link that lets one person through, once")
        link.add_argument("--note", default="", metavar="TEXT", help="whom it is for")
        link.add_argument("--hours", default=str(vip_links.HOURS_DEFAULT), metavar="N", help="default: %(default)s")
        act("links", "the links that were made, and what became of them", changes=False)
        act("revoke", "take a link back").add_argument("link", metavar="LINK", help="its id, as `links` shows it")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            event = events.get_event(options["event"])
            standing = summary_of(event.id)
        except (events.EventNotFound, WaitingRoom.DoesNotExist) as error:
            raise CommandError(f"{options['event'][:80]}: no published event of this name") from error
        self.by = {"who": options.get("who") or get_os_username(), "why": options.get("why", "")}
        try:
            self.stdout.write(self._act(options["act"], event, standing, options))
        except ActRefused as refused:
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
                return f"{slug}: {admitted} of {count} let in"
            case "message":
                return self._message(event, options)
            case "let-through":
                is_in = operations.let_through(operations.find_entry_id(event.id, options["whom"]), **self.by)
                return f"{slug}: {options['whom']} is {'in' if is_in else 'marked, and first when there is room'}"
            case "remove":
                removed = operations.remove(operations.find_entry_id(event.id, options["whom"]), **self.by)
                return f"{slug}: {options['whom']} {'is out of the line' if removed else 'had ended already'}"
            case "link":
                hours = whole_number(options["hours"], "--hours")
                link = vip_links.make_link(event.id, note=options["note"], hours=hours, **self.by)
                return f"{vip_links.address_of(link, slug)}\n{slug}: good once, for {hours} h; its id is {link.pk}"
            case "links":
                return _format_links(event.id)
            case "revoke":
                return self._revoke(event, options["link"])
        return self._state(act, event, standing, is_sure=options.get("yes", True))

    def _state(self, act: str, event: events.EventView, standing: Summary, *, is_sure: bool) -> str:
        state, _ = STATES[act]
        if not is_sure and standing.state != state:
            words = CONFIRMATIONS[act].format(
                waiting=standing.waiting_words, active=standing.active, active_max=standing.active_max
            )
            if not sys.stdin.isatty():
                raise CommandError(f"{event.slug}: {words} If you mean it, say it again with --yes.")
            self.stdout.write(f"{event.name}: {words}")
            if input("Type yes to go on: ").strip().lower() != "yes":
                raise CommandError(f"{event.slug}: nothing was done")
        changed = operations.set_state(event.id, state, **self.by)
        return f"{event.slug}: {state}" if changed else f"{event.slug}: it was {state} already"

    def _limits(self, standing: Summary, options: dict[str, Any]) -> str:
        named = {
            "rate_per_second": ("rate", "--rate"),
            "active_max": ("active", "--active"),
            "claim_seconds": ("claim_seconds", "--claim-seconds"),
            "admission_seconds": ("admission_seconds", "--admission-seconds"),
        }
        given: dict[str, Any] = {
            limit: whole_number(options[name], option)
            for limit, (name, option) in named.items()
            if options[name] is not None
        }
        if not given:
            raise CommandError("name what to set: --rate, --active, --claim-seconds or --admission-seconds")
        changed = operations.set_limits(standing.event_id, **given, **self.by)
        now = summary_of(standing.event_id)
        words = f"{now.rate_per_second}/s, {now.active_max} active"
        return f"{now.event_slug}: {words}{'' if changed else ', as before'}"

    def _floor(self, event: events.EventView, text: str) -> str:
        changed = rate_control.set_floor(event.id, None if text == "auto" else whole_number(text, "N"), **self.by)
        words = summary_of(event.id).floor_words
        return f"{event.slug}: {words[0].lower()}{words[1:]}{'' if changed else ', as before'}"

    def _message(self, event: events.EventView, options: dict[str, Any]) -> str:
        text = (options["text"] or "").strip()
        if bool(text) == options["clear"]:
            raise CommandError("say TEXT, or --clear to take the message away")
        changed = operations.set_message(event.id, text, **self.by)
        said = "everybody waiting reads it now" if text else "no message any more"
        return f"{event.slug}: {said if changed else 'nothing changed'}"

    def _revoke(self, event: events.EventView, text: str) -> str:
        try:
            link = VipLink.objects.filter(event_id=event.id, pk=uuid.UUID(text)).first()
        except ValueError as error:
            raise CommandError(f"{text[:80]!r} is no link's id; `room {event.slug} links` shows them") from error
        if link is None:
            raise CommandError(f"{event.slug} has no link {text}; `room {event.slug} links` shows them")
        revoked = vip_links.revoke_link(link.pk, **self.by)
        return f"{event.slug}: the link {'is revoked' if revoked else 'was revoked already'}"


def _format_summary(room: Summary) -> str:
    lines = [
        f"{room.event_name} ({room.event_slug}): {room.state}",
        f"  waiting    {room.waiting_words}"
        + (f", {room.marked} of them marked" if room.marked else "")
        + (f"; {room.away} away" if room.away else ""),
        f"  shopping   {room.active:,} of {room.active_max:,}",
        f"  rate       {room.rate_words}; {room.admitted_last_minute:,} let in during the last minute",
        f"  floor      {room.floor_words[0].lower()}{room.floor_words[1:]}",
        f"  numbers    {room.head:,} reached of {room.last_number:,}",
        f"  stock      {room.supply_words}",
        f"  windows    {room.claim_seconds} s to come, {room.admission_seconds} s to start",
        f"  message    {room.message.replace(chr(10), ' / ') or 'none'}",
        f"  VIP links  {room.open_links} open",
    ]
    if room.in_lobby:
        lines.insert(2, f"  lobby      {room.in_lobby:,} have entered")
    lines += [
        f"  {format_utc(act.at)}  {act.who}: {act.get_what_display()}, {' / '.join(act.detail.splitlines())}"
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
    return "\n".join(lines) or "no links were made"
