"""manage.py compensate: prints the compensation for an oversell, and performs it with --apply."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from apps.events import facade as events
from apps.kernel.checks import reconciler
from apps.kernel.cli import get_os_username, report_errors_in_one_line
from apps.kernel.db import transactions
from apps.reservations.checks import oversell_compensation, oversell_plan
from apps.reservations.lifecycle import release

NAME_MAX = 100
_BUSY = "the rows are locked by other transactions. Steps listed as done are committed; run it again."


class Command(BaseCommand):
    help = (
        "Prints how to compensate for an oversell of the event by the strategy of its on-sale: cancel the newest "
        "reservations, or use house seats. Changes nothing without --apply. Exits with 1 while something is "
        "oversold, otherwise with 0."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's slug")
        parser.add_argument(
            "--apply",
            action="store_true",
            help="expire overdue reservations, make the repairs that take nothing from a buyer, then do what is needed",
        )
        parser.add_argument(
            "--approved-by",
            default="",
            metavar="NAME",
            help="the name of the person who approves it, which is recorded; required if it affects more than "
            f"{oversell_plan.APPROVAL_PERCENT} %% of a section's held and sold tickets",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        approved_by = " ".join(options["approved_by"].split())
        if len(approved_by) > NAME_MAX or not approved_by.isprintable():
            raise CommandError(f"--approved-by: a name of at most {NAME_MAX} printable characters")
        by = f"operator:{get_os_username()}"
        if options["apply"]:
            self._sweep_and_repair(event, by)
        plan = oversell_plan.plan(event)
        if not plan.oversold:
            self.stdout.write(f"{event.slug}: nothing is oversold")
            return
        for one in plan.oversold:
            self.stdout.write(f"{event.slug}/{one.words}")
        for words in plan.uncovered:
            self.stdout.write(f"  not covered by {plan.strategy}: {words}")
        for share in plan.approval_reasons:
            self.stdout.write(f"  approved by {approved_by}: {share}" if approved_by else f"  needs approval: {share}")
        if not options["apply"]:
            for step in plan.steps:
                self.stdout.write(f"  would {step.line}")
            self.stdout.write(f"{event.slug}: nothing was changed; {_how_to_apply(plan, approved_by)}")
            sys.exit(1)
        self._apply(event, plan, by, approved_by)

    def _sweep_and_repair(self, event: events.EventView, by: str) -> None:
        """Expire overdue reservations and repair counters: often that ends the oversell. It needs no approval, since
        it takes nothing from a buyer. Prints what was done, also if a later step fails."""
        ended, repaired = 0, 0
        try:
            while count := release.sweep(event_id=event.id, by="compensate").reservations:
                ended += count
            repaired = reconciler.run_and_record(event.id, repair_by=by).repaired_count
        except DatabaseError as error:
            if not transactions.is_transient(error):
                raise
            raise CommandError(f"{event.slug}: {_BUSY}") from error
        finally:
            if ended:
                self.stdout.write(f"  done: {_counted(ended, 'overdue reservation')} expired")
            if repaired:
                self.stdout.write(f"  done: {_counted(repaired, 'difference')} repaired")

    def _apply(self, event: events.EventView, plan: oversell_plan.Plan, by: str, approved_by: str) -> None:
        try:
            for done in oversell_compensation.apply(plan, by=by, approved_by=approved_by):
                word = "done" if done.was_applied else "skipped, no longer needed or possible"
                self.stdout.write(f"  {word}: {done.step.line}")
        except oversell_compensation.ApprovalRequired as error:
            raise CommandError(
                f"{event.slug}: this would affect more than {oversell_plan.APPROVAL_PERCENT} % ({error}), so nothing "
                "was canceled or released. Name the person who approves it with --approved-by."
            ) from error
        except release.Stranded as error:
            raise CommandError(
                f"{event.slug}: {error}; that step was not done. Run reconcile --repair, then this command again."
            ) from error
        except DatabaseError as error:
            if not transactions.is_transient(error):
                raise
            raise CommandError(f"{event.slug}: {_BUSY}") from error
        left = list(oversell_plan.find(event.id))
        for one in left:
            self.stdout.write(f"{event.slug}/{one.words}")
        self.stdout.write(f"{event.slug}: {'still oversold' if left else 'no longer oversold'}")
        if left:
            sys.exit(1)


def _how_to_apply(plan: oversell_plan.Plan, approved_by: str) -> str:
    if not plan.steps:
        return "this strategy has no step left. Choose the other one in the event's on-sale"
    approval = " --approved-by NAME" if plan.approval_reasons and not approved_by else ""
    return f"--apply{approval} expires overdue reservations and repairs first, then applies the steps still needed"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
