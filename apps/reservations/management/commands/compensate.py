"""manage.py compensate: what would be done about an oversell, and with --apply, doing it."""

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
_BUSY = "others keep locked what this needs. What is listed as done stays done; run it again."


class Command(BaseCommand):
    help = (
        "Says what would make up for an oversell of the event, in the way its on-sale chose: the newest give up what "
        "they have, or the house gives out what it kept. Changes nothing without --apply. Exit 1 while something is "
        "oversold, exit 0 when nothing is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("event", metavar="EVENT", help="the event's id in addresses")
        parser.add_argument(
            "--apply",
            action="store_true",
            help="end what is past its deadline, repair what takes nothing from anybody, then do what is still needed",
        )
        parser.add_argument(
            "--approved-by",
            default="",
            metavar="NAME",
            help=f"who answers for it; needed when it touches more than {oversell_plan.APPROVAL_PERCENT} %% of what a "
            "section has promised, and kept with what was done",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            event = events.get_event(options["event"])
        except events.EventNotFound as error:
            raise CommandError(f"{options['event'][:80]}: no published event of this name") from error
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
            self.stdout.write(f"  not made up for by {plan.strategy}: {words}")
        for share in plan.approval_reasons:
            self.stdout.write(f"  approved by {approved_by}: {share}" if approved_by else f"  needs approval: {share}")
        if not options["apply"]:
            for step in plan.steps:
                self.stdout.write(f"  would {step.line}")
            self.stdout.write(f"{event.slug}: nothing was done; {_how_to_apply(plan, approved_by)}")
            sys.exit(1)
        self._apply(event, plan, by, approved_by)

    def _sweep_and_repair(self, event: events.EventView, by: str) -> None:
        """Who is past the deadline claims nothing, and a miscount is no oversell: often that is all it takes. It asks
        for nobody's approval, since it takes nothing from anybody; it is told, whatever follows."""
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
                self.stdout.write(f"  done: {_counted(ended, 'reservation')} past the deadline ended")
            if repaired:
                self.stdout.write(f"  done: {_counted(repaired, 'difference')} repaired, as by reconcile --repair")

    def _apply(self, event: events.EventView, plan: oversell_plan.Plan, by: str, approved_by: str) -> None:
        try:
            for done in oversell_compensation.apply(plan, by=by, approved_by=approved_by):
                word = "done" if done.was_applied else "not done, since it is not needed or not possible any more"
                self.stdout.write(f"  {word}: {done.step.line}")
        except oversell_compensation.ApprovalRequired as error:
            raise CommandError(
                f"{event.slug}: this would touch more than {oversell_plan.APPROVAL_PERCENT} % ({error}), so nothing "
                "was taken from anybody. Whoever answers for it is named with --approved-by."
            ) from error
        except release.Stranded as error:
            raise CommandError(
                f"{event.slug}: {error}; that step was not done. Run reconcile --repair, then this again."
            ) from error
        except DatabaseError as error:
            if not transactions.is_transient(error):
                raise
            raise CommandError(f"{event.slug}: {_BUSY}") from error
        left = list(oversell_plan.find(event.id))
        for one in left:
            self.stdout.write(f"{event.slug}/{one.words}")
        self.stdout.write(f"{event.slug}: {'still oversold' if left else 'nothing is oversold any more'}")
        if left:
            sys.exit(1)


def _how_to_apply(plan: oversell_plan.Plan, approved_by: str) -> str:
    if not plan.steps:
        return "this way has nothing to give. The other is chosen in the event's on-sale"
    approval = " --approved-by NAME" if plan.approval_reasons and not approved_by else ""
    return f"--apply{approval} sweeps and repairs first, then does what is still needed"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
