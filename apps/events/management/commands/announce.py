"""`manage.py announce EVENT "text"`: post an announcement; without a text, list the current ones."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import event_views
from apps.events.announcements import feed, service
from apps.kernel.cli import allow_intermixed_options, get_os_username, report_errors_in_one_line, whole_number
from apps.kernel.formatting import format_utc

SHOWN = 10


class Command(BaseCommand):
    help = (
        "Posts an announcement to all visitors of an event, corrects it, or retracts it. Every version is kept with "
        "its author and time. Without a text, lists the last ten announcements as readers see them."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        allow_intermixed_options(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's id, as in its URLs")
        parser.add_argument("text", nargs="?", metavar="TEXT", help="plain text of at most 500 characters")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--correct", metavar="ID", help="replace the text of this announcement by TEXT")
        which.add_argument("--take-back", metavar="ID", help="retract this announcement")
        parser.add_argument("--who", default="", metavar="NAME", help="author; default: the operating system user")
        parser.add_argument(
            "--key", default="", metavar="KEY", help="idempotency key: a repeated key posts nothing more"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        event = event_views.get_event_for_command(options["event"])
        try:
            self.stdout.write(self._act(event, options))
        except service.AnnouncementRefused as refused:
            raise CommandError(f"{event.slug}: {refused}") from refused

    def _act(self, event: event_views.EventView, options: dict[str, Any]) -> str:
        text, correct, retract = options["text"], options["correct"], options["take_back"]
        key = options["key"]
        author = options["who"] or get_os_username()
        if retract is not None:
            if text is not None:
                raise CommandError("give either TEXT or --take-back")
            result = service.retract(event.id, whole_number(retract, "ID"), author=author, key=key)
            done = "retracted" if result.is_new else "was already retracted"
        elif correct is not None:
            if text is None:
                raise CommandError("give the corrected TEXT")
            result = service.correct(event.id, whole_number(correct, "ID"), text, author=author, key=key)
            done = "corrected" if result.is_new else "has this text already"
        elif text is None:
            return _format_announcements(event)
        else:
            result = service.post(event.id, text, author=author, key=key)
            done = "published" if result.is_new else "was already published"
        return f"{event.slug}: announcement {result.announcement.announcement_id} {done}"


def _format_announcements(event: event_views.EventView) -> str:
    lines = [
        f"{one.announcement_id:>4}  {format_utc(one.posted)}{'  corrected' if one.changed_at else ''}  "
        + (one.text or "").replace("\n", " / ")
        for one in feed.read(event.id, event.starts_at).shown[:SHOWN]
    ]
    return "\n".join(lines) or f"{event.slug}: no announcements"
