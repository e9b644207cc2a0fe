"""`manage.py person EMAIL export|erase`: the personal data of one person."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts import facade as accounts
from apps.kernel.cli import report_errors_in_one_line
from apps.orders.privacy import erasure, export
from apps.orders.privacy.person import person_of_email


class Command(BaseCommand):
    help = (
        "Exports everything that is stored about the person with this email address as JSON, or erases it. Erasing "
        "replaces the personal data of orders, reservations and queue entries, and closes the person's account; "
        "invoices stay as long as the law requires, amounts and seats forever. Data that is still needed stays, and "
        "the account with it: open orders, orders and tickets for events to come, money under way, and queue entries "
        "that still wait. Exits with 1 if any is left. See docs/privacy.md."
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
        person = person_of_email(email)
        # Without the address: the log outlasts an erasure.
        recorded = f"manage.py person {options['action']}, accounts: {sorted(person.account_ids) or 'none'}"
        if options["action"] == "export":
            accounts.record_personal_data_read(None, recorded)
            self.stdout.write(json.dumps(export.export_person(person), indent=2, ensure_ascii=False))
            return
        if not options["yes"]:
            self.stderr.write(f"This erases the personal data of {email} and cannot be undone.")
            if input("Type yes to continue: ").strip().lower() != "yes":
                raise CommandError("nothing was erased")
        accounts.record_staff_action(None, recorded)
        done = erasure.erase_person(person)
        self.stdout.write(f"erased: {len(done.orders)} orders, {done.entry_count} queue entries")
        if needed := erasure.find_needed(person):
            raise CommandError(f"Repeat this later, since some data is still needed. {' '.join(needed)}")
        for account_id in sorted(person.account_ids):
            if accounts.is_staff(account_id):
                raise CommandError(f"Account {account_id} belongs to staff. Remove its staff status first.")
            accounts.erase_account(account_id)
            self.stdout.write(f"erased: account {account_id}")
