"""`manage.py person EMAIL export|erase`: the personal data of one person."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.kernel.cli import report_errors_in_one_line
from apps.orders.privacy import erasure, export


class Command(BaseCommand):
    help = (
        "Exports everything that is stored about the person with this email address as JSON, or erases it. Erasing "
        "replaces the personal data of orders, reservations and queue entries; invoices stay as long as the law "
        "requires, amounts and seats forever. Orders that are still needed stay: open ones, those of events to come, "
        "and those with money under way; so do queue entries that still wait. Exits with 1 if any are left. See "
        "docs/privacy.md."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument("action", choices=("export", "erase"))
        parser.add_argument("--yes", action="store_true", help="erase without asking")

    def handle(self, *args: Any, **options: Any) -> None:
        email = options["email"]
        if "@" not in email:
            raise CommandError(f"{email!r} is not an email address")
        if options["action"] == "export":
            self.stdout.write(json.dumps(export.export_person(email), indent=2, ensure_ascii=False))
            return
        if not options["yes"]:
            self.stderr.write(f"This erases the personal data of {email} and cannot be undone.")
            if input("Type yes to continue: ").strip().lower() != "yes":
                raise CommandError("nothing was erased")
        done = erasure.erase_person(email)
        self.stdout.write(f"erased: {len(done.orders)} orders, {done.entry_count} queue entries")
        if export.accounts_of(email):
            self.stdout.write("the account itself stays: delete it in the admin")
        needed = [f"order {number}" for number in done.kept]
        if done.live_entry_count:
            needed.append(f"{done.live_entry_count} queue entries that still wait or shop")
        if needed:
            raise CommandError(f"still needed, repeat this later: {', '.join(needed)}")
