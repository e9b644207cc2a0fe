"""manage.py rebuild_queue: the copy of one room in Redis, made anew by hand."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel import redis
from apps.kernel.cli import report_errors_in_one_line
from apps.kernel.observability import log_context
from apps.queue.models import WaitingRoom
from apps.queue.snapshot import rebuild


class Command(BaseCommand):
    help = (
        "Throws away what Redis knows of the event's waiting room and makes it anew from PostgreSQL; prints how long "
        "that took and shows that nobody changed place. It heals by itself within a second, too: this is to see it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's id in addresses")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["event"]
        try:
            done = rebuild.rebuild(events.get_event(slug).id)
        except (events.EventNotFound, WaitingRoom.DoesNotExist):
            raise CommandError(f"no event {slug} has been published") from None
        except redis.RedisUnavailable as error:
            raise CommandError(f"Redis is away, and so is the copy: {log_context.summarize_error(error)}") from None
        self.stdout.write(
            f"{slug}: room {done.board.state}, head {done.board.head:,}, next number {done.board.next_number:,}: "
            f"{done.bytes_count} bytes written and read back in {done.seconds * 1_000:.1f} ms"
        )
        what = "identical before and after" if done.is_same_order else "NOT the same"
        self.stdout.write(
            f"{slug}: order of {done.after.entry_count:,} places {what}, sha256 {done.after.digest} "
            f"(compared in {done.checking_seconds:.1f} s)"
        )
        if not done.is_same_order:
            raise CommandError(
                f"before it was {done.before.entry_count:,} places, sha256 {done.before.digest}: run verify_queue"
            )
