"""`manage.py announce EVENT "text"`: everybody at an event reads it; without a text, what they read now."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import event_views
from apps.events.announcements import feed, service
from apps.kernel.cli import allow_intermixed_options, get_os_username, report_errors_in_one_line, whole_number
from apps.kernel.formatting import format_utc

SHOWN = 10


class Command(BaseCommand):
    help = (
        "Says something to everybody who waits for or looks at an event, corrects it, or takes it back. All of it is "
        "kept with who and when. Without a text it shows the last ten as readers get them."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        allow_intermixed_options(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's id in addresses")
        parser.add_argument("text", nargs="?", metavar="TEXT", help="plain text of at most 500 characters")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--correct", metavar="ID", help="TEXT replaces this announcement's")
        which.add_argument("--take-back", metavar="ID", help="nobody reads this announcement any more")
        parser.add_argument("--who", default="", metavar="NAME", help="default: whoever runs the command")
        parser.add_argument("--key", default="", metavar="KEY", help="the same key again says nothing more")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            event = event_views.get_event(options["event"])
        except event_views.EventNotFound as error:
            raise CommandError(f"{options['event'][:80]}: no published event of this name") from error
        try:
            self.stdout.write(self._act(event, options))
        except service.AnnouncementRefused as refused:
            raise CommandError(f"{event.slug}: {refused}") from refused

    def _act(self, event: event_views.EventView, options: dict[str, Any]) -> str:
        text, correct, take_back = options["text"], options["correct"], options["take_back"]
        key = options["key"]
        who = options["who"] or get_os_username()
        if take_back is not None:
            if text is not None:
                raise CommandError("say TEXT, or --take-back")
            said = service.retract(event.id, whole_number(take_back, "ID"), who=who, key=key)
            done = "is taken back" if said.is_new else "was taken back already"
        elif correct is not None:
            if text is None:
                raise CommandError("say TEXT that is to stand in its place")
            said = service.correct(event.id, whole_number(correct, "ID"), text, who=who, key=key)
            done = "is corrected" if said.is_new else "says that already"
        elif text is None:
            return _format_announcements(event)
        else:
            said = service.post(event.id, text, who=who, key=key)
            done = "can be read by everybody" if said.is_new else "was said already"
        return f"{event.slug}: announcement {said.announcement.announcement_id} {done}"


def _format_announcements(event: event_views.EventView) -> str:
    lines = [
        f"{one.announcement_id:>4}  {format_utc(one.posted)}{'  corrected' if one.changed_at else ''}  "
        + (one.text or "").replace("\n", " / ")
        for one in feed.read(event.id, event.starts_at).shown[:SHOWN]
    ]
    return "\n".join(lines) or f"{event.slug}: nothing is announced"
