"""manage.py rebuild_queue: rebuilds the copy of one waiting room in Redis."""

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
        "Deletes the copy of the event's waiting room in Redis and writes it again from PostgreSQL. Prints how long it "
        "took, and shows that the order of the queue did not change. A lost copy also recovers by itself within a "
        "second."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's slug")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["event"]
        try:
            done = rebuild.rebuild(events.get_event(slug).id)
        except (events.EventNotFound, WaitingRoom.DoesNotExist):
            raise CommandError(f"{slug[:80]!r}: there is no published event with this slug") from None
        except redis.RedisUnavailable as error:
            raise CommandError(f"Redis is unavailable: {log_context.summarize_error(error)}") from None
        room = done.snapshot
        self.stdout.write(
            f"{slug}: room {room.state}, head {room.head:,}, next number {room.next_number:,}: "
            f"{done.bytes_count} bytes written and read back in {done.seconds * 1_000:.1f} ms"
        )
        what = "identical before and after" if done.is_same_order else "NOT the same"
        self.stdout.write(
            f"{slug}: order of {done.after.entry_count:,} entries {what}, sha256 {done.after.digest} "
            f"(compared in {done.checking_seconds:.1f} s)"
        )
        if not done.is_same_order:
            raise CommandError(
                f"before: {done.before.entry_count:,} entries, sha256 {done.before.digest}; run verify_queue"
            )
