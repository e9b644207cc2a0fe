"""manage.py reveal_draw: runs the draw of a closed lobby manually."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.cli import get_os_username
from apps.queue.errors import ActRefused
from apps.queue.lobby import beacon
from apps.queue.lobby import draw as lobby_draw
from apps.queue.models import Draw, RoomAct
from apps.queue.room import operations


class Command(BaseCommand):
    help = (
        "Continues the draw of an event's closed lobby as far as possible: digest, beacon, reveal, numbers. A running "
        "gatekeeper does the same automatically. Exits with 1 if there is nothing to draw."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("event", metavar="EVENT", help="the event's slug")
        parser.add_argument(
            "--beacon", metavar="HEX", help="the signature of the beacon round that the commitment names"
        )
        parser.add_argument("--previous", default="", metavar="HEX", help="the previous round's, in a chained scheme")
        parser.add_argument("--why", default="", help="the reason, recorded with the value")

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        draw = Draw.objects.filter(pk=event.id).first()
        if draw is None:
            raise CommandError(f"{event.slug} has no lobby")
        if draw.frozen_at is None:
            raise CommandError(f"the lobby of {event.slug} has not closed yet")
        drawer = lobby_draw.DrawWorker()
        try:
            drawer.run_until_idle()
            if options["beacon"] is not None:
                self._submit_beacon_signature(event.id, options)
                drawer.run_until_idle()
        finally:
            drawer.close()
        self.stdout.write(f"{event.slug}: {self._stage(Draw.objects.get(pk=event.id))}")

    def _submit_beacon_signature(self, event_id: int, options: dict[str, Any]) -> None:
        by = {"who": get_os_username(), "why": options["why"]}
        try:
            signed = beacon.parse_signature(options["beacon"], options["previous"])
            lobby_draw.submit_beacon_signature(event_id, signed, **by)
        except (ValueError, ActRefused) as error:
            operations.record_refusal(event_id, RoomAct.What.DRAW, "beacon signature", str(error), **by)
            raise CommandError(str(error)) from error

    def _stage(self, draw: Draw) -> str:
        if draw.numbered_at is not None:
            proof = "" if draw.is_operator_proof else "; consistent, not operator-proof"
            return f"all entrants of the lobby have a number{proof}"
        chosen = lobby_draw.named_round(draw.statement)
        if draw.digest is not None and draw.revealed_at is None and chosen is not None:
            waits = f"waiting for round {chosen.number} of {chosen.source}, due at {clock.iso(chosen.at)}"
            return f"{waits}; without it the draw takes place at {clock.iso(draw.reveal_by)}"
        return "another process is running the draw"
